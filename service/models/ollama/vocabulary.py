"""A model's own tokenizer, rebuilt from Ollama's verbose description of it: fetched once per digest, cached on disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from abridged.service.models.deadline import Deadline
from abridged.service.models.http.fields import NotAnObject, read_object
from abridged.service.models.model import ModelError
from abridged.service.models.ollama.description import digest_of
from abridged.service.models.ollama.host import OllamaHost
from abridged.service.models.ollama.settings import OllamaSettings
from abridged.service.tokenizers.errors import VocabularyAway, VocabularyUnknown
from abridged.service.tokenizers.exact import TOKENIZER_BYTES_MAX
from abridged.service.tokenizers.rebuilt import rebuilt
from abridged.service.whole_file import whole_file

DESCRIPTION_BYTES_MAX: Final = 32_000_000
"""Largest verbose description: those of vocabularies with 150,000 to 260,000 tokens have 8 to 20 MB."""

_COMMAS_MAX: Final = 2_000_000
"""Commas, one for each value: Gemma 3's tokens, kinds, scores and merges are 1.3 million. Each value takes some 60
bytes once it is parsed, so they are counted before."""

_CONTAINERS_MAX: Final = 100_000
"""Opening brackets, most of them in tokens and merges."""

DESCRIBED_S: Final = 60.0
"""Seconds for the whole description, which a host reads from disk."""


class Vocabularies:
    """Tokenizers from the first of `hosts` that has the model; `directory` keeps one file per digest, for its owner
    alone."""

    def __init__(
        self,
        hosts: Sequence[OllamaHost],
        settings: OllamaSettings,
        *,
        clock: Callable[[], float],
        directory: Path | None,
    ) -> None:
        self._hosts = hosts
        self._settings = settings
        self._clock = clock
        self._directory = directory

    async def tokenizer_json(self, model: str) -> str:
        """The model's tokenizer.json. Raises VocabularyUnknown, or VocabularyAway if no host can be asked."""
        failure = "no host"
        for host in self._hosts:
            try:
                return await self._of_host(host, model)
            except ModelError as error:
                failure = str(error)
        raise VocabularyAway(failure)

    async def _of_host(self, host: OllamaHost, model: str) -> str:
        host.check_circuit()
        deadline = Deadline(DESCRIBED_S, clock=self._clock)
        digest = digest_of(await host.get("/api/tags", deadline), model)
        path = self._directory / f"{digest}.tokenizer.json" if self._directory is not None and digest else None
        if path is not None and (saved := await asyncio.to_thread(_saved, path)) is not None:
            return saved
        body = json.dumps({"model": model, "verbose": True}).encode()
        described = await host.post_bytes(
            "/api/show", body, model=model, seconds=DESCRIBED_S, deadline=deadline, bytes_max=DESCRIPTION_BYTES_MAX
        )
        return await asyncio.to_thread(_rebuilt, described, path)


def _rebuilt(described: bytes, path: Path | None) -> str:
    if len(described) > DESCRIPTION_BYTES_MAX:
        raise VocabularyUnknown(f"the description has more than {DESCRIPTION_BYTES_MAX:,} bytes")
    if described.count(b",") > _COMMAS_MAX:
        raise VocabularyUnknown(f"the description has more than {_COMMAS_MAX:,} values")
    try:
        show = read_object(described, bytes_max=DESCRIPTION_BYTES_MAX, containers_max=_CONTAINERS_MAX)
    except NotAnObject as error:
        raise VocabularyUnknown(f"the description {error}") from error
    info: Any = show.get("model_info")
    if not isinstance(info, dict):
        raise VocabularyUnknown("the description has no model_info")
    made = rebuilt(info)
    if path is not None:
        _save(path, made)
    return made


def _saved(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size <= TOKENIZER_BYTES_MAX else None
    except (OSError, UnicodeDecodeError):
        # An unreadable cache is an empty cache: the host is asked again.
        return None


def _save(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(text.encode())
    except OSError:
        return
