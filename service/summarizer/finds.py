"""Finds the ledger's entries in the messages that a pass takes out of the window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import Ledger, LedgerEntry, LedgerFinds, fact_text
from abridged.service.domain.ledger_entries import UNHEARD, Heard, found_in
from abridged.service.domain.tokens import TokenCounter, TokenSource

_PIECES: Final = 4


def finds_of(
    leaving: Iterable[MessageAppended],
    staying: Iterable[MessageAppended],
    ledger: Ledger,
    *,
    counter: TokenCounter,
    source: TokenSource,
    heard: Heard = UNHEARD,
) -> LedgerFinds:
    """The identifiers of the messages that leave, and what these and the staying ones replace in the ledger.

    An entry is counted as the window shows it. `heard` is called as by `found_in`. Takes time linear in the messages.
    """
    found, replaced = found_in(leaving, staying, ledger, heard)
    return LedgerFinds(tuple(_counted(one.entry(), counter) for one in found), replaced, source=source)


def _counted(entry: LedgerEntry, counter: TokenCounter) -> LedgerEntry:
    alone = _tokens(f"\n{entry.text}", counter)
    named = _tokens(f"\n{fact_text(entry._replace(replaced_by=0))}", counter)
    return entry._replace(tokens=alone, context_tokens=max(0, named - alone))


def _tokens(piece: str, counter: TokenCounter) -> int:
    """The tokens of a piece among others: an estimate of it alone is rounded up, which adds a fifth to a ledger."""
    return max(1, (counter.count(piece * _PIECES) + _PIECES // 2) // _PIECES)
