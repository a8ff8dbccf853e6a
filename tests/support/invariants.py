"""Invariants that hold after every step of every chat. Each function raises Violation with its finding; none shares
code with the domain's rules, so that a mistake there does not hide itself, unless it says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from abridged.service.domain.commands import CompletePass, FailPass, StartPass
from abridged.service.domain.conversation import Conversation, lineage
from abridged.service.domain.events import (
    ConversationRewound,
    MessageAppended,
    MessagesPinned,
    MessagesRedacted,
    MessagesUnpinned,
    RulesDropped,
    SettingsChanged,
    SkipReason,
    SummarizationCleared,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationRequested,
    SummarizationSkipped,
    SummaryRevoked,
    Trigger,
)
from abridged.service.domain.fold import evolve
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import RECORD_TOKENS_MIN, DepthLimit, Fallback, Policy
from abridged.service.domain.portion import compressible
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.ranges import covers
from abridged.service.domain.receipt import ReceiptKind, ReceiptPlace
from abridged.service.domain.render import RenderedMessage
from abridged.service.domain.tokens import TokenSource
from abridged.service.domain.triggers import ruled
from abridged.service.domain.window import counted_tokens, tool_pairs, tool_units
from tests.support.simulation import Step


class Violation(AssertionError):
    """An invariant does not hold."""


def one_pass_at_a_time(step: Step) -> None:
    """A pass is requested only when none is pending, and a command requests at most one."""
    state, requested = step.before, 0
    for event in step.events:
        if isinstance(event, SummarizationRequested):
            requested += 1
            _require(state.pending is None, "a pass was requested while one was pending")
        state = evolve(state, event, step.now_us)
    _require(requested <= 1, "one command requested two passes")


def two_passes_a_trigger(step: Step) -> None:
    """A follow-up comes right after the record that it follows; behind it come only passes that newer messages cause.

    A cut range alone is followed up until nothing of it is left.
    """
    ended = step.before.pending
    for previous, event in zip((None, *step.events), step.events, strict=False):
        if not isinstance(event, SummarizationRequested):
            continue
        if event.plan.trigger is Trigger.FOLLOW_UP:
            follows = isinstance(previous, SummarizationCompleted) and ended is not None
            _require(follows, "a follow-up followed no record")
            once = ended is not None and (ended.cut or ended.trigger is not Trigger.FOLLOW_UP)
            _require(once, "a follow-up followed a follow-up")
        elif ended is not None and ended.trigger is Trigger.FOLLOW_UP and not (ended.cut or event.plan.extractive):
            _require(step.before.message_version > ended.message_version, "a third pass came without a new message")


def cut_from_the_oldest(step: Step) -> None:
    """A cut range takes the oldest messages, and leaves more than the last exchange.

    A call stays behind with a result that came late.
    """
    state = step.before
    for event in step.events:
        if isinstance(event, SummarizationRequested) and event.plan.cut and event.plan.trigger is not Trigger.REMAKE:
            chat = [m for m in state.window if m.message.role is not Role.SYSTEM]
            last = max(m.number for m in chat if covers(event.plan.covered, m.number))
            users = [m.number for m in chat if m.message.role is Role.USER]
            calls = [number for number, _ in tool_pairs(chat).pending]
            bound = min((_start_of_unit(chat, n) for n in [*users[-1:], *calls]), default=last)
            passed = [m.number for m in chat if m.number <= last and not covers(event.plan.covered, m.number)]
            ends = {m.number: unit[-1].number for unit in tool_units(chat, tool_pairs(chat)) for m in unit}
            _require(all(n >= bound or ends[n] > last for n in passed), "a cut range left older messages behind")
            _require(sum(m.number > last for m in chat) > 1, "a range was cut at the last exchange")
            _require(not event.plan.extractive, "an extract's range was cut")
        state = evolve(state, event, step.now_us)


def no_record_grows_the_window(step: Step) -> None:
    """A record makes the window smaller; a remade one at least does not bring it to its trigger."""
    state = step.before
    for event in step.events:
        after = evolve(state, event, step.now_us)
        if isinstance(event, SummarizationCompleted):
            plan = state.pending
            assert plan is not None
            shrinks = after.window_tokens < state.window_tokens
            remade = plan.trigger is Trigger.REMAKE and (
                after.window_tokens <= state.window_tokens or after.ratio < plan.policy.trigger_token_ratio
            )
            _require(shrinks or remade, "a record made the window larger")
        state = after


def receipts_are_whole(step: Step) -> None:
    """Each message that a pass took out, or whose text it cleared, is in its receipt once, and nothing is gone."""
    state = step.before
    for event in step.events:
        after = evolve(state, event, step.now_us)
        if isinstance(event, SummarizationCompleted | SummarizationCleared):
            _require(event.receipt is not None, "a pass has no receipt")
            assert event.receipt is not None
            left = len(state.window) - len(after.window) + len(after.marks) - len(state.marks)
            counted = sum(line.count for line in event.receipt.lines if line.kind is ReceiptKind.MESSAGE)
            _require(counted == left, f"{left} messages left, and {counted} are accounted for")
            _require(event.receipt.count(ReceiptPlace.GONE) == 0, "a message is gone")
        state = after


def over_budget_has_a_reason(step: Step) -> None:
    """A window in an emergency is being compressed, or there is a reason why it is not."""
    state, policy = step.after, step.policy
    if not state.is_open or state.ratio < max(1.0, policy.emergency_token_ratio):
        return
    depth = state.live.depth + 1 if state.live else 0
    halted = policy.on_depth_limit is DepthLimit.HALT and depth >= policy.max_summary_chain_depth
    last = state.passes[-1] if state.passes else None
    in_vain = last is not None and last.plan.extractive and not last.record_id
    excused = (
        state.pending is not None
        or not policy.enabled
        or halted
        or (state.waiting(step.now_us) and (policy.fallback is Fallback.NEVER or in_vain))
        or compressible(state, policy, tail_messages=policy.preserve_recent) is None
    )
    _require(excused, "a window over its budget was left alone")


def hold_is_told(state: Conversation, policy: Policy, now_us: int, *, held: HeldBy | None) -> None:
    """Past the trigger the rules begin a pass now, or `held` says why they do not; below it, and in a closed
    conversation, nothing is held.

    `ruled` is asked here too: this is about two tellings of the same rules.
    """
    profile = profile_of(policy.profile)
    if state.ratio < profile.trigger_ratio(state, policy):
        _require(held is None, "a window below its trigger is said to be held")
        return
    if state.closed:
        _require(held is None, "a closed conversation is said to be held")
        _require(not ruled(state, DecisionContext(profile, policy, now_us, "x")), "a closed conversation begins a pass")
        return
    events = ruled(state, DecisionContext(profile, policy, now_us, "x"))
    begins = any(isinstance(event, SummarizationRequested) for event in events)
    _require(not begins or held is None, f"a pass begins although it is said to be held by {held}")
    _require(begins or held is not None, "no pass begins, and nothing is said to hold it")


def coverage_is_exact(state: Conversation) -> None:
    """Every message is in the window or in the range of a live record, and never in both."""
    inside = [m.number for m in state.window]
    covered = {n for record in lineage(state) for r in record.covered for n in range(r.first, r.last + 1)}
    _require(inside == sorted(set(inside)), "the window is not in order")
    _require(not covered & set(inside), "a message is both covered and in the window")
    _require(covered | set(inside) == set(range(1, state.message_version + 1)), "a message is neither here nor there")


def tail_is_verbatim(state: Conversation, originals: Mapping[int, Message]) -> None:
    """The newest message and the newest of the user are in the window, and all that is there is as it came."""
    chat = [n for n, m in sorted(originals.items()) if m.role is not Role.SYSTEM]
    users = [n for n in chat if originals[n].role is Role.USER]
    inside = {m.number: m.message for m in state.window}
    for number in {*chat[-1:], *users[-1:]}:
        _require(number in inside, "a message of the tail has left the window")
    for number, message in inside.items():
        as_it_came = message is originals[number] or number in state.marks
        _require(as_it_came, "a message of the window is not as it came")


def exchange_is_verbatim(step: Step) -> None:
    """The last message but one is covered only where the window could not hold it beside all that must stay."""
    state = step.before
    for event in step.events:
        if isinstance(event, SummarizationRequested) and event.plan.trigger is not Trigger.REMAKE:
            chat = [m for m in state.window if m.message.role is not Role.SYSTEM]
            covered = {m.number for m in chat if covers(event.plan.covered, m.number)}
            if len(chat) > 1 and chat[-2].number in covered:
                kept = [m for m in state.window if m.number not in covered]
                unit = [m for m in chat if m.number in covered and m.number >= _start_of_unit(chat, chat[-2].number)]
                factor = state.settings.calibration_factor
                needed = counted_tokens([*kept, *unit], factor) + state.settings.overhead_tokens
                _require(needed + RECORD_TOKENS_MIN > state.budget, "the last exchange was not kept")
        state = evolve(state, event, step.now_us)


def _start_of_unit(chat: Sequence[MessageAppended], start: int) -> int:
    """The number of the first message that belongs to message `start`; the domain tells which are paired."""
    for (call, _), answer in tool_pairs(chat).results.items():
        if call < start <= answer:
            start = call
    return start


def calls_are_answered(rendered: Sequence[RenderedMessage], originals: Mapping[int, Message]) -> None:
    """A rendered result follows its rendered call, and a call without result stands behind the newest user message."""
    waiting: dict[str, int] = {}
    for m in rendered:
        if m.number and originals[m.number].role is Role.USER:
            _require(not waiting, "a call that nobody answered stands before a user message")
        elif m.message.role is Role.ASSISTANT:
            for call in m.message.tool_calls:
                waiting[call.id] = waiting.get(call.id, 0) + 1
        elif m.message.role is Role.TOOL:
            left = waiting.pop(m.message.tool_call_id, 0) - 1
            _require(left >= 0, "a result follows no call of its id")
            if left:
                waiting[m.message.tool_call_id] = left


def order_is_fixed(state: Conversation, rendered: Sequence[RenderedMessage]) -> None:
    """System messages, then the summary, then the others, each in order but late results, and none left out."""
    places = [0 if m.number and m.message.role is Role.SYSTEM else 1 if m.tag else 2 for m in rendered]
    late = _late_results(state)
    keys = [(place, m.number) for place, m in zip(places, rendered, strict=True) if m.number not in late]
    _require(keys == sorted(keys), "the window is not rendered in order")
    _require(places.count(1) == len(state.shown), "a record is not rendered once")
    _require({m.number for m in rendered if m.number} == {m.number for m in state.window}, "the rendering lacks one")


def _late_results(state: Conversation) -> set[int]:
    pairs = tool_pairs(m for m in state.window if m.message.role is not Role.SYSTEM)
    return {pairs.results[call] for call in pairs.late}


def prefix_is_stable(step: Step, before: Sequence[RenderedMessage], after: Sequence[RenderedMessage]) -> None:
    """The rendered window only grows at its end, except by passes and ways back.

    Three things change it by their nature: a system message, which goes to the front, a user message, which settles
    that a call before it is not answered in time, and a result that comes all the same, which goes to its call.
    """
    passes = SummarizationCompleted | SummarizationCleared
    amendments = (
        SummaryRevoked | MessagesPinned | MessagesUnpinned | RulesDropped | ConversationRewound | MessagesRedacted
    )
    if any(isinstance(event, passes | amendments) for event in step.events) or not step.before.is_open:
        return
    new = [event.message for event in step.events if isinstance(event, MessageAppended)]
    if any(m.role is Role.SYSTEM for m in new) or _late_results(step.after) - _late_results(step.before):
        return
    user_spoke = any(m.role is Role.USER for m in new)
    for old, now in zip(before, after[: len(before)], strict=True):
        settled = user_spoke and len(now.message.tool_calls) < len(old.message.tool_calls)
        _require(old.message == now.message or settled, "a message that was sent is rendered in another way")


def newest_stays_after_a_rewind(step: Step) -> None:
    """The newest message that a rewind leaves stands in the window, not in a record alone."""
    if not step.events or not isinstance(step.events[-1], ConversationRewound):
        return
    after = step.after
    left = (n for n in range(after.message_version, 0, -1) if not covers(after.removed, n))
    newest = next(left, 0)
    in_window = {m.number for m in after.window}
    _require(
        not newest or newest in in_window, f"message {newest}, the newest that a rewind left, is in a record alone"
    )


def rules_are_as_said(state: Conversation, rendered: Sequence[RenderedMessage]) -> None:
    """The newest record has a line for each rule that is shown, and none for those that the window says anyway."""
    inside = {m.number for m in state.window}
    summaries = [m.message.content for m in rendered if m.tag]
    for rule in state.rules.in_window:
        _require(not rule.dropped and not rule.revoked_by, "a rule is shown that does not stand")
        _require(rule.number not in inside, "a rule is shown beside its message")
        _require(f"- {rule.text} [{rule.number}]" in summaries[-1].splitlines(), "a rule is not shown as it was said")
    _require(state.rules.tokens <= state.rules.limit_tokens, "the rules are over their limit")


def said_once(steps: Iterable[Step]) -> None:
    """IRREDUCIBLE and DEPTH_LIMIT are said once for a window, IRREDUCIBLE again only after the cooldown."""
    irreducible_at: int | None = None
    depth_limit_said = False
    for step in steps:
        state = step.before
        for event in step.events:
            if isinstance(event, SummarizationCompleted | SettingsChanged):
                irreducible_at, depth_limit_said = None, False
            elif isinstance(event, SummarizationSkipped) and event.reason is SkipReason.IRREDUCIBLE:
                since = None if irreducible_at is None else state.message_version - irreducible_at
                _require(since is None or since >= max(1, step.policy.cooldown_messages), "IRREDUCIBLE was said again")
                irreducible_at = state.message_version
            elif isinstance(event, SummarizationSkipped) and event.reason is SkipReason.DEPTH_LIMIT:
                _require(not depth_limit_said, "DEPTH_LIMIT was said again")
                depth_limit_said = True
            state = evolve(state, event, step.now_us)


def depth_is_bounded(step: Step) -> None:
    """No pass is planned beyond the depth that the policy allows.

    A record that stands alone begins a chain, at depth 1 when it continues another; a follow-up may finish one.
    """
    for event in step.events:
        if not isinstance(event, SummarizationRequested) or event.plan.trigger is Trigger.REMAKE:
            continue
        plan = event.plan
        most = 1 if plan.rebase else plan.policy.max_summary_chain_depth - 1
        halts = plan.policy.on_depth_limit is DepthLimit.HALT
        _require(plan.depth <= most + (halts and plan.trigger is Trigger.FOLLOW_UP), "a chain is deeper than allowed")


def every_end_is_final(step: Step) -> None:
    """A pass that failed or saved too little is over and leaves a wait; one that was cancelled, and a remake, none."""
    ended = step.before.pending
    for event in step.events:
        if not isinstance(event, SummarizationFailed | SummarizationSkipped) or not event.pass_id:
            continue
        assert ended is not None
        pending = step.after.pending
        _require(pending is None or pending.pass_id != ended.pass_id, "an ended pass is pending")
        if ended.trigger is Trigger.REMAKE:
            _require(not event.wait_until_us, "a remake holds passes back")
            continue
        cancelled = not event.wait_until_us
        _require(cancelled or step.after.waiting(step.now_us), "a failure was not waited after")
        _require(not cancelled or not step.policy.enabled, "a pass was cancelled that was wanted")


def passes_are_bounded(steps: Iterable[Step]) -> None:
    """Every pass has a cause: each command that is not the end of one leads to two, and each may need a stand-in.

    One whose range was cut leads to another.
    """
    steps = list(steps)
    causes = sum(not isinstance(s.command, StartPass | CompletePass | FailPass) for s in steps)
    plans = [e.plan for s in steps for e in s.events if isinstance(e, SummarizationRequested)]
    passes = sum(not plan.cut for plan in plans)
    _require(passes <= 4 * causes, "there are more passes than causes")


def sums_are_exact(state: Conversation) -> None:
    """The sums that the fold keeps are those of the messages in the window."""
    exact = sum(m.tokens for m in state.window if m.source is not TokenSource.ESTIMATE)
    estimated = sum(m.tokens for m in state.window if m.source is TokenSource.ESTIMATE)
    chat = sum(m.message.role is not Role.SYSTEM for m in state.window)
    kept = (state.exact_tokens, state.estimated_tokens, state.chat_messages)
    _require(kept == (exact, estimated, chat), "the kept sums are wrong")
    _require(state.lowest_ratio_since_pass <= state.ratio, "the lowest ratio is above the ratio")


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise Violation(sentence)
