"""Ends of a pass: a record that saves enough, one that does not, a failure, and an extract in a model's stead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from abridged.service.domain.commands import (
    AppendMessages,
    ApplyRules,
    ChangeSettings,
    Command,
    CompletePass,
    EndWait,
    FailPass,
    ReleasePass,
    RemakeFallback,
    ReportUsage,
    RequestPass,
    StartPass,
)
from abridged.service.domain.conversation import Conversation, lineage, live_coverage, next_remake, record_named
from abridged.service.domain.errors import (
    ConversationNotFound,
    InvalidPolicy,
    PassSuperseded,
    VersionNotReached,
    WrongMessageVersion,
)
from abridged.service.domain.events import (
    ErrorClass,
    SkipReason,
    SummarizationFailed,
    SummarizationRequested,
    SummarizationSkipped,
    SummarizationStarted,
    Trigger,
    UsageReported,
)
from abridged.service.domain.policy import Policy
from abridged.service.domain.tokens import TokenSource
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
    pending_in,
    ranges,
    record_for,
    start,
)
from tests.support.given import UNCLAIMED, Given, given

POLICY = Policy()
SECOND = 1_000_000


def pending(policy: Policy = POLICY, *, source: TokenSource = TokenSource.CALLER) -> Conversation:
    """The state with the first pass of a chat of eighty messages."""
    messages = [appended(n, source=source) for n in range(1, 80)]
    return given(OPEN, *messages).when(append(appended(80, source=source)), policy).after


def with_fallback() -> Conversation:
    state = pending()
    return Given(state).when(complete(state, tokens=60, fallback=True), POLICY).after


def test_a_record_takes_the_place_of_what_it_covers():
    """Window, sums, chain and the last summarization are those of the record."""
    state = pending()
    after = (
        Given(state)
        .when(complete(state), POLICY)
        .then(completed(pending_in(state), receipt=expandable(pending_in(state))))
    )

    assert [m.number for m in after.window] == list(range(75, 81))
    assert (after.window_tokens, live_in(after).id, after.pending) == (110, "summary-p", None)
    last = after.last_summarization
    assert last is not None
    assert (last.depth, last.message_count, last.token_ratio) == (0, 80, 0.8)
    assert (after.messages_since_pass, after.completed_passes, after.lowest_ratio_since_pass) == (0, 1, 0.11)
    assert record_named(after, "summary-p") is after.live
    assert record_named(after, "other") is None


def test_messages_of_the_meantime_stay_in_the_window():
    """The range is that of the trigger."""
    state = Given(pending()).when(append(*chat(5, first=81)), POLICY).after
    after = Given(state).when(complete(state), POLICY).after

    assert [m.number for m in after.window] == list(range(75, 86))


@pytest.mark.parametrize(("tokens", "saved"), [(592, True), (593, False), (740, False), (2_000, False)])
def test_a_record_that_saves_under_a_fifth_is_not_committed(tokens, saved):
    """740 tokens are replaced; 592 are a fifth less."""
    state = pending()
    outcome = Given(state).when(complete(state, tokens=tokens), POLICY, now_us=7)

    skipped = SummarizationSkipped(SkipReason.NO_GAIN, "p", 1, wait_messages=4, wait_until_us=7 + 30 * SECOND)
    plan = pending_in(state)
    outcome.then(completed(plan, tokens=tokens, receipt=expandable(plan)) if saved else skipped)


def test_a_gain_is_judged_as_the_window_counts():
    """A record in estimates is corrected as the window's estimates are: 500 of them cost 1,000."""
    state = pending()
    doubled = state._replace(settings=replace(SETTINGS, calibration_factor=2.0))

    outcome = Given(doubled).when(complete(doubled, tokens=500, source=TokenSource.ESTIMATE), POLICY)

    assert outcome.skipped == [SkipReason.NO_GAIN]


def test_without_a_minimal_gain_a_record_must_still_save_something():
    """min_gain 0 does not let the window grow or stay."""
    policy = Policy(min_gain=0.0)
    state = pending(policy)

    assert isinstance(Given(state).when(complete(state, tokens=740), policy).events[0], SummarizationSkipped)
    assert Given(state).when(complete(state, tokens=739), policy).after.window_tokens == 799


