"""Mappings that the Python client refuses as messages: it names the place, the field and what that takes."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from abridged.client import calls
from abridged.v1.message_pb2 import ROLE_ASSISTANT, ROLE_USER, Message

FINE = {"role": "user", "content": "hello"}
FUNCTION = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def sent(*messages: Any) -> list[Message]:
    return list(calls.append("c", messages).request.messages)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"role": "bot"}, "role: must be one of system, user, assistant, tool"),
        ({"role": None}, "role: must be one of system, user, assistant, tool"),
        ({"role": 2}, "role: must be one of system, user, assistant, tool"),
        ({"content": [{"type": "text", "text": "hello"}]}, "content: must be text; a message as an API has it"),
        ({"content": "\ud800"}, "content: is text that UTF-8 does not have"),
        ({"tool_calls": [{"id": "c", "name": "f", "arguments": {"a": 1}}]}, "tool_calls: must be mappings of id, name"),
        ({"tool_calls": [FUNCTION]}, 'is taken with form="openai"'),
        ({"reasoning_content": "Hm."}, "reasoning_content: a message has no such field; a message as an API has it"),
        ({"name": 3}, "name: must be text"),
        ({"labels": {"a": 1}}, "labels: must be a mapping"),
        ({"attachments": [{"url": "a"}]}, "attachments: must be mappings with a uri"),
        ({"token_count": 1 << 40}, "token_count: must be a whole number"),
        ({"create_time": "today"}, "create_time: must be a Timestamp"),
    ],
)
def test_a_field_that_is_wrong_is_named(fields, message):
    """Protobuf's own errors name neither the message nor the field."""
    with pytest.raises(ValueError) as refused:
        sent(FINE, {**FINE, **fields})

    assert str(refused.value).startswith(f"messages[1].{next(iter(fields))}: ")
    assert message in str(refused.value)


def test_a_message_needs_a_role():
    """A mapping without one is refused in the same words as one with an unknown role."""
    with pytest.raises(ValueError, match=r"messages\[0\]\.role: must be one of system, user, assistant, tool$"):
        sent({"content": "hello"})


def test_what_is_no_mapping_is_of_an_api():
    """An object of an API's library needs the API's name."""
    with pytest.raises(
        TypeError, match=r"^messages\[1\]: must be a Message or a mapping of its fields; .*form=\"openai"
    ):
        sent(FINE, "hello")


def test_what_protobuf_takes_is_taken():
    """Roles in any case, and None for a field that is not there."""
    time = Timestamp(seconds=1_795_857_705)
    call = {"id": "c", "name": "f", "arguments": "{}"}

    user, assistant = sent(
        {**FINE, "role": "User", "create_time": time},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    )

    assert (user.role, user.content, user.create_time.seconds) == (ROLE_USER, "hello", time.seconds)
    assert (assistant.role, assistant.content, assistant.tool_calls[0].name) == (ROLE_ASSISTANT, "", "f")
