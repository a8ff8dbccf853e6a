"""Profile ROLLING: several records side by side, each for the messages after those of the one before it.

A pass updates the newest record in its place until that is full; then the next one begins. The oldest two records
become one when records take more than their share of the budget. Every record stands alone.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Final, NamedTuple

from abridged.service.domain.chunks import calls_needed
from abridged.service.domain.conversation import Conversation, ShownRecord
from abridged.service.domain.errors import NothingToSummarize
from abridged.service.domain.events import (
    MessageAppended,
    PassPlan,
    SkipReason,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from abridged.service.domain.exchanges import answered_since, exchanges, whole_before_kept
from abridged.service.domain.message import Role
from abridged.service.domain.policy import (
    RECORD_TOKENS_MIN,
    SUMMARY_TOKENS_MIN,
    Policy,
    ProfileName,
    largest_summary,
)
from abridged.service.domain.portion import compressible, prompt_tokens
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy, may_report_irreducible, planned
from abridged.service.domain.ranges import merged
from abridged.service.domain.record import FormName, MessageRange, SummaryRecord
from abridged.service.domain.sizes import LEDGER_WITHOUT_ROOM, ledger_tokens, record_sizes, rules_tokens
from abridged.service.domain.window import (
    TAIL_MESSAGES_MIN,
    WindowSplit,
    counted_tokens,
    summary_tokens,
    tool_pairs,
    tool_units,
)

FULL_SHARE: Final = 7 / 8
"""Share of its limit at which a record is full: summarizers write whole sentences and stop short of the limit, and what
is left would hold no more than one of them."""


def defaults() -> Policy:
    return Policy(
        profile=ProfileName.ROLLING,
        preserve_recent=4,
        max_summary_tokens=800,
        record_form=FormName.TEXT,
        max_ledger_tokens=LEDGER_WITHOUT_ROOM,
    )


def trigger_ratio(state: Conversation, policy: Policy) -> float:
    """The ratio is 0 past threshold_messages: such a window is past its trigger at any ratio."""
    return 0.0 if _messages_due(state, policy) else _token_trigger(state, policy)


def due(
    state: Conversation, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | SummarizationSkipped | None:
    """IRREDUCIBLE is said once for a window, and not for its number of messages alone."""
    policy = context.policy
    trigger = _trigger(state, policy)
    if trigger is None:
        return None
    plan = _compressing(state, context, trigger, extractive=extractive)
    if plan is None and trigger is Trigger.EMERGENCY:
        plan = _merging(state, context, trigger, extractive=extractive)
    if plan is not None:
        return SummarizationRequested(plan)
    says = state.ratio >= _token_trigger(state, policy) and may_report_irreducible(
        state, messages=policy.min_new_messages
    )
    return SummarizationSkipped(SkipReason.IRREDUCIBLE) if says else None


def forced(state: Conversation, context: DecisionContext) -> SummarizationRequested:
    plan = _compressing(state, context, Trigger.FORCED)
    if plan is None:
        raise NothingToSummarize
    return SummarizationRequested(plan)


def follow_up(
    state: Conversation, ended: PassPlan, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | None:
    """Records over their share are merged; then comes what a cut range left, as often as there is some.

    A window that is past trigger_token_ratio all the same gets one more pass, with a tail of two.
    """
    if ended.trigger is Trigger.FOLLOW_UP and not ended.cut:
        return None
    policy, plan = context.policy, None
    if summary_tokens(state) > policy.record_token_ratio * state.budget:
        plan = _merging(state, context, Trigger.FOLLOW_UP, extractive=extractive, cut=ended.cut)
    if plan is None and ended.cut and state.ratio >= trigger_ratio(state, policy):
        plan = _compressing(state, context, Trigger.FOLLOW_UP, extractive=extractive)
    if plan is None and state.ratio >= policy.trigger_token_ratio:
        plan = _compressing(state, context, Trigger.FOLLOW_UP, extractive=extractive, tail_messages=TAIL_MESSAGES_MIN)
    return SummarizationRequested(plan) if plan else None


def closing(_state: Conversation, _context: DecisionContext, *, extractive: bool) -> None:  # noqa: ARG001 - see Profile
    """Return no plan: a closed window stays as it is."""
    return


def idle_from_us(_state: Conversation, _policy: Policy) -> int:
    """Return 0, for never: no pass waits until the user is silent."""
    return 0


def ahead(_state: Conversation, _context: DecisionContext) -> None:
    """Foresees nothing: messages trigger its passes, whatever the ratio."""
    return


def held_by(state: Conversation, policy: Policy) -> HeldBy | None:
    trigger = _trigger(state, policy)
    if trigger is None:
        return HeldBy.COOLDOWN if state.completed_passes else HeldBy.MIN_MESSAGES
    if _portion(state, policy) or (trigger is Trigger.EMERGENCY and _may_merge(state)):
        return None
    return HeldBy.IRREDUCIBLE


class _Portion(NamedTuple):
    """The portion of a pass: messages, and the record that the new one takes the place of.

    `kept_tokens` is what the window costs without both and without the new record, overhead included.
    """

    division: WindowSplit
    revised: SummaryRecord | None
    kept_tokens: int


def _messages_due(state: Conversation, policy: Policy) -> bool:
    return state.chat_messages - len(state.pins) > policy.threshold_messages


def _token_trigger(state: Conversation, policy: Policy) -> float:
    """The ratio of a window with more than threshold_tokens, or trigger_token_ratio where that is less."""
    over_threshold = policy.threshold_tokens + 1 + state.settings.overhead
    return min(policy.trigger_token_ratio, over_threshold / state.budget)


def _trigger(state: Conversation, policy: Policy) -> Trigger | None:
    """Return the trigger of a due pass, once enough new messages have come; an emergency does not wait for them."""
    if state.ratio >= policy.emergency_token_ratio:
        return Trigger.EMERGENCY
    if not state.redo_due and state.messages_since_pass < policy.min_new_messages:
        return None
    is_full = state.ratio >= _token_trigger(state, policy)
    if not is_full and not _messages_due(state, policy):
        return None
    if not state.redo_due and not _enough_exchanges(state, policy):
        return None
    return Trigger.RATIO if is_full else Trigger.PERIODIC


def _enough_exchanges(state: Conversation, policy: Policy) -> bool:
    """Return whether min_new_exchanges were answered since the last pass; looks at no message before it."""
    if not policy.min_new_exchanges:
        return True
    since = state.message_version - state.messages_since_pass
    return answered_since(state.window, since) >= policy.min_new_exchanges


def _fitted(state: Conversation, policy: Policy) -> Policy:
    """The policy with records no larger than their share of the budget."""
    share = max(SUMMARY_TOKENS_MIN, int(policy.record_token_ratio * state.budget))
    return replace(policy, max_summary_tokens=min(largest_summary(policy, budget=state.budget), share))


def _portion(state: Conversation, policy: Policy, *, tail_messages: int = 0, whole: bool = False) -> _Portion | None:
    """Return the portion of a pass, with a tail of `tail_messages` or of preserve_recent."""
    newest = state.live
    revised = None if newest is None or _is_full(state, newest, policy) else newest
    view = _with_records_as_overhead(state, state.shown[:-1] if revised else state.shown)
    tail = tail_messages or policy.preserve_recent
    division = compressible(view, _fitted(state, policy), tail_messages=tail, whole=whole)
    if division is not None and policy.min_new_exchanges and state.ratio < policy.emergency_token_ratio:
        division = _whole_exchanges(state, policy, division)
    if division is None:
        return None
    return _older_first(state, policy, _Portion(division, revised, division.kept_tokens))


def _whole_exchanges(state: Conversation, policy: Policy, division: WindowSplit) -> WindowSplit | None:
    """The split without the messages of an exchange of which others stay; None if the rest is not worth a pass."""
    chat: list[MessageAppended] = []
    last = max(m.number for m in division.dropped)
    for m in state.window:
        if m.message.role is not Role.SYSTEM:
            chat.append(m)
        # The message after them says whether their exchange goes on.
        if chat and chat[-1].number > last:
            break
    dropped = {m.number for m in division.dropped}
    whole = whole_before_kept(exchanges(chat, messages_max=len(chat)), dropped, state.pins)
    left = tuple(m for unit in whole for m in unit)
    tokens = counted_tokens(left, state.settings.calibration_factor)
    if tokens < policy.min_range_tokens:
        return None
    kept_tokens = division.kept_tokens + division.dropped_tokens - tokens
    return replace(division, dropped=left, dropped_tokens=tokens, kept_tokens=kept_tokens)


def _with_records_as_overhead(state: Conversation, beside: tuple[ShownRecord, ...]) -> Conversation:
    """The state for a pass that leaves these records as they are: to it they are the caller's own tokens."""
    names = [shown.record.id for shown in beside]
    if not names:
        return state
    overhead = state.settings.overhead_tokens + summary_tokens(state, *names)
    return state._replace(
        shown=tuple(shown for shown in state.shown if shown.record.id not in names),
        settings=replace(state.settings, overhead_tokens=overhead),
    )


