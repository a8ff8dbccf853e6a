"""Going back, as docs/adr/0016-going-back.md decides it: revoke, pin, redact and rewind in any order, and fold = live.

Random chats of each profile, every now and then set back. The oracle works out a window anew from everything that ever
happened, by sets and without the fold's functions.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pytest

from abridged.service.domain.amendments import needed
from abridged.service.domain.amendments_fold import returning
from abridged.service.domain.commands import (
    PinMessages,
    RateSummary,
    RemakeFallback,
    ReportUsage,
    RevokeSummary,
    RewindConversation,
    UnpinMessages,
)
from abridged.service.domain.conversation import Conversation, initial_state, lineage
from abridged.service.domain.errors import (
    MessageNotFound,
    MessageRemoved,
    PinsTooLarge,
    SummaryNotFound,
    SummaryNotInUse,
    VersionNotReached,
)
from abridged.service.domain.events import (
    ConversationClosed,
    ConversationReopened,
    ConversationRewound,
    Event,
    MessageAppended,
    MessagesPinned,
    MessagesRedacted,
    MessagesUnpinned,
    Rating,
    ResultMark,
    RulesDropped,
    SummarizationCleared,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationRequested,
    SummaryRevoked,
    Trigger,
)
from abridged.service.domain.fold import Originals, evolve, fold
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import Policy, ProfileName, SummaryRole
from abridged.service.domain.profiles import chain
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.ranges import covers, ranges_of
from abridged.service.domain.record import SummaryRecord
from abridged.service.domain.redaction import Redaction, as_redacted, redacted_mark
from abridged.service.domain.render import RenderedMessage, rendered_window
from abridged.service.domain.rules import RuleFinds
from abridged.service.domain.tokens import TokenSource
from abridged.service.domain.triggers import held_by
from abridged.service.domain.window import tool_pairs
from tests.support import invariants
from tests.support.chat_by_hand import Chat, full_chat
from tests.support.chats import append, appended, calling, complete, only_plan, result, said
from tests.support.simulation import SimulatedChat

FORKS = 0.02
"""Share of the steps after which a history goes on as its fork."""

REDACTIONS = 0.1
"""Share of the steps of every other history after which messages are redacted."""

HISTORIES = int(os.environ.get("HISTORIES", "200"))
CHUNKS = 10
AMENDMENTS = 0.25

Log = Sequence[tuple[Event, int]]


def numbers_of(record: SummaryRecord) -> set[int]:
    return {n for r in record.covered for n in range(r.first, r.last + 1)}


class Expected:
    """The content of the window, worked out from everything that ever happened."""

    def __init__(self, log: Log, profile: ProfileName) -> None:
        self._profile = profile
        self.messages: dict[int, MessageAppended] = {}
        self.places: list[SummaryRecord] = []
        self.revoked: set[str] = set()
        self.pins: set[int] = set()
        self.marks: dict[int, ResultMark] = {}
        self.redacted: set[int] = set()
        self._replaces: dict[str, str] = {}
        self._beside: dict[str, tuple[str, ...]] = {}
        self._instead_of: dict[str, list[str]] = {}
        self._shown: list[str] = []
        self._renamed: dict[str, str] = {}
        self.rules: dict[tuple[int, str], tuple[int, bool]] = {}
        for event, _ in log:
            self._happens(event)

    def _happens(self, event: Event) -> None:
        match event:
            case MessageAppended():
                self.messages[event.number] = event
            case SummarizationRequested(plan=plan) if plan.trigger is Trigger.REMAKE:
                self._replaces[plan.pass_id] = plan.replaces_id
            case SummarizationRequested(plan=plan):
                self._beside[plan.pass_id] = plan.beside_ids
            case SummarizationCompleted(record=record):
                self._in_place(self._replaces.get(event.pass_id, ""), record)
                self.marks |= {mark.number: mark for mark in event.marks}
                if event.pass_id in self._beside:
                    self._show(record, self._beside[event.pass_id])
                self._learn(event.rules)
            case SummarizationCleared():
                self.marks |= {mark.number: mark for mark in event.marks}
            case SummaryRevoked():
                self._revoke(event.revoked_ids)
            case MessagesPinned():
                self.pins |= set(event.numbers)
                self.marks = {n: mark for n, mark in self.marks.items() if n not in self.pins}
            case MessagesUnpinned():
                self.pins -= set(event.numbers)
            case RulesDropped():
                self.rules |= {(n, text): (self.rules[n, text][0], True) for n, text in event.rules}
            case MessagesRedacted():
                self._revoke(event.revoked_ids)
                self.redacted |= set(event.numbers)
                self.marks = {n: redacted_mark(mark) for n, mark in self.marks.items() if n not in self.redacted}
                self.rules = {name: how for name, how in self.rules.items() if name[0] not in self.redacted}
            case ConversationRewound():
                self._revoke(event.revoked_ids)
                self.rules = {
                    name: (by if by <= event.to else 0, dropped)
                    for name, (by, dropped) in self.rules.items()
                    if name[0] <= event.to
                }
                self.messages = {n: m for n, m in self.messages.items() if n <= event.to}
                self.pins = {n for n in self.pins if n <= event.to}
            case _:
                pass

    def _learn(self, found: RuleFinds) -> None:
        self.rules = {(rule.number, rule.text): (0, False) for rule in found.rules} | self.rules
        for one in found.revoked:
            self.rules[one.number, one.text] = (one.by, self.rules[one.number, one.text][1])

    def _in_place(self, replaced_id: str, record: SummaryRecord) -> None:
        places = [place for place, r in enumerate(self.places) if r.id == replaced_id]
        for place in places:
            self.places[place] = record
        if not places:
            self.places.append(record)
        self._renamed[replaced_id] = record.id
        self._instead_of[record.id] = self._instead_of.get(replaced_id, [])

    def _show(self, record: SummaryRecord, beside: Sequence[str]) -> None:
        shown = [self._now(name) for name in self._shown]
        self._instead_of[record.id] = [name for name in shown if name not in beside]
        self._shown = [name for name in shown if name in beside] + [record.id]

    def live(self) -> list[SummaryRecord]:
        """The records that stand for messages outside the window, newest first."""
        return self._chain() if self._profile is ProfileName.CHAIN else self._side_by_side()

    def shown(self) -> list[SummaryRecord]:
        """Return the live records that the window shows."""
        return self.live()[:1] if self._profile is ProfileName.CHAIN else self.live()[::-1]

    def _side_by_side(self) -> list[SummaryRecord]:
        by_id = {record.id: record for record in self.places}
        return sorted((by_id[self._now(name)] for name in self._shown), key=lambda record: -record.covered[-1].last)

    def _now(self, name: str) -> str:
        """The name of the record in this one's place."""
        while name in self._renamed:
            name = self._renamed[name]
        return name

    def _revoke(self, names: Iterable[str]) -> None:
        """Put, in the place of each record that is shown, those whose place it had taken."""
        self.revoked |= set(names)
        left, self._shown = list(self._shown), []
        while left:
            name = left.pop()
            if self._now(name) not in self.revoked:
                self._shown.append(self._now(name))
            else:
                left += self._instead_of.get(name, [])

    def _chain(self) -> list[SummaryRecord]:
        """The newest record in use and those that it continues."""
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

    def window(self) -> list[MessageAppended]:
        """The messages, by number."""
        covered = {n for record in self.live() for n in numbers_of(record)} - self.pins
        return [self._as_shown(m) for n, m in sorted(self.messages.items()) if n not in covered]

    def _as_shown(self, m: MessageAppended) -> MessageAppended:
        m = as_redacted(m, Redaction(ranges_of(self.redacted)))
        mark = self.marks.get(m.number)
        if mark is None:
            return m
        message = m.message._replace(content=mark.text)
        return m._replace(message=message, tokens=mark.tokens, source=TokenSource.ESTIMATE, cleared_tokens=m.tokens)


