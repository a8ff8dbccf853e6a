"""Models by their names in the settings."""

from __future__ import annotations

import time

import pytest

from observability.labels import MetricLabels
from observability.metrics import Metrics
from service.bootstrap.providers import Providers
from service.config.settings import PROVIDERS, OllamaSettings
from service.domain.tokens import TokenCounter
from service.tokenizers.choice import counter_named

COUNTER: TokenCounter = counter_named("estimate")
NAMES = {"ollama": "ollama:qwen2.5:3b", "extractive": "extractive:default", "scripted": "scripted:default"}


@pytest.fixture
async def providers():
    labels = MetricLabels(models=("m",), hosts=("127.0.0.1:11434",), methods=(), timed_methods=(), event_types=())
    made = Providers(
        OllamaSettings(),
        metrics=Metrics(version="1", labels=labels),
        counter=COUNTER,
        clock_s=time.monotonic,
        cache_dir=None,
    )
    yield made
    await made.close()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_that_settings_may_name_makes_its_own_models(providers, provider):
    """What passes the settings exists, and is no other provider's."""
    assert providers.preferred([NAMES[provider]]).name == NAMES[provider]


def test_a_provider_that_nobody_makes_is_an_error_and_no_model_of_ollama(providers):
    """Who adds a name to the settings alone learns it at the start, not from Ollama's missing model."""
    with pytest.raises(AssertionError, match="openai is a provider"):
        providers.preferred(["openai:gpt"])
