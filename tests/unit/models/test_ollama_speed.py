"""Speed and models of a host: over the real wire, against fakes whose speed is known."""

from __future__ import annotations

import itertools
import time

import pytest

from abridged.service.models.inventory import ModelSpeed
from abridged.service.models.model import ModelUnavailable
from abridged.service.models.ollama.inventory import HostInventory, ModelEntry, inventory_of, missing_remedy, speed_of
from abridged.service.models.ollama.settings import OllamaSettings, parse_address
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_model import LATE_SOON, PATIENT, model_over, record_request
from tests.support.ollama_pace import Pace
from tests.support.ollama_server import FakeOllama

NONCES = itertools.count()


async def speed(server: FakeOllama, *, settings: OllamaSettings = PATIENT, thinks: bool = False) -> ModelSpeed:
    model = ModelEntry(server.models[0].name, context_length=server.models[0].context_length, thinks=thinks)
    return await speed_of(
        parse_address(server.url), model, settings, clock=time.monotonic, nonce=f"nonce-{next(NONCES)}"
    )


async def inventory(server: FakeOllama, *models: str) -> HostInventory:
    return await inventory_of(parse_address(server.url), models, token="", timeout_s=20.0, clock=time.monotonic)


async def test_the_speed_is_the_hosts_own_figure():
    """Tokens a second of prefill and of generation, from the durations of one answer."""
    async with FakeOllama(pace=Pace(prefill_tokens_per_s=5_000, tokens_per_s=500)) as server:
        found = await speed(server)

    assert found.read == pytest.approx(5_000, rel=0.1)
    assert found.written == pytest.approx(500, rel=0.1)
    assert found.read_s(10_000) == pytest.approx(2.0, rel=0.1)


async def test_a_cached_prompt_does_not_make_a_host_seem_fast():
    """The second question is as new to the host as the first."""
    async with FakeOllama(pace=Pace(prefill_tokens_per_s=5_000)) as server:
        await speed(server)
        again = await speed(server)

    assert again.read == pytest.approx(5_000, rel=0.15)


async def test_a_host_that_tells_no_durations_has_no_known_speed():
    """A proxy may leave the figures out."""
    async with FakeOllama(behaviour=BEHAVIOURS["no-count"]) as server:
        found = await speed(server)

    assert found.read is None
    assert found.read_s(1_000) is None


async def test_the_question_loads_the_model_as_the_next_pass_wants_it():
    """Window and shift are the pass's, so nothing is loaded anew."""
    async with FakeOllama(loaded=False) as server, model_over(server) as model:
        await speed(server)
        await model.complete(record_request(), deadline_s=20.0, on_progress=lambda _chars: None)

    assert (server.loads_begun, server.reloads) == (1, 0)


async def test_a_model_that_would_think_is_told_not_to():
    """Thoughts would be counted, and take their time."""
    thinker = FakeModel(capabilities=("completion", "thinking"))
    async with FakeOllama(models=[thinker]) as server:
        found = await inventory(server, thinker.name)
        await speed(server, thinks=found.models[0].thinks)

    assert server.asked()[0]["think"] is False


async def test_a_question_is_waited_for_as_long_as_a_pass_would_be():
    """The wait is not longer: a host that does not answer then answers no pass either."""
    async with FakeOllama(behaviour=BEHAVIOURS["hang"]) as server:
        with pytest.raises(ModelUnavailable, match=r"within 0\.3 s"):
            await speed(server, settings=LATE_SOON)


async def test_where_a_model_is_missing_the_others_that_could_answer_are_named():
    """Models for embeddings are none of them, and the list has an end."""
    embedding = FakeModel(name="nomic-embed-text:latest", capabilities=("embedding",), family="nomic-bert")
    chat = [FakeModel(name=f"chat:{number}b") for number in range(1, 6)]
    async with FakeOllama(models=[embedding, *chat]) as server:
        missing = await inventory(server, "never:1b")
        present = await inventory(server, "chat:1b")

    assert missing.others == ("chat:1b", "chat:2b", "chat:3b")
    assert present.others == ()


async def test_a_host_that_hides_its_list_names_no_others():
    """The remedy is shorter then."""
    async with FakeOllama() as server:
        server.hidden_paths = {"/api/tags"}
        found = await inventory(server, "never:1b")

    assert (found.models[0].is_missing, found.others) == (True, ())


def test_a_remedy_names_a_command_a_choice_and_a_way_without():
    """The remedies are commands that a person can type."""
    assert missing_remedy("a:1b", ("b:2b", "c:3b")) == (
        "pull it with `ollama pull a:1b`, or use one that the host has, `--set summarizer.models=ollama:b:2b` "
        "(also c:3b), or `--set summarizer.models=extractive:default`, which needs none"
    )
    assert "that the host has" not in missing_remedy("a:1b", ())
