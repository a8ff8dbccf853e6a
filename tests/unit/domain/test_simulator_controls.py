"""The simulator's invariants, each shown a step that breaks it: an invariant that finds nothing proves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.commands import EndWait
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import (
    ErrorClass,
    Event,
    SkipReason,
    SummarizationFailed,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from abridged.service.domain.fold import evolve, fold
from abridged.service.domain.message import Role
from abridged.service.domain.policy import Policy, SummaryRole
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.domain.receipt import Receipt, ReceiptPlace
from abridged.service.domain.record import MessageRange
from abridged.service.domain.render import RenderedMessage, rendered_window
from abridged.service.domain.sequence import Sequence
from abridged.service.domain.triggers import held_by
from tests.support import invariants
from tests.support.chats import (
    OPEN,
    append,
    appended,
    calling,
    chat,
    completed,
    expandable,
    only_plan,
    result,
    said,
    spoken,
)
from tests.support.given import given
from tests.support.invariants import Violation
from tests.support.simulation import Step

POLICY = Policy()
OPENED = [OPEN, *chat(80)]
PLAN = only_plan(given(*OPENED).when(append(appended(81)), POLICY).events)
PENDING = fold([(event, 0) for event in [*OPENED, appended(81), SummarizationRequested(PLAN)]])
DONE = evolve(PENDING, completed(PLAN), 0)


def step(before: Conversation, *events: Event) -> Step:
    after = fold([(event, 0) for event in events], before)
    return Step(before, EndWait(0), events, after, POLICY, now_us=0)


def rendered(state: Conversation) -> tuple[RenderedMessage, ...]:
    return rendered_window(state, SummaryRole.SYSTEM)


def test_two_pending_passes_are_found():
    """A pass that is requested while another one is pending."""
    with pytest.raises(Violation, match="while one was pending"):
        invariants.one_pass_at_a_time(step(PENDING, SummarizationRequested(PLAN)))


def test_a_third_pass_of_one_trigger_is_found():
    """A follow-up of a follow-up, and another pass behind one."""
    follow_up = replace(PLAN, trigger=Trigger.FOLLOW_UP)
    pending = PENDING._replace(pending=follow_up)
    emergency = replace(PLAN, trigger=Trigger.EMERGENCY)

    with pytest.raises(Violation, match="followed a follow-up"):
        invariants.two_passes_a_trigger(step(pending, completed(follow_up), SummarizationRequested(follow_up)))
    with pytest.raises(Violation, match="followed no record"):
        invariants.two_passes_a_trigger(step(DONE, SummarizationRequested(follow_up)))
    with pytest.raises(Violation, match="without a new message"):
        invariants.two_passes_a_trigger(step(pending, completed(follow_up), SummarizationRequested(emergency)))


def test_a_record_that_grows_the_window_is_found():
    """A record that costs as much as the replaced messages saves nothing."""
    with pytest.raises(Violation, match="larger"):
        invariants.no_record_grows_the_window(step(PENDING, completed(PLAN, tokens=PLAN.replaced_tokens)))


def test_a_receipt_that_misses_a_message_or_has_lost_one_is_found():
    """Counts that do not add up, no receipt at all, and a message that no call returns."""
    whole = expandable(PLAN)
    (line,) = whole.lines
    short = Receipt((replace(line, count=line.count - 1),))
    gone = Receipt((replace(line, place=ReceiptPlace.GONE),))
    invariants.receipts_are_whole(step(PENDING, completed(PLAN, receipt=whole)))

    with pytest.raises(Violation, match="accounted for"):
        invariants.receipts_are_whole(step(PENDING, completed(PLAN, receipt=short)))
    with pytest.raises(Violation, match="no receipt"):
        invariants.receipts_are_whole(step(PENDING, completed(PLAN)))
    with pytest.raises(Violation, match="gone"):
        invariants.receipts_are_whole(step(PENDING, completed(PLAN, receipt=gone)))


def test_a_window_that_is_left_over_its_budget_is_found():
    """No pass, no wait, and yet there was something to compress."""
    with pytest.raises(Violation, match="left alone"):
        invariants.over_budget_has_a_reason(step(fold([(OPEN, 0)]), *chat(110)))


def test_a_hold_that_the_rules_contradict_is_found():
    """A word where a pass begins, none where none does, and one below the trigger."""
    full = fold([(event, 0) for event in [*OPENED, appended(81)]])

    for state in (full, PENDING, DONE):
        invariants.hold_is_told(state, POLICY, 0, held=held_by(state, POLICY, 0))
    with pytest.raises(Violation, match="held by HYSTERESIS"):
        invariants.hold_is_told(full, POLICY, 0, held=HeldBy.HYSTERESIS)
    with pytest.raises(Violation, match="nothing is said to hold it"):
        invariants.hold_is_told(PENDING, POLICY, 0, held=None)
    with pytest.raises(Violation, match="below its trigger"):
        invariants.hold_is_told(DONE, POLICY, 0, held=HeldBy.COOLDOWN)


def test_wrong_coverage_is_found():
    """A message in both places, in none, and out of order."""
    (first, *others) = list(DONE.window)

    with pytest.raises(Violation, match="both covered"):
        invariants.coverage_is_exact(DONE._replace(window=Sequence([appended(1), first, *others])))
    with pytest.raises(Violation, match="neither here nor there"):
        invariants.coverage_is_exact(DONE._replace(window=Sequence(others)))
    with pytest.raises(Violation, match="not in order"):
        invariants.coverage_is_exact(DONE._replace(window=Sequence([*others, first])))


def test_a_tail_that_is_gone_or_changed_is_found():
    """The newest messages, and every one that is shown, are the originals."""
    originals = {m.number: m.message for m in PENDING.window}
    shorter = DONE._replace(window=Sequence(list(DONE.window)[:-1]))
    (first, *others) = list(DONE.window)
    forged = DONE._replace(window=Sequence([first._replace(message=said(first.number, content="forged")), *others]))

    with pytest.raises(Violation, match="has left"):
        invariants.tail_is_verbatim(shorter, originals)
    with pytest.raises(Violation, match="not as it came"):
        invariants.tail_is_verbatim(forged, originals)


def test_parted_calls_and_results_are_found():
    """A result without its call, and a call that a user message cuts off."""
    messages = spoken([calling(1, "a"), result(2, "a"), said(3)])
    whole = rendered(given(OPEN, *messages).state)
    originals = {m.number: m.message for m in messages}

    invariants.calls_are_answered(whole, originals)
    with pytest.raises(Violation, match="follows no call"):
        invariants.calls_are_answered(whole[1:], originals)
    with pytest.raises(Violation, match="before a user message"):
        invariants.calls_are_answered([whole[0], whole[2]], originals)


def test_a_wrong_order_is_found():
    """The summary at the end, missing, and a message left out."""
    window = rendered(DONE)

    with pytest.raises(Violation, match="not rendered in order"):
        invariants.order_is_fixed(DONE, [*window[1:], window[0]])
    with pytest.raises(Violation, match="not rendered once"):
        invariants.order_is_fixed(DONE, window[1:])
    with pytest.raises(Violation, match="lacks one"):
        invariants.order_is_fixed(DONE, window[:-1])


def test_a_changed_prefix_is_found():
    """A message that was sent once is sent in the same form again."""
    window = rendered(PENDING)
    changed = (replace(window[0], message=said(1, content="changed")), *window[1:])

    invariants.prefix_is_stable(step(PENDING), window, window)
    with pytest.raises(Violation, match="another way"):
        invariants.prefix_is_stable(step(PENDING), window, changed)


def test_what_is_said_twice_is_found():
    """IRREDUCIBLE within the cooldown, DEPTH_LIMIT ever."""
    irreducible = step(DONE, SummarizationSkipped(SkipReason.IRREDUCIBLE))
    limit = step(DONE, SummarizationSkipped(SkipReason.DEPTH_LIMIT))

    with pytest.raises(Violation, match="IRREDUCIBLE"):
        invariants.said_once([irreducible, irreducible])
    with pytest.raises(Violation, match="DEPTH_LIMIT"):
        invariants.said_once([limit, limit])


def test_a_last_exchange_that_was_not_kept_is_found():
    """A plan over the newest message but one, although there was room for it."""
    wider = replace(PLAN, covered=(MessageRange(1, 80),))

    with pytest.raises(Violation, match="last exchange"):
        invariants.exchange_is_verbatim(
            step(fold([(event, 0) for event in OPENED]), appended(81), *[SummarizationRequested(wider)])
        )


def test_too_many_passes_are_found():
    """Five passes of one command."""
    with pytest.raises(Violation, match="more passes than causes"):
        invariants.passes_are_bounded([step(DONE, *[SummarizationRequested(PLAN)] * 5)])


def test_a_chain_that_is_too_deep_is_found():
    """The depth of a plan is below the policy's maximum."""
    with pytest.raises(Violation, match="deeper"):
        invariants.depth_is_bounded(step(DONE, SummarizationRequested(replace(PLAN, depth=3))))


