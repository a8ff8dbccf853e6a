"""The key that is a stream's: while its first append is written, when that is refused, and where it has several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.encryption.contents import STREAMS_MAX, Contents
from abridged.eventlog.encryption.framing import key_id_of
from abridged.eventlog.encryption.log import EncryptedEventLog
from abridged.eventlog.encryption.probe import require_clear
from abridged.eventlog.encryption.snapshots import EncryptedSnapshots
from abridged.eventlog.errors import LogEncrypted, WrongExpectedVersion
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.log import RequestKey
from abridged.eventlog.memory import MemoryEventLog
from abridged.eventlog.snapshots import StoredSnapshot
from abridged.eventlog.sqlite.backend import SqliteBackend
from tests.support.encryption import CLEAR, ERASED, encrypted_backend
from tests.support.event_logs import NOTES, A, B, Clock, Note, append, event
from tests.unit.eventlog.test_encryption import CANARY, keys_of, opened


class CountedLog(MemoryEventLog):
    """A log in memory that counts the events of a stream that are read, a look at none as one."""

    def __init__(self) -> None:
        super().__init__(clock_us=Clock())
        self.read = 0

    def read_stream(self, *args: Any, **kwargs: Any) -> list[RecordedEvent]:
        page = super().read_stream(*args, **kwargs)
        self.read += len(page) or 1
        return page

    def read_sealed(self, *args: Any, **kwargs: Any) -> list[SealedEvent]:
        page = super().read_sealed(*args, **kwargs)
        self.read += len(page) or 1
        return page


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[CountedLog, EncryptedEventLog]]:
    """A log, and the encrypted one above it."""
    with closing(keys_of(tmp_path / "keys")) as keys:
        log = CountedLog()
        yield log, EncryptedEventLog(log, Contents(keys, CLEAR))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[EncryptedEventLog, EncryptedEventLog]]:
    """Two processes on one log, of which the second has chosen a key for a stream that the first one begins."""
    shared = opened(SqliteBackend(tmp_path / "log.db")).log
    own, late = (Contents(keys_of(tmp_path / "keys"), CLEAR) for _ in range(2))
    late.remember(A, late.keys.taken())
    with closing(shared), closing(own.keys), closing(late.keys):
        yield EncryptedEventLog(shared, own), EncryptedEventLog(shared, late)


def test_a_log_is_known_as_encrypted_however_many_erasures_are_its_last_events(tmp_path: Path):
    """The first event may be erased, too. Whoever starts without a key would append in clear."""
    path = tmp_path / "log.db"
    with closing(opened(encrypted_backend(path)).log) as log:
        log.submit(append(event(1, CANARY))).result()
        log.submit(append(event(1, CANARY), to=B)).result()
        for number in range(2, 70):
            log.submit(append(event(number)._replace(type="closed"))).result()
        log.blank(A, {1: ERASED})

    with closing(opened(SqliteBackend(path)).log) as plain, pytest.raises(LogEncrypted):
        require_clear(plain, CLEAR)


def test_a_row_is_encrypted_however_many_streams_are_read_while_its_first_event_is_written(tmp_path: Path):
    """The key is no event's yet, so that nobody could find it again."""
    place = encrypted_backend(tmp_path / "log.db")
    rows = place.rows(NOTES)
    other = Contents(keys_of(tmp_path / "other"), CLEAR)

    def hook(transaction: Any, _: Any) -> None:
        for number in range(STREAMS_MAX):
            log._contents.remember(StreamId("read", str(number)), key)
        rows.put(transaction, [Note(*A, 1, data=CANARY)])

    with closing(other.keys):
        key = other.keys.taken()
        opening: Any = place.open(rows, clock_us=Clock(), hook=hook, on_fatal=lambda _: None)
        with closing(opening.log) as log:
            log.submit(append(event(1, CANARY))).result()
            assert not [each.name for each in tmp_path.iterdir() if CANARY in each.read_bytes()]


def test_a_repeat_is_known_by_every_process_whichever_key_hashed_it(two: tuple[EncryptedEventLog, EncryptedEventLog]):
    """The stream has the keys of both."""
    first, second = two
    appends = [
        append(event(number, CANARY, content=b"yes"), request=RequestKey(f"r{number}", b"asked")) for number in (1, 2)
    ]
    for log, written in zip(two, appends, strict=True):
        log.submit(written).result()

    for log in (first, second, first):
        for written in appends:
            assert log.submit(written).result().already_appended
            assert len(log.known(written)) == 1


def test_a_key_of_an_append_that_is_refused_is_not_the_streams(two: tuple[EncryptedEventLog, EncryptedEventLog]):
    """A snapshot that had it could be read after an erasure, which finds the keys of events."""
    first, second = two
    first.submit(append(event(1, CANARY))).result()
    with pytest.raises(WrongExpectedVersion):
        second.submit(append(event(2, CANARY), expected=0)).result()

    keys = [log.key_of(A) for log in two]
    assert keys[0] is not None
    assert keys[1] is not None
    assert keys[0].id == keys[1].id


