"""`scripts/on-postgres`: a primary, a synchronous standby and two sidecars on this machine, from start to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
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
def on_postgres(folder: Path, **environ: str) -> Iterator[list[str]]:
    """The script, until an interrupt ends it; the addresses of its sidecars."""
    process = subprocess.Popen(
        [ROOT / "scripts" / "on-postgres", folder, "0", "0"],
        env={**os.environ, "POSTGRES_BIN": str(programs()), **environ},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
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
        # As a terminal sends it, to the script and to all that it runs; a second one does not cut the stop short.
        os.killpg(process.pid, signal.SIGINT)
        while (line := process.stderr.readline()) and '"sidecar.stopping"' not in line:
            continue
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def run(folder: Path, root: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the script where it ends by itself."""
    return subprocess.run(
        [root / "scripts" / "on-postgres", folder, "0", "0"],
        env={**os.environ, "POSTGRES_BIN": str(programs()), **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


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
            found = "pg_is_in_recovery(), current_setting('synchronous_standby_names'), max(position) >= 2"
            assert standby.execute(f"SELECT {found} FROM events".encode()).fetchone() == (True, "", True)
    assert [path.name for path in folder.glob("*/postmaster.pid")] == []

    # As a copy is that was cut short.
    (folder / "standby").rename(folder / "standby.new")

    with on_postgres(folder) as (one, _):
        assert "written to one" in abridged("context", "c", "--address", one).out
        assert abridged("append", "c", "the standby is made again", "--address", one).code == 0


def test_a_first_run_that_fails_leaves_nothing_in_the_way(folder, tmp_path):
    """The next run begins anew, with the programs beside the one that a link on PATH leads to."""
    in_the_way = folder / "primary.log"
    in_the_way.mkdir()
    failed = run(folder)
    assert (failed.returncode, (folder / "primary").exists()) == (1, False), failed
    assert (folder / "primary.new").exists(), "it fails after initdb, at the start of the server"

    in_the_way.rmdir()
    (tmp_path / "initdb").symlink_to(programs() / "initdb")
    with on_postgres(folder, POSTGRES_BIN="", PATH=f"{tmp_path}:{os.environ['PATH']}") as (one, _):
        assert abridged("append", "c", "written", "--address", one).code == 0

    refused = run(folder, ABRIDGED_NO_SUCH_SETTING="1")
    assert refused.returncode == 2, refused
    assert refused.stderr.count("ABRIDGED_NO_SUCH_SETTING") >= 2, "the script's status is that of its sidecars"
    assert [path.name for path in folder.glob("*/postmaster.pid")] == []


@pytest.mark.parametrize("half", ["primary", "standby"])
def test_a_folder_without_a_whole_primary_is_refused(folder, half):
    """Another program may own it, so nothing in it is removed."""
    (folder / half).mkdir()
    (folder / half / "PG_VERSION").write_text("18\n")

    refused = run(folder)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"on-postgres: {folder} has no whole primary: name another FOLDER, or remove ")
    assert list(folder.rglob("*")) == [folder / half, folder / half / "PG_VERSION"]


def test_a_folder_of_some_programs_is_refused_before_anything_is_made(folder, tmp_path):
    """The message names the folder and the program that it lacks."""
    shutil.copy(programs() / "initdb", tmp_path)

    refused = run(folder, POSTGRES_BIN=str(tmp_path))

    assert refused.returncode == 1
    assert (
        refused.stderr == f"on-postgres: {tmp_path} has initdb and no pg_ctl: name the folder of all in POSTGRES_BIN\n"
    )
    assert list(folder.iterdir()) == []


def test_a_missing_driver_is_installed(folder, tmp_path):
    """A .venv of `make run` has the product, and nothing of PostgreSQL."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "requirements-postgres.txt"):
        shutil.copy(ROOT / name, tmp_path)
    # Without pip nothing is fetched: the beginning of the installation is what there is to see.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    (tmp_path / ".venv" / "bin" / "abridged").symlink_to("python")

    ran = run(folder, root=tmp_path)

    assert ran.returncode == 1
    assert ran.stdout == "install: postgres, from requirements-postgres.txt\n"
    assert list(folder.iterdir()) == []
