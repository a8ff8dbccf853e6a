"""The counter for a chat model: its own tokenizer once that is known, and visibly another one until then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from abridged.service.domain.tokens import TokenSource
from abridged.service.tokenizers.errors import VocabularyAway, VocabularyUnknown
from abridged.service.tokenizers.estimated import EstimatingCounter
from abridged.service.tokenizers.model_counters import ASK_AGAIN_S, KEPT_MAX, ModelCounters
from abridged.service.tokenizers.rebuilt import rebuilt
from tests.support.vocabularies import byte_level_info


class World:
    """Counters whose server gives a test's answers."""

    def __init__(self, files: Mapping[str, Path] | None = None, *, asks: bool = True) -> None:
        self.now_s = 0.0
        self.asked: list[str] = []
        self.answer: str | Exception = rebuilt(byte_level_info()[0])
        fetch = self._fetch if asks else None
        self.counters = ModelCounters(EstimatingCounter(), files=files or {}, fetch=fetch, now_s=lambda: self.now_s)

    async def _fetch(self, model: str) -> str:
        self.asked.append(model)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def learned(self, *models: str) -> None:
        """Want these, and wait until nothing is under way."""
        for model in models:
            self.counters.want(model)
        await asyncio.gather(*self.counters._learning.values())


@asynccontextmanager
async def world(files: Mapping[str, Path] | None = None, *, asks: bool = True) -> AsyncIterator[World]:
    made = World(files, asks=asks)
    try:
        yield made
    finally:
        await made.counters.close()


async def test_a_model_is_estimated_until_its_tokenizer_is_known():
    """Nobody waits; the reason is shown meanwhile."""
    async with world() as w:
        w.counters.want("ollama:m")
        before = w.counters.of("ollama:m").name, w.counters.reason("ollama:m")
        await w.learned()
        counter = w.counters.of("ollama:m")

        assert before == ("estimate:o200k", "its tokenizer is being read")
        assert counter.name.startswith("tokenizer:")
        assert counter.source_for("ollama:m") is TokenSource.TOKENIZER
        assert (w.counters.reason("m"), w.counters.of("other").name, w.asked) == ("", "estimate:o200k", ["m"])
        await w.learned("m", "ollama:m")
        assert w.asked == ["m"]


async def test_what_cannot_be_rebuilt_is_said_and_not_asked_for_again():
    """A pre-tokenizer stays unknown until the program changes."""
    async with world() as w:
        w.answer = VocabularyUnknown("the pre-tokenizer 'x' is not known")
        await w.learned("m")
        w.now_s += 100 * ASK_AGAIN_S
        await w.learned("m")

        assert (w.asked, w.counters.reason("m")) == (["m"], "the pre-tokenizer 'x' is not known")
        assert w.counters.of("m").name == "estimate:o200k"


async def test_a_server_that_was_away_is_asked_again_after_a_while():
    """The server is not asked with every message."""
    async with world() as w:
        w.answer, answer = VocabularyAway("no host"), w.answer
        await w.learned("m")
        await w.learned("m")
        assert (w.asked, w.counters.reason("m")) == (["m"], "no host")

        w.answer, w.now_s = answer, ASK_AGAIN_S
        await w.learned("m")
        assert (w.asked, w.counters.reason("m")) == (["m", "m"], "")


async def test_a_file_comes_before_the_server(tmp_path):
    """The file is chosen by a glob on the model's name; one that is missing or no tokenizer is reported."""
    (tmp_path / "own.json").write_text(rebuilt(byte_level_info()[0]), encoding="utf-8")
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    files = {"own*": tmp_path / "own.json", "ollama:bad": tmp_path / "bad.json", "none": tmp_path / "none.json"}
    async with world(files) as w:
        await w.learned("ollama:own:3b", "bad", "none")

        assert w.asked == []
        assert w.counters.of("own:3b").name.startswith("tokenizer:")
        assert w.counters.reason("bad") == "the tokenizer cannot be read"
        assert "FileNotFoundError" in w.counters.reason("none")


async def test_clients_cannot_fill_the_memory_with_tokenizers():
    """They name the models, so places are bounded; a model without one has a reason."""
    async with world() as w:
        await w.learned(*(f"m{n}" for n in range(KEPT_MAX + 1)))

        assert len(w.asked) == KEPT_MAX
        assert w.counters.of(f"m{KEPT_MAX}").name == "estimate:o200k"
        assert "other models" in w.counters.reason(f"m{KEPT_MAX}")


async def test_nothing_is_learned_unless_it_is_asked_for():
    """The setting is off by default."""
    async with world(asks=False) as w:
        await w.learned("m", "")

        assert w.counters.of("m").name == "estimate:o200k"
        assert "tokens.exact" in w.counters.reason("m")
