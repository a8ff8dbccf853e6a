"""`abridged watch`: follows the events of a conversation and the progress of its passes."""

from __future__ import annotations

from typing import assert_never

import click

from abridged.client import AsyncConversations
from abridged.service.cli.figures import ahead_text, receipt_text, short
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json, word
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import excerpt, say, width
from abridged.service.codec.events import fact_of
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationClosed,
    ConversationErased,
    ConversationForked,
    ConversationOpened,
    ConversationReopened,
    ConversationRewound,
    ConversationUnarchived,
    ErasedEvent,
    MessageAppended,
    MessagesPinned,
    MessagesRedacted,
    MessagesUnpinned,
    RulesDropped,
    SettingsChanged,
    SummarizationCleared,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationReleased,
    SummarizationRequested,
    SummarizationSkipped,
    SummarizationStarted,
    SummaryRated,
    SummaryRevoked,
    TextPurged,
    TitleChanged,
    UsageReported,
)
from abridged.service.domain.events import Event as DomainEvent
from abridged.service.domain.material import read_text
from abridged.service.domain.rules import RuleFinds
from abridged.v1.conversation_service_pb2 import PassProgress, WatchConversationResponse
from abridged.v1.event_pb2 import Event

NUMBERS_SHOWN_MAX = 8
"""Pinned messages that a line names; the rest is an ellipsis."""


@click.command(short_help="Follow what happens to a conversation.")
@click.argument("conversation")
@click.option("--after", type=click.IntRange(0), default=0, help="Start after this event version.")
@click.option("--follow/--no-follow", default=True, help="Keep following, or stop when caught up.")
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one per item.")
@sidecar_options
@click.pass_obj
def watch(invocation: Invocation, conversation: str, *, after: int, follow: bool, as_json_: bool) -> None:
    """Follow CONVERSATION: its events, and the progress of its passes, until Ctrl-C."""

    async def work(client: AsyncConversations) -> None:
        async for item in client.watch(conversation, after_version=after):
            line = as_json(item) if as_json_ else fact_line(item, columns=width())
            if line:
                say(line)
            if item.HasField("caught_up") and not follow:
                return

    try:
        call(invocation, work)
    except KeyboardInterrupt:
        # This is how a user ends it; not a failure.
        return


def fact_line(item: WatchConversationResponse, *, columns: int) -> str:
    """An item of the stream as one line; empty for a heartbeat."""
    if item.HasField("event"):
        return f"{item.event.version:>6} {event_text(item.event, chars_max=columns - 7)}"
    if item.HasField("progress"):
        return f"     ~ {progress_text(item.progress)}"
    if item.HasField("pass_ahead"):
        return f"     ! {ahead_text(item.pass_ahead)}"
    return "     = caught up" if item.HasField("caught_up") else ""


def progress_text(progress: PassProgress) -> str:
    """Return the progress of a running pass as one line."""
    parts = [f"pass {short(progress.summarization_id)} {word(progress, 'stage').lower()}", progress.model]
    if progress.attempt > 1:
        parts.append(f"attempt {progress.attempt}")
    if progress.calls_total > 1:
        parts.append(f"call {progress.calls_done} of {progress.calls_total}")
    if progress.output_chars:
        parts.append(f"{progress.output_chars} characters")
    return ", ".join(part for part in parts if part)


def event_text(event: Event, *, chars_max: int) -> str:
    fact = fact_of(event)
    if fact is None:
        return f"{event.type} (version {event.schema_version}, newer than this program)"
    text = _fact_text(fact, chars_max=chars_max)
    if isinstance(fact, SummarizationCompleted | SummarizationCleared) and fact.receipt is not None:
        return f"{text}; {receipt_text(getattr(event, event.WhichOneof('body') or '').receipt)}"
    return text


