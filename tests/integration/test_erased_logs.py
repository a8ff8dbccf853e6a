"""A log with erased conversations: its copies, its folds without a sidecar, and its checks."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from pydantic import SecretStr

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append, EventLog
from abridged.service.bootstrap.backends import stored_backend
from abridged.service.codec.events import ERASED, encode
from abridged.service.config.settings import LogSettings
from abridged.service.conversations.row import READ_TABLE
from abridged.service.domain.events import ConversationErased
from abridged.testing import LogLinesRefused, replay
from abridged.v1 import conversation_service_pb2 as api
from tests.integration.test_erasure import CANARY, erased, events_of, found_in, singing, sung
from tests.support.command import Ran, abridged
from tests.support.postgres_server import schema_url
from tests.support.refusal import refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Sidecar, sidecar

FILE = "abridged.db"
GONE, FORK, KEPT = "c1", "c2", "kept"
"""A conversation that was erased, one that was forked from it and erased with it, and one that was not."""


class Lines(NamedTuple):
    """The lines of one log, before its erasure and after it."""

    before: list[str]
    after: list[str]


class Place(NamedTuple):
    """A log that nobody has open, in a file or a database."""

    settings: LogSettings
    argument: str

    @contextmanager
    def opened(self) -> Iterator[EventLog]:
        """The log alone: its read table does not follow."""
        backend = stored_backend(self.settings)
        log = backend.open(
            backend.rows(READ_TABLE), clock_us=lambda: 1, hook=lambda *_: None, on_fatal=lambda _: None
        ).log
        try:
            yield log
        finally:
            log.close()

    def verified(self) -> Ran:
        return abridged("log", "verify", self.argument)

    def rows(self, query: str, *parameters: Any) -> list[Any]:
        """Carry out a statement on the tables of the log."""
        if self.settings.url is None:
            with closing(sqlite3.connect(self.argument, isolation_level=None)) as file:
                return file.execute(query, parameters).fetchall()
        with psycopg.connect(self.argument, autocommit=True) as database:
            done = database.execute(query.replace("?", "%s"), parameters)
            return done.fetchall() if done.description else []


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(LogSettings(path=tmp_path / FILE), str(tmp_path / FILE))
    url = schema_url(tmp_path)
    return Place(LogSettings(url=SecretStr(url)), url)


def _of(place: Place) -> dict[str, Any]:
    return {} if place.settings.url is None else {"log.url": place.argument}


async def _talked(s: Sidecar) -> None:
    await sung(s, KEPT, turns=10)
    await sung(s, GONE, turns=20)
    await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id=GONE, fork_id=FORK))


def _exported(place: str) -> list[str]:
    ran = abridged("log", "export", place)
    assert ran.code == 0, ran.err
    return ran.out.splitlines(keepends=True)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("erased")

    async def build() -> None:
        async with sidecar(folder) as s:
            await _talked(s)
        (folder / "before.jsonl").write_text("".join(_exported(str(folder / FILE))), encoding="utf-8")
        async with sidecar(folder) as s:
            await erased(s, GONE, forks=True)

    asyncio.run(build())
    return folder / FILE


@pytest.fixture(scope="module")
def lines(log: Path) -> Lines:
    before = (log.parent / "before.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    return Lines(before, _exported(str(log)))


def _log_of(lines: list[str], changed: Callable[[dict[str, Any]], None] = lambda _event: None) -> list[str]:
    """The lines of a whole log, their events changed, under a head that counts them."""
    head = json.loads(lines[0]) | {"events": len(lines) - 1}
    events = [json.loads(line) for line in lines[1:]]
    for event in events:
        changed(event)
    return [json.dumps(each) + "\n" for each in (head, *events)]


def _blank(event: dict[str, Any]) -> None:
    """Turn it into the event as it is once its content is erased."""
    body = event["type"][0].lower() + event["type"][1:]
    event.pop(body, None)
    event["payload"] = b64encode(ERASED).decode()


def _imported(folder: Path, lines: list[str]) -> Ran:
    (folder / "of").mkdir()
    (folder / "of" / "lines.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "copy").mkdir()
    return abridged("log", "import", str(folder / "of" / "lines.jsonl"), str(folder / "copy" / FILE))


def test_a_log_with_erased_conversations_comes_back_from_its_lines(tmp_path, log, lines, place):
    """The copy has the same lines, is in order, and shows the same views: an erased conversation stays so."""
    (tmp_path / "lines.jsonl").write_text("".join(lines.after), encoding="utf-8")

    assert abridged("log", "import", str(tmp_path / "lines.jsonl"), place.argument).code == 0

    assert _exported(place.argument) == lines.after
    assert place.verified() == abridged("log", "verify", str(log))
    assert place.verified().code == 0
    assert asyncio.run(_views(tmp_path, _of(place))) == asyncio.run(_views(log.parent, {}))


async def _views(folder: Path, settings: dict[str, Any]) -> Any:
    """A sidecar's views of all conversations; it refuses a repeat and a new message of an erased one."""
    async with sidecar(folder, settings) as s:
        for name in (GONE, FORK):
            for number in (1, 99):
                async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
                    await s.chat(name).append(singing(number))
        listed = await s.conversations.ListConversations(api.ListConversationsRequest())
        events = [
            (e.event_id, e.position, e.type, e.payload) for n in (GONE, FORK, KEPT) for e in await events_of(s, n)
        ]
        return listed, await s.chat(KEPT).context(), events


