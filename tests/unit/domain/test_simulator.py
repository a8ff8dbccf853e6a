"""Random chats, and the invariants after each of their steps.

The chats are driven through `decide` and `evolve` alone. Every invariant has a control: a step in which it is broken
and found to be. Set SIMULATED_CHATS for more chats.
"""

from __future__ import annotations

import os

import pytest

from abridged.service.codec.events import decode, encode
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.fold import evolve, fold
from abridged.service.domain.message import Message
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.render import RenderedMessage, rendered_window
from abridged.service.domain.triggers import held_by
from tests.support import invariants
from tests.support.simulation import SimulatedChat, Step

CHATS = int(os.environ.get("SIMULATED_CHATS", "500"))
CHUNKS = 10


ON_A_STEP = (
    invariants.one_pass_at_a_time,
    invariants.two_passes_a_trigger,
    invariants.cut_from_the_oldest,
    invariants.no_record_grows_the_window,
    invariants.receipts_are_whole,
    invariants.over_budget_has_a_reason,
    invariants.depth_is_bounded,
    invariants.every_end_is_final,
    invariants.exchange_is_verbatim,
)


def checked(seed: int) -> None:
    """Run the chat of `seed` to its end and check all of it."""
    chat = SimulatedChat(seed)
    originals: dict[int, Message] = {}
    steps: list[Step] = []
    rendered: tuple[RenderedMessage, ...] = ()
    for step in chat.steps():
        steps.append(step)
        originals |= {e.number: e.message for e in step.events if isinstance(e, MessageAppended)}
        rendered_before, rendered = rendered, rendered_window(step.after, SummaryRole.SYSTEM)
        for check in ON_A_STEP:
            check(step)
        check_holds(step)
        invariants.coverage_is_exact(step.after)
        invariants.tail_is_verbatim(step.after, originals)
        invariants.sums_are_exact(step.after)
        invariants.calls_are_answered(rendered, originals)
        invariants.order_is_fixed(step.after, rendered)
        invariants.prefix_is_stable(step, rendered_before, rendered)
    invariants.said_once(steps)
    invariants.passes_are_bounded(steps)
    assert chat.state.pending is None, "there is always one more pass"
    assert_replays(chat)


def check_holds(step: Step) -> None:
    """Check every state on the way, for those behind a step have been through the rules already."""
    state, policy, now_us = step.before, step.policy, step.now_us
    for event in step.events:
        invariants.hold_is_told(state, policy, now_us, held=held_by(state, policy, now_us))
        state = evolve(state, event, now_us)
    invariants.hold_is_told(state, policy, now_us, held=held_by(state, policy, now_us))


def assert_replays(chat: SimulatedChat) -> None:
    """The log as it is stored leads to the same state, however it is divided."""
    stored = [encode(event) for event, _ in chat.log]
    decoded = [(decode(*row), at_us) for row, (_, at_us) in zip(stored, chat.log, strict=True)]
    assert decoded == chat.log
    assert [encode(event) for event, _ in decoded] == stored
    middle = len(decoded) // 2
    assert fold(decoded) == fold(decoded[middle:], fold(decoded[:middle])) == chat.state


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_invariant_holds_after_every_step_of_random_chats(chunk):
    """No history that the rules allow breaks one of them."""
    for seed in range(chunk, CHATS, CHUNKS):
        try:
            checked(seed)
        except AssertionError as violation:
            raise AssertionError(f"seed {seed}: {violation}") from violation
