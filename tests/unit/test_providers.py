"""Models by their names in the settings."""

from __future__ import annotations

import time

import pytest

from observability.labels import MetricLabels
from observability.metrics import Metrics
from service.bootstrap.providers import Providers
from service.config.settings import PROVIDERS, OllamaSettings

NAMES = {"ollama": "ollama:qwen2.5:3b", "scripted": "scripted:default"}


@pytest.fixture
async def providers():
    labels = MetricLabels(models=("m",), hosts=("127.0.0.1:11434",), methods=(), timed_methods=(), event_types=())
    made = Providers(
        OllamaSettings(),
        metrics=Metrics(version="1", labels=labels),
        clock_s=time.monotonic,
        cache_dir=None,
    )
    yield made
    await made.close()


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "extractive"])
def test_every_provider_that_settings_may_name_makes_its_own_models(providers, provider):
    """What passes the settings exists, and is no other provider's."""
    assert providers.preferred([NAMES[provider]]).name == NAMES[provider]


@pytest.mark.parametrize("name", ["extractive:default", "extractive:"])
def test_extraction_is_no_model(providers, name):
    """A list that begins with it has none, and what stands behind it is never asked."""
    assert providers.preferred([name, "ollama:qwen2.5:3b"]) is None
    assert providers.preferred(["scripted:default", name, "ollama:qwen2.5:3b"]).name == "scripted:default"


def test_a_provider_that_nobody_makes_is_an_error_and_no_model_of_ollama(providers):
    """Who adds a name to the settings alone learns it at the start, not from Ollama's missing model."""
    with pytest.raises(AssertionError, match="openai is a provider"):
        providers.preferred(["openai:gpt"])
