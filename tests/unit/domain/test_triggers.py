"""Beginnings of a pass: the rules of profile CHAIN, one after another, as a chat meets them.

The budget is 1,000 tokens and a message costs ten, so that eighty messages are the default trigger.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from abridged.service.domain.commands import ApplyRules, ChangeSettings, EndWait, ReportUsage, RequestPass
from abridged.service.domain.conversation import Conversation, lineage, record_named
from abridged.service.domain.errors import DepthLimitReached, NothingToSummarize, PassesDisabled
from abridged.service.domain.events import (
    ErrorClass,
    PassPlan,
    SettingsChanged,
    SkipReason,
    SummarizationFailed,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
    UsageReported,
)
from abridged.service.domain.fold import evolve
from abridged.service.domain.message import Role
from abridged.service.domain.policy import DepthLimit, Fallback, Policy
from abridged.service.domain.profiles import chain
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.domain.tokens import Taught, TokenSource, calibrated_factor
from abridged.service.domain.triggers import held_by
from tests.support.chats import (
    OPEN,
    SETTINGS,
    append,
    appended,
    chat,
    complete,
    completed,
    expandable,
    fail,
    live_in,
    only_plan,
    ranges,
    said,
)
from tests.support.given import Given, Outcome, given

ROOT = Path(__file__).parents[3]
POLICY = Policy()
SECOND = 1_000_000
IRREDUCIBLE = SummarizationSkipped(SkipReason.IRREDUCIBLE)
DEPTH_LIMIT = SummarizationSkipped(SkipReason.DEPTH_LIMIT)


def triggers(outcome: Outcome) -> list[Trigger]:
    return [e.plan.trigger for e in outcome.events if isinstance(e, SummarizationRequested)]


def summarized(*, record_tokens: int = 50, policy: Policy = POLICY) -> Given:
    """A chat of eighty messages whose first pass is done: six messages and a record are left."""
    requested = given(OPEN, *chat(79)).when(append(appended(80)), policy)
    return Given(Given(requested.after).when(complete(requested.after, tokens=record_tokens), policy).after)


def failed(times: int, *, state: Conversation, policy: Policy = POLICY) -> Given:
    """The state after that many failed passes in a row, each requested by force."""
    for number in range(times):
        requested = Given(state).when(RequestPass(), policy, next_pass_id=f"forced{number}").after
        state = Given(requested).when(fail(requested), policy).after
    return Given(state)


def test_s1_integration_1_single_long_thread_triggers_exactly_once_at_the_ratio():
    """Message by message, the eightieth of a hundredth each triggers, and none of those around it."""
    history = given(OPEN)
    found = []
    for number in range(1, 86):
        outcome = history.when(append(appended(number)), POLICY, next_pass_id=f"p{number}")
        found += [(number, trigger) for trigger in triggers(outcome)]
        history = Given(outcome.after)

    assert found == [(80, Trigger.RATIO)]


def test_the_trigger_is_in_the_same_commit_and_fixes_the_range():
    """All but the newest six, as many tokens as they are, with the policy that was in force."""
    outcome = given(OPEN, *chat(79)).when(append(appended(80)), POLICY)

    plan = only_plan(outcome.events)
    outcome.then(appended(80), SummarizationRequested(plan))
    assert (plan.covered, plan.source, plan.base_id, plan.depth) == (ranges((1, 74)), ranges((1, 74)), "", 0)
    assert (plan.replaced_tokens, plan.summary_tokens_max, plan.token_ratio) == (740, 176, 0.8)
    assert (plan.message_version, plan.policy, plan.rebase) == (80, POLICY, False)


def test_s1_edge_2_a_burst_of_five_across_the_threshold_requests_one_pass():
    """The rules run once, after the whole batch; messages that come during the pass request none."""
    burst = given(OPEN, *chat(78)).when(append(*chat(5, first=79)), POLICY)
    again = Given(burst.after).when(append(*chat(5, first=84)), POLICY)

    assert only_plan(burst.events).message_version == 83
    again.then(*chat(5, first=84))


def test_rule_1_nothing_while_disabled():
    """The switch holds back even an emergency."""
    given(OPEN, *chat(79)).when(append(*chat(50, first=80)), Policy(enabled=False)).then(*chat(50, first=80))


def test_rule_1_nothing_while_a_pass_is_pending():
    """An emergency during a pass waits for its end."""
    pending = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after

    Given(pending).when(append(*chat(60, first=81)), POLICY).then(*chat(60, first=81))


@pytest.mark.parametrize(
    ("failures", "messages", "seconds"),
    [(1, 4, 30), (2, 8, 60), (3, 16, 120), (4, 32, 240), (5, 64, 480), (6, 64, 900), (20, 64, 900)],
)
def test_rule_1_failures_in_a_row_wait_longer_and_longer(failures, messages, seconds):
    """Four messages or half a minute at first, twice as much each time, at most 64 and a quarter of an hour."""
    state = failed(failures - 1, state=given(OPEN, *chat(40)).state).state
    pending = Given(state).when(RequestPass(), POLICY).after

    Given(pending).when(fail(pending), POLICY, now_us=5).then(
        SummarizationFailed("p", ErrorClass.TRANSPORT, 1, True, messages, 5 + seconds * SECOND)
    )


def test_rule_1_a_wait_holds_an_emergency_back_only_where_nothing_may_stand_in():
    """Three of four messages are too few; the fourth ends the wait."""
    policy = Policy(fallback=Fallback.NEVER)
    waiting = failed(1, state=given(OPEN, *chat(110)).state, policy=policy)

    third = waiting.when(append(*chat(3, first=111)), policy)
    fourth = Given(third.after).when(append(appended(114)), policy)

    assert triggers(third) == []
    assert held_by(third.after, policy, 0) is HeldBy.WAITING_AFTER_FAILURE
    assert triggers(fourth) == [Trigger.EMERGENCY]


@pytest.mark.parametrize("fallback", [Fallback.EMERGENCY, Fallback.ALWAYS])
def test_rule_1_at_emergency_extraction_serves_at_once_whatever_waits(fallback):
    """The message that fills the window brings a pass that asks no model, although one has just failed."""
    policy = Policy(fallback=fallback)
    waiting = failed(1, state=given(OPEN, *chat(97)).state, policy=policy)

    ninety_nine = waiting.when(append(*chat(2, first=98)), policy)
    hundred = Given(ninety_nine.after).when(append(appended(100)), policy)

    assert triggers(ninety_nine) == []
    plan = only_plan(hundred.events)
    assert (plan.trigger, plan.extractive) == (Trigger.EMERGENCY, True)
    assert held_by(ninety_nine.after, policy, 0) is HeldBy.WAITING_AFTER_FAILURE


def test_rule_1_a_pass_that_fails_over_the_budget_is_followed_by_extraction_in_the_same_commit():
    """Nobody has to append another message to get a window that fits."""
    pending = given(OPEN, *chat(99)).when(append(appended(100)), POLICY).after

    outcome = Given(pending).when(fail(pending), POLICY)

    assert isinstance(outcome.events[0], SummarizationFailed)
    assert only_plan(outcome.events).extractive


def test_rule_1_a_record_that_stands_in_ends_no_wait():
    """No model was asked for it, so that nothing is known of the model's health."""
    pending = given(OPEN, *chat(99)).when(append(appended(100)), POLICY).after
    waiting = Given(pending).when(fail(pending), POLICY).after

    after = Given(waiting).when(complete(waiting, fallback=True), POLICY).after

    assert (after.failures_in_row, after.waiting(0)) == (1, True)
    assert after.ratio < 0.2


