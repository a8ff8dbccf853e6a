"""Counts with a real byte-pair vocabulary, from the extra `bpe`; loaded on first use.

Counts are exact for the models trained with the vocabulary, and estimates for any other.

The library only counts texts below a million characters and 200,000 tokens, so long texts are counted in pieces. Text
is always counted as text: what looks like a special token is what somebody typed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Final, Protocol

from abridged.service.domain.tokens import TokenCounter, TokenSource
from abridged.service.tokenizers.errors import TokenizerMissing
from abridged.service.tokenizers.vocabularies import vocabulary_of

VOCABULARIES: Final = {"o200k": "o200k_base", "cl100k": "cl100k_base"}
"""Vocabularies: our names and the library's."""

_PIECE_CHARS_MAX: Final = 50_000
"""A character is at most four tokens, one per byte, so no piece exceeds the library's 200,000 tokens."""

_CUT_SEARCH_CHARS: Final = 2_000
"""Characters before a piece's end in which a line break or space is looked for."""


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


class EmbeddedCounter:
    """Counts with vocabulary `o200k` or `cl100k`. Thread-safe.

    The constructor raises TokenizerMissing without the extra, so that a wrong setting fails at start.
    """

    def __init__(self, vocabulary: str) -> None:
        _require_library()
        self.name = f"bpe:{vocabulary}"
        self._library_name = VOCABULARIES[vocabulary]
        self._vocabulary = vocabulary
        self._encoding: _Encoding | None = None
        self._loading = threading.Lock()

    def count(self, text: str) -> int:
        """Tokens in `text`; exact up to 50,000 characters, above that at most one more per piece."""
        if not text:
            return 0
        encoding = self._loaded()
        return sum(len(encoding.encode_ordinary(piece)) for piece in _pieces(text))

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def source_for(self, model: str) -> TokenSource:
        """TOKENIZER for the vocabulary's own models, on any server, otherwise ESTIMATE."""
        exact = vocabulary_of(model) == self._vocabulary
        return TokenSource.TOKENIZER if exact else TokenSource.ESTIMATE

    def of(self, _model: str) -> TokenCounter:
        return self

    def _loaded(self) -> _Encoding:
        with self._loading:
            if self._encoding is None:
                # Imported here because loading costs 140 MB and a second that most installations never need.
                import bpe_openai

                self._encoding = bpe_openai.get_encoding(self._library_name)
            return self._encoding


def is_embedded(vocabulary: str) -> bool:
    """Return whether the vocabulary can be counted with here: the library has it, and its extra is installed."""
    return vocabulary in VOCABULARIES and find_spec("bpe_openai") is not None


@cache
def embedded_counter(vocabulary: str) -> EmbeddedCounter:
    """The vocabulary's counter, loaded: that takes a second, once."""
    counter = EmbeddedCounter(vocabulary)
    counter.count("loaded")
    return counter


def _require_library() -> None:
    if find_spec("bpe_openai") is None:
        raise TokenizerMissing("counter `bpe` needs the package extra `bpe`: pip install 'PATH[bpe]'")


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = min(start + _PIECE_CHARS_MAX, len(text))
        if end < len(text):
            end = _cut_before(text, end)
        yield text[start:end]
        start = end


def _cut_before(text: str, end: int) -> int:
    """An index near `end` where the vocabulary also splits: before a space, after a line break, otherwise `end`."""
    first = end - _CUT_SEARCH_CHARS
    space = text.rfind(" ", first, end)
    if space > 0:
        return space
    line_end = text.rfind("\n", first, end)
    return line_end + 1 if line_end > 0 else end
