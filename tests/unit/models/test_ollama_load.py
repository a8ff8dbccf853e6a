"""Loading: a model's load is never cut short by a call that gives up, and never done twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from abridged.service.models.http.errors import HostRefused
from abridged.service.models.model import Completion, ModelUnavailable, SummaryModel
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_manner import Manner
from tests.support.ollama_model import PATIENT, model_over, record_request
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S


async def ask(model: SummaryModel, *, deadline_s=PATIENCE_S, **fields) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=deadline_s, on_progress=lambda _chars: None)


async def test_a_call_that_gives_up_leaves_the_load_running():
    """The first call times out while the model loads; the next one finds it loaded, after a single load."""
    # Short enough to wait for, long enough for the second call to be answered by a busy machine.
    clocks = replace(PATIENT, first_byte_s=2.0)
    async with FakeOllama(loaded=False) as server, model_over(server, settings=clocks) as model:
        server.load_gate.clear()
        with pytest.raises(ModelUnavailable, match="still loading"):
            await ask(model)
        server.load_gate.set()

        completion = await ask(model)

    assert completion.text
    assert (server.loads_begun, server.loads_aborted) == (1, 0)


async def test_a_cancelled_call_leaves_the_load_running():
    """Cancelling a pass does not cost the load either."""
    async with FakeOllama(loaded=False) as server, model_over(server) as model:
        server.load_gate.clear()
        call = asyncio.create_task(ask(model))
        await server.until(lambda fake: fake.loads_begun == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        server.load_gate.set()
        await ask(model)

    assert (server.loads_begun, server.loads_aborted) == (1, 0)


async def test_a_deadline_shorter_than_the_load_fails_the_call_alone():
    """The deadline ends the wait, not the load."""
    async with FakeOllama(loaded=False) as server, model_over(server) as model:
        server.load_gate.clear()
        with pytest.raises(ModelUnavailable, match="the time of this request"):
            await ask(model, deadline_s=0.1)
        server.load_gate.set()
        await ask(model)

    assert server.loads_aborted == 0


LOOP_TURNS = 50
"""Turns enough for an answer that is there to be read by its caller."""


async def test_calls_that_wait_share_one_load():
    """Three callers, one load."""
    settings = replace(PATIENT, calls_max=3)
    async with FakeOllama(loaded=False) as server, model_over(server, settings=settings) as model:
        await ask(model)  # What the host says of itself is known from now on: to ask again would take a thread.
        server.resident.clear()
        server.load_gate.clear()
        calls = [asyncio.create_task(ask(model)) for _ in range(3)]
        await server.until(lambda fake: [r.path for r in fake.requests].count("/api/ps") >= 4 and fake.loads_begun == 2)
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
        server.load_gate.set()
        await asyncio.gather(*calls)

    assert server.loads_begun == 2
    assert [request.json["messages"] for request in server.requests if request.path == "/api/chat"].count([]) == 2


async def test_what_is_asked_at_once_is_read_once():
    """A check at the start and the first pass come together: the host describes its model to one of them."""
    async with FakeOllama() as server, model_over(server, settings=replace(PATIENT, calls_max=3)) as model:
        await asyncio.gather(model.describe(), ask(model), model.describe(), ask(model))

    assert [r.path for r in server.requests].count("/api/show") == 1


async def test_calls_never_make_the_server_load_again():
    """Requests of any size use the same window."""
    async with FakeOllama(loaded=False) as server, model_over(server) as model:
        for words in (0, 200, 900):
            await ask(model, words=words, output_tokens_max=50 + words)

    assert (server.loads_begun, server.reloads) == (1, 0)
    assert {body["options"]["num_ctx"] for body in server.asked()} == {PATIENT.num_ctx}


async def test_the_window_is_no_larger_than_the_model():
    """A small model's trained length caps the setting, and the description says so."""
    small = FakeModel(name="tiny:1b", context_length=512)
    async with FakeOllama(models=[small]) as server, model_over(server, model=small.name) as model:
        description = await model.describe()
        await ask(model)

    assert (description.context_length, description.window) == (512, 512)
    assert server.asked()[0]["options"]["num_ctx"] == 512


