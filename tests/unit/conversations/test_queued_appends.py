"""Appends to one conversation that are queued behind one another, over a log that holds them back or lets them fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random
from typing import Any

import pytest

from abridged.eventlog.errors import LogFailed, LogFull, LogUnavailable, StreamCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.sqlite.snapshots import SqliteSnapshots
from abridged.eventlog.subscription import CommitWakeUp, Timing
from abridged.service.api.auth import ALL_SCOPES, Caller, set_caller
from abridged.service.api.event_log_servicer import EventLogServicer
from abridged.service.api.watch import Notices, Watching, watch
from abridged.service.codec.events import decode
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.append_request import Appended, AppendRequest
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.snapshot_writer import SnapshotWriter
from abridged.service.conversations.snapshots import ConversationSnapshots
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.commands import ChangeSettings
from abridged.service.domain.errors import ConversationNotFound, MessageIdReused, RequestIdReused, WrongMessageVersion
from abridged.service.domain.events import MessageAppended, Settings
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import CLIENT_FIELDS, Policy
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.tokenizers.estimated import EstimatingCounter
from abridged.service.turn import TURN_WEIGHT_MAX
from abridged.v1 import event_log_service_pb2
from tests.support.held_log import HeldLog

KEY = StreamId("default", "c1")
LARGE = "x" * (TURN_WEIGHT_MAX << 10)
"""A text whose window is looked at in a thread."""

TURNS = 20
"""Turns of the loop: more than an append takes from its call to the log, and from its outcome to its caller."""


class Pipelined:
    """Conversations over a held log, and the appends that were begun."""

    def __init__(self) -> None:
        self.table = ConversationTable()
        ids, clock = count(1), count(1)
        self.deciding: Callable[[], None] = lambda: None
        self.changed: Callable[[], None] = lambda: None
        self.log = HeldLog(hook=self.table.project)
        self.conversation_log = ConversationLog(
            self.log,
            table=self.table,
            new_id=lambda: f"e{next(ids)}",
            traceparent=str,
            snapshots=SnapshotWriter(self.log, ConversationSnapshots(SqliteSnapshots(b"", lambda _: None))),
        )

        def new_id() -> str:
            self.deciding()
            return f"p{next(ids)}"

        self.conversations = Conversations(
            self.conversation_log,
            policies=Policies(lambda *_: Policy(), client_fields=CLIENT_FIELDS),
            counting=Counting(EstimatingCounter()),
            clock_us=clock.__next__,
            new_id=new_id,
            on_changed=lambda key, state, events: self.changed(),
            on_loaded=lambda key, state: None,
        )

    def watching(self) -> Watching:
        """Return a watching of the log's streams of events."""
        return Watching(
            self.log,
            ThreadPoolExecutor(1),
            CommitWakeUp(self.log),
            ProgressBoard(),
            asyncio.Event(),
            lambda: 0,
            lambda: 0.0,
            Timing(),
            self.conversation_log.noticing,
            self.conversations.reached,
        )

    async def begun(self, *numbers: int, text: str = "hello", **fields: Any) -> asyncio.Task[Appended]:
        """An append that is on its way, as far as it comes."""
        messages = tuple(Message(f"m{n}", Role.USER, text) for n in numbers)
        contents = {message.id: canonical(message_to_proto(message)) for message in messages}
        request = AppendRequest(messages, contents, Settings, **fields)
        task = asyncio.create_task(self.conversations.append(KEY, request))
        await turns()
        return task

    async def opened(self, *, text: str = "hello") -> None:
        """The conversation has message 0, and the log holds back from now on."""
        await (await self.begun(0, text=text))
        self.log.posted.clear()
        self.log.is_holding = True

    def changed_to(self, title: str) -> asyncio.Task[Any]:
        """Another command than an append, on its way."""
        return asyncio.create_task(self.conversations.execute(KEY, lambda _: ChangeSettings(Settings(title=title))))

    def attempts(self, number: int) -> int:
        """Return how often a message came to the log."""
        return sum(
            event.message.id == f"m{number}"
            for append in self.log.posted
            for event in append.projected.events
            if isinstance(event, MessageAppended)
        )

    def written(self) -> list[tuple[int, str]]:
        """Number and id of every message in the log."""
        events = [decode(e.type, e.schema_version, e.payload) for e in self.log.read_stream(KEY)]
        return [(e.number, e.message.id) for e in events if isinstance(e, MessageAppended)]


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def threads() -> None:
    """Wait as long as a look-up in a thread takes, and for some turns."""
    await asyncio.to_thread(int)
    await turns()


