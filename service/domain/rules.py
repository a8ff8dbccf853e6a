"""Standing rules: the sentences in which a user laid down what holds from then on, kept letter by letter.

They are a fold of what the events say was found in messages that left the window, and of what callers have dropped. The
window shows those that stand and whose messages it no longer has, as many as their share of it holds, and names the
messages of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from abridged.service.domain.tokens import TokenSource, calibrated_tokens

RULES_MAX: Final = 256
"""Rules that a conversation remembers; of more, those that no longer stand go first, and then the oldest."""

NAMED_MAX: Final = 16
"""Messages that the window names for the rules that it has no room for."""

RULES_FRAME_TOKENS: Final = 8
"""The line above the rules."""

_REST_TOKENS: Final = 8
"""The words around the numbers of the messages whose rules have no room."""

_NUMBER_TOKENS: Final = 3


class FoundRule(NamedTuple):
    """A rule of a message that leaves the window; `tokens` are those of its line, uncorrected."""

    text: str
    number: int
    tokens: int = 0


class RevokedRule(NamedTuple):
    """The rule `text` of message `number`, which message `by` takes back, or says anew."""

    text: str
    number: int
    by: int


class RuleName(NamedTuple):
    """A rule by its message and its text."""

    number: int
    text: str


class RuleFinds(NamedTuple):
    """The standing rules of messages that leave the window.

    Attributes:
        rules: The rules.
        revoked: Rules that they, or the messages that stay, take back.
        limit_tokens: Most tokens of the rules in the window from now on.
        source: The source of their count.
    """

    rules: tuple[FoundRule, ...] = ()
    revoked: tuple[RevokedRule, ...] = ()
    limit_tokens: int = 0
    source: TokenSource = TokenSource.ESTIMATE

    def corrected(self, factor: float) -> RuleFinds:
        """The finds with the rules' tokens corrected by what the caller's own counts have taught."""
        if factor == 1:
            return self
        rules = (rule._replace(tokens=calibrated_tokens(rule.tokens, factor)) for rule in self.rules)
        return self._replace(rules=tuple(rules))

    def without(self, gone: Callable[[int], bool]) -> RuleFinds:
        """The finds without the rules of messages that are `gone`."""
        rules = tuple(rule for rule in self.rules if not gone(rule.number))
        return self._replace(rules=rules, revoked=tuple(one for one in self.revoked if not gone(one.number)))


NO_RULES_FOUND: Final = RuleFinds()


class Rule(NamedTuple):
    """A rule as it was laid down.

    Attributes:
        text: The sentence, letter by letter.
        number: The number of its message.
        tokens: Tokens of its line in the window, uncorrected.
        revoked_by: The message that took it back, or said it anew; 0 while it stands.
        dropped: True if a caller has dropped it.
    """

    text: str
    number: int
    tokens: int = 0
    revoked_by: int = 0
    dropped: bool = False

    @property
    def name(self) -> RuleName:
        """The name by which it is known."""
        return RuleName(self.number, self.text)

    @property
    def stands(self) -> bool:
        """True if the rule still holds."""
        return not self.revoked_by and not self.dropped


class Surroundings(NamedTuple):
    """The window without the rules: whether it has a message, and what its records say."""

    has: Callable[[int], bool]
    said: str


class Rules(NamedTuple):
    """The standing rules of a conversation.

    Attributes:
        entries: The rules that it remembers, in the order of the messages.
        shown: The places in `entries` of those that the window shows.
        unshown: The messages of those that it has no room for, ascending.
        tokens: Tokens of both in the window with their frame, uncorrected; 0 without either.
        limit_tokens: Most tokens of those.
        source: The source of their count.
    """

    entries: tuple[Rule, ...] = ()
    shown: tuple[int, ...] = ()
    unshown: tuple[int, ...] = ()
    tokens: int = 0
    limit_tokens: int = 0
    source: TokenSource = TokenSource.ESTIMATE

    @property
    def in_window(self) -> tuple[Rule, ...]:
        """The rules that the window shows, oldest first."""
        return tuple(self.entries[place] for place in self.shown)

    def after(self, finds: RuleFinds, around: Surroundings) -> Rules:
        """The rules with what was found in messages that left."""
        by_name = {rule.name: rule for rule in self.entries}
        for found in finds.rules:
            known = by_name.get(RuleName(found.number, found.text))
            by_name[RuleName(found.number, found.text)] = (
                Rule(*found) if known is None else known._replace(tokens=found.tokens)
            )
        revoked = {RuleName(one.number, one.text): one.by for one in finds.revoked}
        entries = [rule._replace(revoked_by=revoked.get(rule.name, rule.revoked_by)) for rule in by_name.values()]
        return _fitted(_remembered(entries), finds.limit_tokens, finds.source, around)

    def without(self, names: Collection[RuleName], around: Surroundings) -> Rules:
        """The rules with these dropped, which may be of messages that have not left the window."""
        known = {rule.name: rule for rule in self.entries}
        dropped = {name: known.get(name, Rule(name.text, name.number))._replace(dropped=True) for name in names}
        return _fitted(_remembered((known | dropped).values()), self.limit_tokens, self.source, around)

    def restricted(self, exists: Callable[[int], bool], around: Surroundings) -> Rules:
        """The rules of messages that exist, in other surroundings; a message that does not exist revokes nothing."""
        if not self.entries:
            return self
        kept = tuple(
            rule._replace(revoked_by=rule.revoked_by if exists(rule.revoked_by) else 0)
            for rule in self.entries
            if exists(rule.number)
        )
        return _fitted(kept, self.limit_tokens, self.source, around)


NO_RULES: Final = Rules()


def rule_line(text: str, number: int) -> str:
    """The line of a rule in the window."""
    return f"- {text} [{number}]"


def rule_lines(rules: Rules) -> list[str]:
    """The rules of the window, oldest first, and the messages of those without room; empty without any."""
    lines = [rule_line(rule.text, rule.number) for rule in rules.in_window]
    if rules.unshown:
        named = ", ".join(map(str, dict.fromkeys(rules.unshown[-NAMED_MAX:])))
        lines.append(f"{len(rules.unshown)} more rules: messages {named}")
    return ["Standing rules to follow, as said:", *lines] if lines else []


def _remembered(entries: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules to remember, RULES_MAX at most, in the order of their messages; those of one message as they were
    found."""
    ordered = sorted(entries, key=attrgetter("number"))
    if len(ordered) <= RULES_MAX:
        return tuple(ordered)
    needed = sorted(range(len(ordered)), key=lambda place: (ordered[place].stands, place))
    return tuple(ordered[place] for place in sorted(needed[-RULES_MAX:]))


