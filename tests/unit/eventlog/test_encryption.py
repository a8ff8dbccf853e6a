"""The keys of an encrypted log, and the contents that they protect."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.encryption.backend import EncryptedBackend, KeyPlace
from abridged.eventlog.encryption.contents import Contents
from abridged.eventlog.encryption.data_keys import BATCH, DataKeys, Rewrapped
from abridged.eventlog.encryption.framing import is_encrypted, key_id_of
from abridged.eventlog.encryption.key_file import KeyFile
from abridged.eventlog.encryption.key_text import parsed_keys
from abridged.eventlog.encryption.log import EncryptedEventLog
from abridged.eventlog.encryption.operator_keys import OperatorKeys
from abridged.eventlog.encryption.probe import require_clear
from abridged.eventlog.errors import (
    EventIdConflict,
    KeyLost,
    KeysUnusable,
    LogEncrypted,
    RequestKeyConflict,
    StreamCorrupt,
)
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import RequestKey
from abridged.eventlog.snapshots import StoredSnapshot
from abridged.eventlog.sqlite.backend import SqliteBackend
from tests.support.encryption import CLEAR, ERASED, encrypted_backend, key_place, key_place_in_database, operator_key
from tests.support.event_logs import NOTES, A, B, Clock, Note, append, event
from tests.support.patience import PATIENCE_S

CANARY = b"kestrelwing"
OLD, NEW = operator_key(1), operator_key(2)
LOG = "log"


def opened(place: Any) -> Any:
    return place.open(place.rows(NOTES), clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)


def keys_of(path: Path, *keys: str) -> DataKeys:
    return key_place(path, *keys).opened()


@pytest.fixture(params=[key_place, key_place_in_database], ids=["file", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., KeyPlace]:
    """Data keys in one place, under the operator's keys that it is called with."""
    return partial(request.param, tmp_path / "keys")


def payload_of(path: Path, position: int = 1) -> bytes:
    with closing(sqlite3.connect(path)) as file:
        return bytes(file.execute("SELECT payload FROM events WHERE position = ?", (position,)).fetchone()[0])


def test_a_file_has_no_byte_of_what_its_log_says(tmp_path):
    """No event, row or snapshot leaves one there, while all of them are read in clear."""
    path = tmp_path / "log.db"
    place = encrypted_backend(path)
    rows = place.rows(NOTES)
    note = Note(*A, 1, data=CANARY)
    opening: Any = place.open(
        rows, clock_us=Clock(), hook=lambda transaction, _: rows.put(transaction, [note]), on_fatal=lambda _: None
    )
    with closing(opening.log) as log:
        log.submit(append(event(1, CANARY))).result()
        snapshot = StoredSnapshot(A, 1, 1, b"chain", "codec", CANARY)
        opening.kept.snapshots.put(snapshot)

        assert [each.payload for each in log.read_stream(A)] == [CANARY]
        assert rows.row(A) == note
        assert opening.kept.snapshots.of(A) == snapshot
        assert not [each.name for each in tmp_path.iterdir() if CANARY in each.read_bytes()]


def test_an_erased_key_takes_the_contents_out_of_every_copy(tmp_path):
    """The contents of other streams are read as before; the file of keys has no byte left of the erased key."""
    path, copy = tmp_path / "log.db", tmp_path / "copy.db"
    opening = opened(encrypted_backend(path))
    log = opening.log
    log.submit(append(event(1, CANARY))).result()
    log.submit(append(event(1, b"other"), to=B)).result()
    log.close()
    copy.write_bytes(path.read_bytes())
    key_id = key_id_of(payload_of(path))
    with closing(sqlite3.connect(tmp_path / "log.db.keys")) as file:
        (wrapped,) = file.execute("SELECT wrapped FROM data_keys WHERE id = ?", (key_id,)).fetchone()

    opening = opened(encrypted_backend(path))
    opening.keys.erase(A, 1)
    opening.log.close()

    assert wrapped not in (tmp_path / "log.db.keys").read_bytes()
    (tmp_path / "copy.db.keys").write_bytes((tmp_path / "log.db.keys").read_bytes())
    with closing(opened(encrypted_backend(copy)).log) as restored:
        assert [each.payload for each in restored.read_stream(A)] == [ERASED]
        assert [each.payload for each in restored.read_stream(B)] == [b"other"]


