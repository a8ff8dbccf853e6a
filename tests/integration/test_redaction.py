"""Redacting messages, over the whole path: gone from every answer and byte, and records of them are made anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from google.protobuf.message import Message as Proto

from abridged.client import AsyncConversations
from abridged.eventlog.event import StreamId
from abridged.service.cli.main import main
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.conversations.redactions import Redacted, Redactions
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log_api
from abridged.v1 import message_pb2, summary_pb2
from tests.support.below_grpc import below_grpc
from tests.support.event_logs import Clock
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Chat, Sidecar, said, script, sidecar, tool_result

CANARY = "kestrelwing"
"""A word that no file and no answer has once the messages that say it are redacted."""

SAID = (3, 4, 8, 39, 40)
"""The messages that say it: two pairs are of a rule, a call, and of what the window has verbatim."""


def canary(number: int) -> message_pb2.Message:
    """A message with the canary in every text that it may have."""
    call = message_pb2.ToolCall(id=f"call{number}", name=f"{CANARY}_tool", arguments=json.dumps({"of": CANARY}))
    return said(
        number,
        f"Never call the {CANARY} on port {4000 + number} without asking me first. We decided on {CANARY}-{number}.",
        name=CANARY,
        labels={"bird": CANARY},
        user_id=CANARY,
        tokens=120,
        tool_calls=[call] if number in (4, 40) else [],
        flows=[CANARY],
        tools=[CANARY],
    )


def turn(number: int) -> message_pb2.Message:
    if number in (5, 41):
        return tool_result(number, f"call{number - 1}", f"{number} rows of orders_{number}", tokens=120)
    return canary(number) if number in SAID else said(number, tokens=120)


async def told(s: Sidecar, conversation_id: str = "c1", *, turns: int = 44, **settings: Any) -> Chat:
    """A conversation with the canary in some messages, and with records, rules and a ledger."""
    chat = s.chat(conversation_id, **settings)
    for first in range(1, turns + 1, 11):
        await chat.append(*(turn(n) for n in range(first, min(turns + 1, first + 11))), wait_s=PATIENCE_S)
    return chat


async def redacted(chat: Chat, *numbers: int, **fields: Any) -> api.RedactMessagesResponse:
    request = api.RedactMessagesRequest(conversation_id=chat.id, numbers=numbers, **fields)
    s = chat.sidecar
    answer: api.RedactMessagesResponse = await s.conversations.RedactMessages(
        request, timeout=PATIENCE_S, metadata=s.metadata
    )
    return answer


def found_in(folder: Path, text: str = CANARY) -> list[str]:
    """The files in which a text stands, in UTF-8 or UTF-16."""
    words = (text.encode(), text.encode("utf-16-le"))
    files = [each for each in folder.rglob("*") if each.is_file()]
    return sorted(each.name for each in files if any(word in each.read_bytes() for word in words))


async def answers(chat: Chat) -> list[Proto]:
    """The answers of every call that reads a conversation."""
    s, found = chat.sidecar, list[Proto]()

    async def ask(method: str, **fields: Any) -> Any:
        request = getattr(api, f"{method}Request")
        named = {"conversation_id": chat.id} if "conversation_id" in request.DESCRIPTOR.fields_by_name else {}
        answer = await getattr(s.conversations, method)(request(**named, **fields), timeout=PATIENCE_S)
        found.append(answer)
        return answer

    for view in api.ContextView.values():
        for rendering in api.Rendering.values():
            await ask("GetContext", view=view, rendering=rendering, with_ledger=True, max_tokens=100_000, clip=True)
    await ask("GetConversation")
    await ask("ListConversations")
    await ask("ListRules")
    await ask("ListEpisodes")
    for done in (await ask("ListSummarizations")).summarizations:
        await ask("GetSummarization", summarization_id=done.id)
    for record in (await ask("ListSummaries")).summaries:
        await ask("GetSummary", summary_id=record.id)
        await ask("ExpandSummary", summary_id=record.id)
    await ask("ExpandSummary", numbers={"numbers": range(1, (await chat.state()).message_version + 1)})
    found += await events_of(chat)
    return found


async def events_of(chat: Chat) -> list[Any]:
    s = chat.sidecar
    request = log_api.ReadEventsRequest(conversation_id=chat.id, limit=500)
    return list((await s.event_log.ReadEvents(request, timeout=PATIENCE_S, metadata=s.metadata)).events)


async def messages_of(chat: Chat) -> dict[int, message_pb2.Message]:
    """Every message of the conversation, as it was appended."""
    whole = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL, max_tokens=100_000)
    return {m.number: m.message for m in whole.messages if m.number}


def verified(folder: Path) -> str:
    """The answer of `abridged log verify`, which must find nothing."""
    ran = CliRunner().invoke(main, ["log", "verify", str(folder / "abridged.db")])
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.fixture
def titles(tmp_path) -> dict[str, Any]:
    """Settings under which a model gives the canary for a title, and a folder beside the log's for its script."""
    (tmp_path / "scripts").mkdir()
    models = script(tmp_path / "scripts", {"text": f"The {CANARY} of the importer"}, {"hang": True})
    return {"titles.enabled": True, "titles.models": models["summarizer.models"]}