def check(state: Conversation, log: Log, profile: ProfileName) -> None:
    """Hold a state against everything that ever happened."""
    expected = Expected(log, profile)
    window = expected.window()

    assert [*state.window] == window
    assert [record.id for record in lineage(state)] == [record.id for record in expected.live()]
    assert [shown.record.id for shown in state.shown] == [record.id for record in expected.shown()]
    assert state.pins == expected.pins
    assert {tuple(r.name): (r.revoked_by, r.dropped) for r in state.rules.entries} == expected.rules
    assert state.estimated_tokens == sum(m.tokens for m in window if m.source is TokenSource.ESTIMATE)
    assert state.exact_tokens == sum(m.tokens for m in window if m.source is not TokenSource.ESTIMATE)
    assert state.chat_messages == sum(m.message.role is not Role.SYSTEM for m in window)
    assert state.chat_messages_ever == sum(m.message.role is not Role.SYSTEM for m in expected.messages.values())
    if state.pending:
        planned = set(state.pending.base_id.split()) | set(state.pending.beside_ids)
        assert not planned & expected.revoked, "a pass continues a revoked record"


def checked_all(seeds: Iterable[int], profile: ProfileName) -> None:
    """Check the history of each seed."""
    for seed in seeds:
        try:
            checked(seed, profile)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def checked(seed: int, profile: ProfileName) -> None:
    """Run the history of `seed`, checking every step; fold its log anew and in two halves."""
    chat = SimulatedChat(seed, amendments=AMENDMENTS, profile=profile, forks=FORKS, redactions=REDACTIONS * (seed % 2))
    originals: dict[int, Message] = {}
    rendered: tuple[RenderedMessage, ...] = ()
    for step in chat.steps():
        originals |= {e.number: e.message for e in step.events if isinstance(e, MessageAppended)}
        originals |= _redacted(step.events, chat.log)
        check(step.after, chat.log, profile)
        before, rendered = rendered, rendered_window(step.after, SummaryRole.SYSTEM)
        invariants.sums_are_exact(step.after)
        if step.after.is_open and step.after.pending is None:
            held = held_by(step.after, step.policy, step.now_us)
            invariants.hold_is_told(step.after, step.policy, step.now_us, held=held)
        invariants.calls_are_answered(rendered, originals)
        invariants.order_is_fixed(step.after, rendered)
        invariants.prefix_is_stable(step, before, rendered)
        invariants.rules_are_as_said(step.after, rendered)
        invariants.newest_stays_after_a_rewind(step)
    middle = len(chat.log) // 2
    halves = fold(chat.log[middle:], fold(chat.log[:middle], originals=chat.originals), originals=chat.originals)
    assert fold(chat.log, originals=chat.originals) == chat.state == halves