def _older_first(state: Conversation, policy: Policy, portion: _Portion) -> _Portion:
    """The part of the portion that is older than the newest record's end, if it is worth a record of its own: messages
    that came back when the record before it was revoked. The part's record stands before the newest one, which stays as
    it is.
    """
    newest, division = state.live, portion.division
    if newest is None:
        return portion
    units = tool_units(division.dropped, tool_pairs(division.dropped))
    whole = (unit for unit in units if unit[-1].number < newest.covered[-1].last)
    older = tuple(sorted((m for unit in whole for m in unit), key=attrgetter("number")))
    tokens = counted_tokens(older, state.settings.calibration_factor)
    if tokens < policy.min_range_tokens:
        return portion
    kept_tokens = portion.kept_tokens + division.dropped_tokens - tokens
    if portion.revised is not None:
        kept_tokens += summary_tokens(state, portion.revised.id)
    return _Portion(replace(division, dropped=older, dropped_tokens=tokens), None, kept_tokens)


def _is_full(state: Conversation, record: SummaryRecord, policy: Policy) -> bool:
    """Return whether a record holds what it may, or stands for more than could be read again within bounds."""
    if record.tokens_after >= FULL_SHARE * _fitted(state, policy).max_summary_tokens:
        return True
    return not _is_readable(state, record.covered_tokens, policy, calls=policy.rebase_calls_max)


