"""Several hosts, their breakers, and the bounded line before each."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from abridged.service.models.breaker import BreakerPolicy, BreakerState
from abridged.service.models.deadline import DeadlineOver
from abridged.service.models.http.errors import CircuitOpen, HostRefused, QueueFull
from abridged.service.models.model import Completion, ModelMissing, ModelRefused, ModelUnavailable, SummaryModel
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_model import PATIENT, STALLED_SOON, model_over, record_request
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S


async def ask(model: SummaryModel, *, deadline_s=PATIENCE_S, on_progress=lambda _chars: None) -> Completion:
    return await model.complete(record_request(), deadline_s=deadline_s, on_progress=on_progress)


def asked_times(number: int) -> Callable[[FakeOllama], bool]:
    return lambda fake: len(fake.asked()) == number


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_the_host_with_the_model_in_memory_is_asked_first():
    """Loading costs more than the order of the list is worth."""
    async with FakeOllama(loaded=False) as cold, FakeOllama() as warm, model_over(cold, warm) as model:
        await ask(model)

    assert (len(cold.asked()), len(warm.asked())) == (0, 1)
    assert cold.loads_begun == 0


async def test_among_equal_hosts_the_least_busy_is_asked():
    """Two calls at once go to two hosts."""
    async with FakeOllama() as first, FakeOllama() as second, model_over(first, second) as model:
        await asyncio.gather(ask(model), ask(model))

    assert (len(first.asked()), len(second.asked())) == (1, 1)


ENDED_BY_A_CLOCK = {"hang", "dead"}


@pytest.mark.parametrize("fault", ["busy", "abort-at-once", "hang", "unauthorized", "not-ollama", "dead"])
async def test_a_host_that_fails_before_the_first_byte_is_passed_over(fault):
    """The next host answers."""
    async with FakeOllama(behaviour=BEHAVIOURS[fault]) as bad, FakeOllama(loaded=False) as good:
        bad.resident[FakeModel().name] = PATIENT.num_ctx
        clocks = replace(PATIENT, first_byte_s=2.0, probe_s=2.0) if fault in ENDED_BY_A_CLOCK else PATIENT
        async with model_over(bad, good, settings=clocks) as model:
            completion = await ask(model)

    assert completion.text
    assert len(good.asked()) == 1


async def test_a_call_whose_time_is_over_asks_no_other_host():
    """The call has no time left to answer in."""
    async with (
        FakeOllama(behaviour=BEHAVIOURS["hang"]) as first,
        FakeOllama(behaviour=BEHAVIOURS["hang"]) as second,
        model_over(first, second) as model,
    ):
        with pytest.raises(DeadlineOver):
            await ask(model, deadline_s=0.3)

    assert len(first.asked()) + len(second.asked()) <= 1


@pytest.mark.parametrize("fault", ["error-midway", "eof", "abort", "stall", "garbage"])
async def test_after_the_first_byte_no_other_host_is_asked(fault):
    """A half answer is a failure of the call: progress was shown, and tokens were paid for."""
    async with (
        FakeOllama(behaviour=BEHAVIOURS[fault]) as bad,
        FakeOllama(loaded=False) as good,
        model_over(bad, good, settings=STALLED_SOON if fault == "stall" else PATIENT) as model,
    ):
        with pytest.raises(ModelUnavailable):
            await ask(model)

    assert good.asked() == []


@pytest.mark.parametrize("fault", ["bad-schema", "bad-option"])
async def test_a_refused_request_is_not_carried_to_the_next_host(fault):
    """A mistake to one Ollama is one to all."""
    async with (
        FakeOllama(behaviour=BEHAVIOURS[fault]) as first,
        FakeOllama(loaded=False) as second,
        model_over(first, second) as model,
    ):
        with pytest.raises(ModelRefused):
            await ask(model)

    assert second.asked() == []


async def test_a_model_that_one_host_lacks_is_found_on_the_next():
    """Hosts need not have the same models."""
    async with (
        FakeOllama(models=[FakeModel(name="other:1b")]) as without,
        FakeOllama(loaded=False) as having,
        model_over(without, having) as model,
    ):
        assert (await ask(model)).text
        assert (await model.describe()).context_length == FakeModel().context_length


async def test_a_model_is_missing_only_when_every_host_says_so():
    """A host that is down may have it."""
    other = [FakeModel(name="other:1b")]
    async with (
        FakeOllama(models=other) as first,
        FakeOllama(models=other) as second,
        model_over(first, second) as model,
    ):
        with pytest.raises(ModelMissing):
            await ask(model)
        await second.stop()
        async with model_over(first, second) as model:
            with pytest.raises(ModelUnavailable):
                await ask(model)


BREAKING = replace(PATIENT, breaker=BreakerPolicy(failures_max=2, open_s=30.0))


@pytest.mark.parametrize("fault", ["busy", "rate-limit", "unauthorized", "crash"])
async def test_repeated_failures_open_the_breaker_and_the_host_is_left_alone(fault):
    """Overload, rate limits and rejected credentials count; after that no request goes out until the time is over."""
    states: list[tuple[str, BreakerState]] = []
    clock = Clock()
    async with (
        FakeOllama(behaviour=BEHAVIOURS[fault]) as server,
        model_over(
            server, settings=BREAKING, clock=clock, on_breaker=lambda host, state: states.append((host, state))
        ) as model,
    ):
        for _ in range(2):
            with pytest.raises((ModelUnavailable, HostRefused)):
                await ask(model)
        before = len(server.requests)
        with pytest.raises(CircuitOpen) as refused:
            await ask(model)
        assert len(server.requests) == before
        assert refused.value.retry_after_s == 30.0

        server.behaviour = BEHAVIOURS["normal"]
        clock.now = 31.0
        assert (await ask(model)).text

    label = f"127.0.0.1:{server.port}"
    assert states == [(label, BreakerState.OPEN), (label, BreakerState.HALF_OPEN), (label, BreakerState.CLOSED)]


async def test_refused_requests_do_not_open_the_breaker():
    """A host that answers, if only with a refusal, works."""
    states: list[BreakerState] = []
    async with (
        FakeOllama(behaviour=BEHAVIOURS["bad-schema"]) as server,
        model_over(server, settings=BREAKING, on_breaker=lambda _host, state: states.append(state)) as model,
    ):
        for _ in range(4):
            with pytest.raises(ModelRefused):
                await ask(model)

    assert states == []


async def test_short_deadlines_do_not_open_the_breaker():
    """A caller in a hurry says nothing about the host."""
    states: list[BreakerState] = []
    async with (
        FakeOllama(behaviour=BEHAVIOURS["hang"]) as server,
        model_over(server, settings=BREAKING, on_breaker=lambda _host, state: states.append(state)) as model,
    ):
        for _ in range(3):
            with pytest.raises(DeadlineOver):
                await ask(model, deadline_s=0.3)

    assert states == []


async def test_cancelled_calls_do_not_open_the_breaker():
    """A caller that leaves early says nothing about the host."""
    states: list[BreakerState] = []
    async with (
        FakeOllama(behaviour=BEHAVIOURS["hang"]) as server,
        model_over(server, settings=BREAKING, on_breaker=lambda _host, state: states.append(state)) as model,
    ):
        for number in range(1, 4):
            call = asyncio.create_task(ask(model))
            await server.until(asked_times(number))
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    assert states == []


async def test_an_open_breaker_lets_the_other_host_answer():
    """One dead host costs nothing once it is known."""
    async with (
        FakeOllama(behaviour=BEHAVIOURS["busy"]) as bad,
        FakeOllama(loaded=False) as good,
        model_over(bad, good, settings=BREAKING) as model,
    ):
        for _ in range(3):
            bad.resident[FakeModel().name] = PATIENT.num_ctx
            good.resident.clear()
            assert (await ask(model)).text

    assert len(bad.asked()) == 2
    assert len(good.asked()) == 3


ASK_IN_A_PROCESS = """
import asyncio, sys
from tests.support.ollama_model import model_over, record_request
from tests.support.ollama_server import FakeOllama

