"""One turn of an agent whose model reads back what was condensed: expand_history and search_history, carried out here.

Run it beside a sidecar, `abridged serve`, to see both tools at work without a model:

    python examples/agent_loop.py [HOST:PORT]

`ask` is your model's call: it takes the body of an OpenAI-style request and returns the assistant's message. Offer the
tools from the first turn on and always the same ones, since they stand at the start of the prompt.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.duration_pb2 import Duration

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from abridged.v1.summary_pb2 import MessageRange

if TYPE_CHECKING:
    from abridged.v1.conversation_service_pb2_grpc import ConversationServiceAsyncStub

TOOLS = (api.HISTORY_TOOL_EXPAND, api.HISTORY_TOOL_SEARCH)
RESULT_TOKENS_MAX = 1_000
"""Tokens that a call may put back into the window that a summary has just made room in."""

CALLS_MAX = 8
"""Model calls of one turn."""

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def turn(chats: ConversationServiceAsyncStub, conversation_id: str, turn_id: str, question: str, ask: Ask) -> str:
    """Append the question, let the model call its tools as often as it needs to, and return its answer."""

    async def append(message: message_pb2.Message) -> None:
        await chats.AppendMessages(api.AppendMessagesRequest(conversation_id=conversation_id, messages=[message]))

    await append(message_pb2.Message(id=turn_id, role=message_pb2.ROLE_USER, content=question))
    for number in range(CALLS_MAX):
        window = await chats.GetContext(
            api.GetContextRequest(
                conversation_id=conversation_id,
                rendering=api.RENDERING_OPENAI,
                with_tools=TOOLS,
                wait=Duration(seconds=30),
            )
        )
        said = await ask({**json.loads(window.rendered_json), "tools": json.loads(window.tools_json)})
        calls = [
            message_pb2.ToolCall(id=c["id"], name=c["function"]["name"], arguments=c["function"]["arguments"])
            for c in said.get("tool_calls") or ()
        ]
        answer = said.get("content") or ""
        step = f"{turn_id}-{number}"
        await append(message_pb2.Message(id=step, role=message_pb2.ROLE_ASSISTANT, content=answer, tool_calls=calls))
        if not calls:
            return answer
        for place, call in enumerate(calls):
            found = await carried_out(chats, conversation_id, call)
            await append(
                message_pb2.Message(
                    id=f"{step}-{place}", role=message_pb2.ROLE_TOOL, content=found, tool_call_id=call.id
                )
            )
    return ""


async def carried_out(chats: ConversationServiceAsyncStub, conversation_id: str, call: message_pb2.ToolCall) -> str:
    """The result of a history tool. Mistakes of the model are results, too: it may try again."""
    try:
        arguments = json.loads(call.arguments)
        if call.name == "expand_history":
            return await expanded(chats, conversation_id, int(arguments["first"]), int(arguments["last"]))
        if call.name == "search_history":
            return await searched(chats, conversation_id, str(arguments["query"]))
    except (ValueError, KeyError, TypeError):
        return f"error: {call.arguments} are no arguments of {call.name}"
    except grpc.aio.AioRpcError as error:
        return f"error: {error.details()}"
    return f"error: there is no tool {call.name}"


async def expanded(chats: ConversationServiceAsyncStub, conversation_id: str, first: int, last: int) -> str:
    """The messages with these numbers, as far as they fit."""
    page = await chats.ExpandSummary(
        api.ExpandSummaryRequest(
            conversation_id=conversation_id,
            messages=MessageRange(first=first, last=last),
            max_tokens=RESULT_TOKENS_MAX,
        )
    )
    lines = [
        f"{m.number} {message_pb2.Role.Name(m.message.role)[5:].lower()}: {m.message.content}" for m in page.messages
    ]
    if page.next_page_token:
        lines.append(f"[More follows from number {page.messages[-1].number + 1} on.]")
    return "\n".join(lines)


async def searched(chats: ConversationServiceAsyncStub, conversation_id: str, query: str) -> str:
    """Passages of the messages that fit, with their numbers, the best exchange first."""
    response = await chats.SearchHistory(
        api.SearchHistoryRequest(
            conversation_id=conversation_id,
            query=query,
            kinds=[api.SEARCH_KIND_MESSAGE],
            max_tokens=RESULT_TOKENS_MAX,
        )
    )
    passages = (passage for hit in response.hits for passage in hit.passages)
    lines = [f"{p.number} {message_pb2.Role.Name(p.role)[5:].lower()}: {p.text}" for p in passages]
    return "\n".join(lines) or "Nothing was found."


async def scripted(body: dict[str, Any]) -> dict[str, Any]:
    """Stand in for your model: search, expand the messages that it was asked about, and answer with what came back."""
    said = [message for message in body["messages"] if message["role"] != "system"]
    results = [message["content"] for message in said if message["role"] == "tool"]
    asked = (("search_history", {"query": "badge north door"}), ("expand_history", {"first": 1, "last": 2}))
    if len(results) == len(asked):
        return {"role": "assistant", "content": f"I read back:\n{results[-1]}"}
    name, arguments = asked[len(results)]
    print(f"the model calls {name} {json.dumps(arguments)}")
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": uuid.uuid4().hex, "function": function}]}


async def main(address: str) -> None:
    """Append a chat, take a turn in it and print the answer."""
    conversation_id = f"agent-{uuid.uuid4().hex[:8]}"
    chat = ("What opens the north door?", "The badge of the north door is KX-4471.", "Thank you, that is all.")
    roles = (message_pb2.ROLE_USER, message_pb2.ROLE_ASSISTANT, message_pb2.ROLE_USER)
    async with grpc.aio.insecure_channel(address) as channel:
        chats: ConversationServiceAsyncStub = ConversationServiceStub(channel)
        messages = [
            message_pb2.Message(id=f"m{n}", role=role, content=text)
            for n, (role, text) in enumerate(zip(roles, chat, strict=True), 1)
        ]
        await chats.AppendMessages(api.AppendMessagesRequest(conversation_id=conversation_id, messages=messages))
        answer = await turn(chats, conversation_id, "t1", "Which badge was that?", scripted)
        print(f"the model answers: {answer}")
        print(f"all of it: abridged context {conversation_id}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7420"))
