"""`abridged log export` of some conversations: whole ones, as a log of their own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from abridged.v1 import conversation_service_pb2 as api
from tests.support.command import Ran, abridged
from tests.support.flipped_bits import FILE
from tests.support.sidecar import Clock, Sidecar, said, sidecar

DAY_S = 86_400.0
FIRST_DAY = "2027-01-15"


class Calendar(Clock):
    """The days from FIRST_DAY on."""

    def __call__(self) -> int:
        return 1_800_000_000_000_000 + self._ahead_us


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One conversation a day: `red-1`, `red-2`, `blue-1`, closed, and two forks; passes in each."""
    folder = tmp_path_factory.mktemp("whole")
    asyncio.run(_built(folder))
    return folder / FILE


async def _built(folder: Path) -> None:
    calendar = Calendar()
    async with sidecar(folder, {"summarizer.models": ["extractive:default"]}, now_us=calendar) as s:
        for name in ("red-1", "red-2", "blue-1"):
            chat = s.chat(name, labels={"colour": name[:-2], "all": "yes"})
            await chat.append(*(said(n, f"Message {n} of {name}. {'word ' * 90}") for n in range(1, 25)))
            await s.idle()
            calendar.advance(DAY_S)
        await s.conversations.CloseConversation(api.CloseConversationRequest(conversation_id="blue-1"))
        calendar.advance(DAY_S)
        for parent, fork, at in (("red-2", "fork-of-red-2", 20), ("fork-of-red-2", "fork-of-fork", 21)):
            asked = api.ForkConversationRequest(conversation_id=parent, fork_id=fork, to_version=at)
            await s.conversations.ForkConversation(asked)
            await s.chat(fork, labels={}).append(said(at + 1, f"Only in {fork}."))
            await s.idle()


def part(log: Path, *conditions: str) -> list[dict[str, Any]]:
    """The lines of a part."""
    ran = abridged("log", "export", str(log), *conditions)
    assert ran.code == 0, ran
    return [json.loads(line) for line in ran.out.splitlines()]


def chats_in(lines: list[dict[str, Any]]) -> set[str]:
    return {line["conversationId"] for line in lines[1:]}


@pytest.mark.parametrize(
    ("conditions", "chats"),
    [
        (("--conversation", "default/red-1"), {"red-1"}),
        (("--conversation", "red-1", "--conversation", "default/blue-1"), {"red-1", "blue-1"}),
        (("--label", "colour=red"), {"red-1", "red-2", "fork-of-red-2", "fork-of-fork"}),
        (("--label", "colour=blue", "--label", "all=yes"), {"blue-1"}),
        (("--closed",), {"blue-1"}),
        (("--open", "--until", "2027-01-16"), {"red-1"}),
        (("--since", "2027-01-17", "--until", "2027-01-18T12:00:00+00:00"), {"blue-1"}),
        (("--since", "2027-01-19"), {"red-2", "fork-of-red-2", "fork-of-fork"}),
        (("--conversation", "default/fork-of-fork"), {"red-2", "fork-of-red-2", "fork-of-fork"}),
        (("--conversation", "default/red-2"), {"red-2"}),
    ],
)
def test_a_part_has_the_conversations_that_meet_all_conditions(log, conditions, chats):
    """The part also has the conversations that they were forked from, each of them whole; positions have no gaps."""
    whole = part(log)

    lines = part(log, *conditions)

    assert chats_in(lines) == chats
    own = ("logId", "position")
    kept = [{k: v for k, v in line.items() if k not in own} for line in lines[1:]]
    assert kept == [
        {k: v for k, v in line.items() if k not in own} for line in whole[1:] if line["conversationId"] in chats
    ]
    assert [int(line["position"]) for line in lines[1:]] == list(range(1, len(lines)))
    head = lines[0]
    assert head["partOf"] == {"logId": whole[0]["logId"], "events": whole[0]["events"]}
    assert head["events"] == len(lines) - 1
    assert {line["logId"] for line in lines} == {head["logId"]} != {whole[0]["logId"]}
    assert part(log, *conditions) == lines


