"""The salvage of a damaged log: proofs, consequences of them, and the report of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from abridged.eventlog.chain import HASH_BYTES, SEAL_BYTES, commit_to, content_hash, envelope, is_blanked
from abridged.eventlog.errors import LogCorrupt, LogFull, LogGone, LogLocked, LogUnavailable
from abridged.eventlog.event import NewEvent, RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.log import Append, Committed, RequestKey
from abridged.eventlog.rows import RowTable
from abridged.eventlog.salvage import REMNANTS, VACANT, Lost, Meaning, Rest, Salvaged
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.eventlog.sqlite.carving import carved_events
from abridged.eventlog.sqlite.file import FileLock
from abridged.eventlog.sqlite.image import Image
from abridged.eventlog.sqlite.salvage import salvaged
from tests.support.damage import PAGE_BYTES
from tests.support.patience import PATIENCE_S
from tests.support.read_tables import asked, changed
from tests.support.surviving import record, varint

A, B = StreamId("default", "a"), StreamId("default", "b")
SECURELY = "PRAGMA secure_delete = on"
"""A setting that leaves nothing of bytes that a statement overwrites."""


class Tally(NamedTuple):
    """A row that counts a stream's events."""

    namespace: str
    id: str
    position: int
    events: int
    weight: float


TALLIES = RowTable("tallies", version=1, row=Tally, marks={})


def _origin(event: RecordedEvent) -> tuple[StreamId, int] | None:
    """An event that says `of NAME VERSION` begins from that stream."""
    of, *rest = event.payload.decode(errors="replace").split(" ")
    return (StreamId("default", rest[0]), int(rest[1])) if of == "of" else None


ERASED_WEIGHT = 3.0
"""The weight in the row of an erased stream."""

GONE = b"gone"
"""The payload of an event of an erased stream."""

HIDDEN = b"hidden"


def _rest(_stream: StreamId, events: Iterable[RecordedEvent], is_erased: bool) -> Rest:
    """`Erased` erases its stream, and `Hid` the events whose versions it has."""
    erased_at, hidden = 0, set[int]()
    for event in events:
        is_erased = is_erased or event.payload == GONE
        if event.type == "Erased":
            erased_at = event.version
        elif event.type == "Hid":
            hidden |= set(map(int, event.payload.split()))
    if is_erased or erased_at:
        end = erased_at or 1 << 40
        return Rest(lambda event: GONE if event.version < end else event.payload, ("Erased", 1, b"all"), erased_at)
    return Rest(lambda event: HIDDEN if event.version in hidden else event.payload)


MEANING = Meaning(
    is_readable=lambda _event: True,
    require_keys=lambda: None,
    types=("Said", "Erased", "Hid"),
    namespaces=("default",),
    opens=lambda payload: [payload.decode(errors="replace").removeprefix("I am ")],
    content=lambda event: event.payload,
    origin=_origin,
    vacancy=lambda _stream, _version, text: ("Vacant", 1, text.encode()),
    erasing=("Erased", "Hid"),
    rest=_rest,
    line=lambda _log_id, event: f"{event.position} {event.payload.decode(errors='replace')[:20]}",
    table=TALLIES,
    events_of=lambda row: row.events,
    is_erased=lambda row: row.weight == ERASED_WEIGHT,
)


def log_at(path: Path, *appends: Append, blanks: Mapping[StreamId, Mapping[int, bytes]] | None = None) -> Path:
    """A log with these appends, or more of them, and its rows; after them it is blanked."""
    backend = SqliteBackend(path)
    rows = backend.rows(TALLIES)

    def count(transaction: Any, committed: Sequence[Committed]) -> None:
        last = [each.events[-1] for each in committed]
        weights = {"Erased": ERASED_WEIGHT}
        tallies = [Tally(*e.stream, e.position, e.version, weights.get(e.type, 2.0)) for e in last]
        rows.put(transaction, tallies)

    with closing(backend.open(rows, clock_us=lambda: 1_700_000_000_000_000, hook=count).log) as log:
        for append in appends:
            log.submit(append).result(PATIENCE_S)
        for stream, payloads in (blanks or {}).items():
            log.blank(stream, payloads)
            assert log.purge()
    return path


