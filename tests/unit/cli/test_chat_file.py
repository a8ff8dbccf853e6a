"""Chats in a file: an entry without form is reported with its place, and hides nothing beside it."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path

import pytest

from abridged.service.cli.chat_file import LINE_BYTES_MAX, Fault, FileChat, read_chats
from abridged.service.cli.demo import bundled_conversation
from abridged.service.domain.message import Message, Role, ToolCall


def read(lines: list[str]) -> list[FileChat | Fault]:
    return list(read_chats(BytesIO("".join(f"{text.rstrip()}\n" for text in lines).encode("utf-8", "surrogateescape"))))


def line(*messages: object, **fields: object) -> str:
    return json.dumps({"conversation_id": "c", "messages": list(messages)} | fields)


UNREADABLE = (
    "[" * 100_000,
    line({"role": "user", "content": "\ud800"}),
    line({"role": "user", "score": "NUMBER"}).replace('"NUMBER"', "9" * 5_000),
    line({"role": "user", "content": "BYTE"}).replace("BYTE", "\udcff"),
)
"""Nested too deep, half a character, more digits than are read, a byte that is no UTF-8."""


def test_a_message_keeps_everything_that_the_file_says():
    """Names, calls with their arguments as they are written, results with their call."""
    call = {"id": "call-1", "name": "search", "arguments": '{"a":  1}'}

    (chat,) = read(
        [
            line(
                {"id": "a", "role": "assistant", "content": "", "tool_calls": [call]},
                {"id": "b", "role": "tool", "content": "found", "name": "search", "tool_call_id": "call-1"},
            )
        ]
    )

    assert chat == FileChat(
        1,
        "c",
        (
            Message("a", Role.ASSISTANT, "", tool_calls=(ToolCall("call-1", "search", '{"a":  1}'),)),
            Message("b", Role.TOOL, "found", name="search", tool_call_id="call-1"),
        ),
        (),
    )


def test_the_example_of_the_page_is_a_chat():
    """A reader copies it into a file as it stands."""
    page = (Path(__file__).parents[3] / "docs" / "features" / "chats.md").read_text(encoding="utf-8")
    example, *_ = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    (chat,) = read(example.splitlines())

    assert isinstance(chat, FileChat)
    assert [message.role for message in chat.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert chat.faults == ()


def test_absent_and_null_fields_are_empty():
    """Exports of other programs write both."""
    (chat,) = read([line({"role": "user", "content": None, "name": None, "tool_calls": None})])

    assert isinstance(chat, FileChat)
    assert chat.messages == (Message("m00000", Role.USER),)


def test_arguments_may_be_an_object():
    """Some exports have parsed them; the contract wants text."""
    call = {"id": "1", "name": "f", "arguments": {"city": "Zürich"}}

    (chat,) = read([line({"role": "assistant", "tool_calls": [call]})])

    assert isinstance(chat, FileChat)
    assert chat.messages[0].tool_calls[0].arguments == '{"city": "Zürich"}'


def test_unknown_fields_are_left_alone():
    """Files carry more than messages."""
    (chat,) = read([line({"role": "user", "content": "x", "score": 3}, queries=["?"])])

    assert isinstance(chat, FileChat)
    assert chat.faults == ()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '"text"',
        '{"messages": []}',
        '{"conversation_id": 1, "messages": []}',
        line("text"),
        *UNREADABLE,
    ],
)
def test_a_line_without_a_chat_is_a_fault_of_its_own(text):
    """The number is the file's; the next line is read."""
    broken, fine = read(["\n", text, line()][1:])

    assert isinstance(broken, Fault)
    assert (broken.line, broken.message_id) == (1, "")
    assert isinstance(fine, FileChat)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "must be an object"),
        ('{"messages": {}}', "conversation_id is missing; messages must be a list"),
        ('{"conversation_id": 1, "messages": [2]}', "conversation_id must be text; messages.0 must be an object"),
        (line("text"), "messages.0 must be an object"),
        (line({"role": "user", "content": "x"})[:-1], "is not JSON: EOF while parsing an object at column 71"),
        ("\udcff", "is not UTF-8: byte 1"),
    ],
)
def test_a_line_without_a_chat_is_told_in_the_words_of_the_file(text, says):
    """No class, no type and no word of Python."""
    (fault,) = read([text])

    assert isinstance(fault, Fault)
    assert fault.what == says


def test_arguments_that_are_neither_text_nor_object_are_told_by_their_field():
    """One field, one complaint."""
    (chat,) = read([line({"role": "assistant", "tool_calls": [{"id": "1", "name": "f", "arguments": 7}]})])

    assert isinstance(chat, FileChat)
    assert [fault.what for fault in chat.faults] == ["tool_calls.0.arguments must be text"]


def test_empty_lines_count_and_are_left_out():
    """Line numbers are those of an editor."""
    (chat,) = read(["\n", "  \n", line()])

    assert chat.line == 3


def test_a_line_of_any_length_costs_no_more_memory_than_the_longest_chat():
    """Reading leaves such a line out, and goes on with the next one."""

    pieces = [b"x" * (LINE_BYTES_MAX + 1), b"y" * LINE_BYTES_MAX, b"z\n", line().encode()]

    class _Endless(BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None and 0 < size <= LINE_BYTES_MAX + 1
            return pieces.pop(0) if pieces else b""

    long, chat = read_chats(_Endless())

    assert long == Fault(1, "", "is longer than 67,108,864 bytes")
    assert isinstance(chat, FileChat)
    assert chat.line == 2


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"content": "x"}, "role"),
        ({"role": "robot"}, "role must be one of system, user, assistant, tool"),
        ({"role": "user", "content": {}}, "content"),
        ({"role": "assistant", "tool_calls": [{"name": "f"}]}, "tool_calls.0.id"),
        ({"role": "user", "id": 7}, "id"),
    ],
)
def test_a_message_without_form_is_told_and_left_out(message, says):
    """A fault names the message's id, or its place where it has none, but not its text, which may be private."""
    private = {"secret": "private words"}
    (chat,) = read([line({"id": "good", "role": "user", "content": "x"}, message | private)])

    assert isinstance(chat, FileChat)
    (fault,) = chat.faults
    assert [m.id for m in chat.messages] == ["good"]
    assert fault.message_id == "m00001"
    assert says in fault.what
    assert "private" not in fault.what


def test_the_bundled_conversation_is_worth_showing():
    """Several speakers, tool calls with JSON results, each answered once; long enough for more than one pass."""
    chat = bundled_conversation()
    calls = [call.id for message in chat.messages for call in message.tool_calls]
    results = [message for message in chat.messages if message.role is Role.TOOL]

    assert chat.faults == ()
    assert len(chat.messages) >= 44
    assert len({message.id for message in chat.messages}) == len(chat.messages)
    assert {message.name for message in chat.messages if message.role is Role.USER} == {"priya", "jonas"}
    assert sorted(calls) == sorted(message.tool_call_id for message in results)
    assert all(isinstance(json.loads(message.content), dict) for message in results)
    assert sum(len(message.content) for message in chat.messages) > 15_000
