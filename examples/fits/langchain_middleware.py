"""LangChain: every model call of an agent gets the window of abridged in place of the thread's whole history.

    fit = AbridgedMiddleware(AsyncConversations(), ConversationSettings(context_length=8192, overhead_tokens=900))
    agent = create_agent(model, tools, system_prompt="...", middleware=[fit], checkpointer=saver)
    await agent.ainvoke({"messages": [HumanMessage("...", id="turn-1")]}, {"configurable": {"thread_id": "chat-1"}})

The thread names the conversation. Messages keep their ids, so a turn that is repeated appends nothing twice; an answer
is appended with what follows it. Messages that the window has unchanged are the thread's own, with all that its
provider wants back. The agent's prompt and tools stay with the agent: `overhead_tokens` is their cost.
"""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import AnyMessage, convert_to_messages, convert_to_openai_messages
from langgraph.config import get_config

from abridged.client import AsyncConversations
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.message_pb2 import Message, Role

BATCH = 512  # messages that one append takes


class AbridgedMiddleware(AgentMiddleware):
    def __init__(self, chats: AsyncConversations, settings: ConversationSettings) -> None:
        self._chats, self._settings = chats, settings

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        chat, said = get_config()["configurable"]["thread_id"], request.messages
        for start in range(0, len(said), BATCH):
            await self._chats.append(chat, map(_fields, said[start : start + BATCH]), settings=self._settings)
        window, own = await self._chats.context(chat, wait_s=30), {message.id: message for message in said}
        return await handler(request.override(messages=[_sent(entry.message, own) for entry in window.messages]))


def _fields(message: AnyMessage) -> dict[str, Any]:
    plain = convert_to_openai_messages(message)
    fields = {"id": message.id, "role": plain["role"], "content": message.text}
    calls = [{"id": call["id"], **call["function"]} for call in plain.get("tool_calls", ())]
    return {**fields, "tool_calls": calls, "tool_call_id": plain.get("tool_call_id", "")}


def _sent(message: Message, own: dict[str | None, AnyMessage]) -> Any:
    """The thread's own message, or the text that stands in its place: a summary, the mark of a result."""
    if message.id in own and own[message.id].text == message.content:
        return own[message.id]
    role, call = Role.Name(message.role).removeprefix("ROLE_").lower(), message.tool_call_id or None
    return convert_to_messages([{"role": role, "content": message.content, "tool_call_id": call}])[0]
