"""`abridged log backup` beside a sidecar that writes: each copy is whole, and begins the log as it became."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pytest

from abridged.service.codec.events import decode
from abridged.service.domain.events import MessageAppended
from abridged.v1.event_log_service_pb2 import GetHeadRequest
from abridged.v1.event_log_service_pb2_grpc import EventLogServiceStub
from tests.support.command import PROGRAM, abridged
from tests.support.crash_audit import Ledger
from tests.support.crash_process import CALL_S, SidecarProcess, sidecar_process, until_answered
from tests.support.crash_writers import Writers
from tests.support.flipped_bits import FILE
from tests.support.patience import PATIENCE_S

WRITERS = 4
ACKED_BEFORE_S = 0.3
KILLED = 0.3
"""Share of the backups that are killed."""

KILLED_AFTER_S = (0.3, 2.0)
"""A command needs the first to begin, and most end before the second."""

_EVENTS = "SELECT position, event_id, chain FROM events ORDER BY position"
_MESSAGES = (
    "SELECT s.name, e.schema_version, e.payload FROM events AS e JOIN streams AS s ON s.id = e.stream "
    "JOIN types AS t ON t.id = e.type WHERE t.name = 'MessageAppended' AND e.position > ?"
)


async def test_backups_under_load_are_the_beginning_of_the_log():
    """Six backups, of which some are killed: the short form of the run below."""
    figures = await backed_up_under_load(rounds=6, seed=1)

    assert figures["copied_files_that_fail"] > 0, "the control finds nothing wrong with a file without the rest"


@pytest.mark.crash_long
@pytest.mark.timeout(3_600)
async def test_a_hundred_backups_under_load_are_the_beginning_of_the_log(capsys):
    """Everything that was acknowledged before, nothing without those before it; of a killed one all or nothing."""
    figures = await backed_up_under_load(rounds=100, seed=6)

    assert figures["copied_files_that_fail"] > 0
    assert figures["killed"] > 0
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(figures)}\n")


class Copy(NamedTuple):
    """A copy of the log: a digest of its events, how many they are, and the acknowledged messages it should have."""

    digest: bytes
    events: int
    acked: frozenset[tuple[str, str]]


async def backed_up_under_load(*, rounds: int, seed: int) -> dict[str, int]:
    """Take backups while a sidecar is written to, restore each, and compare them all with the log at the end."""
    rng = random.Random(seed)
    ledger = Ledger()
    kept: list[Copy] = []
    plain: list[Copy | None] = []
    figures = {"killed": 0, "killed_too_late": 0}
    with sidecar_process() as sidecar:
        sidecar.start()
        channels = [sidecar.channel() for _ in range(WRITERS)]
        stub = EventLogServiceStub(channels[0])
        await until_answered(lambda: stub.GetHead(GetHeadRequest(), timeout=CALL_S, wait_for_ready=True))
        for number in range(rounds):
            writers = Writers(channels, ledger, seed, generation=number)
            writers.start()
            await writers.run_for(ACKED_BEFORE_S)
            acked = frozenset(ledger.acked)
            plain.append(naively_copied(sidecar, acked))
            killed_after_s = rng.uniform(*KILLED_AFTER_S) if rng.random() < KILLED else None
            file = await asyncio.to_thread(_backed_up, sidecar, killed_after_s)
            await writers.finish()
            figures["killed"] += killed_after_s is not None
            figures["killed_too_late"] += killed_after_s is not None and file is not None
            if file is not None:
                kept.append(await asyncio.to_thread(_restored, file, acked))
        for channel in channels:
            await channel.close()
        assert await sidecar.stop() == 0
        log = sidecar.log_path
        assert [copy.events for copy in kept if not _begins(log, copy)] == []
        failing = [copy for copy in plain if copy is None or not _begins(log, copy)]
    assert len(kept) > rounds // 2
    return figures | {
        "backups": len(kept),
        "copied_files_that_fail": len(failing),
        "events": kept[-1].events,
        "requests_acked": ledger.requests_acked,
    }


def _backed_up(sidecar: SidecarProcess, killed_after_s: float | None) -> Path | None:
    """Back up the log of a sidecar that runs; None if the command was killed before there was a file."""
    file = sidecar.folder / "backups" / "backup.db"
    file.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-c", PROGRAM, "log", "backup", str(sidecar.log_path), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=killed_after_s or PATIENCE_S)
        except subprocess.TimeoutExpired:
            assert killed_after_s is not None
            process.kill()
            process.communicate()
            return file if file.exists() else None
    assert process.returncode == 0, err
    assert out.startswith("ok: ")
    assert {path.name for path in file.parent.iterdir()} - {f"{file.name}.lock"} == {file.name}
    return file


def _restored(file: Path, acked: frozenset[tuple[str, str]]) -> Copy:
    place = file.parent / "restored" / FILE
    place.parent.mkdir()
    try:
        ran = abridged("log", "restore", str(file), str(place))
        assert ran.code == 0, ran
        return _copy(place, acked)
    finally:
        shutil.rmtree(place.parent)
        file.unlink()


def naively_copied(sidecar: SidecarProcess, acked: frozenset[tuple[str, str]]) -> Copy | None:
    """The control: the file as `cp` copies it; None if SQLite cannot read that."""
    copy = sidecar.folder / "copied.db"
    shutil.copyfile(sidecar.log_path, copy)
    try:
        return _copy(copy, acked)
    except sqlite3.Error:
        return None


def _copy(path: Path, acked: frozenset[tuple[str, str]]) -> Copy:
    with _reading(path) as connection:
        (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return Copy(_digest(path, events), events, acked)


def _begins(log: Path, copy: Copy) -> bool:
    """Return whether the log begins with the events of a copy, and those have the messages acknowledged before it."""
    if _digest(log, copy.events) != copy.digest:
        return False
    with _reading(log) as connection:
        later = {
            (conversation, decoded.message.id)
            for conversation, schema_version, payload in connection.execute(_MESSAGES, (copy.events,))
            if isinstance(decoded := decode(MessageAppended.__name__, schema_version, payload), MessageAppended)
        }
    return not later & copy.acked


def _digest(path: Path, events: int) -> bytes:
    """Return a digest of the first events: the place, identity and chain hash of each, which binds all of it."""
    digest = blake2b()
    with _reading(path) as connection:
        for row in connection.execute(f"{_EVENTS} LIMIT ?", (events,)):
            digest.update(repr(row).encode())
    return digest.digest()


def _reading(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True))
