"""Messages in the JSON of chat APIs, in and out: GetContext renders again the `rendered` of AppendMessages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from abridged.service.bootstrap.backends import stored_backend
from abridged.service.cli.log_verification import verified
from abridged.service.config.settings import LogSettings
from abridged.v1 import conversation_pb2, message_pb2
from abridged.v1 import conversation_service_pb2 as api
from tests.support.refusal import refused
from tests.support.searching import WORDS, numbers, searched
from tests.support.sidecar import Chat, sidecar

OPENAI, ANTHROPIC = api.RENDERING_OPENAI, api.RENDERING_ANTHROPIC
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def rendered(form: Any, value: Any) -> api.RenderedMessages:
    return api.RenderedMessages(rendering=form, json=value if isinstance(value, str) else json.dumps(value))


async def append(chat: Chat, form: int, value: Any, **fields: Any) -> Any:
    request = api.AppendMessagesRequest(conversation_id=chat.id, rendered=rendered(form, value), **fields)
    return await chat.sidecar.conversations.AppendMessages(request, metadata=chat.sidecar.metadata)


async def read_back(chat: Chat, form: int, *, original: bool = True, **options: Any) -> Any:
    view = api.CONTEXT_VIEW_ORIGINAL if original else api.CONTEXT_VIEW_UNSPECIFIED
    return json.loads((await chat.context(rendering=form, view=view, **options)).rendered_json)


def call(id_: str, name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


OPENAI_CHATS: dict[str, list[dict[str, Any]]] = {
    "plain": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello \U0001f600\u2028\t"}],
    "developer": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "x", "name": "Ann B"}],
    "parts": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "One"},
                {"type": "image_url", "image_url": {"url": "https://x.example/a", "detail": "high"}},
                {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
            ],
        }
    ],
    "calls": [
        {"role": "user", "content": "Look"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I should look.",
            "tool_calls": [call("a", arguments=' {"q": 1.0}'), call("b", "see", "not json")],
        },
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "B"}, {"type": "text", "text": ""}]},
        {"role": "tool", "tool_call_id": "a", "content": "A", "name": "look"},
        {"role": "assistant", "content": "", "refusal": "No.", "annotations": [], "audio": {"id": "au1"}},
        {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "x"}]},
    ],
    "custom and deprecated": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "a.txt"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "done"},
    ],
}

ANTHROPIC_CHATS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]},
    "consecutive": {"messages": [{"role": "user", "content": "Hi"}, {"role": "user", "content": "there"}]},
    "system": {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    },
    "tools": {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Look"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "eA=="},
                    {"type": "text", "text": "First"},
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": [1.5, None, 10**18], "x": {}}},
                    {"type": "text", "text": "then"},
                    {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [
                            {"type": "text", "text": "found"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                            },
                        ],
                        "cache_control": {"type": "ephemeral"},
                    },
                    {"type": "text", "text": "Go on."},
                    {
                        "type": "document",
                        "title": "D",
                        "source": {"type": "text", "media_type": "text/plain", "data": "ü"},
                    },
                ],
            },
            {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "web", "input": {}}]},
        ],
    },
}


@pytest.mark.parametrize("name", OPENAI_CHATS)
async def test_a_chat_of_openai_comes_back_as_it_went_in(tmp_path, name):
    """Order of parts, nulls and unknown members included; in the window too."""
    async with sidecar(tmp_path) as s:
        chat, sent = s.chat(), OPENAI_CHATS[name]
        await append(chat, OPENAI, sent)

        assert await read_back(chat, OPENAI) == {"messages": sent}
        assert await read_back(chat, OPENAI, original=False) == {"messages": sent}


@pytest.mark.parametrize("name", ANTHROPIC_CHATS)
async def test_a_chat_of_anthropic_comes_back_as_it_went_in(tmp_path, name):
    """The system prompt comes back, too, and is no message."""
    async with sidecar(tmp_path) as s:
        chat, sent = s.chat(), ANTHROPIC_CHATS[name]
        await append(chat, ANTHROPIC, sent)

        assert await read_back(chat, ANTHROPIC) == sent
        assert await read_back(chat, ANTHROPIC, original=False) == sent


async def test_another_api_gets_what_both_have(tmp_path):
    """Text, calls, results and images cross; parts that only one API knows do not."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await append(chat, ANTHROPIC, ANTHROPIC_CHATS["tools"])

        messages = (await read_back(chat, OPENAI))["messages"]

        assert messages[0] == {"role": "system", "content": "Be brief."}
        assert messages[2]["content"] == "First\nthen"
        assert [c["function"]["name"] for c in messages[2]["tool_calls"]] == ["look", "look"]
        assert [m["role"] for m in messages[3:6]] == ["tool", "tool", "user"]
        assert "thinking" not in json.dumps(messages)