def test_rule_1_a_stand_in_after_a_failed_call_begins_a_wait():
    """The record is there, but the next pass does not ask the same dead model at once."""
    pending = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after

    after = Given(pending).when(complete(pending, fallback=True, model_failed=True), POLICY).after

    assert (after.failures_in_row, after.wait_until_version, after.wait_until_us) == (1, 84, 30 * SECOND)


def test_rule_1_a_model_that_is_too_slow_once_is_asked_again_and_twice_in_a_row_is_not():
    """A burst may outrun any model; a model that never keeps up costs calls for nothing."""
    pending = given(OPEN, *chat(99)).when(append(appended(100)), POLICY).after

    once = Given(pending).when(complete(pending, fallback=True, interrupted=True), POLICY).after
    assert (once.failures_in_row, once.waiting(0)) == (0, False)

    full = Given(once).when(append(*chat(90, first=101)), POLICY, next_pass_id="q").after
    twice = Given(full).when(complete(full, fallback=True, interrupted=True), POLICY).after
    assert (twice.failures_in_row, twice.waiting(0)) == (1, True)


def test_rule_1_extraction_in_vain_is_not_tried_again_on_the_same_window():
    """An extract that saves nothing is a skip; the next one comes with the next message, and never in a loop."""
    pending = given(OPEN, *chat(99)).when(append(appended(100)), POLICY).after
    standing_in = Given(pending).when(fail(pending), POLICY).after

    in_vain = Given(standing_in).when(complete(standing_in, tokens=1_000, fallback=True), POLICY)

    assert (in_vain.skipped, triggers(in_vain)) == ([SkipReason.NO_GAIN], [])
    again = Given(in_vain.after).when(append(appended(101)), POLICY)
    assert only_plan(again.events).extractive


