"""Vocabularies as Ollama's verbose description has them, of tokenizers that are on this machine.

`llama_info` is that of Llama 2, whose tokenizer.json comes with the package `wordllama`. `byte_level_info` is that of a
small byte-level vocabulary, trained here on our own text.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

_FILE = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_TEXT = (
    "The importer of orders-db reads table orders_17 at four in the morning and isn't done before nine; we'll see. "
    "Die Lieferung verzögert sich um zwei Tage. Вчера мы закончили проверку договоров. 会議は来週に延期されました。 "
    'def read(path):\n    return {"rows": 4096, "host": "10.0.0.7"}\n\n\t// 2026-03-12T10:11:12Z 🎉 '
)


@cache
def llama_json() -> str:
    """The tokenizer.json of Llama 2. Skips the test without the package."""
    try:
        package = distribution("wordllama")
    except PackageNotFoundError:
        pytest.skip("the extra `recall` brings the vocabulary")
    return Path(str(package.locate_file(_FILE))).read_text(encoding="utf-8")


@cache
def llama_info() -> MappingProxyType[str, Any]:
    """The vocabulary as a `model_info`: kinds of tokens, and scores in the order of merges. Every test shares it."""
    model = json.loads(llama_json())["model"]
    by_number = {number: token for token, number in model["vocab"].items()}
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(model["merges"]):
        ranks.setdefault("".join(merge if isinstance(merge, list) else merge.split(" ")), rank)
    tokens = [by_number[number] for number in range(len(by_number))]
    return MappingProxyType(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [_kind(token) for token in tokens],
            "tokenizer.ggml.scores": [-float(ranks.get(token, len(tokens) * 4)) for token in tokens],
        }
    )


def _kind(token: str) -> int:
    if token == "<unk>":
        return 2
    if token in ("<s>", "</s>"):
        return 3
    return 6 if len(token) == 6 and token.startswith("<0x") else 1


def byte_level_info(pre: str = "gpt-2") -> tuple[dict[str, Any], Any]:
    """A vocabulary of a thousand tokens, and the tokenizer that it was trained as, which splits as GPT-2 does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1_000, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator([_TEXT * 20], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
    }, tokenizer


def bytes_alone_info() -> dict[str, Any]:
    """A vocabulary that covers every byte and joins none but two: five times as many tokens as a chat model counts."""
    info, _ = byte_level_info()
    single = [token for token in info["tokenizer.ggml.tokens"] if len(token) == 1]
    return info | {
        "tokenizer.ggml.tokens": [*single, "qz"],
        "tokenizer.ggml.token_type": [1] * (len(single) + 1),
        "tokenizer.ggml.merges": ["q z"],
    }


def three_token_info() -> dict[str, Any]:
    """A vocabulary by which every text is one unknown token."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"],
        "tokenizer.ggml.token_type": [2, 3, 3],
        "tokenizer.ggml.scores": [float("nan")] * 3,
    }