@pytest.mark.parametrize(
    ("condition", "chats"),
    [(("--label", "colour=red"), ["red-1", "red-2", "fork-of-red-2", "fork-of-fork"]), (("--closed",), ["blue-1"])],
)
def test_an_imported_part_shows_what_the_log_shows(tmp_path, log, condition, chats):
    """Windows, states and records of each conversation, a fork's too, and of those that were closed; and it goes on as
    a log of its own."""
    (tmp_path / "lines.jsonl").write_text(abridged("log", "export", str(log), *condition).out)

    ran = abridged("log", "import", str(tmp_path / "lines.jsonl"), str(tmp_path / FILE))

    assert ran.code == 0, ran
    assert abridged("log", "verify", str(tmp_path / FILE)).code == 0
    assert (
        abridged("log", "export", str(tmp_path / FILE)).out.splitlines()[1:]
        == ((tmp_path / "lines.jsonl").read_text().splitlines()[1:])
    )
    replayed = abridged("log", "replay", str(tmp_path / "lines.jsonl"), "--json")
    assert replayed.code == 0
    asyncio.run(_shows_the_same(log.parent, tmp_path, chats))


async def _shows_the_same(whole: Path, part_of_it: Path, chats: list[str]) -> None:
    async with sidecar(whole) as s:
        expected = [await _shown(s, chat) for chat in chats]
    async with sidecar(part_of_it) as s:
        assert [await _shown(s, chat) for chat in chats] == expected
        assert (await s.chat("new").append(said(1, "It goes on."))).message_version == 1


async def _shown(s: Sidecar, name: str) -> Any:
    chat = s.chat(name)
    context = await chat.context()
    return [list(context.messages), context.usage, await chat.state(), await chat.summaries()]


def refused(log: Path, *conditions: str) -> Ran:
    ran = abridged("log", "export", str(log), *conditions)
    assert (ran.code != 0, ran.out) == (True, ""), ran
    return ran


def test_conditions_that_nothing_meets_are_refused(log):
    """The refusal gives the reason, and prints no line that could be taken for a log."""
    assert "there is no conversation default/none" in refused(log, "--conversation", "default/none").err
    assert "no conversation meets the conditions" in refused(log, "--label", "colour=green").err
    assert "no conversation meets" in refused(log, "--conversation", "default/red-1", "--closed").err
    assert "is neither ID nor NAMESPACE/ID" in refused(log, "--conversation", "/red-1").err
    assert "is not KEY=VALUE" in refused(log, "--label", "colour").err
    assert "is no time such as" in refused(log, "--since", "yesterday").err


def test_an_erased_conversation_is_in_no_part(tmp_path):
    """The part leaves it out even if it is named; the whole log has what is left of it, and no word of its text."""
    asyncio.run(_erased(tmp_path))
    log = tmp_path / FILE

    assert chats_in(part(log, "--label", "colour=red")) == {"left"}
    assert chats_in(part(log, "--until", "2100-01-01")) == {"left"}
    assert chats_in(part(log, "--conversation", "default/left")) == {"left"}
    assert "there is no conversation default/erased" in refused(log, "--conversation", "default/erased").err
    assert chats_in(part(log)) == {"erased", "left"}
    assert "kestrelwing" not in json.dumps(part(log))


async def _erased(folder: Path) -> None:
    async with sidecar(folder) as s:
        for name in ("erased", "left"):
            chat = s.chat(name, labels={"colour": "red"})
            await chat.append(*(said(n, "kestrelwing" if n == 1 else "a heron") for n in range(1, 4)))
        await s.conversations.RedactMessages(api.RedactMessagesRequest(conversation_id="left", numbers=[1]))
        await s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id="erased"))


def test_lines_of_the_whole_log_do_not_belong_to_a_part(tmp_path, log):
    """Nor those of another part: each names its log."""
    lines = abridged("log", "export", str(log), "--label", "colour=blue").out.splitlines(keepends=True)
    other = abridged("log", "export", str(log)).out.splitlines(keepends=True)
    (tmp_path / "lines.jsonl").write_text("".join([*lines[:3], other[3], *lines[4:]]))

    ran = abridged("log", "import", str(tmp_path / "lines.jsonl"), str(tmp_path / FILE))

    assert (ran.code, "line 4: the event is of log" in ran.err, "no log was made" in ran.err) == (1, True, True)
    assert not (tmp_path / FILE).exists()
