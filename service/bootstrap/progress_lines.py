"""Writes the progress of a walk through the log as log lines."""

from __future__ import annotations

import structlog

LINE_EVENTS = 100_000
"""Events between two log lines: a second or two of folding."""

_log = structlog.get_logger()


class ProgressLines:
    """A line named `event` every LINE_EVENTS events."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._next = LINE_EVENTS

    def __call__(self, done: int, total: int) -> None:
        if done >= self._next:
            self._next = done + LINE_EVENTS
            _log.info(self._event, events=done, events_total=total)
