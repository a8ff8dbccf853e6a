"""Erasing conversations, over the whole path: gone for every call, and from every byte of the files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
import psycopg
import pytest
from psycopg import sql

from abridged.eventlog.errors import LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog, Page
from abridged.service.codec.events import ERASED
from abridged.service.conversations.erasures import Erasures
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log_api
from abridged.v1 import message_pb2
from tests.support.below_grpc import RefusedCall, below_grpc
from tests.support.event_logs import Clock
from tests.support.patience import PATIENCE_S
from tests.support.postgres_server import schema_url
from tests.support.refusal import refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Chat, Sidecar, said, sidecar

CANARY = "kestrelwing"
"""A word that no file and no answer has once the conversations that say it are erased."""

FIELDS: dict[str, Any] = {
    "conversation_id": "c1",
    "summary_id": "r",
    "summarization_id": "p",
    "episode_id": "e",
    "fork_id": "c2",
    "number": 1,
    "rating": 1,
    "prompt_tokens": 9,
    "message_version": 1,
}
"""Values that a request for a conversation may need, by the name of their field."""


def singing(number: int, **fields: Any) -> message_pb2.Message:
    """A message with the canary in every text that it may have."""
    call = message_pb2.ToolCall(id=f"call{number}", name=f"{CANARY}_tool", arguments=f'{{"of": "{CANARY} {number}"}}')
    return said(
        number,
        f"The {CANARY} of turn {number} must never use port {4000 + number}; always call {CANARY} first.",
        name=CANARY,
        labels={"bird": CANARY},
        tokens=120,
        tool_calls=[call] if number % 2 == 0 else [],
        **fields,
    )


async def sung(s: Sidecar, conversation_id: str = "c1", *, turns: int = 30, **settings: Any) -> Chat:
    """A conversation of the canary, with records, rules, a ledger and a title."""
    labels = {"user": "ada", **settings.pop("labels", {})}
    prompt = conversation.SystemPrompt(content=f"You are a {CANARY}.")
    chat = s.chat(conversation_id, title=f"On {CANARY}", labels=labels, system_prompt=prompt, **settings)
    for first in range(1, turns + 1, 10):
        await chat.append(*(singing(n) for n in range(first, first + 10)), wait_s=PATIENCE_S)
    return chat


async def erased(s: Sidecar, conversation_id: str = "c1", **fields: Any) -> api.Erasure:
    request = api.EraseConversationRequest(conversation_id=conversation_id, **fields)
    answer = await s.conversations.EraseConversation(request, timeout=PATIENCE_S, metadata=s.metadata)
    return cast(api.Erasure, answer.erasure)


async def erased_by(s: Sidecar, **fields: Any) -> api.Erasure:
    request = api.EraseConversationsRequest(**fields)
    answer = await s.conversations.EraseConversations(request, timeout=PATIENCE_S, metadata=s.metadata)
    return cast(api.Erasure, answer.erasure)


def found_in(folder: Path) -> list[str]:
    """The files in which the canary stands, in UTF-8 or UTF-16."""
    words = (CANARY.encode(), CANARY.encode("utf-16-le"))
    files = [each for each in folder.rglob("*") if each.is_file()]
    return sorted(each.name for each in files if any(word in each.read_bytes() for word in words))


async def events_of(s: Sidecar, conversation_id: str = "c1") -> list[Any]:
    request = log_api.ReadEventsRequest(conversation_id=conversation_id, limit=500)
    return list((await s.event_log.ReadEvents(request, timeout=PATIENCE_S, metadata=s.metadata)).events)


async def test_no_byte_of_an_erased_conversation_is_left_in_a_file(tmp_path):
    """Nor in a search, a list, or an event, while the sidecar runs; the events keep their places."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = await sung(s)
        assert await chat.summaries()
        assert (await searched(s, CANARY)).hits
        assert found_in(tmp_path)
        before = await events_of(s)

        erasure = await erased(s)

        assert (erasure.conversations, erasure.messages) == (1, 30)
        assert erasure.erasure_id
        assert found_in(tmp_path) == []
        assert not (await searched(s, CANARY)).hits
        assert not (await s.conversations.ListConversations(api.ListConversationsRequest())).conversations
        after = await events_of(s)
        assert [(e.event_id, e.position, e.type) for e in after][: len(before)] == [
            (e.event_id, e.position, e.type) for e in before
        ]
        assert [e.type for e in after][-2:] == ["ConversationErased", "TextPurged"]
        assert {e.payload for e in after[: len(before)]} == {ERASED}
        assert not any(e.WhichOneof("body") for e in after[: len(before)])
        assert CANARY not in s.log_text
    assert found_in(tmp_path) == []


