"""The fake Ollama against Ollama's official Python client: a passing test is more than our opinion of the wire."""

from __future__ import annotations

import asyncio
import json

import ollama
import pytest

from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_manner import MANNERS, NEWEST, Manner
from tests.support.ollama_model import RECORD_SCHEMA
from tests.support.ollama_server import FakeOllama

MODEL = FakeModel().name
THINKER = FakeModel(name="qwen3:4b", capabilities=("completion", "thinking"), family="qwen3")
QUESTION = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "Which colours does the northern evening have?"},
]
OLDER = Manner("0.12.6")


@pytest.fixture(params=[NEWEST, OLDER], ids=lambda manner: manner.version)
def manner(request):
    return request.param


@pytest.fixture
async def server(manner):
    async with FakeOllama(manner=manner, models=[FakeModel(), THINKER]) as running:
        yield running


@pytest.fixture
async def client(server):
    official = ollama.AsyncClient(host=server.url, trust_env=False)
    yield official
    await official._client.aclose()


async def test_a_chat_has_text_counts_and_a_reason(client):
    """A chat without streaming is one object with everything in it."""
    answer = await client.chat(model=MODEL, messages=QUESTION)

    assert answer.model == MODEL
    assert answer.message.role == "assistant"
    assert answer.message.content
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert answer.prompt_eval_count > 0
    assert answer.eval_count > 0
    assert answer.total_duration > 0


async def test_a_streamed_chat_says_the_same_in_pieces(client):
    """The pieces joined are the whole answer, and only the last is done."""
    whole = await client.chat(model=MODEL, messages=QUESTION)

    parts = [part async for part in await client.chat(model=MODEL, messages=QUESTION, stream=True)]

    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 2


async def test_generate_answers_whole_and_in_pieces(client):
    """/api/generate has `response` and `context` where chat has a message."""
    whole = await client.generate(model=MODEL, prompt="Name a northern colour")
    parts = [part async for part in await client.generate(model=MODEL, prompt="Name a northern colour", stream=True)]

    assert whole.response == "".join(part.response for part in parts)
    assert whole.context
    assert parts[-1].done_reason == "stop"


async def test_a_schema_as_format_is_obeyed(client):
    """`format` with a schema gives JSON with the required fields."""
    answer = await client.chat(model=MODEL, messages=QUESTION, format=RECORD_SCHEMA)

    record = json.loads(answer.message.content)
    assert list(record) == RECORD_SCHEMA["required"]
    assert isinstance(record["action_items"][0]["task"], str)


async def test_the_word_json_as_format_gives_an_object(client):
    """`format: "json"` gives any JSON object."""
    answer = await client.chat(model=MODEL, messages=QUESTION, format="json")

    assert isinstance(json.loads(answer.message.content), dict)


async def test_num_predict_cuts_the_answer(client):
    """An answer that reaches num_predict says `length`."""
    answer = await client.chat(model=MODEL, messages=QUESTION, options={"num_predict": 2})

    assert (answer.done_reason, answer.eval_count) == ("length", 2)


async def test_the_seed_decides_the_answer(client):
    """Same seed, same words; another seed, others."""
    first, again, other = [
        (await client.chat(model=MODEL, messages=QUESTION, options={"seed": seed})).message.content
        for seed in (1, 1, 2)
    ]

    assert first == again != other


async def test_an_empty_chat_loads_the_model(client):
    """No messages: done at once, reason `load`."""
    answer = await client.chat(model=MODEL, messages=[])

    assert (answer.done_reason, answer.message.content) == ("load", "")


async def test_thinking_comes_apart_from_the_answer(client):
    """A thinking model thinks unless told not to, and its thoughts are a field of their own."""
    thinking = await client.chat(model=THINKER.name, messages=QUESTION)
    silent = await client.chat(model=THINKER.name, messages=QUESTION, think=False)

    assert thinking.message.thinking
    assert silent.message.thinking is None


async def test_thinking_is_refused_by_a_model_that_cannot(client):
    """`think: true` on another model is a 400."""
    with pytest.raises(ollama.ResponseError, match="does not support thinking") as refused:
        await client.chat(model=MODEL, messages=QUESTION, think=True)

    assert refused.value.status_code == 400


