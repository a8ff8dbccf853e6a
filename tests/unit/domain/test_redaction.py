"""Redaction: a log that is blanked, or half blanked, folds to the same state from the redaction on.

Random chats of each profile, every now and then set back, forked and redacted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

import pytest

from abridged.service.codec.events import decode, encode
from abridged.service.codec.state import state_from_bytes, state_to_bytes
from abridged.service.domain.amendments import needed, redaction
from abridged.service.domain.commands import (
    ChangeTitle,
    CloseConversation,
    Command,
    ConfirmPurge,
    ForkConversation,
    RateSummary,
    RedactMessages,
    RevokeSummary,
    RewindConversation,
)
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import MessageNotFound
from abridged.service.domain.events import (
    Event,
    MessageAppended,
    MessagesRedacted,
    Rating,
    SummarizationCleared,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationRequested,
    TextPurged,
    TitleChanged,
)
from abridged.service.domain.fold import Originals, fold
from abridged.service.domain.message import Attachment, Message, Role, ToolCall
from abridged.service.domain.policy import Policy, ProfileName
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.ranges import covers
from abridged.service.domain.record import MessageRange
from abridged.service.domain.redaction import REDACTED, Blanking
from abridged.service.domain.tokens import TokenSource
from tests.support.chat_by_hand import Chat, full_chat
from tests.support.chats import append, appended, result, said
from tests.support.simulation import SimulatedChat

HISTORIES = int(os.environ.get("HISTORIES", "30"))

Log = Sequence[tuple[Event, int]]


def blanked(log: Log) -> list[tuple[Event, int]]:
    """The log as a purge leaves it."""
    redactions = {version: e for version, (e, _) in enumerate(log, 1) if isinstance(e, MessagesRedacted)}
    blanking = Blanking(redactions, {e.record.id for e, _ in log if isinstance(e, SummarizationCompleted)})
    return [(blanking.left(version, event), at_us) for version, (event, at_us) in enumerate(log, 1)]


def originals_in(log: Log) -> Originals:
    """Reads messages from a log."""

    def read(ranges: tuple[MessageRange, ...]) -> list[MessageAppended]:
        return [event for event, _ in log if isinstance(event, MessageAppended) and covers(ranges, event.number)]

    return read


def folded(log: Log) -> Conversation:
    return fold(log, originals=originals_in(log))


def stored(log: Log) -> list[tuple[Event, int]]:
    """The log after a walk through its bytes."""
    return [(decode(*encode(event)), at_us) for event, at_us in log]


@pytest.mark.parametrize("profile", ProfileName)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_log_that_is_blanked_in_part_leads_to_the_same_state(seed: int, profile: ProfileName):
    """Whichever events a process had come to when it was killed; a snapshot of the state goes on to the same, too."""
    chat, rng = SimulatedChat(seed, amendments=0.25, profile=profile, forks=0.02, redactions=0.15), Random(seed)
    for _ in chat.steps():
        pass
    ends = [place for place, (event, _) in enumerate(chat.log, 1) if isinstance(event, MessagesRedacted)]

    for end in ends:
        before = folded(chat.log[:end])
        left = stored(blanked(chat.log[:end]))
        mixed = [rng.choice(pair) for pair in zip(chat.log[:end], left, strict=True)]
        assert folded(left) == folded(mixed) == before
        assert stored(blanked(left)) == left
    if ends:
        left = stored(blanked(chat.log))
        kept = state_from_bytes(state_to_bytes(folded(left[: ends[-1]])))
        assert folded(left) == chat.state == fold(left[ends[-1] :], kept, originals=originals_in(left))


@pytest.mark.parametrize("profile", ProfileName)
def test_nothing_that_only_redacted_messages_say_is_left(profile: ProfileName):
    """No event before the redaction has it, nor has the state after it; rules and titles tell whose they are."""
    found = dict.fromkeys(("message", "rule", "record", "title"), 0)
    for seed in range(HISTORIES):
        chat = SimulatedChat(seed, amendments=0.25, profile=profile, redactions=0.1)
        for step in chat.steps():
            for event in step.events:
                if not isinstance(event, MessagesRedacted):
                    continue
                before, left = repr(chat.log), repr((blanked(chat.log), step.after))
                for number in event.numbers:
                    for what, text in (("message", f"'said {number}'"), ("rule", f"'Always {number}.'")):
                        found[what] += text in before
                        assert text not in left
                found["record"] += any(record.summary == REDACTED for record in step.after.revoked)
                found["title"] += bool(event.revoked_ids and step.before.title)
                assert not (event.revoked_ids and step.after.title)

    assert min(found[what] for what in ("message", "record")) > 10
    assert found["title"] or profile is ProfileName.CHAIN


@pytest.mark.parametrize("profile", ProfileName)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_fork_is_folded_from_what_is_left_of_its_parent(seed: int, profile: ProfileName):
    """A fork that shares a redacted message is redacted itself; the messages of another one have not changed."""
    chat, rng = SimulatedChat(seed, amendments=0.25, profile=profile, redactions=0.1), Random(seed)
    for _ in chat.steps():
        pass
    left = blanked(chat.log)
    ends = [place for place, (event, _) in enumerate(chat.log, 1) if isinstance(event, MessagesRedacted)]
    if not ends:
        return
    point = rng.randrange(1, ends[-1])
    log, numbers = chat.log[:point], {n for e, _ in chat.log if isinstance(e, MessagesRedacted) for n in e.numbers}
    parent = folded(log)
    shared = tuple(n for n in numbers if n <= parent.message_version)

    fork = _taken(parent, log, ForkConversation("fork", parent.settings), profile)
    if shared:
        fork += _taken(folded([*log, *fork]), [*log, *fork], RedactMessages(shared), profile)

    if not shared:
        assert left[:point] == log
    assert folded([*left[:point], *fork]) == folded([*log, *fork])


def _taken(state: Conversation, log: Log, command: Command, profile: ProfileName) -> list[tuple[Event, int]]:
    """The events of a command on this state, which the log leads to."""
    read = originals_in(log)
    originals: list[MessageAppended] = []
    while ranges := needed(state, command, originals):
        originals += read(ranges)
    context = DecisionContext(profile_of(profile), Policy(profile=profile), state.updated_us, "forked", originals)
    return [(event, state.updated_us) for event in decide(state, command, context)]


def test_everything_of_a_message_goes_but_its_place():
    """Chat APIs pair calls with their results, so the ids of calls stay; so do order and cost."""
    call = ToolCall("call", "book_flight", '{"to": "LIS"}')
    message = Message(
        "m1",
        Role.ASSISTANT,
        "I book it.",
        "Ada",
        (call,),
        "",
        (Attachment("https://a/b", "image/png", 5, "b.png"),),
        1_000,
        12,
        "user",
        "agent",
        {"a": "b"},
        pinned=True,
        is_continuation=False,
        sentiment=0.5,
        flows=("booking",),
        tools=("calendar",),
        extra_json='{"api": "openai", "body": {}}',
    )
    event = MessageAppended(1, message, 40, TokenSource.CALLER, "test")
    (left, _), _ = blanked([(event, 0), (MessagesRedacted((1,)), 0)])

    assert left == event._replace(
        message=Message(
            "m1",
            Role.ASSISTANT,
            REDACTED,
            tool_calls=(ToolCall("call", "redacted", "{}"),),
            create_time_us=1_000,
            token_count=12,
            pinned=True,
        )
    )


def test_a_record_of_an_older_version_is_blanked_under_that_version():
    """The version of a stored event is sealed; the payload that takes the place of its own is of the newest."""
    chat = full_chat()
    chat.compressed()
    chat.after(RedactMessages((5,)))
    (left,) = [event for event, _ in blanked(chat.log) if isinstance(event, SummarizationCompleted)]

    name, _, payload = encode(left)

    assert decode(name, 1, payload) == left


def test_a_redacted_message_costs_what_is_left_of_it():
    """The ratio, and the lesson of a usage report, are of the window that is sent."""
    chat = Chat(append(*(appended(number, 90) for number in range(1, 6))))

    chat.after(RedactMessages((2, 3)))

    window = {m.number: (m.message.content, m.tokens, m.source) for m in chat.state.window}
    assert window[2] == window[3] == (REDACTED, 8, TokenSource.ESTIMATE)
    assert window[4] == ("message 4", 90, TokenSource.CALLER)
    assert (chat.state.exact_tokens, chat.state.estimated_tokens) == (270, 16)


def test_what_was_made_of_a_redacted_message_is_revoked_and_made_again():
    """The record that covers it, and the one that continues that; the rules ask for the next pass at once."""
    chat = full_chat()
    first = chat.compressed()
    chat.after(append(*(appended(number) for number in range(81, 152))))
    second = chat.compressed()
    chat.after(append(*(appended(number) for number in range(152, 155))))

    events = chat.after(RedactMessages((5,)))

    redacted = next(event for event in events if isinstance(event, MessagesRedacted))
    assert redacted.revoked_ids == (first, second)
    assert [(r.id, r.summary, r.key_points) for r in chat.state.revoked] == [(n, REDACTED, ()) for n in (first, second)]
    assert isinstance(events[-1], SummarizationRequested)
    assert chat.numbers() == [*range(1, 155)]


def test_what_was_not_made_of_it_stays():
    """A record of other messages is in use as before."""
    chat = full_chat()
    record_id = chat.compressed()

    events = chat.after(RedactMessages((80,)))

    assert next(event for event in events if isinstance(event, MessagesRedacted)).revoked_ids == ()
    assert chat.state.live
    assert (chat.state.live.id, chat.state.live.summary != REDACTED) == (record_id, True)


def test_a_record_that_was_revoked_before_loses_its_text_too():
    """A revoked record is out of use, and GetSummary returns it for ever; so does the log."""
    chat = full_chat()
    record_id = chat.compressed()
    chat.after(RevokeSummary(record_id))
    chat.after(RateSummary(record_id, Rating.BAD, "message 5 is missing"))

    chat.after(RedactMessages((5,)))

    assert [r.summary for r in chat.state.revoked] == [REDACTED]
    left = [event for event, _ in blanked(chat.log)]
    assert [e.record.summary for e in left if isinstance(e, SummarizationCompleted)] == [REDACTED]
    assert "is missing" not in repr(left)


def test_what_continued_it_loses_its_text_too_though_both_were_revoked_before():
    """No record in use says that one was made of the other; their passes do."""
    chat = full_chat()
    first = chat.compressed()
    chat.after(append(*(appended(number) for number in range(81, 152))))
    second = chat.compressed()
    chat.after(RevokeSummary(first))

    chat.after(RedactMessages((5,)))

    assert {r.id: r.summary for r in chat.state.revoked} == {first: REDACTED, second: REDACTED}


def test_an_episode_loses_its_text_for_a_message_that_its_prompt_quoted():
    """A message of the episode before was read for context, and may be in its text."""
    for seed in range(100):
        chat = SimulatedChat(seed, profile=ProfileName.EPISODES)
        for step in chat.steps():
            for ended in step.after.passes:
                if ended.record_id and ended.plan.overlap:
                    event = redaction(step.after, (ended.plan.overlap[0].first,))
                    assert event is not None
                    assert ended.record_id in event.revoked_ids
                    return
    raise AssertionError("no episode had an overlap")


def test_what_was_before_the_message_is_not_blanked():
    """Conversations were forked from there, and are folded from it."""
    policy = Policy(clear_min_tokens=64, min_messages=2)
    chat = Chat(append(*(m for n in range(7) for m in exchange(1 + 4 * n))), policy=policy)
    chat.after(append(appended(29)))
    assert chat.state.marks

    chat.after(RedactMessages((29,)))

    changed = [now for was, now in zip(chat.log, blanked(chat.log), strict=True) if was != now]
    assert [event.number for event, _ in changed if isinstance(event, MessageAppended)] == [29]
    assert len(changed) == 1


def test_the_epoch_is_above_all_before_and_does_not_depend_on_them():
    """A rule that is gone may have changed a window."""
    chat = full_chat()
    chat.compressed()

    chat.after(RedactMessages((5,)))

    redacted_at = next(n for n, (event, _) in enumerate(chat.log, 1) if isinstance(event, MessagesRedacted))
    assert chat.state.epoch == redacted_at


def test_a_fork_has_nothing_to_purge_of_its_parent():
    """The fork's own stream never had the texts."""
    chat = Chat(append(*(appended(number) for number in range(1, 6))))
    chat.after(RedactMessages((2,)))

    fork = _taken(chat.state, chat.log, ForkConversation("fork", chat.state.settings), ProfileName.CHAIN)

    assert folded([*chat.log, *fork]).purge_due == 0


