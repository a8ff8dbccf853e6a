"""File descriptors: raises the process's limit, and reserves some for what must work at any load.

gRPC's connections are bounded below the limit, so that the log can be read and the HTTP port responds, however many
callers connect.
"""

from __future__ import annotations

import resource

RESERVED = 256
"""Descriptors not available to gRPC's callers: 64 connections of the HTTP port, the log, models, traces, the loop."""


def take_all() -> None:
    """Raise this process's limit to its hard limit: 1,024 is the default of many systems, which allow far more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def for_connections(at_most: int) -> int:
    """The number of connections that callers may open: at least one, at most `at_most`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return at_most
    return max(1, min(at_most, soft - min(RESERVED, soft // 2)))
