"""Messages that belong together, and those that a pass would compress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given as for_all
from hypothesis import strategies as st

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import Event, MessageAppended
from abridged.service.domain.message import Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.portion import compressible
from abridged.service.domain.ranges import merged
from abridged.service.domain.record import MessageRange
from abridged.service.domain.tokens import TokenSource
from abridged.service.domain.window import counted_tokens, split, tool_pairs
from tests.support.chats import OPEN, SETTINGS, appended, calling, chat, ranges, result, said, spoken
from tests.support.given import given

POLICY = Policy(min_range_tokens=1)
ANY_MESSAGES = st.lists(
    st.one_of(
        st.tuples(st.just("user")),
        st.tuples(st.just("assistant")),
        st.tuples(st.just("call"), st.lists(st.sampled_from("abc"), min_size=1, max_size=3)),
        st.tuples(st.just("result"), st.sampled_from("abc")),
    ),
    max_size=30,
)


def messages_of(kinds: Iterable[tuple[Any, ...]]) -> list[MessageAppended]:
    made = []
    for number, kind in enumerate(kinds, 1):
        match kind:
            case ("user",):
                made.append(said(number))
            case ("assistant",):
                made.append(said(number, Role.ASSISTANT))
            case ("call", ids):
                made.append(calling(number, *ids))
            case ("result", call_id):
                made.append(result(number, call_id))
    return spoken(made)


def state_of(events: Iterable[Event], **settings: Any) -> Conversation:
    return given(replace(OPEN, settings=replace(SETTINGS, **settings)), *events).state


def dropped(events: Sequence[Event], *, tail: int = 6, **settings: Any) -> list[int]:
    division = split(state_of(events, **settings), POLICY, tail_messages=tail)
    return [m.number for m in division.dropped]


def test_the_newest_messages_are_the_tail():
    """preserve_recent of them, in order."""
    assert dropped(chat(10)) == [1, 2, 3, 4]


def test_the_tail_takes_no_more_than_its_share_of_the_budget():
    """350 tokens of 1,000: three messages of a hundred, though six were allowed."""
    assert dropped(chat(10, 100)) == [1, 2, 3, 4, 5, 6, 7]


def test_the_tail_never_has_fewer_than_two_messages():
    """However long they are."""
    assert dropped(chat(10, 900)) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_message_that_alone_breaks_the_budget_may_leave_the_tail():
    """Last but one, and neither the user's newest nor part of a call that waits: a window that holds comes first."""
    huge = [*chat(8), appended(9, message=said(9, Role.USER)), appended(10, 990), appended(11, message=said(11))]

    assert dropped(huge) == list(range(1, 11))
    assert dropped([*huge[:9], appended(10, 700), huge[10]]) == list(range(1, 10))


def test_the_tail_is_what_fits_beside_system_messages_and_a_record():
    """A pass ends below the reset ratio: 550 of 1,000, of which a record may take 176."""
    system = appended(1, 200, message=said(1, Role.SYSTEM))
    events = [system, *chat(12, 50, first=2)]

    assert dropped([system, *chat(12, 10, first=2)]) == list(range(2, 8))
    assert dropped(events) == list(range(2, 11))
    assert dropped(events, overhead_tokens=50) == list(range(2, 12))


def test_estimates_in_the_tail_are_corrected():
    """A factor of two halves the room of the share."""
    events = [appended(n, 100, source=TokenSource.ESTIMATE) for n in range(1, 11)]

    assert dropped(events, calibration_factor=2.0) == list(range(1, 9))
    assert dropped(events) == list(range(1, 8))


def test_the_newest_user_message_stays_however_long_ago():
    """An agent at work for twenty messages still knows its task."""
    events = spoken([said(1), said(2), *(said(n, Role.ASSISTANT) for n in range(3, 23))])

    assert dropped(events) == [1, *range(3, 17)]


def test_system_messages_stay_wherever_they_stand():
    """They are the caller's, not the conversation's."""
    events = spoken([said(1, Role.SYSTEM), *(said(n) for n in range(2, 9)), said(9, Role.SYSTEM), said(10)])

    assert dropped(events) == [2, 3]


def test_a_call_and_its_results_are_never_parted():
    """A boundary that would run through them moves before the call, or after the results."""
    parallel = [calling(5, "a", "b"), result(6, "b"), result(7, "a")]
    events = spoken([*(said(n) for n in range(1, 5)), *parallel, *(said(n) for n in range(8, 12))])

    assert dropped(events, tail=6) == [1, 2, 3, 4, 5, 6, 7]
    assert dropped(events, tail=7) == [1, 2, 3, 4]


def test_a_pending_call_stays_with_all_its_unit():
    """The answered half of a parallel call stays beside the half that waits."""
    events = spoken([said(1), calling(2, "a", "b"), result(3, "a"), *(said(n, Role.ASSISTANT) for n in range(4, 14))])

    assert dropped(events) == [4, 5, 6, 7]


def test_a_call_that_a_user_message_follows_is_dead_and_compressible():
    """Nobody will answer it any more."""
    events = spoken([said(1), calling(2, "a"), *(said(n) for n in range(3, 12))])

    assert dropped(events) == [1, 2, 3, 4, 5]
    assert tool_pairs(events).dead == {(2, 0)}