def said(stream: StreamId, *texts: str | bytes, first: int = 1, key: str = "", kind: str = "Said") -> Append:
    """An append of an event for each text, with the key of a request if there is one."""
    payloads = [text.encode() if isinstance(text, str) else text for text in texts]
    events = [NewEvent(b"%016d" % number, kind, payload) for number, payload in enumerate(payloads, first)]
    return Append(stream, events, request=RequestKey(key, key.encode()) if key else None)


TWO_STREAMS = (
    said(A, "one", "two", key="k1"),
    said(B, "eins"),
    said(A, "three", "four", first=3, key="k2"),
    said(B, "zwei", first=2),
)


def salvage(damaged: Path, check: Callable[[Path], None] = lambda _: None, **options: Any) -> tuple[Path, Salvaged]:
    """Salvage into the folder beside; returns the new log and the report."""
    new = damaged.parent / "new" / "new.db"
    new.parent.mkdir(exist_ok=True)
    nothing: Callable[[int, int], None] = lambda _done, _total: None  # noqa: E731 - of one use
    return new, salvaged(damaged, new, MEANING, check, pages=nothing, positions=nothing, **options)


def sealed(path: Path, *streams: StreamId) -> list[SealedEvent]:
    """The events of these streams with their seals, as a log reads them that checks every one."""
    backend = SqliteBackend(path)
    with backend.verification(backend.rows(TALLIES)) as log:
        assert not list(log.structure())
        return [event for stream in streams for page in log.pages(stream) for event in page]


def texts(path: Path, stream: StreamId) -> list[str]:
    """Return the texts of a stream of a log."""
    return [event.event.payload.decode() for event in sealed(path, stream)]