def _redacted(events: Iterable[Event], log: Log) -> dict[int, Message]:
    numbers = {n for event in events if isinstance(event, MessagesRedacted) for n in event.numbers}
    redaction = Redaction(ranges_of(numbers))
    said = (event for event, _ in log if isinstance(event, MessageAppended) and event.number in numbers)
    return {m.number: as_redacted(m, redaction).message for m in said}


PROFILES = pytest.mark.parametrize("profile", ProfileName)


@PROFILES
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_fold_is_the_live_state_after_any_way_back(chunk, profile):
    """Revoked, pinned, rewound, redacted, closed and reopened in any order; both hold what everything that ever
    happened says: each message is in the window or stands in a record that is shown. The window grows at its end
    between two of them, and between passes.
    """
    checked_all(range(chunk, HISTORIES, CHUNKS), profile)


@PROFILES
def test_the_histories_go_back_in_every_way_and_bring_messages_back(profile):
    """They would prove nothing if no message ever returned, left again, or was removed."""
    kinds: dict[type, int] = {}
    came_back: dict[type, int] = {}
    for seed in range(200):
        chat = SimulatedChat(seed, amendments=AMENDMENTS, profile=profile, forks=FORKS)
        for step in chat.steps():
            state = step.before
            for event in step.events:
                back = returning(state, event)
                came_back[type(event)] = came_back.get(type(event), 0) + sum(map(len, back))
                kinds[type(event)] = kinds.get(type(event), 0) + 1
                state = evolve(state, event, step.now_us, chat.originals(back))

    assert min(kinds[k] for k in (SummaryRevoked, MessagesPinned, MessagesUnpinned, ConversationRewound)) > 20
    assert min(kinds[k] for k in (ConversationClosed, ConversationReopened)) > 20
    assert kinds[RulesDropped] > 20
    assert profile is not ProfileName.CHAIN or kinds[SummarizationCleared] > 5
    assert came_back[SummaryRevoked] > 100
    assert came_back[MessagesPinned] > 10
    assert came_back[ConversationRewound] > 5


