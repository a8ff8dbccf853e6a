"""Redaction: what is left of events, messages and records once some messages and what was made of them are redacted.

Texts go and nothing else: ids, numbers, roles, token counts, order and times stay, so a fold of what is left takes
every step that it took before. The event MessagesRedacted sets anew what the texts had a part in (ledger, rules, the
lowest ratio), so the state after it is the same whatever was blanked before. Events before the first of the messages do
not change: conversations may have been forked from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from abridged.service.domain.events import (
    ConversationArchived,
    ConversationForked,
    Event,
    MessageAppended,
    MessagesRedacted,
    ResultMark,
    RulesDropped,
    SummarizationCleared,
    SummarizationCompleted,
    SummaryRated,
    TitleChanged,
)
from abridged.service.domain.message import Message
from abridged.service.domain.ranges import covers, ranges_of
from abridged.service.domain.receipt import Receipt, ReceiptItem
from abridged.service.domain.record import EpisodeFigures, MessageRange, RecordContext, RecordEvidence, SummaryRecord
from abridged.service.domain.tokens import TokenSource

REDACTED: Final = "[redacted]"
"""The text in the place of a redacted one: chat APIs refuse messages without a text."""

REDACTED_TOOL: Final = "redacted"
"""The name in the place of a tool's."""

MESSAGE_TOKENS: Final = 8
CALL_TOKENS: Final = 12
"""Tokens of a redacted message and of each of its calls in the window, estimated: their frames and the words above."""


class Redaction(NamedTuple):
    """The redacted messages of a conversation as ascending ranges, and the records that were made of them, by id."""

    messages: tuple[MessageRange, ...] = ()
    record_ids: tuple[str, ...] = ()

    def has(self, number: int) -> bool:
        """Return whether the message is redacted."""
        return covers(self.messages, number)


NO_REDACTION: Final = Redaction()


class Blanking:
    """Walks the events of a stream in order, to say what is left of each. Some may be missing, and the first of the
    messages with them: then all that follow are taken for later ones.

    `end` is the version of the last redaction, 0 without one. `redactions` are all of the stream, by version;
    `own_records` the ids of the records that were committed in it.
    Other records are of before it was forked.
    """

    def __init__(self, redactions: Mapping[int, MessagesRedacted], own_records: Collection[str]) -> None:
        self.end = max(redactions, default=0)
        self._last = 0
        self._walks = [_Walk(version, event, own_records=own_records) for version, event in sorted(redactions.items())]

    @classmethod
    def of(cls, events: Iterable[tuple[int, Event]]) -> Blanking:
        """The walk for the redactions among a stream's events, which each come with their version."""
        redactions: dict[int, MessagesRedacted] = {}
        records: set[str] = set()
        for version, event in events:
            if isinstance(event, SummarizationCompleted):
                records.add(event.record.id)
            elif isinstance(event, MessagesRedacted):
                redactions[version] = event
        return cls(redactions, records)

    def left(self, version: int, event: Event) -> Event:
        """Return the rest of the next event, which has this version."""
        is_next, self._last = version == self._last + 1, version
        for walk in self._walks:
            if version < walk.version:
                event = walk.left(event, is_next=is_next)
        return event


class _Walk:
    """The events before one redaction. Records and messages that were not met yet are no part of what an event says."""

    def __init__(self, version: int, event: MessagesRedacted, *, own_records: Collection[str]) -> None:
        self.version = version
        self._numbers = event.numbers
        self._later = {name for name in event.revoked_ids if name in own_records}
        self._redaction = Redaction(ranges_of(event.numbers), tuple(set(event.revoked_ids) - self._later))
        self._has_begun = False

    def left(self, event: Event, *, is_next: bool) -> Event:
        self._has_begun = self._has_begun or not is_next
        match event:
            case ConversationForked():
                self._has_begun = self._numbers[0] <= event.message_version
            case MessageAppended() if event.number == self._numbers[0]:
                self._has_begun = True
            case SummarizationCompleted() if event.record.id in self._later:
                record_ids = (*self._redaction.record_ids, event.record.id)
                self._redaction = self._redaction._replace(record_ids=record_ids)
            case _:
                pass
        return redacted_event(event, self._redaction) if self._has_begun else event


