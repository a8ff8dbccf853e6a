"""The processes that are measured: started by exec, never by fork, and ended with the bench.

Both kinds serve on a unix socket in the bench's own folder: no port can be taken, and nothing leaves the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from abridged.service.config.sources import environment

EXIT_S = 10.0
_FOREIGN = ("ABRIDGED_", "OTEL_", "OLLAMA_", "PYTHONDONTWRITEBYTECODE")
"""Beginnings of variables that no measured process gets. The last would have it compile its modules, which an
installation has compiled."""

REINDEX_MAX_S = 3_600.0
"""Limit on making an index of SEARCHED_MESSAGES, some ten minutes."""

_SIDECAR = "from abridged.service.cli.main import main; main()"
_ECHO = "from bench.echo import run; import sys; run(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class Child:
    """A running process and its address."""

    process: subprocess.Popen[bytes]
    address: str

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(EXIT_S)
        Path(self.address.removeprefix("unix:")).unlink(missing_ok=True)

    def resident_mib(self) -> float:
        """Resident memory, from the kernel."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1_024

    def processor_s(self) -> float:
        """Seconds of processors that the process has used, from the kernel."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def echo_child(folder: Path, name: str) -> Child:
    """Start the bare gRPC echo."""
    address = f"unix:{folder}/{name}"
    return Child(_started([sys.executable, "-c", _ECHO, address], {}), address)


def sidecar_child(folder: Path, name: str, settings: Mapping[str, str]) -> Child:
    """Start `abridged serve` with these settings over the defaults, and with none of the caller's variables for it."""
    address = f"unix:{folder}/{name}"
    return Child(
        _started([sys.executable, "-c", _SIDECAR, "serve"], _variables(folder, name, address, settings)), address
    )


def reindex(folder: Path, name: str, settings: Mapping[str, str]) -> None:
    """Make the index of the log of a sidecar that has ended, without rests."""
    variables = _variables(folder, name, f"unix:{folder}/{name}", settings)
    reindexing = _started([sys.executable, "-c", _SIDECAR, "log", "reindex"], variables)
    if reindexing.wait(REINDEX_MAX_S):
        raise RuntimeError("abridged log reindex failed")


def _variables(folder: Path, name: str, address: str, settings: Mapping[str, str]) -> dict[str, str]:
    own = {
        "server.listen": address,
        "server.http_listen": "",
        **({} if "log.url" in settings else {"log.path": str(folder / f"{name}.db")}),
        "telemetry.log_level": "error",
        **settings,
    }
    return {f"ABRIDGED_{key.replace('.', '__').upper()}": value for key, value in own.items()}


def _started(command: list[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in environment().items() if not name.startswith(_FOREIGN)}
    return subprocess.Popen(command, env=inherited | dict(variables), stdout=subprocess.DEVNULL)