CONTENT = [
    rpc.name
    for rpc in api.DESCRIPTOR.services_by_name["ConversationService"].methods
    if "conversation_id" in rpc.input_type.fields_by_name
    and rpc.name not in ("EraseConversation", "SearchHistory", "IngestMessages", "WatchConversation")
]


@pytest.mark.parametrize("name", CONTENT)
async def test_every_call_for_an_erased_conversation_says_so(tmp_path, name: str):
    """The sidecar uses its id for no other."""
    async with sidecar(tmp_path) as s:
        await sung(s, turns=10)
        await erased(s)
        kind = getattr(api, f"{name}Request")
        fields = {key: value for key, value in FIELDS.items() if key in kind.DESCRIPTOR.fields_by_name}
        request = kind(**fields)
        if name == "AppendMessages":
            request.messages.append(singing(1))
        elif name in ("PinMessages", "UnpinMessages", "RedactMessages"):
            request.numbers.append(1)
        elif name == "UpdateConversation":
            request.update_mask.paths.append("title")

        async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
            await getattr(s.conversations, name)(request, timeout=PATIENCE_S)


async def test_erasing_twice_says_that_nothing_was_left(tmp_path):
    """Another refusal names a conversation that is not there."""
    async with sidecar(tmp_path) as s:
        await sung(s, turns=10)
        await erased(s)

        again = await erased(s)

        assert (again.conversations, again.messages, again.erasure_id) == (0, 0, "")
        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await erased(s, "c9")


async def test_a_dry_run_counts_and_erases_nothing(tmp_path):
    """The conversation is as it was."""
    async with sidecar(tmp_path) as s:
        chat = await sung(s, turns=10)

        counted = await erased(s, dry_run=True)

        assert (counted.conversations, counted.messages, counted.erasure_id) == (1, 10, "")
        assert (await chat.state()).message_version == 10


async def test_forks_are_erased_with_what_they_were_forked_from_or_not_at_all(tmp_path):
    """A fork has the text of its parent, so erasing the parent alone is refused."""
    async with sidecar(tmp_path) as s:
        await sung(s, turns=10)
        for parent, fork in (("c1", "c2"), ("c2", "c3")):
            await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id=parent, fork_id=fork))

        async with refused("FAILED_PRECONDITION", "CONVERSATION_HAS_FORKS") as refusal:
            await erased(s)
        erasure = await erased(s, forks=True)

        assert refusal.metadata["forks"] == "1"
        assert (erasure.conversations, erasure.messages) == (3, 30)
        assert found_in(tmp_path) == []
        for each in ("c1", "c2", "c3"):
            async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
                await s.chat(each).state()


async def test_a_fork_is_erased_alone(tmp_path):
    """The parent stays whole."""
    async with sidecar(tmp_path) as s:
        chat = await sung(s, turns=10)
        await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id="c1", fork_id="c2"))
        window = await chat.context()

        await erased(s, "c2")

        assert (await chat.context()).messages == window.messages


async def test_conversations_are_erased_by_label_and_by_user(tmp_path):
    """The sidecar erases those that match, and no other; each event says how many the call erased."""
    async with sidecar(tmp_path) as s:
        for number, (user, team) in enumerate([("ada", "x"), ("ada", "y"), ("bob", "x"), ("bob", "y")], 1):
            labels = {"user": user, "team": team}
            await s.chat(f"c{number}", labels=labels).append(said(1, "hello", user_id=f"id-{team}"))

        counted = await erased_by(s, labels={"user": "ada"}, dry_run=True)
        one = await erased_by(s, labels={"user": "ada"}, user_id="id-y")
        rest = await erased_by(s, user_id="id-x")

        assert counted.conversations == 2
        assert (one.conversations, rest.conversations) == (1, 2)
        left = (await s.conversations.ListConversations(api.ListConversationsRequest())).conversations
        assert [c.id for c in left] == ["c4"]
        (receipt,) = [e.conversation_erased for e in await events_of(s, "c1") if e.HasField("conversation_erased")]
        assert (receipt.erasure_id, receipt.conversations, receipt.messages) == (rest.erasure_id, 2, 1)
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await erased_by(s)


