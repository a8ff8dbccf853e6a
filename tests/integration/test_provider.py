"""A provider that the product does not have, added as CONTRIBUTING says: its object, and two lines of the settings."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from abridged.observability.labels import MetricLabels
from abridged.observability.metrics import Metrics
from abridged.service.bootstrap.providers import Providers
from abridged.service.cli.doctor import examined_models
from abridged.service.config.settings import Settings
from abridged.service.models.ollama.settings import OllamaGroup
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import summary_pb2
from tests.support.answers import record
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, sidecar
from tests.support.toy_provider import FakeToy, ToyGroup, ToySettings

ROOT = Path(__file__).parent.parent.parent


def with_toy(url: str):
    """The product's settings as the toy's, with a model of it."""

    def adapted(settings: Settings) -> ToySettings:
        summarizer = settings.summarizer.model_copy(update={"models": ("toy:parrot",)})
        return ToySettings.model_validate({**dict(settings), "summarizer": summarizer, "toy": ToyGroup(url=url)})

    return adapted


async def test_a_pass_is_made_by_a_provider_that_the_product_does_not_have(tmp_path):
    """The record says who made it, metrics count it, and its host has a breaker there."""
    async with FakeToy(record()) as server, sidecar(tmp_path, ANY_DRAFT, adapt=with_toy(server.url)) as s:
        chat = s.chat()
        done = (await chat.talk(20, wait_s=PATIENCE_S)).summarization
        (made,) = await chat.summaries()
        metrics = await s.http("/metrics")

    assert done.state == conversation.SUMMARIZATION_STATE_COMPLETED
    assert (made.model, made.provenance) == ("toy:parrot", summary_pb2.PROVENANCE_MODEL)
    assert {asked["model"] for asked in server.asked} == {"parrot"}
    assert f'host="{server.url.removeprefix("http://")}"' in metrics
    assert 'outcome="success"' in metrics


async def test_a_chat_models_context_length_is_asked_of_its_own_provider():
    """A name with the toy's prefix gets the toy's length; one with nobody's prefix is Ollama's, which is away here."""
    providers = Providers(
        ToySettings(ollama=OllamaGroup(hosts=("127.0.0.1:1",))),
        metrics=Metrics(version="1", labels=MetricLabels()),
        clock_s=time.monotonic,
        cache_dir=None,
    )

    lengths = [await providers.context_length(name) for name in ("toy:parrot", "parrot")]
    await providers.close()

    assert lengths == [4_096, None]


async def test_doctor_says_what_the_provider_finds():
    """The findings are the provider's own, in the order of the providers."""
    findings = await examined_models(ToySettings(), ["toy:parrot"], asks=False)

    assert [finding.what for finding in findings] == ["toy at http://127.0.0.1:1: parrot"]


@pytest.mark.parametrize("kind", [Settings, ToySettings])
def test_a_model_passes_the_settings_only_with_a_provider_that_is_listed(kind):
    """The list of provider types decides alone."""
    named = {"summarizer": {"models": ["toy:parrot"]}}

    if kind is ToySettings:
        assert kind.model_validate(named).providers[-1].models == ("parrot",)
    else:
        with pytest.raises(ValidationError, match="ollama, openai, scripted, extractive"):
            kind.model_validate(named)


def test_the_section_on_providers_names_files_that_exist():
    """A contributor who follows it finds every file."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## A model provider")[2].partition("\n## ")[0]
    named = [name for name in re.findall(r"`([\w/.]+)`", section) if "/" in name]

    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
