"""Arguments that the Python client refuses: it names the argument, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from abridged.client import calls
from abridged.client.arguments import settings_of
from abridged.v1.conversation_pb2 import ConversationSettings, PolicyOverrides
from abridged.v1.conversation_service_pb2 import HISTORY_TOOL_SEARCH, RENDERING_OPENAI, SEARCH_MODE_WORDS
from abridged.v1.message_pb2 import ROLE_USER, Message

HELLO = {"role": "user", "content": "Good morning"}


@dataclass
class Answer:
    """An answer as the APIs' libraries return it, which Python can take apart."""

    content: str

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": self.content}

    def __iter__(self) -> Any:
        return iter([("content", self.content)])


@pytest.mark.parametrize("form", ["", "openai"])
@pytest.mark.parametrize("messages", ["hello", HELLO, Message(role=ROLE_USER), Answer("Hi"), None])
def test_one_message_is_no_list_of_messages(messages, form):
    """A list of one is meant; Python would take a text and a mapping apart."""
    with pytest.raises(TypeError, match=r"^messages must be a list of messages$"):
        calls.append("c", messages, form=form)


def test_any_other_way_to_name_messages_is_taken():
    """Tuples, generators and views."""
    for messages in ((HELLO,), (message for message in [HELLO]), {"m1": HELLO}.values()):
        assert len(calls.append("c", messages).request.messages) == 1


@pytest.mark.parametrize("call", [calls.pin, calls.unpin, calls.redact])
@pytest.mark.parametrize("numbers", [1, "12"])
def test_one_number_is_no_list_of_numbers(call, numbers):
    """The methods take several messages at once."""
    with pytest.raises(TypeError, match=r"^numbers must be a list of numbers$"):
        call("c", numbers)


def test_one_number_is_no_list_for_an_expansion_either():
    """The calls for a record and for a range are others."""
    with pytest.raises(TypeError, match=r"^numbers must be a list of numbers$"):
        calls.originals("c", numbers=7)  # type: ignore[arg-type]  # as a caller without types

    assert list(calls.originals("c", numbers=range(1, 3)).request.numbers.numbers) == [1, 2]


def test_one_name_is_no_list_of_names():
    """The letters of a text would be sent as names, and counted as texts."""
    with pytest.raises(TypeError, match=r"^paths must be a list of names of settings$"):
        calls.update("c", ConversationSettings(title="Orders"), "title")
    with pytest.raises(TypeError, match=r"^texts must be a list of texts$"):
        calls.count_tokens("", "hello")
    with pytest.raises(TypeError, match=r"^with_tools must be a list of expand, search$"):
        calls.context("c", with_tools="expand")


@pytest.mark.parametrize("wrong", ["opnai", "unspecified", 1])
def test_an_unknown_name_is_answered_with_the_known_ones(wrong):
    """Protobuf's own errors have neither the argument nor what it takes."""
    with pytest.raises(ValueError, match=r"^rendering must be one of anthropic, ollama, openai$"):
        calls.context("c", rendering=wrong)
    with pytest.raises(ValueError, match=r"^mode must be one of both, meaning, words$"):
        calls.search("c", "order", mode=wrong)
    with pytest.raises(ValueError, match=r"^rating must be one of good, bad$"):
        calls.rate("c", "s", wrong)
    with pytest.raises(ValueError, match=r"^with_tools\[1\] must be one of expand, search$"):
        calls.append("c", [HELLO], with_tools=["expand", wrong])


def test_a_known_name_is_taken_in_any_case():
    """The names of the contract's enumerations are in capitals."""
    assert calls.context("c", rendering="OpenAI").request.rendering == RENDERING_OPENAI
    assert calls.search("c", "order", mode="words").request.mode == SEARCH_MODE_WORDS
    assert calls.context("c", with_tools=["SEARCH"]).request.with_tools == [HISTORY_TOOL_SEARCH]


def test_settings_may_be_a_mapping():
    """The same request goes out, from an append of either kind and from an update."""
    plain = {"title": "Orders", "context_length": 4096, "policy": {"trigger_token_ratio": 0.9}, "labels": {"a": "b"}}
    settings = ConversationSettings(
        title="Orders", context_length=4096, policy=PolicyOverrides(trigger_token_ratio=0.9), labels={"a": "b"}
    )

    assert calls.append("c", [HELLO], settings=plain).request.settings == settings
    assert calls.append("c", [HELLO], settings=plain, form="openai").request.settings == settings
    assert calls.update("c", plain, ["title"]).request.settings == settings
    assert not calls.append("c", [HELLO]).request.HasField("settings")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ("title", TypeError, r"^settings must be a ConversationSettings, or a mapping of its fields$"),
        ({"titel": "Orders"}, ValueError, r"^settings\.titel: a conversation has no such setting$"),
        ({"title": 1}, ValueError, r"^settings\.title: "),
        ({"policy": {"trigger": 1}}, ValueError, r'^settings\.policy: .*"trigger"'),
    ],
)
def test_a_setting_that_is_wrong_is_named(settings, error, message):
    """The field stands behind `settings`, as in a refusal of the sidecar."""
    with pytest.raises(error, match=message):
        settings_of(settings)
