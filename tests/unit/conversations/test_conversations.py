"""Conversations over a log in memory into which others write between two attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest

from abridged.eventlog.errors import LogUnavailable
from abridged.eventlog.event import NewEvent, RecordedEvent, StreamId
from abridged.eventlog.log import Append
from abridged.service.codec.events import encode
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.conversations.conversations import ATTEMPTS_MAX, Conversations
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.table import ConversationTable, Projected
from abridged.service.domain.commands import CompletePass, RequestPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import PassSuperseded, TooLarge
from abridged.service.domain.events import MessageAppended, Settings
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import CLIENT_FIELDS, Policy
from abridged.service.domain.record import MessageRange
from abridged.service.domain.tokens import TokenSource
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.chats import record_for
from tests.support.given import UNCLAIMED
from tests.support.held_log import HeldLog

KEY = StreamId("default", "c1")


class ReadLog(HeldLog):
    """A log that notes after which version its streams are read."""

    def __init__(self, table: ConversationTable) -> None:
        super().__init__(clock_us=count(1).__next__, hook=table.project)
        self.read_after: list[int] = []

    def read_stream(self, stream: StreamId, *, after: int = 0, **page: Any) -> list[RecordedEvent]:
        self.read_after.append(after)
        return super().read_stream(stream, after=after, **page)


class Bench:
    """Conversations, and a rival's act whenever they ask for an id: once an attempt. Rivals of another process are
    `beside` the first.
    """

    def __init__(self, *, is_shared: bool = False, beside: Bench | None = None) -> None:
        self.table: ConversationTable = beside.table if beside else ConversationTable()
        self.log: ReadLog = beside.log if beside else ReadLog(self.table)
        self.caught_up: list[int] = []
        self.rival: Callable[[], Any] = lambda: None
        ids = count(1_000 if beside else 1)

        def new_id() -> str:
            self.rival()
            return f"id{next(ids)}"

        self.conversation_log = ConversationLog(
            self.log, table=self.table, new_id=lambda: f"e{next(ids)}", traceparent=str
        )
        self.conversations = Conversations(
            self.conversation_log,
            policies=Policies(lambda *_: Policy(), client_fields=CLIENT_FIELDS),
            counting=Counting(EstimatingCounter()),
            clock_us=count(1).__next__,
            new_id=new_id,
            on_changed=lambda key, state, events: None,
            on_loaded=lambda key, state: None,
            on_caught_up=(lambda key, state: self.caught_up.append(state.event_version)) if is_shared else None,
        )

    async def append(self, *numbers: int, text: str = "hello") -> Any:
        messages = tuple(said(number, text) for number in numbers)
        return await self.conversations.append(KEY, AppendRequest(messages, contents(messages), Settings))

    def written_by_others(self, state: Conversation, number: int) -> Conversation:
        """A message that comes to the log by another way; the state behind it."""
        message = said(number)
        sent = contents((message,))[message.id]
        event = MessageAppended(number, message, 1, TokenSource.CALLER)
        name, schema_version, payload = encode(event, sent=sent)
        new = NewEvent(self.conversation_log.message_event_id(KEY, message.id), name, payload, schema_version, sent)
        projected = Projected(state, [event])
        self.log.submit(Append(KEY, [new], projected=projected)).result()
        assert projected.after is not None
        return projected.after


def said(number: int, text: str = "hello") -> Message:
    return Message(id=f"m{number}", role=Role.USER, content=text)


def contents(messages: tuple[Message, ...]) -> dict[str, bytes]:
    return {message.id: canonical(message_to_proto(message)) for message in messages}


async def test_an_append_whose_messages_others_keep_writing_is_told_to_come_back():
    """A refusal for bad luck is no bug: the same ids make a retry safe."""
    bench = Bench()
    state = (await bench.append(1)).state
    numbers = count(2)

    def write_one_of_them() -> None:
        nonlocal state
        state = bench.written_by_others(state, next(numbers))

    bench.rival = write_one_of_them

    with pytest.raises(LogUnavailable):
        await bench.append(*range(2, ATTEMPTS_MAX + 4))

    bench.rival = lambda: None
    appended = await bench.append(*range(2, ATTEMPTS_MAX + 4))
    assert [placed.number for placed in appended.messages] == list(range(2, ATTEMPTS_MAX + 4))


async def test_a_repeat_of_what_others_wrote_returns_a_state_that_has_it():
    """The state in memory is older than the message that it is asked for."""
    bench = Bench()
    state = (await bench.append(1)).state
    bench.written_by_others(state, 2)

    appended = await bench.append(2)

    assert [(placed.number, placed.already_appended) for placed in appended.messages] == [(2, True)]
    assert appended.state.message_version == 2


async def test_a_conversation_larger_than_a_page_in_bytes_is_folded_whole():
    """A short page is not the end of a stream."""
    bench = Bench()
    for number in range(1, 31):
        await bench.append(number, text="x" * 300_000)

    state = await bench.conversation_log.fold(KEY)
    messages = await bench.conversation_log.originals(KEY, state, limit=100)

    assert state.message_version == len(messages) == 30


async def test_originals_are_read_no_further_than_their_bytes_allow():
    """A read that may be large states its bound."""
    bench = Bench()
    for number in range(1, 5):
        await bench.append(number, text="x" * 1_000)

    originals = partial(bench.conversation_log.originals, KEY, await bench.conversation_log.fold(KEY), limit=9)
    assert len(await originals(bytes_max=5_000)) == 4
    assert len(await originals(within=[MessageRange(1, 2)], bytes_max=2_500)) == 2
    with pytest.raises(TooLarge):
        await originals(bytes_max=2_500)


async def test_a_state_in_memory_is_caught_up_by_its_tail_alone():
    """The state takes in the events that others have appended to the log; of those before, only the last is reread."""
    bench = Bench(is_shared=True)
    known = (await bench.append(1, 2, 3)).state
    bench.written_by_others(known, 4)
    bench.log.read_after.clear()

    state = await bench.conversations.state(KEY)

    assert (state.message_version, bench.caught_up) == (4, [known.event_version + 1])
    assert min(bench.log.read_after) == known.event_version - 1
    assert await bench.conversations.state(KEY) is state


async def test_the_loser_of_a_race_reads_what_it_missed_and_decides_again():
    """The rival's message stands before its own, and the stream is not read from its beginning."""
    bench = Bench(is_shared=True)
    known = (await bench.append(1, 2, 3)).state
    rivals = [4]
    bench.rival = lambda: rivals and bench.written_by_others(known, rivals.pop())
    bench.log.read_after.clear()

    after = (await bench.append(5)).state

    assert ([m.message.id for m in after.window], after.message_version) == (["m1", "m2", "m3", "m4", "m5"], 5)
    assert min(bench.log.read_after) >= known.event_version - 1


