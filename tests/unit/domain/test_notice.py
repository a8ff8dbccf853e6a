"""The notice of a pass: from which ratio on, and what it says would leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.commands import CloseConversation
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.message import Message, Role
from abridged.service.domain.notice import PassAhead, pass_ahead
from abridged.service.domain.policy import Policy, ProfileName
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of
from tests.support.chats import OPEN, append, appended, calling, chat, complete, fail, only_plan, ranges, result
from tests.support.given import Given, given

POLICY = Policy()


def ahead(state: Conversation, policy: Policy = POLICY) -> PassAhead | None:
    return pass_ahead(state, DecisionContext(profile_of(policy.profile), policy, 0, ""))


def window_of(messages: int) -> Conversation:
    """A window of messages that take a hundredth of the budget each."""
    return given(OPEN, *chat(messages)).state


def test_the_notice_says_what_a_trigger_now_would_take_out():
    """The message that triggers the pass moves the tail on by one."""
    found = ahead(window_of(79))

    assert found is not None
    plan = only_plan(Given(window_of(79)).when(append(appended(80)), POLICY).events)
    assert found.leaving == ranges((1, 73))
    assert plan.covered == ranges((1, 74))
    assert (found.token_ratio, found.trigger_token_ratio, found.message_version) == (0.79, 0.8, 79)
    assert not found.clears


@pytest.mark.parametrize(("messages", "is_near"), [(69, False), (70, True), (79, True), (80, False)])
def test_a_pass_is_near_from_the_notice_up_to_the_trigger(messages, is_near):
    """Both bounds are of the ratio; at the trigger a pass is pending."""
    assert (ahead(window_of(messages)) is not None) is is_near


@pytest.mark.parametrize(
    "policy",
    [
        replace(POLICY, notice_token_ratio=0.0),
        replace(POLICY, enabled=False),
        replace(POLICY, notice_token_ratio=0.85),
        replace(POLICY, min_messages=100),
        replace(POLICY, profile=ProfileName.ROLLING),
    ],
    ids=["off", "disabled", "past the trigger", "too few messages", "messages trigger it"],
)
def test_no_notice_where_no_pass_would_come(policy):
    """The policy, or the rules of its profile, exclude the pass."""
    assert ahead(window_of(75), policy) is None


def test_no_notice_while_a_pass_is_pending_or_the_chat_is_closed():
    """Nor below the mark, after the pass."""
    state = window_of(79)
    requested = Given(state).when(append(appended(80)), POLICY).after
    closed = Given(state).when(CloseConversation(), POLICY).after

    assert ahead(requested) is None
    assert ahead(closed) is None
    assert ahead(Given(requested).when(complete(requested), POLICY).after) is None


def test_pins_and_system_messages_do_not_leave():
    """The range goes around them."""
    system = appended(3, message=Message("m3", Role.SYSTEM, "Be terse."))
    state = given(OPEN, *chat(2), system, *chat(72, first=4)).state

    found = ahead(state._replace(pins=frozenset({2})))

    assert found is not None
    assert found.leaving == ranges((1, 1), (4, 69))


def test_no_notice_while_failures_hold_the_next_pass_back():
    """The pass would come at the trigger only if the wait is over by then."""
    pending = Given(window_of(79)).when(append(appended(80)), POLICY).after
    waiting = Given(pending).when(fail(pending), POLICY).after
    below = waiting._replace(settings=replace(waiting.settings, context_length=1_100))

    assert POLICY.notice_token_ratio <= below.ratio < POLICY.trigger_token_ratio
    assert ahead(below) is None
    assert ahead(below._replace(failures_in_row=0)) is not None


def test_results_that_would_give_way_to_marks_are_said_to():
    """No record would be made."""
    units = [
        event
        for n in range(2, 12, 2)
        for event in (
            appended(n, 10, message=calling(n, f"c{n}")),
            appended(n + 1, 130, message=result(n + 1, f"c{n}")),
        )
    ]
    policy = replace(POLICY, clear_min_tokens=64)
    found = ahead(given(OPEN, appended(1), *units, appended(12)).state, policy)

    assert found is not None
    assert found.clears
    assert found.leaving == ranges((3, 3), (5, 5))
