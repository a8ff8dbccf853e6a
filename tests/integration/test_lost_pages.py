"""`abridged log verify` on a log with lost pages: it serves the conversations called whole, and names the lost ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from click.testing import CliRunner, Result

from abridged.eventlog.errors import EventLogError, LogFailed
from abridged.service.cli.main import main
from abridged.v1 import event_log_service_pb2 as event_log
from tests.support.command import abridged
from tests.support.flipped_bits import FILE
from tests.support.read_tables import asked, changed, grown
from tests.support.sidecar import said, sidecar

PAGE_BYTES = 4_096
CONVERSATIONS = 30
NAMES = tuple(f"c{number:03d}" for number in range(CONVERSATIONS))
SETTINGS = {"log.backend": "sqlite", "server.http_listen": ""}

FRAGMENTED_BYTES = 7
"""Offset of a b-tree page's count of its smallest free bytes: https://sqlite.org/fileformat.html#b_tree_pages"""

VERSIONS = "sqlite_autoindex_events_1"
IDS = "sqlite_autoindex_events_2"
NAMES_INDEX = "sqlite_autoindex_streams_1"


class Verified(NamedTuple):
    """The output of `log verify` on a file."""

    ran: Result
    named: dict[str, str]

    @property
    def refuses_start(self) -> bool:
        return "no sidecar starts on this log" in self.ran.stderr or "is not an abridged log" in self.ran.stderr

    @property
    def whole(self) -> list[str]:
        """The conversations that are called whole: none if an append may stop the sidecar."""
        says = self.ran.exit_code == 0 or " conversations are whole" in self.ran.stderr
        return [name for name in NAMES if name not in self.named] if says else []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small log whose tables and indexes are on all kinds of pages."""
    folder = tmp_path_factory.mktemp("whole")

    async def build() -> None:
        async with sidecar(folder, SETTINGS) as s:
            for name in NAMES:
                await s.chat(name).append(*(said(n, f"{name} says {n} {'x' * 200}", tokens=1) for n in range(1, 5)))

    asyncio.run(build())
    return folder / FILE


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of enough conversations that each index and each table has leaves."""
    return grown(tmp_path_factory.mktemp("large") / FILE, 300, messages=3)


