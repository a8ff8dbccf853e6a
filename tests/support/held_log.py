"""A log in memory that holds appends back until the test lets them go, in their order, as a slow disk would."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from eventlog.log import Append, AppendHook, CompletionQueue
from eventlog.memory import MemoryEventLog


class HeldLog(MemoryEventLog):
    """`posted` has every append that came."""

    def __init__(self, *, hook: AppendHook, clock_us: Callable[[], int] | None = None) -> None:
        super().__init__(clock_us=clock_us or count(1_000_000).__next__, hook=hook)
        self.posted: list[Append] = []
        self.is_holding = False
        self._held: deque[tuple[Append, Any, CompletionQueue]] = deque()

    @property
    def held(self) -> int:
        """How many are held back."""
        return len(self._held)

    def post(self, append: Append, ticket: Any, completions: CompletionQueue) -> None:
        self.posted.append(append)
        if self.is_holding:
            self._held.append((append, ticket, completions))
        else:
            super().post(append, ticket, completions)

    def let_go(self, *, failing: Exception | None = None) -> None:
        """Commit the oldest one, or let it fail."""
        append, ticket, completions = self._held.popleft()
        if failing is None:
            super().post(append, ticket, completions)
        else:
            completions.deliver([(ticket, failing)])

    def let_all_go(self) -> None:
        """Commit all that are held back, and hold none from now on."""
        self.is_holding = False
        while self._held:
            self.let_go()