def test_an_erased_stream_is_not_searched_for_a_key(counted: tuple[CountedLog, EncryptedEventLog]):
    """The first event tells, however long the stream is, and an event that is left in clear needs no key."""
    stored, log = counted
    log.submit(append(*(event(number) for number in range(1, 21)))).result()
    log.erase(A, 21)
    log.blank(A, dict.fromkeys(range(1, 21), ERASED))

    stored.read = 0
    log.submit(append(event(21)._replace(type="closed"))).result()
    assert stored.read == 0
    assert log.key_of(A) is None
    assert stored.read == 1


def test_a_stream_that_was_begun_in_clear_is_told_by_its_newest_events(counted: tuple[CountedLog, EncryptedEventLog]):
    """Events that nobody encrypts tell nothing; one in clear tells that the stream has no key."""
    stored, log = counted
    stored.submit(append(*(event(number) for number in range(1, 21)))).result()
    stored.read = 0
    assert log.key_of(A) is None
    assert stored.read == 2

    log.submit(append(event(21))).result()
    log.submit(append(*(event(number)._replace(type="closed") for number in range(22, 26)))).result()
    known = log.key_of(A)
    log._contents.forget(A)
    found = log.key_of(A)
    assert known is not None
    assert found is not None
    assert found.id == known.id


def test_a_row_without_contents_needs_no_key(tmp_path: Path):
    """The row of an erased stream is written in a transaction that others wait for."""
    rows = encrypted_backend(tmp_path / "log.db").rows(NOTES)
    asked: list[StreamId] = []
    with closing(keys_of(tmp_path / "keys")) as keys:
        rows.through(Contents(keys, CLEAR), asked.append)
        written = [rows._encrypted(Note(*A, 1)), rows._encrypted(Note(*B, 1, data=CANARY))]

    assert (written[0], asked) == (Note(*A, 1), [B])


def test_what_takes_the_place_of_an_event_has_its_key(two: tuple[EncryptedEventLog, EncryptedEventLog]):
    """An erasure, which finds the keys that events name, would miss one that no other event has."""
    first, second = two
    first.submit(append(event(1, CANARY))).result()
    second.submit(append(event(2, CANARY))).result()
    before = [key_id_of(sealed.event.payload) for sealed in first.read_sealed(A)]

    first.blank(A, {1: b"left", 2: b"left"})

    assert [key_id_of(sealed.event.payload) for sealed in first.read_sealed(A)] == before
    assert len(set(before)) == 2
    assert [each.payload for each in second.read_stream(A)] == [b"left"] * 2


def test_nothing_is_written_in_clear_of_a_stream_whose_key_is_erased(tmp_path: Path):
    """Another process may have erased it: events, also those that were in clear, rows and snapshots stay empty."""
    path = tmp_path / "log.db"
    with closing(opened(SqliteBackend(path)).log) as plain:
        plain.submit(append(event(1, b"before"))).result()
    place = encrypted_backend(path)
    rows = place.rows(NOTES)

    def hook(transaction: Any, _: Any) -> None:
        rows.put(transaction, [Note(*A, 1, data=CANARY)])

    opening: Any = place.open(rows, clock_us=Clock(), hook=hook, on_fatal=lambda _: None)
    with closing(opening.log) as log:
        log.submit(append(event(2, CANARY))).result()
        opening.keys.erase(A, 3)
        log.submit(append(event(3)._replace(type="closed"))).result()
        log.blank(A, {1: CANARY, 2: CANARY})
        opening.kept.snapshots.put(StoredSnapshot(A, 1, 1, b"chain", "codec", CANARY))

        assert [each.payload for each in log.read_stream(A, limit=2)] == [ERASED] * 2
        assert opening.kept.snapshots.of(A) is None
        assert rows.row(A) == Note(*A, 1)
        assert not [each.name for each in tmp_path.iterdir() if CANARY in each.read_bytes()]


def test_the_log_is_not_read_for_an_append_to_a_new_stream_or_after_a_snapshot(tmp_path: Path, counted: Any):
    """Appends are posted by a thread that nothing may hold up."""
    stored, log = counted
    log.submit(append(event(1), expected=0)).result()
    assert stored.read == 0

    opening = opened(SqliteBackend(tmp_path / "log.db"))
    with closing(opening.log):
        snapshots = EncryptedSnapshots(opening.kept.snapshots, log._contents, log.key_beside)
        snapshots.put(StoredSnapshot(A, 1, 1, b"chain", "codec", CANARY))
        log._contents.forget(A)
        assert snapshots.of(A) is not None
        log.submit(append(event(2), expected=1)).result()
    assert stored.read == 0