def test_rule_1_the_end_of_a_wait_lets_an_idle_chat_recover():
    """Time ends the wait as well as messages do, whichever comes first."""
    policy = Policy(fallback=Fallback.NEVER)
    waiting = failed(1, state=given(OPEN, *chat(110)).state, policy=policy)

    waiting.when(EndWait(30 * SECOND - 1), policy).then()
    assert triggers(waiting.when(EndWait(30 * SECOND), policy)) == [Trigger.EMERGENCY]
    waiting.when(ApplyRules(), policy, now_us=30 * SECOND - 1).then()
    assert triggers(waiting.when(ApplyRules(), policy, now_us=30 * SECOND)) == [Trigger.EMERGENCY]


def test_a_wait_that_is_over_stays_over_when_the_clock_is_set_back():
    """The process that ends it has a clock that nobody sets."""
    policy = Policy(fallback=Fallback.NEVER)
    waiting = failed(1, state=given(OPEN, *chat(110)).state, policy=policy)

    assert waiting.state.waiting(10 * SECOND)
    assert triggers(waiting.when(EndWait(30 * SECOND), policy, now_us=10 * SECOND)) == [Trigger.EMERGENCY]


def test_the_rules_are_applied_under_the_policy_that_holds_now():
    """An operator's other policy, without any other event."""
    history = given(OPEN, *chat(70))

    history.when(ApplyRules(), POLICY).then()
    assert triggers(history.when(ApplyRules(), Policy(trigger_token_ratio=0.7, reset_token_ratio=0.6))) == [
        Trigger.RATIO
    ]


def test_rule_1_a_wait_is_over_when_the_clock_stands_before_its_beginning():
    """A clock that was set back says nothing of the time since; the wait is short, and is not made longer."""
    state = failed(2, state=given(OPEN, *chat(110)).state, policy=Policy(fallback=Fallback.NEVER)).state
    began_us = state.wait_until_us - 60 * SECOND

    assert [state.waiting(began_us + offset) for offset in (-1, 0, 60 * SECOND - 1, 60 * SECOND)] == [
        False,
        True,
        True,
        False,
    ]


def test_rule_1_a_record_ends_the_row_of_failures():
    """The next failure waits as the first did."""
    waiting = failed(3, state=given(OPEN, *chat(60)).state)
    pending = waiting.when(RequestPass(), POLICY).after
    after = Given(pending).when(complete(pending), POLICY).after

    assert (after.failures_in_row, after.waiting(0)) == (0, False)


def test_rule_2_what_cannot_be_compressed_is_said_once_and_again_after_the_cooldown():
    """One enormous user message is the tail; it is said at once, then every four messages, never in a loop."""
    history = Given(given(OPEN).when(append(appended(1, 900)), POLICY).then(appended(1, 900), IRREDUCIBLE))
    said_at = []
    for number in range(2, 11):
        message = said(number, Role.SYSTEM)
        outcome = history.when(append(appended(number, 1, message=message)), POLICY)
        said_at += [number] if IRREDUCIBLE in outcome.events else []
        history = Given(outcome.after)

    assert said_at == [5, 9]


def test_rule_2_is_silent_below_the_trigger():
    """A short chat has nothing to compress, and nobody needs to hear of it."""
    given(OPEN, appended(1)).when(append(appended(2)), POLICY).then(appended(2))


def test_rule_2_comes_before_an_emergency():
    """A pass that would have nothing to do is not triggered."""
    given(OPEN, appended(1, 2_000)).when(append(appended(2, 2_000)), POLICY).then(appended(2, 2_000), IRREDUCIBLE)


def test_rule_2_a_range_that_is_too_small_is_not_worth_a_pass():
    """255 tokens beside an enormous tail stay; one more and they go."""
    policy = Policy(min_messages=0, min_freed_token_ratio=0.0)
    tail = [appended(2, 350), appended(3, 350)]

    given(OPEN, appended(1, 255)).when(append(*tail), policy).then(*tail, IRREDUCIBLE)
    assert triggers(given(OPEN, appended(1, 256)).when(append(*tail), policy)) == [Trigger.RATIO]


def test_rule_2_a_new_title_does_not_say_it_again_but_a_new_length_does():
    """Only what bears on passes makes the sentence news."""
    history = Given(given(OPEN).when(append(appended(1, 900)), POLICY).after)
    titled = replace(SETTINGS, title="New", labels={"a": "b"})
    shorter = replace(titled, context_length=990)

    after = history.when(ChangeSettings(titled), POLICY).then(SettingsChanged(titled))
    Given(after).when(ChangeSettings(shorter), POLICY).then(SettingsChanged(shorter), IRREDUCIBLE)


def test_s1_integration_4_emergency_at_the_full_ratio_ignores_the_cooldown():
    """One message after a pass, the window is full: nobody waits for three more."""
    history = summarized()

    assert triggers(history.when(append(appended(81, 700)), POLICY)) == []
    assert triggers(history.when(append(appended(81, 500), appended(82, 500)), POLICY)) == []
    assert triggers(history.when(append(*(appended(n, 330) for n in (81, 82, 83))), POLICY)) == [Trigger.EMERGENCY]


