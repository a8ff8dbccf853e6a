"""A sidecar beside a program, for its life."""

from __future__ import annotations

import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from abridged.client.blocking import Conversations
from abridged.client.errors import Patience, SidecarError

ADVANCE_S = 60.0
"""Seconds in which a clock that is moved has to be answered."""

STOP_S = 10.0
"""Seconds that a sidecar has to end its work, once the program has closed its standard input."""

DEFAULT_COMMAND = (shutil.which("abridged", path=Path(sys.executable).parent) or "abridged",)
"""The command of this interpreter's environment, whether that is activated or not; else the one on PATH."""

_NO_COMMAND = (
    "there is no command {}: install abridged for {} (the client alone has no sidecar), or name the command that runs "
    "it (`command` of start_local, the fixture `abridged_command` of pytest)"
)
_LOOK = Patience(attempts_max=1)


class LocalAddress(str):
    """The address of a sidecar that `start_local` started."""

    __slots__ = ("_process",)

    _process: subprocess.Popen[bytes]

    def advance(self, seconds: float) -> datetime:
        """Move the clock of a sidecar for tests, and all that waits for it; returns the time that it is then.

        Passes that became due have been requested: wait for them with `wait_idle`. Raises ValueError for a time that
        lies before, and for a sidecar whose log stays, which goes by the machine's clock; SidecarError when it has
        ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it was started with a pipe"
        if stdout is None:
            raise ValueError("a sidecar whose log stays goes by the machine's clock")
        with suppress(BrokenPipeError):
            stdin.write(f"advance {seconds!r}\n".encode())
            stdin.flush()
        kind, _, answer = _line(self._process, stdout, within_s=ADVANCE_S).partition(" ")
        if kind != "now":
            raise ValueError(answer)
        return datetime.fromisoformat(answer)


@contextmanager
def start_local(
    log_path: str | Path | None = None,
    *,
    lines: str | Path | None = None,
    record: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
    command: Sequence[str] = DEFAULT_COMMAND,
    within_s: float = 30.0,
) -> Iterator[LocalAddress]:
    """Start a sidecar that keeps its log at `log_path`; yields its address, a socket that only this user can open.

    A sidecar without a path is one for tests: its log is in memory, and its summaries are made of the messages' own
    sentences, without a model. The sidecar begins with the `lines` of a log that `abridged log export` wrote, if given,
    and leaves them as they are; it writes such lines of its own log to `record` when it stops. The sidecar stops with
    the block, and with the program, however that ends. `settings` are those of docs/configuration.md, a mapping by
    name; raises TypeError for anything else. Raises FileNotFoundError without the command, and SidecarError if it does
    not serve within `within_s` seconds, with what it has written, and at the end if it has not left the `record`.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError('settings must be a mapping, such as {"policy.trigger_token_ratio": "0.9"}')
    with tempfile.TemporaryDirectory(prefix="abridged-") as folder, (Path(folder) / "log").open("w+b") as written:
        address = f"unix:{folder}/sidecar.sock"
        asked = {**(settings or {}), "server.listen": address, "server.http_listen": ""}
        if log_path is not None:
            asked["log.path"] = str(log_path)
        options = [] if log_path is not None else ["--ephemeral"]
        if lines is not None:
            options += ["--log", str(lines)]
        if record is not None:
            options += ["--record", str(record)]
        options += [part for name, value in asked.items() for part in ("--set", f"{name}={value}")]
        try:
            process = subprocess.Popen(
                [*command, "serve", "--stop-with-stdin", *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL if log_path is not None else subprocess.PIPE,
                stderr=written,
            )
        except FileNotFoundError as error:
            raise FileNotFoundError(_NO_COMMAND.format(command[0], sys.executable)) from error
        try:
            if process.stdout is None:
                _wait_ready(process, address, within_s=within_s)
            else:
                _line(process, process.stdout, within_s=within_s)
            started = LocalAddress(address)
            started._process = process
            yield started
        except SidecarError as error:
            if process.poll() is None:
                raise
            written.seek(0)
            text = written.read().decode(errors="replace").strip()
            raise SidecarError("UNAVAILABLE", "", f"the sidecar has ended: {text}", metadata={}) from error
        finally:
            _stop(process)
        if record is not None and process.returncode:
            written.seek(0)
            text = written.read().decode(errors="replace").strip()
            raise SidecarError("UNAVAILABLE", "", f"the sidecar has left no {record}: {text}", metadata={})


def _line(process: subprocess.Popen[bytes], stdout: IO[bytes], *, within_s: float) -> str:
    """The next line that a sidecar for tests prints: its address once it serves, then an answer for each line that it
    was sent. Raises SidecarError when none comes."""
    readable, _, _ = select.select([stdout], [], [], within_s)
    if readable and (line := stdout.readline()):
        return line.decode().strip()
    if readable:
        process.wait(STOP_S)  # its output has ended, and so will it
        raise SidecarError("UNAVAILABLE", "", "the sidecar has ended", metadata={})
    raise SidecarError("UNAVAILABLE", "", f"the sidecar says nothing within {within_s:g} s", metadata={})


def _wait_ready(process: subprocess.Popen[bytes], address: str, *, within_s: float) -> None:
    until_s = time.monotonic() + within_s
    with Conversations(address, patience=_LOOK) as sidecar:
        while True:
            try:
                sidecar.wait_ready(within_s=0.2)
            except SidecarError:
                if process.poll() is not None or time.monotonic() >= until_s:
                    raise
            else:
                return


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None, "it was started with a pipe"
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
