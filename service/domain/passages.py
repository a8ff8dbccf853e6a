"""The material of an extractive summary: sentences with who said them, and the texts that names are looked for in.

Secrets and marks of chat templates are gone before anything else looks at a text. Tool results give names, not
sentences, unless there is nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.domain.chat_markup import strip_chat_markup, strip_marks
from service.domain.claims import texts_of
from service.domain.envelope import unwrap_envelope
from service.domain.message import Message, Role
from service.domain.record import SummaryRecord
from service.domain.salience import Terms, terms_of
from service.domain.secrets import mask_secrets
from service.domain.sentences import clipped, sentences

__all__ = ["LEAD", "SENTENCES_MAX", "Corpus", "Passage", "gathered", "speaker_of"]

LEAD: Final = "From the conversation, in its own words:"
"""First line of an extractive summary; not a sentence of anybody."""

SENTENCES_MAX: Final = 4_000
"""Sentences that are scored; a longer text gives them evenly spread."""

_JSON_KEY: Final = re.compile(r'"\w{1,80}"\s{0,4}:')
_NAME_CHARS_MAX: Final = 60
_EARLIER_WEIGHT: Final = 0.9
_ROLE_WEIGHTS: Final = {Role.USER: 1.0, Role.ASSISTANT: 0.9, Role.SYSTEM: 0.5, Role.TOOL: 0.3}


@dataclass(frozen=True, slots=True)
class Passage:
    """One sentence, the `place`-th of all; `source` numbers the message or earlier text that it is from, oldest 0."""

    text: str
    speaker: str
    source: int
    place: int
    weight: float
    terms: Terms

    @property
    def line(self) -> str:
        """What a record quotes: the sentence, clipped, after its speaker; empty when nothing is left of it."""
        text = clipped(self.text)
        return f"{self.speaker}: {text}" if self.speaker and text else text


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything an extract is made of, oldest first.

    `texts` are all texts, `spoken` those of people and models. `speakers` says for each source who speaks, empty for
    earlier summaries and for tools.
    """

    passages: tuple[Passage, ...]
    texts: tuple[str, ...]
    spoken: tuple[str, ...]
    speakers: tuple[str, ...]


def gathered(messages: Sequence[Message], *, previous: SummaryRecord | None, merge: Sequence[str]) -> Corpus:
    """The sentences of the earlier record, of texts to be merged and of `messages`, in this order."""
    earlier = [_clean(text) for text in (*_texts_of_record(previous), *merge)]
    told = [_told(message) if _is_prose(message) else "" for message in messages]
    if not any(earlier) and not any(told):
        told = [_told(message) for message in messages]
    spoken = (*earlier, *told)
    speakers = (*("" for _ in earlier), *(speaker_of(message) for message in messages))
    weights = (*(_EARLIER_WEIGHT for _ in earlier), *(_ROLE_WEIGHTS[message.role] for message in messages))
    cited = [(source, line) for source, text in enumerate(spoken) for line in sentences(text) if line != LEAD]
    stride = max(1, -(-len(cited) // SENTENCES_MAX))
    return Corpus(
        passages=tuple(
            Passage(line, speakers[source], source, place, weights[source], terms_of(line))
            for place, (source, line) in enumerate(cited[::stride])
        ),
        texts=(*earlier, *(_naming(message) for message in messages)),
        spoken=spoken,
        speakers=speakers,
    )


def speaker_of(message: Message) -> str:
    """The name of who speaks, else the role; empty for a tool. Free of marks and secrets, on one line and short."""
    if message.role is Role.TOOL:
        return ""
    name = " ".join(_clean(message.name).split())
    return name if 0 < len(name) <= _NAME_CHARS_MAX else message.role.value


def _told(message: Message) -> str:
    content = unwrap_envelope(message.content)
    return _clean(strip_chat_markup(content) if message.role is Role.ASSISTANT else content)


def _naming(message: Message) -> str:
    """Everything in which names are looked for; keys of JSON objects name nothing of the conversation."""
    return _JSON_KEY.sub(" ", "\n".join(texts_of(message)))


def _clean(text: str) -> str:
    return mask_secrets(strip_marks(text))


def _is_prose(message: Message) -> bool:
    return message.role is not Role.TOOL and message.content.lstrip()[:1] not in ("{", "[")


def _texts_of_record(record: SummaryRecord | None) -> tuple[str, ...]:
    """Summary and key points; the lists of the context are carried as lists."""
    return () if record is None else (record.summary, *record.key_points)
