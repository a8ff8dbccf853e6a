"""The answers of a provider's servers to the question whether passes can depend on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

OK, SKIP, WARN, FAIL = "ok", "skip", "warn", "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of `abridged doctor`: its verdict, its subject with the outcome, and a remedy."""

    verdict: str
    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """A model's speed.

    Attributes:
        read: Prompt tokens per second; None if the host reports none.
        written: Answer tokens per second; None if the host reports none.
    """

    read: float | None
    written: float | None

    def read_s(self, tokens: int) -> float | None:
        """Seconds to read a prompt of `tokens`; None if the speed is unknown."""
        return tokens / self.read if self.read is not None else None


@dataclass(frozen=True, slots=True)
class Inventory:
    """One server, and the models of it that the settings name.

    Attributes:
        findings: Findings on the server, then on each model.
        speeds: A call that asks each usable model a small question, by its name; it raises ModelError. Empty for a
            server that does not report how long it reads.
    """

    findings: tuple[Finding, ...]
    speeds: Mapping[str, Callable[[], Awaitable[ModelSpeed]]] = field(default_factory=dict)