class Overtaken:
    """A log whose scan waits until somebody has done something else, on the event loop."""

    def __init__(self, log: EventLog, meanwhile: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._log = log
        self._meanwhile = meanwhile
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def scan(self, **arguments: Any) -> Page:
        """Return the page after that."""
        asyncio.run_coroutine_threadsafe(self._meanwhile(), self._loop).result(PATIENCE_S)
        return self._log.scan(**arguments)


@pytest.mark.parametrize("ends", ["erased", "archived"])
async def test_an_erasure_by_user_goes_on_where_another_call_was_faster(tmp_path, ends: str):
    """A conversation that is erased between the look at the list and that at the messages is nobody's any more; one
    that is archived is erased with its file."""
    folder = tmp_path / "archive"
    async with below_grpc(tmp_path, {"log.archive_dir": str(folder)}, now_us=Clock()) as s:
        core, key = s.core, StreamId("default", "c1")
        for name in ("c1", "c2"):
            hello = said(1, "hello", user_id="ada")
            await s.conversations.AppendMessages(api.AppendMessagesRequest(conversation_id=name, messages=[hello]))
        await s.conversations.CloseConversation(api.CloseConversationRequest(conversation_id="c1"))
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "erased": partial(core.erasures.of, key, forks=False, dry_run=False),
            "archived": partial(core.archives.of, key, dry_run=False),
        }
        log = cast("EventLog", Overtaken(core.log, calls[ends]))
        erasures = Erasures(log, core.conversations, core.table, core.purges, new_id=lambda: "e")

        done = await erasures.matching("default", labels=(), user_id="ada", dry_run=False)

        assert done.conversations == {"erased": 1, "archived": 2}[ends]
        assert not folder.exists() or not [*folder.iterdir()]


async def test_a_repeat_of_an_erasure_by_label_waits_for_the_purge_too(tmp_path):
    """An erased conversation has no label by which a repeat would find it, and its purge may be refused meanwhile."""
    follows = asyncio.Event()

    async def forgotten(_position: int) -> None:
        if not follows.is_set():
            raise LogUnavailable("the index does not follow")

    async with below_grpc(tmp_path, {}, now_us=Clock()) as s:
        await s.core.purges.start(forgotten)
        settings = conversation.ConversationSettings(labels={"user": "ada"})
        opened = api.AppendMessagesRequest(conversation_id="c1", settings=settings, messages=[said(1, CANARY)])
        await s.conversations.AppendMessages(opened)
        by_label = api.EraseConversationsRequest(labels={"user": "ada"})
        for _ in range(2):
            with pytest.raises(RefusedCall) as refusal:
                await s.conversations.EraseConversations(by_label)
            assert refusal.value.status.code == grpc.StatusCode.UNAVAILABLE.value[0]

        follows.set()
        assert (await s.conversations.EraseConversations(by_label)).erasure.conversations == 0
        assert not s.core.table.purging()


async def test_a_credential_needs_the_scope_to_erase(tmp_path):
    """Appending and reading do not include it."""
    tokens = [
        {"token": "w" * 32, "namespace": "default", "scopes": ["append", "read", "read-all"]},
        {"token": "e" * 32, "namespace": "default", "scopes": ["erase"]},
    ]
    async with sidecar(tmp_path, {"server.tokens": tokens}) as s:
        s.metadata = [("authorization", f"Bearer {'w' * 32}")]
        await s.chat().append(said(1, "hello"))
        async with refused("PERMISSION_DENIED", "PERMISSION_DENIED"):
            await erased(s)
        s.metadata = [("authorization", f"Bearer {'e' * 32}")]
        assert (await erased(s)).conversations == 1


async def test_an_erasure_in_postgresql_leaves_no_row_of_it_to_any_sidecar(tmp_path):
    """The server keeps old rows as long as it will; no query finds one, and no sidecar on the log."""
    url = schema_url(tmp_path)
    async with sidecar(tmp_path, {"log.url": url}) as one, sidecar(tmp_path, {"log.url": url}) as two:
        await sung(one)
        assert (await two.chat().context()).messages
        assert _rows_with_canary(url)

        await erased(one)

        assert _rows_with_canary(url) == {}
        for each in (one, two):
            async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
                await each.chat().context()
            assert not any(e.WhichOneof("body") == "message_appended" for e in await events_of(each))


