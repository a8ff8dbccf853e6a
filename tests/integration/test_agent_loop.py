"""An agent that reads back the messages that its summary left out: the loop of examples/, with a scripted model."""

from __future__ import annotations

import json
from typing import Any

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from examples.agent_loop import carried_out, turn
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Chat, Sidecar, said, sidecar

SECRET = "The badge of the north door is KX-4471."

SEARCH = ("search_history", {"query": "north door badge"})


class Model:
    """Asks for the calls that it is given, then repeats the results."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self._calls = list(calls)
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        if not self._calls:
            return {"role": "assistant", "content": f"I found: {body['messages'][-1]['content']}"}
        name, arguments = self._calls.pop(0)
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call{len(self.bodies)}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


async def summarized(s: Sidecar) -> Chat:
    """A chat in whose summary the second message is condensed."""
    chat = s.chat(policy={"min_range_tokens": 1, "preserve_recent": 2, "trigger_token_ratio": 1, "min_messages": 1_000})
    await chat.append(said(1, tokens=120), said(2, SECRET, tokens=120), *(said(n, tokens=120) for n in range(3, 10)))
    await chat.summarize()
    return chat


async def test_an_agent_expands_what_its_summary_left_out(tmp_path):
    """The agent's model names the numbers; the originals come back as the result of its call."""
    async with sidecar(tmp_path) as s:
        chat, model = await summarized(s), Model(("expand_history", {"first": 1, "last": 2}))

        answer = await turn(s.conversations, chat.id, "t1", "What is on the badge of the north door?", model)

        assert SECRET not in json.dumps(model.bodies[0]["messages"])
        assert [tool["function"]["name"] for tool in model.bodies[0]["tools"]] == ["expand_history", "search_history"]
        assert f"2 assistant: {SECRET}" in answer
        assert [m["role"] for m in model.bodies[1]["messages"][-2:]] == ["assistant", "tool"]


async def test_an_agent_searches_for_the_number_that_it_expands(tmp_path):
    """Passages come with numbers."""
    async with sidecar(tmp_path, WORDS) as s:
        chat, model = await summarized(s), Model(SEARCH, ("expand_history", {"first": 2, "last": 2}))
        await searched(s, "badge", conversation_id=chat.id)

        answer = await turn(s.conversations, chat.id, "t1", "What is on the door's badge?", model)

        assert f"2 assistant: {SECRET}" in model.bodies[1]["messages"][-1]["content"]
        assert SECRET in answer


async def test_without_an_index_the_model_reads_why_nothing_was_found(tmp_path):
    """The model can still expand numbers."""
    async with sidecar(tmp_path) as s:
        chat, model = await summarized(s), Model(SEARCH)
        assert "error: " in await turn(s.conversations, chat.id, "t1", "What is on the door's badge?", model)


async def test_an_agent_with_tools_keeps_its_prompt_stable(tmp_path):
    """The definitions and all messages of one request are the start of the next one."""
    async with sidecar(tmp_path) as s:
        chat, model = await summarized(s), Model(("expand_history", {"first": 2, "last": 2}))

        await turn(s.conversations, chat.id, "t1", "What is on the badge?", model)

        one, other = model.bodies
        assert one["tools"] == other["tools"]
        assert other["messages"][: len(one["messages"])] == one["messages"]


async def test_a_call_that_is_wrong_is_answered_with_what_is_wrong(tmp_path):
    """The model may try again; the turn goes on."""
    async with sidecar(tmp_path) as s:
        chat = await summarized(s)
        for name, arguments in (
            ("expand_history", "not json"),
            ("expand_history", '{"first": 1}'),
            ("expand_history", '{"first": 30, "last": 99}'),
            ("other", "{}"),
        ):
            wrong = message_pb2.ToolCall(id="x", name=name, arguments=arguments)
            assert (await carried_out(s.conversations, chat.id, wrong)).startswith("error: ")


async def test_a_long_range_comes_in_parts(tmp_path):
    """The originals that are read back must fit beside the window."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)
        await chat.append(*(said(n, tokens=400) for n in range(1, 10)))
        call = message_pb2.ToolCall(id="x", name="expand_history", arguments='{"first": 1, "last": 9}')

        found = await carried_out(s.conversations, chat.id, call)

        assert found.splitlines()[-1] == "[More follows from number 3 on.]"


async def test_tools_come_in_the_form_of_the_rendering_and_only_with_one(tmp_path):
    """Anthropic's API takes its schema under another name."""
    async with sidecar(tmp_path) as s:
        chat = await summarized(s)
        tools: dict[str, Any] = {"with_tools": [api.HISTORY_TOOL_EXPAND]}
        forms = {
            rendering: json.loads((await chat.context(rendering=rendering, **tools)).tools_json)
            for rendering in (api.RENDERING_OPENAI, api.RENDERING_OLLAMA, api.RENDERING_ANTHROPIC)
        }

        assert [list(tool) for tool in forms[api.RENDERING_ANTHROPIC]] == [["name", "description", "input_schema"]]
        assert forms[api.RENDERING_OPENAI] == forms[api.RENDERING_OLLAMA]
        assert (
            forms[api.RENDERING_OPENAI][0]["function"]["parameters"]
            == forms[api.RENDERING_ANTHROPIC][0]["input_schema"]
        )
        assert (await chat.context(**tools)).tools_json == ""
        assert (await chat.context(rendering=api.RENDERING_OPENAI)).tools_json == ""
