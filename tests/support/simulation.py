"""Random chats against the pure domain: every command there is, in any order, with a clock of its own.

A seed is a chat: policy, context length, messages, failures and waits all come from it. Revocations, pins, rewinds,
closing and reopening come from it for those who ask for a share of them; their tools return more, so that results are
cleared. A chat with a share of `forks` goes on as its fork: then its log is that of two streams. A share of
`redactions` has messages of any age redacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from abridged.service.domain.amendments import needed
from abridged.service.domain.commands import (
    AppendMessages,
    ChangeSettings,
    ChangeTitle,
    CloseConversation,
    Command,
    CompletePass,
    CountedMessage,
    DropRules,
    EndWait,
    FailPass,
    ForkConversation,
    PinMessages,
    RateSummary,
    RedactMessages,
    RemakeFallback,
    ReopenConversation,
    ReportUsage,
    RequestPass,
    RevokeSummary,
    RewindConversation,
    StartPass,
    UnpinMessages,
)
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import DomainError, InvalidPolicy
from abridged.service.domain.events import ErrorClass, Event, MessageAppended, PassPlan, Rating, Settings, Trigger
from abridged.service.domain.fold import evolve
from abridged.service.domain.ledger import NOTHING_FOUND, LedgerEntry, LedgerFinds, Replaced, Use, joined_entries
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import (
    BUDGET_MIN,
    DepthLimit,
    Fallback,
    Policy,
    ProfileName,
    ToolOutput,
    overridden,
    validated,
)
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.ranges import covers
from abridged.service.domain.record import MessageRange
from abridged.service.domain.rules import FoundRule, RevokedRule, RuleFinds
from abridged.service.domain.tokens import TokenCount, TokenSource
from abridged.service.text.identifiers import IdentifierKind
from tests.support.chats import record_for

STEPS = 30
DRAIN_MAX = 24
"""Passes that may follow the last command: the pending one and its follow-ups, of which a cut range has some more."""

_SECOND = 1_000_000


@dataclass(frozen=True)
class Step:
    """One command and its effect. `policy` is the one in force behind it."""

    before: Conversation
    command: Command
    events: tuple[Event, ...]
    after: Conversation
    policy: Policy
    now_us: int


class SimulatedChat:
    """The chat of one seed, under the profile of that name."""

    def __init__(
        self,
        seed: int,
        *,
        amendments: float = 0.0,
        profile: ProfileName = ProfileName.CHAIN,
        forks: float = 0.0,
        redactions: float = 0.0,
    ) -> None:
        self._amendments = amendments
        self._forked = forks
        self._rng = Random(seed)
        self._forks = Random(~seed)
        self._redacted = redactions
        self._redactions = Random(seed + 1_000_000)
        self._base = _random_policy(self._rng)
        if amendments:
            self._base = replace(self._base, clear_min_tokens=64, clear_keep_tool_units=self._rng.choice([0, 0, 1, 3]))
        if profile is ProfileName.ROLLING:
            self._base = _rolling(self._rng, self._base)
        if profile is ProfileName.EPISODES:
            self._base = _episodic(self._rng, self._base)
        self._context_length = self._rng.choice([512, 1_024, 2_048, 4_096, 8_192, 32_768])
        self._sources = self._rng.choice([[TokenSource.ESTIMATE], [TokenSource.CALLER], list(TokenSource)])
        self._settings = self._random_settings()
        self._now_us = 0
        self._passes = 0
        self.state = initial_state()
        self.log: list[tuple[Event, int]] = []

    def steps(self) -> Iterator[Step]:
        """Every step that was taken, then those until no pass is pending."""
        for _ in range(STEPS):
            yield from self._waited(self._rng.choice([0, 1, 10, 60, 1_000]))
            yield from self._taken(self._random_command())
            if self.state.is_open and self._forks.random() < self._forked:
                yield from self._taken(self._fork())
            if self.state.message_version and self._redactions.random() < self._redacted:
                yield from self._taken(self._redaction())
        for _ in range(DRAIN_MAX):
            if self.state.pending is None:
                return
            yield from self._taken(self._complete(tokens=1))

    @property
    def _policy(self) -> Policy:
        return overridden(self._base, self._settings.policy)

    def _waited(self, seconds: int) -> Iterator[Step]:
        """Let time pass; a wait that ends on the way is ended by its command, as a timer would."""
        until_us = self._now_us + seconds * _SECOND
        state = self.state
        if state.pending is None and state.waiting(self._now_us) and state.wait_until_us <= until_us:
            self._now_us = state.wait_until_us
            yield from self._taken(EndWait(self._now_us))
        self._now_us = max(self._now_us, until_us)

    def _taken(self, command: Command) -> Iterator[Step]:
        before = self.state
        policy = self._policy
        if isinstance(command, ChangeSettings):
            policy = overridden(self._base, command.settings.policy)
        originals: list[MessageAppended] = []
        while ranges := needed(before, command, originals):
            originals += self.originals(ranges)
        try:
            context = DecisionContext(profile_of(policy.profile), policy, self._now_us, self._pass_id(), originals)
            events = decide(before, command, context)
        except DomainError:
            return
        if isinstance(command, ChangeSettings):
            self._settings = command.settings
        for event in events:
            self.state = evolve(self.state, event, self._now_us, originals)
            self.log.append((event, self._now_us))
        yield Step(before, command, tuple(events), self.state, policy, self._now_us)

    def originals(self, ranges: tuple[MessageRange, ...]) -> list[MessageAppended]:
        """The messages of ascending ranges, as the log has them."""
        if not ranges:
            return []
        messages = (event for event, _ in self.log if isinstance(event, MessageAppended))
        return [m for m in messages if covers(ranges, m.number)]

    def _random_command(self) -> Command:
        state, rng = self.state, self._rng
        if self._amendments and state.is_open and rng.random() < self._amendments:
            return self._way_back()
        if not state.is_open or rng.random() < 0.55:
            return self._append()
        if state.pending is not None and rng.random() < 0.75:
            return self._end_of_pass()
        others: list[Callable[[], Command]] = [self._change, self._report, self._force, self._remake]
        if self._base.profile is not ProfileName.CHAIN:
            others.append(self._name)
        return rng.choice(others)()

    def _fork(self) -> ForkConversation:
        """Go on as a fork: its log is its beginning, then its own events."""
        in_use, rng = [record.id for record in self.state.records], self._forks
        revoked = (rng.choice(in_use),) if in_use and rng.random() < 0.2 else ()
        return ForkConversation(f"{self.state.id}+", self._settings, revoked)

    def _redaction(self) -> RedactMessages:
        last, rng = self.state.message_version, self._redactions
        return RedactMessages(tuple(rng.randint(1, last) for _ in range(rng.choice([1, 1, 3]))))

    def _end_of_pass(self) -> Command:
        plan, rng = self.state.pending, self._rng
        assert plan is not None
        chance = rng.random()
        if chance < 0.15:
            return StartPass(plan.pass_id, "simulated", self.state.claim_token)
        if chance < 0.35:
            error_class = rng.choice(list(ErrorClass))
            attempts, retryable = rng.randrange(4), rng.random() < 0.5
            return FailPass(plan.pass_id, self.state.claim_token, error_class, attempts, retryable)
        most = max(2, plan.replaced_tokens)
        tokens = rng.choice([rng.randrange(1, most), min(most, plan.summary_tokens_max), rng.randrange(1, 2 * most)])
        return self._complete(tokens=max(1, tokens))

    def _complete(self, *, tokens: int) -> CompletePass:
        plan = self.state.pending
        assert plan is not None
        record = record_for(plan, tokens=tokens, summary="What was said. " * min(8, 1 + tokens // 16))
        source = self._rng.choice(self._sources)
        fallback, token = self._rng.random() < 0.2, self.state.claim_token
        finds, rules = self._finds(plan), self._rules(plan)
        return CompletePass(plan.pass_id, token, record, source, fallback, finds=finds, rules=rules)

    def _finds(self, plan: PassPlan) -> LedgerFinds:
        """Identifiers of the messages that leave; some have been found before, and some give way."""
        leaving = [m.number for m in self.state.window if covers(plan.covered, m.number)]
        if plan.trigger is Trigger.REMAKE or not leaving:
            return NOTHING_FOUND
        entries = tuple(
            LedgerEntry(IdentifierKind.TICKET, f"OPS-{number % 40}", "see", (number,), 1, Use.USER, 3, 1)
            for number in leaving
            if number % 3
        )
        replaced = tuple(Replaced(f"ops-{number % 40}", number) for number in leaving if number % 7 == 0)
        return LedgerFinds(joined_entries(entries), replaced, source=TokenSource.ESTIMATE)

    def _rules(self, plan: PassPlan) -> RuleFinds:
        """Rules of the messages that leave; some of those that stand are taken back."""
        leaving = [m.number for m in self.state.window if covers(plan.covered, m.number)]
        if plan.trigger is Trigger.REMAKE or not leaving:
            return RuleFinds()
        found = tuple(
            FoundRule(f"Always {number}.", number, 4 + number % 9, number % 8 / 4)
            for number in leaving
            if number % 4 == 0
        )
        standing = [rule for rule in self.state.rules.entries if rule.stands and rule.number < leaving[-1]]
        revoked = tuple(RevokedRule(rule.text, rule.number, leaving[-1]) for rule in standing if rule.number % 12 == 0)
        return RuleFinds(found, revoked)

    def _append(self) -> AppendMessages:
        count = self._rng.choice([1, 1, 1, 2, 2, 5, 12])
        first = self.state.message_version + 1
        messages = tuple(self._counted(self._random_message(first + i)) for i in range(count))
        if self._amendments and self._rng.random() < 0.5:
            messages = self._exchange(first)
        return AppendMessages("c", messages, self._settings)

    def _random_message(self, number: int) -> Message:
        rng = self._rng
        chance = rng.random()
        ids = [f"call{i}" for i in range(4)]
        if chance < 0.03:
            return Message(f"m{number}", Role.SYSTEM, f"rule {number}")
        if chance < 0.15:
            calls = tuple(ToolCall(i, "search", '{"q":1}') for i in rng.choices(ids, k=rng.choice([1, 1, 2, 3])))
            return Message(f"m{number}", Role.ASSISTANT, rng.choice(["", f"I search {number}."]), tool_calls=calls)
        if chance < 0.30:
            return Message(f"m{number}", Role.TOOL, f"found {number}", tool_call_id=rng.choice(ids))
        role = Role.USER if rng.random() < 0.5 else Role.ASSISTANT
        return Message(f"m{number}", role, "" if rng.random() < 0.1 else f"said {number}")

    def _exchange(self, number: int) -> tuple[CountedMessage, ...]:
        """A question, a call, a large result and an answer."""
        call = ToolCall(f"x{number}", "search", "{}")
        large = 4 + int(self._rng.uniform(0.05, 0.15) * self._context_length)
        source = self._rng.choice(self._sources)
        said = (
            (Message(f"m{number}", Role.USER, "where?"), 4),
            (Message(f"m{number + 1}", Role.ASSISTANT, "", tool_calls=(call,)), 4),
            (Message(f"m{number + 2}", Role.TOOL, f"found {number}", tool_call_id=call.id), large),
            (Message(f"m{number + 3}", Role.ASSISTANT, "there"), 4),
        )
        return tuple(CountedMessage(message, TokenCount(tokens, source), "simulated") for message, tokens in said)

    def _counted(self, message: Message) -> CountedMessage:
        rng = self._rng
        share = rng.choice([0.0, 0.005, 0.02, 0.05, 0.05, 0.1, 0.3, 1.5 if rng.random() < 0.1 else 0.01])
        tokens = 4 + int(share * rng.random() * self._context_length)
        return CountedMessage(message, TokenCount(tokens, rng.choice(self._sources)), "simulated")

    def _change(self) -> ChangeSettings:
        rng = self._rng
        factor = self.state.settings.calibration_factor
        if rng.random() < 0.2:
            return self._changed(replace(self.state.settings, title=f"Title {rng.randrange(5)}"))
        return self._changed(replace(self._random_settings(), calibration_factor=factor))

    def _changed(self, settings: Settings) -> ChangeSettings:
        return ChangeSettings(settings)

    def _report(self) -> ReportUsage:
        state, rng = self.state, self._rng
        tokens = max(1, int(state.window_tokens * rng.uniform(0.4, 2.5)))
        version = rng.choice([state.message_version, rng.randrange(state.message_version + 2)])
        return ReportUsage(version, state.live.id if state.live else "", tokens)

    def _force(self) -> RequestPass:
        return RequestPass()

    def _remake(self) -> RemakeFallback:
        return RemakeFallback()

    def _name(self) -> ChangeTitle:
        record_id = self.state.live.id if self.state.live else ""
        return ChangeTitle(f"Named {self._rng.randrange(5)}", record_id, self.state.redaction)

    def _way_back(self) -> Command:
        state, rng = self.state, self._rng
        last = state.message_version
        numbers = tuple(rng.randint(1, last) for _ in range(rng.choice([1, 1, 3])))
        choices: list[Command] = [
            RewindConversation(max(0, last - rng.choice([0, 1, 2, 5, 20, last]))),
            PinMessages(numbers),
            PinMessages(numbers),
            UnpinMessages(tuple(state.pins) or numbers),
        ]
        if state.closed:
            choices += [ReopenConversation(), ReopenConversation()]
        elif rng.random() < 0.2:
            choices += [CloseConversation(), CloseConversation()]
        if state.rules.entries:
            rule = rng.choice(state.rules.entries)
            choices.append(DropRules(rule.number, rng.choice(["", rule.text])))
        if ever := (*state.records, *state.revoked):
            record = rng.choice(ever)
            choices += [RevokeSummary(record.id), RevokeSummary(record.id), RateSummary(record.id, Rating.BAD)]
            choices.append(ChangeTitle(f"Title {last}", record.id, state.redaction))
        return rng.choice(choices)

    def _pass_id(self) -> str:
        self._passes += 1
        return f"p{self._passes}"

    def _random_settings(self) -> Settings:
        rng = self._rng
        length = rng.choice([self._context_length] * 4 + [self._context_length // 2, self._context_length * 2])
        overrides: dict[str, Any] = {} if rng.random() < 0.7 else {"enabled": rng.random() < 0.7}
        if rng.random() < 0.2:
            overrides |= {"preserve_recent": rng.randrange(2, 12), "cooldown_messages": rng.randrange(8)}
        return Settings(
            model="ollama:simulated",
            context_length=length,
            reserved_output_tokens=min(rng.choice([0, 0, length // 8]), length - BUDGET_MIN),
            overhead_tokens=rng.choice([0, 0, 50, length // 10]),
            policy=overrides,
        )


def _random_policy(rng: Random) -> Policy:
    """A policy that is possible; impossible ones are drawn again."""
    while True:
        trigger = rng.uniform(0.5, 1.0)
        policy = Policy(
            trigger_token_ratio=trigger,
            reset_token_ratio=trigger * rng.uniform(0.6, 0.99),
            emergency_token_ratio=rng.choice([trigger, 1.0, 1.2]),
            min_messages=rng.choice([0, 4, 12, 20]),
            preserve_recent=rng.choice([2, 3, 6, 15]),
            tail_token_ratio=rng.uniform(0.05, 0.6),
            cooldown_messages=rng.choice([0, 1, 4, 10]),
            rearm_messages=rng.choice([0, 1, 4, 10]),
            min_range_tokens=rng.choice([1, 32, 256]),
            min_gain=rng.choice([0.0, 0.2, 0.5]),
            max_summary_chain_depth=rng.choice([1, 2, 3, 5]),
            on_depth_limit=rng.choice(list(DepthLimit)),
            rebase_calls_max=rng.choice([1, 8]),
            force_refresh_after_messages=rng.choice([0, 0, 0, 5, 30]),
            max_input_tokens=rng.choice([1_000, 8_000]),
            fallback=rng.choice(list(Fallback)),
            tool_output=rng.choice(list(ToolOutput)),
        )
        try:
            return validated(policy)
        except InvalidPolicy:
            continue


def _rolling(rng: Random, policy: Policy) -> Policy:
    """The policy under ROLLING, with thresholds and shares that are possible."""
    while True:
        drawn = replace(
            policy,
            profile=ProfileName.ROLLING,
            threshold_tokens=rng.choice([100, 400, 1_000, 4_000, 16_000]),
            threshold_messages=rng.choice([12, 20, 60]),
            min_new_messages=rng.choice([0, 1, 5, 12]),
            record_token_ratio=rng.uniform(0.02, 0.4),
            tail_token_ratio=rng.uniform(0.05, 0.35),
            max_summary_tokens=rng.choice([128, 200, 800]),
            rewrites_max=rng.choice([1, 3, 16]),
        )
        try:
            return validated(drawn)
        except InvalidPolicy:
            policy = replace(policy, preserve_recent=2)


def _episodic(rng: Random, policy: Policy) -> Policy:
    """The policy under EPISODES, with sizes and a share that are possible."""
    while True:
        least = rng.choice([1, 2, 4])
        drawn = replace(
            policy,
            profile=ProfileName.EPISODES,
            episode_trigger_messages=least + rng.choice([1, 4, 10]),
            min_episode_size=least,
            max_episode_size=least + rng.choice([1, 4, 16]),
            episode_overlap=rng.choice([0, least - 1]),
            episode_token_ratio=rng.uniform(0.02, 0.4),
            tail_token_ratio=rng.uniform(0.05, 0.35),
        )
        try:
            return validated(drawn)
        except InvalidPolicy:
            policy = replace(policy, preserve_recent=2)