def test_an_erasure_is_named_until_the_log_has_it(kept: Callable[..., KeyPlace]):
    """The store names it even if the log has grown meanwhile, and again for a copy that is restored after an earlier
    one, and does not name another log's."""
    assert not kept().exists()
    with closing(kept().open()) as store:
        assert kept().exists()
        store.erase([], LOG, A, 7)
        store.erase([], LOG, B, 5)
        store.erase([], "another", B, 9)

        assert store.erased_after(LOG, 7) == []
        assert store.erased_after(LOG, 4) == [B, A]
        assert store.erased_after(LOG, 8) == [B, A]
        store.erase([], LOG, B, 8)
        assert store.erased_after(LOG, 8) == [A]
        store.settle(LOG, [A])
        assert store.erased_after(LOG, 7) == [B]
        store.erase([], LOG, A, 3)
        assert store.erased_after(LOG, 6) == [A, B]


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE events SET payload = substr(payload, 1, length(payload) - 1), {seal}", "is not what was encrypted"),
        ("UPDATE events SET payload = substr(payload, 1, 9), {seal}", "is not what was encrypted"),
        ("UPDATE events SET payload = (SELECT payload FROM events WHERE position = 2), {seal}", "not what was enc"),
    ],
)
def test_ciphertext_that_is_not_in_its_place_is_refused(tmp_path, statement: str, what: str):
    """A payload that is cut, or another stream's, is refused despite valid seals: its key binds it to its event."""
    path = tmp_path / "log.db"
    log = opened(encrypted_backend(path)).log
    log.submit(append(event(1, CANARY))).result()
    log.submit(append(event(1, b"other"), to=B)).result()
    log.close()
    resealed(path, statement)

    with closing(opened(encrypted_backend(path)).log) as log, pytest.raises(StreamCorrupt, match=what):
        log.read_stream(A)


def resealed(path: Path, statement: str) -> None:
    """Change the first event's payload, and blank it with the changed one, as anybody who knows the file may."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(statement.format(seal="salt = salt") + " WHERE position = 1")
        changed = bytes(file.execute("SELECT payload FROM events WHERE position = 1").fetchone()[0])
    with closing(opened(SqliteBackend(path)).log) as log:
        log.blank(A, {1: changed})


def test_a_repeat_is_known_by_a_content_that_no_copy_lets_anybody_guess(tmp_path):
    """The log compares hashes under the stream's key: its own secret, which every copy has, is not enough."""
    path = tmp_path / "log.db"
    log = opened(encrypted_backend(path)).log
    request = RequestKey("r", b"asked")
    written = append(event(1, b"text", content=b"yes"), request=request)
    log.submit(written).result()
    log.close()

    with closing(opened(encrypted_backend(path)).log) as log:
        assert log.submit(written).result().already_appended
        assert log.known(written) == {event(1).event_id: 1}
        with pytest.raises(EventIdConflict):
            log.submit(append(event(1, b"text", content=b"no"))).result()
        with pytest.raises(RequestKeyConflict):
            log.known(written._replace(request=RequestKey("r", b"else")))
    with closing(opened(SqliteBackend(path)).log) as plain, pytest.raises(EventIdConflict):
        plain.known(append(event(1, b"text", content=b"yes")))


def test_a_log_in_clear_goes_on_encrypted(tmp_path):
    """Earlier events are read, and known when they are repeated; new events are encrypted."""
    path = tmp_path / "log.db"
    request = RequestKey("r", b"asked")
    before = append(event(1, b"before", content=b"yes"), request=request)
    with closing(opened(SqliteBackend(path)).log) as plain:
        plain.submit(before).result()

    with closing(opened(encrypted_backend(path)).log) as log:
        log.submit(append(event(2, b"after"))).result()

        assert [each.payload for each in log.read_stream(A)] == [b"before", b"after"]
        assert [is_encrypted(payload_of(path, position)) for position in (1, 2)] == [False, True]
        assert log.submit(before).result().already_appended
        assert log.known(append(event(1, b"before", content=b"yes"))) == {event(1).event_id: 1}
        with pytest.raises(EventIdConflict):
            log.submit(append(event(1, b"before", content=b"no"))).result()


