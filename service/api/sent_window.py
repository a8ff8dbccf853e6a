"""The window as bytes of a response. A message is serialized once and its bytes are reused while it is unchanged.

Serialized protobuf messages can be concatenated: a response is its messages' bytes and those of its other fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from abridged.service.api.wire import context_message, message_digest
from abridged.service.conversations.cache import Sent, SentMessage
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.render import RenderedMessage, rendered, rendered_summaries, sending_order


class SentWindow(NamedTuple):
    """The bytes of a window's messages, those messages, their digests in a row, and what to cache of them."""

    data: bytes
    messages: tuple[RenderedMessage, ...]
    digests: bytes
    kept: Sent


def sent_window(state: Conversation, role: SummaryRole, before: Sent) -> SentWindow:
    """The window; `before` is what was cached last."""
    order, factor, summaries = sending_order(state), state.settings.calibration_factor, rendered_summaries(state, role)
    known = before.messages if before.factor == factor else {}
    system = [_sent(m, None, factor, known) for m in order.system]
    chat = [_sent(m, order.quoted.get(m.number), factor, known) for m in order.chat]
    pieces = [sent.data for sent in system]
    pieces += map(context_message, summaries)
    pieces += [sent.data for sent in chat]
    messages = (*[sent.rendered for sent in system], *summaries, *[sent.rendered for sent in chat])
    digests = [sent.digest for sent in system]
    digests += [message_digest(m.message) for m in summaries]
    digests += [sent.digest for sent in chat]
    kept = Sent.of(factor, (*system, *chat)).after(before.prefixes)
    return SentWindow(b"".join(pieces), messages, b"".join(digests), kept)


def _sent(
    m: MessageAppended, quoted: tuple[int, ...] | None, factor: float, known: Mapping[int, SentMessage]
) -> SentMessage:
    sent = known.get(m.number)
    if sent is not None and sent.appended is m and sent.quoted == quoted:
        return sent
    made = rendered(m, quoted, factor)
    return SentMessage.of(m, quoted, made, context_message(made), message_digest(made.message))
