"""Usage, passes and records as single lines of text, the same wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from abridged.service.cli.plain_json import word
from abridged.service.cli.terminal import number_of
from abridged.v1.conversation_pb2 import PassAhead, Receipt, Summarization, TokenUsage
from abridged.v1.conversation_service_pb2 import Episode
from abridged.v1.summary_pb2 import ActionItem, SummaryRecord


def bar(ratio: float, *, cells: int) -> str:
    """A ratio as a bar, full from 1 on."""
    filled = min(cells, max(0, round(ratio * cells)))
    return f"[{'#' * filled}{'.' * (cells - filled)}]"


def usage_line(usage: TokenUsage) -> str:
    """Return the window's ratio, as a number and a bar, and its tokens."""
    used = usage.window_tokens + usage.overhead_tokens
    return f"ratio {usage.ratio:.2f} {bar(usage.ratio, cells=20)} {used:,} of {usage.budget_tokens:,} tokens"


def pass_line(summarization: Summarization) -> str:
    """The state of a pass and, once it has ended, why."""
    parts = [
        f"pass {short(summarization.id)}",
        word(summarization, "state").lower(),
        f"trigger {word(summarization, 'trigger').lower()} at {summarization.token_ratio:.2f}",
        f"messages {ranges(summarization)}",
    ]
    if summarization.error_class:
        parts.append(f"{word(summarization, 'error_class')}{', retryable' if summarization.retryable else ''}")
    if summarization.cause:
        parts.append(summarization.cause + ("" if summarization.asked else " (no model was asked)"))
    if summarization.skip_reason:
        parts.append(word(summarization, "skip_reason"))
    text = ", ".join(parts)
    return f"{text}; {receipt_text(summarization.receipt)}" if summarization.HasField("receipt") else text


def receipt_text(receipt: Receipt) -> str:
    """Return where everything is that a pass took out of the window, in figures."""
    kinds = dict.fromkeys(word(line, "kind") for line in receipt.lines)
    return "; ".join(_kind_text(kind, receipt) for kind in kinds) or "nothing left the window"


def unseen_lines(receipt: Receipt) -> Iterator[str]:
    """Some of the things that the window no longer says, each with the message that does."""
    for line in receipt.lines:
        named = [f"{item.text} [{item.number}]" if item.number else item.text for item in line.items if item.text]
        if named:
            more = f" and {line.count - len(named)} more" if line.count > len(named) else ""
            yield f"{_PLACES[word(line, 'place')]}: {', '.join(named)}{more}"


def _kind_text(kind: str, receipt: Receipt) -> str:
    lines = [line for line in receipt.lines if word(line, "kind") == kind]
    count = sum(line.count for line in lines)
    places = ", ".join(f"{line.count} {_PLACES[word(line, 'place')]}" for line in lines)
    return f"{number_of(count, kind.lower())} left: {places}"


_PLACES: Final = MappingProxyType(
    {
        "PINNED": "pinned",
        "RECORD": "in the record",
        "LEDGER": "in the ledger",
        "RULES": "among the rules",
        "WINDOW": "in other messages",
        "REACHABLE": "reachable",
        "GONE": "GONE",
    }
)


def ahead_text(ahead: PassAhead) -> str:
    """The notice of a pass: what it would take out of the window."""
    would = "would give way to marks" if ahead.clears else "would leave"
    count = number_of(ahead.message_count, "message")
    return f"a pass is near, at {ahead.trigger_token_ratio:.2f}: {count} {would}, {ranges(ahead)}"


def record_line(record: SummaryRecord) -> str:
    """Return a record's messages, the tokens it saved, and the cost of its model calls."""
    saved = f"{record.tokens_before:,} -> {record.tokens_after:,} tokens"
    label = f", label {record.label}" if record.label else ""
    calls = number_of(record.attempts, "model call")
    if record.tokens_read or record.tokens_written:
        calls += f" read {record.tokens_read:,} and wrote {record.tokens_written:,} tokens"
    made = f"{word(record, 'provenance').lower()}, {record.model}, {calls}"
    return f"record {short(record.id)}: depth {record.depth}, messages {ranges(record)}{label}, {saved}, {made}"


def statement_lines(record: SummaryRecord) -> Iterator[str]:
    """The statements of a record, each with the messages that it rests on."""
    context = record.context
    for kind, statements in (
        ("", record.key_points),
        ("decision: ", context.decisions),
        ("to do: ", context.action_items),
        ("open: ", context.unresolved),
    ):
        for statement in statements:
            text = statement.task if isinstance(statement, ActionItem) else statement.text
            numbers = f" [{', '.join(map(str, statement.message_numbers))}]" if statement.message_numbers else ""
            yield f"- {kind}{text}{numbers}"


def short(identifier: str) -> str:
    """Return the eight characters that distinguish an id from others of its conversation; more if they are digits
    alone, which a command takes for the number of a message."""
    digits = identifier.rpartition("-")[2]
    letter = next((place for place, digit in enumerate(digits) if digit.isalpha()), len(digits))
    return digits[: max(8, letter + 1)]


def ranges(covering: Summarization | SummaryRecord | Episode | PassAhead) -> str:
    """The covered messages, as `2-14, 17`."""
    match covering:
        case Episode():
            covered = covering.messages
        case PassAhead():
            covered = covering.leaving
        case _:
            covered = covering.covered
    return ", ".join(str(r.first) if r.first == r.last else f"{r.first}-{r.last}" for r in covered)