def test_a_request_in_clear_is_known_in_the_group_that_encrypts_first(tmp_path):
    """The stream gets its key between an append without contents and its repeat."""
    path, gate = tmp_path / "log.db", threading.Event()
    asked = append(NewEvent(bytes(16), "closed", b""), request=RequestKey("r", b"asked"))
    with closing(opened(SqliteBackend(path)).log) as plain:
        plain.submit(append(event(1, b"before"))).result()

    def hook(transaction: Any, committed: Any) -> None:
        assert gate.wait(PATIENCE_S)

    place = encrypted_backend(path)
    opening = place.open(place.rows(NOTES), clock_us=Clock(), hook=hook, on_fatal=lambda _: None)
    with closing(opening.log) as log:
        log.submit(append(event(2), to=B))
        first, _, second = [log.submit(each) for each in (asked, append(event(3, b"after")), asked)]
        gate.set()

        assert not first.result(PATIENCE_S).already_appended
        assert second.result(PATIENCE_S).already_appended


def test_a_stream_that_two_processes_begin_has_one_of_their_keys(tmp_path):
    """The second process repeats the first one's append, or goes on after it."""
    shared = opened(SqliteBackend(tmp_path / "log.db")).log
    own, late = (Contents(keys_of(tmp_path / "keys"), CLEAR) for _ in range(2))
    late.remember(A, late.keys.taken())
    written = append(event(1, CANARY, content=b"yes"), request=RequestKey("r", b"asked"))
    with closing(shared), closing(own.keys), closing(late.keys):
        first, second = EncryptedEventLog(shared, own), EncryptedEventLog(shared, late)
        first.submit(written).result()

        assert second.submit(written).result().already_appended
        second.submit(append(event(2))).result()
        assert len({key_id_of(sealed.event.payload) for sealed in shared.read_sealed(A)}) == 1


def test_a_log_is_refused_without_its_keys(tmp_path):
    """A start fails without a key, with another key, without the file of data keys, and with that of another log."""
    path, keys = tmp_path / "log.db", tmp_path / "log.db.keys"
    log = opened(encrypted_backend(path)).log
    log.submit(append(event(1, CANARY))).result()
    log.close()

    with closing(opened(SqliteBackend(path)).log) as plain, pytest.raises(LogEncrypted):
        require_clear(plain, CLEAR)
    with pytest.raises(KeysUnusable, match="is not among those given"):
        opened(EncryptedBackend(SqliteBackend(path), key_place(keys, NEW), CLEAR))
    keys.rename(tmp_path / "away")
    with pytest.raises(KeysUnusable, match="there are no data keys at"):
        opened(encrypted_backend(path))
    assert not keys.exists()
    keys_of(keys).close()
    with pytest.raises(KeysUnusable, match="does not have data key"):
        opened(encrypted_backend(path))
    keys.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(KeysUnusable):
        opened(encrypted_backend(path))


def test_keys_are_wrapped_anew_while_they_are_used(kept: Callable[..., KeyPlace]):
    """A process that reads the operator's keys anew goes on through it, with keys old and new."""
    given = [OLD]
    keys = kept()._replace(operator_keys=lambda: " ".join(given)).opened()
    with closing(keys):
        before = [keys.taken() for _ in range(BATCH + 1)]
        keys.erase([before[1].id], LOG, A, 1)
        with closing(kept(NEW, OLD).opened()) as rotating:
            given[:] = [NEW, OLD]
            assert rotating.rewrap(lambda _: None) == Rewrapped(2 * BATCH - 1, (), is_whole=True)
            assert rotating.is_rewrapped
        given[:] = [NEW]
        after = [keys.taken() for _ in range(BATCH + 1)]
        assert keys.is_rewrapped
    with closing(kept(NEW).opened()) as reopened:
        plain = before[0].encrypted(CANARY, b"place")
        first, last = reopened.of(before[0].id), reopened.of(after[-1].id)
        assert reopened.of(before[1].id) is None
        assert first is not None
        assert last is not None
        assert first.decrypted(plain, b"place") == CANARY
    with pytest.raises(KeysUnusable):
        kept(OLD).opened()


