"""The command line as a user runs it: in this process where that is enough, as processes of its own where it is not."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from abridged.service.cli.main import main
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROGRAM = "from abridged.service.cli.main import main; main(prog_name='abridged')"
FREE_PORTS = {"ABRIDGED_SERVER__LISTEN": "127.0.0.1:0", "ABRIDGED_SERVER__HTTP_LISTEN": "127.0.0.1:0"}
"""Settings that keep a sidecar from being refused because another one serves on this machine."""

READ_BYTES = 65_536
LINES_BEFORE_READY_MAX = 100


@dataclass(frozen=True, slots=True)
class Ran:
    """The end of a command: its exit code, its output and its errors."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class ServedSidecar:
    """A sidecar that `abridged serve` runs."""

    address: str
    http_address: str
    process: subprocess.Popen[str]
    folder: Path


def abridged(*arguments: str, stdin: str = "", environ: Mapping[str, str] | None = None) -> Ran:
    """Run a command in this process, without a terminal. A traceback is raised, not shown."""
    environ = {**(FREE_PORTS if "serve" in arguments else {}), **(environ or {})}
    result = CliRunner().invoke(main, arguments, input=stdin, env=environ, prog_name="abridged")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def abridged_process(*arguments: str, environ: Mapping[str, str] | None = None, program: str = PROGRAM) -> Ran:
    """Run a command, or a program instead of it, as a process without a terminal, until it ends."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **(environ or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@contextmanager
def served(
    folder: Path, *assignments: str, environ: Mapping[str, str] | None = None, program: str = PROGRAM
) -> Iterator[ServedSidecar]:
    """`abridged serve` on free ports with its log in `folder`, or at `log.url`, stopped by SIGTERM at the end."""
    given = (
        *(() if any(one.startswith("log.url") for one in assignments) else (f"log.path={folder / 'served.db'}",)),
        "server.listen=127.0.0.1:0",
        "server.http_listen=127.0.0.1:0",
        "server.shutdown_grace_s=0.05",
        "summarizer.models=extractive:default",
        "telemetry.log_format=json",
        *assignments,
    )
    with _process(
        _command("serve", *(part for one in given for part in ("--set", one)), program=program),
        environ=environ,
        read="stderr",
    ) as process:
        ready = _ready(process)
        yield ServedSidecar(ready["addresses"][0], ready["http_address"], process, folder)


@contextmanager
def fake_ollama(*arguments: str) -> Iterator[str]:
    """A fake Ollama as a process; its address."""
    with _process([sys.executable, "-m", "tests.support.ollama_server", *arguments], read="stdout") as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


@contextmanager
def fake_openai(*arguments: str) -> Iterator[str]:
    """A fake OpenAI-compatible server as a process; the base address of its API."""
    with _process([sys.executable, "-m", "tests.support.openai_server", *arguments], read="stdout") as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


class Terminal:
    """A command at a terminal, and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], leader: int) -> None:
        self.process = process
        self.screen = ""
        self._leader = leader

    def read_until(self, text: str) -> str:
        """The screen when it has `text`."""
        while text not in self.screen:
            readable, _, _ = select.select([self._leader], [], [], PATIENCE_S)
            assert readable, self.screen
            self.screen += os.read(self._leader, READ_BYTES).decode("utf-8", "replace")
        return self.screen


@contextmanager
def on_terminal(*arguments: str, environ: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """Run a command at a terminal of 100 columns; it is killed if it still runs at the end."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        _command(*arguments),
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **(environ or {})},
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(follower)
    try:
        yield Terminal(process, leader)
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def _command(*arguments: str, program: str = PROGRAM) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


@contextmanager
def _process(
    command: list[str], *, read: str, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process whose `read` stream is a pipe and whose other one is nowhere."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environ or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if read == "stdout" else subprocess.DEVNULL,
        stderr=subprocess.PIPE if read == "stderr" else subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            # Reads to the end, so that a full pipe cannot keep the process from ending.
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if '"sidecar.ready"' in line:
            ready: dict[str, Any] = json.loads(line)
            return ready
        assert len(lines) < LINES_BEFORE_READY_MAX, "the sidecar talks and does not get ready"
    raise AssertionError(f"the sidecar did not start: {''.join(lines)}")