def test_no_gain_leaves_the_messages_and_waits():
    """The chat stays armed, and tries again when the wait is over."""
    state = pending()
    after = Given(state).when(complete(state, tokens=740), POLICY).after

    assert (len(after.window), after.failures_in_row, after.waiting(0)) == (80, 1, True)
    assert only_plan(Given(after).when(EndWait(30 * SECOND), POLICY, next_pass_id="q").events).trigger is Trigger.RATIO


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_a_failed_pass_leaves_everything_as_it_was(error_class):
    """Failures of every class leave the messages, end the pass and let the next one wait."""
    state = pending()
    command = FailPass("p", UNCLAIMED, error_class, 3, False, 12, b"h", cause="stalled", asked=True)
    after = (
        Given(state)
        .when(command, POLICY, now_us=9)
        .then(SummarizationFailed("p", error_class, 3, False, 4, 9 + 30 * SECOND, 12, b"h", "stalled", True))
    )

    assert (after.window, after.live, after.pending) == (state.window, None, None)
    ended = after.passes[0]
    assert (ended.error_class, ended.attempts, ended.record_id, ended.skip_reason) == (error_class, 3, "", None)
    assert (ended.cause, ended.asked) == ("stalled", True)


def test_a_claim_is_counted():
    """The log has how often a pass was begun."""
    state = Given(pending()).when(StartPass("p", "one", 0), POLICY).then(SummarizationStarted("p", 1, "one"))

    Given(state).when(start(state, "two"), POLICY).then(SummarizationStarted("p", 2, "two"))


def test_a_claim_takes_the_place_of_the_one_that_it_knows_of_and_of_no_other():
    """Only one of two processes that saw the same lease lapse goes on; so does a process whose own claim it was. One
    that it had not noticed, because the answer was lost, is not counted twice.
    """
    state = Given(pending()).when(StartPass("p", "one", 0), POLICY).after

    Given(state).when(StartPass("p", "two", 0), POLICY).then_refused(PassSuperseded)
    Given(state).when(StartPass("p", "one", 0), POLICY).then(SummarizationStarted("p", 1, "one"))
    Given(state).when(start(state, "one"), POLICY).then(SummarizationStarted("p", 2, "one"))


@pytest.mark.parametrize("kind", ["complete", "fail", "release"])
def test_only_the_newest_claim_ends_its_pass(kind):
    """A process that was stopped for longer than its lease wakes up to a pass that is another's."""
    first = Given(pending()).when(StartPass("p", "one", 0), POLICY).after
    second = Given(first).when(start(first, "two"), POLICY).after
    commands: dict[str, Callable[[Conversation], Command]] = {
        "complete": complete,
        "fail": fail,
        "release": lambda state: ReleasePass("p", state.claim_token),
    }

    Given(second).when(commands[kind](first), POLICY).then_refused(PassSuperseded)
    assert Given(second).when(commands[kind](second), POLICY).events


@pytest.mark.parametrize("kind", ["start", "complete", "fail"])
def test_a_pass_that_is_not_pending_cannot_end(kind):
    """The pass may be over, or be another one."""
    state = pending()
    record = record_for(pending_in(state))
    commands: dict[str, Command] = {
        "start": StartPass("other", "one", 0),
        "complete": CompletePass("other", UNCLAIMED, record, TokenSource.CALLER, False),
        "fail": FailPass("other", UNCLAIMED, ErrorClass.INTERNAL, 1, False),
    }
    command = commands[kind]

    Given(state).when(command, POLICY).then_refused(PassSuperseded)
    given(OPEN).when(command, POLICY).then_refused(PassSuperseded)


def test_a_record_that_is_not_as_planned_is_a_programming_error():
    """Coverage is fixed by the trigger; nobody may commit another one."""
    state = pending()
    wrong = replace(record_for(pending_in(state)), covered=ranges((1, 80)))

    with pytest.raises(AssertionError, match="as its pass was planned"):
        Given(state).when(CompletePass("p", UNCLAIMED, wrong, TokenSource.CALLER, False), POLICY)


def test_a_fallback_is_remade_in_its_place():
    """The same range, parent and depth; the record before it is not in the lineage any more."""
    state = with_fallback()
    outcome = Given(state).when(RemakeFallback(), POLICY, next_pass_id="r")

    plan = only_plan(outcome.events)
    assert (plan.trigger, plan.covered, plan.source) == (Trigger.REMAKE, ranges((1, 74)), ranges((1, 74)))
    assert (plan.depth, plan.parent_id, plan.base_id, plan.replaces_id) == (0, "", "", "summary-p")
    after = Given(outcome.after).when(complete(outcome.after, tokens=60), POLICY).after
    assert (live_in(after).id, next_remake(after), len(after.records)) == ("summary-r", None, 2)
    assert [r.id for r in lineage(after)] == ["summary-r"]
    assert live_coverage(after) == ranges((1, 74))


