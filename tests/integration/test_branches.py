"""Histories that branch: forks share the messages before them, and a tail is replaced in one commit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from abridged.service.bootstrap.rebuild import rebuilt_anew
from abridged.service.config.sources import load
from abridged.service.conversations.rebuild import RebuildReport
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from tests.support.refusal import refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Chat, said, sidecar

SUMMARIZED = {"min_range_tokens": 1, "preserve_recent": 2, "trigger_token_ratio": 1, "min_messages": 1_000}


async def fork(chat: Chat, name: str, **fields: Any) -> Chat:
    request = api.ForkConversationRequest(conversation_id=chat.id, fork_id=name, **fields)
    await chat.sidecar.conversations.ForkConversation(request, metadata=chat.sidecar.metadata)
    return chat.sidecar.chat(name)


async def texts(chat: Chat, **options: Any) -> list[tuple[int, str]]:
    return [(m.number, m.message.content) for m in (await chat.context(**options)).messages]


async def originals(chat: Chat) -> list[tuple[int, str]]:
    return await texts(chat, view=api.CONTEXT_VIEW_ORIGINAL)


async def test_a_fork_has_what_was_said_and_goes_its_own_way(tmp_path):
    """The two do not share later messages; numbers go on from where both were."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main", title="Trip")
        await chat.talk(4)
        branch = await fork(chat, "branch")
        await chat.append(said(5, "main five"))
        await branch.append(said(5, "branch five"), said(6, "branch six"))

        assert [number for number, _ in await originals(chat)] == [1, 2, 3, 4, 5]
        assert await originals(branch) == [
            *(await originals(chat))[:4],
            (5, "branch five"),
            (6, "branch six"),
        ]
        state = await branch.state()
        assert (state.forked_from, state.settings.title, state.message_version) == ("main", "Trip", 6)


async def test_a_fork_of_an_earlier_version_stands_as_it_stood_then(tmp_path):
    """The fork precedes the record that covers later messages; it has the settings of now."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main", policy=SUMMARIZED)
        await chat.talk(12)
        await chat.summarize()
        branch = await fork(chat, "branch", to_version=3)

        assert [number for number, _ in await texts(branch)] == [1, 2, 3]
        assert (await chat.context()).compacted
        await branch.append(said(13, "again"))
        assert [number for number, _ in await originals(branch)] == [1, 2, 3, 4]


async def test_a_version_that_was_taken_back_can_be_forked(tmp_path):
    """An answer that was replaced is in the log; a fork goes on from it. Version 0 is before the first message."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main")
        await chat.append(said(1, "question"), said(2, "first answer"))
        await chat.append(said(3, "second answer"), replace_after=1)
        branch = await fork(chat, "branch", to_version=2)
        empty = await fork(branch, "empty", to_version=0)

        assert await originals(branch) == [(1, "question"), (2, "first answer")]
        assert (await empty.state()).message_version == 0
        assert (await empty.state()).forked_from == "main"


async def test_a_record_that_was_revoked_since_is_not_in_use_in_a_fork(tmp_path):
    """Somebody said that it is wrong; and the fork has the settings of now."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main", policy=SUMMARIZED)
        await chat.talk(12)
        await chat.summarize()
        await chat.append(said(13), said(14))
        (record,) = await chat.summaries()
        await s.conversations.RevokeSummary(api.RevokeSummaryRequest(conversation_id="main", summary_id=record.id))
        await chat.update(["title"], title="Now")
        branch = await fork(chat, "branch", to_version=13)

        assert [number for number, _ in await texts(branch)] == list(range(1, 14))
        assert (await branch.state()).settings.title == "Now"


async def test_a_fork_has_the_records_and_expands_them(tmp_path):
    """The fork's summary is its source's; the messages behind it are read where they are."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main", policy=SUMMARIZED)
        await chat.talk(12)
        await chat.summarize()
        branch = await fork(await fork(chat, "first"), "second")
        await branch.talk(3)

        (record,) = await branch.summaries()
        assert record == (await chat.summaries())[0]
        request = api.ExpandSummaryRequest(conversation_id="second", summary_id=record.id)
        found = await s.conversations.ExpandSummary(request)
        assert [m.number for m in found.messages] == list(range(1, record.covered[0].last + 1))
        revoke = api.RevokeSummaryRequest(conversation_id="second", summary_id=record.id)
        await s.conversations.RevokeSummary(revoke)
        assert [number for number, _ in await texts(branch)][:12] == list(range(1, 13))
        assert (await chat.context()).compacted