def nothing_comes_back(originals: Originals) -> Originals:
    return lambda ranges: originals(ranges)[1:]


def test_a_fold_that_is_not_given_what_comes_back_is_refused():
    """The control of all of the above: one message fewer, and the fold says so instead of showing a shorter window."""
    for seed in range(100):
        chat = SimulatedChat(seed, amendments=AMENDMENTS)
        state = initial_state()
        [*chat.steps()]
        for event, at_us in chat.log:
            back = returning(state, event)
            if back:
                with pytest.raises(AssertionError, match="all messages that come back"):
                    fold([(event, at_us)], state, originals=nothing_comes_back(chat.originals))
                return
            state = evolve(state, event, at_us)
    raise AssertionError("no history brought a message back")


def test_a_revoked_record_leaves_the_window_whole_again_and_the_range_is_redone_at_once():
    """No cooldown or hysteresis holds it back: the messages are as new as before the pass."""
    chat = full_chat()
    record_id = chat.compressed()
    assert 1 not in chat.numbers()

    events = chat.after(RevokeSummary(record_id))

    assert chat.numbers() == [*range(1, 81)]
    assert (chat.state.shown, [r.id for r in chat.state.revoked]) == ((), [record_id])
    requested = [event for event in events if isinstance(event, SummarizationRequested)]
    assert [event.plan.trigger for event in requested] == [Trigger.RATIO]
    assert requested[0].plan.pass_id != record_id


def test_without_the_redo_a_revoked_range_would_wait_for_its_cooldown():
    """The control: the same state, not due for a redo, asks for nothing."""
    chat = full_chat()
    record_id = chat.compressed()
    chat.policy = Policy(cooldown_messages=100, rearm_messages=100)
    chat.after(RevokeSummary(record_id))
    pending, chat.state = chat.state.pending, chat.state._replace(pending=None, redo_due=False)

    assert pending is not None
    assert chain.due(chat.state, DecisionContext(chain, chat.policy, 0, "p"), extractive=False) is None


def test_what_was_made_from_a_record_goes_with_the_one_that_took_its_place():
    """A stand-in was continued and then remade: revoking the remade one revokes the record that continues it."""
    chat = full_chat()
    chat.after(complete(chat.state, fallback=True))
    chat.after(append(*(appended(number) for number in range(81, 152))))
    continued = chat.compressed()
    chat.after(RemakeFallback())
    chat.after(complete(chat.state))
    (remade,) = chat.state.successors.values()

    chat.after(RevokeSummary(remade))

    assert {r.id for r in chat.state.revoked} == {remade, continued}
    assert chat.numbers() == [*range(1, 152)]


def test_a_pending_pass_that_would_continue_a_revoked_record_is_cancelled():
    """The same commit cancels it: no record is ever made from one that is out of use."""
    chat = full_chat()
    record_id = chat.compressed()
    chat.after(append(*(appended(number) for number in range(81, 152))))
    assert chat.state.pending
    assert chat.state.pending.base_id == record_id

    events = chat.after(RevokeSummary(record_id))

    assert isinstance(events[0], SummarizationFailed)
    assert only_plan(events).base_id == ""


def test_a_record_is_revoked_once_and_only_if_there_is_one():
    """A second revocation would find nothing to do, and says so."""
    chat = full_chat()
    record_id = chat.compressed()
    with pytest.raises(SummaryNotFound):
        chat.after(RevokeSummary("nothing"))
    chat.after(RevokeSummary(record_id))
    with pytest.raises(SummaryNotInUse):
        chat.after(RevokeSummary(record_id))


def test_a_rewind_takes_the_newest_messages_out_and_their_numbers_are_not_used_again():
    """A number means one message for ever."""
    chat = Chat(append(*(appended(number) for number in range(1, 11))))

    chat.after(RewindConversation(6))
    chat.after(append(appended(11)))

    assert chat.numbers() == [1, 2, 3, 4, 5, 6, 11]
    assert chat.state.message_version == 11
    assert chat.state.chat_messages_ever == 7
    assert chat.after(RewindConversation(11)) == []


