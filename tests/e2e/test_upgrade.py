"""A log of the first schema upgraded by real processes: stopped and killed in the middle; commands leave it alone."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventlog.sqlite.rewrite import is_older
from service.cli.main import main
from tests.support.crash_process import SidecarProcess
from tests.support.older_logs import older, older_and_long
from tests.support.read_tables import asked, grown
from tests.support.sidecar import sidecar

EVENTS = 300_000
"""So many take a second or two to copy: long enough to be met in the middle."""

COUNT = "SELECT count(*) FROM events"


@pytest.fixture
def process(tmp_path: Path) -> SidecarProcess:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = SidecarProcess(tmp_path, http_listen=f"127.0.0.1:{port}", log_level="info")
    older_and_long(made.log_path, EVENTS)
    return made


async def test_an_upgrade_says_how_far_it_is_and_ends_with_a_signal(process: SidecarProcess):
    """No probe ends it meanwhile, and a stop is one in good order; the file waits for the next start."""
    try:
        process.start()
        said = await _until_in_the_middle(process)
        assert said.startswith("an older version wrote it, so it is written anew: ")
        assert said.endswith(" of 300,000 events")
        assert [(await process.http(path))[0] for path in ("/livez", "/startupz", "/readyz")] == [200, 200, 503]

        assert await process.stop() == 0, process.errors()
        assert is_older(process.log_path)
        assert not process.log_path.with_name("log.db.new").exists()
    finally:
        process.abandon()


async def test_a_kill_in_the_middle_of_an_upgrade_loses_nothing(process: SidecarProcess):
    """The next start begins again."""
    try:
        process.start()
        await _until_in_the_middle(process)
        await process.kill()
        assert is_older(process.log_path)
        assert asked(process.log_path, COUNT) == [(EVENTS,)]

        process.start()
        assert "of 300,000 events" in await _until_in_the_middle(process)
        assert await process.stop() == 0, process.errors()
        assert asked(process.log_path, COUNT) == [(EVENTS,)]
    finally:
        process.abandon()


async def test_an_upgraded_log_is_served(tmp_path: Path):
    """With its read table, and room again for what the larger rows took."""
    path = older(tmp_path / "abridged.db", grown(tmp_path / "now.db", 50, messages=20))
    before = path.stat().st_size

    async with sidecar(tmp_path, {"telemetry.log_level": "info"}) as s:
        (line,) = [line for line in s.logs if line["event"] == "log.upgraded"]
        assert (line["events"], line["bytes_before"]) == (50 * 21, before)
        assert line["bytes_after"] < before
        assert (await s.chat("c000007").state()).message_version == 20


@pytest.mark.parametrize("command", ["verify", "rebuild"])
def test_a_command_names_an_older_file_and_leaves_it_as_it_was(tmp_path: Path, command: str):
    """What upgrades it reports its progress, and can be stopped."""
    path = older(tmp_path / "older.db", grown(tmp_path / "now.db", 1))
    before = path.read_bytes()

    ran = CliRunner().invoke(main, ["log", command, str(path)])

    assert ran.exit_code == 1
    assert ran.stderr == (
        "abridged: the file was written by an earlier version: start a sidecar on it once, which upgrades it\n"
        "  see docs/production.md, Upgrade\n"
    )
    assert path.read_bytes() == before


async def _until_in_the_middle(process: SidecarProcess) -> str:
    return await process.until_check("log", lambda said: " of " in said)
