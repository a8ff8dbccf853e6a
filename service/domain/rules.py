"""Standing rules: the sentences in which a user laid down what holds from then on, kept letter by letter.

They are a fold of what the events say was found in messages that left the window, and of what callers have dropped. The
window shows those that stand and whose messages it no longer has, as many as their share of it holds, and names the
messages of the rest. In the room that is left it quotes tentative rules: sentences that lack some of the evidence of a
rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from abridged.service.domain.tokens import TokenSource, calibrated_tokens

RULES_MAX: Final = 256
"""Rules that a conversation remembers; of more, those that no longer stand go first, then those of the most doubt, and
then the oldest."""

NAMED_MAX: Final = 16
"""Messages that the window names for the rules that it has no room for."""

RULES_FRAME_TOKENS: Final = 8
"""The line above the rules."""

_TENTATIVE_FRAME_TOKENS: Final = 10
"""The line above the tentative rules."""

_REST_TOKENS: Final = 8
"""The words around the numbers of the messages whose rules have no room."""

_NUMBER_TOKENS: Final = 3


class FoundRule(NamedTuple):
    """A rule of a message that leaves the window. `tokens` are those of its line, uncorrected; `doubt` is 0, or of a
    tentative rule the log odds that it lacks."""

    text: str
    number: int
    tokens: int = 0
    doubt: float = 0.0

    @property
    def name(self) -> RuleName:
        """The name by which it is known."""
        return RuleName(self.number, self.text)

    @property
    def is_tentative(self) -> bool:
        """True if the sentence may be no rule."""
        return self.doubt > 0


class RevokedRule(NamedTuple):
    """The rule `text` of message `number`, which message `by` takes back or lays down anew, or whose value it
    replaces."""

    text: str
    number: int
    by: int

    @property
    def name(self) -> RuleName:
        """The name by which the rule is known."""
        return RuleName(self.number, self.text)


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
        doubt: The log odds that a tentative rule lacks: it may be one, or a wish for one time. 0 of any other.
        revoked_by: The message that took it back or laid it down anew, or that replaced a value in it; 0 while it
            stands.
        dropped: True if a caller has dropped it.
    """

    text: str
    number: int
    tokens: int = 0
    doubt: float = 0.0
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

    @property
    def is_tentative(self) -> bool:
        """True if the sentence may be no rule."""
        return self.doubt > 0


class Surroundings(NamedTuple):
    """The window without the rules: whether it has a message, and what its records say."""

    has: Callable[[int], bool]
    said: str


class Rules(NamedTuple):
    """The standing rules of a conversation.

    Attributes:
        entries: The rules that it remembers, in the order of the messages.
        shown: The places in `entries` of those that the window shows.
        unshown: The messages of those that it has no room for, ascending; of tentative ones none.
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
            known = by_name.get(found.name)
            by_name[found.name] = (
                Rule(*found) if known is None else known._replace(tokens=found.tokens, doubt=found.doubt)
            )
        revoked = {one.name: one.by for one in finds.revoked}
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
    """The rules of the window, oldest first, and the messages of those without room; behind them the tentative ones.
    Empty without any."""
    lines = [rule_line(rule.text, rule.number) for rule in rules.in_window if not rule.is_tentative]
    if rules.unshown:
        named = ", ".join(map(str, dict.fromkeys(rules.unshown[-NAMED_MAX:])))
        lines.append(f"{len(rules.unshown)} more rules: messages {named}")
    tentative = [rule_line(rule.text, rule.number) for rule in rules.in_window if rule.is_tentative]
    return [
        *(["Standing rules to follow, as said:", *lines] if lines else ()),
        *(["Said by the user, perhaps as rules:", *tentative] if tentative else ()),
    ]


def _remembered(entries: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules to remember, RULES_MAX at most, in the order of their messages; those of one message as they were
    found."""
    ordered = sorted(entries, key=attrgetter("number"))
    if len(ordered) <= RULES_MAX:
        return tuple(ordered)
    needed = sorted(range(len(ordered)), key=lambda place: (ordered[place].stands, -ordered[place].doubt, place))
    return tuple(ordered[place] for place in sorted(needed[-RULES_MAX:]))


def _fitted(entries: tuple[Rule, ...], limit_tokens: int, source: TokenSource, around: Surroundings) -> Rules:
    """The rules with those shown that fit: the newest first, then the tentative ones, those of the least doubt first.

    A tentative one that the records say letter by letter is not shown twice. Standing ones are: a record quotes the
    conversation, and may quote a rule to deny it.
    """
    wanted = {
        place: rule
        for place, rule in enumerate(entries)
        if rule.stands and not around.has(rule.number) and not (rule.is_tentative and rule.text in around.said)
    }
    certain = {place: rule for place, rule in wanted.items() if not rule.is_tentative}
    shown, tokens = _within(certain, limit_tokens)
    unshown = tuple(certain[place].number for place in sorted(certain.keys() - set(shown))) if tokens else ()
    after = tokens + _TENTATIVE_FRAME_TOKENS
    # Where standing rules have no room, tentative ones have none.
    others = wanted.keys() - certain.keys() if tokens or not certain else ()
    for place in sorted(others, key=lambda place: (wanted[place].doubt, -place)):
        if after + wanted[place].tokens <= limit_tokens:
            tokens = after = after + wanted[place].tokens
            shown.append(place)
    return Rules(entries, tuple(sorted(shown)), unshown, tokens, limit_tokens, source)


def _within(wanted: Mapping[int, Rule], limit_tokens: int) -> tuple[list[int], int]:
    """The places of the rules that fit, the newest first, and the tokens of these with their frame; 0 without room.

    The line that names the messages of rules without room gets its own room first.
    """
    tokens = RULES_FRAME_TOKENS + sum(rule.tokens for rule in wanted.values())
    if not wanted or tokens <= limit_tokens:
        return list(wanted), tokens if wanted else 0
    tokens = RULES_FRAME_TOKENS + _REST_TOKENS + _NUMBER_TOKENS * min(len(wanted), NAMED_MAX)
    if tokens > limit_tokens:
        return [], 0
    shown: list[int] = []
    for place in sorted(wanted, reverse=True):
        if tokens + wanted[place].tokens <= limit_tokens:
            tokens += wanted[place].tokens
            shown.append(place)
    return shown, tokens