async def test_a_fork_survives_a_restart_and_what_its_source_does_later(tmp_path):
    """The fork is folded from its source as that was, whatever was rewound, revoked or closed since."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main", policy=SUMMARIZED)
        await chat.talk(10)
        await chat.summarize()
        branch = await fork(chat, "branch")
        await branch.talk(2)
        before = await originals(branch), await texts(branch)
        await s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id="main", to_version=1))
        await chat.append(said(99, "another way"))
        await s.conversations.CloseConversation(api.CloseConversationRequest(conversation_id="main"))
    async with sidecar(tmp_path) as s:
        branch = s.chat("branch")

        assert (await originals(branch), await texts(branch)) == before
        reopened = await fork(s.chat("main"), "open")
        await reopened.append(said(100, "a closed conversation's fork is open"))
        assert [n for n, _ in await originals(reopened)] == [1, 11, 12]


async def test_an_id_of_before_the_fork_is_known_and_one_of_after_is_not(tmp_path):
    """A retry over the fork appends nothing twice; later messages of the source are new to the fork."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main")
        await chat.append(said(1), said(2))
        branch = await fork(chat, "branch")
        await chat.append(said(3, "of main"))

        answer = await branch.append(said(2), said(3, "of the branch"))

        assert [(m.number, m.already_appended) for m in answer.messages] == [(2, True), (3, False)]
        assert (await originals(branch))[-1] == (3, "of the branch")
        async with refused("ALREADY_EXISTS", "MESSAGE_ID_REUSED"):
            await branch.append(said(1, "another text"))


async def test_a_request_that_is_repeated_over_a_fork_writes_nothing(tmp_path):
    """The request's messages are the source's; the fork's stream has no event of them."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main")
        await chat.append(said(1), said(2))
        branch = await fork(chat, "branch")
        before = (await branch.state()).event_version

        for messages in ((said(1), said(2)), (said(2), said(3))):
            await branch.append(*messages, request_id=f"r{len(messages)}{messages[0].id}")
            await branch.append(*messages, request_id=f"r{len(messages)}{messages[0].id}")

        assert (await branch.state()).event_version == before + 1
        assert [n for n, _ in await originals(branch)] == [1, 2, 3]
    async with sidecar(tmp_path) as s:
        assert [n for n, _ in await originals(s.chat("branch"))] == [1, 2, 3]


def test_forks_of_long_conversations_are_opened_from_snapshots_and_made_again(tmp_path):
    """Each with its own snapshot; as they stood before and after the source's; by a rebuild as well."""
    expected = asyncio.run(_long_forks(tmp_path))
    assert [len(window) for window in expected.values()] == [600, 1_100, 610]
    asyncio.run(_required(tmp_path, expected))

    settings = load({}, flags={"log.path": str(tmp_path / "abridged.db")}).settings
    rebuilt = asyncio.run(rebuilt_anew(settings, {}, RebuildReport()))

    assert (rebuilt.left_out, rebuilt.conversations) == (0, 4)
    asyncio.run(_required(tmp_path, expected))


async def _long_forks(folder: Path) -> dict[str, list[tuple[int, str]]]:
    async with sidecar(folder) as s:
        chat = s.chat("main", context_length=200_000)
        for start in range(1, 601, 100):
            await chat.append(*(said(n, tokens=10) for n in range(start, start + 100)))
        late, early = await fork(chat, "late", to_version=500), await fork(chat, "early", to_version=10)
        for branch in (late, early):
            for start in range(1_000, 1_600, 100):
                await branch.append(*(said(n, tokens=10) for n in range(start, start + 100)))
        return {b.id: await texts(b) for b in (chat, late, early)}


async def _required(folder: Path, expected: dict[str, list[tuple[int, str]]]) -> None:
    async with sidecar(folder) as s:
        for name, window in expected.items():
            assert await texts(s.chat(name)) == window
        again = await fork(s.chat("late"), "again", to_version=550)
        assert await texts(again) == expected["late"][:550]


