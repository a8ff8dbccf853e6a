"""Profile EPISODES by its rules: the end of an episode, its form in the window, and the rules of every profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from abridged.service.codec.events import decode, encode
from abridged.service.domain.amendments import needed
from abridged.service.domain.commands import (
    Command,
    EndWait,
    PinMessages,
    RemakeFallback,
    ReportUsage,
    RequestPass,
    RevokeSummary,
    RewindConversation,
    UnpinMessages,
)
from abridged.service.domain.conversation import initial_state, live_coverage
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import InvalidPolicy, NothingToSummarize
from abridged.service.domain.events import (
    Event,
    MessageAppended,
    SkipReason,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
    UsageReported,
)
from abridged.service.domain.fold import evolve, fold
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import Policy, SummaryRole, overridden
from abridged.service.domain.profiles import episodes
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy
from abridged.service.domain.ranges import covers
from abridged.service.domain.record import FIGURE_NAMES_MAX, EpisodeFigures, FormName, MessageRange, figures_of
from abridged.service.domain.render import rendered_window
from abridged.service.domain.stretch import least_tokens
from abridged.service.domain.triggers import held_by
from tests.support import invariants
from tests.support.chats import (
    append,
    appended,
    calling,
    complete,
    fail,
    only_plan,
    pending_in,
    ranges,
    result,
    said,
)

POLICY = episodes.defaults()
TOKENS = 40


class EpisodicChat:
    """A chat under EPISODES through `decide` and `evolve` alone: messages of forty tokens, a budget of 8,000."""

    def __init__(self, *, budget: int = 8_000, **overrides: Any) -> None:
        self.policy = overridden(POLICY, overrides)
        self.state = initial_state()
        self.log: list[tuple[Event, int]] = []
        self.now_us = 0
        self._settings = replace(append().open_with, context_length=budget)
        self._passes = 0

    def take(self, command: Command) -> list[Event]:
        """The events of a command, which have happened."""
        self._passes += 1
        originals = self.originals(needed(self.state, command))
        context = DecisionContext(episodes, self.policy, self.now_us, f"p{self._passes}", originals)
        events = decide(self.state, command, context)
        for event in events:
            self.state = evolve(self.state, event, self.now_us, originals)
            self.log.append((event, self.now_us))
        return events

    def originals(self, wanted: tuple[MessageRange, ...]) -> list[MessageAppended]:
        found = [event for event, _ in self.log if isinstance(event, MessageAppended)]
        return [m for m in found if covers(wanted, m.number)]

    def say(self, count: int, *, shifts: tuple[int, ...] = (), tokens: int = TOKENS) -> list[Event]:
        """Append `count` messages in one batch; those of `shifts` begin a topic."""
        first = self.state.message_version + 1
        return self.tell(
            *(
                appended(n, tokens, message=said(n, _role(n))._replace(is_continuation=n not in shifts))
                for n in range(first, first + count)
            )
        )

    def tell(self, *messages: MessageAppended) -> list[Event]:
        return self.take(append(*messages, settings=self._settings))

    def finish(self, tokens: int = 60, **fields: Any) -> None:
        """End the pending pass and all that follow from it; a record of merged ones has forty tokens."""
        while plan := self.state.due_pass:
            self.take(complete(self.state, tokens=40 if plan.merged_ids else tokens, **fields))

    @property
    def shown(self) -> list[tuple[tuple[int, int], str]]:
        """Return the range that each shown record covers, and whether its short or its long text is shown."""
        return [
            ((s.record.covered[0].first, s.record.covered[-1].last), "short" if s.short else "long")
            for s in self.state.shown
        ]


def _role(number: int) -> Role:
    return Role.USER if number % 2 else Role.ASSISTANT


def with_episodes(count: int, **overrides: Any) -> EpisodicChat:
    chat = EpisodicChat(**overrides)
    chat.say(10)
    chat.finish()
    for _ in range(count - 1):
        chat.say(8)
        chat.finish()
    return chat


def test_ten_messages_outside_episodes_begin_a_pass():
    """The messages may take any share of the budget; the tail is the last exchange."""
    chat = EpisodicChat()
    assert [type(e) for e in chat.say(9)].count(SummarizationRequested) == 0
    plan = only_plan(chat.say(1))

    assert (plan.trigger, plan.form, plan.covered) == (Trigger.PERIODIC, FormName.EPISODE, ranges((1, 8)))


@pytest.mark.parametrize(
    ("shifts", "last"),
    [((), 8), ((5,), 4), ((3,), 8), ((3, 6), 4), ((3, 7), 6), ((9,), 8), ((4, 5), 4)],
)
def test_an_episode_ends_at_the_first_shift_after_its_least_size(shifts, last):
    """Or where the tail begins, if the trigger is reached without one. A shift in a reply begins with its question."""
    assert only_plan(EpisodicChat().say(10, shifts=shifts)).covered == ranges((1, last))


def test_an_episode_has_twenty_messages_at_most():
    """The rest of a batch makes further ones, one pass after the other."""
    chat = EpisodicChat()
    chat.say(60)
    chat.finish()

    assert [covered for covered, _ in chat.shown] == [(1, 20), (21, 40), (41, 58)]
    assert chat.state.pending is None


def test_a_short_stretch_waits_until_a_record_of_it_would_pay():
    """Messages of few tokens make longer episodes, since no record is smaller than its frame."""
    chat = EpisodicChat()
    assert chat.say(14, tokens=4) == chat.say(0, tokens=4) or chat.state.pending is None
    chat.say(30, tokens=4)
    plan = pending_in(chat.state)

    assert plan.replaced_tokens >= least_tokens(chat.policy)
    assert len(plan.covered[0]) > chat.policy.max_episode_size


def test_a_tool_call_and_its_results_are_in_one_episode():
    """No shift and no cap divides them."""
    chat = EpisodicChat(max_episode_size=5)
    messages = [
        *(said(n, _role(n)) for n in range(1, 5)),
        calling(5, "a", "b"),
        result(6, "a")._replace(is_continuation=False),
        result(7, "b"),
        *(said(n, _role(n)) for n in range(8, 12)),
    ]
    chat.tell(*(appended(n, TOKENS, message=m) for n, m in enumerate(messages, 1)))

    assert pending_in(chat.state).covered == ranges((1, 4))
    chat.take(complete(chat.state))
    chat.say(4)
    assert pending_in(chat.state).covered == ranges((5, 8))


def test_the_overlap_is_read_and_not_covered():
    """The last two messages of the episode before; none before the first, none when it is switched off."""
    chat = EpisodicChat()
    assert only_plan(chat.say(10)).overlap == ()
    chat.finish()
    plan = only_plan(chat.say(8))

    assert (plan.overlap, plan.covered, plan.source) == (ranges((7, 8)), ranges((9, 16)), ranges((9, 16)))
    without = EpisodicChat(episode_overlap=0)
    without.say(10)
    without.finish()
    assert only_plan(without.say(8)).overlap == ()


def test_the_window_shows_the_newest_at_length_and_the_others_in_short():
    """Each is counted as it is shown, by the events' counts."""
    chat = with_episodes(3)

    assert chat.shown == [((1, 8), "short"), ((9, 16), "short"), ((17, 24), "long")]
    assert chat.state.window_tokens == 15 + 15 + 60 + 2 * TOKENS
    window = rendered_window(chat.state, SummaryRole.SYSTEM)
    assert sum(m.tokens for m in window) == chat.state.window_tokens
    assert ["In short." in m.message.content for m in window] == [True, True, False, False, False]


