"""The figures of a conversation whose contents nobody can read, because a key is lost, or was erased since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from abridged.eventlog.chain import Verified, genesis, verify_chain
from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import EventLog
from abridged.service.codec.events import CLEAR, ERASED, decoded
from abridged.service.conversations.replay import Replayed, recorded_events
from abridged.service.domain.events import (
    ConversationClosed,
    ConversationReopened,
    ErasedEvent,
    Event,
    MessageAppended,
)
from abridged.service.domain.fold import fold


def figures_of(log: EventLog, key: StreamId) -> Replayed:
    """The conversation as far as the types and times of its events tell, which is enough to list and to erase it.

    Raises StreamCorrupt if the stream is not as written, and UnknownEvent.
    """
    positions: dict[bytes, int] = {}
    seen: Counter[str] = Counter()

    def noted() -> Iterator[tuple[Event, int]]:
        for event in _events(log, key):
            positions[event.event_id] = event.position
            seen[event.type] += 1
            is_clear = CLEAR.have(event.type, event.payload)
            yield (decoded(event) if is_clear else ErasedEvent()), event.time_us

    state = fold(noted())
    if state.is_blanked:
        state = state._replace(
            id=key.name,
            message_version=seen[MessageAppended.__name__],
            closed=seen[ConversationClosed.__name__] > seen[ConversationReopened.__name__],
        )
    return Replayed(state, positions)


def is_erased_since(log: EventLog, key: StreamId) -> bool:
    """Return whether the keys of a stream were erased, though no event of this log says so: it is a copy of an earlier
    one. Raises StreamCorrupt and KeyLost."""
    found = False
    for stored, event in zip(_events(log, key), recorded_events(log, key), strict=False):
        if is_encrypted(stored.payload) != (event.payload == ERASED):
            return False
        found = found or is_encrypted(stored.payload)
    return found


def _events(log: EventLog, key: StreamId) -> Iterator[RecordedEvent]:
    """Every event of the stream, as it is stored."""
    walked = Verified(0, genesis(log.log_id, key))
    while page := log.read_sealed(key, after=walked.version):
        walked = verify_chain(page, after=walked)
        yield from (sealed.event for sealed in page)
