"""OpenAI Agents SDK: a session whose items are the window of abridged.

    session = AbridgedSession("chat-1", AsyncConversations(), ConversationSettings(context_length=8192))
    await Runner.run(agent, "...", session=session, run_config=RunConfig(session_input_callback=resumed))

The session keeps texts, calls of function tools and their results; reasoning and what hosted tools did end with their
run. A run that is repeated because a crash cut it off goes on where it was: `resumed` neither appends nor sends its
question again. The instructions and tools stay with the agent: `overhead_tokens` of the settings is their cost.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from agents import Session, TResponseInputItem

from abridged.client import AsyncConversations, SidecarError
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.conversation_service_pb2 import ContextMessage
from abridged.v1.message_pb2 import Message, Role


class AbridgedSession(Session):
    def __init__(self, session_id: str, chats: AsyncConversations, settings: ConversationSettings) -> None:
        self.session_id, self._chats, self._settings = session_id, chats, settings

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        items = [_item(entry.message) for entry in await self._window()]
        return items if limit is None else items[max(len(items) - limit, 0) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        if kept := [_fields(item) for item in items if "role" in item or "function" in (item.get("type") or "")]:
            await self._chats.append(self.session_id, kept, settings=self._settings)

    async def pop_item(self) -> TResponseInputItem | None:
        *_, newest = [ContextMessage(), *await self._window()]
        if newest.number:
            await self._chats.rewind(self.session_id, newest.number - 1)
        return _item(newest.message) if newest.number else None

    async def clear_session(self) -> None:
        if await self._window():
            await self._chats.rewind(self.session_id, 0)

    async def _window(self) -> list[ContextMessage]:
        try:
            return list((await self._chats.context(self.session_id, wait_s=30)).messages)
        except SidecarError as error:
            if error.reason != "CONVERSATION_NOT_FOUND":
                raise
            return []


def resumed(history: list[TResponseInputItem], new: list[TResponseInputItem]) -> list[TResponseInputItem]:
    """The history and what is new to it: since the last answer, a question is asked once."""
    asked = [_fields(item) for item in takewhile(lambda item: item.get("role") != "assistant", reversed(history))]
    return history + [item for item in new if _fields(item) not in asked]


def _fields(item: Any) -> dict[str, Any]:
    said = item.get("content") or item.get("output") or ""
    text = said if isinstance(said, str) else "".join(part.get("text", "") for part in said)
    call = {"id": item.get("call_id"), "name": item.get("name"), "arguments": item.get("arguments")}
    calls, answered = [call] if "arguments" in item else [], item["call_id"] if "output" in item else ""
    role = "assistant" if calls else "tool" if answered else item.get("role", "").replace("developer", "system")
    return {"role": role, "content": text, "tool_calls": calls, "tool_call_id": answered}


def _item(message: Message) -> Any:
    if message.tool_call_id:
        return {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.content}
    for call in message.tool_calls:
        return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    return {"role": Role.Name(message.role).removeprefix("ROLE_").lower(), "content": message.content}
