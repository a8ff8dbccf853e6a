"""A model's tokenizer from the vocabulary in its GGUF file, as Ollama's verbose description has it.

The result is the text of a `tokenizer.json`, so a rebuilt tokenizer is read, cached and used like one from a file. Two
kinds can be rebuilt: byte pairs over bytes (`gpt2`), with a known pre-tokenizer, and SentencePiece's byte pairs
(`llama`), whose merges follow from the scores. Typed text is counted as text: control tokens are a template's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from abridged.service.tokenizers.errors import VocabularyUnknown
from abridged.service.tokenizers.pre_tokenizers import PRE_TOKENIZERS

TOKENS_MAX: Final = 400_000
"""Limit on tokens: half as many again as the largest vocabularies in use have (Gemma 3: 262,208)."""

MERGES_MAX: Final = 1_000_000
"""Limit on merges, listed or derived from scores: GGUF files with Gemma's 262,144 tokens list 514,906."""

TYPED_CHARS_MAX: Final = 200_000
"""Characters of the tokens that users may type, for which some 80 bytes each are held: Gemma 3 has 6,242 such tokens of
about 12."""

_TOKEN_CHARS_MAX: Final = 1_024
_NORMAL, _UNKNOWN, _USER_DEFINED, _BYTE = 1, 2, 4, 6
"""Kinds of tokens in GGUF."""

_SPACE: Final = "\u2581"

_TEXT_BYTES: Final = frozenset({*b"\t\n\r", *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1), 0xF3, 0xF4})
"""Bytes that texts in UTF-8 have. A vocabulary without one of them leaves out characters, which it then counts as 0;
texts hardly have other control characters, so those may be missing, and so may 0xF1 and 0xF2, which begin characters of
planes to which Unicode has assigned nothing."""


def rebuilt(model_info: Mapping[str, Any]) -> str:
    """The tokenizer.json of the `model_info` in a verbose description.

    Raises VocabularyUnknown, with the reason, for what is no vocabulary of a chat model: too large, without a token for
    each byte of a text, or with scores that rank nothing.
    """
    kind = model_info.get("tokenizer.ggml.model")
    tokens = _strings(model_info, "tokens", TOKENS_MAX)
    kinds = model_info.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise VocabularyUnknown("the description has no token types")
    match kind:
        case "gpt2":
            made = _byte_level(model_info, tokens)
        case "llama":
            made = _sentence_piece(model_info, tokens, kinds)
        case _:
            raise VocabularyUnknown(f"vocabularies of type {_named(kind)} are not rebuilt")
    typed = [
        (number, token)
        for number, (token, its_kind) in enumerate(zip(tokens, kinds, strict=True))
        if its_kind == _USER_DEFINED and token
    ]
    if sum(len(token) for _, token in typed) > TYPED_CHARS_MAX:
        raise VocabularyUnknown(f"the tokens that users may type have more than {TYPED_CHARS_MAX:,} characters")
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": False,
        }
        for number, token in typed
    ]
    frame = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None}
    return json.dumps(frame | made, ensure_ascii=False, separators=(",", ":"))


def _byte_level(model_info: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    name = model_info.get("tokenizer.ggml.pre")
    shape = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if shape is None:
        raise VocabularyUnknown(f"the pre-tokenizer {_named(name)} is not known")
    known = set(tokens)
    _require_bytes(byte for byte, char in _BYTE_CHARS.items() if char in known)
    pairs = [_pair(merge) for merge in _strings(model_info, "merges", MERGES_MAX)]
    splits = [
        {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
        for split in shape.splits
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, level]},
        "decoder": level,
        "model": _model(tokens, pairs, ignore_merges=shape.whole_first),
    }


def _sentence_piece(model_info: Mapping[str, Any], tokens: list[str], kinds: list[Any]) -> dict[str, Any]:
    scores = model_info.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise VocabularyUnknown("the description has no scores")
    if not all(isinstance(score, int | float) and abs(score) <= sys.float_info.max for score in scores):
        raise VocabularyUnknown("the scores of the description are not all finite numbers")
    spelled = {token for token, kind in zip(tokens, kinds, strict=True) if kind == _BYTE}
    _require_bytes(byte for byte in range(0x100) if f"<0x{byte:02X}>" in spelled)
    numbers = {
        token: number
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_NORMAL, _USER_DEFINED)
    }
    ranked: list[tuple[float, str, str]] = []
    for token, kind, score in zip(tokens, kinds, scores, strict=True):
        if kind == _NORMAL:
            halves = ((token[:at], token[at:]) for at in range(1, len(token)))
            ranked += [(float(score), a, b) for a, b in halves if a in numbers and b in numbers]
            if len(ranked) > MERGES_MAX:
                raise VocabularyUnknown(f"the description implies more than {MERGES_MAX:,} merges")
    # Of the splits of one token, that of the older tokens comes first, as published tokenizers have it.
    ranked.sort(key=lambda merge: (-merge[0], numbers[merge[1]], numbers[merge[2]]))
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == _UNKNOWN), None)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prefixed = model_info.get("tokenizer.ggml.add_space_prefix", True) is not False
    steps = [{"type": "Prepend", "prepend": _SPACE}, replace] if prefixed else [replace]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": None,
        "model": _model(tokens, [(a, b) for _, a, b in ranked], unknown=unknown, byte_fallback=True),
    }


def _model(
    tokens: list[str],
    merges: list[tuple[str, str]],
    *,
    ignore_merges: bool = False,
    unknown: str | None = None,
    byte_fallback: bool = False,
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": unknown is not None,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": {token: number for number, token in enumerate(tokens)},
        "merges": merges,
    }


def _strings(model_info: Mapping[str, Any], name: str, most: int) -> list[str]:
    found = model_info.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not found:
        raise VocabularyUnknown(f"the description has no {name}")
    if len(found) > most:
        raise VocabularyUnknown(f"the description has {len(found):,} {name}, at most {most:,} are read")
    if not all(isinstance(text, str) and len(text) <= _TOKEN_CHARS_MAX for text in found):
        raise VocabularyUnknown(f"the {name} of the description are not texts")
    return found


def _require_bytes(found: Iterable[int]) -> None:
    missing = _TEXT_BYTES.difference(found)
    if missing:
        raise VocabularyUnknown(f"{len(missing)} bytes of texts have no token, the first of them 0x{min(missing):02X}")


def _byte_chars() -> Mapping[int, str]:
    """The characters by which byte-level vocabularies write each byte, as GPT-2 chose them."""
    shown = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
    others = (byte for byte in range(0x100) if byte not in shown)
    return {byte: chr(byte) for byte in shown} | {byte: chr(0x100 + place) for place, byte in enumerate(others)}


_BYTE_CHARS: Final = _byte_chars()


def _pair(merge: str) -> tuple[str, str]:
    """The two halves of a merge, which a space separates; the first half has at least a character."""
    at = merge.find(" ", 1)
    if at < 0:
        raise VocabularyUnknown("the description has a merge that is not a pair of tokens")
    return merge[:at], merge[at + 1 :]


def _named(name: object) -> str:
    """A server's word, if it is one."""
    return repr(name) if isinstance(name, str) and name.isprintable() and len(name) <= 40 else "of no name"