class There:
    url = sys.argv[1]

async def ask():
    async with model_over(There()) as model:
        await model.complete(record_request(), deadline_s=120.0, on_progress=lambda chars: None)

asyncio.run(ask())
"""


async def test_proxies_of_the_environment_are_not_used():
    """A proxy variable, meant for other programs, must not carry prompts away or break calls to loopback."""
    root = Path(__file__).parents[3]
    async with FakeOllama() as server, FakeOllama() as proxy:
        environment = {**os.environ, "HTTP_PROXY": proxy.url, "ALL_PROXY": proxy.url, "NO_PROXY": ""}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASK_IN_A_PROCESS, server.url, cwd=root, env=environment
        )
        assert await process.wait() == 0

    assert len(server.asked()) == 1
    assert proxy.requests == []


async def test_one_call_at_a_time_goes_to_a_host():
    """The limit is ours: Ollama's own line would be without bound and without order."""
    async with FakeOllama(parallel=4) as server, model_over(server) as model:
        await asyncio.gather(*(ask(model) for _ in range(4)))

    assert server.working_most == 1


async def test_a_higher_limit_lets_more_calls_through():
    """The setting counts for each host."""
    settings = replace(PATIENT, calls_max=2)
    slow = replace(BEHAVIOURS["slow-headers"], headers_delay_s=0.1)
    async with FakeOllama(parallel=4, behaviour=slow) as server, model_over(server, settings=settings) as model:
        await asyncio.gather(*(ask(model) for _ in range(4)))

    assert server.working_most == 2


async def test_a_full_line_refuses_at_once():
    """Waiting callers are bounded, and the host is not blamed."""
    states: list[BreakerState] = []
    settings = replace(BREAKING, queue_max=1)
    async with (
        FakeOllama(behaviour=BEHAVIOURS["hang"]) as server,
        model_over(server, settings=settings, on_breaker=lambda _host, state: states.append(state)) as model,
    ):
        running = asyncio.create_task(ask(model))
        await server.until(lambda fake: len(fake.asked()) == 1)
        further = {asyncio.create_task(ask(model)) for _ in range(4)}

        refused: list[asyncio.Task[Completion]] = []
        while len(refused) < 3:
            done, further = await asyncio.wait(further, return_when=asyncio.FIRST_COMPLETED)
            refused += done

        assert {type(call.exception()) for call in refused} == {QueueFull}
        for call in (running, *further):
            call.cancel()
        await asyncio.gather(running, *further, return_exceptions=True)
    assert states == []


async def test_a_place_is_given_back_however_a_call_ends():
    """Failures, deadlines and cancellations leave the place free for the next call."""
    async with FakeOllama(behaviour=BEHAVIOURS["hang"]) as server, model_over(server) as model:
        for number in range(1, 4):
            call = asyncio.create_task(ask(model))
            await server.until(asked_times(number))
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        server.behaviour = BEHAVIOURS["normal"]

        assert (await ask(model)).text