def test_a_rotation_goes_on_at_keys_that_are_damaged(kept: Callable[..., KeyPlace]):
    """The rotation names those whose secret is lost, needs no old key for them afterwards, and finds the wrapper of one
    whose name of it is damaged."""
    with closing(kept().opened()) as keys:
        whole, lost, misnamed = taken = [keys.taken() for _ in range(3)]
    plain = {key.id: key.encrypted(CANARY, b"place") for key in taken}
    with closing(kept().open()) as store:
        old = {key.id: stored for key in taken if (stored := store.get(key.id)) is not None}
        changed = {
            lost.id: old[lost.id]._replace(wrapped=bytes(60)),
            misnamed.id: old[misnamed.id]._replace(wrapper=b"misnamed"),
        }
        store.rewrap_some(lambda stored: changed.get(stored.id), after=b"")

    with closing(kept(NEW, OLD).opened()) as rotating:
        assert rotating.rewrap(lambda _: None) == Rewrapped(2, (lost.id,), is_whole=True)
        assert rotating.rewrap(lambda _: None) == Rewrapped(0, (lost.id,), is_whole=True)
    with closing(kept(NEW).opened()) as keys:
        for key in (whole, misnamed):
            found = keys.of(key.id)
            assert found is not None
            assert found.decrypted(plain[key.id], b"place") == CANARY
        with pytest.raises(KeyLost, match="is not what was stored"):
            keys.of(lost.id)


@pytest.mark.parametrize(("place", "is_lost"), [(3, False), (11, False), (16, True), (40, True)])
def test_a_flipped_bit_in_the_file_of_keys_costs_one_key_at_most(tmp_path: Path, place: int, is_lost: bool):
    """A rotation goes on there, whether the bit is of the id, of the wrapper's name or of the ciphertext: the
    index of ids tells the first, and the key that unwraps tells the second."""
    path = tmp_path / "keys"
    with closing(keys_of(path)) as keys:
        hit, other = taken = [keys.taken() for _ in range(2)]
    plain = {key.id: key.encrypted(CANARY, b"place") for key in taken}
    with closing(KeyFile(path)) as store:
        row = b"".join(store.get(hit.id) or ())
    content = bytearray(path.read_bytes())
    content[content.index(row) + place] ^= 1
    path.write_bytes(content)

    with closing(keys_of(path, NEW, OLD)) as rotating:
        assert rotating.rewrap(lambda _: None).damaged == ((hit.id,) if is_lost else ())
    with closing(keys_of(path, NEW)) as keys:
        for key in (other,) if is_lost else taken:
            found = keys.of(key.id)
            assert found is not None
            assert found.decrypted(plain[key.id], b"place") == CANARY