async def until_held(pipelined: Pipelined, number: int) -> None:
    while pipelined.log.held < number:
        await threads()


async def test_appends_to_one_conversation_wait_for_the_disk_together():
    """The appends share a commit; each has the number that it was given behind the others."""
    p = Pipelined()
    await p.opened()
    appends = [await p.begun(number) for number in range(1, 6)]
    assert p.log.held == 5

    p.log.let_all_go()
    appended = await asyncio.gather(*appends)

    assert [a.messages[0].number for a in appended] == [2, 3, 4, 5, 6]
    assert [a.state.message_version for a in appended] == [2, 3, 4, 5, 6]


async def test_a_state_behind_queued_appends_is_the_one_that_the_log_folds_to():
    """The state has the log's times, not those of the decisions: a state that is decided on is a guess at it."""
    p = Pipelined()
    p.log.is_holding = True
    appends = [await p.begun(number) for number in range(1, 4)]

    p.log.let_all_go()
    appended = await asyncio.gather(*appends)

    assert appended[-1].state == await p.conversation_log.fold(KEY)
    assert [append.projected.behind for append in p.log.posted] == [None] * 3, "a chain does not keep all before it"


async def test_what_is_read_is_on_disk():
    """A guess is for deciding alone."""
    p = Pipelined()
    await p.opened()
    append = await p.begun(1)
    assert (await p.conversations.state(KEY)).message_version == 1

    p.log.let_all_go()
    await append
    assert (await p.conversations.state(KEY)).message_version == 2


@pytest.mark.parametrize("error", [LogUnavailable("busy"), LogFull("full"), RuntimeError("a hook")])
async def test_an_append_that_fails_fails_alone_and_those_behind_it_are_tried_again(error):
    """The failed append's caller hears of it; the others are decided anew, in their order."""
    p = Pipelined()
    await p.opened()
    appends = [await p.begun(number) for number in range(1, 6)]

    p.log.let_go()
    p.log.let_go(failing=error)
    p.log.let_all_go()
    outcomes = await asyncio.gather(*appends, return_exceptions=True)

    assert outcomes[1] is error
    answered = [o.messages[0].number for o in outcomes if isinstance(o, Appended)]
    assert answered == [2, 3, 4, 5]
    assert p.written() == [(1, "m0"), (2, "m1"), (3, "m3"), (4, "m4"), (5, "m5")]
    assert (await p.conversations.state(KEY)) == await p.conversation_log.fold(KEY)


async def test_nothing_is_decided_behind_a_conversation_whose_events_are_doubted():
    """A busy conversation would go on from guess to guess, and its events would never be read again."""
    p = Pipelined()
    await p.opened()
    before = await p.begun(1)
    with pytest.raises(StreamCorrupt):
        async with p.conversation_log.noticing():
            raise StreamCorrupt("an event is not what was written", KEY, 1)

    behind = await p.begun(2)
    assert (p.attempts(1), p.attempts(2)) == (1, 0)

    p.log.let_all_go()
    await asyncio.gather(before, behind)
    assert not p.conversation_log.is_doubted(KEY), "it was folded whole"


async def test_nothing_is_decided_behind_a_chain_that_has_failed():
    """An append between the failure and the last outcome waits, and is written at the first attempt."""
    p = Pipelined()
    await p.opened()
    appends = [await p.begun(number) for number in range(1, 4)]
    p.log.let_go()
    p.log.let_go(failing=LogUnavailable("busy"))
    await turns()

    late = await p.begun(4)
    p.log.let_all_go()
    await asyncio.gather(*appends, late, return_exceptions=True)

    assert p.attempts(4) == 1
    assert sorted(message_id for _, message_id in p.written()) == ["m0", "m1", "m3", "m4"]