@pytest.mark.parametrize("blanked", [0, 1, 9])
def test_a_copy_of_a_log_in_the_middle_of_an_erasure_finishes_it(tmp_path, lines, blanked):
    """The sidecar that serves it blanks the rest; before that the copy is in order, and is folded, too."""
    begun = [line for line in lines.after if "TextPurged" not in line]
    whole = lines.before + begun[len(lines.before) :]

    def blank(event: dict[str, Any]) -> None:
        if event["conversationId"] == GONE and int(event["version"]) <= blanked:
            _blank(event)

    halfway = _log_of(whole, blank)
    assert _imported(tmp_path, halfway).code == 0
    path = tmp_path / "copy" / FILE
    assert abridged("log", "verify", str(path)).code == 0
    assert abridged("log", "rebuild", str(path)).code == 0
    assert list(replay("".join(halfway).encode())) == [KEPT]

    async def finish() -> list[Any]:
        async with sidecar(tmp_path / "copy") as s:
            for name in (GONE, FORK):
                assert (await erased(s, name)).conversations == 0
            return await events_of(s, GONE) + await events_of(s, FORK)

    events = asyncio.run(finish())
    assert {e.payload for e in events if e.type not in ("ConversationErased", "TextPurged")} == {ERASED}
    assert [e.type for e in events].count("TextPurged") == 2
    assert b"turn 19" not in path.read_bytes()
    assert abridged("log", "verify", str(path)).code == 0


def test_no_more_than_what_was_kept_is_in_a_copy(tmp_path, lines):
    """The copy of an erased log has nothing of erased conversations, as the log itself."""
    alone = _log_of([line for line in lines.after if f'"{KEPT}"' not in line or '"format"' in line], _renumbered())

    assert _imported(tmp_path, alone).code == 0
    assert found_in(tmp_path) == []


def _renumbered() -> Callable[[dict[str, Any]], None]:
    positions = iter(range(1, 1_000))

    def renumber(event: dict[str, Any]) -> None:
        event["position"] = str(next(positions))

    return renumber


def _without_the_erasure(lines: Lines) -> list[str]:
    return _log_of(lines.after[: len(lines.before)])


def _with_the_erasure_erased(lines: Lines) -> list[str]:
    return _log_of(lines.after, lambda event: _blank(event) if event["type"] == "ConversationErased" else None)


def _with_one_erased(lines: Lines) -> list[str]:
    def blank(event: dict[str, Any]) -> None:
        if (event["conversationId"], event["version"]) == (KEPT, "3"):
            _blank(event)

    return _log_of(lines.before, blank)