def test_short_summaries_within_their_share_stay_as_they_are():
    """However many there are."""
    chat = EpisodicChat()
    chat.say(10)
    for _ in range(6):
        chat.finish(tokens=200)
        chat.say(8)

    assert [how for _, how in chat.shown] == ["short"] * 5 + ["long"]
    assert all(not ended.plan.merged_ids for ended in chat.state.passes)


def test_short_summaries_over_their_share_become_one():
    """The oldest go first, the newest episode stays, and no message leaves the coverage."""
    chat = with_episodes(1, budget=2_000, episode_token_ratio=0.15)
    plans = []
    while not (chat.state.pending and chat.state.pending.merged_ids):
        chat.say(8)
        while chat.state.pending and not chat.state.pending.merged_ids:
            chat.take(complete(chat.state, tokens=200))
        plans.append(chat.state.message_version)
        assert len(plans) < 40
    plan = pending_in(chat.state)
    shown = [s.record.id for s in chat.state.shown]

    assert (plan.trigger, plan.form, plan.overlap) == (Trigger.FOLLOW_UP, FormName.DIGEST, ())
    assert plan.merged_ids == tuple(shown[: len(plan.merged_ids)])
    assert len(plan.merged_ids) >= 2
    before = live_coverage(chat.state)
    chat.take(complete(chat.state, tokens=60))
    assert live_coverage(chat.state) == before
    assert [s.record.id for s in chat.state.shown][1:] == shown[len(plan.merged_ids) :]
    assert not chat.state.shown[0].short
    assert chat.state.shown[-1].record.id == shown[-1]
    invariants.coverage_is_exact(chat.state)