async def test_what_was_decided_while_the_append_before_it_failed_is_decided_anew():
    """Deciding may take a thread, and meanwhile the guess may have failed: the log would refuse the decision."""
    p = Pipelined()
    await p.opened(text=LARGE)
    first = await p.begun(1)
    await until_held(p, 1)

    def fail_once() -> None:
        p.deciding = lambda: None
        p.log.let_go(failing=LogUnavailable("busy"))

    p.deciding = fail_once
    second = await p.begun(2)
    await until_held(p, 1)
    p.log.let_all_go()
    outcomes = await asyncio.gather(first, second, return_exceptions=True)

    assert [type(o) for o in outcomes] == [LogUnavailable, Appended]
    assert p.attempts(2) == 1


async def test_a_chain_goes_on_when_the_one_before_has_been_tried_again():
    """Being tried alone is for those that were decided on a guess that failed, not for ever."""
    p = Pipelined()
    await p.opened()
    appends = [await p.begun(number) for number in range(1, 4)]
    p.log.let_go(failing=LogUnavailable("busy"))
    p.log.let_all_go()
    await asyncio.gather(*appends, return_exceptions=True)
    p.log.is_holding = True

    more = [await p.begun(number) for number in range(4, 8)]

    assert p.log.held == 4
    p.log.let_all_go()
    assert [a.messages[0].number for a in await asyncio.gather(*more)] == [4, 5, 6, 7]


async def test_a_repeat_behind_its_first_time_is_answered_from_it():
    """A repeat may begin before the first is on disk."""
    p = Pipelined()
    await p.opened()
    appends = [await p.begun(1), await p.begun(1), await p.begun(1, 2), await p.begun(3)]

    p.log.let_all_go()
    placed = [a.messages for a in await asyncio.gather(*appends)]

    assert [(m.id, m.already_appended) for m in placed[1]] == [("m1", True)]
    assert [(m.id, m.already_appended) for m in placed[2]] == [("m1", True), ("m2", False)]
    assert {m.number for messages in placed for m in messages if m.id == "m1"} == {2}
    assert sorted(p.written()) == p.written()
    assert {message_id for _, message_id in p.written()} == {"m0", "m1", "m2", "m3"}


async def test_another_text_under_an_id_on_its_way_is_refused():
    """The refusal is the same as a moment later; appends queued behind it are written all the same."""
    p = Pipelined()
    await p.opened()
    appends = [
        await p.begun(1),
        await p.begun(1, text="something else"),
        await p.begun(2, request_id="r"),
        await p.begun(3, request_id="r"),
        await p.begun(4),
    ]

    p.log.let_all_go()
    outcomes = await asyncio.gather(*appends, return_exceptions=True)

    assert [type(o) for o in outcomes] == [Appended, MessageIdReused, Appended, RequestIdReused, Appended]
    assert {message_id for _, message_id in p.written()} == {"m0", "m1", "m2", "m4"}


async def test_an_expected_version_may_count_on_what_is_on_its_way():
    """An expected version is refused as wrong when the append on its way fails."""
    p = Pipelined()
    await p.opened()
    appends = [await p.begun(1), await p.begun(2, expected_version=2)]
    assert p.log.held == 2
    p.log.let_go()
    p.log.let_go()
    await asyncio.gather(*appends)

    appends = [await p.begun(3), await p.begun(4, expected_version=4)]
    p.log.let_go(failing=LogUnavailable("busy"))
    p.log.let_all_go()
    outcomes = await asyncio.gather(*appends, return_exceptions=True)

    assert [type(o) for o in outcomes] == [LogUnavailable, WrongMessageVersion]
    assert str(outcomes[1]) == str(WrongMessageVersion(expected=4, actual=3))


@pytest.mark.parametrize(("failing", "outcome"), [(None, WrongMessageVersion), (LogUnavailable("busy"), Appended)])
async def test_nobody_is_refused_because_of_a_guess(failing, outcome):
    """The outcome of the append on its way decides whether the version is wrong."""
    p = Pipelined()
    await p.opened()
    first, second = await p.begun(1), await p.begun(2, expected_version=1)
    await threads()
    assert not second.done()

    p.log.let_go(failing=failing)
    p.log.is_holding = False
    await asyncio.gather(first, second, return_exceptions=True)

    assert type(second.exception() or second.result()) is outcome


