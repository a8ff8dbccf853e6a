"""Times that the deadline counts, and those it does not: the line before a host, the answer that has begun, the prompt
that a host still reads for a call that has left.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from abridged.service.config.settings import Settings
from abridged.service.models.breaker import BreakerState
from abridged.service.models.deadline import DeadlineOver
from abridged.service.models.http.errors import FirstByteLate, QueueFull
from abridged.service.models.http.host import STREAM_S_MAX, Place
from abridged.service.models.model import AnswerLooped, Completion, ModelUnavailable, SummaryModel
from abridged.service.models.ollama.description import DescriptionCache
from abridged.service.models.ollama.host import OllamaHost, open_hosts
from abridged.service.models.ollama.model import OllamaModel
from abridged.service.models.ollama.settings import OllamaSettings, parse_address
from abridged.service.models.retry import RetryPolicy, complete_with_retry
from tests.support.ollama_behaviour import BEHAVIOURS, Behaviour
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_model import PATIENT, STALLED_SOON, model_over, record_request
from tests.support.ollama_responder import Ask, Piece
from tests.support.ollama_server import FakeOllama

TURNS_MAX = 1_000_000
"""Turns of the event loop after which nothing more will come."""

NO_LINE = replace(PATIENT, queue_max=0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def ask(model: SummaryModel, *, deadline_s=5.0, on_progress=lambda _chars: None) -> Completion:
    return await model.complete(record_request(), deadline_s=deadline_s, on_progress=on_progress)


@asynccontextmanager
async def one_host(server: FakeOllama, clock: Clock) -> AsyncIterator[tuple[OllamaModel, OllamaHost]]:
    """A model, and the host that its calls wait for."""
    hosts = open_hosts([parse_address(server.url)], PATIENT, clock=clock)
    model = OllamaModel(FakeModel().name, hosts, PATIENT, clock=clock, descriptions=DescriptionCache(None))
    try:
        yield model, hosts[0]
    finally:
        await model.close()
        await hosts[0].close()


async def in_line(host: OllamaHost, calls: int) -> None:
    """Wait until `calls` calls are under way or in line."""
    for _ in range(TURNS_MAX):
        if host.in_flight >= calls:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{host.in_flight} calls, {calls} expected")


async def left_while_reading(model, server, clock, *, after_s: float) -> None:
    """A call that leaves so long after it was sent, before the first byte of its answer."""
    call = asyncio.create_task(ask(model, deadline_s=1_000.0))
    await server.until(lambda fake: len(fake.asked()) == 1)
    clock.now += after_s
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


def test_the_clocks_are_those_of_hosts_without_a_gpu():
    """A prompt of some thousand tokens takes minutes to read."""
    provider, settings = OllamaSettings(), Settings()

    assert (provider.first_byte_s, provider.stall_s) == (300.0, 30.0)
    assert settings.summarizer.deadline_s == 600.0


async def test_waiting_in_line_costs_nothing_of_the_deadline():
    """A call's time counts from its turn: however long the line, it is asked."""
    clock = Clock()
    async with FakeOllama(loaded=False) as server, one_host(server, clock) as (model, host):
        server.load_gate.clear()
        first = asyncio.create_task(ask(model, deadline_s=5_000.0))
        await server.until(lambda fake: fake.loads_begun == 1)
        second = asyncio.create_task(ask(model, deadline_s=60.0))
        await in_line(host, 2)
        clock.now += 1_000.0
        server.load_gate.set()

        assert (await first).text
        assert (await second).text


async def test_a_retry_is_not_charged_for_the_line():
    """All tries share the deadline; the time that one of them waited for its turn is given back."""
    clock = Clock()
    slept: list[float] = []

    async def sleep(seconds):
        slept.append(seconds)

    async with (
        FakeOllama(loaded=False, behaviour=BEHAVIOURS["busy"]) as server,
        one_host(server, clock) as (model, host),
    ):
        server.load_gate.clear()
        first = asyncio.create_task(ask(model, deadline_s=5_000.0))
        await server.until(lambda fake: fake.loads_begun == 1)
        second = asyncio.create_task(
            complete_with_retry(
                model,
                record_request(),
                policy=RetryPolicy(attempts_max=2),
                deadline_s=60.0,
                rng=random.Random(1),
                sleep=sleep,
                clock=clock,
                on_retry=lambda _details: None,
                on_progress=lambda _chars: None,
            )
        )
        await in_line(host, 2)
        clock.now += 1_000.0
        server.load_gate.set()
        await asyncio.gather(first, second, return_exceptions=True)

    assert len(slept) == 1
    assert len(server.asked()) == 3