def merged_chat() -> EpisodicChat:
    chat = with_episodes(1, budget=2_000)
    while not any(s.record.episode is None for s in chat.state.shown):
        chat.say(8)
        chat.finish(tokens=200)
    return chat


def test_a_digest_that_is_revoked_gives_its_episodes_back():
    """The episodes come back in short, as they were; the messages stay where they are."""
    chat = merged_chat()
    digest, window = chat.state.shown[0].record, chat.state.window
    chat.policy = replace(chat.policy, enabled=False)
    chat.take(RevokeSummary(digest.id))

    assert all(s.short for s in chat.state.shown[:-1])
    assert not chat.state.shown[-1].short
    assert [*chat.state.window] == [*window]
    invariants.coverage_is_exact(chat.state)


def test_an_episode_that_is_revoked_takes_the_digest_made_of_it_along():
    """The digest contains the episode's text."""
    chat = merged_chat()
    digest = chat.state.shown[0].record
    first = chat.state.records[0]
    chat.policy = replace(chat.policy, enabled=False)
    chat.take(RevokeSummary(first.id))

    assert {r.id for r in chat.state.revoked} == {first.id, digest.id}
    assert chat.state.window[0].number == 1
    invariants.coverage_is_exact(chat.state)


def test_a_revoked_range_is_made_anew_as_one_episode_without_waiting_for_the_trigger():
    """The range does not run into the messages behind the next episode, and the newest stays at length."""
    chat = with_episodes(3)
    chat.say(3)
    events = chat.take(RevokeSummary(chat.state.records[1].id))
    plan = only_plan(events)
    assert plan.covered == ranges((9, 16))
    chat.take(complete(chat.state))

    assert [covered for covered, _ in chat.shown] == [(1, 8), (9, 16), (17, 24)]
    assert chat.state.pending is None
    assert chat.shown[-1][1] == "long"
    assert not chat.state.redo_due


def test_a_revoked_range_of_few_messages_is_made_anew_at_once():
    """Fewer than the trigger wait outside episodes."""
    chat = EpisodicChat()
    chat.say(10, shifts=(5,))
    chat.finish()
    chat.say(4)
    chat.finish()
    assert [covered for covered, _ in chat.shown] == [(1, 4), (5, 12)]

    assert only_plan(chat.take(RevokeSummary(chat.state.records[0].id))).covered == ranges((1, 4))


def test_the_newest_that_stays_is_shown_at_length_after_a_rewind():
    """Later episodes are gone, and nothing else speaks of the last topic."""
    chat = with_episodes(3)
    chat.take(RewindConversation(17))

    assert chat.shown == [((1, 8), "short"), ((9, 16), "long")]
    assert [m.number for m in chat.state.window] == [17]


def test_a_pin_stays_outside_every_episode_and_in_the_window_when_it_is_unpinned():
    """The pin's episode is over, and the header of another one would overlap with that."""
    chat = EpisodicChat()
    chat.say(4)
    chat.take(PinMessages((3,)))
    chat.say(7)
    chat.finish()
    assert chat.state.records[0].covered == ranges((1, 2), (4, 8))
    chat.take(UnpinMessages((3,)))
    chat.say(8)

    assert pending_in(chat.state).covered == ranges((9, 16))
    chat.finish()
    assert chat.state.window[0].number == 3
    invariants.coverage_is_exact(chat.state)


def test_an_emergency_takes_whatever_there_is():
    """Fewer messages than the trigger and than the least size, and follow-ups until the window fits."""
    chat = EpisodicChat(budget=1_000)
    plan = only_plan(chat.say(5, tokens=220))

    assert (plan.trigger, plan.covered) == (Trigger.EMERGENCY, ranges((1, 2)))
    chat.finish()
    assert chat.state.ratio < 1


def test_a_window_of_nothing_but_its_tail_is_irreducible_and_that_is_said_once():
    """The tail also holds the window."""
    chat = EpisodicChat(budget=400)
    skipped = [e for e in chat.say(1, tokens=500) if isinstance(e, SummarizationSkipped)]

    assert [e.reason for e in skipped] == [SkipReason.IRREDUCIBLE]
    assert held_by(chat.state, chat.policy, 0) is HeldBy.IRREDUCIBLE
    assert not [e for e in chat.say(1, tokens=1) if isinstance(e, SummarizationSkipped)]


def test_what_holds_a_window_is_said():
    """A pending pass, a wait after a failure, a switch; nothing below the trigger."""
    chat = EpisodicChat()
    chat.say(9)
    assert held_by(chat.state, chat.policy, 0) is None
    chat.say(1)
    assert held_by(chat.state, chat.policy, 0) is HeldBy.PASS_PENDING
    chat.take(fail(chat.state))
    assert held_by(chat.state, chat.policy, 0) is HeldBy.WAITING_AFTER_FAILURE
    assert held_by(chat.state, replace(chat.policy, enabled=False), 0) is HeldBy.DISABLED
    chat.now_us = chat.state.wait_until_us
    assert held_by(chat.state, chat.policy, chat.now_us) is None, "a pass is due once the wait is over"
    assert only_plan(chat.take(EndWait(chat.now_us))).covered == ranges((1, 8))


