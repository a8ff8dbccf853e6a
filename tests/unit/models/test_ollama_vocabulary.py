"""A model's tokenizer from Ollama's verbose description: read once per digest, bounded, cached for its owner alone."""

from __future__ import annotations

import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from abridged.service.models.http.fields import NotAnObject, read_object
from abridged.service.models.ollama import vocabulary
from abridged.service.models.ollama.host import open_hosts
from abridged.service.models.ollama.settings import parse_address
from abridged.service.models.ollama.vocabulary import Vocabularies
from abridged.service.tokenizers.errors import VocabularyAway, VocabularyUnknown
from abridged.service.tokenizers.exact import ExactCounter
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_model import PATIENT
from tests.support.ollama_server import FakeOllama
from tests.support.vocabularies import byte_level_info

TEXT = "The importer isn't done: 4096 rows.\n"


@asynccontextmanager
async def vocabularies(*servers: FakeOllama, directory: Path | None = None) -> AsyncIterator[Vocabularies]:
    hosts = open_hosts([parse_address(server.url) for server in servers], PATIENT, clock=time.monotonic)
    try:
        yield Vocabularies(hosts, PATIENT, clock=time.monotonic, directory=directory)
    finally:
        for host in hosts:
            await host.close()


def fake(*, pre: str = "gpt-2") -> FakeModel:
    return FakeModel(vocabulary=byte_level_info(pre)[0])


def described(server: FakeOllama) -> Sequence[object]:
    return [request for request in server.requests if request.path == "/api/show"]


async def test_the_tokenizer_of_a_model_is_rebuilt_from_its_description():
    """The rebuilt tokenizer counts as the one that the vocabulary was trained for."""
    model = fake()
    async with FakeOllama(models=[model]) as server, vocabularies(server) as source:
        found = await source.tokenizer_json(model.name)

    real = byte_level_info()[1]
    assert ExactCounter("x", model.name, found).count(TEXT) == len(real.encode(TEXT).ids)


async def test_a_description_is_read_once_and_kept_for_its_owner_alone(tmp_path):
    """The next process finds the tokenizer by the model's digest and asks for no description."""
    model, folder = fake(), tmp_path / "models"
    async with FakeOllama(models=[model]) as server:
        async with vocabularies(server, directory=folder) as source:
            first = await source.tokenizer_json(model.name)
        async with vocabularies(server, directory=folder) as source:
            again = await source.tokenizer_json(model.name)
        asked = len(described(server))

    (file,) = folder.iterdir()
    assert (again, asked) == (first, 1)
    assert file.name == f"{model.digest}.tokenizer.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_an_unknown_pre_tokenizer_is_reported_and_nothing_is_cached(tmp_path):
    """The reason names it, for doctor, CountTokens and the log."""
    model = fake(pre="of-tomorrow")
    async with FakeOllama(models=[model]) as server, vocabularies(server, directory=tmp_path) as source:
        with pytest.raises(VocabularyUnknown, match="of-tomorrow"):
            await source.tokenizer_json(model.name)

    assert list(tmp_path.iterdir()) == []


async def test_a_host_without_arrays_has_no_tokenizer():
    """A cloud model, and a proxy that leaves them out."""
    async with FakeOllama() as server, vocabularies(server) as source:
        with pytest.raises(VocabularyUnknown, match="no token types"):
            await source.tokenizer_json(FakeModel().name)


async def test_a_host_that_cannot_be_asked_may_be_asked_again():
    """The next host is asked first."""
    model = fake()
    async with (
        FakeOllama(behaviour=BEHAVIOURS["unauthorized"]) as dead,
        FakeOllama(models=[model]) as alive,
        vocabularies(dead, alive) as both,
        vocabularies(dead) as one,
    ):
        assert await both.tokenizer_json(model.name)
        with pytest.raises(VocabularyAway):
            await one.tokenizer_json(model.name)


def test_a_description_is_bounded():
    """More bytes or brackets than any vocabulary has are no description; a small one may be longer than an answer."""
    text = b'{"a": "' + b"x" * 2_000_000 + b'"}'
    large = {"bytes_max": vocabulary.DESCRIPTION_BYTES_MAX, "containers_max": 10}

    assert len(read_object(text, **large)["a"]) == 2_000_000
    with pytest.raises(NotAnObject):
        read_object(text)
    with pytest.raises(NotAnObject):
        read_object(b'{"a": [' + b"[]," * 20 + b"[]]}", **large)
    with pytest.raises(NotAnObject):
        read_object(text, bytes_max=1_000_000, containers_max=10)
