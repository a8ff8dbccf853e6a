"""A conversation from its stream alone: every event read, checked, decoded and folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol

from abridged.eventlog.errors import StreamCorrupt
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import EventLog
from abridged.service.codec.events import ERASED, decoded
from abridged.service.conversations.snapshots import Snapshot
from abridged.service.domain.conversation import Ancestor, Conversation, Holding, holdings, initial_state
from abridged.service.domain.events import ConversationErased, ConversationForked, ErasedEvent, MessageAppended
from abridged.service.domain.fold import Originals, fold
from abridged.service.domain.ranges import common, covers
from abridged.service.domain.record import MessageRange
from abridged.service.domain.redaction import NO_REDACTION, Redaction, as_redacted

PAGE_EVENTS = 500


class StreamReader(Protocol):
    """Reads one stream of a log, as EventLog does."""

    def read_stream(self, stream: StreamId, /, *, after: int, limit: int, backward: bool) -> list[RecordedEvent]:
        """Events of the stream after a version, in order; backward, those before it."""
        ...


class Replayed(NamedTuple):
    """The fold of a stream, and the positions of its events by id; both empty without a stream.

    The `positions` of a fold from a snapshot are those of the events after it, and `before` is the snapshot's.
    """

    state: Conversation
    positions: Mapping[bytes, int]
    before: int = 0

    @property
    def position(self) -> int:
        """The last event's position; 0 without one."""
        return max(self.positions.values(), default=self.before)


def replayed(log: EventLog, key: StreamId, *, head: int = 0, snapshot: Snapshot | None = None) -> Replayed:
    """The conversation in a stream that has at least `head` events, folded from a snapshot of it or from the beginning.

    Raises StreamCorrupt if the stream is not as written or ends earlier, or was erased in part without an event that
    says so; UnknownEvent if a newer version of the program wrote one of its events; for a fork also if the streams of
    its ancestors are not. Memory grows with the conversation's window and its number of events.
    """
    positions: dict[bytes, int] = {}

    def noted() -> Iterator[RecordedEvent]:
        for recorded in recorded_events(log, key, head=head, after=state.event_version):
            positions[recorded.event_id] = recorded.position
            yield recorded

    state = snapshot.state if snapshot else initial_state()
    state = evolved(log, key, state, noted())
    if state.is_blanked:
        raise StreamCorrupt("an erased event without an erasure", key)
    return Replayed(state, positions, snapshot.position if snapshot else 0)


def evolved(log: StreamReader, key: StreamId, state: Conversation, stream: Iterable[RecordedEvent]) -> Conversation:
    """The state after more events of the stream. The first event of a fork is folded from the state of its parent.

    Raises StreamCorrupt for a fork that was not erased with its parent.
    """
    events = ((decoded(r), r.time_us) for r in stream)
    for event, at_us in events:
        if isinstance(event, ConversationForked):
            parent = StreamId(key.namespace, event.parent_id)
            before = recorded_events(log, parent, head=event.parent_event_version)
            state = evolved(log, parent, initial_state(), islice(before, event.parent_event_version))
            if not (state.is_blanked or state.erased):
                state = fold([(event, at_us)], state)
            elif _is_erased(log, key):
                state = fold([(ErasedEvent(), at_us)])
            else:
                raise StreamCorrupt("the conversation that it was forked from was erased", key, 1)
        else:
            originals = originals_of(log, key, state.ancestors)
            return fold(chain(((event, at_us),), events), state, originals=originals)
    return state


def _is_erased(log: StreamReader, key: StreamId) -> bool:
    return any(r.type == ConversationErased.__name__ and r.payload != ERASED for r in recorded_events(log, key))


def recorded_events(log: StreamReader, key: StreamId, *, head: int = 0, after: int = 0) -> Iterator[RecordedEvent]:
    """Every event of the stream after `after`. Raises StreamCorrupt if it has fewer than `head` events."""
    while page := log.read_stream(key, after=after, limit=PAGE_EVENTS, backward=False):
        yield from page
        after = page[-1].version
    if after < head:
        raise StreamCorrupt(f"a stream of {head} events ends at {after}", key, after + 1)


def recorded_originals(
    log: StreamReader,
    key: StreamId,
    ranges: Sequence[MessageRange],
    *,
    ancestors: Sequence[Ancestor] = (),
    redaction: Redaction = NO_REDACTION,
    head: int = 0,
) -> Iterator[tuple[RecordedEvent, MessageAppended]]:
    """The messages of ascending `ranges` with their events; reads nothing after the ranges, and little before them.

    Messages of `redaction` are as they are left, whether the log has been blanked or not. Messages from before a fork
    are read from the streams of its ancestors. Raises StreamCorrupt if a stream has fewer than `head` events and ends
    before the ranges do.
    """
    for held in holdings(key.name, ancestors, head=head):
        stream = StreamId(key.namespace, held.conversation_id)
        for recorded, event in _held_originals(log, stream, held, common(ranges, (held.numbers,))):
            yield recorded, as_redacted(event, redaction)


def _held_originals(
    log: StreamReader, stream: StreamId, held: Holding, ranges: Sequence[MessageRange]
) -> Iterator[tuple[RecordedEvent, MessageAppended]]:
    if not ranges:
        return
    # The stream begins with its opening, so that its n-th message has at least version n + 1.
    after = ranges[0].first - held.numbers.first + 1
    for recorded in recorded_events(log, stream, head=held.head, after=after):
        if recorded.type != MessageAppended.__name__:
            continue
        event = decoded(recorded)
        if not isinstance(event, MessageAppended):
            raise StreamCorrupt(f"position {recorded.position} was erased", stream, recorded.version)
        if event.number > ranges[-1].last:
            return
        if covers(tuple(ranges), event.number):
            yield recorded, event


def originals_of(log: StreamReader, key: StreamId, ancestors: Sequence[Ancestor] = ()) -> Originals:
    """Reads the messages that come back into a conversation's window while its stream is folded."""
    return lambda ranges: [event for _, event in recorded_originals(log, key, ranges, ancestors=ancestors)]


def require_known(log: EventLog, key: StreamId, positions: Mapping[bytes, int]) -> None:
    """Raise StreamCorrupt unless repeats of all the stream's events would be recognized."""
    if log.known_ids(key, positions) != positions:
        raise StreamCorrupt("the index of event ids is not what was written", key)