def test_a_remake_gets_the_size_of_a_models_record_not_that_of_the_extract():
    """The remake may cost more than the extract; it may not cost as much as both stand for."""
    state = Given(with_fallback()).when(RemakeFallback(), POLICY, next_pass_id="r").after
    plan = pending_in(state)

    assert (plan.summary_tokens_max, plan.replaced_tokens) == (176, 740)
    assert live_in(Given(state).when(complete(state, tokens=176), POLICY).after).id == "summary-r"
    assert live_in(Given(state).when(complete(state, tokens=592), POLICY).after).id == "summary-r"
    assert Given(state).when(complete(state, tokens=593), POLICY).skipped == [SkipReason.NO_GAIN]


def test_a_remake_never_brings_a_window_to_its_trigger():
    """A record that would is as large as no gain is."""
    fuller = Given(with_fallback()).when(append(*chat(60, first=81)), POLICY, next_pass_id="q").after
    state = Given(fuller).when(RemakeFallback(), POLICY, next_pass_id="r").after

    assert (fuller.ratio, pending_in(state).room_tokens) == (0.72, 139)
    assert live_in(Given(state).when(complete(state, tokens=139), POLICY).after).id == "summary-r"
    assert Given(state).when(complete(state, tokens=140), POLICY).skipped == [SkipReason.NO_GAIN]


def test_only_a_fallback_is_remade_and_only_when_passes_may_run():
    """A model's record, a disabled policy, a pending pass, a window past its trigger: nothing happens."""
    state = with_fallback()
    model_made = Given(pending()).when(complete(pending()), POLICY).after
    requested = Given(state).when(RemakeFallback(), POLICY, next_pass_id="r").after
    full = Given(state).when(append(*chat(68, first=81)), Policy(enabled=False), next_pass_id="q").after

    given(OPEN).when(RemakeFallback(), POLICY, next_pass_id="r").then()
    Given(model_made).when(RemakeFallback(), POLICY, next_pass_id="r").then()
    Given(state).when(RemakeFallback(), Policy(enabled=False), next_pass_id="r").then()
    Given(requested).when(RemakeFallback(), POLICY, next_pass_id="q").then()
    Given(full).when(RemakeFallback(), POLICY, next_pass_id="q").then()


def remade_in_vain(state: Conversation, *, times: int) -> Conversation:
    """The state after that many remakes that saved nothing."""
    for number in range(times):
        requested = Given(state).when(RemakeFallback(), POLICY, next_pass_id=f"r{number}").after
        state = Given(requested).when(complete(requested, tokens=740), POLICY).after
    return state


def test_a_remake_in_vain_holds_back_no_pass_and_is_tried_twice():
    """No failure in a row and no wait comes of it, and a third one is not asked for."""
    state = remade_in_vain(with_fallback(), times=2)

    assert (state.failures_in_row, state.waiting(0), next_remake(state)) == (0, False, None)
    Given(state).when(RemakeFallback(), POLICY, next_pass_id="r").then()
    back = Given(state).when(append(*chat(68, first=81)), POLICY, next_pass_id="q")
    assert only_plan(back.events).trigger is Trigger.RATIO


def test_a_remake_that_fails_counts_only_when_a_model_was_asked():
    """An open breaker refuses any number of them."""
    requested = Given(with_fallback()).when(RemakeFallback(), POLICY, next_pass_id="r").after
    asked, refused = fail(requested), replace(fail(requested), attempts=0)

    assert Given(requested).when(asked, POLICY).after.remakes == {"summary-p": 1}
    assert Given(requested).when(refused, POLICY).after.remakes == {}
    assert Given(requested).when(asked, POLICY).after.failures_in_row == 0


def test_a_remake_leaves_cooldown_and_arming_as_they_were():
    """A remake is no pass over new messages."""
    state = Given(with_fallback()).when(append(*chat(3, first=81)), POLICY, next_pass_id="q").after
    requested = Given(state).when(RemakeFallback(), POLICY, next_pass_id="r").after
    after = Given(requested).when(complete(requested), POLICY).after

    assert (after.messages_since_pass, after.last_summarization) == (3, state.last_summarization)
    assert after.lowest_ratio_since_pass <= state.lowest_ratio_since_pass


