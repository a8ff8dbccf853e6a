"""Parts of chats in tests: settings, messages with a known cost, records that fit their pass."""

from __future__ import annotations

from collections.abc import Iterable

from abridged.service.domain.commands import AppendMessages, CompletePass, CountedMessage, FailPass, StartPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import (
    ConversationOpened,
    ErrorClass,
    Event,
    MessageAppended,
    PassPlan,
    Settings,
    SummarizationCompleted,
    SummarizationRequested,
)
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.receipt import (
    ITEMS_MAX,
    Receipt,
    ReceiptItem,
    ReceiptKind,
    ReceiptLine,
    ReceiptPlace,
)
from abridged.service.domain.record import (
    EpisodeFigures,
    FormName,
    MessageRange,
    Provenance,
    RecordContext,
    SummaryRecord,
)
from abridged.service.domain.tokens import TokenCount, TokenSource

SETTINGS = Settings(model="ollama:chat", context_length=1_000)
"""A budget of 1,000 tokens: a message of ten is a hundredth of it."""

OPEN = ConversationOpened("c", SETTINGS)


def said(number: int, role: Role = Role.USER, content: str | None = None) -> Message:
    """Message `number` of a chat."""
    return Message(f"m{number}", role, f"message {number}" if content is None else content)


def calling(number: int, *ids: str, content: str = "") -> Message:
    """An assistant message with tool calls of these ids."""
    return Message(f"m{number}", Role.ASSISTANT, content, tool_calls=tuple(ToolCall(i, "search", "{}") for i in ids))


def result(number: int, call_id: str, content: str = "found") -> Message:
    """A tool's result."""
    return Message(f"m{number}", Role.TOOL, content, tool_call_id=call_id)


def appended(
    number: int, tokens: int = 10, *, message: Message | None = None, source: TokenSource = TokenSource.CALLER
) -> MessageAppended:
    """The event of a message; user and assistant take turns unless `message` says otherwise."""
    role = Role.USER if number % 2 else Role.ASSISTANT
    return MessageAppended(number, message or said(number, role), tokens, source, "test")


def chat(count: int, tokens: int = 10, *, first: int = 1) -> list[Event]:
    """Return `count` messages that take turns, of `tokens` tokens each."""
    return [appended(number, tokens) for number in range(first, first + count)]


def spoken(messages: Iterable[Message], tokens: int = 10) -> list[MessageAppended]:
    """The events of these messages, numbered from 1."""
    return [appended(number, tokens, message=message) for number, message in enumerate(messages, 1)]


def append(*events: Event, settings: Settings = SETTINGS) -> AppendMessages:
    """The command that leads to these events."""
    messages = tuple(
        CountedMessage(e.message, TokenCount(e.tokens, e.source), e.counter)
        for e in events
        if isinstance(e, MessageAppended)
    )
    return AppendMessages("c", messages, settings)


def only_plan(events: Iterable[Event]) -> PassPlan:
    """The plan of the one pass that is requested among `events`."""
    (plan,) = [event.plan for event in events if isinstance(event, SummarizationRequested)]
    return plan


def ranges(*bounds: tuple[int, int]) -> tuple[MessageRange, ...]:
    """Message ranges."""
    return tuple(MessageRange(first, last) for first, last in bounds)


def pending_in(state: Conversation) -> PassPlan:
    """The plan of the pending pass."""
    assert state.pending is not None
    return state.pending


def live_in(state: Conversation) -> SummaryRecord:
    """The live record."""
    assert state.live is not None
    return state.live


def record_for(plan: PassPlan, *, tokens: int = 50, record_id: str = "", summary: str = "A summary.") -> SummaryRecord:
    """A record that is made as `plan` says; an episode's short text takes a quarter of its long one."""
    is_episode = plan.form is FormName.EPISODE
    return SummaryRecord(
        id=record_id or f"summary-{plan.pass_id}",
        create_time_us=1,
        depth=plan.depth,
        parent_id=plan.parent_id,
        summary=summary,
        key_points=(),
        context=RecordContext(),
        covered=plan.covered,
        tokens_before=plan.replaced_tokens,
        tokens_after=tokens,
        model="scripted:test",
        prompt_name="chain",
        prompt_version="1",
        provenance=Provenance.REBASED if plan.rebase else Provenance.MODEL,
        attempts=1,
        latency_ms=5,
        covered_tokens=plan.covered_tokens,
        rewrites=plan.rewrites,
        stands_alone=plan.rebase or plan.depth == 0,
        short_summary="In short." if is_episode else "",
        short_tokens=max(1, tokens // 4) if is_episode else 0,
        episode=EpisodeFigures() if is_episode else None,
    )


def completed(
    plan: PassPlan, *, tokens: int = 50, fallback: bool = False, receipt: Receipt | None = None
) -> SummarizationCompleted:
    """The event of a pass that ended well."""
    record = record_for(plan, tokens=tokens)
    return SummarizationCompleted(plan.pass_id, record, TokenSource.CALLER, fallback, receipt=receipt)


def expandable(plan: PassPlan) -> Receipt:
    """The receipt of messages that say nothing which a record or a ledger would name."""
    numbers = [number for r in plan.covered for number in range(r.first, r.last + 1)]
    items = tuple(ReceiptItem("", number) for number in reversed(numbers))[:ITEMS_MAX]
    return Receipt((ReceiptLine(ReceiptKind.MESSAGE, ReceiptPlace.REACHABLE, len(numbers), items),))


def start(state: Conversation, owner: str) -> StartPass:
    """The command by which a process claims the pending pass of `state`."""
    return StartPass(pending_in(state).pass_id, owner, state.claim_token)


def complete(
    state: Conversation,
    *,
    tokens: int = 50,
    fallback: bool = False,
    source: TokenSource = TokenSource.CALLER,
    model_failed: bool = False,
    interrupted: bool = False,
) -> CompletePass:
    """The command that ends the pending pass of `state` with a record of `tokens`."""
    plan = pending_in(state)
    record = record_for(plan, tokens=tokens)
    return CompletePass(plan.pass_id, state.claim_token, record, source, fallback, model_failed, interrupted)


def fail(state: Conversation, *, error_class: ErrorClass = ErrorClass.TRANSPORT) -> FailPass:
    """The command that ends the pending pass of `state` without a record."""
    plan = pending_in(state)
    return FailPass(plan.pass_id, state.claim_token, error_class, 1, retryable=True)
