"""Takes out of a model's narrative what would otherwise need a second call, which costs as much as the first.

Sentences go that the source does not bear out, that repeat another, that echo the instructions or speak of the answer's
format, and data that was copied. A person's own words in the first person stay as a quotation, with the speaker. The
narrative stays as it is if nothing would be left, and the checks say what is wrong with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from abridged.service.domain.message import Message
from abridged.service.extraction.passages import speaker_of
from abridged.service.extraction.replaced import superseding
from abridged.service.extraction.talk import said_by
from abridged.service.grounding.claims import Evidence, unsupported
from abridged.service.grounding.comparison import talks_of_format, without_loops
from abridged.service.grounding.draft import echoes_instructions, is_data
from abridged.service.grounding.neighbourhood import Neighbourhood
from abridged.service.grounding.support import Concordance
from abridged.service.summarizer.statements import narrative_problems
from abridged.service.text.phrases import Phrase, section_of
from abridged.service.text.sentences import parts_of, unrepeated
from abridged.service.text.words import folded, script_runs

_AROUND_BREAKS: Final = re.compile(r"[ \t]{0,80}\n\s{0,80}")

_COPIED_SHARE: Final = 0.6
_COPIED_MESSAGES: Final = 2
"""A narrative copies if this share of it repeats the words of at most this number of messages: it sums up nothing."""

_WORDS_MIN: Final = 4
"""Words of a sentence that nobody writes twice by chance."""


@dataclass(frozen=True, slots=True)
class Quotable:
    """The sentences of a source that a narrative may have copied: by their words, the message and the speaker."""

    said: Mapping[str, tuple[int, str]]

    def source_of(self, sentence: str) -> tuple[int, str] | None:
        """The message that says a sentence word for word, and its speaker; None if no message does."""
        return self.said.get(match_key(sentence))


@dataclass(frozen=True, slots=True)
class Measures:
    """The source and the bounds that a narrative is judged by.

    Attributes:
        evidence: Everything that its source says.
        concordance: The messages of the source.
        superseded: Values that no longer hold, with the messages that say so.
        instructions: The prompt without its transcript.
        may_speak_of_format: True if the conversation speaks of JSON and the like, too.
        max_repetition: The share of a sentence that may repeat earlier ones; 0 for no bound.
        neighbourhood: The messages again, by what stands near their values.
    """

    evidence: Evidence
    concordance: Concordance
    superseded: Mapping[str, int]
    instructions: str
    may_speak_of_format: bool
    max_repetition: float
    neighbourhood: Neighbourhood


def tidied(text: str, measures: Measures, quotable: Quotable) -> str:
    """The narrative without the sentences that code takes out; unchanged if none would be left."""
    kept = [sentence for sentence in unrepeated(text, set()) if not _is_bad(sentence.strip(), measures)]
    if measures.max_repetition:
        kept = without_loops(kept, measures.max_repetition)
    quoted = [_attributed(sentence, quotable) for sentence in kept]
    told = _AROUND_BREAKS.sub("\n", "".join(quoted)).strip()
    # Sentences that others stood between may read as one, and as another than either.
    if any(True for _ in narrative_problems("summary", told, measures.concordance)):
        told = "\n".join(sentence.strip() for sentence in quoted)
    return told or text


def is_copied(text: str, quotable: Quotable) -> bool:
    """Return whether most of a narrative is word for word what one or two messages say, with or without the speaker's
    name."""
    chars: Counter[int] = Counter()
    for sentence in unrepeated(text, set()):
        found = quotable.source_of(sentence) or quotable.source_of(said_by(sentence.strip())[1])
        if found is not None and _count_of_words(sentence) >= _WORDS_MIN:
            chars[found[0]] += len(sentence)
    copied = sum(count for _, count in chars.most_common(_COPIED_MESSAGES))
    return 0 < len(chars) <= _COPIED_MESSAGES and copied >= _COPIED_SHARE * len(text)


def quotable_of(messages: Iterable[Message]) -> Quotable:
    """The sentences of messages, numbered from 1, with their speakers."""
    said = (
        (match_key(sentence), (number, speaker_of(message)))
        for number, message in enumerate(messages, 1)
        for sentence in parts_of(message.content)
    )
    return Quotable({words: found for words, found in said if words})


def narrative_evidence(
    text: str, concordance: Concordance, rests_on: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """The messages that each sentence of a narrative rests on; nothing if none has any. Lines in `rests_on` have those
    that it names, without a search."""
    found = tuple(
        rests_on.get(line) or concordance.support(part).numbers for line in text.splitlines() for part in parts_of(line)
    )
    return found if any(found) else ()


def match_key(sentence: str) -> str:
    """The words of a sentence, by which it is found again, whatever its case and its stop."""
    return " ".join(sentence.casefold().split()).strip(" .!?\u2026\u3002")


def _is_bad(sentence: str, measures: Measures) -> bool:
    if is_data(sentence) or echoes_instructions(sentence, measures.instructions):
        return True
    if not measures.may_speak_of_format and talks_of_format(sentence):
        return True
    if unsupported(sentence, measures.evidence) or superseding(sentence, measures.superseded):
        return True
    if measures.neighbourhood.is_apart(sentence):
        return True
    return any(True for _ in narrative_problems("summary", sentence, measures.concordance))


def _count_of_words(sentence: str) -> int:
    """The words of a sentence; in scripts without spaces, as many as its characters could be."""
    return sum(max(1, len(run) // size) if size else 1 for run, size in script_runs(folded(sentence)))


def _attributed(sentence: str, quotable: Quotable) -> str:
    """A sentence in the first person that is a person's own, with the speaker before it."""
    if section_of(Phrase.IS_FIRST_PERSON).match(sentence) is None:
        return sentence
    found = quotable.source_of(sentence)
    return f"\n{found[1]}: {sentence.strip()}\n" if found is not None and found[1] else sentence