def test_a_pass_that_is_due_ends_a_pending_remake():
    """Both are in the commit of the message that made it due, and the remake can be asked for again."""
    requested = Given(with_fallback()).when(RemakeFallback(), POLICY, next_pass_id="r").after

    outcome = Given(requested).when(append(*chat(68, first=81)), POLICY, next_pass_id="q")

    ended, begun = outcome.events[-2:]
    assert isinstance(ended, SummarizationFailed)
    assert (ended.pass_id, ended.error_class, ended.wait_until_us) == ("r", ErrorClass.CANCELLED, 0)
    assert isinstance(begun, SummarizationRequested)
    assert (outcome.after.pending, outcome.after.remakes) == (begun.plan, {})


def test_a_forced_pass_ends_a_pending_remake():
    """A caller that asks for a pass gets one."""
    requested = Given(with_fallback()).when(append(*chat(40, first=81)), POLICY, next_pass_id="q").after
    remaking = Given(requested).when(RemakeFallback(), POLICY, next_pass_id="r").after

    outcome = Given(remaking).when(RequestPass(), POLICY, next_pass_id="f")

    assert only_plan(outcome.events).trigger is Trigger.FORCED


def test_every_extract_of_the_chain_is_remade_oldest_first():
    """A record made from a stand-in is made again from the record that took the stand-in's place."""
    first = with_fallback()
    second = Given(first).when(append(*chat(70, first=81)), POLICY, next_pass_id="q").after
    state = Given(second).when(complete(second, fallback=True), POLICY).after

    oldest = Given(state).when(RemakeFallback(), POLICY, next_pass_id="r").after
    assert (pending_in(oldest).replaces_id, pending_in(oldest).base_id) == ("summary-p", "")
    after = Given(oldest).when(complete(oldest), POLICY).after
    assert (live_in(after).id, after.window, after.ratio) == ("summary-q", state.window, state.ratio)
    assert [r.id for r in lineage(after)] == ["summary-q", "summary-r"]

    newest = Given(after).when(RemakeFallback(), POLICY, next_pass_id="s").after
    assert (pending_in(newest).replaces_id, pending_in(newest).base_id) == ("summary-q", "summary-r")
    done = Given(newest).when(complete(newest), POLICY).after
    assert [r.id for r in lineage(done)] == ["summary-s", "summary-r"]
    assert (next_remake(done), live_coverage(done)) == (None, live_coverage(state))


def test_a_remake_deeper_in_the_chain_continues_the_same_record():
    """A fallback at depth 1 stands on the record of depth 0, and so does the record made in its place."""
    first = Given(pending()).when(complete(pending()), POLICY).after
    second = Given(first).when(append(*chat(70, first=81)), POLICY, next_pass_id="q").after
    fallback = Given(second).when(complete(second, fallback=True), POLICY).after

    plan = only_plan(Given(fallback).when(RemakeFallback(), POLICY, next_pass_id="r").events)

    assert (plan.depth, plan.base_id, plan.parent_id, plan.rebase) == (1, "summary-p", "summary-p", False)


def test_a_usage_report_about_another_window_teaches_nothing():
    """A version that is not there is refused; one reported before, and another record's window, are passed over."""
    estimated = [appended(n, source=TokenSource.ESTIMATE) for n in range(1, 41)]
    history = given(OPEN, *estimated)
    reported = history.when(ReportUsage(40, "", 500), POLICY)

    history.when(ReportUsage(41, "", 500), POLICY).then_refused(VersionNotReached, wanted=41, actual=40)
    history.when(ReportUsage(40, "summary-x", 500), POLICY).then()
    reported.then(UsageReported(40, "", 500, 0, 400, 1.125, 1))
    Given(reported.after).when(ReportUsage(40, "", 500), POLICY).then()


def test_a_usage_report_counts_the_summary_it_was_sent_with():
    """Exact counts and overhead are taken off before the estimates are judged."""
    state = pending(source=TokenSource.ESTIMATE)
    after = Given(state).when(complete(state, tokens=50), POLICY).after
    exact = Given(after).when(ReportUsage(80, "summary-p", 60), POLICY)
    estimated_record = Given(state).when(complete(state, tokens=50, source=TokenSource.ESTIMATE), POLICY).after
    estimated = Given(estimated_record).when(ReportUsage(80, "summary-p", 110), POLICY)

    exact.then(UsageReported(80, "summary-p", 60, 50, 60, 1.0, 1))
    estimated.then(UsageReported(80, "summary-p", 110, 0, 110, 1.0, 1))