async def test_no_byte_of_redacted_messages_is_left(tmp_path, titles):
    """Files of the log's folder and answers have none; events keep their places, and the other messages their texts."""
    folder = tmp_path / "log"
    folder.mkdir()
    async with sidecar(folder, WORDS | titles) as s:
        chat = await told(s)
        while not (await chat.state()).title:
            await s.idle()
        (record, *_) = await chat.summaries()
        rating = api.RateSummaryRequest(
            conversation_id="c1", summary_id=record.id, rating=summary_pb2.RATING_BAD, comment=f"no {CANARY}"
        )
        await s.conversations.RateSummary(rating)
        before, messages = await events_of(chat), await messages_of(chat)
        carriers = {type(each).__name__ for each in await answers(chat) if CANARY in repr(each)}
        assert {"GetContextResponse", "GetSummaryResponse", "ListRulesResponse", "Event"} <= carriers
        assert (await searched(s, CANARY)).hits
        assert found_in(folder)

        answer = await redacted(chat, *SAID)

        assert (answer.messages, answer.conversations) == (len(SAID), 1)
        assert answer.summaries >= 1
        assert found_in(folder) == []
        await s.idle()
        assert [each for each in await answers(chat) if CANARY in repr(each)] == []
        assert not (await searched(s, CANARY)).hits
        assert (await chat.state()).title == ""
        after, left = await events_of(chat), await messages_of(chat)
        assert [(e.event_id, e.position, e.type, e.time) for e in after][: len(before)] == [
            (e.event_id, e.position, e.type, e.time) for e in before
        ]
        assert {n: m for n, m in left.items() if n not in SAID} == {n: m for n, m in messages.items() if n not in SAID}
        assert {left[n].content for n in SAID} == {"[redacted]"}
        assert [(c.id, c.name, c.arguments) for c in left[4].tool_calls] == [("call4", "redacted", "{}")]
        assert "TextPurged" in [e.type for e in after]
        assert CANARY not in s.log_text
    assert found_in(folder) == []
    verified(folder)


async def test_records_are_made_again_without_what_was_said(tmp_path):
    """The revoked ones keep their ids and figures; the new one covers the same messages."""
    async with sidecar(tmp_path) as s:
        chat = await told(s)
        old = await chat.summaries()
        covered = old[0].covered[-1].last

        await redacted(chat, 3)
        await s.idle()

        now = {record.id: record for record in await chat.summaries()}
        assert {now[record.id].summary for record in old if record.covered[0].first <= 3} == {"[redacted]"}
        live = (await chat.context()).summary_id
        assert live not in {record.id for record in old}
        assert now[live].covered[-1].last >= covered - 10
        assert "port 4003" not in repr(now)
        assert "port 4008" in repr(await answers(chat))


async def test_the_append_of_a_redacted_message_is_answered_again(tmp_path):
    """The message's id is known, whatever its content; nothing is appended."""
    async with sidecar(tmp_path) as s:
        chat = await told(s, turns=10)
        await redacted(chat, 3)

        again = await chat.append(canary(3), said(9, tokens=120))

        assert [(m.number, m.already_appended) for m in again.messages] == [(3, True), (9, True)]
        assert (await chat.state()).message_version == 10
        assert found_in(tmp_path, "port 4003") == []


async def test_the_client_counts_and_redacts(tmp_path):
    """The client takes the numbers that windows show."""
    async with sidecar(tmp_path) as s:
        chat = await told(s, turns=10)
        async with AsyncConversations(s.running.grpc_addresses[0]) as client:
            assert (await client.redact("c1", [3], dry_run=True)).messages == 1
            assert CANARY in (await messages_of(chat))[3].content

            assert (await client.redact("c1", [3])).conversations == 1

        assert (await messages_of(chat))[3].content == "[redacted]"


async def test_a_dry_run_counts_and_redacts_nothing(tmp_path):
    """The conversation is as it was."""
    async with sidecar(tmp_path) as s:
        chat = await told(s)
        before = await chat.context()

        counted = await redacted(chat, 3, 8, dry_run=True)

        assert (counted.messages, counted.conversations) == (2, 1)
        assert counted.summaries >= 1
        assert (await chat.context()).messages == before.messages


