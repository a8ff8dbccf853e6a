"""The material of an extractive summary: sentences with their speakers, and what each is worth.

Secrets, marks of chat templates and tags of our own frames are removed first. Tool results yield names, but sentences
only if there is nothing else.

A term's weight grows with the number of sentences that contain it, damped for those in nearly all. A sentence scores by
the terms it shares with the whole (centroid); among a bounded number of the best, it also scores by how well the other
good ones support it (TextRank: Mihalcea and Tarau, 2004, with the overlap measure over term sets). All arithmetic is
basic, so results are the same on every machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Final

from abridged.service.domain.material import read_text
from abridged.service.domain.message import Message, Role, sent_content
from abridged.service.domain.quoting import FRAMES
from abridged.service.domain.record import SummaryRecord, narrative_of, statements_of
from abridged.service.extraction.cues import asks, has_value, is_courtesy, is_wish
from abridged.service.grounding.claims import texts_of
from abridged.service.grounding.draft import echoes_instructions, is_placeholder
from abridged.service.text import nested_json
from abridged.service.text.markup import leftover_markup, strip_chat_markup, strip_marks
from abridged.service.text.secrets import contains_secret, mask_secrets
from abridged.service.text.sentences import Terms, clipped, is_broken, is_label, sentences, terms_of

LEAD: Final = "From the conversation, in its own words:"
"""First line of an extractive summary. The line is not part of the conversation."""

TEXT_LEAD: Final = "From the text, in its own words:"
"""The same of a text that belongs to no conversation."""

SENTENCES_MAX: Final = 4_000
"""Sentences that are scored; of a longer text, an evenly spread sample."""

_TAG: Final = re.compile(
    rf"</[A-Za-z][\w-]{{0,60}}\s{{0,4}}>|(?:<|&lt;)/?(?:{'|'.join(FRAMES)})\b[^<>]{{0,300}}(?:>|$)"
)
"""A closing tag is not a path, and nobody said the frame of a prompt, nor a fragment of one."""

_PLAIN_WORD: Final = re.compile(r"[a-z']+(?:[\s,]|$)")
_UNCAPITALIZED_SHARE: Final = 0.25
"""Speakers who open more sentences than this in lower case write so; with others, it marks the rest of a sentence."""

CALLED: Final = ": called "
"""The words between a speaker and the tool that he calls."""

RESULT: Final = " \u2013 "
"""The mark between a call and its result."""

_CALL_LINE: Final = re.compile(rf"[^:\n]{{1,60}}{CALLED}(?P<tool>[\w.:/-]{{1,64}})\([^\n]*\){RESULT}")

_NAME_CHARS_MAX: Final = 60
_EARLIER_WEIGHT: Final = 0.9
_ROLE_WEIGHTS: Final = {Role.USER: 1.0, Role.ASSISTANT: 0.9, Role.SYSTEM: 0.5, Role.TOOL: 0.3}

_RANKED_MAX: Final = 240
"""TextRank compares all pairs of sentences: this many take a few hundredths of a second."""

_ROUNDS: Final = 12
_DAMPING: Final = 0.85
_LENGTH_PRIOR_TERMS: Final = 6
"""Keeps a two-word sentence of frequent words from beating one that says something."""

_TERMS_MIN: Final = 5
"""A line with fewer is a fragment, such as a label with its value."""

_CHOSEN_MAX: Final = 80
"""Passages that are chosen, at most: more than any record can hold, lines of the summary and key points together."""

_REPEATED: Final = 0.7
"""The overlap from which on a passage says nothing new."""

_REPEATED_SPACELESS: Final = 0.85
"""The same for scripts without spaces, whose terms are pairs of characters: those of grammar recur everywhere."""

_REPETITION_WEIGHT: Final = 0.6

_LEAD_BONUS: Final = 0.2
_WISH_BONUS: Final = 0.2
_VALUE_BONUS: Final = 0.3
_ALONE_BONUS: Final = 0.8
"""The bonus of a value that the ledger does not show: the sentence alone has it. Of values from .3 to 1.2 this one left
most values and decisions alive in the chats of `bench/written/seen`."""

_WORD_ENDS: Final = re.compile(r"[\s,;:()]+|[.!?]+(?:\s|$)")

_QUOTES_MIN: Final = 3
"""Sentences that each source may contribute when places are shared equally; a long one among few may contribute
more."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One sentence.

    Attributes:
        text: The sentence.
        speaker: The speaker; empty for earlier summaries and tools.
        source: The number of its source, from 0, oldest first.
        place: The sentence's place among all sentences.
        nth: The sentence's place in its source.
        weight: Weight of its source.
        terms: The sentence's meaningful words.
        fragment: True if it lacks its beginning or end, or is a label among other lines.
        by_model: True if an assistant wrote it.
        numbers: The message that says it, or those that an earlier record names for it.
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
    numbers: tuple[int, ...] = ()

    @property
    def line(self) -> str:
        """The line that a record quotes."""
        return line_of(self.text, self.speaker)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything an extract is made from, oldest first.

    Attributes:
        passages: The sentences.
        texts: All texts.
        spoken: The words of people and models in each.
        speakers: The speaker of each source; empty for earlier summaries and tools.
        numbers: The number of each source's message; 0 for earlier summaries.
    """

    passages: tuple[Passage, ...]
    texts: tuple[str, ...]
    spoken: tuple[str, ...]
    speakers: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """A passage and its score."""

    passage: Passage
    score: float


def gathered(messages: Sequence[Message], *, previous: SummaryRecord | None, numbers: Sequence[int] = ()) -> Corpus:
    """The sentences of the earlier record and of `messages`, in this order. `numbers` are those of the messages, by
    default from 1."""
    earlier = [cleaned(text) for text in _texts_of_record(previous)]
    inherited = _inherited(previous)
    numbered = (*(0 for _ in earlier), *(numbers or range(1, len(messages) + 1)))
    texts = [_spoken_text(message, sent_content(message)) if _is_prose(message) else "" for message in messages]
    if not any(earlier) and not any(texts):
        texts = [_spoken_text(message, read_text(message)) for message in messages]
    spoken = (*earlier, *texts)
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
                numbers=(numbered[source],) if numbered[source] else inherited.get(line, ()),
            )
            for place, (source, nth, line) in enumerate(cited[::stride])
        ),
        texts=(*earlier, *(_naming(message) for message in messages)),
        spoken=spoken,
        speakers=speakers,
        numbers=numbered,
    )


def speaker_of(message: Message) -> str:
    """The speaker's name, else the role; empty for a tool. Free of marks and secrets, on one line, and short."""
    if message.role is Role.TOOL:
        return ""
    name = " ".join(cleaned(message.name).split())
    return name if 0 < len(name) <= _NAME_CHARS_MAX else message.role.value