async def test_a_call_in_line_can_be_cancelled_and_leaves_no_trace():
    """A call that waits for a place holds none."""
    async with FakeOllama(behaviour=BEHAVIOURS["hang"]) as server, one_host(server, Clock()) as (model, host):
        running = asyncio.create_task(ask(model))
        await server.until(lambda fake: len(fake.asked()) == 1)
        waiting = asyncio.create_task(ask(model))
        await in_line(host, 2)

        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        server.behaviour = BEHAVIOURS["normal"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

        assert (await ask(model)).text


async def test_an_answer_that_keeps_coming_is_not_cut_by_the_deadline():
    """Healthy and slow: the stall clock and the answer's own limits bound it from its first byte."""
    clock = Clock()

    def slowly(_chars):
        clock.now += 20.0

    async with FakeOllama() as server, model_over(server, clock=clock) as model:
        completion = await ask(model, deadline_s=60.0, on_progress=slowly)

    assert completion.text
    assert clock.now > 60.0


async def test_no_answer_comes_for_ever():
    """A server that streams on and on is left after an hour, and its breaker stays closed."""
    clock = Clock()
    states: list[BreakerState] = []

    def slowly(_chars):
        clock.now += 700.0

    async with (
        FakeOllama() as server,
        model_over(server, clock=clock, on_breaker=lambda _host, state: states.append(state)) as model,
    ):
        with pytest.raises(DeadlineOver, match=f"{STREAM_S_MAX:g} s, the time of this request"):
            await ask(model, on_progress=slowly)

    assert states == []


async def test_the_stall_clock_runs_on_when_the_deadline_is_over():
    """An answer that has begun is left when it stalls."""
    clock = Clock()

    def slowly(_chars):
        clock.now += 100.0

    async with (
        FakeOllama(behaviour=BEHAVIOURS["stall"]) as server,
        model_over(server, settings=STALLED_SOON, clock=clock) as m,
    ):
        with pytest.raises(ModelUnavailable, match="stalled"):
            await ask(m, deadline_s=60.0, on_progress=slowly)


async def test_the_place_of_a_call_that_left_stays_taken_while_the_host_reads():
    """Ollama reads on for nobody: a call sent now would only wait behind that, with its clock running."""
    clock = Clock()
    async with (
        FakeOllama(behaviour=BEHAVIOURS["hang"]) as server,
        model_over(server, settings=NO_LINE, clock=clock) as model,
    ):
        await left_while_reading(model, server, clock, after_s=15.0)
        server.behaviour = BEHAVIOURS["normal"]

        with pytest.raises(QueueFull) as refused:
            await ask(model)
        assert not await model.idle()

    assert (refused.value.asked, refused.value.call_made) == (False, False)
    assert len(server.asked()) == 1


async def test_a_retry_waits_for_the_abandoned_prompt_and_is_answered():
    """The place comes free by itself; the retry loses nothing of its own first-byte clock."""
    once = replace(BEHAVIOURS["hang"], requests=1)
    async with (
        FakeOllama(behaviour=once) as server,
        model_over(server, settings=replace(PATIENT, first_byte_s=2.0)) as model,
    ):
        with pytest.raises(FirstByteLate):
            await ask(model)

        assert (await ask(model)).text


async def test_a_host_that_reads_abandoned_prompt_is_asked_last():
    """Even one that has to load the model first comes sooner."""
    clock = Clock()
    async with FakeOllama(behaviour=BEHAVIOURS["hang"]) as reading, FakeOllama(loaded=False) as cold:
        reading.resident[FakeModel().name] = PATIENT.num_ctx
        async with model_over(reading, cold, clock=clock) as model:
            await left_while_reading(model, reading, clock, after_s=15.0)
            assert (await ask(model)).text

    assert (len(reading.asked()), len(cold.asked())) == (1, 1)


@pytest.mark.parametrize("fault", ["busy", "abort-at-once", "crash"])
async def test_a_call_that_the_host_ended_keeps_no_place(fault):
    """Nobody reads a prompt that was refused."""
    clock = Clock()
    async with (
        FakeOllama(behaviour=BEHAVIOURS[fault]) as server,
        model_over(server, settings=NO_LINE, clock=clock) as m,
    ):
        with pytest.raises(ModelUnavailable):
            await ask(m)
        server.behaviour = BEHAVIOURS["normal"]

        assert (await ask(m)).text


@pytest.mark.parametrize(
    ("prefill_s", "waited_s", "kept_s"),
    [(None, 40.0, 40.0), (240.0, 40.0, 200.0), (30.0, 40.0, 40.0), (None, 500.0, 300.0), (5_000.0, 1.0, 300.0)],
)
def test_a_place_is_kept_for_the_rest_of_the_prompt(prefill_s, waited_s, kept_s):
    """The measured speed says how long; an unknown or exceeded one doubles the wait so far; a bound holds for all."""
    place = Place(prefill_s=prefill_s)

    place.keep_for_abandoned(waited_s, kept_s_max=300.0)

    assert place.kept_s == kept_s


async def looping(_ask: Ask) -> AsyncIterator[Piece]:
    yield Piece(content='{"summary": "')
    for _ in range(31):
        yield Piece(content=" the")


async def test_a_looping_model_is_no_dead_host():
    """The host works: its breaker stays closed, no other host is asked, and the error is about the answer."""
    states: list[BreakerState] = []
    async with (
        FakeOllama(responder=looping) as server,
        FakeOllama(loaded=False) as other,
        model_over(server, other, on_breaker=lambda _host, state: states.append(state)) as model,
    ):
        for _ in range(PATIENT.breaker.failures_max + 1):
            server.resident[FakeModel().name] = PATIENT.num_ctx
            with pytest.raises(AnswerLooped):
                await ask(model)

    assert states == []
    assert other.asked() == []


async def test_a_connection_that_breaks_in_a_loop_is_a_broken_connection():
    """Only an answer that its server ended cleanly was stopped by its server."""
    async with (
        FakeOllama(responder=looping, behaviour=Behaviour(abort_after=30)) as server,
        model_over(server) as model,
    ):
        with pytest.raises(ModelUnavailable):
            await ask(model)
