"""What `abridged doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAIL", "OK", "SKIP", "WARN", "Finding"]

OK, SKIP, WARN, FAIL = "ok", "skip", "warn", "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: how it went, what was looked at, and what to do about it."""

    verdict: str
    what: str
    hint: str = ""
