"""The seam between the rules of a profile and all else: another profile is another module, and nothing else knows.

ROLLING shows several records at once and updates them in place, through the parts that CHAIN has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from abridged.service.codec.events import decode, encode
from abridged.service.domain.commands import (
    AppendMessages,
    ChangeSettings,
    Command,
    RemakeFallback,
    ReportUsage,
    RequestPass,
)
from abridged.service.domain.conversation import Conversation, initial_state, lineage, live_coverage
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.events import (
    ConversationOpened,
    Event,
    MessageAppended,
    SettingsChanged,
    SummarizationCompleted,
    SummarizationRequested,
    UsageReported,
)
from abridged.service.domain.fold import evolve, fold
from abridged.service.domain.policy import ProfileName, SummaryRole
from abridged.service.domain.profiles import rolling
from abridged.service.domain.profiles.profile import DecisionContext, Profile
from abridged.service.domain.record import MessageRange
from abridged.service.domain.render import rendered_window
from abridged.service.domain.tokens import TokenSource
from abridged.service.domain.window import summary_tokens
from tests.support import invariants
from tests.support.chats import append, appended, complete, live_in, only_plan, pending_in, ranges

ROLLING: Profile = rolling
POLICY = replace(
    ROLLING.defaults(), threshold_tokens=600, threshold_messages=1_000, max_summary_tokens=128, record_token_ratio=0.3
)
"""Records of 128 tokens or more are full, and all of them may take 300."""

OTHER = ProfileName.CHAIN


def context_of(profile: ProfileName) -> DecisionContext:
    return DecisionContext(ROLLING, replace(POLICY, profile=profile), 0, "p")


class RollingChat:
    """A chat under ROLLING, through `decide` and `evolve` alone: messages of ten tokens, a budget of 1,000."""

    def __init__(self) -> None:
        self.state = initial_state()
        self.log: list[tuple[Event, int]] = []
        self._passes = 0

    def take(self, command: Command) -> list[Event]:
        """The events of a command, which have happened."""
        self._passes += isinstance(command, AppendMessages | RequestPass | RemakeFallback)
        name = f"p{self._passes}" if self.state.pending is None else f"{self.state.pending.pass_id}+"
        events = decide(self.state, command, DecisionContext(ROLLING, POLICY, 0, name))
        for event in events:
            self.state = evolve(self.state, event, 0)
            self.log.append((event, 0))
        return events

    def speak_until(self, done: Callable[[Conversation], bool]) -> None:
        """Append message after message."""
        while not done(self.state):
            self.take(append(appended(self.state.message_version + 1)))

    def summarize(self, tokens: int) -> list[Event]:
        """Append messages until a pass is due, and end it with a record of `tokens`."""
        self.speak_until(lambda state: state.pending is not None)
        return self.take(complete(self.state, tokens=tokens))


def with_records(*tokens: int) -> RollingChat:
    chat = RollingChat()
    for size in tokens:
        chat.summarize(size)
    return chat


def covered(chat: RollingChat) -> list[tuple[MessageRange, ...]]:
    return [shown.record.covered for shown in chat.state.shown]


def tokens_shown(chat: RollingChat) -> Iterator[int]:
    return (shown.record.tokens_after for shown in chat.state.shown)


def test_a_window_shows_two_records_in_the_order_of_what_they_cover():
    """Each is a message of its own between system messages and tail, and both are counted."""
    chat = with_records(130, 140)
    state = chat.state
    window = rendered_window(state, SummaryRole.SYSTEM)

    assert list(tokens_shown(chat)) == [130, 140]
    assert [m.message.id for m in window[:2]] == [shown.record.id for shown in state.shown]
    assert [m.tokens for m in window[:2]] == [130, 140]
    assert [m.number for m in window] == [0, 0, *(m.number for m in state.window)]
    assert state.window_tokens == sum(m.tokens for m in window) == 270 + 10 * len(state.window)
    assert summary_tokens(state) == 270
    assert summary_tokens(state, live_in(state).id) == 140


def test_a_small_record_is_updated_in_its_place():
    """The revision covers what the record before it did, which is still there to be read but not in the window."""
    chat = with_records(130, 60)
    small = live_in(chat.state)
    chat.summarize(80)
    first, last = covered(chat)

    assert list(tokens_shown(chat)) == [130, 80]
    assert (live_in(chat.state).parent_id, first[-1].last + 1) == (small.id, last[0].first)
    assert small in chat.state.records
    assert small not in lineage(chat.state)


def test_every_message_is_in_the_window_or_covered_by_a_record_that_is_shown():
    """Records may have any sizes: revisions, new ones, two made one."""
    for sizes in ([60, 60, 60], [130, 130, 60, 130], [150, 140, 130, 90, 130]):
        chat = RollingChat()
        for size in sizes:
            chat.summarize(size)
            while chat.state.pending:
                chat.take(complete(chat.state, tokens=100))
            invariants.coverage_is_exact(chat.state)
            invariants.sums_are_exact(chat.state)
            outside = chat.state.message_version - len(chat.state.window)
            assert sum(len(r) for r in live_coverage(chat.state)) == outside


def test_the_oldest_two_records_are_made_one_when_they_take_too_much():
    """The others stay beside it, and nothing leaves the window."""
    chat = with_records(150)
    events = chat.summarize(160)
    plan = only_plan(events)
    (first, second), before = covered(chat), chat.state.window
    chat.speak_until(lambda state: len(state.window) > len(before))
    chat.take(complete(chat.state, tokens=90))

    assert plan.covered == ranges((first[0].first, second[-1].last))
    assert list(tokens_shown(chat)) == [90]
    assert live_coverage(chat.state) == plan.covered
    assert len(chat.state.window) == len(before) + 1


def test_a_stand_in_is_remade_where_it_is_shown():
    """The record before another one is exchanged, and the window goes on showing both."""
    chat = RollingChat()
    chat.speak_until(lambda state: state.pending is not None)
    chat.take(complete(chat.state, tokens=130, fallback=True))
    chat.summarize(140)
    chat.take(RemakeFallback())
    assert pending_in(chat.state).replaces_id == chat.state.shown[0].record.id
    assert pending_in(chat.state).beside_ids == (live_in(chat.state).id,)
    chat.take(complete(chat.state, tokens=110))

    assert list(tokens_shown(chat)) == [110, 140]
    assert chat.state.fallback_ids == frozenset()
    invariants.coverage_is_exact(chat.state)


def test_a_usage_report_counts_every_record_that_is_shown():
    """The caller's API has read messages and both records."""
    chat = with_records(130, 140)
    version, window_tokens = chat.state.message_version, 270 + 10 * len(chat.state.window)
    newest = live_in(chat.state).id
    events = chat.take(ReportUsage(version, newest, window_tokens))

    assert events == [UsageReported(version, newest, window_tokens, window_tokens, 0, 1.0, 1)]