def redacted_event(event: Event, redaction: Redaction) -> Event:
    """The event without the texts of redacted messages, and without what was made of them.

    Names of tools in marks, and identifiers that newer values have replaced, do not say whose they are: they go whoever
    said them.
    """
    match event:
        case MessageAppended() if redaction.has(event.number):
            return event._replace(message=_blanked(event.message))
        case SummarizationCompleted():
            return replace(
                event,
                record=redacted_record(event.record, redaction),
                marks=tuple(map(redacted_mark, event.marks)),
                finds=event.finds.without(redaction.has),
                receipt=redacted_receipt(event.receipt, redaction),
                rules=event.rules.without(redaction.has),
            )
        case SummarizationCleared():
            return replace(event, marks=tuple(map(redacted_mark, event.marks)))
        case SummaryRated() if event.record_id in redaction.record_ids:
            return replace(event, comment="")
        case RulesDropped():
            rules = (name._replace(text=REDACTED) if redaction.has(name.number) else name for name in event.rules)
            return replace(event, rules=tuple(rules))
        case TitleChanged() | ConversationArchived() if redaction.record_ids:
            return replace(event, title=REDACTED)
        case MessagesRedacted():
            return replace(
                event,
                finds=event.finds.without(redaction.has),
                rules=event.rules.without(redaction.has),
                dropped_rules=tuple(name for name in event.dropped_rules if not redaction.has(name.number)),
            )
        case _:
            return event


def is_redacted(message: Message) -> bool:
    """Return whether the message is what a redaction leaves of one."""
    return message == _blanked(message)


def as_redacted(m: MessageAppended, redaction: Redaction) -> MessageAppended:
    """The message as the window has it: a redacted one with the tokens of what is left of it."""
    if not redaction.has(m.number):
        return m
    tokens = MESSAGE_TOKENS + CALL_TOKENS * len(m.message.tool_calls)
    return MessageAppended(m.number, _blanked(m.message), tokens, TokenSource.ESTIMATE, m.counter)


def redacted_record(record: SummaryRecord, redaction: Redaction) -> SummaryRecord:
    """The record without its texts, if it was made of redacted messages."""
    if record.id not in redaction.record_ids:
        return record
    return replace(
        record,
        summary=REDACTED,
        key_points=(),
        context=RecordContext(),
        short_summary=REDACTED if record.short_summary else "",
        episode=EpisodeFigures() if record.episode else None,
        evidence=RecordEvidence(),
    )


def redacted_mark(mark: ResultMark) -> ResultMark:
    """The mark without the name of the tool, which is that of a call in another message."""
    return mark._replace(text=f"[Result cleared: message {mark.number}. Expand it by its number.]")


def redacted_receipt(receipt: Receipt | None, redaction: Redaction) -> Receipt | None:
    """The receipt without the texts of redacted messages, and without those that only records said if some of these are
    redacted."""

    def left(item: ReceiptItem) -> ReceiptItem:
        is_gone = redaction.has(item.number) if item.number else bool(redaction.record_ids)
        return item._replace(text=REDACTED) if item.text and is_gone else item

    if receipt is None:
        return None
    return Receipt(tuple(replace(line, items=tuple(map(left, line.items))) for line in receipt.lines))


def _blanked(message: Message) -> Message:
    """The message with what places and pairs it alone."""
    return Message(
        message.id,
        message.role,
        REDACTED,
        tool_calls=tuple(replace(call, name=REDACTED_TOOL, arguments="{}") for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        create_time_us=message.create_time_us,
        token_count=message.token_count,
        pinned=message.pinned,
    )