async def test_redacting_twice_says_that_nothing_was_left(tmp_path):
    """The second call waits until the first one is through."""
    async with sidecar(tmp_path) as s:
        chat = await told(s, turns=10)
        first = await redacted(chat, 3)
        again = await redacted(chat, 3)

        assert (first.messages, again.messages, again.summaries, again.conversations) == (1, 0, 0, 0)
        assert [e.type for e in await events_of(chat)].count("MessagesRedacted") == 1


async def test_a_number_that_no_message_has_redacts_none(tmp_path):
    """The call does nothing by halves; nor does one for an unknown conversation, or without any number."""
    async with sidecar(tmp_path) as s:
        chat = await told(s, turns=10)

        async with refused("NOT_FOUND", "MESSAGE_NOT_FOUND"):
            await redacted(chat, 3, 11)
        async with refused("NOT_FOUND", "MESSAGE_NOT_FOUND"):
            await redacted(chat, 3, 11, dry_run=True)
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await redacted(chat)
        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await redacted(s.chat("c9"), 1)
        assert CANARY in (await messages_of(chat))[3].content


async def test_a_message_that_a_rewind_removed_is_redacted(tmp_path):
    """No window has it, and the log's files have."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = await told(s, turns=10)
        rewind = api.RewindConversationRequest(conversation_id="c1", to_version=7)
        await s.conversations.RewindConversation(rewind)
        assert found_in(tmp_path, f"{CANARY}-8")

        await redacted(chat, 8)

        assert found_in(tmp_path, f"{CANARY}-8") == []
        assert found_in(tmp_path, f"{CANARY}-3")


async def test_a_closed_conversation_is_redacted(tmp_path):
    """The conversation stays closed."""
    async with sidecar(tmp_path) as s:
        chat = await told(s)
        await s.conversations.CloseConversation(api.CloseConversationRequest(conversation_id="c1"))

        await redacted(chat, *SAID)

        assert (await chat.state()).closed
        assert found_in(tmp_path) == []


async def test_a_running_pass_over_redacted_messages_commits_nothing(tmp_path):
    """The pass is cancelled, and its model is waited for no longer."""
    async with sidecar(tmp_path, script(tmp_path, {"hang": True})) as s:
        chat = s.chat()
        await chat.append(*(turn(n) for n in range(1, 16)))
        while not any(e.type == "SummarizationStarted" for e in await events_of(chat)):
            continue

        await redacted(chat, 3, 4, 8)
        await s.idle()

        first, *_ = [e.summarization_failed for e in await events_of(chat) if e.HasField("summarization_failed")]
        assert first.error_class == conversation.ERROR_CLASS_CANCELLED
        assert (await chat.state()).pending_summarization_id == ""
        assert not await chat.summaries()
        assert found_in(tmp_path) == []
        assert [each for each in await answers(chat) if CANARY in repr(each)] == []


@pytest.mark.parametrize("profile", ["rolling", "episodes"])
async def test_records_of_every_profile_lose_their_texts(tmp_path, profile: str):
    """Digests and episodes, too, with the figures that hints gave them."""
    async with sidecar(tmp_path, WORDS | {"policy.profile": profile}) as s:
        chat = await told(s)
        assert await chat.summaries()

        await redacted(chat, *SAID)

        assert found_in(tmp_path) == []
        await s.idle()
        assert [each for each in await answers(chat) if CANARY in repr(each)] == []
    verified(tmp_path)


async def forked(s: Sidecar, parent: str, fork: str, **fields: Any) -> Chat:
    await s.conversations.ForkConversation(
        api.ForkConversationRequest(conversation_id=parent, fork_id=fork, **fields), timeout=PATIENCE_S
    )
    return s.chat(fork)


async def test_shared_messages_are_redacted_where_they_are_and_in_every_fork(tmp_path):
    """Or not at all: without `forks`, or from one of these, nothing changes. A fork from before them stays whole."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = await told(s)
        early, late = await forked(s, "c1", "c2", to_version=2), await forked(s, "c1", "c3")
        deep = await forked(s, "c3", "c4")
        await deep.append(said(99, "and then?", tokens=120))
        window = await early.context()

        async with refused("FAILED_PRECONDITION", "CONVERSATION_HAS_FORKS") as refusal:
            await redacted(chat, *SAID)
        async with refused("FAILED_PRECONDITION", "MESSAGE_OF_ANCESTOR") as where:
            await redacted(deep, 45, 3)
        assert found_in(tmp_path)
        counted = await redacted(chat, *SAID, forks=True, dry_run=True)
        answer = await redacted(chat, *SAID, forks=True)

        assert refusal.metadata["forks"] == "2"
        assert (where.metadata["holder"], where.metadata["number"]) == ("c1", "3")
        assert answer == counted
        assert (answer.messages, answer.conversations) == (len(SAID), 3)
        assert found_in(tmp_path) == []
        await s.idle()
        for each in (chat, late, deep):
            assert [one for one in await answers(each) if CANARY in repr(one)] == []
        assert (await early.context()).messages == window.messages
        again = await redacted(chat, *SAID)
        assert (again.messages, again.conversations) == (0, 0)
    verified(tmp_path)
    async with sidecar(tmp_path, WORDS) as s:
        assert (await s.chat("c4").state()).message_version == 45


