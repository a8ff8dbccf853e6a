"""The meaning of conversations' events, for a salvage of a damaged log: see `abridged.eventlog.salvage`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.salvage import VACANT, Meaning
from abridged.service.codec.event_json import event_line
from abridged.service.codec.events import EVENT_TYPES, UnknownEvent, content_of, decode, encode, parsed
from abridged.service.conversations.row import READ_TABLE, Row
from abridged.service.domain.events import ConversationForked, ConversationOpened, Settings, SettingsChanged


def _origin(event: RecordedEvent) -> tuple[StreamId, int] | None:
    """The conversation that a fork begins from, and with how many of its events."""
    if event.type != ConversationForked.__name__:
        return None
    try:
        forked = decode(event.type, event.schema_version, event.payload)
    except UnknownEvent:  # the fold says so
        return None
    assert isinstance(forked, ConversationForked)
    return StreamId(event.stream.namespace, forked.parent_id), forked.parent_event_version


def _vacancy(stream: StreamId, version: int, text: str) -> tuple[str, int, bytes]:
    """An event that changes nothing but a title, which tells what is vacant, so that the log itself names it."""
    settings = Settings(title=text)
    return encode(ConversationOpened(stream.name, settings) if version == 1 else SettingsChanged(settings))


def _opens(payload: bytes) -> Iterator[str]:
    """The id that a conversation opens by."""
    for opening in (ConversationOpened, ConversationForked):
        with suppress(UnknownEvent):
            yield parsed(opening.__name__, 1, payload).conversation_id  # type: ignore[attr-defined]  # both have one


def _events_of(row: Row) -> int:
    return row.event_version


def meaning_of(namespaces: Collection[str]) -> Meaning:
    """The meaning of a log's events, whose conversations are in these namespaces, or in others that it names."""
    return Meaning(
        types=EVENT_TYPES,
        namespaces=(*namespaces, VACANT),
        opens=_opens,
        content=content_of,
        origin=_origin,
        vacancy=_vacancy,
        line=event_line,
        table=READ_TABLE,
        events_of=_events_of,
    )
