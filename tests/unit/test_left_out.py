"""A module that is left out while libraries load that could do without it."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest

from abridged.service.left_out import left_out

NAME = "abridged_left_out_of_a_test"


def test_a_module_is_out_until_the_context_ends():
    """A program that imports it meanwhile does without."""
    with left_out(NAME), pytest.raises(ImportError):
        __import__(NAME)
    assert NAME not in sys.modules


def test_a_module_that_is_loaded_stays():
    """Others may be using it."""
    with left_out("json"):
        assert sys.modules["json"] is not None
    assert sys.modules["json"] is not None


@pytest.mark.parametrize("first", [0, 1])
def test_contexts_of_several_threads_may_end_in_any_order(first: int):
    """The first calls of two model servers load one library at once."""
    contexts = [ExitStack(), ExitStack()]
    for context in contexts:
        context.enter_context(left_out(NAME))
    contexts[first].close()
    contexts[1 - first].close()
    assert NAME not in sys.modules
