"""A model that copies and forgets, so that what repeated rewriting costs is real and the same in every run.

The model copies sentences of what a prompt quotes, an earlier summary as well as messages, and writes nothing of its
own. A sentence worth keeping (whole, and with an identifier or a rule; not a line of a log) survives a call by the
chance `kept`; whether it does depends on a hash of the sentence and of the prompt, so each call decides anew and every
run decides alike. The hash decides which survive if the asked size does not hold them all, whatever their age. Other
sentences fill what is left. The model's answers pass the checks of any answer, so the drift that it causes is that of
rewriting, and not of one model.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from abridged.service.models.model import Completion, CompletionRequest, ModelDescription, OnProgress
from abridged.service.text.identifiers import IdentifierKind, identifiers
from abridged.service.text.secrets import contains_secret
from abridged.service.tokenizers.estimated import EstimatingCounter

KEPT: Final = 0.9
"""The chance of a sentence in one call. Low enough that ten rewritings leave a third, high enough that one is good."""

SENTENCE_CHARS_MAX: Final = 300
"""A longer line of a transcript, such as a JSON document, is nothing that a summary would copy."""

_PREVIOUS: Final = re.compile(r"<previous_summary>\n(.*?)\n</previous_summary>", re.DOTALL)
_TRANSCRIPT: Final = re.compile(r"<transcript>\n(.*)\n</transcript>", re.DOTALL)
_OURS: Final = re.compile(
    r"^(?:</?[a-z_]+(?: [^>\n]*)?>|\[calls .*|Messages (?:up to )?[^\n]*summarized[^\n]*)$", re.MULTILINE
)
"""Lines that the prompt and the record's frame add."""

_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*|\n+")
_STOPS: Final = (".", "!", "?", "\u3002", "\uff01", "\uff1f")
_RULE: Final = re.compile(r"\b(?:always|never|from now on|everywhere|write all|keep to)\b", re.IGNORECASE)
_QUANTITIES: Final = frozenset({IdentifierKind.NUMBER, IdentifierKind.TIME, IdentifierKind.DECIMAL})


class LossyModel:
    """A SummaryModel of this behaviour with a context of `window` tokens."""

    def __init__(self, *, kept: float = KEPT, window: int) -> None:
        self._kept = kept
        self._window = window
        self._count = EstimatingCounter().count

    @property
    def name(self) -> str:
        """`lossy:<chance>`."""
        return f"lossy:{self._kept:g}"

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """The answer, in the form that the request's schema asks for."""
        text = self._answer(request)
        on_progress(len(text))
        return Completion(text, self.name, "stop", request.prompt_tokens, self._count(text), 0.0)

    async def describe(self) -> ModelDescription:
        """See SummaryModel."""
        return ModelDescription(context_length=self._window, window=self._window)

    async def idle(self) -> bool:
        """Always."""
        return True

    async def close(self) -> None:
        """Release nothing: the model holds no connection."""

    def _answer(self, request: CompletionRequest) -> str:
        kept = self._survivors(request.user, request.summary_tokens_max)
        text = " ".join(kept) or "Nothing of note was said."
        if request.schema is None:
            return text
        fields = set(request.schema.get("properties", ()))
        if "long_summary" in fields:
            return json.dumps({"short_summary": " ".join(kept[:2]) or text, "long_summary": text}, ensure_ascii=False)
        answer: dict[str, str | list[str]] = {field: [] for field in fields}
        return json.dumps({**answer, "summary": text}, ensure_ascii=False)

    def _survivors(self, prompt: str, tokens_max: int) -> list[str]:
        """Sentences of the prompt that are copied, in its order, within the size that is asked for."""
        salt = blake2b(prompt.encode(), digest_size=8).digest()
        chances = {sentence: _chance(sentence, salt) for sentence in _quoted(prompt)}
        worth = [s for s in sorted(chances, key=chances.__getitem__) if _is_worth(s) and chances[s] < self._kept]
        others = [s for s in sorted(chances, key=chances.__getitem__) if not _is_worth(s)]
        taken: set[str] = set()
        left = tokens_max
        for sentence in (*worth, *others):
            tokens = self._count(sentence) + 1
            if tokens <= left:
                taken.add(sentence)
                left -= tokens
        return [sentence for sentence in chances if sentence in taken]


def _quoted(prompt: str) -> Iterator[str]:
    for frame in (_PREVIOUS, _TRANSCRIPT):
        for match in frame.finditer(prompt):
            for sentence in _END.split(_OURS.sub("", match[1])):
                text = html.unescape(sentence).strip().removeprefix("- ")
                if text and len(text) <= SENTENCE_CHARS_MAX and not contains_secret(text):
                    yield text


def _chance(sentence: str, salt: bytes) -> float:
    digest = blake2b(sentence.encode(), key=salt, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _is_worth(sentence: str) -> bool:
    if not sentence.endswith(_STOPS):
        return False
    if _RULE.search(sentence):
        return True
    return any(found.kind not in _QUANTITIES for found in identifiers(sentence))