def test_a_rewind_behind_a_record_revokes_it_and_brings_back_what_stays():
    """A record may not speak of messages that were taken back."""
    chat = full_chat()
    record_id = chat.compressed()

    chat.after(RewindConversation(40))

    assert chat.numbers() == [*range(1, 41)]
    assert [r.id for r in chat.state.revoked] == [record_id]
    assert chat.after(RewindConversation(40)) == []
    assert chat.after(RewindConversation(50)) == []
    chat.after(RewindConversation(0))
    assert chat.numbers() == []


def test_a_rewind_to_the_end_of_a_record_brings_its_messages_back():
    """The question that is to be answered again stands in its own words, whatever was removed before."""
    chat = full_chat()
    record_id = chat.compressed()
    end = chat.state.records[0].covered[-1].last

    kept = full_chat()
    kept.compressed()
    kept.after(RewindConversation(end + 1))
    chat.after(RewindConversation(end))

    assert kept.numbers() == [end + 1] and not kept.state.revoked
    assert chat.numbers() == [*range(1, end + 1)]
    assert [r.id for r in chat.state.revoked] == [record_id]


def agent_chat(users: Collection[int], count: int, policy: Policy | None = None) -> Chat:
    """A chat in which the assistant takes most turns, with as many passes as are due."""
    roles = {number: Role.USER if number in users else Role.ASSISTANT for number in range(1, count + 1)}
    events = (appended(number, message=said(number, role)) for number, role in roles.items())
    chat = Chat(append(*events), policy=policy)
    while chat.state.pending:
        chat.compressed()
    return chat


def test_a_rewind_brings_the_newest_user_message_back_in_its_own_words():
    """The step that is to be redone answers it."""
    chat = agent_chat({1, 60, 76}, 80)
    assert chat.numbers()[:2] == [75, 76]

    chat.after(RewindConversation(75))

    assert chat.numbers() == [*range(1, 76)]
    assert not chat.state.records


def test_a_rewind_goes_back_as_many_records_as_the_newest_user_message_is_behind():
    """Each record that is taken back shows whether one of its messages is a user's; those before it stay."""
    chat = agent_chat({1, 60, 170}, 171, Policy(max_input_tokens=512, pass_calls_max=1))
    assert [record.covered for record in chat.state.records] == [ranges_of(range(n, n + 36)) for n in (1, 37, 73)]
    assert needed(chat.state, RewindConversation(120)) == ranges_of(range(73, 109))

    chat.after(RewindConversation(120))

    assert chat.numbers() == [*range(37, 121)]


def test_a_rewind_brings_nothing_back_where_no_user_speaks():
    """The records stay, and no more is read than two of them cover."""
    chat = agent_chat((), 171, Policy(max_input_tokens=512, pass_calls_max=1))
    rewind = RewindConversation(120)
    read = chat.originals(rewind)

    chat.after(rewind)

    assert chat.numbers() == [*range(109, 121)]
    assert len(chat.state.records) == 3
    assert [m.number for m in read] == [*range(73, 109), *range(37, 73)]


def test_a_pin_is_no_newest_user_message():
    """Pins stand apart from what the assistant is to go on with."""
    chat = agent_chat({1, 60, 76}, 80)
    chat.after(PinMessages((1,)))

    chat.after(RewindConversation(75))

    assert chat.numbers() == [*range(1, 76)]


def test_an_append_that_replaces_the_end_brings_nothing_back_if_it_has_a_users_message():
    """An assistant's message answers an older one, which comes back."""
    asked, answered = agent_chat({1, 60, 76}, 80), agent_chat({1, 60, 76}, 80)

    asked.after(replace(append(appended(76, message=said(200))), replace_after=75))
    answered.after(replace(append(appended(76, message=said(200, Role.ASSISTANT))), replace_after=75))

    assert asked.numbers() == [75, 81]
    assert answered.numbers() == [*range(1, 76), 81]


def test_no_conversation_is_rewound_to_what_it_has_not_reached():
    """A number that no message has yet is nothing to go back to, and the refusal says which is the last."""
    with pytest.raises(VersionNotReached, match=r"^message 2 was asked for; the last is 1$"):
        Chat(append(appended(1))).after(RewindConversation(2))


def test_a_pinned_message_is_left_out_of_every_pass():
    """A pinned message stays verbatim, in its place before the tail."""
    chat = Chat(append(*(appended(number) for number in range(1, 40))))
    chat.after(PinMessages((3,)))
    chat.after(append(*(appended(number) for number in range(40, 81))))

    chat.compressed()

    assert chat.numbers()[0] == 3
    assert not any(covers(record.covered, 3) for record in chat.state.records)