def test_rule_3_emergency_ignores_min_messages():
    """Five huge messages are an emergency, though twelve are the minimum."""
    history = given(OPEN, *chat(4, 240))

    assert triggers(history.when(append(appended(5, 39)), POLICY)) == []
    assert triggers(history.when(append(appended(5, 40)), POLICY)) == [Trigger.EMERGENCY]


def test_rule_3_emergency_ignores_hysteresis():
    """A ratio that never fell below reset does not hold an emergency back."""
    policy = Policy(rearm_messages=1_000)
    low_gain = summarized(record_tokens=100, policy=policy).state._replace(lowest_ratio_since_pass=0.75)

    assert triggers(Given(low_gain).when(append(*chat(75, first=81)), policy)) == []
    assert triggers(Given(low_gain).when(append(*chat(84, first=81)), policy)) == [Trigger.EMERGENCY]


def test_rule_4_fewer_than_min_messages_wait():
    """System messages are not counted among them."""
    system = [appended(n, 10, message=said(n, Role.SYSTEM)) for n in range(1, 6)]
    eleven = [*system, *chat(11, 75, first=6)]

    history = given(OPEN, *eleven[:-1])
    outcome = history.when(append(eleven[-1]), POLICY)

    assert triggers(outcome) == []
    assert triggers(Given(outcome.after).when(append(appended(17, 10)), POLICY)) == [Trigger.RATIO]


def test_rule_4_the_cooldown_counts_messages_since_the_record():
    """Three messages are too few, the fourth triggers."""
    history = summarized(policy=Policy(min_messages=0))
    three = history.when(append(*chat(3, 250, first=81)), Policy(min_messages=0))

    assert triggers(three) == []
    assert triggers(Given(three.after).when(append(appended(84, 10)), Policy(min_messages=0))) == [Trigger.RATIO]


def test_rule_5_periodic_after_so_many_messages_whatever_the_ratio():
    """Off by default; the thirtieth message triggers far below the ratio."""
    policy = Policy(force_refresh_after_messages=30)

    assert triggers(given(OPEN, *chat(28, 12)).when(append(appended(29)), policy)) == []
    assert triggers(given(OPEN, *chat(29, 12)).when(append(appended(30)), policy)) == [Trigger.PERIODIC]
    assert triggers(given(OPEN, *chat(29, 12)).when(append(appended(30)), POLICY)) == []


def test_rule_5_a_periodic_pass_without_anything_to_do_is_silent():
    """Below the trigger nothing is said of a range that cannot be compressed."""
    policy = Policy(force_refresh_after_messages=3, min_messages=0)

    given(OPEN, *chat(2)).when(append(appended(3)), policy).then(appended(3))


def test_rule_6_below_the_trigger_nothing_happens():
    """One token less than eight tenths."""
    given(OPEN, *chat(79)).when(append(appended(80, 9)), POLICY).then(appended(80, 9))


def test_s1_integration_2_hysteresis_prevents_an_immediate_second_pass_after_a_burst():
    """Past the trigger again without having been below reset: not before rearm_messages have come."""
    policy = Policy(rearm_messages=10, reset_token_ratio=0.50)
    history = summarized(policy=policy)
    high = history.state._replace(lowest_ratio_since_pass=0.75)
    burst = chat(9, 80, first=81)

    held = Given(high).when(append(*burst), policy)
    assert triggers(held) == []
    assert triggers(Given(held.after).when(append(appended(90, 10)), policy)) == [Trigger.RATIO]
    assert triggers(history.when(append(*burst), policy)) == [Trigger.RATIO]


def test_rule_6_a_larger_context_arms_the_trigger_again():
    """The lowest ratio is that since the pass, wherever it came from."""
    policy = Policy(rearm_messages=1_000)
    high = summarized(policy=policy).state._replace(lowest_ratio_since_pass=0.75)
    wider = Given(high).when(ChangeSettings(replace(SETTINGS, context_length=2_000)), policy).after

    assert wider.lowest_ratio_since_pass < 0.70


def test_a_follow_up_comes_exactly_once():
    """A record that leaves the window past the trigger is followed by one pass with a tail of two, and by no third."""
    policy = Policy(min_range_tokens=100)
    requested = given(OPEN, *chat(74), *chat(5, 58, first=75)).when(append(appended(80, 58)), policy)
    first = Given(requested.after).when(complete(requested.after, tokens=590), policy)
    follow_up = only_plan(first.events)
    second = Given(first.after).when(complete(first.after, tokens=650), policy)

    assert (follow_up.trigger, follow_up.depth, follow_up.covered) == (Trigger.FOLLOW_UP, 1, ranges((75, 78)))
    assert [type(e).__name__ for e in second.events] == ["SummarizationCompleted"]