async def test_a_fork_is_repeated_and_takes_no_conversation_s_place(tmp_path):
    """The same fork is returned as it is; another one of this id is refused."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main")
        await chat.talk(3)
        branch = await fork(chat, "branch", to_version=2)
        await branch.append(said(9))
        again = await s.conversations.ForkConversation(
            api.ForkConversationRequest(conversation_id="main", fork_id="branch", to_version=2)
        )

        assert again.already_forked
        assert again.conversation.message_version == 3
        for fields in ({"fork_id": "branch", "to_version": 1}, {"fork_id": "main"}):
            async with refused("ALREADY_EXISTS", "CONVERSATION_EXISTS"):
                await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id="main", **fields))


async def test_a_conversation_that_is_not_in_memory_is_no_fork_of_itself(tmp_path):
    """The conversation's turn is waited for once, so that others get it."""
    async with sidecar(tmp_path) as s:
        await s.chat("main").talk(3)
    async with sidecar(tmp_path) as s, refused("ALREADY_EXISTS", "CONVERSATION_EXISTS"):
        await fork(s.chat("main"), "main")


async def test_a_fork_of_an_ancestor_is_none_of_its_fork(tmp_path):
    """The ancestor's fork has messages that the fork never had; a repeat is known whatever its source became since."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("a")
        await chat.talk(3)
        branch = await fork(chat, "b", to_version=1)
        await branch.append(said(9))
        await fork(chat, "x")
        async with refused("ALREADY_EXISTS", "CONVERSATION_EXISTS"):
            await fork(branch, "x")
        for _ in range(2):
            await fork(branch, "y", expected_version=2)
            await branch.append(said(10))


async def test_the_newest_message_can_be_forked_at_though_it_was_rewound(tmp_path):
    """The message stays forkable before and after another follows."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("a")
        await chat.talk(3)
        await s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id="a", to_version=1))
        branch = await fork(chat, "b", to_version=3)
        assert [n for n, _ in await originals(branch)] == [1, 2, 3]


async def test_a_fork_that_cannot_be_is_refused_and_leaves_nothing(tmp_path):
    """The source may be no conversation, a version that is not reached, or another version than expected."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("main")
        await chat.talk(3)
        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await fork(s.chat("nobody"), "x")
        async with refused("FAILED_PRECONDITION", "VERSION_NOT_REACHED"):
            await fork(chat, "x", to_version=4)
        async with refused("ABORTED", "WRONG_EXPECTED_VERSION"):
            await fork(chat, "x", expected_version=2)
        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await s.chat("x").context()


async def test_forks_are_as_deep_as_they_may_be(tmp_path):
    """Opening one reads all of its ancestors."""
    async with sidecar(tmp_path) as s:
        chat = s.chat("0")
        await chat.talk(1)
        for depth in range(1, 65):
            chat = await fork(chat, str(depth))
            await chat.append(said(depth + 1, f"at {depth}"))
        async with refused("FAILED_PRECONDITION", "FORKS_TOO_DEEP"):
            await fork(chat, "65")
    async with sidecar(tmp_path) as s:
        assert [n for n, _ in await originals(s.chat("64"))] == list(range(1, 66))


async def test_a_fork_leaves_the_pending_pass_to_its_source(tmp_path):
    """A model is asked once."""
    async with sidecar(tmp_path, {"summarizer.models": "ollama:none"}) as s:
        chat = s.chat("main", policy={"min_range_tokens": 1, "preserve_recent": 2})
        await chat.talk(30, tokens=400)
        state = await chat.state()
        assert state.pending_summarization_id
        branch = await fork(chat, "branch")

        assert (await branch.state()).pending_summarization_id != state.pending_summarization_id


async def test_a_search_in_a_fork_finds_what_it_has_of_its_source(tmp_path):
    """The hits are the fork's own, and nothing that its source got later."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = s.chat("main")
        await chat.append(said(1, "the lentil soup"), said(2, "a plain word"))
        branch = await fork(chat, "branch")
        await chat.append(said(3, "more lentil soup"))
        await branch.append(said(3, "no lentil left"))

        found = await searched(s, "lentil", conversation_id="branch")

        assert {(hit.conversation_id, hit.messages.first, hit.snippet) for hit in found.hits} == {
            ("branch", 1, "the lentil soup"),
            ("branch", 3, "no lentil left"),
        }


