"""`abridged log export` and `import`: the same log on another machine, or none."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import PROGRAM, Ran, abridged, abridged_process
from tests.support.flipped_bits import FILE, built_log
from tests.support.sidecar import said, sidecar


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return asyncio.run(built_log(tmp_path_factory.mktemp("whole")))


@pytest.fixture(scope="module")
def lines(whole):
    ran = abridged("log", "export", str(whole))
    assert ran.code == 0
    return ran.out.splitlines(keepends=True)


def imported(folder: Path, lines: list[str]) -> Ran:
    """Import the lines into a log in the folder."""
    (folder / "lines.jsonl").write_text("".join(lines), encoding="utf-8")
    return abridged("log", "import", str(folder / "lines.jsonl"), str(folder / FILE))


def test_a_log_comes_back_from_its_lines(tmp_path, whole, lines):
    """The same lines again, a log in order, and messages that people can read."""
    before = whole.read_bytes()

    ran = imported(tmp_path, lines)

    assert (ran.code, ran.out[:4]) == (0, "ok: ")
    assert abridged("log", "export", str(tmp_path / FILE)).out.splitlines(keepends=True) == lines
    verified = [abridged("log", "verify", str(path)) for path in (whole, tmp_path / FILE)]
    assert verified[0] == verified[1]
    assert verified[0].code == 0
    assert whole.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {FILE, f"{FILE}.lock", "lines.jsonl"}
    assert json.loads(lines[0]) == {
        "format": "abridged-log-1",
        "logId": json.loads(lines[1])["logId"],
        "events": len(lines) - 1,
    }
    assert all("payload" not in json.loads(line) for line in lines[1:])


def test_a_repeated_append_is_known_by_the_copy(tmp_path):
    """Ids and contents are those of the log, so that a client may retry against either."""
    (tmp_path / "copy").mkdir()
    asyncio.run(_sent(tmp_path))
    _copied(tmp_path / "abridged.db", tmp_path / "copy" / "abridged.db")

    answer = asyncio.run(_sent(tmp_path / "copy"))

    assert answer.messages[0].already_appended
    assert answer.message_version == 1


async def _sent(folder: Path) -> Any:
    async with sidecar(folder) as s:
        return await s.chat("chat").append(said(1, "Where were we?"))


def _copied(old: Path, new: Path) -> None:
    lines = abridged("log", "export", str(old)).out
    (new.parent / "lines.jsonl").write_text(lines, encoding="utf-8")
    ran = abridged("log", "import", str(new.parent / "lines.jsonl"), str(new))
    assert ran.code == 0, ran.err


def edited(line: str, **members: object) -> str:
    return json.dumps(json.loads(line) | members) + "\n"


def _contradicting(lines: list[str]) -> list[str]:
    """The lines with the pass of a completed summarization under another id."""
    changed = list(lines)
    for place, line in enumerate(lines):
        event = json.loads(line)
        if event.get("type") == "SummarizationCompleted":
            event["summarizationCompleted"]["summarizationId"] = "another"
            changed[place] = json.dumps(event) + "\n"
            return changed
    raise AssertionError("the log has a pass")


BROKEN: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "cut": (lambda lines: [*lines[:3], lines[3][:40] + "\n", *lines[4:]], "line 4"),
    "without its end": (lambda lines: [*lines[:-1], lines[-1].rstrip("\n")], "has no end"),
    "lost": (lambda lines: [*lines[:3], *lines[4:]], "line 4: position 4 stands in the place of 3"),
    "lost at the end": (lambda lines: lines[:-1], "the last of"),
    "twice": (lambda lines: [*lines[:3], *lines[2:]], "line 4: position 2 stands in the place of 3"),
    "of another log": (
        lambda lines: [*lines[:3], edited(lines[3], logId="f00"), *lines[4:]],
        "line 4: the event is of log f00",
    ),
    "of an unknown type": (lambda lines: [*lines[:3], edited(lines[3], type="Imagined"), *lines[4:]], "line 4"),
    "of a newer schema": (lambda lines: [*lines[:3], edited(lines[3], schemaVersion=99), *lines[4:]], "line 4"),
    "with an unknown member": (lambda lines: [*lines[:3], edited(lines[3], extra=1), *lines[4:]], "line 4"),
    "with another version": (
        lambda lines: [*lines[:3], edited(lines[3], version="99"), *lines[4:]],
        "line 4: version 99",
    ),
    "with an event id twice": (
        lambda lines: [*lines[:3], edited(lines[3], eventId=json.loads(lines[2])["eventId"]), *lines[4:]],
        "line",
    ),
    "of a conversation by another name": (
        lambda lines: [lines[0], edited(lines[1], conversationId="other"), *lines[2:]],
        "line 2: the event names another conversation than its own",
    ),
    "with an opening in the middle": (
        lambda lines: [*lines[:2], edited(lines[2], type=json.loads(lines[1])["type"]), *lines[3:]],
        "line 3",
    ),
    "that contradicts the fold": (_contradicting, "the event does not follow from those before it"),
    "with half a surrogate pair": (
        lambda lines: [*lines[:2], lines[2].replace('"type"', '"\\ud800"', 1), *lines[3:]],
        "line 3",
    ),
    "without a head": (lambda lines: lines[1:], "line 1"),
    "empty": (lambda lines: [], "line 1"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_lines_that_are_no_whole_log_are_refused_whole(tmp_path, lines, how):
    """The message says which line; no log is there, nor a part of one."""
    change, why = BROKEN[how]

    ran = imported(tmp_path, change(lines))

    assert ran.code == 1
    assert why in ran.err
    assert "no log was made" in ran.err
    assert {path.name for path in tmp_path.iterdir()} <= {f"{FILE}.lock", "lines.jsonl"}


def test_a_log_that_is_there_is_not_replaced(tmp_path, lines):
    """The log's bytes stay as they are."""
    assert imported(tmp_path, lines).code == 0
    before = (tmp_path / FILE).read_bytes()

    ran = imported(tmp_path, lines)

    assert ran.code == 1
    assert "there is a log" in ran.err
    assert (tmp_path / FILE).read_bytes() == before


