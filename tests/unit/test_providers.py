"""Models by their names in the settings."""

from __future__ import annotations

import time

import pytest

from abridged.observability.metrics import Metrics
from abridged.service.bootstrap.providers import Providers, host_labels
from abridged.service.config.settings import Settings
from abridged.service.telemetry.telemetry import metric_labels
from tests.support.openai_quirks import Quirks
from tests.support.openai_server import FakeOpenAI


@pytest.fixture
async def providers():
    labels = metric_labels(models=("m",), hosts=("127.0.0.1:11434",), methods=(), timed_methods=(), event_types=())
    made = Providers(
        Settings(),
        metrics=Metrics(version="1", labels=labels),
        clock_s=time.monotonic,
        cache_dir=None,
    )
    yield made
    await made.close()


@pytest.mark.parametrize("kind", Settings.provider_types, ids=lambda kind: kind.name)
def test_every_provider_that_settings_may_name_makes_its_own_models(providers, kind):
    """A model that the settings accept exists, and is no other provider's."""
    name = f"{kind.name}:{kind.example or 'default'}"

    assert providers.preferred([name]).name == name


@pytest.mark.parametrize("group", ["summarizer", "titles"])
def test_the_endpoint_has_a_breaker_in_metrics_if_a_setting_names_a_model_of_it(group):
    """The endpoint comes after the first host, because only the first few names get series."""
    hosts = {"ollama": {"hosts": ["a", "b", "c", "d"]}, "openai": {"url": "http://vllm:8000/v1"}}
    named = {group: {"models": ["ollama:small", "openai:large"]}}

    assert host_labels(Settings.model_validate(hosts)) == ("a:11434", "b:11434", "c:11434", "d:11434")
    assert host_labels(Settings.model_validate(hosts | named))[:2] == ("a:11434", "vllm:8000")


async def test_an_endpoint_gets_no_call_before_a_setting_names_a_model_of_it():
    """Clients choose the names of chat models: nothing is sent to an endpoint because of them alone."""
    async with FakeOpenAI() as server:
        made = Providers(
            Settings.model_validate({"openai": {"url": server.url}}),
            metrics=Metrics(version="1", labels=metric_labels()),
            clock_s=time.monotonic,
            cache_dir=None,
        )
        unnamed = await made.context_length("openai:gpt-fake")
        asked = list(server.requests)
        server.quirks = Quirks(listed={"max_model_len": 3_000})
        made.preferred(["openai:gpt-fake"])
        named = await made.context_length("openai:gpt-fake")
        await made.close()

    assert (unnamed, asked, named) == (None, [], 3_000)


@pytest.mark.parametrize("name", ["extractive:default", "extractive:"])
def test_extraction_is_no_model(providers, name):
    """A list that begins with it has none, and a model behind it is never asked."""
    assert providers.preferred([name, "ollama:qwen2.5:3b"]) is None
    assert providers.preferred(["scripted:default", name, "ollama:qwen2.5:3b"]).name == "scripted:default"


def test_a_provider_that_is_not_listed_is_an_error_and_no_model_of_ollama(providers):
    """A name that passed the settings by mistake fails at the start, not as Ollama's missing model."""
    with pytest.raises(AssertionError, match="anthropic is no provider"):
        providers.preferred(["anthropic:claude"])
