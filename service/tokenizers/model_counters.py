"""The tokenizers of chat models, each learned in the background. The default counter counts until then, and for a model
without one.

No call waits for a tokenizer. Every event names the counter that counted; why a model has no tokenizer of its own is
logged once, and returned by CountTokens.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import structlog

from abridged.service.domain.tokens import TokenCounter, TokenSource
from abridged.service.tokenizers.embedded import embedded_counter, is_embedded
from abridged.service.tokenizers.errors import VocabularyAway, VocabularyUnknown
from abridged.service.tokenizers.estimated import EstimatingCounter
from abridged.service.tokenizers.exact import TOKENIZER_BYTES_MAX, ExactCounter
from abridged.service.tokenizers.vocabularies import vocabulary_of

Fetch = Callable[[str], Awaitable[str]]
"""Returns the tokenizer.json of a model. Raises VocabularyUnknown, or VocabularyAway if it can be asked again."""

KEPT_MAX: Final = 8
"""Most tokenizers in memory, some 60 MB each for a vocabulary of 150,000 tokens; clients choose the models."""

REASONS_MAX: Final = 1_000
ASK_AGAIN_S: Final = 60.0

KNOWN_TEXT: Final = (
    "We moved billing-api 2.14.1 to db-07.example.com because src/app/migrate.py failed twice with error E1043 in the "
    "night. The owner of OPS-2212 agreed to wait for the next window on Thursday, and asked that nobody restarts the "
    "import before the backup has been checked.\ndef read(path):\n    return {'rows': 4096}\n"
)
"""English and code, which every chat model's vocabulary covers."""

KNOWN_SHARE_MIN: Final = 0.3
KNOWN_SHARE_MAX: Final = 3.0
"""Allowed ratios of a tokenizer's count of KNOWN_TEXT to its estimate; Llama 2 and o200k have 0.9 to 1.4."""

_log = structlog.get_logger()


class ModelCounters:
    """`default`, and in its place the own tokenizer of each model that has one.

    `files` are paths of tokenizer.json by globs on models' names, and come before an `embedded` vocabulary, which comes
    before `fetch`. `want`, `tell` and `close` are called on the event loop, the rest in any thread.
    """

    def __init__(
        self,
        default: TokenCounter,
        *,
        files: Mapping[str, Path],
        fetch: Fetch | None,
        now_s: Callable[[], float],
        embedded: bool = False,
    ) -> None:
        self.name = default.name
        self.count = default.count
        self.counts = default.counts
        self.source_for = default.source_for
        self._default = default
        self._files = files
        self._fetch = fetch
        self._embedded = embedded
        self._now_s = now_s
        self._known: dict[str, TokenCounter] = {}
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._reasons: dict[str, tuple[str, float]] = {}
        self._on_ready: list[Callable[[str], None]] = []
        self._building = asyncio.Semaphore(1)

    @property
    def counts_exactly(self) -> bool:
        """True if any model may be counted by its own tokenizer."""
        return bool(self._files) or self._fetch is not None or self._embedded

    def of(self, model: str) -> TokenCounter:
        return self._known.get(_key(model)) or self._default.of(model)

    def reason(self, model: str) -> str:
        """Return why an estimate counts the model's tokens, for an operator; empty if its own tokenizer counts them."""
        key = _key(model)
        if key in self._known or self._default.source_for(model) is TokenSource.TOKENIZER:
            return ""
        if key in self._learning:
            return "its tokenizer is being read"
        return self._reasons.get(key, ("exact counts need tokens.exact, and the package extra `exact` or `bpe`", 0.0))[
            0
        ]

    def want(self, model: str) -> None:
        """Learn the model's tokenizer, unless that is under way, done, or failed lately."""
        key = _key(model)
        if not key or key in self._known or key in self._learning or self._now_s() < self._again_at(key):
            return
        path = next((path for glob, path in self._files.items() if fnmatchcase(key, _key(glob))), None)
        if path is None and self._fetch is None and not self._embeds(key):
            return
        if len(self._known) + len(self._learning) >= KEPT_MAX:
            self._failed(key, f"{KEPT_MAX} other models have theirs", again_s=ASK_AGAIN_S)
            return
        self._learning[key] = asyncio.create_task(self._learn(model, path), name=f"tokenizer {key}")

    def tell(self, on_ready: Callable[[str], None]) -> None:
        """Have `on_ready` called, on the event loop, with each model whose tokenizer is learned from now on."""
        self._on_ready.append(on_ready)

    async def close(self) -> None:
        """Learn no more."""
        for task in self._learning.values():
            task.cancel()
        await asyncio.gather(*self._learning.values(), return_exceptions=True)

    async def _learn(self, model: str, path: Path | None) -> None:
        key = _key(model)
        try:
            async with self._building:
                counter = await self._learned(key, path)
        except VocabularyUnknown as error:
            self._failed(key, str(error), again_s=float("inf"))
        except VocabularyAway as error:
            self._failed(key, str(error), again_s=ASK_AGAIN_S)
        else:
            self._known[key] = counter
            self._reasons.pop(key, None)
            _log.info("tokenizer.ready", model=key, counter=counter.name)
            for on_ready in self._on_ready:
                on_ready(model)
        finally:
            self._learning.pop(key, None)

    async def _learned(self, key: str, path: Path | None) -> TokenCounter:
        if path is not None:
            return await asyncio.to_thread(_built, key, await asyncio.to_thread(_read, path))
        if self._embeds(key):
            return await asyncio.to_thread(embedded_counter, vocabulary_of(key))
        counter = await asyncio.to_thread(_built, key, await self._fetched(key))
        _require_plausible(counter)
        return counter

    def _embeds(self, key: str) -> bool:
        return self._embedded and is_embedded(vocabulary_of(key))

    async def _fetched(self, key: str) -> str:
        assert self._fetch is not None, "what has neither file nor server is not learned"
        return await self._fetch(key)

    def _failed(self, key: str, reason: str, *, again_s: float) -> None:
        if self._reasons.pop(key, ("", 0.0))[0] != reason:
            counter = self._default.of(key).name
            remedy = f"messages stay counted by {counter}; tokens.tokenizer_files may name a tokenizer.json"
            _log.info("tokenizer.missing", model=key, hint=f"{reason}: {remedy}")
        if len(self._reasons) >= REASONS_MAX:
            del self._reasons[next(iter(self._reasons))]
        self._reasons[key] = (reason, self._now_s() + again_s)

    def _again_at(self, key: str) -> float:
        return self._reasons.get(key, ("", float("-inf")))[1]


def _key(model: str) -> str:
    return model.removeprefix("ollama:")


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > TOKENIZER_BYTES_MAX:
            raise VocabularyUnknown(f"{path} is larger than {TOKENIZER_BYTES_MAX:,} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise VocabularyUnknown(f"{path} cannot be read: {type(error).__name__}") from error


def _require_plausible(counter: ExactCounter) -> None:
    """Raise VocabularyUnknown for a tokenizer that a server described and that no chat model could have been trained
    with."""
    counted, estimated = counter.count(KNOWN_TEXT), EstimatingCounter().count(KNOWN_TEXT)
    if not KNOWN_SHARE_MIN * estimated <= counted <= KNOWN_SHARE_MAX * estimated:
        raise VocabularyUnknown(f"its vocabulary counts {counted} tokens in a text that has about {estimated}")


def _built(key: str, tokenizer_json: str) -> ExactCounter:
    name = f"tokenizer:{hashlib.sha256(tokenizer_json.encode()).hexdigest()[:12]}"
    return ExactCounter(name, key, tokenizer_json)