def test_messages_that_came_during_a_follow_up_wait_for_the_cooldown():
    """A third pass of the same trigger does not come, though its tail of two would free something again."""
    policy = Policy(min_range_tokens=100)
    requested = given(OPEN, *chat(74), *chat(5, 58, first=75)).when(append(appended(80, 58)), policy)
    first = Given(requested.after).when(complete(requested.after, tokens=590), policy)
    assert only_plan(first.events).trigger is Trigger.FOLLOW_UP
    during = Given(first.after).when(append(*chat(3, 100, first=81)), policy).after

    second = Given(during).when(complete(during, tokens=500), policy)

    assert policy.trigger_token_ratio <= second.after.ratio < policy.emergency_token_ratio
    assert triggers(second) == []


def test_no_follow_up_below_the_trigger():
    """One record is enough when it was enough."""
    requested = given(OPEN, *chat(79)).when(append(appended(80)), POLICY)
    plan = only_plan(requested.events)

    Given(requested.after).when(complete(requested.after), POLICY).then(completed(plan, receipt=expandable(plan)))


def test_messages_that_came_during_a_pass_can_trigger_the_next():
    """The end of a pass is a change like any other."""
    pending = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after
    flooded = Given(pending).when(append(*chat(90, first=81)), POLICY).after

    assert triggers(Given(flooded).when(complete(flooded), POLICY)) == [Trigger.FOLLOW_UP]


def test_settings_are_a_reason_to_look_again():
    """A smaller context is an emergency at once; the same settings again are nothing."""
    history = given(OPEN, *chat(60))
    smaller = replace(SETTINGS, context_length=500)

    outcome = history.when(ChangeSettings(smaller), POLICY)

    assert triggers(outcome) == [Trigger.EMERGENCY]
    history.when(ChangeSettings(SETTINGS), POLICY).then()


def test_a_usage_report_calibrates_and_may_trigger():
    """The model counted a third more than we did: the ratio is past the trigger, though no message came."""
    estimated = [appended(n, 10, source=TokenSource.ESTIMATE) for n in range(1, 66)]
    outcome = given(OPEN, *estimated).when(ReportUsage(65, "", 975), POLICY)

    outcome.then(UsageReported(65, "", 975, 0, 650, 1.25, 1), outcome.events[-1])
    assert triggers(outcome) == [Trigger.RATIO]
    assert outcome.after.window_tokens == 813


def test_a_report_goes_on_from_what_the_model_has_taught_elsewhere():
    """The factor of nine reports of other conversations weighs more than this one; one that knows less is left out."""
    estimated = [appended(n, 10, source=TokenSource.ESTIMATE) for n in range(1, 66)]
    taught, less = Taught(1.4, 9), Taught(1.9, 0)

    after_nine = given(OPEN, *estimated).when(ReportUsage(65, "", 975, taught=taught), Policy(enabled=False))
    after_none = given(OPEN, *estimated).when(ReportUsage(65, "", 975, taught=less), Policy(enabled=False))

    factor = calibrated_factor(1.4, 650, reported=975, observations=9)
    assert factor == pytest.approx(1.41)
    after_nine.then(UsageReported(65, "", 975, 0, 650, factor, 10))
    after_none.then(UsageReported(65, "", 975, 0, 650, 1.25, 1))
    assert after_nine.after.usage_reports == 10


def test_what_was_reported_of_one_model_says_nothing_of_another():
    """A conversation with another model has no reports, so that it teaches the new one nothing."""
    reported = given(OPEN, *chat(20), UsageReported(20, "", 250, 0, 200, 1.125, 4))
    renamed = replace(reported.state.settings, model="ollama:other")

    assert reported.state.usage_reports == 4
    assert reported.when(ChangeSettings(renamed), POLICY).after.usage_reports == 0


def test_s1_integration_3_depth_guard_halts_after_the_configured_maximum():
    """HALT: one sentence, no further pass, however full the window gets; a forced one is refused."""
    policy = Policy(max_summary_chain_depth=1, on_depth_limit=DepthLimit.HALT)
    history = summarized(policy=policy)

    full = history.when(append(*chat(90, first=81)), policy)
    full.then(*chat(90, first=81), DEPTH_LIMIT)
    fuller = Given(full.after).when(append(*chat(90, first=171)), policy)
    fuller.then(*chat(90, first=171))
    Given(fuller.after).when(RequestPass(), policy).then_refused(DepthLimitReached)


def test_halt_says_it_again_only_when_what_bears_on_it_changed():
    """A new title is no reason to hear of the depth again."""
    policy = Policy(max_summary_chain_depth=1, on_depth_limit=DepthLimit.HALT)
    halted = Given(summarized(policy=policy).when(append(*chat(90, first=81)), policy).after)
    titled = replace(SETTINGS, title="New")
    shorter = replace(SETTINGS, context_length=900)

    halted.when(ChangeSettings(titled), policy).then(SettingsChanged(titled))
    halted.when(ChangeSettings(shorter), policy).then(SettingsChanged(shorter), DEPTH_LIMIT)


