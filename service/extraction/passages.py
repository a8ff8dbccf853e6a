"""The material of an extractive summary: sentences with who said them, and the texts that names are looked for in.

Secrets, marks of chat templates and the tags of our own frames are gone before anything else looks at a text. Tool
results give names, not sentences, unless there is nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.domain.checks.chat_markup import strip_chat_markup, strip_marks
from service.domain.checks.claims import texts_of
from service.domain.checks.secrets import mask_secrets
from service.domain.envelope import unwrap_envelope
from service.domain.message import Message, Role
from service.domain.record import SummaryRecord
from service.extraction.sentences import Terms, clipped, is_broken, is_label, sentences, terms_of

__all__ = ["LEAD", "SENTENCES_MAX", "Corpus", "Passage", "gathered", "speaker_of"]

LEAD: Final = "From the conversation, in its own words:"
"""First line of an extractive summary; not a sentence of anybody."""

SENTENCES_MAX: Final = 4_000
"""Sentences that are scored; a longer text gives them evenly spread."""

_JSON_KEY: Final = re.compile(r'"\w{1,80}"\s{0,4}:')
_TAG: Final = re.compile(
    r"</[A-Za-z][\w-]{0,60}\s{0,4}>|(?:<|&lt;)/?(?:transcript|message|previous_summary|partial_summary|meta"
    r"|instructions|conversation_summary)\b[^<>]{0,300}(?:>|$)"
)
"""A closing tag is no path, and a frame of a prompt nobody's words, not even what is left of one."""

_PLAIN_WORD: Final = re.compile(r"[a-z']+(?:[\s,]|$)")
_UNCAPITALIZED_SHARE: Final = 0.25
"""Who opens more sentences than this in lower case writes so; of others such an opening is the rest of a sentence."""

_NAME_CHARS_MAX: Final = 60
_EARLIER_WEIGHT: Final = 0.9
_ROLE_WEIGHTS: Final = {Role.USER: 1.0, Role.ASSISTANT: 0.9, Role.SYSTEM: 0.5, Role.TOOL: 0.3}


@dataclass(frozen=True, slots=True)
class Passage:
    """One sentence, the `place`-th of all and the `nth` of its source, which is numbered among all, oldest 0.

    It is a fragment when it lost its beginning or its end, or is a label among other lines. `by_model` says that an
    assistant wrote it.
    """

    text: str
    speaker: str
    source: int
    place: int
    nth: int
    weight: float
    terms: Terms
    fragment: bool = False
    by_model: bool = False

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


def gathered(messages: Sequence[Message], *, previous: SummaryRecord | None) -> Corpus:
    """The sentences of the earlier record and of `messages`, in this order."""
    earlier = [_clean(text) for text in _texts_of_record(previous)]
    told = [_told(message) if _is_prose(message) else "" for message in messages]
    if not any(earlier) and not any(told):
        told = [_told(message) for message in messages]
    spoken = (*earlier, *told)
    speakers = (*("" for _ in earlier), *(speaker_of(message) for message in messages))
    weights = (*(_EARLIER_WEIGHT for _ in earlier), *(_ROLE_WEIGHTS[message.role] for message in messages))
    modelled = (*(False for _ in earlier), *(message.role is Role.ASSISTANT for message in messages))
    cited = [
        (source, nth, line)
        for source, text in enumerate(spoken)
        for nth, line in enumerate(sentences(text))
        if line != LEAD
    ]
    stride = max(1, -(-len(cited) // SENTENCES_MAX))
    lines = Counter(source for source, _, _ in cited)
    small = _uncapitalized(cited, speakers)
    return Corpus(
        passages=tuple(
            Passage(
                text=line,
                speaker=speakers[source],
                source=source,
                place=place,
                nth=nth,
                weight=weights[source],
                terms=terms_of(line),
                fragment=is_broken(line)
                or (is_label(line) and (lines[source] > 1 or " " not in line))
                or (line[0].islower() and speakers[source] not in small and _PLAIN_WORD.match(line) is not None),
                by_model=modelled[source],
            )
            for place, (source, nth, line) in enumerate(cited[::stride])
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


def _uncapitalized(cited: Sequence[tuple[int, int, str]], speakers: Sequence[str]) -> frozenset[str]:
    """The speakers who do not open sentences with a capital; earlier texts, which nobody speaks, are among them."""
    said = Counter(speakers[source] for source, _, _ in cited)
    small = Counter(speakers[source] for source, _, line in cited if line[0].islower())
    return frozenset({"", *(speaker for speaker in said if small[speaker] > _UNCAPITALIZED_SHARE * said[speaker])})


def _told(message: Message) -> str:
    content = unwrap_envelope(message.content)
    return _clean(strip_chat_markup(content) if message.role is Role.ASSISTANT else content)


def _naming(message: Message) -> str:
    """Everything in which names are looked for; keys of JSON objects name nothing of the conversation."""
    return _TAG.sub(" ", _JSON_KEY.sub(" ", "\n".join(texts_of(message))))


def _clean(text: str) -> str:
    return mask_secrets(_TAG.sub(" ", strip_marks(text)))


def _is_prose(message: Message) -> bool:
    return message.role is not Role.TOOL and message.content.lstrip()[:1] not in ("{", "[")


def _texts_of_record(record: SummaryRecord | None) -> tuple[str, ...]:
    """Summary and key points; the lists of the context are carried as lists."""
    return () if record is None else (record.summary, *record.key_points)