def _uncapitalized(cited: Sequence[tuple[int, int, str]], speakers: Sequence[str]) -> frozenset[str]:
    """The speakers who do not open sentences with a capital, including the empty one of earlier texts."""
    said = Counter(speakers[source] for source, _, _ in cited)
    small = Counter(speakers[source] for source, _, line in cited if line[0].islower())
    return frozenset({"", *(speaker for speaker in said if small[speaker] > _UNCAPITALIZED_SHARE * said[speaker])})


def _spoken_text(message: Message, text: str) -> str:
    return cleaned(strip_chat_markup(text) if message.role is Role.ASSISTANT else text)


def _naming(message: Message) -> str:
    """The texts to find names in; keys of JSON objects name nothing in the conversation."""
    return _TAG.sub(" ", nested_json.KEY_RE.sub(" ", "\n".join(texts_of(message))))


def cleaned(text: str) -> str:
    """The text without marks of chat templates, frames and secrets."""
    return mask_secrets(_TAG.sub("\n", strip_marks(text)))


def line_of(text: str, speaker: str) -> str:
    """The line that a record quotes: the speaker and the clipped sentence; empty if clipping leaves no word."""
    text = clipped(text)
    return f"{speaker}: {text}" if speaker and text else text


def _is_prose(message: Message) -> bool:
    return message.role is not Role.TOOL and not nested_json.begins_as_data(message.content)


