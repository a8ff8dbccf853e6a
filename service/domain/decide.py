"""Commands in, events out: what a conversation accepts, and what follows from it.

`decide` is pure: policy, time and ids are in the DecisionContext. The trigger of a pass is among the events of its
cause, so both are in the same commit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from abridged.service.domain.amendments import (
    cancelled_by_pins,
    pending_cancelled,
    require_pins_fit,
    rewound,
    taken_back,
    taken_from_fork,
)
from abridged.service.domain.amendments_fold import with_marks
from abridged.service.domain.clearing import clearable
from abridged.service.domain.commands import (
    Amendment,
    AppendMessages,
    ApplyRules,
    ArchiveConversation,
    ChangeSettings,
    ChangeTitle,
    CloseConversation,
    Command,
    CompletePass,
    ConfirmPurge,
    EndWait,
    EraseConversation,
    FailPass,
    ForkConversation,
    RateSummary,
    RedactMessages,
    ReleasePass,
    RemakeFallback,
    ReopenConversation,
    ReportUsage,
    RequestPass,
    RewindConversation,
    StartPass,
    UnarchiveConversation,
)
from abridged.service.domain.conversation import Conversation, next_remake
from abridged.service.domain.errors import (
    ConversationIsArchived,
    ConversationIsClosed,
    ConversationIsErased,
    ConversationIsOpen,
    ConversationNotFound,
    ForksTooDeep,
    InvalidPolicy,
    PassesDisabled,
    PassSuperseded,
    VersionNotReached,
    WrongMessageVersion,
)
from abridged.service.domain.events import (
    ConversationClosed,
    ConversationErased,
    ConversationForked,
    ConversationOpened,
    ConversationReopened,
    ConversationUnarchived,
    Event,
    MessageAppended,
    PassPlan,
    Settings,
    SettingsChanged,
    SkipReason,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationReleased,
    SummarizationSkipped,
    SummarizationStarted,
    SystemPrompt,
    TextPurged,
    TitleChanged,
    Trigger,
    UsageReported,
)
from abridged.service.domain.fold import evolve, fold, recorded, with_finds, with_rules
from abridged.service.domain.ledger import NO_LEDGER, NOTHING_FOUND, LedgerFinds
from abridged.service.domain.policy import BUDGET_MIN, Policy, wait_after_failures
from abridged.service.domain.profiles.profile import DecisionContext, Profile
from abridged.service.domain.ranges import without
from abridged.service.domain.record import SummaryRecord
from abridged.service.domain.rules import NO_RULES, NO_RULES_FOUND, RuleFinds
from abridged.service.domain.sizes import ledger_limits, rules_limit
from abridged.service.domain.tokens import Taught, TokenSource, calibrated_factor
from abridged.service.domain.triggers import cancelled, closed_with, followed_up, remade, ruled, superseded
from abridged.service.domain.whereabouts import receipt_of
from abridged.service.domain.window import summary_tokens

ANCESTORS_MAX = 64
"""Conversations that a fork may have before it: opening it reads all of them."""


def decide(state: Conversation, command: Command, context: DecisionContext) -> list[Event]:
    """The events that `command` causes; none if it changes nothing. Raises DomainError if it is refused."""
    if state.erased:
        return _of_erased(state, command)
    if state.archive_file:
        return _of_archived(state, command)
    if isinstance(command, AppendMessages):
        return _append(state, command, context)
    if not state.is_open:
        raise ConversationNotFound(state.id)
    if isinstance(command, Amendment):
        return _take_back(state, command, context)
    match command:
        case ChangeSettings():
            return _change_settings(state, command, context)
        case ReportUsage():
            return _report_usage(state, command, context)
        case RequestPass():
            return _request_pass(state, context)
        case RemakeFallback():
            return _remake_fallback(state, context)
        case StartPass():
            return _start(state, command, context)
        case ReleasePass():
            _require_claim(state, command)
            return [SummarizationReleased(command.pass_id)]
        case CompletePass():
            return _complete(state, command, context)
        case FailPass():
            return _fail(state, command, context)
        case EndWait():
            return ruled(state, context._replace(now_us=max(context.now_us, command.until_us)))
        case ApplyRules():
            return ruled(state, context)
        case ForkConversation():
            return _fork(state, command, context)
        case CloseConversation():
            return [] if state.closed else _close(state, context)
        case ReopenConversation():
            return _with_trigger(state, [ConversationReopened()], context) if state.closed else []
        case ChangeTitle():
            named = state.settings.title or state.title == command.title
            outdated = state.redaction != command.redaction
            return [] if named or outdated else [TitleChanged(command.title, command.record_id)]
        case EraseConversation():
            return _erase(state, command)
        case ArchiveConversation():
            return _archive(state, command)
        case UnarchiveConversation():
            return []
        case ConfirmPurge():
            return _purged(state, command)
        case _:
            assert_never(command)


def require_content(state: Conversation) -> None:
    """Raise ConversationIsErased or ConversationIsArchived for a conversation whose content is not in the log."""
    if state.erased:
        raise ConversationIsErased(state.id)
    if state.archive_file:
        raise ConversationIsArchived(state.id, file=state.archive_file)


def _erase(state: Conversation, command: EraseConversation) -> list[Event]:
    if command.unchanged_since_us is not None and state.used_us >= command.unchanged_since_us:
        return []
    return [ConversationErased(state.id, state.message_version, command.erasure_id, command.conversations)]


def _archive(state: Conversation, command: ArchiveConversation) -> list[Event]:
    if not state.closed:
        raise ConversationIsOpen(state.id)
    has_changed = state.event_version != command.archived.events
    return [] if has_changed or state.purge_due or state.pending else [command.archived]


def _of_archived(state: Conversation, command: Command) -> list[Event]:
    match command:
        case ConfirmPurge():
            return _purged(state, command)
        case EraseConversation():
            return _erase(state, command)
        case UnarchiveConversation():
            return [ConversationUnarchived()]
        case ArchiveConversation():
            return []
        case _:
            raise ConversationIsArchived(state.id, file=state.archive_file)


def _of_erased(state: Conversation, command: Command) -> list[Event]:
    if isinstance(command, ConfirmPurge):
        return _purged(state, command)
    if not isinstance(command, EraseConversation):
        raise ConversationIsErased(state.id)
    return []


def _purged(state: Conversation, command: ConfirmPurge) -> list[Event]:
    return [TextPurged(command.event_version)] if 0 < state.purge_due <= command.event_version else []


def _fork(state: Conversation, command: ForkConversation, context: DecisionContext) -> list[Event]:
    """The first events of the fork; `state` is that of the conversation that it begins as."""
    if len(state.ancestors) >= ANCESTORS_MAX:
        raise ForksTooDeep(limit=ANCESTORS_MAX)
    events: list[Event] = [
        ConversationForked(command.fork_id, state.id, state.event_version, state.message_version),
    ]
    if command.settings != state.settings:
        events.append(SettingsChanged(command.settings))
    events += taken_from_fork(state, command)
    return _with_trigger(state, events, context)


def _close(state: Conversation, context: DecisionContext) -> list[Event]:
    cancelled_first = pending_cancelled(state)
    state = fold(((event, context.now_us) for event in cancelled_first), state)
    return [*cancelled_first, ConversationClosed(), *closed_with(state, context)]


def _append(state: Conversation, command: AppendMessages, context: DecisionContext) -> list[Event]:
    _require_not_closed(state)
    require_version(state, command.expected_version)
    before, events = state, list[Event]()
    if command.replace_after is not None:
        new = [counted.message for counted in command.messages]
        events += rewound(state, command.replace_after, context.originals, appended=new)
        state = fold(((event, context.now_us) for event in events), state, originals=lambda _: context.originals)
    if not state.is_open:
        require_possible(command.open_with)
        opened = replace(command.open_with, profile=context.policy.profile)
        events.append(ConversationOpened(command.conversation_id, opened))
    elif command.system_prompt is not None and not command.system_prompt.same_as(_prompt_of(state)):
        prompt = command.system_prompt if command.system_prompt.content else None
        events.append(SettingsChanged(replace(state.settings, system_prompt=prompt)))
    for number, counted in enumerate(command.messages, state.message_version + 1):
        cost = counted.cost
        events.append(MessageAppended(number, counted.message, cost.tokens, cost.source, counted.counter))
    if any(counted.message.pinned for counted in command.messages):
        _require_pins_fit(state, events, context)
        events += cancelled_by_pins(state, [event for event in events if isinstance(event, MessageAppended)])
    return _with_trigger(before, events, context)


def _prompt_of(state: Conversation) -> SystemPrompt:
    return state.settings.system_prompt or SystemPrompt("")


def _require_pins_fit(state: Conversation, events: list[Event], context: DecisionContext) -> None:
    appended = [event for event in events if isinstance(event, MessageAppended) and event.message.pinned]
    pinned = [m for m in state.window if m.number in state.pins]
    opened = state if state.is_open else evolve(state, events[0], context.now_us)
    require_pins_fit(opened, [*pinned, *appended], context.policy)


def _sizes(settings: Settings) -> tuple[int, int]:
    return settings.context_length, settings.reserved_output_tokens


def _change_settings(state: Conversation, command: ChangeSettings, context: DecisionContext) -> list[Event]:
    require_version(state, command.expected_version)
    if _sizes(command.settings) != _sizes(state.settings):
        require_possible(command.settings)
    settings = replace(command.settings, profile=context.policy.profile)
    if settings == state.settings:
        return []
    if settings.profile is not state.settings.profile and (state.shown or state.pending):
        raise InvalidPolicy("profile", "cannot change while the window shows a record or a pass is pending")
    events: list[Event] = [SettingsChanged(settings)]
    if state.pending and not context.policy.enabled:
        events.append(cancelled(state.pending.pass_id, attempts=0))
    return _with_trigger(state, events, context)


def _take_back(state: Conversation, command: Amendment, context: DecisionContext) -> list[Event]:
    if not isinstance(command, RateSummary | RedactMessages):
        _require_not_closed(state)
    if isinstance(command, RewindConversation):
        require_version(state, command.expected_version)
    events = taken_back(state, command, context.policy, context.originals)
    if not events:
        return []
    if state.closed and isinstance(command, RedactMessages):
        after = fold(((event, context.now_us) for event in events), state, originals=lambda _: context.originals)
        return [*events, *closed_with(after, context)]
    return _with_trigger(state, events, context)


def _report_usage(state: Conversation, command: ReportUsage, context: DecisionContext) -> list[Event]:
    """Learn from a report, unless its window is gone or was reported before."""
    if command.message_version > state.message_version:
        raise VersionNotReached(wanted=command.message_version, actual=state.message_version)
    live_id = state.live.id if state.live else ""
    if command.summary_id != live_id or command.message_version <= state.usage_reported_at:
        return []
    if command.epoch != state.epoch and (command.epoch or command.message_version <= state.went_back_at):
        return []
    unsent = [m for m in state.window if m.number > command.message_version]
    exact, estimated = state.uncorrected_tokens
    exact -= sum(m.tokens for m in unsent if m.source is not TokenSource.ESTIMATE)
    estimated -= sum(m.tokens for m in unsent if m.source is TokenSource.ESTIMATE)
    own = Taught(state.settings.calibration_factor, state.usage_reports)
    known = max(own, command.taught, key=lambda taught: taught.reports)
    factor = calibrated_factor(
        known.factor,
        estimated,
        reported=command.prompt_tokens - exact - state.settings.overhead,
        observations=known.reports,
    )
    event = UsageReported(
        command.message_version, live_id, command.prompt_tokens, exact, estimated, factor, known.reports + 1
    )
    return _with_trigger(state, [event], context)


def _request_pass(state: Conversation, context: DecisionContext) -> list[Event]:
    _require_not_closed(state)
    if not context.policy.enabled:
        raise PassesDisabled
    if state.due_pass:
        return []
    event = context.profile.forced(state, context)
    return superseded(state.pending, [event]) if state.pending else [event]


def _remake_fallback(state: Conversation, context: DecisionContext) -> list[Event]:
    past_trigger = state.ratio >= context.profile.trigger_ratio(state, context.policy)
    if not context.policy.enabled or state.pending or past_trigger:
        return []
    stand_in = next_remake(state)
    event = remade(state, stand_in, context) if stand_in else None
    return [event] if event else []


def _start(state: Conversation, command: StartPass, context: DecisionContext) -> list[Event]:
    """Claim the pass, unless another process has claimed it since; a claim that was written unnoticed is followed by
    its own process."""
    _require_pending(state, command.pass_id)
    if command.after != state.claim_token and command.owner != state.claim_owner:
        raise PassSuperseded
    if not context.policy.enabled:
        return [cancelled(command.pass_id, attempts=0)]
    # A claim that its own process has not noticed began no work, so it counts only once.
    is_unnoticed = bool(state.claim_token) and command.after != state.claim_token
    return [SummarizationStarted(command.pass_id, state.claims + (not is_unnoticed), command.owner)]


def _complete(state: Conversation, command: CompletePass, context: DecisionContext) -> list[Event]:
    plan = _require_claim(state, command)
    record = command.record
    assert (record.depth, record.parent_id) == (plan.depth, plan.parent_id), "a record is made as its pass was planned"
    # A prepared record may cover only the beginning of the range.
    assert not without(record.covered, plan.covered), "a record is made as its pass was planned"
    if not context.policy.enabled:
        return [cancelled(command.pass_id, attempts=record.attempts)]
    messages, until_us = _wait(state, context) if _counts_as_failure(state, command) else (0, 0)
    completed = SummarizationCompleted(
        command.pass_id,
        record,
        command.source,
        command.fallback,
        wait_messages=messages,
        wait_until_us=until_us,
        tried=command.tried,
    )
    after = recorded(state, completed, context.now_us)
    if plan.trigger is not Trigger.REMAKE:
        marks = clearable(after, context.policy)
        after = with_marks(after, marks)
        rules = _rules_within_limit(state, after, record, command.rules, context.policy)
        finds = _within_limits(state, with_rules(after, rules), record, command.finds, context.policy)
        after = with_finds(after, finds, rules)
        completed = replace(completed, marks=marks, finds=finds, rules=rules)
    if not _saves_enough(state, after, record, context.profile):
        return _with_trigger(state, [_skipped_no_gain(state, plan, command, context)], context)
    completed = replace(completed, receipt=receipt_of(state, after, command.leaving))
    return [completed, *(followed_up(after, plan, context) or ruled(after, context))]


def _within_limits(
    before: Conversation, after: Conversation, record: SummaryRecord, finds: LedgerFinds, policy: Policy
) -> LedgerFinds:
    """Bound the finds by the most that the ledger may take after the pass."""
    if not finds.entries and not before.ledger.entries:
        return NOTHING_FOUND
    limit, memory = ledger_limits(
        before,
        policy,
        window_tokens=after._replace(ledger=NO_LEDGER).window_tokens,
        record_tokens=summary_tokens(after, record.id),
    )
    return finds._replace(limit_tokens=limit, memory_tokens=memory)


def _rules_within_limit(
    before: Conversation, after: Conversation, record: SummaryRecord, found: RuleFinds, policy: Policy
) -> RuleFinds:
    """Bound the rules by the most that they may take after the pass."""
    if not found.rules and not before.rules.entries:
        return NO_RULES_FOUND
    limit = rules_limit(
        before,
        policy,
        window_tokens=after._replace(ledger=NO_LEDGER, rules=NO_RULES).window_tokens,
        record_tokens=summary_tokens(after, record.id),
    )
    return found._replace(limit_tokens=limit)


def _counts_as_failure(state: Conversation, command: CompletePass) -> bool:
    """A model may be too slow for a window once; if it is twice in a row, the next call waits."""
    stood_in_before = state.live is not None and state.live.id in state.fallback_ids
    return command.model_failed or (command.interrupted and stood_in_before)


def _saves_enough(before: Conversation, after: Conversation, record: SummaryRecord, profile: Profile) -> bool:
    """Return whether the record costs clearly less than the part of the window that it replaces.

    Both sides are counted as the window counts them now: a usage report may have changed that since the plan. A window
    over its budget takes whatever makes it smaller. A remake may cost more than the record it replaces, but not more
    than what both cover, and the window must stay below its trigger.
    """
    plan = before.pending
    assert plan is not None, "a record is of the pending pass"
    gained = before.window_tokens - after.window_tokens
    if plan.trigger is Trigger.REMAKE:
        pays = record.tokens_after <= (1 - plan.policy.min_gain) * plan.replaced_tokens
        return gained >= 0 or (pays and after.ratio < profile.trigger_ratio(after, plan.policy))
    if before.ratio >= plan.policy.emergency_token_ratio:
        return gained > 0
    replaced = gained + summary_tokens(after, record.id)
    return gained > 0 and gained >= plan.policy.min_gain * replaced


def _skipped_no_gain(
    state: Conversation, plan: PassPlan, command: CompletePass, context: DecisionContext
) -> SummarizationSkipped:
    messages, until_us = _wait_after(state, plan, context)
    return SummarizationSkipped(
        SkipReason.NO_GAIN,
        pass_id=command.pass_id,
        attempts=command.record.attempts,
        wait_messages=messages,
        wait_until_us=until_us,
    )


def _fail(state: Conversation, command: FailPass, context: DecisionContext) -> list[Event]:
    plan = _require_claim(state, command)
    messages, until_us = _wait_after(state, plan, context)
    failed = SummarizationFailed(
        pass_id=command.pass_id,
        error_class=command.error_class,
        attempts=command.attempts,
        retryable=command.retryable,
        wait_messages=messages,
        wait_until_us=until_us,
        output_bytes=command.output_bytes,
        output_hash=command.output_hash,
        cause=command.cause,
        asked=command.asked,
        tried=command.tried,
    )
    return _with_trigger(state, [failed], context)


def _wait_after(state: Conversation, plan: PassPlan, context: DecisionContext) -> tuple[int, int]:
    """The wait after a pass without a record; none after a remake, which must not delay any pass."""
    return (0, 0) if plan.trigger is Trigger.REMAKE else _wait(state, context)


def _wait(state: Conversation, context: DecisionContext) -> tuple[int, int]:
    """Messages and the time in microseconds that end the wait after one more failure, whichever comes first."""
    messages, seconds = wait_after_failures(context.policy, failures=state.failures_in_row + 1)
    return messages, context.now_us + seconds * 1_000_000


def _with_trigger(state: Conversation, events: list[Event], context: DecisionContext) -> list[Event]:
    """`events`, followed by what the rules add once after all of them."""
    after = fold(((event, context.now_us) for event in events), state, originals=lambda _: context.originals)
    return [*events, *ruled(after, context)]


def _require_pending(state: Conversation, pass_id: str) -> PassPlan:
    if state.pending is None or state.pending.pass_id != pass_id:
        raise PassSuperseded
    return state.pending


def _require_claim(state: Conversation, command: ReleasePass | CompletePass | FailPass) -> PassPlan:
    """The plan of the pending pass. Raises PassSuperseded for a claim that another has taken the place of: whoever was
    stopped for longer than its lease ends nothing."""
    plan = _require_pending(state, command.pass_id)
    if command.token != state.claim_token:
        raise PassSuperseded
    return plan


def _require_not_closed(state: Conversation) -> None:
    if state.closed:
        raise ConversationIsClosed("the conversation is closed; reopen it first")


def require_version(state: Conversation, expected: int | None) -> None:
    """Raise WrongMessageVersion unless the conversation has the number of messages that the caller expects, if any."""
    if expected is not None and expected != state.message_version:
        raise WrongMessageVersion(expected=expected, actual=state.message_version)


def require_possible(settings: Settings) -> None:
    """Raise InvalidPolicy for settings that leave no room for a record that says something, and messages beside it."""
    if settings.context_length < BUDGET_MIN:
        raise InvalidPolicy("context_length", f"must be at least {BUDGET_MIN}")
    if settings.context_length - settings.reserved_output_tokens < BUDGET_MIN:
        raise InvalidPolicy("reserved_output_tokens", f"must leave {BUDGET_MIN} tokens of the context length")