def filled(history: Given, policy: Policy, *, tokens: int = 10) -> tuple[PassPlan, Conversation]:
    """Fill the window until a pass is requested; answers its plan and the state in which it is pending."""
    state = history.state
    for number in range(state.message_version + 1, state.message_version + 200):
        outcome = Given(state).when(append(appended(number, tokens)), policy, next_pass_id=f"p{number}")
        state = outcome.after
        if state.pending:
            return state.pending, state
    raise AssertionError("no pass was requested")


def test_s1_unit_5_each_record_continues_the_one_before():
    """Depth and parent go up by one with every pass."""
    history = given(OPEN)
    for depth, parent in enumerate(["", "summary-p80", "summary-p149"]):
        plan, state = filled(history, POLICY)
        assert (plan.depth, plan.parent_id, plan.base_id, plan.rebase) == (depth, parent, parent, False)
        history = Given(Given(state).when(complete(state), POLICY).after)


def test_s1_edge_3_a_small_context_is_compressed_again_and_again_up_to_the_depth_cap():
    """Two thousand tokens, messages of forty: three records, then halt."""
    policy = Policy(on_depth_limit=DepthLimit.HALT)
    small = replace(OPEN, settings=replace(SETTINGS, context_length=2_000))
    history = given(small)
    for depth in range(3):
        plan, state = filled(history, policy, tokens=40)
        assert plan.depth == depth
        history = Given(Given(state).when(complete(state, tokens=200), policy).after)

    first = history.state.message_version + 1
    last = history.when(append(*chat(80, 40, first=first)), policy)
    assert last.events[-1] == DEPTH_LIMIT


def deepest(policy: Policy) -> tuple[PassPlan, Conversation]:
    """A chain as deep as it may be, and the plan behind it."""
    history = given(OPEN)
    for _ in range(policy.max_summary_chain_depth):
        _, state = filled(history, policy)
        history = Given(Given(state).when(complete(state), policy).after)
    return filled(history, policy)


def test_rebase_reads_all_originals_when_few_calls_suffice():
    """Depth 0 again, made from every message that has left; the parent is kept for audit only."""
    plan, state = deepest(POLICY)

    live = live_in(state)
    assert (plan.depth, plan.rebase, plan.parent_id, plan.base_id) == (0, True, live.id, "")
    assert plan.covered == plan.source == ranges((1, plan.message_version - 6))
    assert plan.replaced_tokens == live.tokens_after + 10 * (plan.covered[0].last - live.covered[-1].last)


def test_halt_lets_the_last_pass_try_once_more_with_a_smaller_tail():
    """S1's second pass: at the depth cap too, when the window is still over its trigger after the first."""
    policy = Policy(max_summary_chain_depth=1, on_depth_limit=DepthLimit.HALT)
    pending = given(OPEN, *chat(79)).when(append(appended(80)), policy).after
    fuller = Given(pending).when(append(*chat(80, first=81)), policy).after

    followed = Given(fuller).when(complete(fuller, tokens=60), policy)

    plan = only_plan(followed.events)
    assert (plan.trigger, plan.depth, plan.covered[-1].last) == (Trigger.FOLLOW_UP, 1, 158)


def test_rebase_continues_the_least_rewritten_record_that_one_call_reaches():
    """The pass reads the record's own text and the originals since, so that nothing is read twice without need.

    Seventy messages of ten tokens, with their tags, are one call; those of two passes are two.
    """
    policy = Policy(max_input_tokens=1_000)
    plan, state = deepest(policy)

    live = live_in(state)
    assert (live.rewrites, plan.rebase, plan.base_id, plan.rewrites) == (2, True, live.id, 3)
    assert plan.covered == ranges((1, plan.message_version - 6))
    assert plan.source == ranges((live.covered[-1].last + 1, plan.message_version - 6))


def test_a_text_is_rewritten_once_for_as_many_passes_as_one_call_reaches_back():
    """The base is an older record that stood alone, and not the newest one, which was made from it."""
    policy = Policy(max_input_tokens=3_000, max_summary_chain_depth=1)
    history, plans = given(OPEN), []
    for _ in range(9):
        plan, state = filled(history, policy)
        plans.append(plan)
        history = Given(Given(state).when(complete(state), policy).after)

    assert [plan.rewrites for plan in plans] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert plans[5].source[0].first == plans[2].covered[-1].last + 1
    assert plans[5].covered == ranges((1, plans[5].source[-1].last))


def test_a_partial_rebase_does_not_call_itself_made_from_originals():
    """Depth 0 says that a record was; this one stands on another, and counts the rewritings of its text."""
    plan, _ = deepest(Policy(max_input_tokens=3_000))

    assert (plan.depth, plan.base_id, plan.rewrites) == (1, "summary-p80", 1)


