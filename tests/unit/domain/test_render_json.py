"""The JSON that chat APIs take: forms that one of them refuses do not occur, whatever the messages are."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.render_json import OPENING, Rendering, render_json
from tests.support.chats import calling, result, said

IDS = st.sampled_from(["a", "b", "call.1:x", "\N{GRINNING FACE}"])
ARGUMENTS = st.sampled_from(["{}", '{"q": 1}', "[1]", "not json", '{"n": NaN}', '{"s": "\\ud800"}', '{"n": 1e999}', ""])
ANY_MESSAGES = st.lists(
    st.one_of(
        st.builds(
            lambda role, text: ("text", role, text), st.sampled_from(list(Role)[:3]), st.sampled_from(["", "hi", " "])
        ),
        st.builds(lambda calls: ("call", calls), st.lists(st.tuples(IDS, ARGUMENTS), min_size=1, max_size=3)),
        st.builds(lambda i: ("result", i), IDS),
    ),
    max_size=20,
)


def messages_of(kinds: Sequence[tuple[Any, ...]]) -> list[Message]:
    made = []
    for number, kind in enumerate(kinds, 1):
        match kind:
            case ("text", role, text):
                made.append(Message(f"m{number}", role, text, name="Ann B" if number % 3 == 0 else ""))
            case ("call", calls):
                made.append(
                    Message(f"m{number}", Role.ASSISTANT, tool_calls=tuple(ToolCall(i, "search", a) for i, a in calls))
                )
            case ("result", call_id):
                made.append(result(number, call_id))
    return made


def rendered(messages: Sequence[Message], rendering: Rendering) -> Any:
    text = render_json(messages, rendering).text()
    text.encode()
    return json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


@given(ANY_MESSAGES)
def test_openai_results_directly_answer_their_calls(kinds):
    """Behind a message with calls come its results, all of them unless it is the last; no result stands elsewhere."""
    window = rendered(messages_of(kinds), Rendering.OPENAI)["messages"]
    waiting: list[str] = []
    for m in window:
        if m["role"] == "tool":
            assert m["tool_call_id"] in waiting
            waiting.remove(m["tool_call_id"])
        else:
            assert not waiting
            waiting = [c["id"] for c in m.get("tool_calls", [])]
            assert all(
                c["type"] == "function" and isinstance(c["function"]["arguments"], str) for c in m.get("tool_calls", [])
            )
        assert not re.search(r"[\s<|\\/>]", m.get("name", ""))


@given(ANY_MESSAGES)
def test_ollama_results_directly_answer_their_calls_by_name(kinds):
    """Arguments are objects; a result says which tool it is of."""
    window = rendered(messages_of(kinds), Rendering.OLLAMA)["messages"]
    waiting: list[str] = []
    for m in window:
        if m["role"] == "tool":
            assert m["tool_call_id"] in waiting
            assert m["tool_name"] == "search"
            waiting.remove(m["tool_call_id"])
        else:
            assert not waiting
            waiting = [c["id"] for c in m.get("tool_calls", [])]
            assert all(isinstance(c["function"]["arguments"], dict) for c in m.get("tool_calls", []))


@given(ANY_MESSAGES)
def test_anthropic_roles_alternate_and_results_come_first(kinds):
    """User first, then in turn; a turn of calls is answered by the next; ids are of its characters and used once."""
    body = rendered(messages_of(kinds), Rendering.ANTHROPIC)
    roles = [turn["role"] for turn in body["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    ids: list[str] = []
    calls: list[str] = []
    for turn in body["messages"]:
        blocks = turn["content"]
        assert blocks
        answers = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert [b["type"] == "tool_result" for b in blocks] == sorted(
            (b["type"] == "tool_result" for b in blocks), reverse=True
        )
        assert set(answers) == set(calls) or (set(answers) < set(calls) and turn is body["messages"][-1])
        assert all(b["text"].strip() for b in blocks if b["type"] == "text")
        calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
        ids += calls
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", i) for i in ids)


def test_the_texts_of_all_messages_are_there():
    """System text apart for Anthropic; names where the API has none go into the text."""
    messages = [
        said(1, Role.SYSTEM, "Be kind."),
        Message("m2", Role.USER, "Hello.", name="Ann"),
        said(3, Role.ASSISTANT, "Hi."),
    ]

    assert rendered(messages, Rendering.OPENAI) == {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hello.", "name": "Ann"},
            {"role": "assistant", "content": "Hi."},
        ]
    }
    assert rendered(messages, Rendering.ANTHROPIC) == {
        "system": "Be kind.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Ann: Hello."}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]},
        ],
    }


def test_anthropic_gets_a_user_message_first():
    """A conversation that the assistant begins has one put before it."""
    body = rendered([said(1, Role.ASSISTANT, "Hi.")], Rendering.ANTHROPIC)

    assert body["messages"][0] == {"role": "user", "content": [{"type": "text", "text": OPENING}]}


def test_parallel_calls_with_scattered_results_are_put_together():
    """Results move behind their call; an assistant's text in between keeps its place after them."""
    messages = [
        said(1),
        calling(2, "a", "b"),
        said(3, Role.ASSISTANT, "Wait."),
        result(4, "b", "B"),
        result(5, "a", "A"),
    ]

    assert [(m["role"], m["content"]) for m in rendered(messages, Rendering.OPENAI)["messages"]][1:] == [
        ("assistant", ""),
        ("tool", "B"),
        ("tool", "A"),
        ("assistant", "Wait."),
    ]


def test_calls_without_results_are_quoted_unless_they_are_the_last_word():
    """A call that waits at the end may still be answered."""
    waiting = rendered([said(1), calling(2, "a")], Rendering.OPENAI)["messages"]
    passed = rendered([said(1), calling(2, "a"), said(3)], Rendering.OPENAI)["messages"]

    assert waiting[1]["tool_calls"][0]["id"] == "a"
    assert passed[1] == {"role": "assistant", "content": "[Called tool search with {}; no result came]"}


def test_a_call_id_that_is_used_again_is_another_id_for_anthropic():
    """Both exchanges stay whole."""
    messages = [said(1), calling(2, "a"), result(3, "a"), calling(4, "a"), result(5, "a")]
    turns = rendered(messages, Rendering.ANTHROPIC)["messages"]

    blocks = [b for turn in turns for b in turn["content"] if b["type"] != "text"]
    assert [b.get("id", b.get("tool_use_id")) for b in blocks] == ["a", "a", "a-2", "a-2"]


@pytest.mark.parametrize(
    "arguments",
    [
        "not json",
        "[1]",
        "",
        '{"n": NaN}',
        '{"n": -1e999}',
        "[" * 100_000,
        *('{"a":' * n + "1" + "}" * n for n in (201, 967)),
    ],
)
def test_arguments_that_are_no_object_are_handed_on_under_one_key(arguments):
    """The arguments lose nothing, and the request stays JSON."""
    message = Message("m", Role.ASSISTANT, tool_calls=(ToolCall("a", "search", arguments),))

    (call,) = rendered([message], Rendering.OLLAMA)["messages"][0]["tool_calls"]
    assert call["function"]["arguments"] == {"arguments": arguments}


def test_half_a_surrogate_pair_is_still_text():
    """Arguments may name one by an escape; the answer is valid UTF-8 all the same."""
    message = Message("m", Role.ASSISTANT, tool_calls=(ToolCall("a", "search", '{"s": "\\ud800"}'),))

    assert "\\ud800" in render_json([message], Rendering.ANTHROPIC).text()