def test_what_is_called_whole_is_served_whichever_page_is_lost(tmp_path: Path, whole: Path):
    """Each page in turn: verify foretells every start that is refused, and no call for a whole conversation fails."""
    tried = served = refused = 0
    for page in range(1, whole.stat().st_size // PAGE_BYTES + 1):
        path = _overwritten(whole, tmp_path / str(page), page)
        found = _verified(path)
        assert found.ran.exit_code == 1, page
        starts, failed = asyncio.run(_asked(path.parent, found.whole))
        assert starts is not found.refuses_start, (page, found.ran.stderr)
        assert failed == {}, (page, found.ran.stderr)
        tried, served, refused = tried + 1, served + bool(found.whole), refused + found.refuses_start

    assert 0 < served < tried
    assert 0 < refused < tried


@pytest.mark.parametrize("tree", [VERSIONS, IDS, NAMES_INDEX])
def test_a_lost_page_of_an_index_leaves_the_events_intact(tmp_path: Path, large: Path, tree: str):
    """Every row is there: no position is named as damaged, and an index is said to be lost."""
    found = _verified(_overwritten(large, tmp_path / "log", _middle_leaf(large, tree)))

    assert found.named
    assert all("events are intact, and what leads to them is damaged" in line for line in found.named.values())
    assert "the events of 300 of 300 conversations are intact" in found.ran.stderr
    assert found.whole == []


def test_a_page_that_can_be_read_and_not_be_written_is_a_hazard(tmp_path: Path, large: Path):
    """The page's free bytes are miscounted: every read passes, and an append that comes upon it ends the process."""
    path = _overwritten(large, tmp_path / "log")
    content = bytearray(path.read_bytes())
    content[(_middle_leaf(large, VERSIONS) - 1) * PAGE_BYTES + FRAGMENTED_BYTES] ^= 1
    path.write_bytes(content)

    found = _verified(path)

    assert found.named == {}
    assert "an append to any conversation may stop the sidecar: " in found.ran.stderr
    assert "the events of 300 of 300 conversations are intact" in found.ran.stderr


def test_pages_lost_of_the_events_and_of_their_index_name_the_conversations(tmp_path: Path, large: Path):
    """The same events lost on both sides: their conversations are named, by how many of them no page has."""
    leaf = _middle_leaf(large, VERSIONS)
    hidden = sorted(_verified(_overwritten(large, tmp_path / "index", leaf)).named)
    page, gone = _page_with(large, hidden[len(hidden) // 2])

    found = _verified(_overwritten(large, tmp_path / "both", leaf, page))

    lost = {name: line for name, line in found.named.items() if "events are intact" not in line}
    assert lost.keys() == _owners(large, gone)
    assert all("more of its events are in no page that can be read" in line for line in lost.values())
    assert f"the events of {300 - len(lost)} of 300 conversations are intact" in found.ran.stderr


def test_pages_lost_of_the_events_and_elsewhere_of_their_index_name_the_positions(tmp_path: Path, large: Path):
    """The one source has the positions that the other one hides, for that range alone."""
    page, gone = _page_with(large, "c000150")

    found = _verified(_overwritten(large, tmp_path / "log", _leaves(large, VERSIONS)[0], page))

    lost = {name: line for name, line in found.named.items() if "events are intact" not in line}
    assert lost.keys() == _owners(large, gone)
    assert sorted(at for line in lost.values() for at in _named_positions(line)) == gone


def test_names_that_are_lost_twice_are_counted(tmp_path: Path, large: Path):
    """Streams without a name are said to be there, by their numbers."""
    leaves = (_leaves(large, "streams")[0], _leaves(large, NAMES_INDEX)[0])

    found = _verified(_overwritten(large, tmp_path / "log", *leaves))

    assert found.refuses_start
    assert "streams have lost their names; their numbers: 1 to " in found.ran.stdout


def test_output_has_a_bound_that_a_flag_lifts(tmp_path: Path, large: Path):
    """A hundred lines of 300, and how many there are beyond."""
    path = _overwritten(large, tmp_path / "log", next(_roots(large, "types")))

    short, long = _verified(path), _verified(path, "--all")

    assert len(short.named) == 100
    assert "and 200 more findings of conversations; --all prints them" in short.ran.stdout
    assert len(long.named) == 300
    assert short.ran.stderr == long.ran.stderr


def test_a_backup_of_what_is_damaged_says_where_all_of_it_is(tmp_path: Path, large: Path):
    """Twenty lines of 300, and the command that prints them, which a backup and a restore do not."""
    path = _overwritten(large, tmp_path / "log", next(_roots(large, "types")))

    for command in (("backup", str(path), str(tmp_path / "new.db")), ("restore", str(path), str(tmp_path / "new.db"))):
        ran = abridged("log", *command)
        assert ran.code == 1
        assert f"and 280 more findings of conversations; `abridged log verify {path} --all` prints them" in ran.out


def test_a_damaged_chain_hash_blames_its_own_event(tmp_path: Path, large: Path):
    """The event before may be unreadable, so that only the one after tells which of two is wrong."""
    path = _overwritten(large, tmp_path / "log")
    ((first,),) = asked(path, "SELECT min(position) FROM events WHERE stream = 7")
    changed(
        path,
        f"UPDATE events SET payload = zeroblob(3) WHERE position = {first}",
        f"UPDATE events SET chain = zeroblob(32) WHERE position = {first + 1}",
    )

    (line,) = _verified(path).named.values()

    assert line.endswith(f"; damaged: {first} to {first + 1}")


def test_damaged_positions_are_named_in_so_many_ranges(tmp_path: Path):
    """The line has twenty of two hundred ranges of one conversation, and the number of the others."""
    path = grown(tmp_path / FILE, 1, messages=400)
    changed(path, "UPDATE events SET payload = zeroblob(3) WHERE position % 2 = 0")

    (line,) = _verified(path).named.values()

    assert "; damaged: 2, 4, 6, " in line
    assert line.endswith(", 40 and 180 more")


def _verified(path: Path, *options: str) -> Verified:
    ran = CliRunner().invoke(main, ["log", "verify", *options, str(path)])
    assert isinstance(ran.exception, SystemExit | None), ran.exception
    lines = (line.partition("damaged  default/")[2] for line in ran.stdout.splitlines())
    return Verified(ran, {line.split(":")[0]: line for line in lines if line})


async def _asked(folder: Path, names: list[str]) -> tuple[bool, dict[str, str]]:
    """Return whether a sidecar starts, and the calls for these conversations that it refuses."""
    failed: dict[str, str] = {}
    try:
        async with sidecar(folder, SETTINGS) as s:
            for name in names:
                request = event_log.ReadEventsRequest(conversation_id=name, limit=1_000)
                for asking in (
                    s.event_log.ReadEvents(request),
                    s.chat(name).context(),
                    s.chat(name).append(said(900, tokens=1)),
                ):
                    try:
                        await asking
                    except grpc.aio.AioRpcError as error:
                        failed[name] = str(error.details())
    except LogFailed as error:
        failed["the sidecar"] = str(error)
    except EventLogError:
        return False, failed
    return True, failed


def _overwritten(whole: Path, folder: Path, *pages: int) -> Path:
    folder.mkdir()
    content = bytearray(whole.read_bytes())
    for page in pages:
        content[(page - 1) * PAGE_BYTES : page * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    (folder / FILE).write_bytes(content)
    return folder / FILE


def _named_positions(line: str) -> Iterator[int]:
    for named in line.partition("; damaged: ")[2].split("; ")[0].split(", "):
        first, _, last = named.partition(" to ")
        yield from range(int(first), int(last or first) + 1)


def _roots(path: Path, tree: str) -> Iterator[int]:
    yield from (root for (root,) in asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", tree))


def _leaves(path: Path, tree: str) -> list[int]:
    """The leaves of a tree in order: https://sqlite.org/fileformat.html#b_tree_pages"""
    content = path.read_bytes()

    def below(page: int) -> Iterator[int]:
        begin = (page - 1) * PAGE_BYTES
        if content[begin] not in (2, 5):
            yield page
            return
        for cell in range(int.from_bytes(content[begin + 3 :][:2], "big")):
            at = begin + int.from_bytes(content[begin + 12 + 2 * cell :][:2], "big")
            yield from below(int.from_bytes(content[at : at + 4], "big"))
        yield from below(int.from_bytes(content[begin + 8 :][:4], "big"))

    return list(below(next(_roots(path, tree))))


def _middle_leaf(path: Path, tree: str) -> int:
    leaves = _leaves(path, tree)
    assert len(leaves) > 1, tree
    return leaves[len(leaves) // 2]


def _page_with(path: Path, name: str) -> tuple[int, list[int]]:
    """The page with the first event of a conversation, and the positions on it."""
    ((first,),) = asked(path, f"SELECT min(e.position) {_OF_NAME}", name)
    for page in _leaves(path, "events"):
        begin = (page - 1) * PAGE_BYTES
        content = path.read_bytes()[begin : begin + PAGE_BYTES]
        cells = range(8, 8 + 2 * int.from_bytes(content[3:5], "big"), 2)
        positions = sorted(_rowid(content[int.from_bytes(content[at : at + 2], "big") :]) for at in cells)
        if first in positions:
            return page, positions
    raise AssertionError("every event is on a page")


def _rowid(cell: bytes) -> int:
    """Return the number that follows the row's length: https://sqlite.org/fileformat.html#varint"""
    numbers, number = [], 0
    for byte in cell:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
        if len(numbers) == 2:
            break
    return numbers[1]


def _owners(path: Path, positions: list[int]) -> set[str]:
    listed = ", ".join(map(str, positions))
    return {name for (name,) in asked(path, f"SELECT s.name {_OF_EVENTS} WHERE e.position IN ({listed})")}


_OF_EVENTS = "FROM events AS e JOIN streams AS s ON s.id = e.stream"
_OF_NAME = f"{_OF_EVENTS} WHERE s.name = ?"