def test_a_message_that_says_so_is_pinned_as_it_comes():
    """No second call is needed for a message that must never be summarized."""
    pinned = appended(3, message=said(3)._replace(pinned=True))
    chat = Chat(append(appended(1), appended(2), pinned, *(appended(number) for number in range(4, 81))))

    chat.compressed()

    assert chat.numbers()[0] == 3


def test_a_pin_brings_a_covered_message_back_and_unpinning_takes_it_out_again():
    """The record goes on covering it, so unpinning loses nothing."""
    chat = full_chat()
    chat.compressed()
    left = chat.numbers()

    chat.after(PinMessages((5,)))
    assert chat.numbers() == [5, *left]
    chat.after(UnpinMessages((5,)))

    assert chat.numbers() == left
    assert chat.after(UnpinMessages((5,))) == []


def with_a_call() -> Chat:
    """Message 4 calls a tool, message 5 is its result, and both have left the window."""
    rest = (appended(number) for number in range(6, 82))
    call, answer = appended(4, message=calling(4, "a")), appended(5, message=result(5, "a"))
    chat = Chat(append(*(appended(number) for number in range(1, 4)), call, answer, *rest))
    chat.compressed()
    return chat


@pytest.mark.parametrize("number", [4, 5])
def test_a_pin_takes_the_call_with_its_result_and_the_reverse(number):
    """No chat API takes one without the other."""
    chat = with_a_call()

    chat.after(PinMessages((number,)))

    assert chat.numbers()[:2] == [4, 5]
    assert chat.state.pins == {4, 5}
    chat.after(UnpinMessages((number,)))
    assert chat.state.pins == set()


@pytest.mark.parametrize(("number", "unpinned"), [(4, 5), (5, 4), (4, 4), (5, 5)])
def test_any_message_of_a_unit_unpins_what_a_pin_keeps_of_it(number, unpinned):
    """One of them is pinned as it is appended, and keeps the other in the window without a pin of its own."""
    unit = [appended(4, message=calling(4, "a")), appended(5, message=result(5, "a"))]
    unit[number - 4] = appended(number, message=unit[number - 4].message._replace(pinned=True))
    chat = Chat(append(*(appended(n) for n in range(1, 4)), *unit, *(appended(n) for n in range(6, 82))))
    chat.compressed()
    assert chat.numbers()[:2] == [4, 5]
    assert chat.state.pins == {number}

    chat.after(UnpinMessages((unpinned,)))

    assert chat.state.pins == set()


def test_a_pinned_result_is_unpinned_by_its_call_that_has_left_the_window():
    """The call is in the log alone; the pin was never asked of it."""
    chat = Chat(append(appended(1), appended(2, message=calling(2, "a")), *(appended(n) for n in range(3, 82))))
    chat.compressed()
    chat.after(append(appended(82, message=result(82, "a")._replace(pinned=True))))
    assert chat.state.pins == {82}

    chat.after(UnpinMessages((2,)))

    assert chat.state.pins == set()


def test_a_pinned_system_message_is_unpinned():
    """A system message belongs to no unit."""
    rule = said(2, Role.SYSTEM)._replace(pinned=True)
    chat = Chat(append(appended(1), appended(2, message=rule)))
    chat.after(UnpinMessages((2,)))

    assert chat.state.pins == set()


@pytest.mark.parametrize("number", [4, 1_200])
@pytest.mark.parametrize("late", [False, True])
def test_a_pin_finds_the_other_half_of_its_call_however_far_it_is(number, late):
    """A job of hours: its result comes after 1,196 messages, and both have left the window."""
    between = [appended(n, 0, message=said(n, Role.USER if late else Role.ASSISTANT)) for n in range(5, 1_200)]
    unit = [appended(4, message=calling(4, "a")), *between, appended(1_200, message=result(1_200, "a"))]
    rest = (appended(n) for n in range(1_201, 1_290))
    chat = Chat(append(*(appended(n) for n in range(1, 4)), *unit, *rest))
    chat.compressed()
    assert not {4, 1_200} & set(chat.numbers())

    chat.after(PinMessages((number,)))

    assert {4, 1_200} <= chat.state.pins
    assert len(chat.state.pins) == (2 if late else len(unit))
    assert not tool_pairs([m for m in chat.state.window if m.number in chat.state.pins]).orphans