def _with_a_fork_left(lines: Lines) -> list[str]:
    """The parent is erased, and its fork is not."""
    erasure = json.loads(next(li for li in lines.after if "ConversationErased" in li and f'"{GONE}"' in li))
    whole = [*lines.before, json.dumps(erasure | {"position": str(len(lines.before))})]

    def blank(event: dict[str, Any]) -> None:
        if event["conversationId"] == GONE and event["type"] != "ConversationErased":
            _blank(event)

    return _log_of(whole, blank)


def _with_the_erasure_of_another(lines: Lines) -> list[str]:
    def rename(event: dict[str, Any]) -> None:
        if event["type"] == "ConversationErased":
            event["conversationErased"]["conversationId"] = "another"

    return _log_of(lines.after, rename)


def _with_an_opening_in_the_middle(lines: Lines) -> list[str]:
    def open_again(event: dict[str, Any]) -> None:
        if (event["conversationId"], event["version"]) == (GONE, "3"):
            event["type"] = "ConversationOpened"

    return _log_of(lines.after, open_again)


def _with_a_message_after_the_erasure(lines: Lines) -> list[str]:
    of_gone = [json.loads(line) for line in lines.before if f'"{GONE}"' in line and "messageAppended" in line]
    last = [json.loads(line) for line in lines.after if f'"conversationId":"{GONE}"' in line][-1]
    place = {key: last[key] for key in ("position", "version", "eventId")}
    return _log_of([*lines.after[: int(last["position"])], json.dumps(of_gone[-1] | place)])


