"""A log line for each call that took long, with the stages that it took: which call of a bad minute it was, and why."""

from __future__ import annotations

import structlog

from abridged.observability.stages import Stage, Stages

DEADLINE = "DEADLINE_EXCEEDED"

_log = structlog.get_logger()


class SlowCalls:
    """Logs calls of at least `slow_s` seconds. Time that a caller asked to wait for a pass or a message does not count,
    unless its deadline ended the wait."""

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s

    def ended(self, method: str, code: str, *, seconds: float, stages: Stages) -> None:
        """A call, or an append of a stream, has ended with the status named `code`."""
        counted = seconds if code == DEADLINE else seconds - stages.get(Stage.WAIT, 0.0)
        if counted < self._slow_s:
            return
        known = {name.value: _ms(spent) for name, spent in stages.items()}
        rest = _ms(max(0.0, seconds - sum(stages.values())))
        _log.warning(
            "rpc.slow",
            method=method,
            code=code,
            total_ms=_ms(seconds),
            stages_ms={**known, "rest": rest},
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
