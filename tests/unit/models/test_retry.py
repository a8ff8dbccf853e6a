"""Retries: which errors, how often, how long, under one deadline; no test waits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.models.model import Completion, ModelMissing, ModelRefused, ModelUnavailable, PromptTruncated
from abridged.service.models.retry import RetryPolicy, backoff_s, complete_with_retry
from abridged.service.models.scripted.model import ScriptedModel
from tests.support.ollama_model import record_request


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time():
    return Time()


async def ask(model, time, *, deadline_s=60.0, on_retry=lambda _details: None) -> Completion:
    return await complete_with_retry(
        model,
        record_request(),
        policy=RetryPolicy(),
        deadline_s=deadline_s,
        rng=random.Random(1),
        sleep=time.sleep,
        clock=time.clock,
        on_retry=on_retry,
        on_progress=lambda _chars: None,
    )


def scripted(time, *steps) -> ScriptedModel:
    return ScriptedModel(steps, clock=time.clock)


async def test_an_unavailable_model_is_asked_once_more(time):
    """The default is one retry, reported to the hook."""
    told: list[ModelUnavailable] = []
    model = scripted(time, ModelUnavailable("down"), "answer")

    completion = await ask(model, time, on_retry=told.append)

    assert completion.text == "answer"
    assert [str(error) for error in told] == ["down"]
    assert 0.0 <= time.slept[0] <= 0.25


async def test_the_last_error_is_raised_when_no_try_is_left(time):
    """Two failures with one retry are a failure."""
    model = scripted(time, ModelUnavailable("first"), ModelUnavailable("second"), "answer")

    with pytest.raises(ModelUnavailable, match="second"):
        await ask(model, time)

    assert model.asked == 2


@pytest.mark.parametrize("error", [ModelMissing("gone"), ModelRefused("no"), PromptTruncated("cut")])
async def test_errors_that_stay_are_not_retried(time, error):
    """Asking again cannot help, so the model is asked once."""
    model = scripted(time, error, "answer")

    with pytest.raises(type(error)):
        await ask(model, time)

    assert model.asked == 1
    assert time.slept == []


async def test_retry_after_is_waited_for(time):
    """A server's own wish counts when it is longer than the backoff."""
    await ask(scripted(time, ModelUnavailable("busy", retry_after_s=7.0), "answer"), time)

    assert time.slept == [7.0]


@pytest.mark.parametrize(("retry_after_s", "deadline_s"), [(11.0, 60.0), (7.0, 6.0)])
async def test_a_wait_that_is_too_long_is_not_begun(time, retry_after_s, deadline_s):
    """Longer than the policy allows, or than the deadline leaves: the error goes up at once."""
    model = scripted(time, ModelUnavailable("busy", retry_after_s=retry_after_s), "answer")

    with pytest.raises(ModelUnavailable, match="busy"):
        await ask(model, time, deadline_s=deadline_s)

    assert time.slept == []


async def test_all_tries_share_one_deadline(time):
    """A later try gets the rest, not the whole again."""
    given_s: list[float] = []

    class Slow(ScriptedModel):
        async def complete(self, request, *, deadline_s, on_progress):
            given_s.append(deadline_s)
            time.now += 20.0
            return await super().complete(request, deadline_s=deadline_s, on_progress=on_progress)

    await ask(Slow([ModelUnavailable("down"), "answer"], clock=time.clock), time, deadline_s=60.0)

    assert given_s == pytest.approx([60.0, 40.0 - time.slept[0]])


@given(attempt=st.integers(1, 40), seed=st.integers())
def test_a_backoff_lies_within_its_bounds(attempt, seed):
    """Full jitter: from 0 to the doubled base, never above the maximum."""
    policy = RetryPolicy(delay_base_s=0.25, delay_max_s=10.0)

    assert 0.0 <= backoff_s(attempt, policy, random.Random(seed)) <= min(10.0, 0.25 * 2 ** (attempt - 1))
