"""A log in memory that holds appends back until the test lets them go, in their order, as a slow disk would; or commits
them and keeps the outcomes, as a writer's thread does that is not scheduled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from abridged.eventlog.log import Append, AppendHook, CompletionQueue, Outcome
from abridged.eventlog.memory import MemoryEventLog


class HeldLog(MemoryEventLog):
    """`posted` has every append that came. While it `is_silent`, appends are committed without an outcome."""

    def __init__(self, *, hook: AppendHook, clock_us: Callable[[], int] | None = None) -> None:
        super().__init__(clock_us=clock_us or count(1_000_000).__next__, hook=hook)
        self.posted: list[Append] = []
        self.is_holding = False
        self.is_silent = False
        self._unheard: list[tuple[CompletionQueue, Sequence[tuple[Any, Outcome]]]] = []
        self._held: deque[tuple[Append, Any, CompletionQueue]] = deque()

    @property
    def held(self) -> int:
        """The number of commits that are held back."""
        return len(self._held)

    def post(self, append: Append, ticket: Any, completions: CompletionQueue) -> None:
        self.posted.append(append)
        if self.is_holding:
            self._held.append((append, ticket, completions))
        else:
            super().post(append, ticket, _Delayed(self._unheard, completions) if self.is_silent else completions)

    def tell(self) -> None:
        """Deliver the outcomes of commits that were made while the log was silent."""
        self.is_silent = False
        for completions, outcomes in self._unheard:
            completions.deliver(outcomes)
        self._unheard.clear()

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


class _Delayed:
    def __init__(
        self, unheard: list[tuple[CompletionQueue, Sequence[tuple[Any, Outcome]]]], completions: CompletionQueue
    ) -> None:
        self._unheard = unheard
        self._completions = completions

    def deliver(self, outcomes: Sequence[tuple[Any, Outcome]]) -> None:
        self._unheard.append((self._completions, outcomes))
