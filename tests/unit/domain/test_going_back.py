"""Going back, as docs/adr/0016-going-back.md decides it: revoke, rewind and redact in any order, and fold = live.

Random chats of profile CHAIN, every now and then set back. What a window must hold is worked out anew from everything
that ever happened, by sets and without the fold's functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from random import Random

import pytest

from service.domain.conversation import lineage
from service.domain.decide import Command, RemakeFallback, decide
from service.domain.events import Event, MessageAppended, SummarizationCompleted, SummarizationRequested, Trigger
from service.domain.message import Role
from service.domain.policy import Policy
from service.domain.profiles import chain
from service.domain.profiles.profile import DecisionContext
from service.domain.record import MessageRange, SummaryRecord
from service.domain.tokens import TokenSource
from service.domain.triggers import cancelled
from tests.support.chats import append, appended, complete
from tests.support.going_back import (
    ConversationRewound,
    Entry,
    GoingBack,
    History,
    MessagesRedacted,
    Restore,
    SummaryRevoked,
    dependents,
    evolved,
    folded,
    restored,
    returning,
    shown_without,
)
from tests.support.simulation import SimulatedChat

HISTORIES = int(os.environ.get("HISTORIES", "400"))
CHUNKS = 8
GOING_BACK_SHARE = 0.25


class RandomHistory:
    """The history of one seed: a simulated chat that is set back between its commands."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"going back {seed}")
        self._chat = SimulatedChat(seed)
        self.history = History()
        self.log: list[Entry] = []

    def run(self) -> None:
        for step in self._chat.steps():
            for event in step.events:
                self._happens(event, step.now_us)
            if self._rng.random() < GOING_BACK_SHARE:
                self._go_back(step.now_us)
                # The chat goes on from there.
                self._chat.state = self.history.conversation

    def originals(self, ranges: Iterable[MessageRange]) -> list[MessageAppended]:
        """The messages of these ranges, as the log has them."""
        wanted = [*ranges]
        messages = (event for event, _ in self.log if isinstance(event, MessageAppended))
        return [m for m in messages if any(r.first <= m.number <= r.last for r in wanted)]

    def _happens(self, event: Event | GoingBack, at_us: int) -> None:
        returned = self.originals(returning(self.history, event))
        self.history = evolved(self.history, event, at_us, returned)
        self.log.append((event, at_us))

    def _go_back(self, at_us: int) -> None:
        state = self.history.conversation
        if state.pending:
            self._happens(cancelled(state.pending.pass_id, attempts=0), at_us)
        event = self._rng.choice([self._revocation, self._rewind, self._redaction])()
        if event is None:
            return
        self._happens(event, at_us)
        if isinstance(event, MessagesRedacted):
            self._erase(event.tokens)

    def _revocation(self) -> SummaryRevoked | None:
        records = [*self.history.conversation.records]
        return SummaryRevoked(*self._without([self._rng.choice(records)])) if records else None

    def _rewind(self) -> ConversationRewound:
        last = self.history.conversation.message_version
        to = max(1, last - self._rng.choice([1, 2, 5, 20, last]))
        return ConversationRewound(to, *self._without(self._covering(range(to + 1, last + 1))))

    def _redaction(self) -> MessagesRedacted:
        last = self.history.conversation.message_version
        numbers = {self._rng.randint(1, last) for _ in range(self._rng.choice([1, 1, 3]))}
        tokens = {number: self._rng.randint(1, 4) for number in numbers}
        return MessagesRedacted(tokens, *self._without(self._covering(numbers)))

    def _covering(self, numbers: Iterable[int]) -> list[SummaryRecord]:
        gone = set(numbers)
        return [r for r in self.history.conversation.records if gone & numbers_of(r)]

    def _without(self, records: Iterable[SummaryRecord]) -> tuple[frozenset[str], tuple[str, ...]]:
        revoked = dependents(self.history, (record.id for record in records))
        return revoked, shown_without(self.history, revoked)

    def _erase(self, numbers: Iterable[int]) -> None:
        """The stored text goes too; who counted it, and to what, stays."""
        gone = set(numbers)
        for place, (event, at_us) in enumerate(self.log):
            if isinstance(event, MessageAppended) and event.number in gone:
                self.log[place] = (event._replace(message=event.message._replace(content="")), at_us)


def numbers_of(record: SummaryRecord) -> set[int]:
    return {n for r in record.covered for n in range(r.first, r.last + 1)}


class Expected:
    """What the window must hold, from everything that ever happened."""

    def __init__(self, log: Sequence[Entry]) -> None:
        self.messages: dict[int, MessageAppended] = {}
        self.places: list[SummaryRecord] = []
        self.revoked: set[str] = set()
        self._replaces: dict[str, str] = {}
        self._renamed: dict[str, str] = {}
        for event, _ in log:
            self._happens(event)

    def _happens(self, event: Event | GoingBack) -> None:
        match event:
            case MessageAppended():
                self.messages[event.number] = event
            case SummarizationRequested(plan=plan) if plan.trigger is Trigger.REMAKE:
                self._replaces[plan.pass_id] = plan.replaces_id
            case SummarizationCompleted(record=record):
                self._in_place(self._replaces.get(event.pass_id, ""), record)
            case SummaryRevoked():
                self.revoked |= event.revoked_ids
            case ConversationRewound():
                self.revoked |= event.revoked_ids
                self.messages = {n: m for n, m in self.messages.items() if n <= event.to}
            case MessagesRedacted():
                self.revoked |= event.revoked_ids
                for number, tokens in event.tokens.items():
                    if number in self.messages:
                        blank = self.messages[number].message._replace(content="")
                        self.messages[number] = self.messages[number]._replace(message=blank, tokens=tokens)
            case _:
                pass

    def _in_place(self, replaced_id: str, record: SummaryRecord) -> None:
        places = [place for place, r in enumerate(self.places) if r.id == replaced_id]
        for place in places:
            self.places[place] = record
        if not places:
            self.places.append(record)
        self._renamed[replaced_id] = record.id

    def chain(self) -> list[SummaryRecord]:
        """The newest record in use and those that it stands on."""
        in_use = {record.id: record for record in self.places if record.id not in self.revoked}
        record = next(reversed(in_use.values()), None)
        found = []
        while record is not None:
            found.append(record)
            parent = record.parent_id
            while parent in self._renamed:
                parent = self._renamed[parent]
            record = None if record.stands_alone or record.depth == 0 else in_use[parent]
        return found

    def window(self) -> list[tuple[int, str, int]]:
        """Number, text and tokens of each message."""
        covered = {n for record in self.chain() for n in numbers_of(record)}
        return [(n, m.message.content, m.tokens) for n, m in sorted(self.messages.items()) if n not in covered]


