"""The memory of a process that a test attacks, as the kernel measured it."""

from __future__ import annotations

from pathlib import Path

MEMORY_MAX_MIB = 400
"""The most memory that a sidecar may have resident, whatever it is sent."""


def peak_mib(pid: int) -> float:
    """The most memory that the running process `pid` has had resident, in MiB."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1_024
