"""Vectors in steps of four bits: how near their cosines are to those of the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from abridged.service.recall.vectors import cosines, direction, quantized

DIMENSION = 256


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dimension", [DIMENSION - 1, DIMENSION])
def test_a_cosine_is_nearly_that_of_the_numbers(dimension, scale):
    """The numbers are those of a normal distribution, of which 16 steps lose 1 % of the square."""
    rows = np.random.default_rng(7).normal(size=(200, dimension)).astype(np.float32)
    rows[1:] += rows[0] * np.linspace(-3, 3, 199, dtype=np.float32)[:, None]
    wanted = direction(rows[0] * np.float32(scale))
    assert wanted is not None

    found = cosines(wanted, [vector.steps for vector in quantized(rows * np.float32(scale)) if vector is not None])

    exact = rows @ rows[0] / np.linalg.norm(rows, axis=1) / np.linalg.norm(rows[0])
    assert np.abs(np.array(found) - exact).max() < 0.025
    assert np.abs(np.array(found) - exact).mean() < 0.006


def test_a_row_without_an_angle_has_no_vector():
    """Zeros alone point nowhere, nor does a number that is not finite."""
    rows = np.array([[0, 0], [1, 2], [np.nan, 1], [np.inf, 1]], dtype=np.float32)

    assert [vector is None for vector in quantized(rows)] == [True, False, True, True]
    assert [direction(row) is None for row in rows] == [True, False, True, True]


def test_nothing_is_compared_without_vectors():
    """A list without vectors has no cosines."""
    wanted = direction(np.ones(DIMENSION, np.float32))
    assert wanted is not None

    assert cosines(wanted, []) == []
