"""Finds the ledger's entries and the standing rules in the messages that a pass takes out of the window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import Ledger, LedgerEntry, LedgerFinds, Replaced, fact_text, names_key
from abridged.service.domain.ledger_entries import UNHEARD, Heard, found_in
from abridged.service.domain.rules import FoundRule, RevokedRule, Rule, RuleFinds, RuleName, Rules, rule_line
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
    replaced: Sequence[Replaced] = (),
    *,
    counter: TokenCounter,
    source: TokenSource,
) -> RuleFinds:
    """The standing rules of the messages that leave, and those that these or the staying ones take back.

    A tentative rule that says a `replaced` identifier ends, too. A rule is counted as the window shows it. Takes time
    linear in the messages, and in the rules that stand by the identifiers that are replaced.
    """
    found, revoked = found_rules(leaving, staying, rules)
    ended = {RuleName(one.number, one.text) for one in revoked}
    outdated = (
        one
        for one in _outdated((*filter(attrgetter("stands"), rules.entries), *found), replaced)
        if RuleName(one.number, one.text) not in ended
    )
    counted = (one._replace(tokens=_tokens(f"{rule_line(one.text, one.number)}\n", counter)) for one in found)
    return RuleFinds(tuple(counted), (*revoked, *outdated), source=source)


def _outdated(rules: Iterable[Rule | FoundRule], replaced: Sequence[Replaced]) -> Iterator[RevokedRule]:
    """The tentative rules that say an identifier which a later message has replaced."""
    for rule in filter(attrgetter("doubt"), rules):
        said = rule.text.casefold()
        by = max((one.number for one in replaced if one.number > rule.number and names_key(said, one.key)), default=0)
        if by:
            yield RevokedRule(rule.text, rule.number, by)


def _counted(entry: LedgerEntry, counter: TokenCounter) -> LedgerEntry:
    alone = _tokens(f"\n{entry.text}{entry.rest}", counter)
    named = _tokens(f"\n{fact_text(entry._replace(replaced_by=0))}", counter)
    return entry._replace(tokens=alone, context_tokens=max(0, named - alone))


def _tokens(piece: str, counter: TokenCounter) -> int:
    """The tokens of a piece among others: an estimate of it alone is rounded up, which adds a fifth to a ledger."""
    return max(1, (counter.count(piece * _PIECES) + _PIECES // 2) // _PIECES)
