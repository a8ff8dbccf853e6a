"""Preparations before a trigger, and parts of a range that suffice at it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.commands import CloseConversation, CompletePass, RequestPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.events import PassPlan, SummarizationCompleted, Trigger
from abridged.service.domain.message import Role
from abridged.service.domain.policy import Policy, ProfileName, validated
from abridged.service.domain.preparation import has_grown, preparable, suffices
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.tokens import TokenSource
from tests.support.chats import (
    OPEN,
    append,
    appended,
    calling,
    chat,
    complete,
    fail,
    only_plan,
    pending_in,
    ranges,
    record_for,
    result,
    said,
)
from tests.support.given import UNCLAIMED, Given, given

POLICY = Policy(prepare_token_ratio=0.65)


def window_of(tokens: int, *, messages: int = 20) -> Conversation:
    """A window of `tokens` of 1,000 tokens, in messages of one size."""
    return given(OPEN, *chat(messages, tokens // messages)).state


def prepared_of(state: Conversation, policy: Policy = POLICY, *, now_us: int = 0) -> PassPlan | None:
    return preparable(state, DecisionContext(profile_of(policy.profile), policy, now_us, "draft"))


def test_the_plan_is_that_of_a_trigger_now():
    """The plan has the policy and the sizes of the window as it is, so that a trigger finds the same question."""
    state = window_of(700)
    at_trigger = Given(state).when(RequestPass(), POLICY)

    plan = prepared_of(state)

    assert plan is not None
    assert plan.trigger is Trigger.RATIO
    assert replace(plan, trigger=Trigger.FORCED, pass_id="p") == only_plan(at_trigger.events)


def test_a_prepared_range_is_the_beginning_of_the_range_of_its_trigger():
    """The tail moves on with new messages, so a range only grows."""
    state = window_of(700)
    plan = prepared_of(state)
    later = only_plan(Given(state).when(append(*chat(4, 35, first=21)), POLICY).events)

    assert plan is not None
    assert plan.covered == ranges((1, 14))
    assert later.covered == ranges((1, 18))


@pytest.mark.parametrize(
    ("why", "policy", "tokens"),
    [
        ("off", Policy(), 700),
        ("below its ratio", POLICY, 640),
        ("past the trigger", POLICY, 800),
        ("disabled", replace(POLICY, enabled=False), 700),
        ("too few messages", replace(POLICY, min_messages=21), 700),
        ("nothing worth a pass", replace(POLICY, min_range_tokens=690), 700),
        ("another profile", replace(POLICY, profile=ProfileName.ROLLING), 700),
        ("another profile", replace(POLICY, profile=ProfileName.EPISODES), 700),
    ],
)
def test_nothing_is_to_be_prepared_that_no_trigger_would_ask_a_model_for(why: str, policy: Policy, tokens: int):
    """Each rule that would hold a pass holds its preparation."""
    assert prepared_of(window_of(tokens), policy) is None, why


def test_nothing_is_to_be_prepared_while_a_pass_is_pending_or_the_conversation_is_closed_or_waits():
    """A pending pass has its range already; after failures no model is asked."""
    state = window_of(700)
    pending = Given(state).when(RequestPass(), POLICY).after
    failed = Given(pending).when(fail(pending), POLICY).after

    assert prepared_of(pending) is None
    assert prepared_of(Given(state).when(CloseConversation(), POLICY).after) is None
    assert failed.failures_in_row == 1
    assert prepared_of(failed) is None
    assert prepared_of(failed, now_us=failed.wait_until_us) is not None


def test_nothing_is_to_be_prepared_until_the_cooldown_is_over():
    """A trigger waits for it, too: an earlier preparation could not be used yet."""
    policy = replace(POLICY, cooldown_messages=8)
    pending = Given(window_of(820)).when(RequestPass(), policy).after
    compacted = Given(pending).when(complete(pending), policy).after
    few = Given(compacted).when(append(*chat(7, 60, first=21)), policy).after
    enough = Given(few).when(append(*chat(1, 5, first=28)), policy).after

    assert few.ratio > POLICY.prepare_token_ratio
    assert prepared_of(few, policy) is None
    assert prepared_of(enough, policy) is not None


def test_nothing_is_to_be_prepared_where_clearing_suffices():
    """A pass that needs no model has nothing to wait for."""
    messages = [
        m
        for n in range(1, 25, 4)
        for m in (
            appended(n, 2, message=said(n)),
            appended(n + 1, 2, message=calling(n + 1, f"c{n}")),
            appended(n + 2, 110, message=result(n + 2, f"c{n}")),
            appended(n + 3, 2, message=said(n + 3, Role.ASSISTANT)),
        )
    ]
    state = given(OPEN, *messages).state

    assert prepared_of(state, replace(POLICY, clear_min_tokens=64, clear_keep_tool_units=1)) is None
    assert prepared_of(state, replace(POLICY, clearing=False)) is not None


def test_a_range_has_grown_when_it_reads_half_as_much_again_or_another_record():
    """Less would not pay for another call."""
    plan = prepared_of(window_of(700))
    assert plan is not None

    assert not has_grown(replace(plan, covered_tokens=int(1.49 * plan.covered_tokens)), since=plan)
    assert has_grown(replace(plan, covered_tokens=-(-3 * plan.covered_tokens // 2)), since=plan)
    assert has_grown(replace(plan, base_id="another"), since=plan)


@pytest.mark.parametrize(
    ("trigger", "last", "enough"),
    [
        (Trigger.RATIO, 12, True),
        (Trigger.EMERGENCY, 12, True),
        (Trigger.RATIO, 4, False),
        (Trigger.FORCED, 12, False),
        (Trigger.PERIODIC, 12, False),
        (Trigger.FOLLOW_UP, 12, False),
    ],
)
def test_a_part_of_a_range_suffices_when_it_leaves_a_runway_to_the_next_trigger(
    trigger: Trigger, last: int, enough: bool
):
    """The part leaves at most 0.65 of the budget, as clearing does; a caller that asks for a summary gets all of it."""
    state = Given(window_of(820)).when(RequestPass(), POLICY).after
    plan = replace(pending_in(state), trigger=trigger)
    state = state._replace(pending=plan)
    part = record_for(replace(plan, covered=ranges((1, last))))

    assert suffices(state, SummarizationCompleted("p", part, TokenSource.CALLER, False), 0) is enough
    assert not suffices(state, SummarizationCompleted("another", part, TokenSource.CALLER, False), 0)


def test_a_record_of_a_part_takes_only_that_out_of_the_window():
    """The rest of the range stays verbatim, and every message is covered or in the window."""
    state = Given(window_of(820)).when(RequestPass(), POLICY).after
    part = record_for(replace(pending_in(state), covered=ranges((1, 10))))

    after = Given(state).when(CompletePass("p", UNCLAIMED, part, TokenSource.CALLER, False), POLICY).after

    assert [m.number for m in after.window] == list(range(11, 21))
    assert after.live == part


def test_a_policy_that_prepares_at_its_trigger_can_never_work():
    """A preparation would have no time before its trigger."""
    with pytest.raises(InvalidPolicy, match="below trigger_token_ratio"):
        validated(Policy(prepare_token_ratio=0.8))
