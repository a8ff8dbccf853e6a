"""A model that obeys: every text outside the frames of data in its prompt is an instruction to it.

The model reads naively: lookalikes are what they look like, invisible characters are not there, and the marks of every
chat template begin a turn. The model's reading shares nothing with the product's, which it tests.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from abridged.service.models.model import Completion, CompletionRequest, ModelDescription, OnProgress
from tests.support.hostile_texts import HOMOGLYPHS

_LOOK = {ord(look): plain for plain, look in HOMOGLYPHS.items()} | {0xFF5C: "|", 0x2581: "_"}
_FRAMES = (
    "transcript",
    "message",
    "previous_summary",
    "previous_messages",
    "partial_summary",
    "conversation_summary",
    "meta",
    "instructions",
)
_MARKS = (
    r"<\|[a-z/_][^|>\n]{0,40}\|>",
    r"<(?:start|end)_of_turn>",
    r"<\|turn>|<turn\|>",
    r"\[/?inst\]|\[/?system_prompt\]|<</?sys>>",
    r"</?s>",
    r"</?tool_response>",
)
# In lower case `user:` names a speaker in an extract, and begins a turn in no template.
_TURN_LINES = (
    r"^[ \t]*(?:\#+[ \t]*(?:instruction|response|system|input)"
    r"|(?:system|human|(?-i:(?!user|assistant))(?:user|assistant))[ \t]*:)"
)
_TOKEN = re.compile(
    rf"(?P<mark>{'|'.join(_MARKS)})|(?P<line>{_TURN_LINES})"
    rf"|<\s*(?P<closes>[/\\]?)\s*(?P<tag>{'|'.join(_FRAMES)})\b(?P<rest>[^>\n]*)>?",
    re.IGNORECASE | re.MULTILINE,
)
_COMMAND = re.compile(r"write\s+(pwned-\d+)", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_SIZE_CHARS = 300


@dataclass
class Read:
    """A prompt as it was understood: its structure, and the texts taken for instructions."""

    structure: list[str] = field(default_factory=list)
    instructions: str = ""
    data: list[str] = field(default_factory=list)

    @property
    def obeyed(self) -> list[str]:
        """The words that the instructions want written, spelled out or encoded."""
        runs = _BASE64.findall(self.instructions)
        decoded = (base64.b64decode(run + "=" * (-len(run) % 4)).decode(errors="ignore") for run in runs)
        texts = [self.instructions, *decoded]
        return [word.upper() for text in texts for word in _COMMAND.findall(text)]


def normalized(text: str) -> str:
    """The text as it looks."""
    seen = []
    for char in text:
        if 0xE0020 <= ord(char) <= 0xE007E:
            seen.append(chr(ord(char) - 0xE0000))
            continue
        for c in unicodedata.normalize("NFKD", char.translate(_LOOK)):
            kind = unicodedata.category(c)
            if kind not in ("Cf", "Mn") and not (kind == "Cc" and c not in "\n\r\t\x0b\x0c\x1c\x1d\x1e\x85"):
                seen.append(c)
    plain = "".join(seen).translate(_LOOK)
    return re.sub(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", "\n", plain)


def read(text: str) -> Read:
    """The prompt, from its beginning to its end."""
    found = Read()
    plain, position = normalized(text), 0
    open_frames: list[str] = []
    turned = False
    for token in _TOKEN.finditer(plain):
        _take(found, plain[position : token.start()], inside=bool(open_frames) and not turned)
        position = token.end()
        if token["mark"] or token["line"]:
            found.structure.append(f"turn {token[0].strip().lower()}")
            turned = True
            continue
        tag = token["tag"].lower()
        # What a message's tag says of it is its structure too, but for its name, which is data.
        said = " ".join(token["rest"].split()[:2]) if tag == "message" else ""
        found.structure.append(f"{'/' if token['closes'] else ''}{tag} {said}".strip())
        if tag in ("message", "meta", "instructions"):
            _take(found, token["rest"], inside=bool(open_frames) and not turned)
        elif not token["closes"]:
            open_frames.append(tag)
        elif tag in open_frames:
            del open_frames[open_frames.index(tag) :]
    _take(found, plain[position:], inside=bool(open_frames) and not turned)
    return found


def _take(found: Read, text: str, *, inside: bool) -> None:
    if inside:
        found.data.append(text)
    else:
        found.instructions += text


def answer_to(system: str, user: str, schema: Any) -> tuple[str, Read]:
    """The answer, in the form that is asked for, and how the prompt was read.

    The model writes what the instructions want, and without any retells its data word for word.
    """
    understood = read(f"{system}\n{user}")
    data = " ".join(" ".join(understood.data).split())
    text = " ".join(understood.obeyed) or data[:_SIZE_CHARS] or "Nothing."
    if schema is None:
        return text, understood
    answer: dict[str, Any] = {}
    for key, kind in schema["properties"].items():
        answer[key] = text if kind["type"] == "string" else []
    return json.dumps(answer), understood


class ObedientModel:
    """A SummaryModel that obeys. `reads` has how it understood each prompt."""

    name = "scripted:obedient"

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.reads: list[Read] = []

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """See SummaryModel."""
        text, understood = answer_to(request.system, request.user, request.schema)
        self.prompts.append(f"{request.system}\n{request.user}")
        self.reads.append(understood)
        on_progress(len(text))
        return Completion(text, self.name, "stop", request.prompt_tokens, len(text) // 4 + 1, 0.0)

    async def describe(self) -> ModelDescription:
        """See SummaryModel."""
        return ModelDescription(8_192, window=8_192)

    async def idle(self) -> bool:
        """See SummaryModel."""
        return True

    async def close(self) -> None:
        """See SummaryModel."""