async def test_what_a_search_result_says_is_found_once_it_has_left(tmp_path):
    """The texts of blocks are in the ledger, in the receipt and in the search, and the window has what it had."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = s.chat()
        for n in range(20):
            text = f"Invoice INV-{7000 + n} of Ann is open. " * 8
            found = {"type": "search_result", "source": "kb", "title": "t", "content": [{"type": "text", "text": text}]}
            asked = {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{n}", "name": "f", "input": {}}]}
            result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": [found]}
            sent = [{"role": "user", "content": "Look"}, asked, {"role": "user", "content": [result]}]
            await append(chat, ANTHROPIC, sent, settings=chat.settings)
        await s.idle()

        context = await chat.context(with_ledger=True)
        left = {entry.text for entry in context.ledger}
        assert "INV-7003" in left
        assert numbers(await searched(s, "INV-7003", conversation_id=chat.id)) == [12]
        assert (await read_back(chat, ANTHROPIC, original=False))["messages"][-1]["content"] == [result]


async def test_a_system_prompt_changes_without_being_a_message(tmp_path):
    """The newest is sent, counts as overhead, and has no number."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await append(chat, ANTHROPIC, {"system": "Monday.", "messages": [{"role": "user", "content": "a"}]})
        await append(chat, ANTHROPIC, {"system": "Tuesday.", "messages": [{"role": "user", "content": "b"}]})
        after = await append(chat, ANTHROPIC, {"role": "user", "content": "c"})

        assert after.message_version == 3
        assert (await read_back(chat, ANTHROPIC, original=False))["system"] == "Tuesday."
        answer = await chat.context()
        assert answer.system_prompt.content == "Tuesday."
        assert answer.usage.overhead_tokens > 0
        assert [m.number for m in answer.messages] == [1, 2, 3]

        listed = await s.conversations.ListConversations(api.ListConversationsRequest(), metadata=s.metadata)
        assert not listed.conversations[0].settings.HasField("system_prompt")
        assert listed.conversations[0].usage == (await chat.state()).usage
        await chat.update(["system_prompt"], system_prompt=conversation_pb2.SystemPrompt(content="Wednesday."))
        assert (await read_back(chat, OPENAI))["messages"][0] == {"role": "system", "content": "Wednesday."}
        await append(chat, ANTHROPIC, {"system": "", "messages": [{"role": "user", "content": "d"}]})
        assert "system" not in await read_back(chat, ANTHROPIC)
        assert (await chat.context()).usage.overhead_tokens == 0


async def test_a_repeated_request_changes_nothing(tmp_path):
    """Ids come from the request id, as for messages in the contract's own form."""
    async with sidecar(tmp_path) as s:
        chat, sent = s.chat(), ANTHROPIC_CHATS["tools"]
        first = await append(chat, ANTHROPIC, sent, request_id="r1")
        again = await append(chat, ANTHROPIC, sent, request_id="r1")

        assert all(m.already_appended for m in again.messages)
        assert [m.id for m in first.messages] == [m.id for m in again.messages]
        assert await read_back(chat, ANTHROPIC) == sent


async def test_reasoning_is_counted(tmp_path):
    """The reasoning is sent again, so it fills the window."""
    async with sidecar(tmp_path) as s:
        bare, thinking = s.chat("bare"), s.chat("thinking")
        await append(bare, OPENAI, {"role": "assistant", "content": "Yes."})
        await append(thinking, OPENAI, {"role": "assistant", "content": "Yes.", "reasoning_content": "why " * 100})

        cost = [(await chat.context()).usage.window_tokens for chat in (bare, thinking)]
        assert cost[1] > cost[0] + 50


