"""The bench's arithmetic: median, spread, ratio and verdict of measured values."""

from __future__ import annotations

import pytest

from bench.figures import FIGURES, Target, as_plain, percentile, table_rows


def test_a_percentile_is_the_value_that_this_share_does_not_exceed():
    """Nearest rank, whatever the order; the largest value for the last one."""
    values = [float(n) for n in range(100, 0, -1)]

    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile([7.0], 0.99) == 7


def test_a_figure_is_reported_as_median_and_spread():
    """One slow round moves the spread, not the figure."""
    (row,) = table_rows({"context.p99": [4.0, 5.0, 900.0]})

    assert row[0] == "context.p99"
    assert row[2] == "5 ms"
    assert row[3] == "4 .. 900"


def test_a_ratio_is_made_within_each_round():
    """A round in which the machine was slow for both says the same as any other."""
    plain = as_plain({"append.rate": [100.0, 20.0, 300.0], "echo.rate": [200.0, 40.0, 600.0]})

    assert plain["append.rate"]["ratio"] == 0.5
    assert plain["append.rate"]["verdict"] == "met"


def test_a_target_about_a_ratio_is_not_judged_without_its_reference():
    """An absolute figure cannot meet it."""
    plain = as_plain({"append.rate": [1_000_000.0]})

    assert plain["append.rate"]["ratio"] is None
    assert plain["append.rate"]["verdict"] == ""


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [
        (Target(10, at_least=False), 10.0, True),
        (Target(10, at_least=False), 10.1, False),
        (Target(10, at_least=True), 10.0, True),
        (Target(10, at_least=True), 9.9, False),
    ],
)
def test_a_target_is_met_on_its_good_side(target, value, met):
    """The limit itself is good enough."""
    assert target.is_met(value) is met


def test_every_reference_is_a_figure():
    """The reference's own measurement needs no reference, so that it is there when it is needed."""
    names = {figure.name for figure in FIGURES}
    assert {figure.reference for figure in FIGURES if figure.reference} <= names
    assert len(names) == len(FIGURES)
