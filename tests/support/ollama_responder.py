"""Texts of the fake: by default JSON that fits the schema of `format`, made from the prompt's own words.

A summary prompt gets an honest summary: the openings of messages from all over the transcript, and the lists of the
earlier summary as they were. Invariant: the same question with the same seed gets the same answer, and every word of it
occurs in the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

TEMPLATE_TOKENS = 8
"""Tokens that a chat template puts around each message."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_PIECE = re.compile(r"\S+\s*|\s+")
_WORD = re.compile(r"[a-z]{4,12}")
STRING_WORDS = 6
OPENING_CHARS = 120
OPENING_TOKENS = 40
"""More than the opening of a message takes, so that a summary keeps within the size that is asked for."""

_SAID = re.compile(r"^<message \d+ [^\n]*>\n(.*?)(?=^<message |^</transcript>)", re.MULTILINE | re.DOTALL)
_SIZE = re.compile(r"at most\s+(\d+) tokens")
_LISTS = {"decisions": "Decisions", "action_items": "Action items", "unresolved": "Unresolved"}
DEPTH_MAX = 8


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for inference. `prompt` is every message's text; `thinks` says whether the model would think."""

    model: str
    messages: tuple[dict[str, Any], ...]
    format: Any
    options: dict[str, Any]
    thinks: bool = False

    @property
    def prompt(self) -> str:
        """All text of the request."""
        return "\n".join(str(message.get("content", "")) for message in self.messages)

    @property
    def seed(self) -> int:
        """The seed, 0 when not given."""
        return int(self.options.get("seed", 0))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer. The one with a `done_reason` is the last; its counts are 0 when the fake shall count."""

    content: str = ""
    thinking: str = ""
    done_reason: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0


class AskRefused(Exception):
    """A responder's refusal before its first piece: the status and the error text that the server passes on."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


Responder = Callable[[Ask], AsyncIterator[Piece]]


def tokens_of(text: str) -> list[str]:
    """The fake's tokenizer: words and punctuation marks."""
    return _TOKEN.findall(text)


def count_tokens(text: str) -> int:
    """Return the number of tokens in a text."""
    return len(tokens_of(text))


def prompt_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tokens of a chat in the order of their evaluation, those of the chat template among them."""
    prompt: list[str] = []
    for message in messages:
        prompt += [f"<{message.get('role', 'user')}>"] * TEMPLATE_TOKENS
        prompt += tokens_of(str(message.get("content", "")))
    return prompt


def spoken(answer: Callable[[Ask], str]) -> Responder:
    """A responder that says `answer` word by word, and stops at `num_predict` words."""

    async def respond(ask: Ask) -> AsyncIterator[Piece]:
        words = _PIECE.findall(answer(ask))
        words_max = int(ask.options.get("num_predict", -1))
        cut = 0 < words_max < len(words)
        if ask.thinks:
            yield Piece(thinking="Let me see.")
        for word in words[:words_max] if cut else words:
            yield Piece(content=word)
        yield Piece(done_reason="length" if cut else "stop")

    return respond


def schema_answer(ask: Ask) -> str:
    """JSON for the schema, a small object for `"json"`, plain words without `format`."""
    words = sorted(set(_WORD.findall(ask.prompt))) or ["nothing"]
    rng = Random(f"{ask.seed}:{ask.prompt}")
    if isinstance(ask.format, dict):
        return json.dumps(_value(ask.format, words, rng, 0))
    if ask.format == "json":
        return json.dumps({"answer": _phrase(words, rng)})
    return _phrase(words, rng)


def honest_answer(ask: Ask) -> str:
    """A summary of the transcript in the prompt, where there is one; else what `schema_answer` says."""
    prompt = ask.prompt
    said = [text.strip().splitlines()[0][:OPENING_CHARS] for text in _SAID.findall(prompt) if text.strip()]
    asked = _SIZE.search(prompt)
    if not said or asked is None or not isinstance(ask.format, dict) or "key_points" not in ask.format["properties"]:
        return schema_answer(ask)
    earlier = {name: _listed(prompt, heading) for name, heading in _LISTS.items()}
    room = int(asked[1]) - sum(count_tokens(item) for items in earlier.values() for item in items)
    points = said[:: max(1, len(said) * OPENING_TOKENS // max(1, room))]
    tasks = [{"task": task, "owner": "", "due": ""} for task in earlier.pop("action_items")]
    return json.dumps(
        {
            "summary": ". ".join(points[:3]),
            "key_points": points[3:][:30],
            "participants": [],
            "domain_entities": [],
            "action_items": tasks,
            **earlier,
        }
    )


def _listed(prompt: str, heading: str) -> list[str]:
    found = re.search(rf"^{heading}:\n((?:- .*\n)+)", prompt, re.MULTILINE)
    return [line.removeprefix("- ") for line in found[1].splitlines()] if found else []


def _value(schema: dict[str, Any], words: list[str], rng: Random, depth: int) -> Any:
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _value(schema[choice][0], words, rng, depth)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: _value(inner, words, rng, depth + 1) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        least = int(schema.get("minItems", 0))
        most = min(int(schema.get("maxItems", 2)), max(least, 2)) if depth < DEPTH_MAX else least
        return [_value(schema.get("items", {"type": "string"}), words, rng, depth + 1) for _ in range(most)]
    if kind == "string":
        return _phrase(words, rng)[: int(schema.get("maxLength", 1_000))]
    return {"integer": int(schema.get("minimum", 1)), "number": 0.5, "boolean": True}.get(kind)


def _phrase(words: list[str], rng: Random) -> str:
    return " ".join(rng.choice(words) for _ in range(STRING_WORDS))