def test_a_result_pairs_with_the_nearest_unanswered_call_of_its_id():
    """Reused ids, results that come twice, and results of nothing."""
    events = spoken(
        [
            calling(1, "a"),
            result(2, "a"),
            calling(3, "a"),
            calling(4, "a"),
            result(5, "a"),
            result(6, "a"),
            result(7, "a"),
            result(8, "x"),
        ]
    )
    pairs = tool_pairs(events)

    assert pairs.results == {(1, 0): 2, (4, 0): 5, (3, 0): 6}
    assert pairs.orphans == {7, 8}
    assert not pairs.pending | pairs.dead


def test_a_result_after_the_user_has_spoken_is_still_its_calls():
    """Unless the id is another call's by then: that one has the result, and its own second one is nobody's."""
    late = tool_pairs(spoken([calling(1, "a", "b"), result(2, "a"), said(3), result(4, "b")]))
    reused = tool_pairs(spoken([calling(1, "a"), said(2), calling(3, "a"), result(4, "a"), result(5, "a")]))

    assert late.results == {(1, 0): 2, (1, 1): 4}
    assert late.late == {(1, 1)}
    assert not late.dead
    assert not late.orphans
    assert reused.results == {(3, 0): 4}
    assert reused.dead == {(1, 0)}
    assert reused.orphans == {5}
    assert not reused.late


def test_a_late_result_keeps_its_call_and_nothing_in_between():
    """The unit is the call with all its results, in the place of the newest; the newest exchange counts without it."""
    others = [said(n, Role.ASSISTANT) for n in range(5, 13)]
    messages = [said(1), calling(2, "a", "b"), result(3, "a"), said(4), *others, said(13), result(14, "b")]

    assert dropped(spoken(messages), tail=3) == [1, *range(4, 12)]
    assert dropped(spoken([*messages, said(15), said(16)]), tail=2) == list(range(1, 15))


@for_all(ANY_MESSAGES)
def test_every_message_is_in_one_unit_whatever_is_late(kinds):
    """The division drops no message twice and loses none, in the order of the messages."""
    events = messages_of(kinds)
    division = split(state_of(events), POLICY, tail_messages=2)
    numbers = [m.number for m in division.dropped]

    assert numbers == sorted(set(numbers))
    assert set(numbers) <= {m.number for m in events}


def test_a_range_must_hold_a_message_and_enough_tokens():
    """A range with no message or too few tokens brings no pass."""
    policy = Policy(min_range_tokens=40)

    assert compressible(state_of(chat(6)), policy, tail_messages=6) is None
    assert compressible(state_of(chat(9)), policy, tail_messages=6) is None
    worth_it = compressible(state_of(chat(10)), policy, tail_messages=6)
    assert worth_it is not None
    assert worth_it.ranges == ranges((1, 4))


def test_corrected_tokens_are_rounded_once():
    """The sum of the estimates is corrected, not each of them."""
    three = [appended(n, 1, source=TokenSource.ESTIMATE) for n in range(1, 4)]

    assert counted_tokens([*three, appended(4, 5)], 1.1) == 9


@for_all(ANY_MESSAGES, st.integers(2, 12))
def test_no_boundary_ever_parts_a_unit(kinds, tail):
    """Pairs of any messages are on one side; pending calls and the newest user message are kept."""
    events = messages_of(kinds)
    division = split(state_of(events), POLICY, tail_messages=tail)
    kept = {m.number for m in events} - {m.number for m in division.dropped}
    pairs = tool_pairs(events)

    assert all((call in kept) == (answer in kept) for (call, _), answer in pairs.results.items())
    assert {number for number, _ in pairs.pending} <= kept
    assert {m.number for m in events[-2:]} <= kept
    assert {m.number for m in [m for m in events if m.message.role is Role.USER][-1:]} <= kept
    assert division.ranges == merged(MessageRange(m.number, m.number) for m in division.dropped)


@for_all(ANY_MESSAGES)
def test_every_call_and_result_has_exactly_one_fate(kinds):
    """A call is answered, pending or dead; a result has a call or is an orphan."""
    events = messages_of(kinds)
    pairs = tool_pairs(events)
    calls = {(m.number, place) for m in events for place in range(len(m.message.tool_calls))}
    answers = {m.number for m in events if m.message.role is Role.TOOL}

    assert sorted([*pairs.results, *pairs.pending, *pairs.dead]) == sorted(calls)
    assert sorted([*pairs.results.values(), *pairs.orphans]) == sorted(answers)
    assert all(call < answer for (call, _), answer in pairs.results.items())
    assert pairs.late <= set(pairs.results)


@for_all(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=20))
def test_merged_ranges_hold_the_same_messages_and_do_not_touch(bounds):
    """Ascending, apart, complete."""
    given_ranges = [MessageRange(first, first + length) for first, length in bounds]
    result_ranges = merged(given_ranges)

    assert {n for r in given_ranges for n in range(r.first, r.last + 1)} == {
        n for r in result_ranges for n in range(r.first, r.last + 1)
    }
    assert all(a.last + 1 < b.first for a, b in pairwise(result_ranges))