def test_a_message_that_a_rewind_removed_is_redacted():
    """The window has it no longer, and the log has."""
    chat = Chat(append(*(appended(number) for number in range(1, 11))), RewindConversation(5))

    chat.after(RedactMessages((8,)))

    assert chat.numbers() == [1, 2, 3, 4, 5]
    assert "message 8" not in repr(blanked(chat.log))


def test_a_pending_pass_is_cancelled():
    """The pass reads the old text; the rules ask for another one."""
    chat = full_chat(82)

    events = chat.after(RedactMessages((5,)))

    assert [type(event) for event in events] == [SummarizationFailed, MessagesRedacted, SummarizationRequested]


def test_what_is_redacted_already_is_not_redacted_again():
    """Redacting again changes nothing, so no event says that it did."""
    chat = Chat(append(*(appended(number) for number in range(1, 6))))
    chat.after(RedactMessages((2,)))

    assert chat.after(RedactMessages((2,))) == []
    (event,) = chat.after(RedactMessages((2, 3)))
    assert isinstance(event, MessagesRedacted)
    assert event.numbers == (3,)


def test_only_messages_of_the_conversation_are_redacted():
    """A number that no message has redacts none of the others."""
    chat = Chat(append(*(appended(number) for number in range(1, 6))))

    with pytest.raises(MessageNotFound):
        chat.after(RedactMessages((2, 6)))
    assert REDACTED not in repr(chat.state)


