"""The measure of growth finds work that grows too fast and is not misled by a busy machine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pytest

from tests.support.growth import grows_linearly, takes_at_most


class Machine:
    """A clock that moves by the work's cost, times a disturbance for each measurement in turn."""

    def __init__(self, cost: Callable[[int], float], *disturbances: float) -> None:
        self.measurements = 0
        self._cost = cost
        self._disturbances = cycle(disturbances or (1.0,))
        self._now = 0.0

    def clock(self) -> float:
        return self._now

    def work(self, size: int) -> None:
        self.measurements += 1
        self._now += self._cost(size) * next(self._disturbances)


def linear(machine: Machine) -> bool:
    return grows_linearly(machine.work, lambda size: size, size=4_000, clock_s=machine.clock)


@pytest.mark.parametrize("cost", [lambda n: n, lambda n: 50 + n, lambda n: n * n.bit_length(), lambda _: 1])
def test_work_that_is_linear_or_less_is_found_so(cost):
    """A constant, a start-up cost and a logarithm beside it are no growth to worry about."""
    assert linear(Machine(cost))


@pytest.mark.parametrize("cost", [lambda n: n**2, lambda n: n**3, lambda n: 500 * n + n**2, lambda n: 2 ** (n / 99)])
def test_work_that_grows_faster_is_found_out(cost):
    """Quadratic work with a linear part beside it, too."""
    assert not linear(Machine(cost))


def test_a_disturbance_of_the_larger_size_is_measured_away():
    """Whole rounds in which another process takes the core count for nothing."""
    machine = Machine(lambda n: n, *(1.0, 9.0) * 5, 1.0, 1.0)

    assert linear(machine)
    assert machine.measurements == 12


def test_a_disturbance_of_the_smaller_size_hides_no_growth():
    """One round in which the quarter is slowed would make quadratic work look linear; the shortest counts."""
    assert not linear(Machine(lambda n: n**2, 9.0, 1.0, 1.0, 1.0))


def test_a_text_is_measured_against_another():
    """Costs of two materials of any size are compared."""
    machine = Machine(lambda n: n)

    assert takes_at_most(3, machine.work, 300, than=100, clock_s=machine.clock)
    assert not takes_at_most(2, machine.work, 300, than=100, clock_s=machine.clock)


def test_planted_quadratic_work_is_found_with_the_real_clock():
    """The control of every test that uses this: a search that begins anew at each character."""

    def quadratic(text: str) -> int:
        return sum(text.count("b", place) for place in range(0, len(text), 4))

    assert not grows_linearly(quadratic, lambda size: "a" * size, size=20_000)
    assert grows_linearly(lambda text: text.count("ab"), lambda size: "a" * size, size=2_000_000)
