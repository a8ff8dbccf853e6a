"""The fake Ollama against the measured behaviour of a real server, 0.24.0 unless a test says otherwise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_manner import Manner
from tests.support.ollama_model import RECORD_SCHEMA
from tests.support.ollama_pace import Pace
from tests.support.ollama_responder import Ask, Piece, count_tokens
from tests.support.ollama_server import FakeOllama

MODEL = FakeModel().name
RUNNER = Manner("0.24.0")
LLAMA_SERVER = Manner("0.30.11")
QUESTION = [{"role": "user", "content": "Which colours does the northern evening have?"}]
LONG = [{"role": "user", "content": "word " * 500}]


@pytest.fixture
async def server():
    async with FakeOllama(manner=RUNNER) as running:
        yield running


@pytest.fixture
async def http(server):
    async with client_of(server) as client:
        yield client


def client_of(server: FakeOllama) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20)


def chat(messages: list[dict[str, str]] = QUESTION, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": messages, **fields}


async def streamed(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    """Every line of a streamed chat."""
    answer = await client.post("/api/chat", json=chat(**fields))
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def whole(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """The one object of a chat that is not streamed."""
    answer = await client.post("/api/chat", json=chat(stream=False, **fields))
    assert answer.status_code == 200, answer.text
    answered: dict[str, Any] = answer.json()
    return answered


async def words(_ask: Ask) -> AsyncIterator[Piece]:
    """An answer that goes on for a thousand different tokens."""
    for number in range(1_000):
        yield Piece(content=f"word{number} ")
    yield Piece(done_reason="stop")


async def test_more_than_thirty_equal_tokens_end_a_stream_without_its_last_line(server, http):
    """A token loop ends with status 200, no `done` and no error; whole, with `done: false` and the text so far."""
    server.behaviour = BEHAVIOURS["token-loop"]

    lines = await streamed(http)
    answer = await whole(http)

    repeated = [line["message"]["content"] for line in lines].count(" again")
    assert repeated == 31
    assert not any(line["done"] or "error" in line for line in lines)
    assert answer["done"] is False
    assert answer["message"]["content"].endswith(" again" * 31)


@pytest.mark.parametrize(("version", "repeated"), [("0.12.6", 197), ("0.24.0", 31), ("0.33.0", 31), ("0.34.0", 101)])
async def test_each_version_ends_a_token_loop_in_its_way(version, repeated):
    """Versions before 0.20 do not end the loop, num_predict does; from 0.34 on, the end is an error."""
    looping = FakeOllama(manner=Manner(version), behaviour=BEHAVIOURS["token-loop"])
    async with looping as server, client_of(server) as client:
        lines = await streamed(client, options={"num_predict": 200})

    assert [line.get("message", {}).get("content") for line in lines].count(" again") == repeated
    assert (lines[-1].get("done_reason") == "length") == (version == "0.12.6")
    assert ("error" in lines[-1]) == (version == "0.34.0")


@pytest.mark.parametrize(
    ("schema", "runner", "llama_server"),
    [
        ({"type": "nonsense"}, (500, "invalid JSON schema in format"), (400, "JSON schema conversion failed")),
        (
            {"type": "object", "properties": {"summary": {"type": "string", "maxLength": 16_000}}},
            (500, "model runner has unexpectedly stopped"),
            (400, "failed to parse grammar"),
        ),
    ],
    ids=["nonsense", "too-long"],
)
async def test_a_schema_without_a_grammar_is_an_error_of_its_generation(schema, runner, llama_server):
    """A caller's mistake: a 500 up to 0.24, a 400 with llama-server's own JSON since."""
    for manner, (status, text) in ((RUNNER, runner), (LLAMA_SERVER, llama_server)):
        async with FakeOllama(manner=manner) as server, client_of(server) as client:
            answer = await client.post("/api/chat", json=chat(format=schema))

        assert answer.status_code == status
        assert text in answer.json()["error"]


async def test_a_runner_that_crashed_is_loaded_again(server, http):
    """The crash empties the memory, and the next request loads the model."""
    server.resident[MODEL] = 4_096
    too_long = {"type": "string", "maxLength": 16_000}

    await http.post("/api/chat", json=chat(format=too_long))
    resident = (await http.get("/api/ps")).json()["models"]
    await whole(http)

    assert resident == []
    assert server.loads_begun == 1


async def test_a_format_that_is_neither_json_nor_a_schema_is_a_500(http):
    """The text quotes the quoted value."""
    answer = await http.post("/api/chat", json=chat(format="xml"))

    assert answer.status_code == 500
    assert answer.json()["error"].startswith(r'invalid format: "\"xml\""')


@pytest.mark.parametrize("body", [b'{"model": "x", ', b"not json", b"[]"])
async def test_a_malformed_body_is_a_400(http, body):
    """Cut off, no JSON, no object."""
    assert (await http.post("/api/chat", content=body)).status_code == 400


@pytest.mark.parametrize("name", ["../etc/passwd", "a b", "x:y:z", "-"])
async def test_an_impossible_model_name_is_a_400(http, name):
    """The name cannot be that of a model that is merely missing."""
    answer = await http.post("/api/show", json={"model": name})

    assert (answer.status_code, answer.json()) == (400, {"error": "invalid model name"})


async def test_a_foreign_host_header_is_an_empty_403(http):
    """The guard against rebinding lets loopback, private addresses and local names through."""
    foreign = await http.get("/api/version", headers={"host": "models.example.com"})
    local = [
        (await http.get("/api/version", headers={"host": host})).status_code
        for host in ("localhost:11434", "192.168.1.5", "gpu.local", "[::1]:11434", "ollama.internal")
    ]

    assert (foreign.status_code, foreign.content) == (403, b"")
    assert "content-type" not in foreign.headers
    assert set(local) == {200}


async def test_an_empty_chat_loads_and_with_keep_alive_zero_frees(http):
    """`load` and `unload`, and /api/ps follows."""
    loaded = await whole(http, messages=[])
    before = (await http.get("/api/ps")).json()["models"]
    freed = await whole(http, messages=[], keep_alive=0)
    after = (await http.get("/api/ps")).json()["models"]

    assert (loaded["done_reason"], freed["done_reason"]) == ("load", "unload")
    assert ([model["name"] for model in before], after) == ([MODEL], [])


async def test_show_has_nulls_for_long_arrays_and_lists_tensors(http):
    """`verbose` brings the arrays; `system` and `tensors` are there in any case."""
    short = (await http.post("/api/show", json={"model": MODEL})).json()
    verbose = (await http.post("/api/show", json={"model": MODEL, "verbose": True})).json()

    assert short["model_info"]["tokenizer.ggml.tokens"] is None
    assert len(verbose["model_info"]["tokenizer.ggml.tokens"]) > 1_024
    assert short["system"]
    assert set(short["tensors"][0]) == {"name", "type", "shape"}


async def test_an_error_before_the_first_chunk_is_json_of_no_known_length(http):
    """A streamed request's error is chunked application/json; a request that is refused at once has a length."""
    long = {"num_ctx": 256}
    chunked = await http.post("/api/chat", json=chat(LONG, truncate=False, options=long))
    at_once = await http.post("/api/chat", json=chat(LONG, truncate=False, options=long, stream=False))

    assert (chunked.status_code, at_once.status_code) == (400, 400)
    assert chunked.json() == at_once.json()
    assert chunked.headers["content-type"] == "application/json"
    assert chunked.headers["transfer-encoding"] == "chunked"
    assert "content-length" in at_once.headers


