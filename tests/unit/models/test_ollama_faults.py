"""Everything that an Ollama server does wrong, over real HTTP, and the error that the provider makes of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from abridged.service.models.http.errors import FirstByteLate, HostRefused, HostUnreachable
from abridged.service.models.model import (
    AnswerLooped,
    Completion,
    ModelError,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
    SummaryModel,
)
from tests.support.ollama_behaviour import BEHAVIOURS, Behaviour, json_error
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_manner import MANNERS
from tests.support.ollama_model import LATE_SOON, PATIENT, RECORD_SCHEMA, STALLED_SOON, model_over, record_request
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S

THINKER = FakeModel(name="qwen3:4b", capabilities=("completion", "thinking"), family="qwen3")

FAILURES = {
    "hang": FirstByteLate,
    "dead": ModelUnavailable,
    "stall": ModelUnavailable,
    "drip": ModelUnavailable,
    "error-midway": ModelUnavailable,
    "eof": ModelUnavailable,
    "abort": ModelUnavailable,
    "abort-at-once": ModelUnavailable,
    "garbage": ModelUnavailable,
    "never-done": ModelUnavailable,
    "busy": ModelUnavailable,
    "busy-once": ModelUnavailable,
    "rate-limit": ModelUnavailable,
    "bad-gateway": ModelUnavailable,
    "crash": ModelUnavailable,
    "crash-chunked": ModelUnavailable,
    "token-loop": AnswerLooped,
    "thinking-only": ModelRefused,
    "bad-schema": ModelRefused,
    "bad-option": ModelRefused,
    "unauthorized": HostRefused,
    "forbidden": HostRefused,
    "not-ollama": HostRefused,
    "redirect": HostRefused,
    "silent-cut": PromptTruncated,
}
AN_HOUR_S = 3_600.0
CLOCKS = {
    "dead": replace(PATIENT, probe_s=0.3),
    "hang": LATE_SOON,
    "stall": STALLED_SOON,
    "drip": STALLED_SOON,
}
HARMLESS = ("normal", "slow-headers", "trickle", "split", "packed", "sorted-keys", "no-count", "lingering")
PASSED_ON = ("marker", "endless")


async def ask(model: SummaryModel, *, deadline_s=PATIENCE_S, **fields) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=deadline_s, on_progress=lambda _chars: None)


def test_every_behaviour_is_expected_somewhere_here():
    """A behaviour that the fake learns gets a test."""
    assert set(BEHAVIOURS) == {*FAILURES, *HARMLESS, *PASSED_ON}


@pytest.mark.parametrize(("behaviour", "error"), FAILURES.items())
async def test_a_fault_has_its_error(behaviour, error):
    """Each fault ends in one error type, by itself and not by the caller's deadline."""
    settings = CLOCKS.get(behaviour, PATIENT)
    async with (
        FakeOllama(behaviour=BEHAVIOURS[behaviour]) as server,
        model_over(server, settings=settings) as model,
    ):
        with pytest.raises(ModelError) as failure:
            await ask(model, deadline_s=AN_HOUR_S)

    assert type(failure.value) is error


NOT_ASKED = {"dead", "unauthorized", "forbidden", "not-ollama", "redirect"}


@pytest.mark.parametrize("behaviour", FAILURES)
async def test_a_failure_says_whether_the_model_was_asked(behaviour):
    """Once the prompt is on its way the model may have worked; where the host refuses before that it has not."""
    settings = CLOCKS.get(behaviour, PATIENT)
    async with FakeOllama(behaviour=BEHAVIOURS[behaviour]) as server, model_over(server, settings=settings) as model:
        with pytest.raises(ModelError) as failure:
            await ask(model)

    assert failure.value.asked is (behaviour not in NOT_ASKED)
    assert failure.value.call_made


@pytest.mark.parametrize("behaviour", HARMLESS)
async def test_an_oddity_is_no_fault(behaviour):
    """Slow heads, tiny packets, many lines in one packet and other key orders are answers like any other."""
    async with FakeOllama(behaviour=BEHAVIOURS[behaviour]) as server, model_over(server) as model:
        completion = await ask(model)

    assert set(json.loads(completion.text)) == set(RECORD_SCHEMA["required"])


async def test_a_leaked_marker_is_passed_on_for_the_checks():
    """The provider does not mend answers: whether the text is a record is decided elsewhere."""
    async with FakeOllama(behaviour=BEHAVIOURS["marker"]) as server, model_over(server) as model:
        assert (await ask(model)).text.endswith("<|im_end|>")


async def test_no_failure_holds_text_of_the_prompt_or_the_answer():
    """Errors may be logged: neither side's words are in them, nor in the errors that they are chained to."""
    words = {"nightly", "orders-db", "E4031", "import.batch_rows", "Carol"}
    for name, behaviour in BEHAVIOURS.items():
        echo = replace(behaviour, error_text=f"unexpected: {record_request().user}")
        if name not in FAILURES:
            continue
        async with (
            FakeOllama(behaviour=echo) as server,
            model_over(server, settings=CLOCKS.get(name, PATIENT)) as model,
        ):
            with pytest.raises(ModelError) as failure:
                await ask(model)
        chain = f"{failure.value!r} {failure.value.__cause__!r} {failure.value.__context__!r}"
        assert not {word for word in words if word in chain}