def _rows_with_canary(url: str) -> dict[str, int]:
    """The number of rows with the canary, as a text or as bytes, of each table that has any."""
    with psycopg.connect(url) as database:
        names = [name for (name,) in database.execute(_TABLES)]
        found = {
            name: database.execute(
                sql.SQL("SELECT count(*) FROM {} AS t WHERE t::text LIKE %s OR t::text LIKE %s").format(
                    sql.Identifier(name)
                ),
                (f"%{CANARY}%", f"%{CANARY.encode().hex()}%"),
            ).fetchall()[0][0]
            for name in names
        }
    return {name: count for name, count in found.items() if count}


_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"


async def test_a_fork_that_begins_while_its_parent_is_erased_stays_whole_or_is_refused(tmp_path):
    """Whichever comes first: nobody is left with a conversation whose beginning is gone."""
    async with sidecar(tmp_path) as s:
        for number in range(16):
            parent, fork = f"parent-{number}", f"fork-{number}"
            await s.chat(parent).append(singing(1))
            request = api.ForkConversationRequest(conversation_id=parent, fork_id=fork)
            calls = [s.conversations.ForkConversation(request, timeout=PATIENCE_S), erased(s, parent)]
            if number % 2:
                calls.reverse()
            failed = [isinstance(each, Exception) for each in await asyncio.gather(*calls, return_exceptions=True)]
            if number % 2:
                failed.reverse()
            assert failed[0] is not failed[1], "one of both was refused"
            if failed[1]:
                assert (await s.chat(fork).append(said(2))).message_version == 2
        for number in range(16):
            await erased(s, f"parent-{number}", forks=True)
        assert found_in(tmp_path) == []


async def test_an_erasure_goes_on_without_its_caller(tmp_path):
    """A parent does not stay behind whose forks are gone."""
    async with sidecar(tmp_path) as s:
        await sung(s, turns=10)
        for number in range(6):
            fork = api.ForkConversationRequest(conversation_id="c1", fork_id=f"fork-{number}")
            await s.conversations.ForkConversation(fork)
        call = s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id="c1", forks=True))
        while not any(e.type == "ConversationErased" for e in await events_of(s, "fork-5")):
            continue
        call.cancel()

        while not any(e.type == "TextPurged" for e in await events_of(s)):
            continue
        assert found_in(tmp_path) == []


async def test_damage_to_one_conversation_is_not_in_the_way_of_another(tmp_path):
    """The erasure of the damaged one ends, and is not tried again and again."""
    async with sidecar(tmp_path) as s:
        for name in ("damaged", "late", "whole"):
            await sung(s, name, turns=10)
    with closing(sqlite3.connect(tmp_path / "abridged.db")) as database, database:
        database.execute(
            "DELETE FROM events WHERE version = 4 AND stream = (SELECT id FROM streams WHERE name = 'damaged')"
        )
        late = "(SELECT max(position) FROM events WHERE stream = (SELECT id FROM streams WHERE name = 'late'))"
        database.execute(f"UPDATE events SET payload = x'0a' WHERE position = {late}")

    async with sidecar(tmp_path) as s:
        for name in ("whole", "late", "damaged"):
            assert (await erased(s, name)).conversations == 1
        assert (await erased(s, "damaged")).conversations == 0
    assert found_in(tmp_path) == []


async def test_an_index_that_is_off_keeps_no_text(tmp_path):
    """No sidecar follows its file, so it goes as a whole."""
    async with sidecar(tmp_path, WORDS) as s:
        await sung(s, turns=10)
        await searched(s, CANARY)

    async with sidecar(tmp_path) as s:
        await erased(s)
        assert found_in(tmp_path) == []


async def test_two_callers_at_once_erase_once(tmp_path):
    """One of both has erased the conversation, and its answer agrees with the log."""
    async with sidecar(tmp_path) as s:
        await sung(s, turns=10)

        answers = await asyncio.gather(erased(s), erased(s))

        assert sorted(answer.conversations for answer in answers) == [0, 1]
        (event,) = [e.conversation_erased for e in await events_of(s) if e.HasField("conversation_erased")]
        assert {event.erasure_id, ""} == {answer.erasure_id for answer in answers}