def _is_readable(state: Conversation, tokens: int, policy: Policy, *, calls: int) -> bool:
    size = _fitted(state, policy).max_summary_tokens
    return calls_needed(tokens, chunk_tokens=policy.max_input_tokens, summary_tokens=size) <= calls


def _is_no_base(state: Conversation, record: SummaryRecord, policy: Policy, *, extractive: bool) -> bool:
    """Return whether a record's text should not be continued where its originals can be read: it stands in for the one
    of a model, which can be asked now, or it went through too many records.
    """
    stands_in = record.id in state.fallback_ids and not extractive
    return stands_in or record.rewrites >= policy.rewrites_max


def _compressing(
    state: Conversation,
    context: DecisionContext,
    trigger: Trigger,
    *,
    extractive: bool = False,
    tail_messages: int = 0,
) -> PassPlan | None:
    """Return the pass that takes messages out of the window; None if it would not pay."""
    policy = context.policy
    portion = _portion(state, policy, tail_messages=tail_messages, whole=extractive)
    if portion is None:
        return None
    division, revised, kept_tokens = portion
    taken, read = division.ranges, division.ranges
    covered_tokens = prompt_tokens(division.dropped, policy)
    revised_tokens, base = 0, revised
    if revised is not None:
        taken = merged((*revised.covered, *taken))
        covered_tokens += revised.covered_tokens
        revised_tokens = summary_tokens(state, revised.id)
        readable = _is_readable(state, covered_tokens, policy, calls=policy.rebase_calls_max)
        if readable and _is_no_base(state, revised, policy, extractive=extractive):
            base, read = None, taken
    replaced_tokens = division.dropped_tokens + revised_tokens
    return _sized(
        state,
        replace(
            planned(state, context, trigger, taken, replaced_tokens=replaced_tokens, extractive=extractive),
            source=read,
            base_id=base.id if base else "",
            parent_id=revised.id if revised else "",
            covered_tokens=covered_tokens,
            rewrites=base.rewrites + 1 if base else 0,
            cut=division.cut,
            beside_ids=_ids(state.shown[:-1] if revised else state.shown),
            form=policy.record_form,
            label=_label(division.ranges),
        ),
        kept_tokens=kept_tokens,
        revised_tokens=revised_tokens,
    )


def _may_merge(state: Conversation) -> bool:
    """Return whether the oldest two records take clearly more than the smallest one would."""
    return len(state.shown) > 1 and summary_tokens(state, *_ids(state.shown[:2])) > 2 * RECORD_TOKENS_MIN


def _merging(
    state: Conversation, context: DecisionContext, trigger: Trigger, *, extractive: bool, cut: bool = False
) -> PassPlan | None:
    """The pass that makes one record of the oldest two: from all their originals where one call holds them, else from
    the oldest one's text and the other's originals. A record is full before these are too many to read.
    """
    if not _may_merge(state):
        return None
    policy = context.policy
    oldest, other = state.shown[0].record, state.shown[1].record
    covered = merged((*oldest.covered, *other.covered))
    covered_tokens = oldest.covered_tokens + other.covered_tokens
    calls = policy.rebase_calls_max if _is_no_base(state, oldest, policy, extractive=extractive) else 1
    whole = _is_readable(state, covered_tokens, policy, calls=calls)
    replaced_tokens = summary_tokens(state, oldest.id, other.id)
    beside = rules_tokens(state) + ledger_tokens(state)
    return _sized(
        state,
        replace(
            planned(state, context, trigger, covered, replaced_tokens=replaced_tokens, extractive=extractive),
            source=covered if whole else other.covered,
            base_id="" if whole else oldest.id,
            parent_id=oldest.id,
            covered_tokens=covered_tokens,
            rewrites=0 if whole else oldest.rewrites + 1,
            cut=cut,
            beside_ids=_ids(state.shown[2:]),
            form=policy.record_form,
            merged_ids=(oldest.id, other.id),
            label=_label(covered),
        ),
        kept_tokens=state.window_tokens + state.settings.overhead - replaced_tokens - beside,
    )


def _sized(state: Conversation, plan: PassPlan, *, kept_tokens: int, revised_tokens: int = 0) -> PassPlan:
    policy = _fitted(state, plan.policy)
    cap, room = record_sizes(
        state,
        policy,
        kept_tokens=kept_tokens,
        replaced_tokens=plan.replaced_tokens,
        revised_tokens=revised_tokens,
    )
    return replace(plan, summary_tokens_max=cap, room_tokens=room)


def _ids(shown: tuple[ShownRecord, ...]) -> tuple[str, ...]:
    return tuple(one.record.id for one in shown)


def _label(ranges: tuple[MessageRange, ...]) -> str:
    return f"{ranges[0].first}-{ranges[-1].last}"