def test_a_call_that_no_result_answers_is_pinned_by_itself():
    """The search for its result goes to the end, and no further."""
    chat = Chat(append(appended(1), appended(2, message=calling(2, "a")), *(appended(n) for n in range(3, 800))))
    chat.compressed()

    chat.after(PinMessages((2,)))

    assert chat.state.pins == {2}


def test_a_pin_does_not_take_the_result_of_a_later_call_with_the_same_id():
    """Some clients count their calls from 1 in every turn; the later one is too far away to be read at first."""
    chat = Chat(
        append(
            appended(1),
            appended(2, message=calling(2, "a")),
            *(appended(n, 1) for n in range(3, 400)),
            appended(400, message=calling(400, "a")),
            *(appended(n) for n in range(401, 480)),
        )
    )
    chat.compressed()
    assert 400 not in chat.numbers()
    chat.after(append(appended(480, message=result(480, "a"))))

    chat.after(PinMessages((2,)))

    assert chat.state.pins == {2}


def test_a_late_result_that_is_pinned_as_it_is_appended_cancels_the_pass_over_its_call():
    """The call stays in the window with it, so the pass is planned anew without both."""
    chat = Chat(append(appended(1), appended(2, message=calling(2, "a")), *(appended(n) for n in range(3, 82))))
    first = chat.state.pending
    assert first
    assert covers(first.covered, 2)

    events = chat.after(append(appended(82, message=result(82, "a")._replace(pinned=True))))

    assert [type(event) for event in events] == [MessageAppended, SummarizationFailed, SummarizationRequested]
    chat.compressed()
    assert chat.numbers()[0] == 2
    assert 82 in chat.numbers()


def test_a_pinned_message_that_no_pending_pass_covers_cancels_none():
    """A model that is at work is not interrupted for nothing."""
    chat = full_chat()
    first = chat.state.pending

    chat.after(append(appended(81, message=said(81)._replace(pinned=True))))

    assert chat.state.pending == first


def test_a_pass_that_would_cover_a_message_that_is_pinned_meanwhile_is_planned_anew():
    """The pass's plan names the message, and plans are never changed."""
    chat = full_chat()
    first = chat.state.pending
    assert first

    events = chat.after(PinMessages((2,)))

    assert isinstance(events[0], SummarizationFailed)
    assert chat.state.pending
    assert not covers(chat.state.pending.covered, 2)


def test_pins_take_no_more_than_their_share():
    """Otherwise no pass could bring the window under its trigger."""
    chat = Chat(append(*(appended(number) for number in range(1, 41))))
    with pytest.raises(PinsTooLarge):
        chat.after(PinMessages(tuple(range(1, 27))))
    chat.after(PinMessages(tuple(range(1, 26))))

    with pytest.raises(PinsTooLarge):
        chat.after(append(appended(41, message=said(41)._replace(pinned=True))))


def test_only_messages_of_the_conversation_are_pinned():
    """A number that no message has, and one that a rewind removed."""
    chat = Chat(append(*(appended(number) for number in range(1, 11))), RewindConversation(5))
    with pytest.raises(MessageNotFound):
        chat.after(PinMessages((11,)))
    with pytest.raises(MessageRemoved):
        chat.after(PinMessages((7,)))


def test_the_latest_rating_of_a_record_counts():
    """Users change their minds."""
    chat = full_chat()
    record_id = chat.compressed()

    chat.after(RateSummary(record_id, Rating.GOOD))
    chat.after(RateSummary(record_id, Rating.BAD, "it forgot the gate"))

    assert chat.state.ratings == {record_id: Rating.BAD}
    with pytest.raises(SummaryNotFound):
        chat.after(RateSummary("nothing", Rating.GOOD))


def test_a_report_about_a_window_before_a_rewind_is_not_learned_from():
    """Messages of that window are gone, so its count would be compared with others; with its epoch, or without."""
    chat = Chat(append(*(appended(number, source=TokenSource.ESTIMATE) for number in range(1, 11))))
    before = chat.state.epoch
    chat.after(RewindConversation(5))

    assert chat.after(ReportUsage(10, "", 200, epoch=before)) == []
    assert chat.after(ReportUsage(10, "", 200)) == []
    assert chat.after(ReportUsage(10, "", 200, epoch=chat.state.epoch)) != []


