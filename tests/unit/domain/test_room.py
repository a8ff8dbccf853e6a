"""The room that a pass of CHAIN leaves in a large window: for a larger record, a larger ledger, and a longer tail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from abridged.service.domain.commands import RequestPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import Event, PassPlan
from abridged.service.domain.message import Message
from abridged.service.domain.policy import ROOMY_BUDGET, SUMMARY_TOKENS_MAX, Policy, ProfileName, largest_summary
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.sizes import (
    LEDGER_WITHOUT_ROOM,
    ledger_limits,
    ledger_tokens_expected,
    ledger_tokens_max,
    room_tokens,
)
from abridged.service.domain.window import TailRoom, split
from tests.support.chats import (
    OPEN,
    SETTINGS,
    append,
    appended,
    calling,
    chat,
    completed,
    only_plan,
    ranges,
    result,
    said,
    spoken,
)
from tests.support.given import given

BUDGET = 20_000
POLICY = Policy()
WITHOUT = Policy(after_pass_token_ratio=0.0)
FULL = 160
"""Messages of 100 tokens that fill the budget up to the trigger."""


def opened(budget: int = BUDGET, **settings: Any) -> Event:
    return replace(OPEN, settings=replace(SETTINGS, context_length=budget, **settings))


def state_of(*events: Event, budget: int = BUDGET, **settings: Any) -> Conversation:
    return given(opened(budget, **settings), *events).state


def planned(policy: Policy, events: Iterable[Event], *, budget: int = BUDGET, **settings: Any) -> PassPlan:
    """The plan of the pass that the last of the messages triggers."""
    *before, last = events
    outcome = given(opened(budget, **settings), *before).when(append(last), policy)
    return only_plan(outcome.events)


@pytest.mark.parametrize("budget", [1_000, 4_096, ROOMY_BUDGET])
def test_up_to_a_budget_of_8192_nothing_depends_on_the_room(budget):
    """The plan is the same with it and without."""
    events = chat(20, -(-budget * 8 // 200))
    within, without = (planned(policy, events, budget=budget) for policy in (POLICY, WITHOUT))

    assert within == replace(without, policy=POLICY)


def test_beyond_it_the_tail_is_as_long_as_there_is_room_beside_a_record_and_a_ledger():
    """A record takes 1,024 tokens of 95 % of 6,000, a guess before there is one, and a ledger 2,000: 26 messages of 100
    stay.
    """
    events = chat(FULL, 100)

    assert planned(POLICY, events).covered == ranges((1, FULL - 26))
    assert planned(WITHOUT, events).covered == ranges((1, FULL - 6))


def test_a_pass_that_only_cleared_results_leaves_the_guess_of_the_ledger_as_it_is():
    """A pass without a record has made no ledger, whose size could be expected to grow."""
    cleared = state_of(*chat(FULL, 100))._replace(completed_passes=1)

    assert ledger_tokens_expected(cleared, POLICY) == LEDGER_WITHOUT_ROOM


def test_what_is_sent_with_every_prompt_takes_of_the_room():
    """A budget that is filled by it leaves the tail its own number of messages."""
    assert planned(POLICY, chat(145, 100), overhead_tokens=1_500).covered == ranges((1, 145 - 11))
    assert planned(POLICY, chat(100, 100), overhead_tokens=6_000).covered == ranges((1, 100 - 6))


def test_the_share_of_the_tail_bounds_a_longer_one_too():
    """A tenth of the budget is 20 messages of 100."""
    policy = replace(POLICY, tail_token_ratio=0.1)

    assert planned(policy, chat(FULL, 100)).covered == ranges((1, FULL - 20))


def test_a_tail_without_a_share_is_bounded_by_the_room_alone():
    """Messages of preserve_recent are likewise bounded by their number alone."""
    policy = replace(POLICY, tail_token_ratio=0.0)

    assert planned(policy, chat(FULL, 100)).covered == ranges((1, FULL - 26))


def test_a_summary_that_somebody_asks_for_keeps_the_usual_tail():
    """A longer one would leave nothing to summarize below a third of the budget."""
    state = state_of(*chat(40, 100))
    plan = only_plan(given(opened(), *chat(40, 100)).when(RequestPass(), POLICY).events)

    assert state.ratio < POLICY.after_pass_token_ratio
    assert plan.covered == ranges((1, 34))


def test_a_periodic_pass_keeps_the_usual_tail():
    """Below its trigger a window has more room than messages."""
    policy = replace(POLICY, force_refresh_after_messages=40)

    assert planned(policy, chat(40, 100)).covered == ranges((1, 34))


def test_results_that_the_pass_clears_count_as_their_marks():
    """The tail therefore reaches further back than one that would keep them whole."""
    messages: list[Message] = []
    for number in range(1, 57, 4):
        call_id = f"call{number}"
        messages += [said(number), calling(number + 1, call_id), result(number + 2, call_id), said(number + 3)]
    clearing = replace(POLICY, clear_keep_tool_units=1)
    plans = [planned(policy, spoken(messages, 300)) for policy in (clearing, replace(clearing, clearing=False))]

    assert [len(messages) - plan.covered[-1].last for plan in plans] == [9, 8]


def test_a_record_grows_with_the_root_of_the_budget():
    """Records grow from 8,192 on; a fixed size stays, and so does any without room."""
    sizes = [largest_summary(POLICY, budget=budget) for budget in (4_096, 8_192, 8_193, 32_768, 131_072)]

    assert sizes == [512, SUMMARY_TOKENS_MAX, SUMMARY_TOKENS_MAX, 2_048, 4_096]
    assert largest_summary(replace(POLICY, max_summary_tokens=300), budget=131_072) == 300
    assert largest_summary(WITHOUT, budget=131_072) == SUMMARY_TOKENS_MAX


@pytest.mark.parametrize("profile", [ProfileName.ROLLING, ProfileName.EPISODES])
def test_the_other_profiles_leave_no_room(profile):
    """The field changes nothing: their records have sizes of their own."""
    policy = replace(profile_of(profile).defaults(), max_summary_tokens=0)

    assert room_tokens(state_of(), policy) == 0
    assert largest_summary(policy, budget=BUDGET) == SUMMARY_TOKENS_MAX
    assert policy.max_ledger_tokens == LEDGER_WITHOUT_ROOM


def test_the_room_ends_where_a_pass_aims():
    """Below the reset ratio, with a runway: a window that a pass leaves full would be due again at once."""
    assert room_tokens(state_of(), POLICY) == 6_000
    assert room_tokens(state_of(), replace(POLICY, after_pass_token_ratio=0.9)) == 10_999
    assert (
        room_tokens(state_of(), replace(POLICY, tail_token_ratio=0.1, pin_token_ratio=0.1, reset_token_ratio=0.3))
        == 3_000
    )


@pytest.mark.parametrize(
    ("window_tokens", "limit"),
    [
        (1_000, 3_000),  # all of its share
        (3_500, 2_500),  # all that is left of 6,000
        (5_000, LEDGER_WITHOUT_ROOM),  # as much as without room
    ],
)
def test_the_ledger_fills_what_record_and_tail_leave_of_the_room(window_tokens, limit):
    """Up to its share of 15 %, and never less than in a window without room."""
    state = state_of(*chat(FULL, 100))
    shown, memory = ledger_limits(state, POLICY, window_tokens=window_tokens, record_tokens=500)

    assert (shown, memory) == (limit, 2 * ledger_tokens_max(state, POLICY))


def test_the_plan_counts_the_messages_that_have_left_since_the_beginning():
    """A window with room for a record counts those of the record before, and its own."""
    before = [opened(), *chat(FULL - 1, 100)]
    first = given(*before).when(append(appended(FULL, 100)), POLICY).events
    after = [*before, *first, completed(only_plan(first))]
    second = given(*after).when(append(*chat(FULL, 100, first=FULL + 1)), POLICY).events

    assert only_plan(first).left_out == FULL - 26
    assert only_plan(second).left_out == only_plan(second).covered[-1].last
    assert planned(WITHOUT, chat(FULL, 100)).left_out == 0


@for_all(st.lists(st.integers(1, 400), min_size=3, max_size=60), st.integers(0, 8_000), st.integers(2, 8))
def test_a_longer_tail_holds_the_usual_one_and_never_more_than_the_room(costs, room, tail):
    """The room is that without record and ledger, unless the usual tail alone takes more."""
    events = [appended(number, tokens) for number, tokens in enumerate(costs, 1)]
    state = state_of(*events)
    usual = split(state, POLICY, tail_messages=tail)
    longer = split(state, POLICY, tail_messages=tail, room=TailRoom(room, {}))

    assert {m.number for m in longer.dropped} <= {m.number for m in usual.dropped}
    assert longer.kept_tokens <= max(room, usual.kept_tokens)
