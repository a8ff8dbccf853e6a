"""The client of abridged.

    from abridged.client import Conversations

    with Conversations() as chats:
        chats.append("chat-1", [{"role": "user", "content": "Good morning"}])
        window = chats.context("chat-1", rendering="openai").rendered_json

`Conversations` is for threads, `AsyncConversations` for an event loop; both make the same calls. The contract's own
messages and stubs are in `abridged.v1`.
"""

from abridged.client.aio import AsyncConversations
from abridged.client.blocking import Conversations
from abridged.client.calls import FORMS, HISTORY_TOOLS, RENDERINGS, SEARCH_MODES
from abridged.client.errors import Patience, SidecarError, reason
from abridged.client.local import start_local

__all__ = [
    "FORMS",
    "HISTORY_TOOLS",
    "RENDERINGS",
    "SEARCH_MODES",
    "AsyncConversations",
    "Conversations",
    "Patience",
    "SidecarError",
    "reason",
    "start_local",
]
