"""Each framework runs for real, with a stand-in for its model, beside a sidecar of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages
from langchain_core.tools import tool
from langchain_middleware import AbridgedMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from langgraph_hook import abridged_hook
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from openai_agents_session import AbridgedSession, resumed

from abridged.client import AsyncConversations, Conversations, start_local
from abridged.v1.conversation_pb2 import ConversationSettings

PROMPT = "You answer for a warehouse. Name the dock, and nothing else."
SETTINGS = ConversationSettings(context_length=1024, overhead_tokens=40)
TURNS = 24
CRASHES = (7, 20)


class Said(NamedTuple):
    """A message in no framework's form. `call` is the id of the call that it makes, or that it answers."""

    role: str
    text: str
    call: str = ""


class Crash(Exception):
    """Ends a turn between its append and its answer."""


Replies = deque[Said | Crash]


def dock(order: int) -> str:
    """The dock of an order."""
    return f"Order {order} is at dock D-{order}. {'It has been weighed and sealed. ' * 2}"


def turn(number: int) -> list[Said]:
    """The messages of a turn: every fourth looks the order up."""
    asked = Said("user", f"Where does order {number} go? {'It has to be there by noon. ' * 4}")
    answer = Said("assistant", f"It goes to dock D-{number}. {'Please have the papers ready. ' * 4}")
    call = f"call-{number}"
    looked_up = [Said("assistant", "", call), Said("tool", dock(number), call)] if number % 4 == 0 else []
    return [asked, *looked_up, answer]


class ChatModel(GenericFakeChatModel):
    """LangChain's own fake, which also keeps what it was sent."""

    seen: list[list[Said]]

    def bind_tools(self, *_: Any, **__: Any) -> ChatModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.seen.append([_said(message) for message in messages])
        return super()._generate(messages, *args, **kwargs)


def _said(message: BaseMessage) -> Said:
    plain = convert_to_openai_messages(message)
    calls = [call["id"] for call in plain.get("tool_calls", ())]
    return Said(plain["role"], message.text, *calls or [plain.get("tool_call_id", "")])


def _ai_messages(replies: Replies) -> Iterator[AIMessage]:
    return iter(lambda: _ai_message(replies.popleft()), None)


def _ai_message(reply: Said | Crash) -> AIMessage:
    if isinstance(reply, Crash):
        raise reply
    order = reply.call.removeprefix("call-")
    calls = [{"name": "dock", "args": {"order": int(order)}, "id": reply.call}] if order else []
    return AIMessage(reply.text, tool_calls=calls)


class LangChain:
    def __init__(self, chat: str, chats: AsyncConversations) -> None:
        self.replies: Replies = deque()
        self.model = ChatModel(messages=_ai_messages(self.replies), seen=[])
        self.seen = self.model.seen
        self.thread: Any = {"configurable": {"thread_id": chat}}
        self.agent = self.agent_of(chats)

    def agent_of(self, chats: AsyncConversations) -> Any:
        fit = AbridgedMiddleware(chats, SETTINGS)
        return create_agent(
            self.model, [tool(dock)], system_prompt=PROMPT, middleware=[fit], checkpointer=InMemorySaver()
        )

    async def take(self, number: int, question: str) -> None:
        await self.agent.ainvoke({"messages": [HumanMessage(question, id=f"turn-{number}")]}, self.thread)


class LangGraph(LangChain):
    def agent_of(self, chats: AsyncConversations) -> Any:
        hook = abridged_hook(Conversations(chats.address), SETTINGS)
        return create_react_agent(
            self.model, [tool(dock)], prompt=PROMPT, pre_model_hook=hook, checkpointer=InMemorySaver()
        )


class StubModel(Model):
    """A model of the Agents SDK that replies by a script, and keeps what it was sent."""

    def __init__(self, seen: list[list[Said]], replies: Replies) -> None:
        self.seen, self.replies = seen, replies

    async def get_response(self, *_: Any, **call: Any) -> ModelResponse:
        self.seen.append([Said("system", call["system_instructions"]), *map(_said_by, call["input"])])
        reply = self.replies.popleft()
        if isinstance(reply, Crash):
            raise reply
        output: Any = (
            ResponseFunctionToolCall(
                type="function_call",
                call_id=reply.call,
                name="dock",
                arguments=f'{{"order": {reply.call.removeprefix("call-")}}}',
            )
            if reply.call
            else ResponseOutputMessage(
                id=f"msg_{len(self.seen)}",
                type="message",
                role="assistant",
                status="completed",
                content=[ResponseOutputText(type="output_text", text=reply.text, annotations=[])],
            )
        )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield


def _said_by(item: Any) -> Said:
    role = {"function_call": "assistant", "function_call_output": "tool"}.get(item.get("type")) or item["role"]
    return Said(role, item.get("content") or item.get("output") or "", item.get("call_id", ""))


class OpenAIAgents:
    def __init__(self, chat: str, chats: AsyncConversations) -> None:
        self.seen: list[list[Said]] = []
        self.replies: Replies = deque()
        model = StubModel(self.seen, self.replies)
        self.agent = Agent(name="warehouse", instructions=PROMPT, model=model, tools=[function_tool(dock)])
        self.session = AbridgedSession(chat, chats, SETTINGS)

    async def take(self, _: int, question: str) -> None:
        config = RunConfig(session_input_callback=resumed, tracing_disabled=True)
        await Runner.run(self.agent, question, session=self.session, run_config=config)


Framework = type[LangChain] | type[OpenAIAgents]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with start_local() as address:
        yield address


@pytest.mark.parametrize("framework", [LangChain, LangGraph, OpenAIAgents])
def test_a_model_is_sent_the_window(framework: Framework, address: str) -> None:
    """The model gets the window in 24 turns, two of which a crash cuts off: before anything was replied, and after a
    tool was called."""
    asyncio.run(_play(framework, address))


async def _play(framework: Framework, address: str) -> None:
    async with AsyncConversations(address) as chats:
        fit = framework(framework.__name__, chats)
        for number in range(1, TURNS + 1):
            asked, *rest = turn(number)
            replies = [reply for reply in rest if reply.role == "assistant"]
            if number in CRASHES:
                fit.replies.extend([*replies[:-1], Crash()])
                with pytest.raises(Crash):
                    await fit.take(number, asked.text)
                del replies[:-1]
            fit.replies.extend(replies)
            await fit.take(number, asked.text)

        log = [entry.message.content for entry in (await chats.context(framework.__name__, original=True)).messages]
        costs = [await chats.count_tokens("", [text for message in seen for text in message]) for seen in fit.seen]

    said = [message for number in range(1, TURNS + 1) for message in turn(number)]
    asked_for = [said.index(turn(number)[-1]) for number in CRASHES]
    asked_for += [place for place, reply in enumerate(said) if reply.role == "assistant"]
    summaries = [_summary(seen, said[:place]) for seen, place in zip(fit.seen, sorted(asked_for), strict=True)]
    assert summaries[-1]
    assert max(cost.total_tokens for cost in costs) <= SETTINGS.context_length
    assert log == [message.text for message in said[: len(log)]]
    assert len(log) >= max(asked_for)


def _summary(seen: list[Said], said: list[Said]) -> str:
    """The summary that a model saw between its prompt and the newest of what was said, if it saw less than all."""
    prompt, *window = seen
    assert prompt == Said("system", PROMPT)
    summary = window.pop(0).text if window[0].role == "system" else ""
    assert window == said[-len(window) :]
    assert window[0].role != "tool"
    assert ("<conversation_summary>" in summary) == (len(window) < len(said))
    return summary


def test_a_session_takes_items_back(address: str) -> None:
    """The last one, and all of them; what was cleared may be said again."""
    asyncio.run(_take_back(address))


async def _take_back(address: str) -> None:
    items: list[Any] = [{"role": said.role, "content": said.text} for said in turn(1)]
    question, answer = items
    async with AsyncConversations(address) as chats:
        session = AbridgedSession("taken-back", chats, SETTINGS)
        assert await session.get_items() == []
        await session.add_items(items)
        assert await session.get_items(limit=1) == [answer]
        assert await session.pop_item() == answer
        assert await session.get_items() == [question]
        await session.clear_session()
        assert await session.pop_item() is None
        await session.add_items([question])
        assert await session.get_items() == [question]
