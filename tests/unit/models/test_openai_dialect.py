"""Requests to servers that accept less than others: each refusal changes the next request, and is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from abridged.service.models.http.fields import OBJECT_BYTES_MAX
from abridged.service.models.model import Completion, SummaryModel
from abridged.service.models.openai.dialect import Dialect, Format
from abridged.service.models.openai.errors import FieldRefused, KeyRefused
from abridged.service.models.openai.wire import is_same_model
from tests.support.ollama_http import HttpReply, HttpRequest
from tests.support.ollama_model import RECORD_SCHEMA, record_request
from tests.support.openai_model import openai_over
from tests.support.openai_quirks import QUIRKS, STRICT_OPENAI, Quirks, openai_error
from tests.support.openai_server import FakeOpenAI
from tests.support.patience import PATIENCE_S

EVERY_FIELD = frozenset({"response_format", "max_tokens", "stream_options", "temperature", "seed"})


STEPS = 7
"""One for the limit's name, three for fields that only help, three for the form."""


class RefusesInTurn(FakeOpenAI):
    """Refuses its first two requests once it has both: for the temperature, and for the seed."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = ["temperature", "seed"]

    async def _infer(self, request: HttpRequest, reply: HttpReply) -> None:
        if not self.turns:
            await super()._infer(request, reply)
            return
        name = self.turns.pop()
        await self.until(lambda server: len(server.requests) >= 2)
        refusal = openai_error(400, f"Unsupported parameter: '{name}'", param=name)
        await reply.full(refusal.status, refusal.body, refusal.content_type)


async def ask(model: SummaryModel, **fields: Any) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)


async def test_a_server_that_accepts_everything_gets_the_whole_request():
    """The schema in strict mode, the size, seed and temperature, and usage asked for."""
    async with FakeOpenAI() as server, openai_over(server) as model:
        await ask(model)

    (body,) = server.asked()
    assert body["response_format"]["json_schema"] == {"name": "answer", "strict": True, "schema": RECORD_SCHEMA}
    assert (body["max_tokens"], body["temperature"], body["seed"]) == (600, 0.2, 7)
    assert body["stream"]
    assert body["stream_options"] == {"include_usage": True}


async def test_plain_text_is_asked_for_without_a_format():
    """A form without a schema has nothing to constrain."""
    async with FakeOpenAI(quirks=QUIRKS["no-format"]) as server, openai_over(server) as model:
        await ask(model, schema=None)

    (body,) = server.asked()
    assert "response_format" not in body


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("objects-only", ["json_schema", "json_schema", "json_object"]),
        ("no-format", ["json_schema", "json_schema", "json_object", None]),
    ],
)
async def test_a_refused_format_falls_back_once_and_is_remembered(name, formats):
    """The format falls from the schema to one without lengths, any JSON object and none; the next request keeps it."""
    reported = []
    async with (
        FakeOpenAI(quirks=QUIRKS[name]) as server,
        openai_over(server, on_dialect=lambda model, dialect: reported.append((model, dialect))) as model,
    ):
        await ask(model)
        await ask(model)

    sent = [body.get("response_format", {}).get("type") for body in server.asked()]
    assert sent == [*formats, formats[-1]]
    assert [model for model, _ in reported] == ["openai:gpt-fake"] * (len(formats) - 1)
    assert reported[-1][1].format == (formats[-1] or "none")


async def test_a_strict_server_gets_the_schema_without_lengths_and_its_own_spelling():
    """OpenAI's reasoning models want it so: no lengths, no temperature, `max_completion_tokens`."""
    async with FakeOpenAI(quirks=STRICT_OPENAI) as server, openai_over(server) as model:
        answer = await ask(model)

    body = server.asked()[-1]
    assert "maxLength" not in str(body["response_format"])
    assert body["response_format"]["json_schema"]["schema"]["required"] == RECORD_SCHEMA["required"]
    assert "temperature" not in body
    assert body["max_completion_tokens"] == 600
    assert "max_tokens" not in body
    assert answer.response_model == "gpt-fake-2026-01-31"


async def test_a_property_that_is_named_as_a_length_stays_in_the_schema():
    """Only keywords are left out, never the answer's own names."""
    schema = {"type": "object", "properties": {"maxLength": {"type": "string", "maxLength": 5}}}

    sent = Dialect(Format.BARE_SCHEMA).response_format(schema) or {}

    assert sent["json_schema"]["schema"]["properties"] == {"maxLength": {"type": "string"}}


async def test_usage_is_not_asked_of_a_server_that_does_not_know_it():
    """The answer then has no counts, which says nothing about the prompt."""
    async with FakeOpenAI(quirks=QUIRKS["no-stream-options"]) as server, openai_over(server) as model:
        answer = await ask(model)

    assert answer.input_tokens == 0
    assert "stream_options" not in server.asked()[-1]


