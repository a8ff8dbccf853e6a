"""Reads messages for rules, standing and tentative, and for what ends the ones before it.

Only what a user says lays down a rule, and only a later message ends one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import Replaced
from abridged.service.domain.message import Role, sent_content
from abridged.service.domain.rules import RULES_MAX, FoundRule, RevokedRule, Rule, RuleName, Rules
from abridged.service.text.ending import lifted_rule, names_another, names_somebody_else, renewed_rule
from abridged.service.text.naming import Names
from abridged.service.text.standing import Statement, statements, words_of_rule

_COUNT_CHARS_MAX: Final = 3
"""Digits of a number that any two sentences may say of other things."""


class _Known(NamedTuple):
    """A rule that stands: the stems of what it is about, and its doubt."""

    words: frozenset[str]
    doubt: float


def found_rules(
    leaving: Iterable[MessageAppended],
    staying: Iterable[MessageAppended],
    rules: Rules,
    replaced: Sequence[Replaced] = (),
) -> tuple[list[FoundRule], tuple[RevokedRule, ...]]:
    """The rules of the messages that leave, and those that these, or the ones that stay, take back or lay down anew. A
    tentative rule that says an identifier which a later message has `replaced` ends, too.

    Of more than RULES_MAX those of the least doubt are found, and then the newest; later messages are held against
    these alone.
    """
    standing = {rule.name: _Known(words_of_rule(rule.text), rule.doubt) for rule in rules.entries if rule.stands}
    found: dict[RuleName, FoundRule] = {}
    revoked: list[RevokedRule] = []
    own = {m.number: m for m in leaving}
    before: dict[RuleName, _Known] = {}
    number = 0
    for m, said in _said(sorted((*own.values(), *staying), key=lambda m: m.number), rules):
        if m.number != number:
            number, before = m.number, {name: known for name, known in standing.items() if name.number < m.number}
        ended = _renewed(said, before) or _lifted(said, before)
        if ended is not None:
            del standing[ended], before[ended]
            revoked.append(RevokedRule(ended.text, ended.number, m.number))
        if said.may_be_rule:
            name = RuleName(m.number, said.text)
            standing[name] = _Known(said.words, said.doubt)
            if m.number in own:
                found[name] = FoundRule(said.text, m.number, doubt=said.doubt)
            _forget_one(standing, before)
            _forget_one(found)
    revoked += _outdated(standing, replaced)
    known = found.keys() | {rule.name for rule in rules.entries}
    return list(found.values()), tuple(one for one in revoked if one.name in known)


def _outdated(standing: Mapping[RuleName, _Known], replaced: Sequence[Replaced]) -> Iterator[RevokedRule]:
    """The tentative rules that say an identifier which a later message has replaced."""
    newest = {key: number for key, number in replaced if len(key) > _COUNT_CHARS_MAX or not key.isdigit()}
    names = Names(newest)
    for name, known in standing.items():
        by = max((newest[key] for key in names.of([name.text])), default=0) if known.doubt else 0
        if by > name.number:
            yield RevokedRule(name.text, name.number, by)


def _renewed(said: Statement, before: Mapping[RuleName, _Known]) -> RuleName | None:
    """The rule that a statement lays down anew, or else a tentative one; a tentative rule renews no standing one."""
    for is_tentative in (False, True):
        if said.is_rule or (is_tentative and said.may_be_rule):
            alike = [name for name, known in before.items() if (known.doubt > 0) is is_tentative]
            names = [name for name in alike if not names_another(said.text, name.text)]
            place = renewed_rule(said, [before[name].words for name in names])
            if place is not None:
                return names[place]
    return None


def _lifted(said: Statement, before: Mapping[RuleName, _Known]) -> RuleName | None:
    place = lifted_rule(said, [known.words for known in before.values()])
    if place is None:
        return None
    name = [*before][place]
    is_another = names_another(said.text, name.text) or names_somebody_else(said.text, name.text)
    return None if is_another else name


def _forget_one(by_name: dict[RuleName, Any], *parts: dict[RuleName, Any]) -> None:
    """Forget one of more than RULES_MAX, and in parts of them: the oldest of the most doubt."""
    if len(by_name) > RULES_MAX:
        forgotten = max(by_name, key=lambda name: by_name[name].doubt)
        for rules in (by_name, *parts):
            rules.pop(forgotten, None)


def known_rules(state: Conversation) -> tuple[Rule, ...]:
    """Every rule of the conversation, those of the messages in its window too, in the order of the messages."""
    found, revoked = found_rules(state.window, (), state.rules)
    known = {one.name: Rule(*one) for one in found}
    known |= {rule.name: rule for rule in state.rules.entries}
    ended = {one.name: one.by for one in revoked}
    rules = (rule._replace(revoked_by=rule.revoked_by or ended.get(name, 0)) for name, rule in known.items())
    return tuple(sorted(rules, key=lambda rule: rule.number))


def _said(messages: Sequence[MessageAppended], rules: Rules) -> Iterator[tuple[MessageAppended, Statement]]:
    """The statements of what users say to an assistant; people among themselves lay down nothing for one. Known rules
    tell of an assistant whose messages have left."""
    if not rules.entries and all(m.message.role is not Role.ASSISTANT for m in messages):
        return
    for m in messages:
        if m.message.role is Role.USER:
            for said in statements(sent_content(m.message)):
                yield m, said
