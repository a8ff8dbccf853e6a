"""The log's files taken from under a running sidecar: nothing is acknowledged into a file that nobody will open."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from abridged.eventlog.errors import LogGone
from tests.support.refusal import refused
from tests.support.sidecar import Sidecar, said, sidecar


def deleted(log: Path) -> None:
    log.unlink()


def renamed(log: Path) -> None:
    log.rename(log.with_name("old.db"))


def replaced(log: Path) -> None:
    """Replace the log as a backup that is put in its place while the sidecar runs."""
    shutil.copy(log, log.with_name("backup.db"))
    log.with_name("backup.db").replace(log)


def without_its_wal(log: Path) -> None:
    log.with_name(f"{log.name}-wal").unlink()


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def in_another_folder(log: Path) -> None:
    log.parent.rename(log.parent.with_name("elsewhere"))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "log"
    made.mkdir()
    return made


async def readiness(s: Sidecar) -> tuple[str, dict[str, str]]:
    """Status of `/readyz`, and the state of each check."""
    answer = await s.http("/readyz")
    checks: dict[str, str] = json.loads(answer.rpartition("\r\n")[2])["checks"]
    return answer.split(" ", 2)[1], checks


@pytest.mark.parametrize("taken", [deleted, renamed, replaced, without_its_wal, in_another_folder])
async def test_nothing_is_acknowledged_into_a_file_that_is_gone(folder, taken: Callable[[Path], None]):
    """Every later append is refused, `/readyz` says why, and all that was readable stays readable."""
    async with sidecar(folder) as s:
        chat = s.chat()
        await chat.append(said(1))
        before = await readiness(s)

        taken(folder / "abridged.db")

        for number in (2, 3):
            async with refused("UNAVAILABLE", "LOG_GONE") as refusal:
                await chat.append(said(number))
            assert "is not in its place" in refusal.text
            assert refusal.retry_s
        after = await readiness(s)
        assert (before[0], before[1]["append"]) == ("200", "ok")
        assert (after[0], after[1]["append"], after[1]["read"]) == ("503", "LogGone", "ok")
        assert (await chat.context()).message_version == 1


@pytest.mark.parametrize("shortened", [emptied, cut])
@pytest.mark.parametrize("name", ["abridged.db", "abridged.db-wal"])
async def test_nothing_is_acknowledged_behind_what_another_program_cut_off(
    folder, name: str, shortened: Callable[[Path], None]
):
    """SQLite would go on where the file once ended, and a recovery stops where it was cut.

    The rest of the files stays as it was for whoever mends them, even when the sidecar stops.
    """
    async with sidecar(folder) as s:
        chat = s.chat()
        await chat.append(said(1))
        shortened(folder / name)
        left = [(folder / file).read_bytes() for file in ("abridged.db", "abridged.db-wal")]

        for number in (2, 3):
            async with refused("UNAVAILABLE", "LOG_GONE"):
                await chat.append(said(number))

        assert (await readiness(s))[1]["append"] == "LogGone"
        assert f"{name} was cut to" in s.log_text
    assert [(folder / file).read_bytes() for file in ("abridged.db", "abridged.db-wal")] == left


@pytest.mark.parametrize("taken", [deleted, replaced, without_its_wal])
async def test_readiness_notices_a_file_that_is_gone_by_itself(folder, taken: Callable[[Path], None]):
    """No append has to be refused first; an orchestrator hears of it though nobody writes."""
    async with sidecar(folder) as s:
        taken(folder / "abridged.db")

        status, checks = await readiness(s)

        assert (status, checks["append"]) == ("503", "LogGone")
        assert "log.gone" in s.log_text


async def test_no_new_log_is_begun_over_the_rest_of_an_old_one(folder):
    """A new file would make SQLite remove the write-ahead log, in which the newest messages are."""
    log, wal = folder / "abridged.db", folder / "abridged.db-wal"
    async with sidecar(folder) as s:
        await s.chat().append(said(1))
        kept = wal.read_bytes()
        log.unlink()
        async with refused("UNAVAILABLE", "LOG_GONE"):
            await s.chat().append(said(2))

    with pytest.raises(LogGone, match="missing"):
        async with sidecar(folder):
            pass

    assert not log.exists()
    assert wal.read_bytes()[: len(kept)] == kept