def test_a_value_that_is_no_bytes_is_no_wrapper(tmp_path: Path):
    """A page of zeros has such values, which a start and a rotation pass by."""
    path = tmp_path / "keys"
    with closing(keys_of(path)) as keys:
        hit, other = keys.taken(), keys.taken()
    with closing(sqlite3.connect(path)) as file:
        file.executescript(
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(replace(sql, 'NOT NULL', ''), "
            "'STRICT', '') WHERE name = 'data_keys'"
        )
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE data_keys SET wrapper = NULL, wrapped = NULL WHERE id = ?", (hit.id,))
    with closing(sqlite3.connect(path)) as file, file:
        assert file.execute("SELECT count(*) FROM data_keys WHERE wrapper IS NULL").fetchone() == (1,)

    with closing(keys_of(path)) as keys:
        assert keys.of(other.id) is not None
        with pytest.raises(KeyLost):
            keys.of(hit.id)
        assert keys.rewrap(lambda _: None).damaged == (hit.id,)


def test_a_log_opens_without_its_newest_key_and_not_with_those_of_another_log(kept: Callable[..., KeyPlace], tmp_path):
    """One key of the log's is enough, whichever it is, and erased or damaged ones tell as well that all are its own."""
    path = tmp_path / "log.db"
    place = EncryptedBackend(SqliteBackend(path), kept(), CLEAR)
    streams = [StreamId("default", f"stream-{number}") for number in range(3)]
    with closing(opened(place).log) as log:
        for number, stream in enumerate(streams, 1):
            log.submit(append(event(number, CANARY), to=stream)).result()
    ids = [key_id_of(payload_of(path, position)) for position in (1, 2, 3)]

    def reads(stream: StreamId) -> list[bytes]:
        with closing(opened(place).log) as log:
            return [each.payload for each in log.read_stream(stream)]

    with closing(kept().open()) as store:
        store.drop([ids[2]])
        assert reads(streams[0]) == [CANARY]
        with pytest.raises(KeyLost, match="default/stream-2 cannot be read: "):
            reads(streams[2])
        store.drop([ids[0]])
        assert reads(streams[1]) == [CANARY]
        store.erase([ids[1]], LOG, streams[1], 9)
        assert reads(streams[1]) == [ERASED]
        store.drop([ids[1]])
    with pytest.raises(KeysUnusable, match="or any other of the log"):
        opened(place)


def test_a_process_that_keeps_the_old_key_goes_on_under_the_new_one(kept: Callable[..., KeyPlace]):
    """A process that cannot read the keys anew has both before the rotation."""
    with closing(kept(OLD, NEW).opened()) as keys:
        keys.taken()
        with closing(kept(NEW, OLD).opened()) as rotating:
            rotating.rewrap(lambda _: None)
        for _ in range(2 * BATCH):
            keys.taken()
        assert keys.store.wrappers() == {OperatorKeys(lambda: NEW).first.id}


def test_keys_are_made_where_no_thread_can_be(tmp_path: Path):
    """The thread that needs a key makes it."""
    with closing(keys_of(tmp_path / "keys")) as keys:
        size = threading.stack_size(1 << 50)  # more than there are addresses
        try:
            assert len({keys.taken().id for _ in range(BATCH + 1)}) == BATCH + 1
        finally:
            threading.stack_size(size)


def test_keys_that_encrypted_nothing_are_dropped_at_the_end(kept: Callable[..., KeyPlace]):
    """A start therefore costs no room; a key that was taken stays."""
    keys = kept().opened()
    taken = keys.taken()
    keys.close()

    with closing(kept(NEW, OLD).opened()) as all_keys:
        assert all_keys.rewrap(lambda _: None).wrapped == 1
        assert all_keys.of(taken.id) is not None


def test_no_key_is_kept_in_a_file_that_is_not_in_its_place(tmp_path):
    """An operator who restores the log would not have the key."""
    path = tmp_path / "keys"
    keys = keys_of(path)
    for _ in range(BATCH):
        keys.taken()
    path.rename(tmp_path / "away")

    with pytest.raises(KeysUnusable, match="is not in its place"):
        [keys.taken() for _ in range(BATCH + 1)]


def test_a_database_of_something_else_is_left_as_it_is(tmp_path):
    """The journal's mode is left, too: a mistake may name the log's own file."""
    path = tmp_path / "log.db"
    opened(SqliteBackend(path)).log.close()
    before = path.read_bytes()

    with pytest.raises(KeysUnusable, match="is no file of data keys"):
        keys_of(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "short", "AAAA", OLD[:-4], f"{OLD} AAAA", OLD.replace("=", "")])
def test_an_operators_key_is_32_bytes_in_base64(text: str):
    """Any other text is refused as a whole."""
    with pytest.raises(ValueError, match="32 bytes"):
        parsed_keys(text)
    assert parsed_keys(f"{OLD}\n{NEW}\n") == [bytes([1]) * 32, bytes([2]) * 32]
