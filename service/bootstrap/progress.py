"""Reports the progress of a walk through the log."""

from __future__ import annotations

from collections.abc import Callable


class ProgressSteps:
    """Writes how far a walk is, once in `step` things."""

    def __init__(self, step: int, write: Callable[[int, int], None]) -> None:
        self._step = self._next = step
        self._write = write

    def __call__(self, done: int, total: int) -> None:
        if done >= self._next:
            self._next = done + self._step
            self._write(done, total)
