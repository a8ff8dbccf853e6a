"""A sidecar in a process of its own, on a log and a socket that stay: it can be killed, stopped and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import grpc

from tests.support.patience import PATIENCE_S

T = TypeVar("T")

CALL_S = PATIENCE_S
"""Longer than a restart takes, so that a call which waits for one does not give up before it."""

TRIES_MAX = 1_000
RETRY_S = 0.05
LOOK_S = 0.005
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
"""Statuses of calls to a killed server. Anything else is an answer that it should not have given."""

CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 50),
)
"""A channel that looks for the restarted sidecar at once and repeats no call by itself."""

# Each process begins the script anew: a pass at its start hangs, so that many kills meet a running one.
_SCRIPT = {"steps": [{"default": True}, {"hang": True}, {"default": True}]}
HANG_S = 5.0


async def until_answered(call: Callable[[], Awaitable[T]], *, retried: Callable[[], None] = lambda: None) -> T:
    """Call again and again while nobody answers; raises the error of a living server."""
    for _ in range(TRIES_MAX):
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in _RETRIED:
                raise
        retried()
        # A server that stops answers at once, again and again, until it has gone.
        await asyncio.sleep(RETRY_S)
    raise AssertionError("nobody ever answered")


@dataclass
class SidecarProcess:
    """`abridged serve` on a SQLite log in `folder`, or as the variables of `environ` say, one process at a time."""

    folder: Path
    command: tuple[str, ...] = (sys.executable, "-c", "from abridged.service.cli.main import main; main()", "serve")
    http_listen: str = ""
    log_level: str = "warning"
    environ: Mapping[str, str] = field(default_factory=dict)
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log_path(self) -> Path:
        return self.folder / "log.db"

    @property
    def address(self) -> str:
        return f"unix:{self.folder}/s"

    def channel(self) -> grpc.aio.Channel:
        """A channel of its own, which survives restarts."""
        return grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS)

    def start(self) -> None:
        """Start a process; it may take a second until it serves."""
        script = self.folder / "script.json"
        script.write_text(json.dumps(_SCRIPT))
        place = {} if "ABRIDGED_LOG__URL" in self.environ else {"ABRIDGED_LOG__PATH": str(self.log_path)}
        environment = {
            **os.environ,
            **place,
            "ABRIDGED_SERVER__LISTEN": self.address,
            "ABRIDGED_SERVER__HTTP_LISTEN": self.http_listen,
            "ABRIDGED_SUMMARIZER__MODELS": f"scripted:{script}",
            "ABRIDGED_SUMMARIZER__DEADLINE_S": str(HANG_S),
            "ABRIDGED_SUMMARIZER__RETRIES": "0",
            "ABRIDGED_SUMMARIZER__CONCURRENT_PASSES": "4",
            "ABRIDGED_POLICY__FALLBACK": "always",
            "ABRIDGED_TELEMETRY__LOG_LEVEL": self.log_level,
            **self.environ,
        }
        with (self.folder / "stderr.txt").open("ab") as errors:
            self._process = subprocess.Popen(self.command, env=environment, stdout=errors, stderr=errors)
        self.starts += 1

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def has_ended(self) -> bool:
        """True if the process has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def pid(self) -> int:
        return self._running().pid

    async def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed. Asserts that the process had not ended by itself."""
        process = self._running()
        assert process.poll() is None, self.errors()
        process.kill()
        await asyncio.to_thread(process.wait, PATIENCE_S)
        self._process = None

    def freeze(self) -> None:
        """SIGSTOP: the process keeps its connections and does nothing, and does not know of it."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: the process goes on where it was."""
        self._running().send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """SIGTERM; answers the exit code."""
        self._running().send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait until the process has ended by itself; answers the exit code."""
        code = await asyncio.to_thread(self._running().wait, PATIENCE_S)
        self._process = None
        return code

    async def http(self, path: str) -> tuple[int, bytes]:
        """Status and body of the HTTP port's answer; raises OSError while nobody answers."""
        return await asyncio.to_thread(self._asked, path)

    async def until_check(self, check: str, holds: Callable[[str], bool]) -> str:
        """Return the state of one check of `/readyz`, as soon as it `holds`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(OSError):
                    said: str = json.loads((await self.http("/readyz"))[1])["checks"].get(check, "")
                    if holds(said):
                        return said
                await asyncio.sleep(LOOK_S)

    def abandon(self) -> None:
        """End whatever still runs, at the end of a test that failed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def errors(self) -> str:
        """The end of the processes' standard error."""
        return (self.folder / "stderr.txt").read_text(errors="replace")[-4_000:]

    def _asked(self, path: str) -> tuple[int, bytes]:
        host, _, port = self.http_listen.rpartition(":")
        with closing(HTTPConnection(host, int(port), timeout=PATIENCE_S)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the sidecar was started"
        return self._process


@contextmanager
def sidecar_process() -> Iterator[SidecarProcess]:
    """A sidecar's process, not started yet, with a folder that goes with it."""
    # A socket's path has a hundred characters at most, and pytest's own folders are deep.
    with TemporaryDirectory(prefix="crash-") as folder:
        sidecar = SidecarProcess(Path(folder))
        try:
            yield sidecar
        finally:
            sidecar.abandon()