@pytest.mark.parametrize("behaviour", ["crash", "crash-chunked"])
async def test_a_crash_is_the_same_error_chunked_or_not(server, http, behaviour):
    """Both forms exist, and both say the same."""
    server.behaviour = BEHAVIOURS[behaviour]

    answer = await http.post("/api/chat", json=chat())

    assert answer.status_code == 500
    assert "runner has unexpectedly stopped" in answer.json()["error"]
    assert ("content-length" in answer.headers) == (behaviour == "crash")


async def test_a_wrong_method_is_told_the_right_ones(http):
    """405 with `Allow`."""
    answers = [await http.get("/api/chat"), await http.post("/api/tags"), await http.post("/")]

    assert [(answer.status_code, answer.headers["allow"]) for answer in answers] == [
        (405, "POST"),
        (405, "GET"),
        (405, "GET, HEAD"),
    ]


async def test_an_answer_of_one_token_has_no_duration(http):
    """The fake leaves out a duration of zero."""
    one = await whole(http, options={"num_predict": 1})
    two = await whole(http, options={"num_predict": 2})

    assert (one["eval_count"], "eval_duration" in one) == (1, False)
    assert (two["eval_count"], two["eval_duration"] > 0) == (2, True)


async def test_the_window_fills_while_an_answer_is_written(server, http):
    """An answer that fills the window ends there, as `length`; with shift it goes on to its own end."""
    server.responder = words
    options = {"num_ctx": 600}

    held = await whole(http, messages=LONG, shift=False, options=options)
    shifted = await whole(http, messages=LONG, shift=True, options=options)

    assert (held["done_reason"], held["prompt_eval_count"] + held["eval_count"]) == ("length", 600)
    assert (shifted["done_reason"], shifted["eval_count"]) == ("stop", 1_000)


@pytest.mark.parametrize(("manner", "reloads"), [(RUNNER, 1), (LLAMA_SERVER, 2)], ids=lambda value: str(value))
async def test_another_window_or_shift_loads_the_model_anew(manner, reloads):
    """`num_ctx` changes it in every version, `shift` since 0.30; an option that stays the same loads nothing."""
    async with FakeOllama(manner=manner, loaded=False) as server, client_of(server) as client:
        for num_ctx, shift in ((1_024, False), (1_024, False), (2_048, False), (2_048, True)):
            await whole(client, shift=shift, options={"num_ctx": num_ctx})

    assert (server.loads_begun, server.reloads) == (1 + reloads, reloads)