async def test_a_record_that_another_process_committed_first_is_no_conflict():
    """The record of a pass has one id, whichever process makes it: the second one finds the pass ended, and goes on."""
    first = Bench(is_shared=True)
    second = Bench(is_shared=True, beside=first)
    await first.append(*range(1, 31), text="hello " * 60)
    requested, _ = await first.conversations.execute(KEY, lambda _: RequestPass())
    assert requested.pending is not None
    pending = requested.pending
    await second.conversations.state(KEY)

    def completed(summary: str) -> CompletePass:
        record = record_for(pending, summary=summary)
        return CompletePass(pending.pass_id, UNCLAIMED, record, TokenSource.ESTIMATE, fallback=False)

    async def begun(bench: Bench, summary: str) -> asyncio.Task[tuple[Conversation, Any]]:
        before = bench.log.held
        task = asyncio.create_task(bench.conversations.execute(KEY, lambda _: completed(summary)))
        while bench.log.held == before:
            await asyncio.to_thread(int)
        return task

    first.log.is_holding = True
    made, late = await begun(first, "First."), await begun(second, "Second.")
    first.log.let_all_go()

    state, _ = await made
    assert [record.summary for record in state.records] == ["First."]
    with pytest.raises(PassSuperseded):
        await late
    assert await second.conversations.state(KEY) == state
