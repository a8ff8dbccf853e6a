"""Lines of the demo about its passes and its window, for a reader who sees both for the first time."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from abridged.service.cli.context import context_line
from abridged.service.cli.figures import pass_line, ranges, receipt_text, short
from abridged.service.cli.plain_json import word
from abridged.service.cli.terminal import number_of, one_line
from abridged.v1.conversation_pb2 import RECEIPT_KIND_MESSAGE, Receipt, Summarization, TokenUsage
from abridged.v1.conversation_service_pb2 import ContextMessage, GetContextResponse
from abridged.v1.summary_pb2 import SummaryRecord

INDENT = " " * 14
"""Blanks before each line of a summary: the width of a message's number and tokens."""


def trigger_line(begun: Summarization) -> str:
    """Return what triggered a pass, and the messages that it covers."""
    why = f"{word(begun, 'trigger').lower().replace('_', ' ')} at {begun.token_ratio:.2f}"
    count = sum(covered.last - covered.first + 1 for covered in begun.covered)
    return f"trigger: pass {short(begun.id)}, {why}, for {number_of(count, 'message')}: {ranges(begun)}"


def end_lines(ended: Summarization, record: SummaryRecord | None, before: TokenUsage, after: TokenUsage) -> list[str]:
    """The record of a pass, its check and the window before and after it; the state of a pass without a record."""
    window = f"window: {before.window_tokens:,} -> {after.window_tokens:,} tokens, ratio is now {after.ratio:.2f}"
    if record is None:
        return [pass_line(ended), window]
    made = f"{record.model}, {number_of(record.attempts, 'model call')}"
    saved = f"{record.tokens_before:,} -> {record.tokens_after:,} tokens"
    return [f"record: {saved}, {made}; {window}", f"check: {_check_text(record)}; {_messages_text(ended.receipt)}"]


def _check_text(record: SummaryRecord) -> str:
    counts = {
        "invented identifier": record.quality.unsupported_claims,
        "unsupported statement": record.quality.unsupported_statements,
    }
    removed = " and ".join(number_of(count, noun) for noun, count in counts.items() if count)
    return f"passed, {removed} removed" if removed else "passed, nothing invented"


def _messages_text(receipt: Receipt) -> str:
    lines = [line for line in receipt.lines if line.kind == RECEIPT_KIND_MESSAGE]
    return receipt_text(Receipt(lines=lines))


def window_lines(
    context: GetContextResponse, record: SummaryRecord | None, pinned: Collection[int], *, columns: int
) -> Iterator[str]:
    """A line of each message, a pinned one marked, and every line of each summary, as the model gets it."""
    is_split = sum(not entry.number for entry in context.messages) == 1
    for entry in context.messages:
        if entry.number in pinned:
            mark = "  (pinned)"
            yield context_line(entry, columns=columns - len(mark)) + mark
        elif entry.number:
            yield context_line(entry, columns=columns)
        else:
            yield _summary_head(entry, record if is_split else None)
            yield from (f"{INDENT}{one_line(line)}" for line in entry.message.content.split("\n"))


def _summary_head(entry: ContextMessage, record: SummaryRecord | None) -> str:
    head = f"{'':>5} {entry.tokens:>6}  {word(entry.message, 'role').lower()} {entry.tag}"
    if record is None:
        return f"{head}:"
    added = entry.tokens - record.tokens_after
    return f"{head}: the record ({record.tokens_after:,} tokens), with rules and facts added by code ({added:,}):"