def _fact_text(event: DomainEvent, *, chars_max: int) -> str:
    match event:
        case ConversationOpened():
            return f"opened: context length {event.settings.context_length:,} ({event.settings.context_length_source})"
        case SettingsChanged():
            return f"settings changed: context length {event.settings.context_length:,}"
        case MessageAppended():
            head = f"message {event.number} {event.message.role} {event.message.name}".rstrip()
            return excerpt(f"{head} ({event.tokens} tokens): {read_text(event.message)}", chars_max=chars_max)
        case UsageReported():
            return f"usage reported: {event.prompt_tokens:,} tokens, estimates scaled by {event.calibration_factor:.3f}"
        case SummarizationRequested():
            plan = event.plan
            return f"pass {short(plan.pass_id)} requested: {plan.trigger} at {plan.token_ratio:.2f}, depth {plan.depth}"
        case SummarizationStarted():
            return f"pass {short(event.pass_id)} started"
        case SummarizationReleased():
            return f"pass {short(event.pass_id)} released by a sidecar that shut down"
        case SummarizationCompleted():
            record = event.record
            saved = f"{record.tokens_before:,} -> {record.tokens_after:,} tokens"
            head = f"pass {short(event.pass_id)} completed: record {short(record.id)}"
            return f"{head}, depth {record.depth}, {saved}{_rules_text(event.rules)}"
        case SummarizationFailed():
            tried = f"after {event.attempts} attempt(s)" if event.asked or not event.cause else "no model was asked"
            cause = f": {event.cause}" if event.cause else ""
            return f"pass {short(event.pass_id)} failed: {event.error_class}, {tried}{cause}"
        case SummarizationSkipped():
            return f"pass {short(event.pass_id) or '-'} skipped: {event.reason}"
        case SummarizationCleared():
            plan = event.plan
            why = f"{plan.trigger} at {plan.token_ratio:.2f}"
            return f"pass {short(plan.pass_id)} cleared {len(event.marks)} tool results: {why}"
        case SummaryRevoked():
            return f"summary {short(event.record_id)} revoked, with {len(event.revoked_ids) - 1} made from it"
        case SummaryRated():
            return f"summary {short(event.record_id)} rated {event.rating}"
        case MessagesPinned():
            return f"pinned: {_numbers(event.numbers)}"
        case MessagesUnpinned():
            return f"unpinned: {_numbers(event.numbers)}"
        case RulesDropped():
            return f"rules dropped: {_numbers(tuple(dict.fromkeys(rule.number for rule in event.rules)))}"
        case ConversationRewound():
            return f"rewound to message {event.to}, {len(event.revoked_ids)} summaries revoked"
        case ConversationForked():
            return f"forked from {event.parent_id} at message {event.message_version}"
        case ConversationClosed():
            return "closed"
        case ConversationReopened():
            return "reopened"
        case TitleChanged():
            return excerpt(f"title: {event.title}", chars_max=chars_max)
        case MessagesRedacted():
            return f"redacted: {len(event.numbers):,} messages, {len(event.revoked_ids):,} summaries"
        case ConversationErased():
            return f"erased, with {event.messages:,} messages"
        case TextPurged():
            return "nothing of what was taken out is left"
        case ConversationArchived():
            return f"archived in {event.file}, with {event.messages:,} messages"
        case ConversationUnarchived():
            return "the archived content is back"
        case ErasedEvent():
            return "an event whose content was erased or archived"
        case _:
            assert_never(event)


def _rules_text(finds: RuleFinds) -> str:
    """The counts of the rules that a pass found and ended, each kind after a comma; empty without any."""
    tentative = sum(rule.is_tentative for rule in finds.rules)
    counts = {
        "rules found": len(finds.rules) - tentative,
        "tentative rules found": tentative,
        "revoked": len(finds.revoked),
    }
    return "".join(f", {count} {kind}" for kind, count in counts.items() if count)


def _numbers(numbers: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, numbers[:NUMBERS_SHOWN_MAX]))
    return f"messages {shown}{', ...' if len(numbers) > NUMBERS_SHOWN_MAX else ''}"