async def test_a_server_that_refuses_everything_is_asked_so_often_and_no_more():
    """Each refusal leaves less to try, so that their number has an end."""
    named = "response_format max_completion_tokens stream_options temperature seed"
    async with FakeOpenAI(quirks=Quirks(refusal=openai_error(400, named))) as server, openai_over(server) as model:
        with pytest.raises(FieldRefused):
            await ask(model)

    assert len(server.asked()) == STEPS + 1


def test_every_step_asks_for_less_until_nothing_is_left():
    """The order: the limit's name, then fields that only help, then the form."""
    dialect, steps = Dialect(), 0
    while (less := dialect.without(EVERY_FIELD)) is not None:
        dialect, steps = less, steps + 1

    assert steps == STEPS
    assert dialect.format is Format.NONE
    assert Dialect().without(frozenset()) is None


async def test_concurrent_calls_learn_what_a_server_refuses_together():
    """Two calls that are refused at once end with the same request."""
    async with FakeOpenAI(quirks=QUIRKS["objects-only"]) as server, openai_over(server) as model:
        await asyncio.gather(ask(model), ask(model))
        await ask(model)

    assert server.asked()[-1]["response_format"] == {"type": "json_object"}


async def test_what_one_call_learns_another_does_not_take_back():
    """Two calls are refused at once for different fields: each report leaves out the fields of the one before."""
    reported: list[Dialect] = []
    async with (
        RefusesInTurn() as server,
        openai_over(server, on_dialect=lambda _model, dialect: reported.append(dialect)) as model,
    ):
        await asyncio.gather(ask(model), ask(model))
        await ask(model)

    assert [len(dialect.left_out) for dialect in reported] == [1, 2]
    assert {"temperature", "seed"}.isdisjoint(server.asked()[-1])


def test_two_dialects_have_in_common_what_both_send():
    """The lesser of each field is common, whichever dialect comes first."""
    one = Dialect(Format.OBJECT, left_out=frozenset({"seed"}))
    other = Dialect(Format.BARE_SCHEMA, "max_completion_tokens", frozenset({"temperature"}))

    both = Dialect(Format.OBJECT, "max_completion_tokens", frozenset({"seed", "temperature"}))
    assert one.at_most(other) == other.at_most(one) == both


@pytest.mark.parametrize(
    ("asked", "said", "same"),
    [
        ("gpt-4o", "gpt-4o", True),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", False),
        ("openai/gpt-4o", "gpt-4o", True),
        ("chatgpt-4o-latest", "chatgpt-4o-2024-11-20", True),
        ("Qwen/Qwen3-8B", "/models/qwen3-8b", True),
        ("smollm", "/weights/smollm.gguf", True),
        ("llama3.2", "llama3.2:latest", True),
        ("llama3.2", "llama3.1", False),
    ],
)
def test_another_build_of_a_model_is_the_same_model(asked, said, same):
    """Servers name the build, the path or the file of the model that answered."""
    assert is_same_model(asked, said) is same


async def test_a_description_takes_the_context_that_the_server_lists():
    """vLLM, OpenRouter and llama.cpp name it differently; the window is at most that of the settings."""
    lengths: list[tuple[dict[str, Any], int | None]] = [
        ({"max_model_len": 1_024}, 1_024),
        ({"context_length": 131_072}, 131_072),
        ({"meta": {"n_ctx_train": 2_048, "n_ctx": 1_536}}, 1_536),
        ({}, None),
    ]
    for listed, length in lengths:
        async with FakeOpenAI(quirks=Quirks(listed=listed)) as server, openai_over(server) as model:
            description = await model.describe()

        assert description.context_length == length
        assert description.window == min(2_048, length or 2_048)


async def test_a_server_that_lists_no_models_still_has_a_window():
    """The list is no part of every server."""
    async with FakeOpenAI(quirks=Quirks(lists_models=False)) as server, openai_over(server) as model:
        assert (await model.describe()).window == 2_048


async def test_a_list_that_is_too_large_to_read_says_nothing():
    """Catalogues of thousands of models exist; the window is then that of the settings."""
    listed = {"description": "x" * OBJECT_BYTES_MAX, "max_model_len": 1_024}
    async with FakeOpenAI(quirks=Quirks(listed=listed)) as server, openai_over(server) as model:
        assert (await model.describe()).window == 2_048


async def test_a_description_fails_with_the_key_that_fails_calls():
    """A record is therefore not remade, and readiness says why, before the next pass."""
    async with FakeOpenAI(quirks=Quirks(key="right")) as server, openai_over(server) as model:
        with pytest.raises(KeyRefused):
            await model.describe()


async def test_a_description_is_read_again_only_after_a_while():
    """Each pass asks for it, and the list may be long."""
    async with FakeOpenAI() as server, openai_over(server) as model:
        for _ in range(3):
            await model.describe()

    assert [request.path for request in server.requests] == ["/v1/models"]


async def test_usage_teaches_how_many_tokens_a_prompt_has():
    """The window is counted in the model's own tokens."""
    async with FakeOpenAI(quirks=Quirks(prompt_tokens=300)) as server, openai_over(server) as model:
        await ask(model, prompt_tokens=150)

        assert (await model.describe()).token_factor == 2.0