def test_a_chain_that_was_rewritten_too_often_is_made_anew_from_all_originals():
    """The new record may take no more calls than the policy allows."""
    policy = Policy(max_input_tokens=1_000, rewrites_max=2)
    plan, _ = deepest(policy)

    assert (plan.depth, plan.base_id, plan.rewrites, plan.source) == (0, "", 0, plan.covered)
    cheaper, state = deepest(replace(policy, rebase_calls_max=1))
    assert (cheaper.base_id, cheaper.rewrites) == (live_in(state).id, 3)


def test_a_long_chain_goes_back_to_an_older_record_when_all_originals_are_too_many():
    """The drift is cut as far as the allowed calls reach."""
    policy = Policy(max_input_tokens=1_000, rewrites_max=4, rebase_calls_max=4)
    plan, state = deepest(policy)
    for _ in range(6):
        history = Given(Given(state).when(complete(state), policy).after)
        plan, state = filled(history, policy)
        if plan.rebase and plan.base_id != live_in(state).id:
            break

    base = record_named(state, plan.base_id)
    assert base is not None
    assert base.stands_alone
    assert plan.rewrites == base.rewrites + 1 <= 4 < live_in(state).rewrites + 1
    assert plan.source[0].first == base.covered[-1].last + 1


def test_an_extract_is_no_base_to_go_back_to():
    """A chain that has drifted is not cured by a text that only stood in for a model."""
    policy = Policy(max_input_tokens=1_000, rewrites_max=2, rebase_calls_max=2)
    first = given(OPEN, *chat(79)).when(append(appended(80)), policy).after
    history = Given(Given(first).when(complete(first, fallback=True), policy).after)
    for _ in range(policy.max_summary_chain_depth):
        plan, state = filled(history, policy)
        history = Given(Given(state).when(complete(state), policy).after)

    assert (plan.rebase, plan.base_id) == (True, plan.parent_id)


def test_a_rebased_record_begins_a_new_chain():
    """Records below it are no part of the live lineage any more, and the next record stands on it."""
    _, state = deepest(POLICY)
    rebased = Given(Given(state).when(complete(state), POLICY).after)
    plan, _ = filled(rebased, POLICY)

    assert lineage(rebased.state) == (live_in(rebased.state),)
    assert (plan.depth, plan.base_id, plan.rebase) == (1, live_in(rebased.state).id, False)


def test_a_forced_pass_ignores_ratio_cooldown_hysteresis_min_messages_and_waits():
    """Forty messages at two fifths of the ratio, right after a failure."""
    waiting = failed(2, state=given(OPEN, *chat(40)).state)

    assert triggers(waiting.when(RequestPass(), Policy(min_messages=1_000))) == [Trigger.FORCED]


def test_a_forced_pass_is_refused_where_it_could_do_nothing():
    """Disabled, or nothing to compress; while one is pending it is that one."""
    pending = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after

    given(OPEN, *chat(40)).when(RequestPass(), Policy(enabled=False)).then_refused(PassesDisabled)
    given(OPEN, *chat(4)).when(RequestPass(), POLICY).then_refused(NothingToSummarize)
    Given(pending).when(RequestPass(), POLICY, next_pass_id="q").then()


def test_overhead_and_reserved_output_count():
    """The caller's own prompt and the room for the answer are part of the ratio."""
    tight = replace(SETTINGS, overhead_tokens=300, reserved_output_tokens=200)
    history = given(replace(OPEN, settings=tight), *chat(33))

    assert triggers(history.when(append(appended(34)), POLICY)) == [Trigger.RATIO]
    assert history.state.budget == 800


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"trigger_token_ratio": 0.9}, None),
        ({"min_messages": 50}, HeldBy.MIN_MESSAGES),
        ({"min_messages": 50, "emergency_token_ratio": 0.8}, None),
        ({"enabled": False}, HeldBy.DISABLED),
        ({"min_range_tokens": 5_000}, HeldBy.IRREDUCIBLE),
    ],
)
def test_a_window_past_its_trigger_says_what_holds_it(change, why):
    """The answer to why nothing happens is the rule that says so; None when the next command brings a pass."""
    state = given(OPEN, *chat(14, 61)).state

    assert 0.8 <= state.ratio < 0.9
    assert held_by(state, replace(Policy(), **change), 0) is why


WARM = replace(POLICY, defer_while_warm_s=240)