def overwritten(path: Path, *pages: int) -> None:
    """Overwrite pages of a file."""
    content = bytearray(path.read_bytes())
    for page in pages:
        content[(page - 1) * PAGE_BYTES : page * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(content)


def root(path: Path, name: str) -> int:
    """The page where a table or an index begins."""
    return int(asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", name)[0][0])


def numbers(lost: Lost) -> tuple[Any, ...]:
    """A loss with its ranges as lists."""
    return lost.stream, lost.kept, lost.missing.kept, lost.positions.kept, lost.remnants


def test_a_whole_log_comes_back_with_its_seals(tmp_path: Path):
    """The same id, secret, positions, hashes and keys of requests."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    before = path.read_bytes()

    new, done = salvage(path)

    assert sorted(each.name for each in new.parent.iterdir()) == ["new.db", "new.db.lock"]
    assert done.is_whole
    assert (done.events, done.conversations) == (6, 2)
    assert sealed(new, A, B) == sealed(path, A, B)
    for query in ("SELECT log_id, key, created_us FROM log", "SELECT * FROM requests"):
        assert asked(new, query) == asked(path, query)
    assert path.read_bytes() == before


def test_what_is_lost_is_vacant_and_what_follows_it_is_a_remnant(tmp_path: Path):
    """A stream ends before its first lost event; another one is whole; positions have no gaps."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    changed(path, SECURELY, "UPDATE events SET payload = x'00' WHERE position = 2")

    new, done = salvage(path)

    assert [numbers(lost) for lost in done.lost] == [(A, 1, [(2, 2)], [(2, 2)], 2)]
    assert not done.unowned.count
    assert texts(new, A) == ["one"]
    assert texts(new, B) == ["eins", "zwei"]
    assert texts(new, StreamId(VACANT, "from-2")) == [
        "event 2 of default/a is lost",
        "event 3 of default/a is not kept",
        "event 4 of default/a is not kept",
    ]
    assert new.with_name(new.name + REMNANTS).read_text() == "4 three\n5 four\n"
    assert asked(new, "SELECT key FROM requests") == []


@pytest.mark.parametrize("position", [2, 6])
@pytest.mark.parametrize("column", ["chain", "content_hash"])
def test_a_hash_that_proves_nothing_is_made_again(tmp_path: Path, column: str, position: int):
    """The event may be in the middle of its stream, or the last one."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    whole = sealed(path, A, B)
    changed(path, f"UPDATE events SET {column} = randomblob(length({column})) WHERE position = {position}")

    new, done = salvage(path)

    assert done.is_whole
    assert sealed(new, A, B) == whole


def test_events_that_contradict_their_chain_are_remnants(tmp_path: Path):
    """Another event stands in the place of one: events written behind that do not follow from it."""
    other = log_at(tmp_path / "other.db", *TWO_STREAMS[:2], said(A, "THREE", "four", first=3))
    path = log_at(tmp_path / "log.db", *TWO_STREAMS[:3], said(A, "five", "six", first=5))
    columns = "event_id, time_us, content_hash, commitment, chain, salt, payload"
    changed(
        path,
        SECURELY,
        f"ATTACH '{other}' AS other",
        f"UPDATE events SET ({columns}) = (SELECT {columns} FROM other.events WHERE position = 4) WHERE position = 4",
    )

    new, done = salvage(path)

    assert [numbers(lost) for lost in done.lost] == [(A, 2, [], [], 4)]
    assert texts(new, A) == ["one", "two"]


def test_a_stream_that_begins_from_a_cut_one_is_a_remnant(tmp_path: Path):
    """A stream that begins from a kept event stays."""
    path = log_at(
        tmp_path / "log.db", *TWO_STREAMS, *(said(StreamId("default", f"of-{n}"), f"of a {n}") for n in (1, 3))
    )
    changed(path, SECURELY, "UPDATE events SET payload = x'00' WHERE position = 2")

    new, done = salvage(path)

    assert [(lost.stream, lost.kept, lost.remnants, lost.origin) for lost in done.lost] == [
        (A, 1, 2, None),
        (StreamId("default", "of-3"), 0, 1, A),
    ]
    assert texts(new, StreamId("default", "of-1")) == ["of a 1"]


def test_a_lost_end_is_told_by_the_sealed_row(tmp_path: Path):
    """The event and its entries in the indexes are gone."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    changed(path, SECURELY, "DELETE FROM events WHERE position >= 4")

    new, done = salvage(path)

    assert [numbers(lost) for lost in done.lost] == [(A, 2, [(3, 4)], [(5, 5)], 0), (B, 1, [(2, 2)], [(6, 6)], 0)]
    assert done.unowned.kept == [(4, 4)]
    assert asked(new, "SELECT max(position) FROM events") == [(6,)]


def test_a_lost_end_is_told_by_the_index(tmp_path: Path):
    """The events and the rows are gone."""
    path = log_at(tmp_path / "log.db", *(said(A, "x" * 3_000, first=number) for number in range(1, 9)))
    changed(path, SECURELY, "DELETE FROM tallies")
    (last,) = (
        number
        for number in range(1, path.stat().st_size // PAGE_BYTES + 1)
        if b"0000000000000008" in _page(path, number) and b"xxx" in _page(path, number)
    )
    overwritten(path, last)

    _, done = salvage(path)

    assert [numbers(lost) for lost in done.lost] == [(A, 7, [(8, 8)], [(8, 8)], 0)]


def test_a_row_that_is_not_as_written_tells_nothing(tmp_path: Path):
    """The row's seal does not hold: the log has no such end."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    changed(path, "UPDATE tallies SET position = 40, events = 40 WHERE id = 'a'")

    assert salvage(path)[1].is_whole


def test_a_stream_without_a_name_is_named_by_its_row(tmp_path: Path):
    """The table of streams and the index beside it both lack its name; the commitment says which name is right."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    overwritten(path, root(path, "streams"), root(path, "sqlite_autoindex_streams_1"))

    new, done = salvage(path)

    assert done.is_whole
    assert texts(new, B) == ["eins", "zwei"]


def test_a_stream_without_any_name_is_named_by_its_first_event(tmp_path: Path):
    """The stream's row is lost, too; so is the confirmation of the log's secret before."""
    path = log_at(tmp_path / "log.db", *(said(each, f"I am {each.name}", "and more") for each in (A, B)))
    whole = sealed(path, A, B)
    changed(path, SECURELY, "DELETE FROM tallies")
    overwritten(path, root(path, "streams"), root(path, "sqlite_autoindex_streams_1"), root(path, "types"))

    new, done = salvage(path)

    assert done.is_whole
    assert sealed(new, A, B) == whole


def test_types_without_names_are_those_that_are_known(tmp_path: Path):
    """The commitment says which type is right."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    overwritten(path, root(path, "types"), root(path, "sqlite_autoindex_types_1"))

    assert salvage(path)[1].is_whole


def test_a_lost_secret_is_made_anew(tmp_path: Path):
    """The id is also where rows say which log they are of; keys of requests are unknown, events are as they were."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    whole = sealed(path, A, B)
    overwritten(path, root(path, "log"))

    new, done = salvage(path)

    assert (done.is_whole, done.is_same_log, done.has_key) == (False, True, False)
    assert [each.chain for each in sealed(new, A, B)] == [each.chain for each in whole]
    assert asked(new, "SELECT * FROM requests") == []


def test_a_lost_id_is_made_anew(tmp_path: Path):
    """Every chain begins anew, and every event is there."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    whole = sealed(path, A, B)
    overwritten(path, root(path, "log"), root(path, "projections"))

    new, done = salvage(path)

    assert (done.is_whole, done.is_same_log, done.lost) == (False, False, [])
    assert [each.event for each in sealed(new, A, B)] == [each.event for each in whole]


def test_an_id_that_no_stream_begins_with_is_not_believed(tmp_path: Path):
    """A bit of it is another. The table of rows has it, too; where that is lost, the id is made anew."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    ((whole,),) = asked(path, "SELECT log_id FROM log")
    changed(path, "UPDATE log SET log_id = 'x' || substr(log_id, 2)")

    assert salvage(path)[1].log_id == whole

    overwritten(path, root(path, "projections"))
    for made in (tmp_path / "new").iterdir():
        made.unlink()
    assert not salvage(path)[1].is_same_log


def test_an_id_is_believed_beside_its_secret_where_no_stream_begins(tmp_path: Path):
    """Cursors and repeats hold, though no event is kept."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    changed(path, SECURELY, "UPDATE events SET payload = x'00' WHERE version = 1")
    identity = asked(path, "SELECT log_id, key FROM log")

    new, done = salvage(path)

    assert (done.events, done.is_same_log, done.has_key) == (0, True, True)
    assert asked(new, "SELECT log_id, key FROM log") == identity


@pytest.mark.parametrize("number", [2, 7])
def test_an_event_is_its_streams_whatever_number_its_row_has(tmp_path: Path, number: int):
    """The number is not part of the proof; the name is. A number of another stream costs that stream nothing."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS, said(A, "five", first=5))
    changed(path, f"UPDATE events SET stream = {number} WHERE position = 7")

    new, done = salvage(path)

    assert done.is_whole
    assert texts(new, A) == ["one", "two", "three", "four", "five"]
    assert texts(new, B) == ["eins", "zwei"]


def imitation(
    whole: Path, position: int, version: int, stream: StreamId = B, kind: str = "Said", size: int = SEAL_BYTES
) -> bytes:
    """The bytes of an event under the number of stream B, with a commitment that fits: everybody can make one."""
    ((number,),) = asked(whole, "SELECT id FROM types WHERE name = ?", kind)
    forged = RecordedEvent(position, stream, version, b"f" * 16, kind, 1, 1_700_000_000_000_001, "", b"forged")
    salt = b"s" * 16
    seals = (b"h" * 16, commit_to(salt, envelope(forged), forged.payload, size), b"c" * size, salt)
    row = (None, 2, version, forged.event_id, number, 1, forged.time_us, "", *seals, forged.payload)
    return b"before" + varint(120) + varint(position) + record(row)[0] + b"behind"


@pytest.mark.parametrize("size", [SEAL_BYTES, HASH_BYTES])
def test_a_message_that_imitates_an_event_is_none(tmp_path: Path, size: int):
    """The imitation would be the next event, but for the hash that the log's secret makes of its content."""
    whole = log_at(tmp_path / "log.db", *TWO_STREAMS)
    path = log_at(whole, said(A, imitation(whole, position=8, version=3, size=size), first=5))
    with Image(path) as image:
        carved = [event for page in image.pages() for event in carved_events(page, image)]
    assert b"f" * 16 in [event.event_id for event in carved]

    new, done = salvage(path)

    assert done.is_whole
    assert len(sealed(new, A, B)) == 7


def test_a_message_that_imitates_an_event_gives_no_stream_another_name(tmp_path: Path):
    """Nor the log another id and secret, which it also brings."""
    whole = log_at(tmp_path / "log.db", *TWO_STREAMS)
    secret = b"k" * 32
    names = varint(4) + varint(2) + record([None, "default", "evil"])[0]
    identity = record(["0" * 32, secret, 1])[0]
    hashed = content_hash(secret, "Said", b"forged")
    event = imitation(whole, position=8, version=1, stream=StreamId("default", "evil")).replace(b"h" * 16, hashed)
    path = log_at(whole, said(A, names + identity + event, first=5))

    new, done = salvage(path)

    assert done.is_whole
    assert texts(new, B) == ["eins", "zwei"]


@pytest.mark.parametrize("position", [2, 1 << 40])
def test_without_the_secret_no_position_is_believed_that_the_file_cannot_have(tmp_path: Path, position: int):
    """An imitation of an event may stand where nothing is, and not anywhere."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    changed(path, SECURELY, "UPDATE events SET payload = x'00' WHERE position = 3")
    log_at(path, said(A, imitation(path, position=position, version=3), first=5))
    overwritten(path, root(path, "log"))

    assert sum(lost.missing.count for lost in salvage(path)[1].lost) == 1
    assert asked(tmp_path / "new" / "new.db", "SELECT max(position) FROM events") == [(7,)]


def test_without_the_secret_an_imitation_has_no_position_of_an_event(tmp_path: Path):
    """The imitation lies on an earlier page than the event."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS[:2])
    log_at(path, said(A, imitation(path, position=7, version=2), *("x" * 3_000 for _ in range(2)), first=3))
    log_at(path, said(B, "zwei", first=2))
    overwritten(path, root(path, "log"))

    new, done = salvage(path)

    assert not done.has_key
    assert texts(new, B) == ["eins", "zwei"]


def test_an_entry_of_the_index_may_name_any_position(tmp_path: Path):
    """A bit of it is another: no event was ever there."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    content = bytearray(path.read_bytes())
    entry = record([2, 2, 6])[0]
    assert content.count(entry) == 1
    content[content.index(entry) + len(entry) - 1] ^= 0x40
    path.write_bytes(content)

    assert salvage(path)[1].is_whole


def test_a_number_is_read_although_a_bit_before_it_is_another(tmp_path: Path):
    """The length of a cell ends where the position of its event begins."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    content = bytearray(path.read_bytes())
    at = content.index(b"\x04\x0e\x00")
    assert b"three" in content[at : at + 220]
    content[at - 1] |= 0x80
    path.write_bytes(content)

    assert salvage(path)[1].is_whole


def test_a_long_event_is_read_although_no_page_leads_to_its_next(tmp_path: Path):
    """The event's pages lie one after the other, and the commitment says so."""
    text = "".join(f"{number} " for number in range(5_000))
    path = log_at(tmp_path / "log.db", said(A, text))
    content = bytearray(path.read_bytes())
    page = content.index(b" 1500 ") // PAGE_BYTES
    content[page * PAGE_BYTES : page * PAGE_BYTES + 4] = b"\xff" * 4
    path.write_bytes(content)

    new, done = salvage(path)

    assert done.is_whole
    assert texts(new, A) == [text]


def test_a_log_that_a_process_owns_is_left_alone(tmp_path: Path):
    """The process may write the log meanwhile."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)

    with closing(FileLock(path)), pytest.raises(LogLocked):
        salvage(path)


def test_nothing_is_made_beside_the_damaged_log(tmp_path: Path):
    """The salvage does not even make a missing lock."""
    whole = log_at(tmp_path / "log.db", *TWO_STREAMS)
    alone = tmp_path / "alone" / "log.db"
    alone.parent.mkdir()
    alone.write_bytes(whole.read_bytes())

    assert salvage(alone)[1].is_whole
    assert sorted(each.name for each in alone.parent.iterdir()) == ["log.db", "new"]


def test_a_write_ahead_log_without_its_file_is_no_place_for_a_log(tmp_path: Path):
    """SQLite would take it for that of the new one."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "new.db-wal").write_bytes(b"mine")

    with pytest.raises(LogGone):
        salvage(path)

    assert (tmp_path / "new" / "new.db-wal").read_bytes() == b"mine"


@pytest.mark.parametrize("there", ["new.db", f"new.db{REMNANTS}"])
def test_a_file_that_is_there_stays(tmp_path: Path, there: str):
    """The salvage overwrites no log and no remnants."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    (tmp_path / "new").mkdir()
    mine = log_at(tmp_path / "mine.db", said(A, "mine")).read_bytes()
    (tmp_path / "new" / there).write_bytes(mine)

    with pytest.raises(FileExistsError, match=there):
        salvage(path)

    assert (tmp_path / "new" / there).read_bytes() == mine


def test_a_salvage_that_fails_leaves_nothing(tmp_path: Path):
    """The failure may be no event, no room, or a result that does not pass; a later salvage can still be made."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS)
    changed(path, SECURELY, "UPDATE events SET payload = x'00' WHERE position = 2")
    nothing = tmp_path / "nothing.db"
    nothing.write_bytes(b"\x00" * 9_000)

    def refused(_new: Path) -> None:
        raise LogCorrupt("it does not fold")

    with pytest.raises(LogCorrupt, match=r"nothing in .* proves to be an event of a log"):
        salvage(nothing)
    with pytest.raises(LogFull, match="MiB for a while"):
        salvage(path, free_bytes=lambda _: 2 * path.stat().st_size)
    with pytest.raises(LogCorrupt, match="it does not fold"):
        salvage(path, refused)

    new = tmp_path / "new" / "new.db"
    with pytest.raises(LogUnavailable):
        salvage(path, lambda _: new.mkdir())
    new.rmdir()
    assert [each.name for each in new.parent.iterdir()] == ["new.db.lock"]
    for left in (".new", ".new-making", ".scratch", f"{REMNANTS}.new"):
        new.with_name(new.name + left).write_text("of a process that was killed")
    assert salvage(path)[1].lost
    assert sorted(each.name for each in new.parent.iterdir()) == ["new.db", "new.db.lock", f"new.db{REMNANTS}"]


TAKEN = (
    *TWO_STREAMS,
    said(A, "all", first=5, kind="Erased"),
    said(B, "2", first=3, kind="Hid"),
    said(B, "drei", first=4),
)
BLANKS = {A: dict.fromkeys(range(1, 5), GONE), B: {2: HIDDEN}}
"""Events that TAKEN takes away: all of A before version 5, and version 2 of B."""


def test_blanked_events_come_back_blanked(tmp_path: Path):
    """Blanked events keep their seals and the keys of their requests, as they were."""
    path = log_at(tmp_path / "log.db", *TAKEN, blanks=BLANKS)

    new, done = salvage(path)

    assert done.is_whole
    assert texts(new, A) == [*["gone"] * 4, "all"]
    assert texts(new, B) == ["eins", "hidden", "2", "drei"]
    assert sealed(new, A, B) == sealed(path, A, B)
    assert asked(new, "SELECT * FROM requests") == asked(path, "SELECT * FROM requests")


@pytest.mark.parametrize("is_older_first", [True, False])
def test_a_blanked_event_wins_over_what_it_was(tmp_path: Path, is_older_first: bool):
    """The blanked one is kept wherever both are found, not another one made of the older."""
    path = log_at(tmp_path / "log.db", *TAKEN)
    older = path.read_bytes()
    log_at(path, blanks=BLANKS)
    whole = sealed(path, A, B)
    newer = path.read_bytes()
    path.write_bytes(older + newer if is_older_first else newer + older)
    assert b"zwei" in path.read_bytes()

    new, done = salvage(path)

    assert done.is_whole
    assert sealed(new, A, B) == whole
    assert asked(new, "SELECT hex(content_hash) FROM requests") == [("",), ("",)]


def test_a_blanked_event_that_no_page_names_wins_over_what_it_was(tmp_path: Path):
    """The commitment is the same, and all that is known: events beside it are lost, and the one that blanked it."""
    path = log_at(tmp_path / "log.db", said(B, "eins"), said(A, "one", "two", "three"))
    changed(path, SECURELY, "UPDATE events SET payload = x'00' WHERE position IN (2, 4)")
    older = path.read_bytes()
    log_at(path, blanks={A: {2: HIDDEN}})
    newer = bytearray(path.read_bytes())
    page = newer.index(HIDDEN) // PAGE_BYTES * PAGE_BYTES
    newer[page + 3 : page + 5] = bytes(2)
    path.write_bytes(older + newer)

    new, _ = salvage(path)

    assert new.with_name(new.name + REMNANTS).read_text() == "3 hidden\n"


def test_what_an_event_takes_away_is_not_brought_back(tmp_path: Path):
    """The process was killed before it blanked anything."""
    path = log_at(tmp_path / "log.db", *TAKEN)

    new, done = salvage(path)

    assert done.is_whole
    assert texts(new, A) == [*["gone"] * 4, "all"]
    assert texts(new, B) == ["eins", "hidden", "2", "drei"]
    assert [is_blanked(each.salt) for each in sealed(new, B)] == [False, True, False, False]
    assert asked(new, "SELECT hex(content_hash) FROM requests") == [("",), ("",)]


def test_a_remnant_has_nothing_that_was_taken_away(tmp_path: Path):
    """Version 1 of B is lost."""
    path = log_at(tmp_path / "log.db", *TAKEN)
    changed(path, SECURELY, "UPDATE events SET payload = x'00' WHERE position = 3")

    new, _ = salvage(path)

    assert new.with_name(new.name + REMNANTS).read_text() == "6 hidden\n8 2\n9 drei\n"


@pytest.mark.parametrize("lost", [1, 2, 7])
def test_an_erased_stream_stays_erased_whatever_of_it_is_lost(tmp_path: Path, lost: int):
    """The stream's name is taken and nothing is told of it, even where only a blanked event says that it was erased."""
    path = log_at(tmp_path / "log.db", *TAKEN, blanks={A: dict.fromkeys(range(1, 5), GONE)} if lost == 7 else None)
    changed(path, SECURELY, f"UPDATE events SET payload = x'00' WHERE position = {lost}")

    new, done = salvage(path)

    (stub,) = sealed(new, A)
    assert (stub.event.version, stub.event.type, stub.event.payload) == (1, "Erased", b"all")
    assert [(each.stream, each.kept, each.remnants, each.is_erased) for each in done.lost] == [(A, 0, 0, True)]
    assert texts(new, B) == ["eins", "hidden", "2", "drei"]
    assert not new.with_name(new.name + REMNANTS).exists()
    assert asked(new, "SELECT key FROM requests") == []


@pytest.mark.parametrize("version", [1, 5])
def test_a_row_says_that_a_stream_was_erased(tmp_path: Path, version: int):
    """The event that says so may be lost, and so may all others."""
    path = log_at(tmp_path / "log.db", *TAKEN)
    of_a = "stream = 1 AND version >= " + str(version)
    changed(path, SECURELY, f"UPDATE events SET payload = x'00' WHERE {of_a}")

    new, done = salvage(path)

    (stub,) = sealed(new, A)
    assert (stub.event.version, stub.event.type) == (1, "Erased")
    assert [(each.stream, each.is_erased) for each in done.lost] == [(A, True)]
    assert texts(new, B) == ["eins", "hidden", "2", "drei"]
    assert b"three" not in new.read_bytes()


def test_what_begins_from_an_erased_stream_is_erased(tmp_path: Path):
    """The stream was erased before, though nothing of it says so."""
    fork = StreamId("default", "fork")
    path = log_at(tmp_path / "log.db", *TWO_STREAMS, said(fork, "of a 2", "secret"), TAKEN[4])

    new, done = salvage(path)

    assert texts(new, fork) == ["all"]
    assert [(each.stream, each.is_erased) for each in done.lost] == [(fork, True)]


def test_a_stream_that_is_cut_before_what_took_away_is_sealed_anew(tmp_path: Path):
    """No event of the new log would say why it is blanked."""
    path = log_at(tmp_path / "log.db", *TAKEN, blanks=BLANKS)
    changed(path, SECURELY, "UPDATE events SET payload = x'00' WHERE position = 8")

    new, _ = salvage(path)

    assert texts(new, B) == ["eins", "hidden"]
    assert [is_blanked(each.salt) for each in sealed(new, B)] == [False, False]


@pytest.mark.parametrize("lost", [0, 1, 2, 4])
def test_blanked_events_that_no_page_names_are_proven_by_the_chain(tmp_path: Path, lost: int):
    """The directory of their page is gone; facts known beside them say that they are real."""
    other = said(StreamId("default", "c"), "x" * 3_000)
    path = log_at(tmp_path / "log.db", *TAKEN, other, blanks=BLANKS)
    if lost:
        changed(path, SECURELY, f"UPDATE events SET payload = x'00' WHERE position = {lost}")
    content = bytearray(path.read_bytes())
    page = content.index(HIDDEN) // PAGE_BYTES * PAGE_BYTES
    assert content[page] == 13
    assert content[page : page + PAGE_BYTES].count(GONE) == 4 - bool(lost)
    content[page + 3 : page + 5] = bytes(2)
    path.write_bytes(content)

    new, done = salvage(path)

    assert done.is_whole is not bool(lost)
    assert texts(new, B) == ["eins", "hidden", "2", "drei"]
    assert texts(new, A) == (["all"] if lost else [*["gone"] * 4, "all"])


def test_without_the_secret_an_imitation_takes_nothing_away(tmp_path: Path):
    """The imitation would erase a stream that somebody else has written."""
    path = log_at(tmp_path / "log.db", *TWO_STREAMS, said(StreamId("default", "c"), "all", kind="Erased"))
    log_at(path, said(A, imitation(path, position=9, version=3, kind="Erased"), first=5))
    overwritten(path, root(path, "log"))

    new, done = salvage(path)

    assert not done.has_key
    assert texts(new, B) == ["eins", "zwei"]


def test_without_the_secret_the_chain_leads_to_what_takes_away(tmp_path: Path):
    """Though no directory names it."""
    path = log_at(tmp_path / "log.db", *TAKEN, said(StreamId("default", "c"), "x" * 3_000))
    overwritten(path, root(path, "log"))
    content = bytearray(path.read_bytes())
    page = content.index(b"zwei") // PAGE_BYTES * PAGE_BYTES
    content[page + 3 : page + 5] = bytes(2)
    path.write_bytes(content)

    new, done = salvage(path)

    assert not done.has_key
    assert texts(new, B) == ["eins", "hidden", "2", "drei"]
    assert texts(new, A) == [*["gone"] * 4, "all"]


@pytest.mark.parametrize("size", [SEAL_BYTES, HASH_BYTES])
@pytest.mark.parametrize("position", [6, 8])
def test_a_message_that_imitates_a_blanked_event_is_none(tmp_path: Path, position: int, size: int):
    """The imitation stands in an event's place or behind the last one: it has a commitment to its payload, and no hash
    of the log's own that would contradict.
    """
    whole = log_at(tmp_path / "log.db", *TWO_STREAMS)
    version, event_id = (2, b"%016d" % 2) if position == 6 else (3, b"f" * 16)
    ((kind, time_us),) = asked(whole, "SELECT type, time_us FROM events WHERE position = 6")
    forged = RecordedEvent(position, B, version, event_id, "Said", 1, time_us, "", b"forged")
    salt = b"s" * 16
    commitment = commit_to(salt, envelope(forged), forged.payload, size)
    seals = (b"", b"o" * size, b"c" * size, salt + commitment)
    row = (None, 2, version, event_id, kind, 1, time_us, "", *seals, forged.payload)
    path = log_at(whole, said(A, b"before" + varint(120) + varint(position) + record(row)[0] + b"behind", first=5))
    with Image(path) as image:
        carved = [event for page in image.pages() for event in carved_events(page, image)]
    assert seals in [(each.content_hash, each.commitment, each.chain, each.salt) for each in carved]

    new, done = salvage(path)

    assert done.is_whole
    assert texts(new, B) == ["eins", "zwei"]
    assert sealed(new, A) == sealed(path, A)


def _page(path: Path, number: int) -> bytes:
    return path.read_bytes()[(number - 1) * PAGE_BYTES : number * PAGE_BYTES]