async def test_a_repeat_with_a_stale_expected_version_makes_its_request_known():
    """The answer is that of its first time; another text under the same request id is refused from then on."""
    p = Pipelined()
    await (await p.begun(1))
    repeated = await (await p.begun(1, expected_version=0, request_id="r"))

    assert repeated.messages[0].already_appended
    with pytest.raises(RequestIdReused):
        await (await p.begun(2, request_id="r"))


async def test_a_caller_that_goes_leaves_its_append_and_those_behind_it():
    """A commit is not cancelled; a failure that nobody hears of is known to those that were decided behind it."""
    p = Pipelined()
    await p.opened()
    appends = [await p.begun(number) for number in range(1, 5)]
    appends[0].cancel()
    appends[1].cancel()
    await turns()

    p.log.let_go()
    p.log.let_go(failing=LogUnavailable("busy"))
    await turns()
    late = await p.begun(5)
    p.log.let_all_go()
    outcomes = await asyncio.gather(*appends, late, return_exceptions=True)

    assert [type(o) for o in outcomes] == [asyncio.CancelledError, asyncio.CancelledError, Appended, Appended, Appended]
    assert {message_id for _, message_id in p.written()} == {"m0", "m1", "m3", "m4", "m5"}
    assert (await p.conversations.state(KEY)).message_version == 5


@pytest.mark.parametrize("begin", [lambda p: p.begun(0, 1), lambda p: _begun_change(p)], ids=["append", "change"])
async def test_a_commit_whose_caller_goes_is_waited_for(begin):
    """The outcome of a commit is unknown when its caller is gone: the next one would decide on a state that it ends."""
    p = Pipelined()
    await p.opened()
    gone = await begin(p)
    p.log.let_go()
    await until_held(p, 1)
    gone.cancel()
    await turns()

    append = await p.begun(2)
    change = p.changed_to("next")
    await threads()
    assert p.log.held == 1

    p.log.let_go()
    await until_held(p, 1)
    p.log.let_all_go()
    await asyncio.gather(append, change)
    assert p.attempts(2) == 1
    assert (await p.conversations.state(KEY)) == await p.conversation_log.fold(KEY)


async def _begun_change(p: Pipelined) -> asyncio.Task[Any]:
    """A change of settings that is the second to come to the log."""
    append = await p.begun(1)
    append.cancel()
    change = p.changed_to("gone")
    await turns()
    return change


async def test_a_conversation_that_is_on_its_way_is_read_when_it_is_there():
    """A read of a conversation under way and not in memory would see one commit or the other, as the disk likes."""
    p = Pipelined()
    p.log.is_holding = True
    append = await p.begun(1)
    reading = asyncio.create_task(p.conversations.state(KEY))
    await threads()
    assert not reading.done()

    p.log.let_all_go()
    assert await reading == (await append).state


async def test_a_listener_that_fails_holds_nobody_back():
    """The commit is on disk, and no longer under way for those that wait for it."""
    p = Pipelined()
    await p.opened()
    reported: list[Any] = []

    def fail() -> None:
        raise KeyError("a bug")

    asyncio.get_running_loop().set_exception_handler(lambda _, report: reported.append(report["exception"]))
    p.changed = fail
    append = await p.begun(1)
    p.log.let_go()
    assert (await append).messages[0].number == 2
    assert [type(error) for error in reported] == [KeyError]

    p.changed = lambda: None
    change = p.changed_to("next")
    await turns()
    assert p.log.held == 1
    p.log.let_all_go()
    await change


async def test_a_log_that_has_failed_is_told_to_every_caller():
    """Nobody waits for a chain that will never be written, and nobody is answered."""
    p = Pipelined()
    await p.opened()
    appends = [await p.begun(number) for number in range(1, 5)]

    for _ in appends:
        p.log.let_go(failing=LogFailed("an I/O error"))
    outcomes = await asyncio.gather(*appends, return_exceptions=True)

    assert [type(o) for o in outcomes] == [LogFailed] * 4
    assert p.written() == [(1, "m0")]


