"""The time of a call by stage: the code that a call passes names its stages, and equal names add up.

A task or thread measures for the call that began it. No time is stored outside a call, and a stage costs half a
microsecond.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from enum import StrEnum


class Stage(StrEnum):
    """A part of a call's way; two of them never overlap."""

    ADMISSION = "admission"
    COUNT = "count"
    TURN = "turn"
    LOAD = "load"
    DECIDE = "decide"
    LOG_WAIT = "log_wait"
    PROJECTION = "projection"
    FLUSH = "flush"
    WAIT = "wait"
    STAND_IN = "stand_in"
    RENDER = "render"


Stages = dict[Stage, float]
"""Seconds by stage."""

_CURRENT: ContextVar[Stages | None] = ContextVar("stages", default=None)


def begin_stages() -> Stages:
    """Return an empty sum, to which the current task and every task that it starts add their stages from now on."""
    stages: Stages = {}
    _CURRENT.set(stages)
    return stages


def spent(name: Stage, seconds: float) -> None:
    """Add the time of a stage to the current call's."""
    stages = _CURRENT.get()
    if stages is not None:
        stages[name] = stages.get(name, 0.0) + seconds


class stage:  # noqa: N801 - read as a statement
    """Times its block as a stage, however the block ends."""

    __slots__ = ("_began_s", "_name")

    def __init__(self, name: Stage) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._began_s = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        stages = _CURRENT.get()
        if stages is not None:
            stages[self._name] = stages.get(self._name, 0.0) + time.perf_counter() - self._began_s