def test_a_conversation_opens_under_the_profile_of_its_policy():
    """The settings may name any other, so that a later default of the operator is for new conversations."""
    opened, *_ = decide(initial_state(), append(appended(1)), context_of(OTHER))

    assert isinstance(opened, ConversationOpened)
    assert opened.settings.profile is OTHER


def test_a_profile_changes_only_while_the_window_shows_no_record_and_none_is_made():
    """The first pass of the other one would have to cover what the records do."""
    chat = RollingChat()
    chat.take(append(appended(1)))
    change = ChangeSettings(chat.state.settings)
    assert decide(chat.state, change, context_of(OTHER)) == [SettingsChanged(replace(change.settings, profile=OTHER))]

    chat.speak_until(lambda state: state.pending is not None)
    for _ in range(2):
        with pytest.raises(InvalidPolicy) as refused:
            decide(chat.state, change, context_of(OTHER))
        assert refused.value.field == "profile"
        assert decide(chat.state, change, context_of(POLICY.profile)) == []
        if chat.state.pending:
            chat.take(complete(chat.state, tokens=120))


def test_the_log_of_another_profile_folds_without_it():
    """The events hold what the window shows, so that a replay asks no rules; stored and read, it is the same."""
    chat = with_records(130, 60, 140, 150)
    stored = [decode(*encode(event)) for event, _ in chat.log]

    assert [type(event) for event in stored if not isinstance(event, MessageAppended)].count(SummarizationCompleted) > 3
    assert any(event.plan.beside_ids for event in stored if isinstance(event, SummarizationRequested))
    assert fold([(event, 0) for event in stored]) == chat.state
    assert all(shown.source is TokenSource.CALLER for shown in chat.state.shown)
