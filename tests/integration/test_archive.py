"""Archiving conversations, over the whole path: their content in a file, and back in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from abridged.v1 import conversation_service_pb2 as api
from tests.integration.test_erasure import CANARY, events_of, singing, sung
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Sidecar, sidecar


def archiving(tmp_path: Path, **settings: Any) -> dict[str, Any]:
    return {"log.archive_dir": str(tmp_path / "archive"), **settings}


def telling(folder: Path) -> list[str]:
    """The files that have the text of a message of `singing`."""
    return sorted(each.name for each in folder.rglob("*") if each.is_file() and b"must never use" in each.read_bytes())


async def closed(s: Sidecar, conversation_id: str = "c1") -> None:
    request = api.CloseConversationRequest(conversation_id=conversation_id)
    await s.conversations.CloseConversation(request, timeout=PATIENCE_S, metadata=s.metadata)


async def archived(s: Sidecar, conversation_id: str = "c1", **fields: Any) -> api.ArchiveConversationsResponse:
    request = api.ArchiveConversationsRequest(conversation_id=conversation_id, **fields)
    answer = await s.conversations.ArchiveConversations(request, timeout=PATIENCE_S, metadata=s.metadata)
    return cast(api.ArchiveConversationsResponse, answer)


async def unarchived(s: Sidecar, conversation_id: str = "c1") -> Any:
    request = api.UnarchiveConversationRequest(conversation_id=conversation_id)
    answer = await s.conversations.UnarchiveConversation(request, timeout=PATIENCE_S, metadata=s.metadata)
    return answer.conversation


async def views(s: Sidecar, conversation_id: str = "c1") -> list[Any]:
    """The answers about a conversation, without the version and the time of its last event."""
    found = await s.conversations.GetConversation(api.GetConversationRequest(conversation_id=conversation_id))
    found.conversation.ClearField("event_version")
    found.conversation.ClearField("update_time")
    context = await s.chat(conversation_id).context()
    hits = (await searched(s, CANARY)).hits
    return [found.conversation, context, list(await s.chat(conversation_id).summaries()), list(hits)]


async def test_a_conversation_comes_back_from_its_archive_as_it_was(tmp_path):
    """The content is in the file alone meanwhile; every view, id, position and version is the same after it."""
    folder = tmp_path / "archive"
    async with sidecar(tmp_path, archiving(tmp_path, **WORDS)) as s:
        chat = await sung(s)
        await s.conversations.PinMessages(api.PinMessagesRequest(conversation_id="c1", numbers=[29]))
        await closed(s)
        before, events = await views(s), await events_of(s)

        counts = await archived(s)

        assert (counts.conversations, counts.messages) == (1, 30)
        (file,) = folder.iterdir()
        assert telling(tmp_path) == [file.name]
        assert file.stat().st_mode & 0o777 == 0o600
        shown = (await s.conversations.GetConversation(api.GetConversationRequest(conversation_id="c1"))).conversation
        assert (shown.archive_file, shown.closed, shown.title) == (file.name, True, f"On {CANARY}")
        assert dict(shown.settings.labels) == {"user": "ada"}
        assert list((await s.conversations.ListConversations(api.ListConversationsRequest())).conversations) == [shown]
        assert not (await searched(s, CANARY)).hits
        async with refused("FAILED_PRECONDITION", "CONVERSATION_ARCHIVED"):
            await chat.context()
        async with refused("FAILED_PRECONDITION", "CONVERSATION_ARCHIVED"):
            await chat.append(singing(31))

        await unarchived(s)

        assert not list(folder.iterdir())
        assert await views(s) == before
        assert (await events_of(s))[: len(events)] == events
        assert [e.type for e in await events_of(s)][len(events) :] == [
            "ConversationArchived",
            "TextPurged",
            "ConversationUnarchived",
            "TextPurged",
        ]
        await s.conversations.ReopenConversation(api.ReopenConversationRequest(conversation_id="c1"))
        repeated = await chat.append(singing(30))
        assert repeated.message_version == 30
