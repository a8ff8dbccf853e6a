"""What the ledger gains from the messages that a pass takes out of the window."""

from __future__ import annotations

from collections.abc import Iterable

from service.domain.events import MessageAppended
from service.domain.ledger import Ledger, LedgerEntry, LedgerFinds, entry_text
from service.domain.ledger_entries import found_in
from service.domain.tokens import TokenCounter, TokenSource

__all__ = ["finds_of"]


def finds_of(
    leaving: Iterable[MessageAppended],
    staying: Iterable[MessageAppended],
    ledger: Ledger,
    *,
    counter: TokenCounter,
    source: TokenSource,
) -> LedgerFinds:
    """The identifiers of the messages that leave, and what these and the staying ones replace in the ledger.

    An entry is counted as the window shows it. Takes time linear in the messages.
    """
    found, replaced = found_in(leaving, staying, ledger)
    return LedgerFinds(tuple(_counted(one.entry(), counter) for one in found), replaced, source=source)


def _counted(entry: LedgerEntry, counter: TokenCounter) -> LedgerEntry:
    alone = counter.count(f"; {entry.text}")
    explained = counter.count(f"; {entry_text(entry)}")
    return entry._replace(tokens=alone, context_tokens=max(0, explained - alone))
