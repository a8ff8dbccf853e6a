"""Reads messages for standing rules, and for what takes back or says anew the ones before it.

Only what a user says lays down a rule, and only a later message ends one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.message import Role
from abridged.service.domain.rules import RULES_MAX, FoundRule, RevokedRule, Rule, RuleName, Rules
from abridged.service.text.envelope import unwrap_envelope
from abridged.service.text.standing import Statement, ended_rule, statements, words_of_rule


def found_rules(
    leaving: Iterable[MessageAppended], staying: Iterable[MessageAppended], rules: Rules
) -> tuple[list[FoundRule], tuple[RevokedRule, ...]]:
    """The rules of the messages that leave, and those that these, or the ones that stay, take back or say anew.

    The newest of more than RULES_MAX are found, and later messages are held against these alone.
    """
    standing = {rule.name: words_of_rule(rule.text) for rule in rules.entries if rule.stands}
    found: dict[RuleName, FoundRule] = {}
    revoked: list[RevokedRule] = []
    own = {m.number: m for m in leaving}
    for m, said in _said(sorted((*own.values(), *staying), key=lambda m: m.number), rules):
        before = [name for name in standing if name.number < m.number]
        place = ended_rule(said, [standing[name] for name in before])
        if place is not None:
            ended = before[place]
            del standing[ended]
            revoked.append(RevokedRule(ended.text, ended.number, m.number))
        if said.is_rule and not (said.takes_back and place is not None):
            name = RuleName(m.number, said.text)
            standing[name] = said.words
            if m.number in own:
                found[name] = FoundRule(said.text, m.number)
            _forget_oldest(standing)
            _forget_oldest(found)
    known = found.keys() | {rule.name for rule in rules.entries}
    return list(found.values()), tuple(one for one in revoked if RuleName(one.number, one.text) in known)


def _forget_oldest(by_name: dict[RuleName, Any]) -> None:
    if len(by_name) > RULES_MAX:
        del by_name[next(iter(by_name))]


def known_rules(state: Conversation) -> tuple[Rule, ...]:
    """Every rule of the conversation, those of the messages in its window too, in the order of the messages."""
    found, revoked = found_rules(state.window, (), state.rules)
    known = {RuleName(one.number, one.text): Rule(*one) for one in found}
    known |= {rule.name: rule for rule in state.rules.entries}
    ended = {RuleName(one.number, one.text): one.by for one in revoked}
    rules = (rule._replace(revoked_by=rule.revoked_by or ended.get(name, 0)) for name, rule in known.items())
    return tuple(sorted(rules, key=lambda rule: rule.number))


def _said(messages: Sequence[MessageAppended], rules: Rules) -> Iterator[tuple[MessageAppended, Statement]]:
    """The statements of what users say to an assistant; people among themselves lay down nothing for one. Known rules
    tell of an assistant whose messages have left."""
    if not rules.entries and all(m.message.role is not Role.ASSISTANT for m in messages):
        return
    for m in messages:
        if m.message.role is Role.USER:
            for said in statements(unwrap_envelope(m.message.content)):
                yield m, said