def test_a_failure_without_a_wait_is_found():
    """A failed pass leaves a wait behind."""
    failed = SummarizationFailed(PLAN.pass_id, ErrorClass.INTERNAL, 1, False, wait_messages=0, wait_until_us=-1)

    with pytest.raises(Violation, match="not waited"):
        invariants.every_end_is_final(step(PENDING, failed))


def test_a_wanted_pass_that_was_cancelled_is_found():
    """Only a policy that is switched off ends a pass without a wait."""
    cancelled = SummarizationFailed(PLAN.pass_id, ErrorClass.CANCELLED, 0, True, wait_messages=0, wait_until_us=0)

    with pytest.raises(Violation, match="was wanted"):
        invariants.every_end_is_final(step(PENDING, cancelled))


def test_wrong_sums_are_found():
    """The figures that the fold keeps are counted again."""
    with pytest.raises(Violation, match="sums"):
        invariants.sums_are_exact(DONE._replace(exact_tokens=1))
    with pytest.raises(Violation, match="lowest"):
        invariants.sums_are_exact(DONE._replace(lowest_ratio_since_pass=2.0))


def test_the_controls_start_from_what_holds():
    """The states above break nothing by themselves."""
    for state in (PENDING, DONE):
        invariants.coverage_is_exact(state)
        invariants.sums_are_exact(state)
        invariants.order_is_fixed(state, rendered(state))
    assert DONE.live is not None
    assert DONE.live.covered == (MessageRange(1, 75),)
    assert all(m.message.role is not Role.SYSTEM for m in DONE.window)
