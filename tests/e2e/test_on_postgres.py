"""`scripts/on-postgres`: a primary, a synchronous standby and two sidecars on this machine, from start to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import ROOT, abridged
from tests.support.patience import PATIENCE_S
from tests.support.postgres_server import programs

psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

LINES_MAX = 100


@contextmanager
def on_postgres(folder: Path) -> Iterator[list[str]]:
    """The script, until an interrupt ends it; the addresses of its sidecars."""
    process = subprocess.Popen(
        [ROOT / "scripts" / "on-postgres", folder, "0", "0"],
        env={**os.environ, "POSTGRES_BIN": str(programs())},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    try:
        addresses: list[str] = []
        lines: list[str] = []
        while len(addresses) < 2 and len(lines) < LINES_MAX and (line := process.stderr.readline()):
            lines.append(line)
            if '"sidecar.ready"' in line:
                addresses += json.loads(line)["addresses"]
        assert len(addresses) == 2, "".join(lines)
        yield addresses
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder at whose path a unix socket fits, and which a server's owner can reach."""
    made = Path(tempfile.mkdtemp(prefix="abridged-on-"))
    yield made
    shutil.rmtree(made)


def test_two_sidecars_share_a_log_with_a_standby_on_one_machine(folder):
    """An append to one is on the standby and in the other's window; a second run goes on with it."""
    with on_postgres(folder) as (one, other):
        sockets = [path for path in folder.glob("run/*/.s.*") if path.is_socket()]
        assert [oct(path.stat().st_mode & 0o077) for path in (folder / "run", *sockets)] == ["0o0"] * 3
        assert abridged("append", "c", "written to one", "--address", one).code == 0
        assert "written to one" in abridged("context", "c", "--address", other).out
        with psycopg.connect(host=str(folder / "run" / "primary"), user="abridged", dbname="abridged") as primary:
            assert primary.execute("SELECT application_name, sync_state FROM pg_stat_replication").fetchall() == [
                ("standby", "sync")
            ]
        with psycopg.connect(host=str(folder / "run" / "standby"), user="abridged", dbname="abridged") as standby:
            assert standby.execute("SELECT pg_is_in_recovery(), max(position) >= 2 FROM events").fetchone() == (
                True,
                True,
            )
    assert [path.name for path in folder.glob("*/postmaster.pid")] == []

    with on_postgres(folder) as (one, _):
        assert "written to one" in abridged("context", "c", "--address", one).out
