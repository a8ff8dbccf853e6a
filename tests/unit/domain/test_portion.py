"""The portion of a long window that one pass takes: the oldest whole units, as much as its calls can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from abridged.service.domain.chunks import calls_needed
from abridged.service.domain.commands import FailPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import ErrorClass, Event, MessageAppended, SkipReason, Trigger
from abridged.service.domain.fold import fold
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import DepthLimit, Fallback, Policy
from abridged.service.domain.portion import compressible, portion_tokens_max, prompt_tokens
from tests.support.chats import (
    OPEN,
    append,
    appended,
    calling,
    chat,
    complete,
    pending_in,
    result,
    said,
    spoken,
)
from tests.support.given import UNCLAIMED, Given, Outcome, given
from tests.support.growth import grows_linearly

POLICY = Policy(
    min_range_tokens=1, max_input_tokens=1_000, pass_calls_max=8, rebase_calls_max=8, fallback=Fallback.NEVER
)
"""Four calls of 1,000 tokens are planned: three parts and a merge."""


def dropped(events: Sequence[Event], policy: Policy = POLICY, *, whole: bool = False) -> list[int]:
    division = compressible(given(OPEN, *events).state, policy, tail_messages=6, whole=whole)
    assert division is not None
    assert division.cut == (len(division.dropped) < sum(isinstance(e, MessageAppended) for e in events) - 6)
    return [m.number for m in division.dropped]


def spoken_from(first: int, messages: Sequence[Message]) -> list[MessageAppended]:
    return [appended(n, message=m) for n, m in enumerate(messages, first)]


def ended(state: Conversation, policy: Policy = POLICY) -> Outcome:
    """The end of the pending pass with a small record."""
    return Given(state).when(complete(state, tokens=60), policy)


def test_a_range_has_no_more_than_half_of_the_calls_of_a_pass():
    """The other half is for repairs, and for parts that their messages do not fill."""
    state = given(OPEN, *chat(2_000)).state
    division = compressible(state, POLICY, tail_messages=6)

    assert division is not None
    tokens = prompt_tokens(division.dropped, POLICY)
    assert tokens <= portion_tokens_max(state, POLICY) == 3_000
    assert tokens + 14 > 3_000
    assert calls_needed(tokens, chunk_tokens=1_000, summary_tokens=125) <= POLICY.pass_calls_max / 2


@pytest.mark.parametrize("messages", [215, 230, 300, 500, 2_000])
def test_a_range_is_cut_at_its_newest_end(messages):
    """However much lies behind it, the same messages are the oldest."""
    assert dropped(chat(messages)) == list(range(1, min(messages - 6, 214) + 1))


def test_extraction_takes_all_of_it():
    """Extraction reads a source of any length."""
    assert dropped(chat(2_000), whole=True) == list(range(1, 1_995))


@pytest.mark.parametrize("behind", [10, 1_000])
def test_no_tool_unit_is_divided_by_a_cut(behind):
    """A call before the end of the range whose result lies behind it is left with all of its unit."""
    unit = [calling(211, "a", "b"), result(212, "a"), *(said(n, Role.ASSISTANT) for n in range(213, 221))]
    events = [*chat(210), *spoken_from(211, [*unit, result(221, "b")]), *chat(behind, first=222)]

    assert dropped(events) == list(range(1, 211))


def test_a_unit_that_is_larger_than_what_a_pass_reads_is_one_range():
    """The pass says that it has not the calls; nothing else could be done with it."""
    unit = [calling(1, "a"), *(said(n, Role.ASSISTANT) for n in range(2, 400)), result(400, "a")]

    assert dropped([*spoken(unit), *chat(1_000, first=401)]) == list(range(1, 401))


def test_the_newest_message_of_the_user_stays_wherever_it_is():
    """The message may be among the oldest."""
    events = [appended(1), *(appended(n, message=said(n, Role.ASSISTANT)) for n in range(2, 2_000))]

    assert dropped(events)[0] == 2


def test_a_range_that_is_not_worth_a_pass_gets_one_unit_more():
    """A short message before one that fills the bounds alone: its record would save nothing."""
    policy = replace(POLICY, min_range_tokens=256)

    assert dropped([appended(1), appended(2, 5_000), *chat(1_000, first=3)], policy) == [1, 2]


def test_a_cut_range_is_followed_up_until_the_window_is_under_its_trigger():
    """Each of the passes takes the next of the oldest, and a record of the largest size."""
    state = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after
    state = Given(state).when(append(*chat(920, first=81)), POLICY).after
    plans = []
    while state.pending is not None:
        plans.append(pending_in(state))
        state = ended(state).after

    assert [p.cut for p in plans] == [False, True, True, True, True]
    assert {p.trigger for p in plans[1:]} == {Trigger.FOLLOW_UP}
    assert [p.covered[-1].last for p in plans] == [74, 288, 502, 716, 930]
    assert {p.summary_tokens_max for p in plans} == {176}
    assert state.ratio < 0.8


def test_a_cut_range_that_saves_nothing_is_not_followed_up():
    """A cut that did not help is not made again at once: the wait after it is like any other."""
    state = given(OPEN, *chat(79)).when(append(*chat(920, first=80)), POLICY).after

    in_vain = Given(state).when(complete(state, tokens=20_000), POLICY)

    assert in_vain.skipped == [SkipReason.NO_GAIN]
    assert in_vain.after.pending is None


def test_halt_ends_a_row_of_cut_ranges_too():
    """A follow-up goes one deeper than the chain may be, and no second one."""
    policy = replace(POLICY, max_summary_chain_depth=1, on_depth_limit=DepthLimit.HALT)
    first = given(OPEN, *chat(79)).when(append(*chat(920, first=80)), policy).after
    second = ended(first, policy).after
    last = ended(second, policy)

    assert (pending_in(second).depth, pending_in(second).cut) == (1, True)
    assert last.skipped == [SkipReason.DEPTH_LIMIT]


@pytest.mark.parametrize(
    ("error_class", "asked", "halves"),
    [
        (ErrorClass.INVALID, False, True),
        (ErrorClass.TRUNCATED, True, True),
        (ErrorClass.TRANSPORT, True, True),
        (ErrorClass.TRANSPORT, False, False),
        (ErrorClass.MODEL_MISSING, False, False),
        (ErrorClass.CANCELLED, True, False),
    ],
)
def test_a_range_that_may_have_been_too_long_is_halved(error_class, asked, halves):
    """A host that was not reached says nothing of the range."""
    state = given(OPEN, *chat(79)).when(append(*chat(920, first=80)), POLICY).after
    failed = FailPass(pending_in(state).pass_id, UNCLAIMED, error_class, 1, True, asked=asked)

    after = Given(state).when(failed, POLICY).after

    assert portion_tokens_max(after, POLICY) == (1_500 if halves else 3_000)


def test_a_range_is_never_halved_below_what_is_worth_a_pass():
    """Nor is it kept small for ever: eight passes later the failures are forgotten."""
    state = given(OPEN, *chat(79)).when(append(*chat(3_000, first=80)), POLICY).after
    for _ in range(12):
        plan = pending_in(state)
        failed = FailPass(plan.pass_id, UNCLAIMED, ErrorClass.INVALID, 0, retryable=False)
        state = Given(state).when(failed, POLICY).after
        state = Given(state).when(append(*chat(64, first=state.message_version + 1)), POLICY).after
    assert portion_tokens_max(state, POLICY) == 192

    for _ in range(8):
        state = ended(state).after
    assert portion_tokens_max(state, POLICY) == 3_000


def test_the_rules_work_on_what_a_pass_reads_and_not_on_what_waits():
    """Four times the messages are four times the passes, each of the same work."""

    def summarized(state: Conversation) -> None:
        policy = replace(POLICY, pass_calls_max=64)
        while state.pending is not None:
            state = Given(state).when(complete(state, tokens=60), policy).after

    def waiting(messages: int) -> Conversation:
        state = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after
        return fold([(event, 0) for event in chat(messages, first=81)], state)

    assert grows_linearly(summarized, waiting, size=40_000)