def test_an_advisable_pass_waits_while_the_chats_cache_is_warm():
    """Each message begins the wait anew. A policy that defers none has the pass at once."""
    talk = given(OPEN, *chat(79))
    append_last = append(appended(80))

    waiting = Given(talk.when(append_last, WARM).after)
    assert triggers(talk.when(append_last, POLICY)) == [Trigger.RATIO]
    assert triggers(talk.when(append_last, WARM)) == []
    assert triggers(waiting.when(ApplyRules(), WARM, now_us=240 * SECOND - 1)) == []
    assert triggers(waiting.when(ApplyRules(), WARM, now_us=240 * SECOND)) == [Trigger.RATIO]
    later = evolve(waiting.state, appended(81), 200 * SECOND)
    assert triggers(Given(later).when(ApplyRules(), WARM, now_us=439 * SECOND)) == []
    assert triggers(Given(later).when(ApplyRules(), WARM, now_us=440 * SECOND)) == [Trigger.RATIO]


def test_a_pass_waits_for_no_cache_from_halfway_to_the_emergency():
    """Messages come while the pass takes its time, so that the wait ends before the emergency."""
    talk = given(OPEN, *chat(88))

    below = talk.when(append(appended(89)), WARM)
    assert triggers(below) == []
    assert triggers(Given(below.after).when(append(appended(90)), WARM)) == [Trigger.RATIO]
    assert triggers(talk.when(append(appended(89, 120)), WARM)) == [Trigger.EMERGENCY]


def test_a_pass_that_is_asked_for_waits_for_no_cache():
    """A forced one and one that is due by its messages rewrite the window at once."""
    talk = given(OPEN, *chat(82))
    refreshing = replace(WARM, force_refresh_after_messages=83)

    assert triggers(talk.when(RequestPass(), WARM)) == [Trigger.FORCED]
    assert triggers(talk.when(append(appended(83)), refreshing)) == [Trigger.PERIODIC]


def test_a_window_that_waits_for_its_cache_says_so_and_when_it_ends():
    """The rules are asked again at that time, and at none where another rule holds the window anyway."""
    state = given(OPEN, *chat(82)).state
    ends_us = state.updated_us + 240 * SECOND

    assert held_by(state, WARM, ends_us - 1) is HeldBy.CACHE_WARM
    assert held_by(state, WARM, ends_us) is None
    assert chain.idle_from_us(state, WARM) == ends_us
    assert chain.idle_from_us(state, POLICY) == 0
    for policy in (
        replace(WARM, enabled=False),
        replace(WARM, min_messages=100),
        replace(WARM, min_range_tokens=5_000),
        replace(WARM, trigger_token_ratio=0.83),
    ):
        assert chain.idle_from_us(state, policy) == 0
    assert chain.idle_from_us(state._replace(closed=True), WARM) == 0
    assert chain.idle_from_us(given(OPEN, *chat(90)).state, WARM) == 0
    assert chain.idle_from_us(Given(state).when(RequestPass(), WARM).after, WARM) == 0


def test_a_pass_that_would_free_little_waits_for_more_messages_or_the_emergency():
    """A system message has half of the budget, so that little is left to compress."""
    system = appended(1, 520, message=said(1, Role.SYSTEM))
    talk = given(OPEN, system, *chat(11, 26, first=2))
    at_once = replace(POLICY, min_freed_token_ratio=0.0)

    waiting = talk.when(append(appended(13, 26)), POLICY)
    assert triggers(waiting) == []
    assert held_by(waiting.after, POLICY, 0) is HeldBy.FREES_LITTLE
    assert held_by(waiting.after, at_once, 0) is None
    assert triggers(talk.when(append(appended(13, 26)), at_once)) == [Trigger.RATIO]
    assert triggers(Given(waiting.after).when(append(*chat(4, 26, first=14)), POLICY)) == [Trigger.RATIO]
    assert triggers(Given(waiting.after).when(append(appended(14, 200)), POLICY)) == [Trigger.EMERGENCY]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, HeldBy.HYSTERESIS),
        ({"cooldown_messages": 10}, HeldBy.COOLDOWN),
        ({"rearm_messages": 9}, None),
        ({"force_refresh_after_messages": 9}, None),
        ({"max_summary_chain_depth": 1, "on_depth_limit": DepthLimit.HALT}, HeldBy.DEPTH_LIMIT),
        ({"max_summary_chain_depth": 1, "on_depth_limit": DepthLimit.REBASE, "rearm_messages": 9}, None),
    ],
)
def test_after_a_pass_a_window_past_its_trigger_says_what_holds_it(change, why):
    """A periodic pass does not wait for hysteresis: with one due, nothing holds the window."""
    high = summarized().state._replace(lowest_ratio_since_pass=0.75)
    state = Given(high).when(append(*chat(9, 80, first=81)), replace(POLICY, enabled=False)).after

    assert 0.8 <= state.ratio < 0.9
    assert held_by(state, replace(POLICY, **{"rearm_messages": 50} | change), 0) is why


def test_the_glossary_has_every_word_for_what_holds_a_window():
    """One list of words, for operators too."""
    found = re.search(r"\| held by \|(.*)", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"))

    assert found is not None
    assert sorted(re.findall(r"\b[A-Z_]{5,}\b", found[1])) == sorted(HeldBy)
