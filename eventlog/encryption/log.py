"""An EventLog that encrypts contents above another log, whose hashes, chains and files are therefore of ciphertext.

A stream's first append takes a new key, which its events name, and later appends go on with it. The key hashes the
contents that idempotency compares first, so that no copy of the log tells whether a guess is right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any

from abridged.eventlog.chain import NO_CONTENTS
from abridged.eventlog.encryption.contents import Contents, KeyErased, keys_named
from abridged.eventlog.encryption.data_key import DataKey, place_of_event
from abridged.eventlog.encryption.framing import is_encrypted, key_id_of
from abridged.eventlog.errors import EventIdConflict, EventLogError, KeyLost, RequestKeyConflict
from abridged.eventlog.event import NewEvent, RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.futures import submit
from abridged.eventlog.log import (
    EVERYTHING,
    PAGE_BYTES_MAX,
    PAGE_EVENTS_MAX,
    Append,
    AppendResult,
    CompletionQueue,
    EventFilter,
    EventLog,
    Outcome,
    Page,
)

_Ticket = tuple[Any, Append, DataKey, CompletionQueue]


class EncryptedEventLog:
    """An EventLog over `log`, with the keys of `contents`."""

    def __init__(self, log: EventLog, contents: Contents) -> None:
        self._log = log
        self._contents = contents
        self._outcomes = _Outcomes(self)

    @property
    def log_id(self) -> str:
        return self._log.log_id

    def secret(self, purpose: str) -> bytes:
        return self._log.secret(purpose)

    def submit(self, append: Append) -> Future[AppendResult]:
        return submit(self, append)

    def post(self, append: Append, ticket: Any, completions: CompletionQueue) -> None:
        is_clear = all(self._contents.clear.have(event.type, event.payload) for event in append.events)
        try:
            if is_clear and append.request is None:
                key = None
            elif append.expected == 0:  # there are no events to look at, which would cost this thread a read
                key = self._contents.known_key(append.stream)
            else:
                key = self.key_unless_lost(append.stream) if is_clear else self.key_of(append.stream)
            if is_clear and key is None:
                # An erased stream gets no new key: it would be in the stream's row, and no event would name it.
                self._log.post(append, ticket, completions)
                return
            key = self._contents.hold(append.stream, key or self._contents.keys.taken())
        except EventLogError as error:
            completions.deliver([(ticket, error)])
            return
        self._log.post(self._encrypted(append, key, of_request=key), (ticket, append, key, completions), self._outcomes)

    def read_stream(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        limit: int = PAGE_EVENTS_MAX,
        backward: bool = False,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> list[RecordedEvent]:
        page = self._log.read_stream(stream, after=after, limit=limit, backward=backward, bytes_max=bytes_max)
        return [self._contents.opened(event) for event in page]

    def read_all(self, *, after: int = 0, limit: int = PAGE_EVENTS_MAX, backward: bool = False) -> list[RecordedEvent]:
        page = self._log.read_all(after=after, limit=limit, backward=backward)
        return [self._contents.opened(event) for event in page]

    def scan(
        self,
        *,
        after: int = 0,
        limit: int = PAGE_EVENTS_MAX,
        matching: EventFilter = EVERYTHING,
        backward: bool = False,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Page:
        """See EventLog. Events whose key is lost are as erased ones, unless their stream alone is read."""
        page = self._log.scan(after=after, limit=limit, matching=matching, backward=backward, bytes_max=bytes_max)
        opened = self._contents.opened_in_passing if matching.stream is None else self._contents.opened
        return Page(tuple(map(opened, page.events)), page.cursor, page.head)

    def known(self, append: Append) -> dict[bytes, int]:
        key = self.key_of(append.stream)
        if key is None:
            return self._log.known(append)
        return self._log.known(self._encrypted(append, key, of_request=key))

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        return self._log.known_ids(stream, event_ids)

    def read_sealed(self, stream: StreamId, *, after: int = 0, limit: int = PAGE_EVENTS_MAX) -> list[SealedEvent]:
        """See EventLog. Payloads are as they are stored, because the seals bind ciphertext."""
        return self._log.read_sealed(stream, after=after, limit=limit)

    def stream_version(self, stream: StreamId) -> int:
        return self._log.stream_version(stream)

    def blank(
        self,
        stream: StreamId,
        payloads: Mapping[int, bytes],
        *,
        contents: Mapping[int, bytes] = NO_CONTENTS,
        expected_version: int | None = None,
    ) -> None:
        left = {version for version, payload in payloads.items() if payload != self._contents.clear.erased}
        encrypted, hashed = dict(payloads), dict(contents)
        after = min(left, default=1) - 1
        while left and (page := self._log.read_sealed(stream, after=after)):
            for event in (sealed.event for sealed in page if sealed.event.version in left):
                stored = encrypted[event.version] = self._blanked(event, payloads[event.version])
                if event.version in contents and (key := self._contents.key_in(stored)) is not None:
                    hashed[event.version] = key.hashed(contents[event.version])
            after = page[-1].event.version
            left = {version for version in left if version > after}
        self._log.blank(stream, encrypted, contents=hashed, expected_version=expected_version)

    def purge(self) -> bool:
        return self._log.purge()

    def full(self) -> str:
        return self._log.full()

    def head(self) -> int:
        return self._log.head()

    def head_of(self, namespace: str) -> int:
        return self._log.head_of(namespace)

    def confirm(self) -> None:
        self._log.confirm()

    def on_commit(self, listener: Callable[[int], None]) -> Callable[[], None]:
        return self._log.on_commit(listener)

    def close(self) -> None:
        self._log.close()
        self._contents.keys.close()

    def key_of(self, stream: StreamId) -> DataKey | None:
        """The stream's key; None if no event of it is encrypted, or its key was erased."""
        key = self._contents.known_key(stream)
        return key if key is not None else self._found_key(stream)

    def key_unless_lost(self, stream: StreamId) -> DataKey | None:
        """Return the stream's key, if it has one and that is not lost."""
        try:
            return self.key_of(stream)
        except KeyLost:
            return None

    def key_beside(self, stream: StreamId) -> DataKey | None:
        """Return the key for what is kept beside a stream; None if no event of it is encrypted. Raises KeyErased."""
        key = self.key_unless_lost(stream)
        if key is None and self._is_erased(stream):
            raise KeyErased
        return key

    def erase(self, stream: StreamId, position: int) -> None:
        """Erase every key that an event of the stream names, so that nobody can read its contents in any copy of the
        log. The event at this position says that they are erased."""
        named: set[bytes] = set()
        after = 0
        while page := self._log.read_sealed(stream, after=after):
            named |= keys_named([sealed.event.payload for sealed in page])
            after = page[-1].event.version
        self._contents.keys.erase(named, self.log_id, stream, position)
        self._contents.forget(stream)

    def erased_later(self) -> list[StreamId]:
        """The streams that were erased after this copy of the log was made, by events that it does not have."""
        return self._contents.keys.store.erased_after(self.log_id, self.head())

    def settle(self, streams: Collection[StreamId]) -> None:
        """See StreamKeys."""
        self._contents.keys.store.settle(self.log_id, streams)

    def has_key(self, stream: StreamId) -> bool:
        """See StreamKeys."""
        return self.key_of(stream) is not None

    def written(self, stream: StreamId, key: DataKey, outcome: Outcome) -> None:
        """Remember the key of an append that was written; no event may name that of another one."""
        if isinstance(outcome, AppendResult) and not outcome.already_appended:
            self._contents.remember(stream, key)
        else:
            self._contents.forget(stream)
        self._contents.release(stream)

    def _blanked(self, event: RecordedEvent, payload: bytes) -> bytes:
        """The payload as it is stored in the place of an event's own, with its own key."""
        if self._contents.clear.have(event.type, payload):
            return payload
        if is_encrypted(event.payload):
            key, is_erased = self._contents.keys.of(key_id_of(event.payload)), True
        else:
            key = self.key_of(event.stream)
            is_erased = key is None and self._is_erased(event.stream)
        if key is not None:
            return key.encrypted(payload, place_of_event(event.stream, event))
        return self._contents.clear.erased if is_erased else payload

    def _is_erased(self, stream: StreamId) -> bool:
        """Return True if a stream that has no key had one."""
        telling = self._telling(stream)
        return telling is not None and (is_encrypted(telling.payload) or telling.payload == self._contents.clear.erased)

    def _found_key(self, stream: StreamId) -> DataKey | None:
        telling = self._telling(stream)
        if telling is None or not is_encrypted(telling.payload):
            return None
        key = self._contents.keys.of(key_id_of(telling.payload))
        if key is not None:
            self._contents.remember(stream, key)
        return key

    def _telling(self, stream: StreamId) -> RecordedEvent | None:
        """The event that tells of the stream's key: the first one, if it is encrypted or was erased, and with it all
        others; else the newest that is not left in clear, since the stream was begun before encryption."""
        for first in (sealed.event for sealed in self._log.read_sealed(stream, limit=1)):
            if is_encrypted(first.payload) or first.payload == self._contents.clear.erased:
                return first
            for limit in (1, PAGE_EVENTS_MAX):
                for event in self._log.read_stream(stream, limit=limit, backward=True):
                    if not self._contents.clear.have(event.type, event.payload):
                        return event
        return None

    def _encrypted(
        self,
        append: Append,
        key: DataKey,
        *,
        hashed_by: Mapping[bytes, DataKey | None] = MappingProxyType({}),
        of_request: DataKey | None,
    ) -> Append:
        events: list[NewEvent] = []
        for event in append.events:
            content = event.payload if event.content is None else event.content
            by = hashed_by.get(event.event_id, key)
            if not self._contents.clear.have(event.type, event.payload) and by is not None:
                content = by.hashed(content)
            place = place_of_event(append.stream, event)
            payload = self._contents.encrypted(key, event.type, event.payload, place)
            events.append(event._replace(payload=payload, content=content))
        request = append.request
        if request is not None and of_request is not None:
            request = request._replace(content=of_request.hashed(request.content))

        def again(conflict: EventIdConflict | RequestKeyConflict) -> Append | None:
            return self._as_first_written(append, key, conflict, hashed_by, of_request)

        return append._replace(events=events, request=request, again=again)

    def _as_first_written(
        self,
        append: Append,
        key: DataKey,
        conflict: EventIdConflict | RequestKeyConflict,
        hashed_by: Mapping[bytes, DataKey | None],
        of_request: DataKey | None,
    ) -> Append | None:
        """The append with the contents that conflict hashed as they were first, in clear before encryption, or by
        another process with another key; None if they were hashed so."""
        if isinstance(conflict, RequestKeyConflict):
            first = self._key_at(append.stream, conflict.version)
            if _is_same(first, of_request):
                return None
            return self._encrypted(append, key, hashed_by=hashed_by, of_request=first)
        found = {event_id: self._key_at(append.stream, version) for event_id, version in conflict.versions.items()}
        if all(_is_same(by, hashed_by.get(event_id, key)) for event_id, by in found.items()):
            return None
        found = {**hashed_by, **found}
        ids = {event.event_id for event in append.events}
        known = self._log.known_ids(append.stream, ids)
        if known.keys() == ids:
            # The request has the key of the last event that it is for: there a repeat looks for it.
            of_request = found.get(max(known, key=known.__getitem__)) or of_request
        return self._encrypted(append, key, hashed_by=found, of_request=of_request)

    def _key_at(self, stream: StreamId, version: int) -> DataKey | None:
        """Return the key of the event at a version; None if it is in clear, or of the group that is being written, in
        which an append has the same key or none."""
        page = self._log.read_stream(stream, after=version - 1, limit=1)
        return self._contents.key_in(page[0].payload) if page else None


class _Outcomes:
    """Passes outcomes on with the events in clear."""

    def __init__(self, log: EncryptedEventLog) -> None:
        self._log = log

    def deliver(self, outcomes: Sequence[tuple[_Ticket, Outcome]]) -> None:
        """See CompletionQueue."""
        delivered: dict[int, tuple[CompletionQueue, list[tuple[Any, Outcome]]]] = {}
        for (ticket, append, key, completions), outcome in outcomes:
            self._log.written(append.stream, key, outcome)
            of_queue = delivered.setdefault(id(completions), (completions, []))[1]
            of_queue.append((ticket, _in_clear(append, outcome)))
        for completions, of_queue in delivered.values():
            completions.deliver(of_queue)


def _is_same(one: DataKey | None, other: DataKey | None) -> bool:
    return (one and one.id) == (other and other.id)


def _in_clear(append: Append, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, AppendResult) or not outcome.events:
        return outcome
    payloads = {event.event_id: event.payload for event in append.events}
    return outcome._replace(events=tuple(e._replace(payload=payloads[e.event_id]) for e in outcome.events))
