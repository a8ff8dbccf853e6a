"""LangGraph: a `pre_model_hook` that sends the window of abridged and leaves the thread's state as it is.

    hook = abridged_hook(Conversations(), ConversationSettings(context_length=8192, overhead_tokens=900))
    agent = create_react_agent(model, tools, prompt="...", pre_model_hook=hook, checkpointer=saver)
    agent.invoke({"messages": [HumanMessage("...", id="turn-1")]}, {"configurable": {"thread_id": "chat-1"}})

A graph of your own has it as a node before its model's, which then reads `llm_input_messages`. `invoke` calls it, and
`ainvoke` does so in a thread. The thread of the config names the conversation. Messages keep their ids, so a turn that
is repeated appends nothing twice; an answer is appended with what follows it. Messages that the window has unchanged
are the state's own. The prompt and tools stay with the agent: `overhead_tokens` is their cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AnyMessage, convert_to_messages, convert_to_openai_messages
from langchain_core.runnables import RunnableConfig

from abridged.client import Conversations
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.message_pb2 import Message, Role

BATCH = 512  # messages that one append takes


def abridged_hook(chats: Conversations, settings: ConversationSettings) -> Callable[..., dict[str, list[AnyMessage]]]:
    def pre_model_hook(state: dict[str, list[AnyMessage]], config: RunnableConfig) -> dict[str, list[AnyMessage]]:
        chat, said = config["configurable"]["thread_id"], state["messages"]
        for start in range(0, len(said), BATCH):
            chats.append(chat, map(_fields, said[start : start + BATCH]), settings=settings)
        window, own = chats.context(chat, wait_s=30), {message.id: message for message in said}
        return {"llm_input_messages": [_sent(entry.message, own) for entry in window.messages]}

    return pre_model_hook


def _fields(message: AnyMessage) -> dict[str, Any]:
    plain = convert_to_openai_messages(message)
    fields = {"id": message.id, "role": plain["role"], "content": message.text}
    calls = [{"id": call["id"], **call["function"]} for call in plain.get("tool_calls", ())]
    return {**fields, "tool_calls": calls, "tool_call_id": plain.get("tool_call_id", "")}


def _sent(message: Message, own: dict[str | None, AnyMessage]) -> Any:
    """The state's own message, or the text that stands in its place: a summary, the mark of a result."""
    if message.id in own and own[message.id].text == message.content:
        return own[message.id]
    role, call = Role.Name(message.role).removeprefix("ROLE_").lower(), message.tool_call_id or None
    return convert_to_messages([{"role": role, "content": message.content, "tool_call_id": call}])[0]
