"""The context length of chat models: the conversation's setting, the model's description, the operator's table, a
default.

Nobody waits for a description: a conversation opens with what is known and is updated later, by `on_learned`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase

from abridged.service.domain.events import ContextLengthSource

Describe = Callable[[str], Awaitable[int | None]]
"""Asks the model's server for a context length in tokens; None if it does not say or cannot be asked."""

MODELS_REMEMBERED_MAX = 1_000
ASKING_MAX = 16
"""Most descriptions in flight; a further conversation asks with its next change."""
ASK_AGAIN_S = 60.0


class ContextLengths:
    """Known context lengths of models. Lives on one event loop."""

    def __init__(
        self,
        *,
        describe: Describe,
        table: Mapping[str, int],
        default: int,
        now_s: Callable[[], float],
        on_learned: Callable[[str], None],
    ) -> None:
        self._describe = describe
        self._table = table
        self._default = default
        self._now_s = now_s
        self._on_learned = on_learned
        self._described: dict[str, int] = {}
        self._asked_at: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def of(self, model: str, *, requested: int) -> tuple[int, ContextLengthSource]:
        """The context length in tokens and its source, as known now."""
        if requested:
            return requested, ContextLengthSource.CONVERSATION
        if model in self._described:
            return self._described[model], ContextLengthSource.MODEL
        if model:
            self._ask(model)
        for pattern, length in self._table.items():
            if fnmatchcase(model, pattern):
                return length, ContextLengthSource.TABLE
        return self._default, ContextLengthSource.DEFAULT

    def remind(self, model: str) -> None:
        """Call `on_learned` again if the model is already described, for a caller that began to wait too late."""
        if model in self._described:
            self._on_learned(model)

    async def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _ask(self, model: str) -> None:
        now = self._now_s()
        if model in self._asking or len(self._asking) >= ASKING_MAX:
            return
        if now - self._asked_at.get(model, -ASK_AGAIN_S) < ASK_AGAIN_S:
            return
        if len(self._asked_at) >= MODELS_REMEMBERED_MAX:
            self._asked_at.clear()
        self._asked_at[model] = now
        self._asking[model] = asyncio.create_task(self._learn(model), name=f"describe {model}")

    async def _learn(self, model: str) -> None:
        try:
            length = await self._describe(model)
        finally:
            self._asking.pop(model, None)
        if length:
            if len(self._described) >= MODELS_REMEMBERED_MAX:
                del self._described[next(iter(self._described))]
            self._described[model] = length
            self._on_learned(model)
