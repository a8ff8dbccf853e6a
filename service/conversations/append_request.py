"""Plans an append, and finds its messages afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from abridged.eventlog.log import AppendResult, RequestKey
from abridged.service.conversations.conversation_log import SentMessages
from abridged.service.domain.commands import CountedMessage
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import MessageRemoved
from abridged.service.domain.events import Event, MessageAppended, Settings, SystemPrompt
from abridged.service.domain.message import Message
from abridged.service.domain.ranges import covers


class AppendRequest(NamedTuple):
    """Messages to append, each with an id. `open_with` makes the settings of a new conversation.

    `asked` are the settings that the client sent, if any: an existing conversation keeps its own, but refuses
    impossible ones.
    The messages after number `replace_after` are removed first. A `system_prompt` takes the place of the one before.
    `contents` has, by message id, what the client sent in its canonical form.
    """

    messages: tuple[Message, ...]
    contents: Mapping[str, bytes]
    open_with: Callable[[], Settings]
    asked: Settings | None = None
    request_id: str = ""
    expected_version: int | None = None
    system_prompt: SystemPrompt | None = None
    replace_after: int | None = None


class Placed(NamedTuple):
    """The place of a message; `position` is 0 when an earlier call appended it."""

    id: str
    number: int
    position: int = 0
    already_appended: bool = False


class Appended(NamedTuple):
    """The conversation after an append, and where its messages are, in the order of the request."""

    state: Conversation
    messages: tuple[Placed, ...]


def sent_messages(request: AppendRequest) -> SentMessages:
    """The request as its idempotency is judged: by what it appends, and by what it removes first."""
    if not request.request_id:
        return SentMessages(request.contents)
    digest = hashlib.blake2b(digest_size=32)
    if request.replace_after is not None:
        digest.update(b"replace_after" + request.replace_after.to_bytes(8, "big"))
    for content in request.contents.values():
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return SentMessages(request.contents, RequestKey(request.request_id, digest.digest()))


def newly_placed(events: Sequence[Event], result: AppendResult) -> dict[str, Placed]:
    """The places of the messages among the written events, by id."""
    return {
        event.message.id: Placed(event.message.id, event.number, recorded.position)
        for event, recorded in zip(events, result.events, strict=True)
        if isinstance(event, MessageAppended)
    }


def placed(request: AppendRequest, known: dict[str, int], fresh: dict[str, Placed]) -> tuple[Placed, ...]:
    """The place of each message of the request: just written, or known under its number before."""
    return tuple(fresh.get(m.id) or Placed(m.id, known[m.id], already_appended=True) for m in request.messages)


def remaining(
    counted: Iterable[CountedMessage], known: Mapping[str, int], state: Conversation
) -> tuple[CountedMessage, ...]:
    """Return the messages that are not on disk yet. Raises MessageRemoved if some of it was, and is no longer in the
    conversation."""
    for number in sorted(known.values()):
        if covers(state.removed, number):
            raise MessageRemoved(number)
    return tuple(c for c in counted if c.message.id not in known)