def check(history: History, log: Sequence[Entry]) -> None:
    """Hold a history against everything that ever happened."""
    state, expected = history.conversation, Expected(log)
    chain = [record.id for record in expected.chain()]

    assert [(m.number, m.message.content, m.tokens) for m in state.window] == expected.window()
    assert [record.id for record in lineage(state)] == chain
    assert [shown.record.id for shown in state.shown] == chain[:1]
    estimated = sum(m.tokens for m in state.window if m.source is TokenSource.ESTIMATE)
    assert state.estimated_tokens == estimated
    assert state.exact_tokens == sum(m.tokens for m in state.window) - estimated
    assert state.chat_messages == sum(m.message.role is not Role.SYSTEM for m in state.window)


def checked_all(seeds: Iterable[int], restore: Restore = restored) -> None:
    """Check the history of each seed."""
    for seed in seeds:
        try:
            checked(seed, restore)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def checked(seed: int, restore: Restore) -> None:
    """Run the history of `seed`, fold its log anew and in two halves."""
    random = RandomHistory(seed)
    random.run()
    middle = len(random.log) // 2
    whole = folded(random.log, random.originals, restore=restore)
    check(whole, random.log)
    check(random.history, random.log)
    halves = folded(random.log[middle:], random.originals, since=folded(random.log[:middle], random.originals))
    assert whole == random.history == halves


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_fold_is_the_live_state_after_any_way_back(chunk):
    """Revoked, rewound and redacted in any order; both hold what everything that ever happened says."""
    checked_all(range(chunk, HISTORIES, CHUNKS))


def test_the_histories_go_back_in_every_way_and_bring_messages_back():
    """They would prove nothing if no message ever returned, or if none that did was redacted or removed before."""
    kinds: set[type] = set()
    came_back = redacted_came_back = 0
    for seed in range(60):
        random = RandomHistory(seed)
        random.run()
        history = History()
        for event, at_us in random.log:
            returned = random.originals(returning(history, event))
            came_back += len(returned)
            redacted_came_back += sum(m.number in history.redacted for m in returned)
            kinds |= {type(event)} if isinstance(event, GoingBack) else set()
            history = evolved(history, event, at_us, returned)

    assert kinds == {SummaryRevoked, ConversationRewound, MessagesRedacted}
    assert came_back > 100
    assert redacted_came_back > 5


def after(history: History, command: Command, *, next_pass_id: str) -> History:
    """The history behind a command under profile CHAIN."""
    for event in decide(history.conversation, command, DecisionContext(chain, Policy(), 0, next_pass_id)):
        history = evolved(history, event, 0)
    return history


def test_what_was_made_from_a_record_goes_with_the_one_that_took_its_place():
    """A stand-in was continued and then remade: whoever revokes the remade one revokes what continues it."""
    messages = [appended(number) for number in range(1, 152)]
    history = after(History(), append(*messages[:80]), next_pass_id="p")
    history = after(history, complete(history.conversation, fallback=True), next_pass_id="-")
    history = after(history, append(*messages[80:]), next_pass_id="q")
    history = after(history, complete(history.conversation), next_pass_id="-")
    history = after(history, RemakeFallback(), next_pass_id="r")
    history = after(history, complete(history.conversation), next_pass_id="-")

    revoked = dependents(history, ["summary-r"])
    event = SummaryRevoked(revoked, shown_without(history, revoked))
    (outside,) = returning(history, event)
    back = evolved(history, event, 0, messages[outside.first - 1 : outside.last])

    assert revoked == {"summary-q", "summary-r"}
    assert dependents(history, ["summary-p"]) == {"summary-p"}
    assert (back.conversation.shown, [*back.conversation.window]) == ((), messages)


def _with_redacted_text(_history: History, messages: Iterable[MessageAppended]) -> list[MessageAppended]:
    return [*messages]


def _one_short(history: History, messages: Iterable[MessageAppended]) -> list[MessageAppended]:
    return [*restored(history, messages)][1:]


def _twice(history: History, messages: Iterable[MessageAppended]) -> list[MessageAppended]:
    return [*restored(history, messages)] * 2


def _none(_history: History, _messages: Iterable[MessageAppended]) -> list[MessageAppended]:
    return []


@pytest.mark.parametrize("wrong", [_with_redacted_text, _one_short, _twice, _none])
def test_a_wrong_restore_is_found(wrong):
    """What was redacted comes back as it was, a message is missing, comes twice, or none comes back."""
    with pytest.raises(AssertionError):
        checked_all(range(min(HISTORIES, 400)), wrong)