BROKEN = {
    _without_the_erasure: "conversation default/c1: an erased event without an erasure",
    _with_the_erasure_erased: "conversation default/c1: an erased event without an erasure",
    _with_one_erased: "conversation default/kept: an erased event without an erasure",
    _with_a_fork_left: "conversation default/c2: the conversation that it was forked from was erased",
    _with_the_erasure_of_another: "the event names another conversation than its own",
    _with_a_message_after_the_erasure: "the event does not follow from those before it",
    _with_an_opening_in_the_middle: "the first event of a conversation, and no other, opens it",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_lines_that_are_erased_without_an_erasure_are_refused(tmp_path, lines, broken):
    """The import and the replay refuse them alike, whole, and the message names the conversation or the line."""
    ran = _imported(tmp_path, broken(lines))

    assert (ran.code, BROKEN[broken] in ran.err) == (1, True), ran.err
    assert not (tmp_path / "copy" / FILE).exists()
    replayed = abridged("log", "replay", str(tmp_path / "of" / "lines.jsonl"))
    assert (replayed.code, BROKEN[broken] in replayed.err) == (1, True), replayed.err
    with pytest.raises(LogLinesRefused, match=BROKEN[broken]):
        replay("".join(broken(lines)).encode())


def test_a_replay_leaves_out_what_was_erased(tmp_path, lines):
    """A list of conversations leaves them out, too; the replay is folded or under another policy."""
    (tmp_path / "lines.jsonl").write_text("".join(lines.after), encoding="utf-8")

    rows = abridged("log", "replay", str(tmp_path / "lines.jsonl"))
    as_json = abridged("log", "replay", str(tmp_path / "lines.jsonl"), "--json")
    under = abridged("log", "replay", str(tmp_path / "lines.jsonl"), "--policy", "default", "--json")

    assert [line.split()[0] for line in rows.out.splitlines()] == ["CONVERSATION", KEPT]
    assert [json.loads(line)["conversation"]["id"] for line in as_json.out.splitlines()] == [KEPT]
    assert json.loads(under.out)["chats"] == 1
    assert list(replay("".join(lines.after).encode())) == [KEPT]


def test_what_is_made_again_of_a_log_has_nothing_of_what_was_erased(tmp_path, lines):
    """The read table and the search index are made again."""
    assert _imported(tmp_path, lines.after).code == 0
    path = tmp_path / "copy" / FILE

    for command in ("rebuild", "reindex"):
        assert abridged("log", command, str(path)).code == 0
    assert abridged("log", "verify", str(path)).code == 0

    async def search() -> Any:
        async with sidecar(tmp_path / "copy", WORDS) as s:
            return (await searched(s, CANARY)).hits

    hits = asyncio.run(search())
    assert {hit.conversation_id for hit in hits} == {KEPT}


async def test_a_watch_of_an_erased_conversation_says_so(tmp_path):
    """One that is open when it is erased, which sees that, and a new one."""
    async with sidecar(tmp_path) as s:
        await sung(s, turns=10)
        seen: list[str] = []
        watching = s.conversations.WatchConversation(api.WatchConversationRequest(conversation_id=GONE))
        async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
            async for item in watching:
                seen.append(item.event.type)
                if item.HasField("caught_up"):
                    await erased(s)
        assert "ConversationErased" in seen
        async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
            async for _ in s.conversations.WatchConversation(api.WatchConversationRequest(conversation_id=GONE)):
                pass


_ROWS = "SELECT payload, salt, content_hash, position FROM events ORDER BY position"
_PUT = "UPDATE events SET payload = ?, salt = ?, content_hash = ? WHERE position = ?"


async def test_content_that_is_there_again_is_found(tmp_path, place):
    """The content is a row of an old copy, sealed as it was; an erasure that is not finished may still have it."""
    async with sidecar(tmp_path, _of(place)) as s:
        await sung(s, turns=10)
        await sung(s, KEPT, turns=10)
    old = place.rows(_ROWS)[3]
    async with sidecar(tmp_path, _of(place)) as s:
        await erased(s)
    assert place.verified().code == 0

    place.rows(_PUT, *old)

    ran = place.verified()
    assert ran.code == 1
    assert ran.out == f"damaged  default/{GONE}: position 4: its content was erased, and is there again\n"
    assert "1 of 2 conversations are whole" in ran.err


async def test_the_content_of_a_pass_that_is_there_again_is_no_crash_of_the_check(tmp_path, place):
    """The pass's events contradict each other once those between them are erased."""
    async with sidecar(tmp_path, _of(place)) as s:
        await sung(s, turns=30, context_length=4_096)
        completed = next(e.position for e in await events_of(s) if e.type == "SummarizationCompleted")
    rows = place.rows(_ROWS)
    async with sidecar(tmp_path, _of(place)) as s:
        await erased(s)

    for position in (1, completed):
        place.rows(_PUT, *rows[position - 1])

    assert f"position 1, {completed}: its content was erased, and is there again" in place.verified().out


async def test_an_erasure_whose_own_content_was_taken_out_explains_nothing(tmp_path, place):
    """The erasure is named, with the events that it has erased."""
    async with sidecar(tmp_path, _of(place)) as s:
        await sung(s, turns=10)
        await erased(s)
        (erasure,) = [e for e in await events_of(s) if e.type == "ConversationErased"]
    with place.opened() as log:
        log.blank(StreamId("default", GONE), {erasure.version: ERASED})

    ran = place.verified()

    assert ran.code == 1
    assert f"position 1 to {erasure.position}: its content was taken out, and no later event says so" in ran.out


def test_a_fork_that_was_not_erased_with_its_parent_is_found(tmp_path, place):
    """The fork is named and refused: a fold of it would be a state that nobody wrote."""
    parent = StreamId("default", GONE)

    async def build() -> None:
        async with sidecar(tmp_path, _of(place)) as s:
            await _talked(s)

    async def ask() -> None:
        async with sidecar(tmp_path, _of(place)) as s:
            async with refused("DATA_LOSS", "LOG_CORRUPT"):
                await s.chat(FORK).context()
            assert (await s.chat(KEPT).context()).messages

    asyncio.run(build())
    with place.opened() as log:
        last = log.stream_version(parent)
        event_type, schema_version, payload = encode(ConversationErased(GONE, 20, "e1", 1))
        log.submit(Append(parent, [NewEvent(bytes(16), event_type, payload, schema_version)])).result()
        log.blank(parent, dict.fromkeys(range(1, last + 1), ERASED))

    ran = place.verified()

    assert ran.code == 1
    assert f"default/{FORK}: the conversation that it was forked from was erased" in ran.out
    rebuilt = abridged("log", "rebuild", place.argument)
    assert f"{FORK}: the conversation that it was forked from was erased\n" in rebuilt.out
    asyncio.run(ask())