def called_tool(line: str) -> str | None:
    """The tool whose call a line of a record quotes; None of other lines."""
    found = _CALL_LINE.match(line)
    return None if found is None else found["tool"]


def quoted_points(record: SummaryRecord | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The key points of a record, each with the messages that it names for it."""
    return () if record is None else statements_of(record)[: len(record.key_points)]


def _texts_of_record(record: SummaryRecord | None) -> tuple[str, ...]:
    """Summary and key points without quoted calls; the lists of the context are carried over as lists."""
    if record is None:
        return ()
    return ("\n".join(_uncalled(record.summary.split("\n"))), *_uncalled(record.key_points))


def _uncalled(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if called_tool(line) is None]


def _inherited(record: SummaryRecord | None) -> dict[str, tuple[int, ...]]:
    """The messages that each sentence of an earlier record's texts rests on."""
    if record is None:
        return {}
    return dict((*narrative_of(record), *quoted_points(record)))


def ranked(corpus: Corpus, *, in_ledger: Collection[str] | None = None) -> list[Scored]:
    """Every meaningful passage, best first; the first _RANKED_MAX also ranked by mutual support.

    A value that is not among those `in_ledger` counts more; without a ledger all count alike.
    The last of equal passages alone counts: a sentence that somebody repeats in every message is not the topic.
    """
    distinct = tuple({passage.line: passage for passage in corpus.passages}.values())
    central = _centroid_scores([passage.terms for passage in distinct])
    last = max(1, len(corpus.speakers) - 1)
    shown = None if in_ledger is None else frozenset[str]().union(*map(_figures, in_ledger))
    rough = [
        Scored(passage, passage.weight * (score + _place_bonus(passage.source / last) + _own_bonus(passage, shown)))
        for passage, score in zip(distinct, central, strict=True)
        if _tells(passage) and is_usable(passage.text) and is_usable(passage.line)
    ]
    rough.sort(key=lambda scored: -scored.score)
    head = rough[:_RANKED_MAX]
    support = _support_scores([scored.passage.terms for scored in head])
    supported = [
        Scored(scored.passage, scored.score + scored.passage.weight * share / 2)
        for scored, share in zip(head, support, strict=True)
    ]
    supported.sort(key=lambda scored: -scored.score)
    return supported + rough[_RANKED_MAX:]


def _place_bonus(place: float) -> float:
    """The start of a conversation says what it is about, its end where it stands. `place` is 0..1."""
    return 0.3 * max(1 - 8 * place, place**2)


def _own_bonus(passage: Passage, shown: frozenset[str] | None) -> float:
    """The start of a message says what it is about; a wish says what the conversation is for, a number what nobody can
    guess. `shown` has the figures of what the ledger shows; None without one."""
    wish = _WISH_BONUS if is_wish(passage.text) and not passage.by_model else 0.0
    value = _VALUE_BONUS if has_value(passage.text) else 0.0
    if value and shown is not None and not _figures(passage.text) <= shown:
        value = _ALONE_BONUS
    return _LEAD_BONUS / (1 + passage.nth) + wish + value


def _figures(text: str) -> frozenset[str]:
    """The words of a text that have a digit, case folded."""
    return frozenset(word for word in _WORD_ENDS.split(text.casefold()) if has_value(word))


def _tells(passage: Passage) -> bool:
    """Return whether the sentence has more than one meaningful word, or a number."""
    return len(passage.terms) > 1 or has_value(passage.text)


def _is_telling(passage: Passage) -> bool:
    return not (passage.fragment or asks(passage.text) or is_courtesy(passage.text))


def is_usable(text: str) -> bool:
    """Return whether a record may contain `text`."""
    return not (is_placeholder(text) or leftover_markup(text) or contains_secret(text) or echoes_instructions(text, ""))


def diverse(best: Sequence[Scored], corpus: Corpus, *, skipped: set[str]) -> list[Passage]:
    """Passages by maximal marginal relevance; from each source at most half of its sentences, but always one.

    Questions, courtesies, fragments and instructions of the system come only if there is nothing else: answers contain
    what was asked, and open questions have their own list.
    """
    share = max(_QUOTES_MIN, _CHOSEN_MAX // max(1, len(corpus.speakers)))
    counts = Counter(passage.source for passage in corpus.passages)
    left = {
        source: min(share if corpus.speakers[source] else count, max(1, count // 2)) for source, count in counts.items()
    }
    telling = [scored for scored in best if _is_telling(scored.passage)] or best
    instructing = _ROLE_WEIGHTS[Role.SYSTEM]
    telling = [scored for scored in telling if scored.passage.weight > instructing] or telling
    pool = [scored for scored in telling[:_RANKED_MAX] if scored.passage.line not in skipped]
    repeated = [0.0] * len(pool)
    chosen: list[Passage] = []
    while pool and len(chosen) < _CHOSEN_MAX:
        index = max(range(len(pool)), key=lambda i: pool[i].score - _REPETITION_WEIGHT * repeated[i])
        passage, redundancy = pool.pop(index).passage, repeated.pop(index)
        most = _REPEATED if " " in passage.text else _REPEATED_SPACELESS
        if redundancy >= most or not left[passage.source]:
            continue
        left[passage.source] -= 1
        chosen.append(passage)
        repeated = [
            max(known, repetition(scored.passage.terms, passage.terms))
            for scored, known in zip(pool, repeated, strict=True)
        ]
    return chosen


def _centroid_scores(sentences: Sequence[Terms]) -> list[float]:
    """A score for each sentence, 0..1, of how much it shares with all others; linear in the number of terms."""
    spread = Counter(term for terms in sentences for term in terms)
    total = len(sentences)
    weights = {term: count * (total - count / 2) / total for term, count in spread.items()}
    raw = [
        sum(weights[term] for term in terms) / (len(terms) + _LENGTH_PRIOR_TERMS) * min(1, len(terms) / _TERMS_MIN)
        for terms in sentences
    ]
    return _scaled(raw)


def _support_scores(sentences: Sequence[Terms]) -> list[float]:
    """TextRank of at most _RANKED_MAX sentences, 0..1."""
    assert len(sentences) <= _RANKED_MAX
    links = [[_overlap(one, other) if one is not other else 0.0 for other in sentences] for one in sentences]
    sums = [sum(row) for row in links]
    shares = [[link / total if total else 0.0 for link in row] for row, total in zip(links, sums, strict=True)]
    scores = [1.0] * len(sentences)
    incoming = list(zip(*shares, strict=True))
    for _ in range(_ROUNDS):
        scores = [1 - _DAMPING + _DAMPING * sum(map(mul, column, scores)) for column in incoming]
    return _scaled(scores)


def _overlap(one: Terms, other: Terms) -> float:
    """The share of the shorter sentence that the other repeats, 0..1; short sentences count less."""
    shorter = min(len(one), len(other))
    return len(one & other) / (shorter + 1) if shorter else 0.0


def repetition(candidate: Terms, taken: Terms) -> float:
    """The share of the candidate that has already been said, 0..1."""
    return len(candidate & taken) / len(candidate) if candidate else 1.0


def _scaled(scores: list[float]) -> list[float]:
    highest = max(scores, default=0.0)
    return [score / highest for score in scores] if highest > 0 else scores
