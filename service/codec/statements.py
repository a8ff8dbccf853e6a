"""The statements of a record, and the messages that they rest on, between domain and contract.

The domain has the texts of a list apart from their evidence; the contract has both in one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat

from abridged.v1 import summary_pb2
from service.domain.record import ActionItem, RecordContext, RecordEvidence

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


def texts_of(statements: Iterable[summary_pb2.Statement]) -> tuple[str, ...]:
    """Return the texts of a list's items."""
    return tuple(statement.text for statement in statements)


def context_from_proto(proto: summary_pb2.SummaryContext) -> RecordContext:
    """The facets in the domain's form."""
    return RecordContext(
        participants=tuple(proto.participants),
        decisions=texts_of(proto.decisions),
        action_items=tuple(ActionItem(task=i.task, owner=i.owner, due=i.due) for i in proto.action_items),
        unresolved=texts_of(proto.unresolved),
        domain_entities=tuple(proto.domain_entities),
        raw=proto.raw,
    )


def evidence_from_proto(proto: summary_pb2.SummaryRecord) -> RecordEvidence:
    """Return the messages that the statements of a record rest on."""
    context = proto.context
    return RecordEvidence(
        key_points=_numbers(proto.key_points),
        decisions=_numbers(context.decisions),
        action_items=_numbers(context.action_items),
        unresolved=_numbers(context.unresolved),
    )


def _numbers(statements: Iterable[summary_pb2.Statement | summary_pb2.ActionItem]) -> _Numbers:
    found = tuple(tuple(statement.message_numbers) for statement in statements)
    return found if any(found) else ()
