"""Converts the ledger between domain and contract; pure, exact in both directions."""

from __future__ import annotations

from collections.abc import Iterable

from abridged.v1 import event_pb2, summary_pb2
from service.codec.enums import IDENTIFIER_KINDS, IDENTIFIER_USES, TOKEN_SOURCES
from service.domain.ledger import LedgerEntry, LedgerFinds, Replaced


def ledger_to_proto(entries: Iterable[LedgerEntry]) -> list[summary_pb2.LedgerEntry]:
    """Entries of a ledger in the contract's form."""
    return [
        summary_pb2.LedgerEntry(
            kind=IDENTIFIER_KINDS.to_proto(e.kind),
            text=e.text,
            context=e.context,
            numbers=e.numbers,
            count=e.times,
            use=IDENTIFIER_USES.to_proto(e.use),
            tokens=e.tokens,
            context_tokens=e.context_tokens,
            replaced_by=e.replaced_by,
        )
        for e in entries
    ]


def finds_to_proto(finds: LedgerFinds) -> event_pb2.LedgerFinds:
    """Return a pass's additions to the ledger in the contract's form."""
    return event_pb2.LedgerFinds(
        entries=ledger_to_proto(finds.entries),
        replaced=[event_pb2.ReplacedIdentifier(key=r.key, number=r.number) for r in finds.replaced],
        limit_tokens=finds.limit_tokens,
        memory_tokens=finds.memory_tokens,
        token_source=TOKEN_SOURCES.to_proto(finds.source),
    )


def finds_from_proto(proto: event_pb2.LedgerFinds) -> LedgerFinds:
    """Return a pass's additions to the ledger in the domain's form."""
    return LedgerFinds(
        tuple(
            LedgerEntry(
                IDENTIFIER_KINDS.to_domain(e.kind),
                e.text,
                e.context,
                tuple(e.numbers),
                e.count,
                IDENTIFIER_USES.to_domain(e.use),
                e.tokens,
                e.context_tokens,
                e.replaced_by,
            )
            for e in proto.entries
        ),
        tuple(Replaced(r.key, r.number) for r in proto.replaced),
        proto.limit_tokens,
        proto.memory_tokens,
        TOKEN_SOURCES.to_domain(proto.token_source),
    )