async def test_a_loaded_model_is_not_loaded_first():
    """A call to a model in memory is one request for inference."""
    async with FakeOllama() as server, model_over(server) as model:
        server.resident[FakeModel().name] = PATIENT.num_ctx
        await ask(model)

    assert [request.path for request in server.requests].count("/api/chat") == 1


async def test_another_name_of_a_loaded_model_is_not_loaded_first():
    """/api/ps has one name for each blob in memory; ours is found there by its digest."""
    copy = FakeModel(name="summaries:latest", blob="one")
    async with FakeOllama(models=[FakeModel(blob="one"), copy]) as server, model_over(server, model=copy.name) as model:
        del server.resident[copy.name]
        for _ in range(3):
            await ask(model)

    bodies = [request.json for request in server.requests if request.path == "/api/chat"]
    # Before the first call the digest is not known, and so it may ask for a load, which finds the model there.
    assert [bool(body["messages"]) for body in bodies][1:] == [True] * 3


@pytest.mark.parametrize("manner", [Manner("0.24.0"), Manner("0.33.0")], ids=lambda manner: manner.version)
async def test_a_load_that_fails_is_an_unavailable_model(manner):
    """The process that dies while loading, in both generations' words."""
    async with FakeOllama(manner=manner, loaded=False) as server, model_over(server) as model:
        server.load_error = manner.terminated_error()
        with pytest.raises(ModelUnavailable, match="failed to load"):
            await ask(model)
        server.load_error = ""
        assert (await ask(model)).text


async def test_closing_ends_a_load_that_nobody_needs():
    """The process can stop while a model loads."""
    async with FakeOllama(loaded=False) as server, model_over(server) as model:
        server.load_gate.clear()
        call = asyncio.create_task(ask(model))
        await server.until(lambda fake: fake.loads_begun == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await model.close()
        await server.until(lambda fake: fake.loads_aborted == 1)


async def test_facts_are_asked_for_once():
    """Version, digest and description come once a minute, not with each call."""
    async with FakeOllama() as server, model_over(server) as model:
        for _ in range(3):
            await ask(model)
        await model.describe()

    paths = [request.path for request in server.requests]
    assert [paths.count(path) for path in ("/api/version", "/api/tags", "/api/show", "/api/ps")] == [1, 1, 1, 3]


async def test_a_description_on_disk_saves_the_question(tmp_path):
    """A restart with a cache directory asks for the digest alone."""
    folder = tmp_path / "models"
    async with FakeOllama() as server:
        for _ in range(2):
            async with model_over(server, cache_dir=folder) as model:
                description = await model.describe()
                assert description.context_length == FakeModel().context_length

    assert [request.path for request in server.requests].count("/api/show") == 1
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o700, 0o600]


async def test_what_a_proxy_hides_is_not_needed():
    """A proxy that lets only show, chat and generate through serves all the same."""
    async with FakeOllama() as server, model_over(server) as model:
        server.hidden_paths = {"/api/version", "/api/tags", "/api/ps"}
        assert (await ask(model)).text


async def test_the_request_is_what_the_caller_asked_for():
    """The schema and all options arrive unchanged; cutting and shifting are switched off."""
    async with FakeOllama() as server, model_over(server) as model:
        await ask(model, seed=11, temperature=0.4, repeat_penalty=1.3, output_tokens_max=321)

    body = server.asked()[0]
    assert body["options"] == {
        "num_ctx": PATIENT.num_ctx, "num_predict": 321, "temperature": 0.4, "seed": 11, "repeat_penalty": 1.3,
    }  # fmt: skip
    assert (body["truncate"], body["shift"], body["stream"]) == (False, False, True)
    assert body["format"] == record_request().schema
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


async def test_a_token_goes_out_as_bearer_and_nowhere_else():
    """The setting's text form does not show it."""
    settings = replace(PATIENT, bearer_token="s3cret")
    async with FakeOllama() as server, model_over(server, settings=settings) as model:
        await ask(model)

    assert {request.headers.get("authorization") for request in server.requests} == {"Bearer s3cret"}
    assert "s3cret" not in repr(settings)


async def test_redirects_are_not_followed():
    """A prompt goes to the configured host only."""
    async with FakeOllama(behaviour=BEHAVIOURS["redirect"]) as server, model_over(server) as model:
        with pytest.raises(HostRefused, match="redirect"):
            await ask(model)

    assert server.requests
    assert all(request.path != "/elsewhere" for request in server.requests)
