"""File descriptors: as many as the process may have, and some of them kept for what must work when callers take all.

Connections of gRPC are bounded below the limit of the process, so that the log can be read and the HTTP port answers,
whoever connects.
"""

from __future__ import annotations

import resource

__all__ = ["for_connections", "take_all"]

RESERVED = 256
"""Descriptors that are not for callers of gRPC: 64 connections of the HTTP port, the log, models, traces, the loop."""


def take_all() -> None:
    """Raise this process's limit as far as it may: 1,024 is the default of many systems, their hard limit far more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def for_connections(at_most: int) -> int:
    """How many connections callers may open, at least one and `at_most` so many."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return at_most
    return max(1, min(at_most, soft - min(RESERVED, soft // 2)))
