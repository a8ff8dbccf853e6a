"""Finds the ledger's entries and the standing rules in the messages that a pass takes out of the window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import Ledger, LedgerEntry, LedgerFinds, Replaced, fact_text
from abridged.service.domain.ledger_entries import UNHEARD, Heard, found_in
from abridged.service.domain.rules import RuleFinds, Rules, rule_line
from abridged.service.domain.rules_found import found_rules
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


def rules_in(
    leaving: Iterable[MessageAppended],
    staying: Iterable[MessageAppended],
    rules: Rules,
    replaced: Sequence[Replaced],
    *,
    counter: TokenCounter,
    source: TokenSource,
) -> RuleFinds:
    """The rules of the messages that leave, standing and tentative, and those that these or the staying ones end.

    Takes arguments as `found_rules`. A rule is counted as the window shows it.
    """
    found, revoked = found_rules(leaving, staying, rules, replaced)
    counted = (one._replace(tokens=_tokens(f"{rule_line(one.text, one.number)}\n", counter)) for one in found)
    return RuleFinds(tuple(counted), revoked, source=source)


def _counted(entry: LedgerEntry, counter: TokenCounter) -> LedgerEntry:
    alone = _tokens(f"\n{entry.text}{entry.rest}", counter)
    named = _tokens(f"\n{fact_text(entry._replace(replaced_by=0))}", counter)
    return entry._replace(tokens=alone, context_tokens=max(0, named - alone))


def _tokens(piece: str, counter: TokenCounter) -> int:
    """The tokens of a piece among others: an estimate of it alone is rounded up, which adds a fifth to a ledger."""
    return max(1, (counter.count(piece * _PIECES) + _PIECES // 2) // _PIECES)