async def test_a_text_that_is_cut_keeps_what_stands_beside_it(tmp_path):
    """The one text of a message may be shortened; its marks stay."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        result = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "word " * 2_000}
        asked = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
        first = {"role": "user", "content": "Go"}
        await append(chat, ANTHROPIC, [first, asked, {"role": "user", "content": [result]}])

        found = await read_back(chat, ANTHROPIC, original=False, clip=True, max_tokens=300)

        (cut,) = found["messages"][2]["content"]
        assert cut["is_error"] is True
        assert "characters left out" in cut["content"]
        assert len(cut["content"]) < 5_000


async def test_no_rendering_has_more_marks_than_the_api_takes(tmp_path):
    """A caller that marks each newest message would be refused at the fifth; with cache_marks, ours is the only one."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
        unmarked = {"type": "text", "text": "y", "cache_control": None}
        turns = [{"role": role, "content": [marked, unmarked]} for _ in range(4) for role in ("user", "assistant")]
        await append(chat, ANTHROPIC, {"system": [marked], "messages": turns})

        found = await read_back(chat, ANTHROPIC)
        assert "cache_control" not in found["system"][0]
        assert ["cache_control" in m["content"][0] for m in found["messages"]] == [False] * 4 + [True] * 4
        await chat.context(rendering=ANTHROPIC, cache_marks=True)
        own = await read_back(chat, ANTHROPIC, original=False, cache_marks=True)
        assert json.dumps(own).count("ephemeral") == 1


@pytest.mark.parametrize(
    ("form", "text", "where"),
    [
        (OPENAI, "{", "is not JSON"),
        (OPENAI, "[" * 10_000 + "]" * 10_000, "too deep"),
        (OPENAI, '{"role": "user", "content": NaN}', "NaN"),
        (OPENAI, '"hello"', "must be a list"),
        (OPENAI, "[1]", "messages[0] must be an object"),
        (OPENAI, '[{"role": "user", "content": "a"}, {"content": "b"}]', "messages[1].role"),
        (OPENAI, '{"role": "model", "content": "b"}', "messages[0].role"),
        (OPENAI, '{"role": "user", "content": 5}', "messages[0].content"),
        (OPENAI, '{"role": "user", "content": "\\ud800"}', "surrogate"),
        (OPENAI, '{"role": "tool", "content": "b"}', "messages[0].tool_call_id"),
        (OPENAI, '{"role": "user", "content": "", "tool_calls": [{}]}', "messages[0].tool_calls"),
        (OPENAI, '{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}', "Anthropic"),
        (OPENAI, '{"model": "m", "messages": []}', "model"),
        (OPENAI, '{"messages": [], "\\ud800": 1}', "ud800"),
        (OPENAI, json.dumps({"messages": [], "k" * 16_000: 1}), "kkk"),
        (
            OPENAI,
            '{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x,\\ud800"}}]}',
            "half",
        ),
        (OPENAI, '{"role": "user", "content": "x", "e": {"type": "tool_use", "input": {"$from": []}}}', "$from"),
        (OPENAI, '{"role": "user", "content": "x", "y": {"$from": ["content"]}}', "$from"),
        (ANTHROPIC, '{"role": "system", "content": "x"}', "messages[0].role"),
        (ANTHROPIC, '{"role": "user", "content": [{"type": "image_url"}]}', "OpenAI"),
        (ANTHROPIC, '{"role": "user", "content": [{"text": "x"}]}', "messages[0].content[0]"),
        (ANTHROPIC, '{"system": 4, "messages": []}', "system"),
        (api.RENDERING_OLLAMA, '{"role": "user", "content": "x"}', "rendered.rendering"),
    ],
)
async def test_json_of_no_form_is_refused_with_its_place(tmp_path, form, text, where):
    """The refusal writes nothing of the request."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as found:
            await append(chat, form, text)

        assert where in str(found)
        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await chat.context()


@pytest.mark.parametrize(
    "extra",
    [
        "{",
        "[]",
        '{"api": "openai"}',
        '{"api": "other", "body": {}}',
        '{"api": "openai", "body": {"role": "system", "content": {"$from": ["content"]}}}',
        '{"api": "openai", "body": {"role": "user", "content": "another text"}}',
        '{"api": "openai", "body": {"role": "user", "content": {"$from": ["content", 0, 99]}}}',
        '{"api": "openai", "body": {"role": "user", "content": {"$from": ["uri", 0]}}}',
        '{"api": "openai", "body": {"role": "user", "content": {"$from": []}}}',
        '{"api": "openai", "body": [{"role": "user", "content": {"$from": ["content"]}}]}',
        '{"api": "openai", "body": {"messages": [{"role": "user", "content": {"$from": ["content"]}}]}}',
        '{"api": "openai", "body": {"role": "user", "name": "admin", "content": {"$from": ["content"]}}}',
        '{"api": "anthropic", "body": {"$from": ["content"]}, "members": {"role": "assistant", "content": "Evil"}}',
    ],
)
async def test_extra_json_that_says_another_message_is_refused(tmp_path, extra):
    """A log is never led to send a text that its fields do not have."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        message = message_pb2.Message(role=message_pb2.ROLE_USER, content="Hi", extra_json=extra)
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as found:
            await chat.append(message)

        assert "messages[0].extra_json" in str(found)


