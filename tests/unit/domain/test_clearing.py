"""Clearing: the results that may give way to a mark, when that is the pass, and the window afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abridged.service.domain.clearing import clearable
from abridged.service.domain.commands import ApplyRules
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.decide import decide
from abridged.service.domain.events import Event, MessageAppended, SummarizationCleared, SummarizationRequested, Trigger
from abridged.service.domain.fold import evolve, fold
from abridged.service.domain.message import Attachment, Message, Role, ToolCall
from abridged.service.domain.policy import Policy, SummaryRole
from abridged.service.domain.profiles import chain
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy
from abridged.service.domain.render import rendered_window
from tests.support.chats import append, appended, complete, said

MIN = 64
POLICY = Policy(clear_min_tokens=MIN, min_messages=2)


def exchange(number: int, *, tokens: int = 110, content: str = "42 flights") -> list[MessageAppended]:
    """A question, a tool call, its result and an answer, from this number on."""
    call = Message(f"m{number + 1}", Role.ASSISTANT, "", tool_calls=(ToolCall(f"c{number}", "search", "{}"),))
    found = Message(f"m{number + 2}", Role.TOOL, content, tool_call_id=f"c{number}")
    return [
        appended(number, 3, message=said(number)),
        appended(number + 1, 3, message=call),
        appended(number + 2, tokens, message=found),
        appended(number + 3, 3, message=said(number + 3, Role.ASSISTANT)),
    ]


def exchanges(count: int, **options: object) -> list[MessageAppended]:
    return [m for n in range(count) for m in exchange(1 + 4 * n, **options)]  # type: ignore[arg-type]  # as exchange's


def after(state: Conversation, *messages: MessageAppended, policy: Policy = POLICY) -> tuple[Conversation, list[Event]]:
    events = decide(state, append(*messages), DecisionContext(chain, policy, 0, "p"))
    return fold([(event, 0) for event in events], state), events


def cleared_in(events: list[Event]) -> SummarizationCleared | None:
    return next((event for event in events if isinstance(event, SummarizationCleared)), None)


def test_old_results_give_way_to_marks_and_no_model_is_asked():
    """Seven exchanges of 119 tokens in 1,000; four of the results are older than the last three calls."""
    state, events = after(initial_state(), *exchanges(7))
    cleared = cleared_in(events)

    assert cleared is not None
    assert [mark.number for mark in cleared.marks] == [3, 7, 11, 15]
    assert cleared.plan.trigger is Trigger.RATIO
    assert not any(isinstance(event, SummarizationRequested) for event in events)
    assert state.ratio < POLICY.reset_token_ratio - 0.1
    assert [m.message.content for m in state.window if m.number == 3] == [
        "[Result of search cleared: message 3, 110 tokens. Expand it by its number.]"
    ]
    assert state.passes[-1].cleared


def test_clearing_waits_while_the_chats_cache_is_warm():
    """Marks rewrite the window as a record does; nobody waits for a cache past the emergency."""
    policy = replace(POLICY, defer_while_warm_s=240)

    state, events = after(initial_state(), *exchanges(7), policy=policy)
    assert cleared_in(events) is None
    assert chain.held_by(state, policy) is HeldBy.CACHE_WARM
    cooled = decide(state, ApplyRules(), DecisionContext(chain, policy, 240_000_000, "p"))
    assert cleared_in(cooled) is not None
    assert cleared_in(after(initial_state(), *exchanges(9), policy=policy)[1]) is not None


def test_marks_that_do_not_suffice_leave_it_to_a_record():
    """Two rewrites of a window would break a provider's cache twice: clearing is the pass, or no part of it."""
    text = [appended(n, 100, message=said(n)) for n in range(17, 24)]
    state, events = after(initial_state(), *exchanges(4, tokens=MIN), *text)

    assert cleared_in(events) is None
    assert any(isinstance(event, SummarizationRequested) for event in events)
    assert not state.marks


def test_below_the_trigger_nothing_is_cleared():
    """The window only grows between two passes."""
    state, events = after(initial_state(), *exchanges(5))

    assert clearable(state, POLICY)
    assert cleared_in(events) is None