async def test_a_refusal_that_quotes_the_prompt_is_not_repeated():
    """Ollama's template errors quote the text that they could not render."""
    quoting = json_error(500, f"template: cannot render {record_request().user}")
    async with FakeOllama(behaviour=Behaviour(refusal=quoting)) as server, model_over(server) as model:
        with pytest.raises(ModelRefused) as failure:
            await ask(model)

    assert "orders-db" not in str(failure.value)


async def test_retry_after_comes_with_the_error():
    """The caller learns when to ask again."""
    async with FakeOllama(behaviour=BEHAVIOURS["rate-limit"]) as server, model_over(server) as model:
        with pytest.raises(ModelUnavailable) as failure:
            await ask(model)

    assert failure.value.retry_after_s == 7.0


async def test_a_missing_model_is_missing():
    """A host without the model says so before any prompt is sent."""
    async with FakeOllama() as server, model_over(server, model="nobody:1b") as model:
        with pytest.raises(ModelMissing):
            await ask(model)
        with pytest.raises(ModelMissing):
            await model.describe()

    assert server.asked() == []


async def test_a_host_that_is_not_there_is_unavailable():
    """The host refuses the connection, and the model was not asked."""
    async with FakeOllama() as server:
        pass
    async with model_over(server) as model:
        with pytest.raises(HostUnreachable) as failure:
            await ask(model)
        assert (failure.value.asked, failure.value.call_made) == (False, True)
        with pytest.raises(ModelUnavailable):
            await model.describe()


async def test_an_answer_cut_by_length_is_the_callers_to_judge():
    """`length` is a reason, not an error."""
    async with FakeOllama() as server, model_over(server) as model:
        completion = await ask(model, output_tokens_max=3)

    assert (completion.finish_reason, completion.output_tokens) == ("length", 3)


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.version)
async def test_a_prompt_that_does_not_fit_is_never_answered(manner):
    """Refused by the server, or cut silently by an old one: TRUNCATED in every version."""
    async with FakeOllama(manner=manner) as server, model_over(server) as model:
        with pytest.raises(PromptTruncated) as failure:
            await ask(model, words=5_000)

    assert failure.value.error_class == "TRUNCATED"
    assert len(server.asked()) == 1


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.version)
async def test_a_server_that_cuts_against_its_orders_is_caught(manner):
    """The evaluated count betrays the cut, to half the window or to the whole of it."""
    async with FakeOllama(manner=manner, behaviour=BEHAVIOURS["silent-cut"]) as server, model_over(server) as model:
        with pytest.raises(PromptTruncated):
            await ask(model, words=5_000)


async def test_a_count_that_is_not_told_is_trusted_only_from_servers_that_refuse_to_cut():
    """Servers before 0.12.4 say only by the count that the prompt was whole."""
    for manner in MANNERS:
        async with FakeOllama(manner=manner, behaviour=BEHAVIOURS["no-count"]) as server, model_over(server) as model:
            if manner.knows_truncate:
                assert (await ask(model)).input_tokens == 0
            else:
                with pytest.raises(PromptTruncated):
                    await ask(model)


async def test_a_thinking_model_is_told_not_to_think():
    """`think: false` where the capabilities list thinking and the version knows the field; nowhere else."""
    for manner in MANNERS:
        async with (
            FakeOllama(manner=manner, models=[THINKER, FakeModel()]) as server,
            model_over(server, model=THINKER.name) as thinker,
            model_over(server) as plain,
        ):
            await ask(thinker)
            await ask(plain)
        told = [body.get("think") for body in server.asked()]
        assert told == [False if manner.knows_think else None, None], manner.version


async def test_cancelling_closes_the_connection():
    """The server learns at once that nobody waits any more."""
    async with FakeOllama(behaviour=BEHAVIOURS["hang"]) as server, model_over(server) as model:
        call = asyncio.create_task(ask(model))
        await server.until(lambda fake: len(fake.asked()) == 1)

        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        await server.until(lambda fake: fake.left == 1)


async def test_the_stall_clock_ends_where_the_first_byte_clock_began():
    """A first byte slower than the stall limit is no stall, and a stall is not given the first byte's patience."""
    settings = replace(PATIENT, first_byte_s=AN_HOUR_S, stall_s=1.0)
    slow = Behaviour(headers_delay_s=1.5)
    async with FakeOllama(behaviour=slow) as server, model_over(server, settings=settings) as model:
        assert (await ask(model)).finish_reason == "stop"
        server.behaviour = BEHAVIOURS["stall"]
        with pytest.raises(ModelUnavailable, match="stalled"):
            await ask(model, deadline_s=AN_HOUR_S)
