"""Counts with a model's own tokenizer, from the extra `exact`: a `tokenizer.json`, or one rebuilt from its vocabulary.

The library reads its text alone and never the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from abridged.service.domain.tokens import TokenCounter, TokenSource
from abridged.service.tokenizers.errors import TokenizerMissing, VocabularyUnknown

TOKENIZER_BYTES_MAX: Final = 64_000_000
"""Largest tokenizer.json; that of Gemma 3 has 33 MB."""


def reads_tokenizers() -> bool:
    """Return whether the extra is installed."""
    return find_spec("tokenizers") is not None


def require_exact() -> None:
    """Raise TokenizerMissing unless the extra is installed."""
    if not reads_tokenizers():
        raise TokenizerMissing(
            "exact counts need the package extra `exact`: scripts/install exact, or pip install 'PATH[exact]'"
        )


class ExactCounter:
    """Counts for one model. `name` goes into events. Thread-safe.

    The constructor takes up to a second for a large vocabulary, and raises VocabularyUnknown for a text that is no
    tokenizer.
    """

    def __init__(self, name: str, model: str, tokenizer_json: str) -> None:
        from tokenizers import Tokenizer

        self.name = name
        self._model = model
        try:
            self._tokenizer: Any = Tokenizer.from_str(tokenizer_json)
        except Exception as error:
            raise VocabularyUnknown("the tokenizer cannot be read") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def count(self, text: str) -> int:
        """Tokens of `text`, without those that a template adds."""
        if not text:
            return 0
        # The batch call lets other threads run meanwhile, and a batch of one takes one thread.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return max(1, len(encoding.ids))

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def source_for(self, model: str) -> TokenSource:
        """TOKENIZER for the model whose tokenizer it is, otherwise ESTIMATE."""
        own = model.removeprefix("ollama:") == self._model
        return TokenSource.TOKENIZER if own else TokenSource.ESTIMATE

    def of(self, _model: str) -> TokenCounter:
        return self