@pytest.mark.parametrize(
    "kept",
    [
        {"clearing": False},
        {"clear_keep_tool_units": 7},
        {"clear_min_tokens": 111},
        {"clear_exclude_tools": ("lookup", "search")},
    ],
)
def test_the_policy_keeps_results(kept):
    """A policy keeps them by switch, by age, by size, by tool."""
    state, _ = after(initial_state(), *exchanges(5))

    assert len(clearable(state, POLICY)) == 2
    assert clearable(state, replace(POLICY, **kept)) == ()


def test_errors_and_pins_are_kept():
    """A model may still have to react to an error; a pin is verbatim for good."""
    failed = exchange(1, content="Error: no such flight")
    pinned = exchange(5)
    pinned[2] = pinned[2]._replace(message=pinned[2].message._replace(pinned=True))
    others = [m for n in range(3) for m in exchange(9 + 4 * n)]
    state, _ = after(initial_state(), *failed, *pinned, *others)

    assert clearable(state, POLICY) == ()


def test_results_age_by_calls_and_not_by_requests():
    """A coding agent calls tools for hours on one request."""
    one_request = [m for m in exchanges(7) if m.number == 1 or m.message.role is not Role.USER]
    renumbered = [m._replace(number=n) for n, m in enumerate(one_request, 1)]
    _, events = after(initial_state(), *renumbered)

    assert len(cleared_in(events).marks) == 4  # type: ignore[union-attr]  # it is there


def test_attachments_go_with_the_result_and_the_call_stays_answered():
    """The window is still one that a chat API takes."""
    messages = exchanges(7)
    messages[2] = messages[2]._replace(
        message=messages[2].message._replace(attachments=(Attachment("https://x/y.png"),))
    )
    state, _ = after(initial_state(), *messages)
    (mark,) = [m.message for m in state.window if m.number == 3]

    assert (mark.attachments, mark.tool_call_id) == ((), "c1")
    assert len([m for m in rendered_window(state, SummaryRole.SYSTEM) if m.message.role is Role.TOOL]) == 7


def test_a_cleared_pass_waits_for_its_cooldown_as_any_other():
    """Clearing without the cooldown would be one rewrite after the other."""
    state, _ = after(initial_state(), *exchanges(7))
    held, events = after(state, appended(29, 400, message=said(29)), appended(30, 3, message=said(30)))

    assert cleared_in(events) is None
    assert held.messages_since_pass == 2


def test_a_wait_after_failures_does_not_hold_clearing_back():
    """The wait holds model calls back, never the way out; no model is asked here."""
    state, _ = after(initial_state(), *exchanges(5))
    waiting = state._replace(failures_in_row=1, wait_until_version=1_000, wait_until_us=10**12)
    context = DecisionContext(chain, POLICY, 10**11 * 9, "p")
    assert waiting._replace(wait_until_us=10**12).waiting(10**12 - 1)
    command = append(*exchange(21), *exchange(25), *exchange(29))

    events = decide(waiting, command, context._replace(now_us=10**12 - 1))

    assert cleared_in(events) is not None


def test_what_a_record_leaves_is_cleared_in_its_own_commit():
    """A long tail may have old results too; the window is rewritten once."""
    policy = replace(POLICY, preserve_recent=20, tail_token_ratio=0.5, max_summary_tokens=128)
    text = [appended(n, 60, message=said(n)) for n in range(1, 9)]
    tail = [m for n in range(5) for m in exchange(9 + 4 * n, tokens=70)]
    state, events = after(initial_state(), *text, *tail, policy=policy)
    assert cleared_in(events) is None
    (done, *_) = decide(state, complete(state, tokens=40), DecisionContext(chain, policy, 0, "q"))

    assert [mark.number for mark in done.marks]  # type: ignore[union-attr]  # a SummarizationCompleted
    assert evolve(state, done, 0).epoch == state.epoch + 1


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(64, 400), st.integers(0, 4))
def test_marks_are_smaller_than_what_they_replace_and_clear_once(count, tokens, keep):
    """Sizes may be any; a cleared result is not cleared again."""
    policy = replace(POLICY, clear_keep_tool_units=keep, trigger_token_ratio=1.0, reset_token_ratio=0.9)
    state, _ = after(initial_state(), *exchanges(count, tokens=tokens), policy=replace(policy, clearing=False))
    marks = clearable(state, policy)

    assert all(mark.tokens < tokens for mark in marks)
    assert len(marks) <= max(0, count - keep)
