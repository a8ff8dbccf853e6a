"""Ways to split a text before its byte pairs are merged, by the GGUF file's name for it in `tokenizer.ggml.pre`.

The expressions are those that the models' own tokenizers publish, with the class arithmetic that llama.cpp evaluates
where the two differ (`tekken`, `gpt-4o`). A name that is not here is not guessed: its models are estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class PreTokenizer(NamedTuple):
    """Expressions whose matches are split off, one after the other; `whole_first` says that a piece which is a token
    is not merged."""

    splits: tuple[str, ...]
    whole_first: bool = False


_ENDINGS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT: Final = r"\p{N}"
_WORDS: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3: Final = rf"{_ENDINGS}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN2: Final = rf"{_ENDINGS}|{_WORDS}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN35: Final = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER: Final = r"(?:(?=\p{L})[^a-z])"
_LOWER: Final = r"(?:(?=\p{L})[^A-Z])"
_BEFORE: Final = r"[^\r\n\p{L}\p{N}]?"
_SIGNS_SLASH: Final = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN: Final = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}|{_SIGNS_SLASH}|{_SPACES}"
_GPT4O: Final = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}{{1,3}}"
    rf"|{_SIGNS_SLASH}|{_SPACES}"
)
_DEEPSEEK3: Final = (
    r"\p{N}{1,3}",
    r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
)

_SHAPES: Final = (
    (PreTokenizer((_GPT2,)), "gpt-2 phi-2 olmo mpt jais exaone4 trillion granite-docling"),
    (PreTokenizer((_LLAMA3,), whole_first=True), "llama3 llama-v3 llama-bpe falcon3 pixtral"),
    (PreTokenizer((_LLAMA3,)), "dbrx smaug-bpe chatglm-bpe glm4"),
    (PreTokenizer((_QWEN2,)), "qwen2 deepseek-r1-qwen stablelm2 hunyuan"),
    (PreTokenizer((_QWEN35,)), "qwen35"),
    (PreTokenizer((_DIGIT, _GPT2)), "smollm starcoder refact command-r codeshell exaone minerva-7b"),
    (PreTokenizer((_TEKKEN,), whole_first=True), "tekken"),
    (PreTokenizer((_GPT4O,)), "gpt-4o llama4"),
    (PreTokenizer(_DEEPSEEK3), "deepseek-v3"),
)

PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = MappingProxyType(
    {name: shape for shape, names in _SHAPES for name in names.split()}
)
"""The pre-tokenizers by name."""
