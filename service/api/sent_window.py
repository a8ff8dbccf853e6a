"""The window as bytes of a response. A window that has grown is what was sent before it, with its new messages behind.

Serialized protobuf messages can be concatenated: a response is its messages' bytes and those of its other fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from abridged.service.api.wire import sent_message
from abridged.service.conversations.cache import NO_PART, OWN_BYTES_MIN, SENT_BYTES_MIN, Sent, SentPart
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.message import Message
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.render import (
    RenderedMessage,
    order_behind,
    rendered,
    rendered_summaries,
    sending_order,
)


def sent_window(state: Conversation, role: SummaryRole, before: Sent) -> Sent:
    """The window as it is sent; `before` is what was sent last."""
    factor, window = state.settings.calibration_factor, state.window
    order = None
    if before.factor == factor and window.continues(before.window):
        order = order_behind(before.open_calls, [window[place] for place in range(len(before.window), len(window))])
    if order is None:
        before, order = before._replace(system=NO_PART, chat=NO_PART), sending_order(window)
    summaries_of = (role, factor, state.shown, state.ledger, state.rules) if state.shown else ()
    same = len(summaries_of) == len(before.summaries_of) and all(map(is_, summaries_of, before.summaries_of))
    return Sent(
        factor,
        window,
        order.open_calls,
        summaries_of,
        _behind(before.system, [(rendered(m, None, factor), m.message) for m in order.system]),
        before.summaries if same else _behind(NO_PART, [(m, None) for m in rendered_summaries(state, role)]),
        _behind(before.chat, [(rendered(m, order.quoted.get(m.number), factor), m.message) for m in order.chat]),
        before.prefixes,
    )


def _behind(part: SentPart, pairs: Sequence[tuple[RenderedMessage, Message | None]]) -> SentPart:
    """The part with these messages behind it, each beside the one that the state has."""
    if not pairs:
        return part
    messages = [m for m, _ in pairs]
    sent = [sent_message(m) for m in messages]
    data = b"".join([each for each, _ in sent])
    # Where a message is not sent as it came, the texts that it is sent with take memory, too.
    own = sum([OWN_BYTES_MIN + len(sent[place][0]) for place, (m, came) in enumerate(pairs) if m.message is not came])
    return SentPart(
        (*part.messages, *messages),
        part.data + data,
        b"".join([part.digests, *[digest for _, digest in sent]]),
        part.tokens + sum([m.tokens for m in messages]),
        part.size + SENT_BYTES_MIN * len(messages) + len(data) + own,
    )