class Overtaken:
    """A log of conversations whose read of an earlier state answers behind a redaction."""

    def __init__(self, log: ConversationLog, redact: Callable[[], Coroutine[Any, Any, Redacted]]) -> None:
        self._log, self._redact = log, redact

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def as_of(self, *arguments: Any) -> Any:
        """Read the state, then redact it."""
        then = await self._log.as_of(*arguments)
        await self._redact()
        return then


async def test_a_fork_that_a_redaction_overtakes_has_the_texts_no_more(tmp_path):
    """The fork is made of a state that was read before; the redaction finds no fork yet."""
    async with below_grpc(tmp_path, {}, now_us=Clock()) as s:
        messages = [canary(number) if number in SAID else said(number) for number in range(1, 46)]
        await s.conversations.AppendMessages(api.AppendMessagesRequest(conversation_id="c1", messages=messages))
        core, key = s.core, StreamId("default", "c1")
        redactions = Redactions(core.conversations, core.table, core.purges)
        log = Overtaken(core.conversations.log, partial(redactions.of, key, SAID, forks=True, dry_run=False))
        core.conversations.log = cast("ConversationLog", log)

        await core.conversations.fork(key, "c2", to=44)

        state = await core.conversations.state(StreamId("default", "c2"))
        assert state.message_version == 44
        assert CANARY not in repr(state.window)


@pytest.mark.parametrize("to", [20, 44])
async def test_a_fork_from_before_a_redaction_is_redacted_from_its_beginning(tmp_path, to: int):
    """The state of then knew the texts; the log does not have them any more, and no record that was made of them."""
    async with sidecar(tmp_path) as s:
        chat = await told(s)
        await redacted(chat, *SAID)
        await chat.append(said(45, tokens=120))

        fork = await forked(s, "c1", "c2", to_version=to)
        await s.idle()

        assert [each for each in await answers(fork) if CANARY in repr(each)] == []
        assert {m.content for n, m in (await messages_of(fork)).items() if n in SAID} == {"[redacted]"}
        assert "MessagesRedacted" in [e.type for e in await events_of(fork)]
        assert not [m for m in (await fork.context()).messages if m.tag and "[redacted]" in m.message.content]
    verified(tmp_path)


async def test_a_message_of_a_fork_alone_is_redacted_there(tmp_path):
    """The conversation that it was forked from does not have it."""
    async with sidecar(tmp_path) as s:
        await told(s, turns=2)
        fork = await forked(s, "c1", "c2")
        await fork.append(*(turn(n) for n in range(3, 9)))

        answer = await redacted(fork, 3, 4, 8)

        assert (answer.messages, answer.conversations) == (3, 1)
        assert found_in(tmp_path) == []


async def test_a_redaction_that_a_kill_interrupted_goes_on_at_the_next_start(tmp_path):
    """The event counts; the next process purges the conversations that it finds marked, and a repeat waits for it."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = await told(s)
        call = asyncio.create_task(redacted(chat, *SAID))
        while not any(e.type == "MessagesRedacted" for e in await events_of(chat)):
            continue
        call.cancel()

    async with sidecar(tmp_path, WORDS) as s:
        again = await redacted(s.chat(), *SAID)

        assert again.messages == 0
        assert found_in(tmp_path) == []
    verified(tmp_path)


async def test_a_redacted_conversation_is_erased_after_it(tmp_path):
    """The rest that the redaction has left goes, too."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = await told(s)
        await redacted(chat, 3, 4)
        erasure = api.EraseConversationRequest(conversation_id="c1")
        await s.conversations.EraseConversation(erasure, timeout=PATIENCE_S)

        assert found_in(tmp_path) == []
        async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
            await redacted(chat, 3)
    verified(tmp_path)


async def test_a_credential_needs_the_scope_to_erase(tmp_path):
    """Appending and reading do not include it."""
    tokens = [
        {"token": "w" * 32, "namespace": "default", "scopes": ["append", "read", "read-all"]},
        {"token": "e" * 32, "namespace": "default", "scopes": ["erase"]},
    ]
    async with sidecar(tmp_path, {"server.tokens": tokens}) as s:
        s.metadata = [("authorization", f"Bearer {'w' * 32}")]
        chat = s.chat()
        await chat.append(said(1, "hello"))
        async with refused("PERMISSION_DENIED", "PERMISSION_DENIED"):
            await redacted(chat, 1)
        s.metadata = [("authorization", f"Bearer {'e' * 32}")]
        assert (await redacted(chat, 1)).messages == 1