def tool_exchange(number: int, tokens: int) -> list[MessageAppended]:
    """A question, a call, its result of that many tokens, and the answer."""
    call = Message(f"m{number + 1}", Role.ASSISTANT, "", tool_calls=(ToolCall(f"c{number}", "search", "{}"),))
    found = Message(f"m{number + 2}", Role.TOOL, f"flights of {number}", tool_call_id=f"c{number}")
    return [
        appended(number, 3, message=said(number)),
        appended(number + 1, 3, message=call),
        appended(number + 2, tokens, message=found),
        appended(number + 3, 3, message=said(number + 3, Role.ASSISTANT)),
    ]


CLEARING = Policy(clear_min_tokens=64, min_messages=2)


def test_a_pin_brings_the_text_of_a_cleared_result_back():
    """Pinned is verbatim: the mark goes, with the whole unit of the pin, and stays away."""
    chat = Chat(append(*(m for n in range(7) for m in tool_exchange(1 + 4 * n, 110))), policy=CLEARING)
    assert 3 in chat.state.marks

    chat.after(PinMessages((2,)))

    assert chat.state.pins == {2, 3}
    assert 3 not in chat.state.marks
    assert next(m.message.content for m in chat.state.window if m.number == 3) == "flights of 1"


def test_a_pin_on_what_is_said_between_a_call_and_its_cleared_result_brings_the_text_back():
    """They are one unit, whichever of its messages is pinned."""
    user, call, found, answer = tool_exchange(1, 110)
    between = appended(3, 3, message=said(3, Role.ASSISTANT, "This takes a moment."))
    rest = [m for n in range(1, 7) for m in tool_exchange(2 + 4 * n, 110)]
    chat = Chat(append(user, call, between, found, answer, *rest), policy=CLEARING)
    assert 4 in chat.state.marks

    chat.after(PinMessages((3,)))

    assert chat.state.pins == {2, 3, 4}
    assert next(m.message.content for m in chat.state.window if m.number == 4) == "flights of 1"


def test_the_next_pin_brings_back_what_was_cleared_in_a_unit_that_has_grown_since_its_pin():
    """A unit is pinned whole; a message that was pinned before its result came takes it along with the next pin."""
    user, call, found, answer = tool_exchange(1, 110)
    between = appended(3, 3, message=said(3, Role.ASSISTANT, "This takes a moment."))
    rest = [m for n in range(1, 7) for m in tool_exchange(2 + 4 * n, 110)]
    chat = Chat(append(user, call, found, between, answer, *rest), policy=CLEARING)
    chat.after(PinMessages((1,)))
    grown = chat.state._replace(pins=frozenset({1, 2}))
    assert 3 in grown.marks

    read = needed(grown, PinMessages((6,)))

    assert [(one.first, one.last) for one in read] == [(3, 3)]


def test_a_result_that_comes_after_its_call_was_pinned_is_not_cleared():
    """The result belongs to the pin, although no event names it."""
    first, rest = tool_exchange(1, 110), [m for n in range(1, 7) for m in tool_exchange(1 + 4 * n, 110)]
    chat = Chat(append(*first[:2]), policy=CLEARING)
    chat.after(PinMessages((2,)))

    chat.after(append(*first[2:], *rest))

    assert chat.state.marks
    assert 3 not in chat.state.marks


def test_what_a_rewind_removed_belongs_to_no_pin():
    """The result that was given again is pinned with its call, not the one that a rewind removed."""
    call = Message("m2", Role.ASSISTANT, "", tool_calls=(ToolCall("c", "search", "{}"),))
    again = [Message(f"m{n}", Role.TOOL, f"found {n}", tool_call_id="c") for n in (3, 4)]
    chat = Chat(append(appended(1), appended(2, message=call), appended(3, message=again[0])))
    chat.after(RewindConversation(2))
    chat.after(append(appended(4, message=again[1]), *(appended(number) for number in range(5, 95))))
    chat.compressed()

    chat.after(PinMessages((2,)))

    assert chat.state.pins == {2, 4}
    assert chat.numbers()[:2] == [2, 4]