async def test_a_conversation_that_was_never_written_is_none():
    """The conversation's first append fails, and with it the guess that there is one."""
    p = Pipelined()
    p.log.is_holding = True
    append = await p.begun(1)
    p.log.let_go(failing=LogUnavailable("busy"))
    with pytest.raises(LogUnavailable):
        await append

    with pytest.raises(ConversationNotFound):
        await p.conversations.state(KEY)


async def test_other_commands_are_decided_on_what_is_on_disk():
    """They wait for the appends before them; appends that come later wait for them."""
    p = Pipelined()
    await p.opened()
    append = await p.begun(1)

    changed = asyncio.create_task(
        p.conversations.execute(KEY, lambda state: ChangeSettings(Settings(title=f"at {state.message_version}")))
    )
    await turns()
    later = await p.begun(2)
    assert p.log.held == 1

    p.log.let_go()
    await until_held(p, 1)
    p.log.let_all_go()
    await asyncio.gather(append, changed, later)
    assert (await p.conversations.state(KEY)).settings.title == "at 2"


async def watched(p: Pipelined) -> None:
    """A watcher of the conversation is shown the events after the version 2."""
    async for response in watch(p.watching(), KEY, after=2, notices=Notices(p.conversations, KEY)):
        if isinstance(response, bytes):
            return


async def subscribed(p: Pipelined) -> None:
    """A subscriber of the namespace is."""
    request = event_log_service_pb2.SubscribeEventsRequest(after_position=2)
    async for response in EventLogServicer(p.watching(), p.table).SubscribeEvents(request, None):
        if isinstance(response, bytes):
            return


async def read(p: Pipelined) -> None:
    """A reader of the conversation is."""
    request = event_log_service_pb2.ReadEventsRequest(conversation_id=KEY.name, after=2)
    await EventLogServicer(p.watching(), p.table).ReadEvents(request, None)


@pytest.mark.parametrize("shown", [watched, subscribed, read])
async def test_whoever_was_shown_an_event_reads_no_older_state(shown):
    """Readers of the log find a commit before the event loop learns of it, and wait until it does."""
    p = Pipelined()
    await p.opened()
    p.log.is_holding, p.log.is_silent = False, True
    append = await p.begun(1)
    version = p.log.stream_version(KEY)
    assert (await p.conversations.state(KEY)).event_version < version

    set_caller(Caller(KEY.namespace, ALL_SCOPES))
    showing = asyncio.create_task(shown(p))
    for _ in range(10):
        await threads()
    assert not showing.done()
    p.log.tell()
    await showing

    assert (await p.conversations.state(KEY)).event_version == version
    await append


async def test_an_event_that_is_known_delays_no_reader():
    """Later commits under way are not waited for."""
    p = Pipelined()
    await p.opened()
    version = p.log.stream_version(KEY)
    append = await p.begun(1)

    await p.conversations.reached(KEY, version)

    p.log.let_all_go()
    await append


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_fails_what_was_answered_is_written_once_at_its_place(seed):
    """Appends, repeats and failures come in any order; a failed append may be sent again."""
    rng, p = Random(seed), Pipelined()
    await p.opened()
    tasks: dict[asyncio.Task[Appended], int] = {}
    for number in range(1, 40):
        tasks[await p.begun(number)] = number
        if rng.random() < 0.2:
            tasks[await p.begun(rng.randint(1, number))] = 0
        while p.log.held and rng.random() < 0.5:
            p.log.let_go(failing=LogUnavailable("busy") if rng.random() < 0.2 else None)
            await turns()
    p.log.let_all_go()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)

    written = p.written()
    answered = {(m.number, m.id) for o in outcomes if isinstance(o, Appended) for m in o.messages}
    assert [number for number, _ in written] == list(range(1, len(written) + 1))
    assert len({message_id for _, message_id in written}) == len(written)
    assert answered == set(written[1:])
    assert {type(o) for o in outcomes} <= {Appended, LogUnavailable}
    assert (await p.conversations.state(KEY)) == await p.conversation_log.fold(KEY)
