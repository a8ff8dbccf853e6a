"""The price of prompts under a prompt cache."""

from __future__ import annotations

import pytest

from abridged.service.bootstrap.prompt_bill import ANTHROPIC, Prices, PromptBill, answered
from abridged.service.domain.message import Message, Role
from abridged.service.domain.render import RenderedMessage

SAID = [RenderedMessage(Message(f"m{n}", Role.USER, f"text {n}"), n, tokens=10 * n) for n in range(1, 6)]
"""Messages of 10, 20, 30, 40 and 50 tokens."""

BUDGET = 100


def test_a_cost_is_the_cheaper_of_using_the_cache_and_not():
    """Rewriting every prompt would pay for cache entries that nobody reads; answers cost the same either way."""
    bill = PromptBill(tokens=1_000, stable=900, asked=50, asked_stable=40, answered=10)

    assert bill.cost() == bill.cost(ANTHROPIC) == pytest.approx(0.1 * 940 + 1.25 * 100 + 10 + 5 * 10)
    assert bill.cost(Prices(read=0.25, kept=1.0, answer=4.0)) == pytest.approx(0.25 * 940 + 100 + 10 + 4 * 10)
    assert PromptBill(tokens=1_000, stable=100, asked=50, answered=10).cost() == 1_050 + 5 * 10


def test_a_prompt_reads_from_the_cache_what_the_one_before_began_with():
    """A prompt with more at its end reads all of the one before; a rewritten one reads up to the first change."""
    bill = PromptBill()

    bill.sent("a", SAID[:2], budget=BUDGET)
    bill.sent("a", SAID[:3], budget=BUDGET)
    bill.sent("a", [SAID[0], *SAID[2:]], budget=BUDGET)
    bill.sent("b", SAID[:1], budget=BUDGET)

    assert (bill.prompts, bill.tokens, bill.stable) == (4, 30 + 60 + 130 + 10, 0 + 30 + 10 + 0)
    assert (bill.rewritten, bill.over) == (1, 1)


def test_a_question_after_the_chat_reads_what_the_last_prompt_began_with():
    """The last prompt of another conversation is no use, and a question that quotes the chat reads nothing."""
    bill = PromptBill()
    bill.sent("a", SAID[:3], budget=BUDGET)

    bill.summarized("a", asked=70, answered=5, after=[m.message for m in SAID[:2]])
    bill.summarized("b", asked=70, answered=5, after=[m.message for m in SAID[:2]])
    bill.summarized("a", asked=70, answered=5)

    assert (bill.asked, bill.asked_stable, bill.answered, bill.summarizer) == (210, 30, 15, 225)


def test_a_cache_that_has_cooled_has_nothing_of_the_conversation():
    """The next prompt and a question before it read nothing; the prompt does not count as rewritten."""
    bill = PromptBill()
    for name in "ab":
        bill.sent(name, SAID[:2], budget=BUDGET)

    bill.cooled("a")
    bill.summarized("a", asked=40, answered=1, after=[m.message for m in SAID[:2]])
    for name in "ab":
        bill.sent(name, SAID[:3], budget=BUDGET)

    assert (bill.asked_stable, bill.stable, bill.rewritten) == (0, 30, 0)


@pytest.mark.parametrize(
    ("roles", "counts"),
    [("suaua", {2, 4}), ("uta", {2}), ("uuu", {1, 2}), ("au", set()), ("", set())],
)
def test_a_prompt_comes_before_every_answer(roles, counts):
    """A chat that nobody answers, as a meeting, reads every message after those before it."""
    of = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}

    assert answered([Message(str(n), of[role], "text") for n, role in enumerate(roles)]) == counts