async def test_another_answer_takes_the_place_of_the_last_in_one_call(tmp_path):
    """One commit: the window never lacks both. Numbers are not used again."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1, "question"), said(2, "first answer"))
        before = await chat.state()

        await chat.append(said(3, "second answer"), replace_after=1)

        assert await texts(chat) == [(1, "question"), (3, "second answer")]
        events = await chat.events()
        assert [type(e).__name__ for e in events][-2:] == ["ConversationRewound", "MessageAppended"]
        assert (await chat.state()).event_version == before.event_version + 2


async def test_a_replaced_tail_takes_back_what_a_record_says_of_it(tmp_path):
    """The record that covered a removed message is revoked; the messages of its range that stay come back."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(policy=SUMMARIZED)
        await chat.talk(12)
        await chat.summarize()
        assert (await chat.context()).compacted

        await chat.append(said(13, "edited"), replace_after=4)

        assert [n for n, _ in await texts(chat)] == [1, 2, 3, 4, 13]
        assert not (await chat.context()).compacted


async def test_a_repeated_replacement_changes_nothing(tmp_path):
    """The ids say that it was done; ids of before are no new tail."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), said(2))
        for _ in range(2):
            answer = await chat.append(said(3), said(4), replace_after=1)
        assert all(m.already_appended for m in answer.messages)
        assert [n for n, _ in await texts(chat)] == [1, 3, 4]

        async with refused("ALREADY_EXISTS", "MESSAGE_ID_REUSED"):
            await chat.append(said(4), said(5), replace_after=1)
        async with refused("FAILED_PRECONDITION", "MESSAGE_REMOVED"):
            await chat.append(said(2), replace_after=3)
        async with refused("FAILED_PRECONDITION", "VERSION_NOT_REACHED"):
            await chat.append(said(6), replace_after=5)
        assert [n for n, _ in await texts(chat)] == [1, 3, 4]


async def test_a_request_that_removes_others_is_another_request(tmp_path):
    """A repeat that removes the same changes nothing; one that would remove more is refused, not said to be done."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), said(2), said(3), said(4))
        answer = message_pb2.Message(role=message_pb2.ROLE_ASSISTANT, content="another answer")
        for _ in range(2):
            await chat.append(answer, request_id="r", replace_after=3)

        for fields in ({"replace_after": 1}, {}):
            async with refused("ALREADY_EXISTS", "REQUEST_ID_REUSED"):
                await chat.append(answer, request_id="r", **fields)

        assert [n for n, _ in await texts(chat)] == [1, 2, 3, 5]


async def test_a_tail_that_is_replaced_under_a_pending_pass_ends_it(tmp_path):
    """The pass read messages that are gone; the next one is planned on those that are there."""
    async with sidecar(tmp_path, {"summarizer.models": "ollama:none"}) as s:
        chat = s.chat(policy={"min_range_tokens": 1, "preserve_recent": 2})
        await chat.talk(30, tokens=400)
        pending = (await chat.state()).pending_summarization_id
        assert pending

        await chat.append(said(31), replace_after=1)

        state = await chat.state()
        assert state.pending_summarization_id != pending
        assert [n for n, _ in await texts(chat)] == [1, 31]


async def test_the_newest_answer_of_a_chat_api_is_replaced(tmp_path):
    """The API replaces it so, and the same call returns the window."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(message_pb2.Message(role=message_pb2.ROLE_USER, content="Why?"))
        for answer in ("Because.", "It depends."):
            request = api.AppendMessagesRequest(
                conversation_id=chat.id,
                rendered=api.RenderedMessages(
                    rendering=api.RENDERING_OPENAI, json=json.dumps({"role": "assistant", "content": answer})
                ),
                replace_after=1,
                context=api.ContextOptions(rendering=api.RENDERING_OPENAI),
            )
            appended = await s.conversations.AppendMessages(request)

        assert [m["content"] for m in json.loads(appended.context.rendered_json)["messages"]] == ["Why?", "It depends."]