async def test_two_names_of_one_blob_are_one_model_in_memory(http, server):
    """/api/ps has the name that was loaded first; the other finds its model there by the digest."""
    copy = FakeModel(name="summaries:latest", blob="one")
    server.models = [FakeModel(blob="one"), copy]
    await whole(http, options={"num_ctx": 1_024})

    await http.post("/api/chat", json=chat(options={"num_ctx": 1_024}) | {"model": copy.name, "stream": False})
    resident = (await http.get("/api/ps")).json()["models"]

    assert [(model["name"], model["digest"]) for model in resident] == [(MODEL, copy.digest)]
    assert server.reloads == 0


async def test_a_prompt_that_was_read_before_is_read_from_where_it_differs(server, http):
    """The duration shrinks to the new part's; the count stays the whole prompt's."""
    server.runner.pace = Pace(prefill_tokens_per_s=100_000)
    first = await whole(http, messages=LONG)

    again = await whole(http, messages=[*LONG, *QUESTION])
    server.runner.forget()
    other = await whole(http, messages=[*LONG, *QUESTION])

    assert again["prompt_eval_count"] == other["prompt_eval_count"] > first["prompt_eval_count"]
    assert again["prompt_eval_duration"] * 10 < first["prompt_eval_duration"] < other["prompt_eval_duration"]


async def test_the_pace_is_what_the_durations_say(server, http):
    """Two seconds a hundred times as fast are twenty milliseconds, and so are its tokens."""
    server.runner.pace = Pace(prefill_s=2, tokens_per_s=100).scaled(0.01)

    answer = await whole(http, options={"num_predict": 5})

    assert answer["prompt_eval_duration"] == 20_000_000
    assert answer["eval_duration"] == 4 * 100_000


async def test_a_tokenizer_of_its_own_counts_as_it_likes():
    """The server's count is not our estimate: three tokens a word, as Hindi costs many models."""
    async with FakeOllama(models=[FakeModel(token_ratio=3.0)]) as server, client_of(server) as client:
        answer = await whole(client, messages=LONG)
        refused = await client.post("/api/chat", json=chat(LONG, truncate=False, options={"num_ctx": 1_024}))

    assert answer["prompt_eval_count"] > 2.9 * count_tokens(LONG[0]["content"])
    assert refused.status_code == 400


async def left_alone(server: FakeOllama, client: httpx.AsyncClient, **fields: Any) -> None:
    """Ask, and leave as soon as the server works on it."""
    asking = asyncio.create_task(client.post("/api/chat", json=chat(**fields)))
    await server.until(lambda fake: fake.runner.prefilling == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await server.until(lambda fake: fake.left == 1)


async def test_a_client_that_leaves_during_prefill_leaves_its_slot_occupied(server, http):
    """The next request waits until the prompt that nobody waits for has been read."""
    server.runner.prefill_gate.clear()
    await left_alone(server, http, messages=LONG)
    next_one = asyncio.create_task(whole(http))
    await server.until(lambda fake: len(fake.asked()) == 2)

    # One more answer of the server's has come and gone, so that the request has had its turn to take a slot.
    await http.get("/api/version")
    held = (server.runner.prefills_left, server.runner.prefilling, next_one.done())
    server.runner.prefill_gate.set()

    assert (await next_one)["done_reason"] == "stop"
    assert held == (1, 1, False)
    assert server.working_most == 1


async def test_the_newer_generation_stops_a_prefill_that_nobody_waits_for():
    """llama-server looks for cancelled tasks between batches."""
    async with FakeOllama(manner=LLAMA_SERVER) as server, client_of(server) as client:
        server.runner.prefill_gate.clear()
        await left_alone(server, client, messages=LONG)
        await server.until(lambda fake: fake.runner.prefilling == 0)
        server.runner.prefill_gate.set()
        answer = await whole(client)

    assert server.runner.prefills_left == 0
    assert answer["done_reason"] == "stop"


async def test_a_client_that_leaves_while_an_answer_is_written_frees_its_slot_at_once(server, http):
    """The runner notices between two tokens."""
    server.behaviour = BEHAVIOURS["stall"]
    async with http.stream("POST", "/api/chat", json=chat()) as answer:
        await anext(answer.aiter_lines())
    server.behaviour = BEHAVIOURS["normal"]

    assert (await whole(http))["done_reason"] == "stop"
    assert server.runner.prefills_left == 0


async def test_the_schema_of_our_records_is_none_of_those_that_break():
    """The schema that we send passes every version's checks."""
    for version in ("0.12.6", "0.24.0", "0.30.11", "0.33.0"):
        async with FakeOllama(manner=Manner(version)) as server, client_of(server) as client:
            assert json.loads((await whole(client, format=RECORD_SCHEMA))["message"]["content"])
