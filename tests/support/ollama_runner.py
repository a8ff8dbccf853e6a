"""The computing part of the fake: slots, each prompt's evaluation, and the prompt that is still cached.

Invariant: a slot is held from before its prompt is evaluated until its answer is over, and where the version lets an
abandoned evaluation run on, until that is over, though nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import takewhile

from tests.support.ollama_pace import AT_ONCE, Pace


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A prompt that was evaluated: its tokens, how many of them came from the cache, and the seconds it took."""

    tokens: int
    cached: int
    seconds: float


class Runner:
    """The runner of all models; `pace` may be replaced while it runs.

    `prefill_gate`, when not set, keeps evaluations waiting. `prefills_left` counts those whose client has gone.
    """

    def __init__(self, *, parallel: int, pace: Pace = AT_ONCE, on_change: Callable[[], Awaitable[None]]) -> None:
        self.pace = pace
        self.prefill_gate = asyncio.Event()
        self.prefill_gate.set()
        self.prefilling = 0
        self.prefills_left = 0
        self.working = 0
        self.working_most = 0
        self._slots = asyncio.Semaphore(parallel)
        self._cached: Sequence[str] = ()
        self._on_change = on_change
        self._running: set[asyncio.Task[Evaluation]] = set()

    @asynccontextmanager
    async def slot(self, *, finishes_left_prefill: bool) -> AsyncIterator[Slot]:
        """Hold a slot; waits for one without any bound, as Ollama does."""
        await self._slots.acquire()
        self.working += 1
        self.working_most = max(self.working_most, self.working)
        slot = Slot(self)
        try:
            yield slot
        finally:
            if slot.prefill is not None and not slot.prefill.done() and finishes_left_prefill:
                self.prefills_left += 1
                slot.prefill.add_done_callback(lambda _: self._release())
            else:
                if slot.prefill is not None:
                    slot.prefill.cancel()
                self._release()

    def start_prefill(self, prompt: Sequence[str], tokens: int) -> asyncio.Task[Evaluation]:
        """Evaluate a prompt of `tokens` tokens in a task of its own."""
        task = asyncio.create_task(self._evaluate(prompt, tokens))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def forget(self) -> None:
        """Drop the cached prompt: the model was loaded anew."""
        self._cached = ()

    async def stop(self) -> None:
        """End all tasks that still run."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _release(self) -> None:
        self.working -= 1
        self._slots.release()

    async def _evaluate(self, prompt: Sequence[str], tokens: int) -> Evaluation:
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, self._cached, strict=False)))
        # The last token is always evaluated: the answer's first one comes of it.
        cached = min(tokens * same // max(1, len(prompt)), tokens - 1)
        seconds = self.pace.prefill_of(tokens, cached=cached)
        self.prefilling += 1
        await self._on_change()
        try:
            await self.prefill_gate.wait()
            await asyncio.sleep(seconds)
            self._cached = prompt
        finally:
            self.prefilling -= 1
        await self._on_change()
        return Evaluation(tokens, cached, seconds)


class Slot:
    """A place on the runner, for one request."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.prefill: asyncio.Task[Evaluation] | None = None

    async def evaluated(self, prompt: Sequence[str], tokens: int) -> Evaluation:
        """The prompt's evaluation."""
        self.prefill = self._runner.start_prefill(prompt, tokens)
        return await asyncio.shield(self.prefill)