def test_a_closed_conversation_is_redacted_and_begins_no_pass():
    """The caller does not want it opened."""
    chat = full_chat()
    chat.compressed()
    chat.after(CloseConversation())

    events = chat.after(RedactMessages((5,)))

    assert [type(event) for event in events] == [MessagesRedacted]
    assert chat.state.closed


def test_a_title_that_was_made_before_is_not_taken_after():
    """A model was asked for it while the record still had the text."""
    chat = full_chat()
    record_id, asked = chat.compressed(), chat.state.redaction
    chat.after(RedactMessages((5,)))

    assert chat.after(ChangeTitle("Message 5", record_id, asked)) == []
    assert chat.after(ChangeTitle("Another", record_id, chat.state.redaction)) == [TitleChanged("Another", record_id)]


def test_a_mark_does_not_name_the_tool_of_a_redacted_call():
    """The call is in another message than the result whose text gave way."""
    chat = Chat(
        append(*(m for n in range(7) for m in exchange(1 + 4 * n))), policy=Policy(clear_min_tokens=64, min_messages=2)
    )
    assert "search" in chat.state.marks[3].text

    chat.after(RedactMessages((2,)))

    assert chat.state.marks[3].text == "[Result cleared: message 3. Expand it by its number.]"
    assert chat.state.marks[3].text in [m.message.content for m in chat.state.window]
    assert not [e for e, _ in blanked(chat.log) if isinstance(e, SummarizationCleared) and "search" in repr(e.marks)]


def exchange(number: int) -> list[MessageAppended]:
    """A question, a call, its large result, and the answer."""
    call = Message(f"m{number + 1}", Role.ASSISTANT, "", tool_calls=(ToolCall(f"c{number}", "search", "{}"),))
    return [
        appended(number, 3),
        appended(number + 1, 3, message=call),
        appended(number + 2, 110, message=result(number + 2, f"c{number}")),
        appended(number + 3, 3, message=said(number + 3, Role.ASSISTANT)),
    ]


def test_a_purge_of_an_earlier_redaction_does_not_end_a_later_one():
    """Text redacted between the two is still in the files."""
    chat = Chat(append(*(appended(number) for number in range(1, 6))))
    chat.after(RedactMessages((2,)))
    first = chat.state.purge_due
    chat.after(RedactMessages((3,)))

    assert chat.after(ConfirmPurge(first)) == []
    second = chat.state.purge_due
    assert chat.after(ConfirmPurge(second)) == [TextPurged(second)]
    assert chat.state.purge_due == 0
