"""The price of prompts under a prompt cache."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.prompt_bill import PromptBill, answered


def test_a_cost_is_the_cheaper_of_using_the_cache_and_not():
    """Rewriting every prompt would pay for cache entries that nobody reads."""
    assert PromptBill(tokens=1_000, stable=900, summarizer=10).cost == pytest.approx(0.1 * 900 + 1.25 * 100 + 10)
    assert PromptBill(tokens=1_000, stable=100).cost == 1_000


@pytest.mark.parametrize(
    ("roles", "counts"),
    [("suaua", {2, 4}), ("uta", {2}), ("uuu", {1, 2}), ("au", set()), ("", set())],
)
def test_a_prompt_comes_before_every_answer(roles, counts):
    """A chat that nobody answers, as a meeting, reads every message after those before it."""
    of = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}

    assert answered([Message(str(n), of[role], "text") for n, role in enumerate(roles)]) == counts
