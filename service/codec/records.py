"""Converts records, receipts and the ledger between domain and contract; pure, exact in both directions.

The domain has the texts of a list apart from their evidence; the contract has both in one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, repeat

from google.protobuf.duration_pb2 import Duration

from abridged.service.codec.enums import (
    IDENTIFIER_KINDS,
    IDENTIFIER_USES,
    PROVENANCES,
    RECEIPT_KINDS,
    RECEIPT_PLACES,
    TOKEN_SOURCES,
)
from abridged.service.codec.message_map import Conversion, Field, MessageMap
from abridged.service.codec.values import RANGE, TIME, duration
from abridged.service.domain.ledger import LedgerEntry, LedgerFinds, Replaced
from abridged.service.domain.receipt import Receipt, ReceiptItem, ReceiptLine
from abridged.service.domain.record import (
    ActionItem,
    EpisodeFigures,
    RecordContext,
    RecordEvidence,
    RecordQuality,
    SummaryRecord,
)
from abridged.service.domain.rules import FoundRule, RevokedRule, RuleFinds, RuleName
from abridged.v1 import conversation_pb2, event_pb2, summary_pb2

_Numbers = tuple[tuple[int, ...], ...]


def statements_to_proto(texts: Iterable[str], evidence: _Numbers) -> list[summary_pb2.Statement]:
    """The items of one list, each with the messages that it rests on."""
    return [
        summary_pb2.Statement(text=text, message_numbers=numbers)
        for text, numbers in zip(texts, chain(evidence, repeat(())), strict=False)
    ]


def context_to_proto(context: RecordContext, evidence: RecordEvidence) -> summary_pb2.SummaryContext:
    """The facets in the contract's form."""
    items = zip(context.action_items, chain(evidence.action_items, repeat(())), strict=False)
    return summary_pb2.SummaryContext(
        participants=context.participants,
        decisions=statements_to_proto(context.decisions, evidence.decisions),
        action_items=[
            summary_pb2.ActionItem(owner=i.owner, task=i.task, due=i.due, message_numbers=numbers)
            for i, numbers in items
        ],
        unresolved=statements_to_proto(context.unresolved, evidence.unresolved),
        domain_entities=context.domain_entities,
        raw=context.raw,
    )


def record_to_proto(record: SummaryRecord) -> summary_pb2.SummaryRecord:
    """The record in the contract's form."""
    return _RECORD.to_proto(
        record,
        key_points=statements_to_proto(record.key_points, record.evidence.key_points),
        context=context_to_proto(record.context, record.evidence),
        summary_evidence=[summary_pb2.SentenceEvidence(message_numbers=numbers) for numbers in record.evidence.summary],
        covered_message_count=record.covered_count,
    )


def record_from_proto(proto: summary_pb2.SummaryRecord) -> SummaryRecord:
    """The record in the domain's form."""
    context = proto.context
    return _RECORD.to_domain(
        proto,
        key_points=_texts(proto.key_points),
        context=RecordContext(
            participants=tuple(context.participants),
            decisions=_texts(context.decisions),
            action_items=tuple(ActionItem(task=i.task, owner=i.owner, due=i.due) for i in context.action_items),
            unresolved=_texts(context.unresolved),
            domain_entities=tuple(context.domain_entities),
            raw=context.raw,
        ),
        evidence=RecordEvidence(
            key_points=_numbers(proto.key_points),
            decisions=_numbers(context.decisions),
            action_items=_numbers(context.action_items),
            unresolved=_numbers(context.unresolved),
            summary=_numbers(proto.summary_evidence),
        ),
    )


def ledger_to_proto(entries: Iterable[LedgerEntry]) -> list[summary_pb2.LedgerEntry]:
    """Entries of a ledger in the contract's form."""
    return list(map(_LEDGER_ENTRY.to_proto, entries))


def _texts(statements: Iterable[summary_pb2.Statement]) -> tuple[str, ...]:
    return tuple(statement.text for statement in statements)


def _numbers(
    statements: Iterable[summary_pb2.Statement | summary_pb2.ActionItem | summary_pb2.SentenceEvidence],
) -> _Numbers:
    found = tuple(tuple(statement.message_numbers) for statement in statements)
    return found if any(found) else ()


def _quality_from_proto(proto: summary_pb2.RecordQuality) -> RecordQuality:
    quality = QUALITY.to_domain(proto)
    # Records from before there were two figures have the share of every identifier.
    is_whole = proto.HasField("all_identifier_survival")
    return quality if is_whole else replace(quality, all_identifier_survival=quality.identifier_survival)


FIGURES = MessageMap(EpisodeFigures, summary_pb2.EpisodeFigures)
QUALITY = MessageMap(RecordQuality, summary_pb2.RecordQuality)
_RECORD = MessageMap(
    SummaryRecord,
    summary_pb2.SummaryRecord,
    apart=("key_points", "context", "evidence", "summary_evidence", "covered_message_count"),
    create_time_us=Field("create_time", TIME),
    covered=RANGE,
    provenance=PROVENANCES,
    latency_ms=Field("latency", Conversion(duration, Duration.ToMilliseconds)),
    quality=Conversion(QUALITY.to_proto, _quality_from_proto),
    episode=Field(form=FIGURES, default=None),
)
_LEDGER_ENTRY = MessageMap(
    LedgerEntry, summary_pb2.LedgerEntry, kind=IDENTIFIER_KINDS, times="count", use=IDENTIFIER_USES
)
FINDS = MessageMap(
    LedgerFinds,
    event_pb2.LedgerFinds,
    entries=_LEDGER_ENTRY,
    replaced=MessageMap(Replaced, event_pb2.ReplacedIdentifier),
    source=Field("token_source", TOKEN_SOURCES),
)
RECEIPT = MessageMap(
    Receipt,
    conversation_pb2.Receipt,
    lines=MessageMap(
        ReceiptLine,
        conversation_pb2.ReceiptLine,
        kind=RECEIPT_KINDS,
        place=RECEIPT_PLACES,
        items=MessageMap(ReceiptItem, conversation_pb2.ReceiptItem),
    ),
)

RULE_NAME = MessageMap(RuleName, event_pb2.RuleName)
RULE_FINDS = MessageMap(
    RuleFinds,
    event_pb2.RuleFinds,
    rules=MessageMap(FoundRule, event_pb2.FoundRule),
    revoked=MessageMap(RevokedRule, event_pb2.RevokedRule, by="revoked_by"),
    source=Field("token_source", TOKEN_SOURCES),
)
RECORD = Conversion(record_to_proto, record_from_proto)