def _fitted(entries: tuple[Rule, ...], limit_tokens: int, source: TokenSource, around: Surroundings) -> Rules:
    """The rules with those shown that fit, the newest first; what the records say letter by letter is not shown twice.

    The line that names the messages of rules without room gets its own room first.
    """
    wanted = {
        place: rule
        for place, rule in enumerate(entries)
        if rule.stands and not around.has(rule.number) and rule.text not in around.said
    }
    if not wanted:
        return Rules(entries, limit_tokens=limit_tokens, source=source)
    tokens = RULES_FRAME_TOKENS + sum(rule.tokens for rule in wanted.values())
    if tokens <= limit_tokens:
        return Rules(entries, tuple(wanted), (), tokens, limit_tokens, source)
    return _cut(entries, wanted, limit_tokens, source)


def _cut(entries: tuple[Rule, ...], wanted: Mapping[int, Rule], limit_tokens: int, source: TokenSource) -> Rules:
    named = _REST_TOKENS + _NUMBER_TOKENS * min(len(wanted), NAMED_MAX)
    tokens = RULES_FRAME_TOKENS + named
    if tokens > limit_tokens:
        return Rules(entries, limit_tokens=limit_tokens, source=source)
    shown: list[int] = []
    for place in sorted(wanted, reverse=True):
        if tokens + wanted[place].tokens <= limit_tokens:
            tokens += wanted[place].tokens
            shown.append(place)
    unshown = tuple(wanted[place].number for place in sorted(wanted.keys() - set(shown)))
    return Rules(entries, tuple(reversed(shown)), unshown, tokens, limit_tokens, source)