async def test_a_missing_model_is_not_found(client):
    """An unknown model is a 404 for chat and show."""
    for call in (client.chat(model="nobody:1b", messages=QUESTION), client.show("nobody:1b")):
        with pytest.raises(ollama.ResponseError, match="not found") as refused:
            await call
        assert refused.value.status_code == 404


async def test_show_describes_the_model(client, server):
    """/api/show tells context length and capabilities, and hides long arrays."""
    shown = await client.show(MODEL)

    assert shown.modelinfo["qwen2.context_length"] == 32_768
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo["tokenizer.ggml.tokens"] == server.manner.hidden_array()
    assert shown.details.family == "qwen2"


async def test_list_and_ps_name_the_models(client):
    """/api/tags lists all models with digests, /api/ps those in memory."""
    listed = await client.list()
    resident = await client.ps()

    assert [model.model for model in listed.models] == [MODEL, THINKER.name]
    assert listed.models[0].digest == FakeModel().digest == resident.models[0].digest
    assert resident.models[0].context_length == 4096


async def test_embed_gives_a_vector_for_each_input(client):
    """/api/embed takes one text or several."""
    one = await client.embed(model=MODEL, input="northern")
    two = await client.embed(model=MODEL, input=["northern", "southern evening"])

    assert len(one.embeddings) == 1
    assert len(two.embeddings) == 2
    assert one.embeddings[0] == two.embeddings[0]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
async def test_a_prompt_that_does_not_fit_is_cut_or_refused(server, client, whole):
    """The fake cuts the front by default and its count betrays it; `truncate: false` makes it the version's own 400."""
    long = [{"role": "user", "content": "word " * 600}]
    options = {"num_ctx": 512}

    cut = await client.chat(model=MODEL, messages=long, options=options)
    body = {"model": MODEL, "messages": long, "options": options, "truncate": False, "stream": not whole}
    with pytest.raises(ollama.ResponseError) as refused:
        await client._request_raw("POST", "/api/chat", json=body)

    assert cut.prompt_eval_count == (258 if server.manner.has_llama_server else 512)
    assert refused.value.status_code == 400
    assert ("n_prompt_tokens" in refused.value.error) == server.manner.has_llama_server


async def test_an_error_inside_a_stream_reaches_the_client(server, client):
    """An error after the first chunk is a line, for which the client knows no status."""
    server.behaviour = BEHAVIOURS["error-midway"]

    with pytest.raises(ollama.ResponseError) as broken:
        async for _ in await client.chat(model=MODEL, messages=QUESTION, stream=True):
            pass

    assert broken.value.status_code == -1


async def test_a_busy_server_answers_503(server, client):
    """The full queue's status and text."""
    server.behaviour = BEHAVIOURS["busy"]

    with pytest.raises(ollama.ResponseError, match="maximum pending requests") as refused:
        await client.chat(model=MODEL, messages=QUESTION)

    assert refused.value.status_code == 503


async def test_the_blocking_client_gets_the_same(server, client):
    """The client that is not asynchronous passes too: chat, stream, list."""

    def talk():
        blocking = ollama.Client(host=server.url, trust_env=False)
        try:
            whole = blocking.chat(model=MODEL, messages=QUESTION).message.content
            parts = [part.message.content or "" for part in blocking.chat(model=MODEL, messages=QUESTION, stream=True)]
            return whole, "".join(parts), len(blocking.list().models)
        finally:
            blocking._client.close()

    whole, joined, models = await asyncio.to_thread(talk)

    expected = await client.chat(model=MODEL, messages=QUESTION)
    assert whole == joined == expected.message.content
    assert models == 2


@pytest.mark.parametrize("manner", MANNERS, ids=lambda manner: manner.version)
async def test_every_manner_speaks_with_the_client(manner):
    """No version's manner breaks the client."""
    async with FakeOllama(manner=manner) as server:
        client = ollama.AsyncClient(host=server.url, trust_env=False)
        answer = await client.chat(model=MODEL, messages=QUESTION, format=RECORD_SCHEMA)
        shown = await client.show(MODEL)
        await client._client.aclose()

    assert json.loads(answer.message.content or "")
    assert (shown.capabilities is None) == (not manner.lists_capabilities)
