"""Event loops in one virtual time: one for each simulated process, turned one at a time in an order that a seed draws.

A process that is stopped is not turned, and its timers are late when it goes on; one that is killed is never turned
again, so that no `finally` of it runs. Work for threads runs at once unless it is delayed, and its result comes later.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

TURN_S = 1e-4
"""Seconds that a turn of a loop takes."""

THREAD_S = 2e-3
"""The most that work in a thread takes, unless a test delays it."""


_NEVER_S = float("inf")


class Deadlock(AssertionError):
    """The state in which nothing is left that could happen."""


class VirtualTime:
    """The time of all loops, and what happens at a moment of it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._loops: list[VirtualLoop] = []

    def later(self, delay_s: float, happen: Callable[[], None]) -> None:
        """Have something happen outside all processes."""
        self._count += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._count, happen))

    def loop(self) -> VirtualLoop:
        """Make the loop of a process."""
        made = VirtualLoop(self)
        self._loops.append(made)
        return made

    def run(self, until: Callable[[], bool], *, within_s: float) -> None:
        """Let time pass until something is so. Raises AssertionError if it is not within the virtual time."""
        end_s = self.now_s + within_s
        while not until():
            now_s = self.now_s
            ready = [loop for loop in self._loops if loop.is_due(now_s)]
            if ready:
                self.rng.choice(ready).turn()
                self.now_s += TURN_S
                self._happen()
                continue
            moments = [loop.next_s() for loop in self._loops]
            if self._events:
                moments.append(self._events[0][0])
            moment_s = min(moments, default=float("inf"))
            if moment_s == float("inf"):
                raise Deadlock("nothing will happen any more")
            assert moment_s <= end_s, f"not within {within_s:.0f} s of virtual time"
            self.now_s = max(self.now_s, moment_s)
            self._happen()

    def forget(self, loop: VirtualLoop) -> None:
        """Turn a loop never again."""
        self._loops.remove(loop)

    def close(self) -> None:
        """End every loop that is left, without running its waiting work."""
        for loop in list(self._loops):
            loop.kill()

    def _happen(self) -> None:
        while self._events and self._events[0][0] <= self.now_s:
            heapq.heappop(self._events)[2]()


class VirtualLoop(base_events.BaseEventLoop):
    """The loop of one process. The loop has no files and no threads.

    `delays` says of work for a thread how long it takes until it runs, and until its result is there; `asked_s` is when
    the work that runs was handed over.
    """

    _ready: deque[Any]
    _scheduled: list[Any]

    def __init__(self, world: VirtualTime) -> None:
        super().__init__()
        self._world = world
        self._selector = _NothingToRead()
        self._stopped_until_s = 0.0
        self._alive: set[asyncio.Task[Any]] = set()
        self.is_dead = False
        self.asked_s = 0.0
        self.delays: Callable[[Any], tuple[float, float]] = lambda _: (0.0, world.rng.uniform(0, THREAD_S))
        self.set_task_factory(self._task)  # type: ignore[arg-type]  # its protocol names no options

    def time(self) -> float:
        return self._world.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # typeshed names its variables otherwise
        del executor
        done: asyncio.Future[Any] = self.create_future()
        asked_s = self.time()
        before_s, after_s = self.delays(func)

        def run() -> None:
            self.asked_s = asked_s
            try:
                result, error = func(*args), None
            except Exception as raised:  # noqa: BLE001 - a thread hands on whatever its work raises
                result, error = None, raised
            self._world.later(after_s, lambda: self._resolve(done, result, error))

        if before_s:
            self._world.later(before_s, run)
        else:
            run()
        return done

    def turn(self) -> None:
        """Run all due work once."""
        events._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]  # what run_forever repeats
        finally:
            events._set_running_loop(None)

    def is_due(self, now_s: float) -> bool:
        """Return whether a turn would run anything."""
        return self._stopped_until_s <= now_s and (bool(self._ready) or self._timer_s() <= now_s)

    def next_s(self) -> float:
        """Return the moment at which a turn will run something."""
        return max(self._stopped_until_s, self._timer_s()) if not self._ready else self._stopped_until_s

    def stop_for(self, seconds: float) -> None:
        """Stop the process as SIGSTOP does."""
        self._stopped_until_s = max(self._stopped_until_s, self._world.now_s + seconds)

    def resume(self) -> None:
        """Go on at once, as after SIGCONT."""
        self._stopped_until_s = 0.0

    @property
    def is_stopped(self) -> bool:
        """True if the process is stopped now."""
        return self._stopped_until_s > self._world.now_s

    def kill(self) -> None:
        """End the process as SIGKILL does: nothing of it runs again, and nothing that is sent to it arrives."""
        self.is_dead = True
        self.set_exception_handler(lambda _loop, _context: None)
        self._world.forget(self)
        self._ready.clear()
        self._scheduled.clear()
        for task in list(self._alive):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # what gather sets for its own
            # What waits goes here, and not when it is collected; nobody is left to hear what it says to that.
            with contextlib.suppress(RuntimeError):
                cast(Coroutine[Any, Any, Any], task.get_coro()).close()
        self.close()

    def _resolve(self, done: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        def resolve() -> None:
            if not done.done():
                done.set_exception(error) if error is not None else done.set_result(result)

        if not self.is_dead:
            self.call_soon(resolve)

    def _timer_s(self) -> float:
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        return scheduled[0]._when if scheduled else _NEVER_S

    def _task(self, loop: Any, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        self._alive.add(task)
        task.add_done_callback(self._alive.discard)
        return task

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...


class _NothingToRead:
    def select(self, _timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None: ...