def test_only_an_append_opens_a_conversation():
    """Every other command needs one."""
    commands: list[Command] = [
        ChangeSettings(SETTINGS),
        ReportUsage(0, "", 1),
        RequestPass(),
        RemakeFallback(),
        StartPass("p", "one", 0),
        EndWait(0),
        ApplyRules(),
    ]
    for command in commands:
        given().when(command, POLICY).then_refused(ConversationNotFound)
    given().when(append(appended(1)), POLICY).then(OPEN, appended(1))


def test_an_expected_version_counts_messages_alone():
    """A pass in between does not make it stale; another message does."""
    state = pending()
    (message,) = append(appended(81)).messages
    command = AppendMessages("c", (message,), SETTINGS, expected_version=80)

    Given(state).when(command, POLICY).then(appended(81))
    Given(state).when(replace(command, expected_version=79), POLICY).then_refused(
        WrongMessageVersion, expected=79, actual=80
    )
    changed = ChangeSettings(replace(SETTINGS, title="x"), expected_version=3)
    Given(state).when(changed, POLICY).then_refused(WrongMessageVersion, expected=3, actual=80)


@pytest.mark.parametrize(
    ("length", "reserved", "field"),
    [
        (1_000, 2_000, "reserved_output_tokens"),
        (1_000, 745, "reserved_output_tokens"),
        (1_000, 744, None),
        (256, 0, None),
        (255, 0, "context_length"),
        (10, 0, "context_length"),
    ],
)
def test_settings_without_room_for_a_record_are_refused(length, reserved, field):
    """A record that says something needs half of 256 tokens, at the opening and later."""
    asked = replace(SETTINGS, context_length=length, reserved_output_tokens=reserved)

    opened = given().when(append(appended(1), settings=asked), POLICY)
    changed = given(OPEN).when(ChangeSettings(asked), POLICY)

    for outcome in (opened, changed):
        if field:
            outcome.then_refused(InvalidPolicy, field=field)
        else:
            assert outcome.after.settings.context_length == length


def test_a_second_request_in_the_log_is_the_pending_one():
    """The fold keeps the log's content and times."""
    state = pending()

    assert (pending_in(state).pass_id, state.claims) == ("p", 0)
    assert isinstance(given(OPEN, *chat(79)).when(append(appended(80)), POLICY).events[-1], SummarizationRequested)


def test_a_claim_given_back_does_not_count():
    """Stopping in good order any number of times never makes a pass look like one that takes the process down."""
    requested = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after
    pass_id = pending_in(requested).pass_id

    started = Given(requested).when(start(requested, "one"), POLICY).after
    released = Given(started).when(ReleasePass(pass_id, started.claim_token), POLICY).after

    assert (started.claims, started.claim_token, started.claim_owner) == (1, started.event_version, "one")
    assert (released.claims, released.claim_token, released.claim_owner) == (0, 0, "")
    assert released.pending == requested.pending


def test_switching_passes_off_ends_the_pending_one():
    """The pass ends at once, without a wait for the next, and nothing of the window changes."""
    requested = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after
    off = replace(POLICY, enabled=False)

    changed = Given(requested).when(ChangeSettings(replace(SETTINGS, title="off")), off, next_pass_id="p2")

    assert [type(e).__name__ for e in changed.events] == ["SettingsChanged", "SummarizationFailed"]
    assert (changed.after.pending, changed.after.failures_in_row) == (None, 0)
    assert changed.after.window == requested.window


@pytest.mark.parametrize("command", [lambda s: start(s, "one"), complete])
def test_a_pass_that_the_operator_switched_off_is_neither_started_nor_committed(command):
    """A policy of the operator may change while the process is down; the pass ends as cancelled."""
    requested = given(OPEN, *chat(79)).when(append(appended(80)), POLICY).after

    outcome = Given(requested).when(command(requested), replace(POLICY, enabled=False))

    (failed,) = outcome.events
    assert isinstance(failed, SummarizationFailed)
    assert failed.error_class is ErrorClass.CANCELLED
    assert outcome.after.pending is None


def test_a_conversation_of_before_that_is_too_small_can_be_renamed():
    """Only new sizes are refused."""
    small = replace(SETTINGS, context_length=240)
    opened = given(replace(OPEN, settings=small))

    assert opened.when(ChangeSettings(replace(small, title="x")), POLICY).after.settings.title == "x"
    opened.when(ChangeSettings(replace(small, context_length=250)), POLICY).then_refused(
        InvalidPolicy, field="context_length"
    )