def test_a_forced_pass_needs_no_trigger():
    """The pass makes an episode of all that there is, if that is worth one."""
    chat = EpisodicChat()
    chat.say(3)
    with pytest.raises(NothingToSummarize):
        chat.take(RequestPass())
    chat.say(3)

    assert only_plan(chat.take(RequestPass())).covered == ranges((1, 4))


def test_the_remake_of_a_stand_in_is_shown_as_that_was():
    """The remake is shown in short when a newer episode is there."""
    chat = EpisodicChat()
    chat.say(10)
    chat.finish(fallback=True)
    chat.say(8)
    chat.finish()
    chat.take(RemakeFallback())
    plan = pending_in(chat.state)
    assert (plan.trigger, plan.form, plan.beside_ids) == (
        Trigger.REMAKE,
        FormName.EPISODE,
        (chat.state.shown[-1].record.id,),
    )
    chat.take(complete(chat.state, tokens=50))

    assert chat.shown == [((1, 8), "short"), ((9, 16), "long")]
    assert chat.state.fallback_ids == frozenset()


def test_a_usage_report_counts_records_as_they_are_shown():
    """Short ones by their short text."""
    chat = with_episodes(2)
    assert chat.state.live is not None
    (event,) = chat.take(ReportUsage(18, chat.state.live.id, 500))

    assert isinstance(event, UsageReported)
    assert event.exact_tokens == 15 + 60 + 2 * TOKENS


def test_a_log_folds_without_the_profile():
    """The events, stored and read, hold which records are shown, and in which form."""
    chat = merged_chat()
    chat.take(RevokeSummary(chat.state.records[3].id))
    stored = [(decode(*encode(event)), at_us) for event, at_us in chat.log]

    assert fold(stored, originals=chat.originals) == chat.state


@pytest.mark.parametrize(
    ("field", "overrides"),
    [
        ("episode_overlap", {"episode_overlap": 20}),
        ("episode_overlap", {"max_episode_size": 4, "episode_overlap": 4}),
        ("min_episode_size", {"min_episode_size": 5, "max_episode_size": 4}),
        ("episode_trigger_messages", {"episode_trigger_messages": 3}),
        ("episode_token_ratio", {"episode_token_ratio": 0.3}),
    ],
)
def test_sizes_that_cannot_work_are_refused_naming_the_field(field, overrides):
    """The share binds EPISODES alone: no other profile has short summaries."""
    with pytest.raises(InvalidPolicy) as refused:
        overridden(POLICY, overrides)

    assert refused.value.field == field
    if field == "episode_token_ratio":
        overridden(Policy(), overrides)


def test_a_long_backlog_is_looked_at_only_as_far_as_an_episode_reaches():
    """However many messages follow: the plan is the same, and most of the window is never asked for."""
    seen: list[int] = []

    class Window(list[MessageAppended]):
        def __iter__(self) -> Iterator[MessageAppended]:
            for m in super().__iter__():
                seen.append(m.number)
                yield m

    for count in (100, 2_000):
        chat = EpisodicChat(budget=1_000_000)
        plan = only_plan(chat.say(count, shifts=(9,)))
        assert (plan.covered, plan.cut) == (ranges((1, 8)), True)
        seen.clear()
        state = chat.state._replace(pending=None, window=cast(Any, Window(chat.state.window)))
        assert episodes.due(state, DecisionContext(episodes, chat.policy, 0, "p"), extractive=False) is not None
        assert max(seen) < 50


def test_the_figures_of_an_episode_are_those_of_its_hints():
    """The user's sentiment alone; names once each, in order, and bounded."""
    many = tuple(f"flow{n}" for n in range(FIGURE_NAMES_MAX + 5))
    messages = [
        Message("1", Role.USER, sentiment=-1.0, tools=("lookup",)),
        Message("2", Role.ASSISTANT, sentiment=1.0, tool_calls=(ToolCall("a", "search"), ToolCall("b", "lookup"))),
        Message("3", Role.USER, sentiment=0.5, flows=many),
        Message("4", Role.USER),
    ]

    assert figures_of(messages) == EpisodeFigures(2, -0.25, 0.5625, many[:FIGURE_NAMES_MAX], ("lookup", "search"))
    assert figures_of(messages[3:]) == EpisodeFigures()