OUTPUTS = {
    "full disk": ("os.open('/dev/full', os.O_WRONLY)", "abridged: cannot write to standard output: No space left"),
    "pipe that nobody reads": ("closed()", ""),
}
"""Outputs that take nothing: the descriptor as a program gets it, and the beginning of the message."""


@pytest.mark.parametrize("choice", [(), ("--open",)])
def test_a_log_that_has_lost_its_end_is_not_exported(tmp_path, whole, choice):
    """A move by lines would leave out an acknowledged message without a word."""
    copy = tmp_path / FILE
    shutil.copy(whole, copy)
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("DELETE FROM events WHERE position = (SELECT max(position) FROM events)")

    ran = abridged("log", "export", str(copy), *choice)

    assert (ran.code, "is the last one there" in ran.err) == (1, True)


@pytest.mark.parametrize("command", ["export", "stats"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_that_takes_nothing_is_no_damage_of_the_log(whole, command, output):
    """A full disk is named; a reader that has gone is told nothing."""
    descriptor, message = OUTPUTS[output]
    program = f"""
import os
def closed():
    reader, writer = os.pipe()
    os.close(reader)
    return writer
os.dup2({descriptor}, 1)
{PROGRAM}"""

    ran = abridged_process("log", command, str(whole), program=program)

    assert (ran.code, ran.err[: len(message) or None]) == (1, message)
    assert len(ran.err.splitlines()) == bool(message)


@pytest.mark.parametrize("place", [["-"], ["./-"], ["--set", "log.path=-"]])
def test_a_log_is_no_pipe(whole, place):
    """The sign for standard output of other commands names no file, neither as an argument nor as a setting."""
    ran = abridged("log", "stats", *place)

    assert (ran.code, ran.out) == (2, "")
    assert "a log is a file, and no pipe" in ran.err
    copied = abridged("log", "backup", str(whole), *place)
    assert (copied.code, "no pipe" in copied.err) == (2, True)
