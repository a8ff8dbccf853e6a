"""The circuit breaker, moved by a clock of the test's own."""

from __future__ import annotations

import pytest

from abridged.service.models.breaker import BreakerPolicy, BreakerState, CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def states():
    return []


@pytest.fixture
def breaker(clock, states):
    return CircuitBreaker(BreakerPolicy(failures_max=3, open_s=30.0), clock=clock, on_change=states.append)


def fail(breaker, times) -> None:
    for _ in range(times):
        breaker.began()
        breaker.failed()


def test_failures_in_a_row_open_the_circuit(breaker, states):
    """The third failure in a row opens, not the second."""
    fail(breaker, 2)
    assert breaker.refusal_s() is None

    fail(breaker, 1)

    assert breaker.refusal_s() == 30.0
    assert states == [BreakerState.OPEN]


def test_a_success_between_failures_starts_the_count_anew(breaker):
    """Only failures without a success between them count."""
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)

    assert breaker.state is BreakerState.CLOSED


def test_after_its_time_one_trial_goes_through(breaker, clock):
    """Half open lets one call through and refuses the second while the first is under way."""
    fail(breaker, 3)
    clock.now = 30.0

    assert breaker.refusal_s() is None
    breaker.began()

    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.refusal_s() == 30.0


def test_a_trial_that_succeeds_closes(breaker, clock, states):
    """One good answer is enough."""
    fail(breaker, 3)
    clock.now = 30.0
    breaker.began()
    breaker.succeeded()

    assert states == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]
    assert breaker.refusal_s() is None


def test_a_trial_that_fails_opens_for_the_whole_time_again(breaker, clock):
    """One failed trial is enough, whatever the count."""
    fail(breaker, 3)
    clock.now = 30.0
    fail(breaker, 1)

    clock.now = 59.0
    assert breaker.refusal_s() == 1.0


def test_an_abandoned_trial_lets_the_next_one_through(breaker, clock):
    """A cancelled trial must not keep the circuit half open for ever."""
    fail(breaker, 3)
    clock.now = 30.0
    breaker.began()
    breaker.abandoned()

    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.refusal_s() is None
