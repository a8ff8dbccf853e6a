"""The meaning of conversations' events, for a salvage of a damaged log: see `abridged.eventlog.salvage`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial

from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.errors import LogEncrypted
from abridged.eventlog.event import NUMBER_MAX, RecordedEvent, StreamId
from abridged.eventlog.salvage import VACANT, Meaning, Rest
from abridged.service.codec.event_json import event_line
from abridged.service.codec.events import (
    ERASED,
    ERASING,
    EVENT_TYPES,
    UnknownEvent,
    content_of,
    decoded,
    encode,
    parsed,
)
from abridged.service.conversations.blanks import redacted_payload
from abridged.service.conversations.row import READ_TABLE, Row
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationErased,
    ConversationForked,
    ConversationOpened,
    ConversationUnarchived,
    Event,
    MessageAppended,
    Settings,
    SettingsChanged,
)
from abridged.service.domain.redaction import Blanking


def _origin(event: RecordedEvent) -> tuple[StreamId, int] | None:
    """The conversation that a fork begins from, and with how many of its events."""
    if event.type != ConversationForked.__name__:
        return None
    try:
        forked = decoded(event)
    except UnknownEvent:  # the fold says so
        return None
    if not isinstance(forked, ConversationForked):  # it is blanked
        return None
    return StreamId(event.stream.namespace, forked.parent_id), forked.parent_event_version


def _rest(stream: StreamId, events: Iterable[RecordedEvent], is_erased: bool) -> Rest:
    """The rest of a conversation's events, of which some may be missing."""
    erased_at = messages = 0
    erasure: tuple[str, int, bytes] | None = None

    def readable() -> Iterator[tuple[int, Event]]:
        nonlocal erased_at, erasure, is_erased, messages
        for recorded in events:
            messages += recorded.type == MessageAppended.__name__
            is_erased = is_erased or recorded.payload == ERASED
            if recorded.type in _EMPTYING and recorded.payload != ERASED:
                erased_at = recorded.version
                erasure = recorded.type, recorded.schema_version, recorded.payload
            elif recorded.type == ConversationUnarchived.__name__ and recorded.payload != ERASED:
                erased_at, erasure, is_erased = 0, None, False
            with suppress(UnknownEvent):
                yield recorded.version, decoded(recorded)

    blanking = Blanking.of(readable())
    if erasure is None and is_erased:
        erasure = encode(ConversationErased(stream.name, messages, erasure_id="", conversations=1))
    if erasure is not None:
        end = erased_at or NUMBER_MAX
        return Rest(lambda event: ERASED if event.version < end else event.payload, erasure, erased_at)
    return Rest(partial(_left, blanking))


_EMPTYING = frozenset({ConversationErased.__name__, ConversationArchived.__name__})
"""Types of events that take the contents of all earlier ones away."""


def _left(blanking: Blanking, recorded: RecordedEvent) -> bytes:
    try:
        return redacted_payload(blanking, recorded)
    except UnknownEvent:  # the fold says so
        return recorded.payload


def _vacancy(stream: StreamId, version: int, text: str) -> tuple[str, int, bytes]:
    """An event that changes nothing but a title, which tells what is vacant, so that the log itself names it."""
    settings = Settings(title=text)
    return encode(ConversationOpened(stream.name, settings) if version == 1 else SettingsChanged(settings))


def _content(event: RecordedEvent) -> bytes:
    if is_encrypted(event.payload):
        raise LogEncrypted("the log is encrypted, and its keys are not here")
    return content_of(event.type, event.payload)


def _opens(payload: bytes) -> Iterator[str]:
    """The id that a conversation opens by."""
    for opening in (ConversationOpened, ConversationForked):
        with suppress(UnknownEvent):
            yield parsed(opening.__name__, 1, payload).conversation_id  # type: ignore[attr-defined]  # both have one


def _events_of(row: Row) -> int:
    return row.event_version


def _is_erased(row: Row) -> bool:
    return bool(row.erased)


def meaning_of(namespaces: Collection[str]) -> Meaning:
    """The meaning of a log's events, whose conversations are in these namespaces, or in others that it names."""
    return Meaning(
        types=EVENT_TYPES,
        namespaces=(*namespaces, VACANT),
        opens=_opens,
        content=_content,
        origin=_origin,
        vacancy=_vacancy,
        erasing=ERASING,
        is_readable=lambda _event: True,
        require_keys=lambda: None,
        rest=_rest,
        line=event_line,
        table=READ_TABLE,
        events_of=_events_of,
        is_erased=_is_erased,
    )