@pytest.mark.parametrize(
    "extra",
    [
        "garbage",
        "[" * 500,
        '{"api": "openai", "body": {"role": "user", "content": {"$from": ["content"]}}}',
        (
            '{"api": "anthropic", "body": [{"type": "text", "text": {"$from": ["content"]}}, '
            '{"type": "text", "text": "x"}]}'
        ),
    ],
)
async def test_a_system_prompt_that_says_another_is_refused(tmp_path, extra):
    """An append refuses it, and so does an update."""
    async with sidecar(tmp_path) as s:
        prompt = conversation_pb2.SystemPrompt(content="be", extra_json=extra)
        chat = s.chat(system_prompt=prompt)
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as found:
            await chat.append(message_pb2.Message(role=message_pb2.ROLE_USER, content="Hi"))
        assert "system_prompt.extra_json" in str(found)
        other = s.chat("other")
        await other.append(message_pb2.Message(role=message_pb2.ROLE_USER, content="Hi"))
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await other.update(["system_prompt"], system_prompt=prompt)


async def test_an_empty_system_prompt_is_none(tmp_path):
    """The first append already leaves it out; the log is whole."""
    async with sidecar(tmp_path) as s:
        for n, system in enumerate(("", [], [{"type": "text", "text": ""}])):
            chat = s.chat(f"c{n}")
            await append(chat, ANTHROPIC, {"system": system, "messages": [{"role": "user", "content": "x"}]})
            assert (await chat.context()).usage.overhead_tokens == 0
    assert "events in" in verified(
        stored_backend(LogSettings(path=tmp_path / "abridged.db")), 10, lambda _done, _of: None
    )


async def test_a_system_prompt_is_as_short_as_the_contract_says(tmp_path):
    """However it comes."""
    async with sidecar(tmp_path, {"server.message_bytes_max": 1_000_000}) as s:
        body = {"system": "x" * 300_000, "messages": [{"role": "user", "content": "x"}]}
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await append(s.chat(), ANTHROPIC, body)


async def test_brackets_in_texts_are_no_depth(tmp_path):
    """Colours of a terminal and code are ordinary texts."""
    async with sidecar(tmp_path, {"server.message_bytes_max": 1_000_000}) as s:
        chat = s.chat(context_length=100_000)
        sent = [
            {"role": "user", "content": "\x1b[31m" * 400 + "," * 600_000},
            {"role": "assistant", "content": "[" * 300},
        ]
        await append(chat, OPENAI, sent)

        assert (await read_back(chat, OPENAI))["messages"] == sent


async def test_messages_that_were_read_are_taken_again(tmp_path):
    """A copy of a conversation through its messages renders as the conversation does."""
    async with sidecar(tmp_path) as s:
        chat, copy, sent = s.chat("a"), s.chat("b"), ANTHROPIC_CHATS["tools"]
        await append(chat, ANTHROPIC, sent)
        found = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)

        await copy.append(*(m.message for m in found.messages))

        assert (await read_back(copy, ANTHROPIC))["messages"] == sent["messages"]


async def test_messages_beside_rendered_are_refused(tmp_path):
    """The order of both would be a guess."""
    async with sidecar(tmp_path) as s:
        both = api.AppendMessagesRequest(
            conversation_id="c",
            messages=[message_pb2.Message(role=message_pb2.ROLE_USER, content="x")],
            rendered=rendered(OPENAI, {"role": "user", "content": "y"}),
        )
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await s.conversations.AppendMessages(both)
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await s.conversations.AppendMessages(api.AppendMessagesRequest(conversation_id="c"))
