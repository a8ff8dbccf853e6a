"""Profile ROLLING: when a pass is due, which record it updates or begins, which records merge, and its holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.amendments import needed
from abridged.service.domain.commands import Command, PinMessages, RequestPass, RevokeSummary, UnpinMessages
from abridged.service.domain.conversation import initial_state, live_coverage
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import InvalidPolicy, NothingToSummarize
from abridged.service.domain.events import (
    Event,
    MessageAppended,
    PassPlan,
    SkipReason,
    SummarizationCompleted,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from abridged.service.domain.fold import evolve
from abridged.service.domain.message import Role
from abridged.service.domain.policy import Policy, overridden, validated
from abridged.service.domain.profiles import rolling
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy
from abridged.service.domain.ranges import covers
from abridged.service.domain.record import FormName
from abridged.service.domain.triggers import held_by
from abridged.service.domain.window import summary_tokens
from tests.support.chats import SETTINGS, append, appended, complete, pending_in, ranges, said

LARGE = replace(SETTINGS, context_length=32_000)
POLICY = rolling.defaults()


class Chat:
    """A chat under ROLLING: commands in, the state after them."""

    def __init__(self, policy: Policy = POLICY, *, context_length: int = 32_000) -> None:
        self.policy = policy
        self.state = initial_state()
        self._settings = replace(SETTINGS, context_length=context_length)
        self._messages: list[MessageAppended] = []
        self._passes = 0

    def after(self, command: Command) -> list[Event]:
        """The events of the command, applied."""
        self._passes += 1
        hidden = needed(self.state, command)
        originals = [m for m in self._messages if hidden and covers(hidden, m.number)]
        context = DecisionContext(rolling, self.policy, 0, f"p{self._passes}", originals)
        events = decide(self.state, command, context)
        for event in events:
            self.state = evolve(self.state, event, 0, originals)
        self._messages += [event for event in events if isinstance(event, MessageAppended)]
        return events

    def said(self, count: int, *, tokens: int = 100) -> list[Event]:
        """Append `count` messages at once, and return the events."""
        first = self.state.message_version + 1
        command = append(*(appended(n, tokens) for n in range(first, first + count)), settings=self._settings)
        return self.after(command)

    def summarized(self, count: int, *, record: int, tokens: int = 100) -> PassPlan:
        """Say `count` messages more, commit the record of the pass that they trigger, and return its plan."""
        self.said(count, tokens=tokens)
        plan = pending_in(self.state)
        self.after(complete(self.state, tokens=record))
        return plan

    @property
    def shown(self) -> list[str]:
        return [shown.record.id for shown in self.state.shown]


def requested(events: list[Event]) -> list[PassPlan]:
    return [event.plan for event in events if isinstance(event, SummarizationRequested)]


@pytest.mark.parametrize(("count", "tokens", "trigger"), [(20, 100, Trigger.PERIODIC), (16, 250, Trigger.RATIO)])
def test_a_pass_is_due_past_so_many_messages_or_tokens(count, tokens, trigger):
    """A trigger is not at the number, but with the first one over it; the last four stay."""
    chat = Chat()
    assert requested(chat.said(count, tokens=tokens)) == []

    (plan,) = requested(chat.said(1, tokens=tokens))

    assert (plan.trigger, plan.covered, plan.label) == (trigger, ranges((1, count - 3)), f"1-{count - 3}")
    assert (plan.depth, plan.form, plan.summary_tokens_max) == (0, FormName.TEXT, 800)


def test_system_and_pinned_messages_do_not_count_as_messages_of_the_threshold():
    """No pass could ever take them out."""
    chat = Chat()
    pinned = [appended(n, 10, message=replace_pinned(n)) for n in range(1, 6)]
    chat.after(append(*pinned, settings=LARGE))

    assert requested(chat.said(20)) == []
    assert len(requested(chat.said(1))) == 1


def replace_pinned(number: int):
    return appended(number).message._replace(pinned=True)


def test_after_a_pass_min_new_messages_must_come():
    """However large they are, until the window is at its emergency ratio."""
    chat = Chat()
    chat.summarized(21, record=300)
    assert requested(chat.said(4, tokens=2_000)) == []
    assert held_by(chat.state, POLICY, 0) is HeldBy.COOLDOWN

    assert [plan.trigger for plan in requested(chat.said(1))] == [Trigger.RATIO]


def test_an_emergency_waits_for_no_number_of_messages():
    """The window would be over its budget."""
    chat = Chat()
    chat.summarized(21, record=300)

    (plan,) = requested(chat.said(3, tokens=11_000))

    assert plan.trigger is Trigger.EMERGENCY


def test_in_a_small_context_the_ratio_triggers_before_the_threshold():
    """A window of 4,000 tokens does not fit a budget of 2,000."""
    chat = Chat(context_length=2_000)

    (plan,) = requested(chat.said(16))

    assert plan.trigger is Trigger.RATIO
    assert plan.summary_tokens_max <= 500


def test_a_record_is_updated_until_it_is_full_and_then_the_next_one_begins():
    """The update reads its text and the new messages; the new record nothing of the old one."""
    chat = Chat()
    first = chat.summarized(21, record=300)
    second = chat.summarized(17, record=900)
    third = chat.summarized(17, record=300)

    assert (second.base_id, second.parent_id, second.beside_ids) == ("summary-" + first.pass_id,) * 2 + ((),)
    assert (second.covered, second.source, second.label) == (ranges((1, 34)), ranges((18, 34)), "18-34")
    assert (third.base_id, third.beside_ids) == ("", ("summary-" + second.pass_id,))
    assert (third.covered, third.rewrites) == (ranges((35, 51)), 0)


def test_a_record_that_stands_for_more_than_can_be_read_again_is_full():
    """A bounded number of calls can therefore always make it anew."""
    policy = replace(POLICY, rebase_calls_max=1, max_input_tokens=1_000)
    chat = Chat(policy)
    chat.summarized(21, record=300)

    plan = chat.summarized(17, record=300)

    assert (plan.base_id, len(plan.beside_ids)) == ("", 1)


def test_a_text_that_went_through_too_many_records_is_made_from_its_originals_again():
    """The new record has the same place."""
    chat = Chat(replace(POLICY, rewrites_max=1))
    plans = [chat.summarized(21, record=300), chat.summarized(17, record=300), chat.summarized(17, record=300)]

    assert [(plan.rewrites, bool(plan.base_id)) for plan in plans] == [(0, False), (1, True), (0, False)]
    assert plans[2].source == plans[2].covered == ranges((1, 51))
    assert plans[2].parent_id == "summary-" + plans[1].pass_id


def test_a_models_update_does_not_continue_a_stand_ins_text():
    """The update reads the messages that the extract stood for."""
    chat = Chat()
    chat.said(21)
    chat.after(complete(chat.state, tokens=300, fallback=True))
    chat.said(17)
    plan = pending_in(chat.state)

    assert (plan.base_id, plan.source) == ("", ranges((1, 34)))
    assert plan.parent_id == chat.shown[0]


def with_two_records(*, pinned: int = 0) -> Chat:
    """Records over their share of the budget: the first pass that follows merges them."""
    chat = Chat(replace(POLICY, record_token_ratio=0.05, max_summary_tokens=800))
    chat.summarized(21, record=850)
    if pinned:
        chat.after(PinMessages((pinned,)))
        chat.said(1)
    chat.said(17)
    return chat


def test_records_over_their_share_are_merged_right_after_a_pass():
    """The oldest two, from their originals where one call holds them; the window shows one record for both."""
    chat = with_two_records()
    (merge,) = requested(chat.after(complete(chat.state, tokens=850)))
    one, other = chat.shown

    assert (merge.trigger, merge.merged_ids, merge.beside_ids) == (Trigger.FOLLOW_UP, (one, other), ())
    assert merge.covered == merge.source == ranges((1, 34))
    before = len(chat.state.window)
    chat.after(complete(chat.state, tokens=700))
    assert len(chat.shown) == 1
    assert len(chat.state.window) == before
    assert live_coverage(chat.state) == ranges((1, 34))


def test_a_long_merge_continues_the_oldest_records_text():
    """The merge reads the originals of the other alone."""
    chat = with_two_records()
    chat.policy = replace(chat.policy, max_input_tokens=2_500)
    (merge,) = requested(chat.after(complete(chat.state, tokens=850)))

    assert (merge.base_id, merge.source) == (chat.shown[0], ranges((18, 34)))
    assert merge.rewrites == 1


def test_a_revoked_merge_shows_the_records_that_it_merged_again():
    """Both, and no message comes back raw."""
    chat = with_two_records()
    chat.after(complete(chat.state, tokens=850))
    before, window = chat.shown, len(chat.state.window)
    chat.after(complete(chat.state, tokens=700))

    chat.after(RevokeSummary(chat.shown[0]))

    assert (chat.shown, len(chat.state.window)) == (before, window)


def test_records_that_are_shown_again_are_in_the_order_of_the_chat():
    """Another record may lie between two that were merged."""
    chat = with_two_records(pinned=20)
    chat.after(complete(chat.state, tokens=850))
    before = chat.shown
    chat.after(complete(chat.state, tokens=700))
    chat.policy = replace(chat.policy, min_range_tokens=1, min_gain=0.0)
    chat.after(UnpinMessages((20,)))
    chat.after(RequestPass())
    chat.after(complete(chat.state, tokens=50))
    between, merged = chat.shown

    chat.after(RevokeSummary(merged))

    assert chat.shown == [before[0], between, before[1]]


def test_what_came_back_before_a_record_gets_a_record_of_its_own():
    """The newest one does not repeat words from long before it; the order stays that of the chat."""
    chat = Chat()
    chat.summarized(21, record=850)
    chat.summarized(17, record=300)
    oldest, newest = chat.shown

    (plan,) = requested(chat.after(RevokeSummary(oldest)))
    chat.after(complete(chat.state, tokens=300))

    assert (plan.covered, plan.base_id, plan.beside_ids) == (ranges((1, 17)), "", (newest,))
    assert chat.shown == [f"summary-{plan.pass_id}", newest]


def test_a_revoked_range_is_done_again_without_waiting_for_new_messages():
    """However many the policy asks for: its messages are as new as before the pass."""
    chat = Chat()
    chat.summarized(21, record=300)
    chat.policy = replace(POLICY, min_new_messages=50)

    assert len(requested(chat.after(RevokeSummary(chat.shown[0])))) == 1


def test_a_forced_pass_asks_for_no_threshold():
    """A forced pass is refused when there is nothing to summarize."""
    chat = Chat()
    chat.said(10)
    (plan,) = requested(chat.after(RequestPass()))
    assert (plan.trigger, plan.covered) == (Trigger.FORCED, ranges((1, 6)))

    other = Chat()
    other.said(4)
    with pytest.raises(NothingToSummarize):
        other.after(RequestPass())


def test_a_window_that_is_past_the_ratio_after_a_pass_gets_one_with_a_tail_of_two():
    """Messages came while the model worked; past the threshold alone, the next pass waits for new ones."""
    chat, other = Chat(), Chat()
    for one, tokens in ((chat, 5_000), (other, 1_000)):
        one.said(21)
        one.said(6, tokens=tokens)
    (plan,) = requested(chat.after(complete(chat.state, tokens=300)))

    assert (plan.trigger, plan.covered) == (Trigger.FOLLOW_UP, ranges((1, 25)))
    assert requested(other.after(complete(other.state, tokens=300))) == []
    assert other.state.ratio >= rolling.trigger_ratio(other.state, POLICY)


def test_irreducible_is_said_once_until_min_new_messages_have_come():
    """A window over its budget whose only large message must stay: never a loop of skips."""
    chat = Chat(context_length=1_000)
    said_at = []
    for number in range(1, 13):
        role = Role.USER if number == 1 else Role.ASSISTANT
        message = appended(number, 2_000 if number == 1 else 1, message=said(number, role))
        events = chat.after(append(message, settings=replace(SETTINGS, context_length=1_000)))
        skips = [event.reason for event in events if isinstance(event, SummarizationSkipped)]
        said_at += [number for reason in skips if reason is SkipReason.IRREDUCIBLE]

    assert said_at == [1, 6, 11]


def test_a_window_over_its_budget_that_cannot_be_made_smaller_says_so():
    """The number of messages does not matter."""
    chat = Chat(context_length=1_000)
    chat.said(1, tokens=2_000)

    assert held_by(chat.state, POLICY, 0) is HeldBy.IRREDUCIBLE


def test_with_nothing_else_to_take_an_emergency_merges_records():
    """Records within their share are merged, too: nothing else can be made smaller."""
    chat = Chat(replace(POLICY, record_token_ratio=0.35, max_summary_tokens=600), context_length=4_000)
    chat.summarized(21, record=650)
    chat.summarized(17, record=640)
    chat.summarized(1, record=96, tokens=3_000)

    plan = pending_in(chat.state)
    assert summary_tokens(chat.state) <= 0.35 * 4_000
    assert (plan.trigger, plan.merged_ids) == (Trigger.EMERGENCY, tuple(chat.shown[:2]))


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"threshold_messages": 4}, "threshold_messages"),
        ({"record_token_ratio": 0.4}, "record_token_ratio"),
        ({"pin_token_ratio": 0.5}, "record_token_ratio"),
    ],
)
def test_settings_that_cannot_work_are_refused_naming_the_field(overrides, field):
    """The refusal depends on no data; CHAIN, which does not read the settings, takes them."""
    with pytest.raises(InvalidPolicy) as refused:
        overridden(POLICY, overrides)

    assert refused.value.field == field
    validated(Policy(threshold_messages=4, record_token_ratio=0.4))


def test_no_committed_record_makes_the_window_larger():
    """One that saves too little is skipped, as under any profile."""
    chat = Chat()
    chat.said(21)
    size = chat.state.window_tokens
    events = chat.after(complete(chat.state, tokens=1_650))

    assert not any(isinstance(event, SummarizationCompleted) for event in events)
    assert chat.state.window_tokens == size
