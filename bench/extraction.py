"""Extracts of real chats, held against the judgements of bench/judged.py, beside LexRank and TextRank of sumy.

A line of a list is right if its sentence was judged to be of that kind and no other line of the list says the same. The
others make no lists, so they are compared by what their text still holds, at the same size in tokens. sumy is not
a dependency: install it for the comparison (`pip install sumy==0.13.0 numpy`); without it, a row says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from abridged.service.domain.message import Message
from abridged.service.extraction.extract import Extract, extract
from abridged.service.extraction.passages import gathered
from abridged.service.grounding.claims import survival, texts_of
from abridged.service.text.sentences import sentences
from abridged.service.tokenizers.estimated import EstimatingCounter
from bench.costs import chats_of
from bench.judged import JUDGED
from bench.player import PlayedChat

TOKENS: Final = 1_000
"""The size of each extract."""

PIECE_CHARS_MAX: Final = 20_000
"""Characters of the start of an unjudged chat that are used: LexRank and TextRank compare all pairs of sentences."""

KINDS: Final = {"D": "decisions", "T": "tasks", "Q": "questions"}
RANKERS: Final = {"LexRank": ("lex_rank", "LexRankSummarizer"), "TextRank": ("text_rank", "TextRankSummarizer")}
SUMY: Final = "sumy"

HEADINGS = ("chats", "by", "pieces", "tokens", "identifiers", "judged kept", *KINDS.values())

Labels = Mapping[str, str]
"""Labels by the digest of their sentences."""

_PIECE: Final = re.compile(r"(.+)\[(\d+):(\d+)\]")
_WORD: Final = re.compile(r"\w+")
_SPEAKER: Final = re.compile(r"[^:\n]{1,60}: (?=\S)")

_COUNT: Final = EstimatingCounter().count


@dataclass(slots=True)
class Found:
    """Counts of one kind: lines listed, those of them that are right, and what a reader found."""

    listed: int = 0
    right: int = 0
    there: int = 0

    def __str__(self) -> str:
        return f"{self.right} of {self.listed} right, {self.right} of {self.there} found"


@dataclass(slots=True)
class _Sums:
    tokens: int = 0
    identifiers: list[float] = field(default_factory=list)
    kept: int = 0
    there: int = 0


def digest_of(sentence: str) -> str:
    """Return the name of a sentence in judgements: 12 hexadecimal digits of the SHA-256 of its words."""
    return hashlib.sha256(" ".join(_WORD.findall(sentence.casefold())).encode()).hexdigest()[:12]


def pieces_of(path: Path) -> list[PlayedChat]:
    """The judged pieces of a file's chats; if it has none, the start of each chat."""
    chats = dict(chats_of(path))
    judged: list[PlayedChat] = []
    for name in JUDGED:
        cut = _PIECE.fullmatch(name)
        messages = chats.get(cut[1] if cut else name)
        if messages is not None:
            judged.append((name, messages[int(cut[2]) : int(cut[3])] if cut else messages))
    return judged or [(name, list(_start(messages))) for name, messages in chats.items()]


def judged_lines(kind: str, lines: Iterable[str], labels: Labels, found: Found) -> None:
    """Count one chat's list of a kind, D, T or Q, in `found`."""
    wanted = {label for label in labels.values() if label[0] == kind}
    right: set[str] = set()
    for line in lines:
        found.listed += 1
        label = labels.get(digest_of(_said(line)), "")
        right |= {label} & wanted
    found.right += len(right)
    found.there += len(wanted)


def rows(folder: Path) -> Iterator[tuple[str, ...]]:
    """A row of HEADINGS for each file of the folder and each who made extracts."""
    for path in sorted(folder.glob("*.jsonl")):
        pieces = pieces_of(path)
        yield _own_row(path.stem, pieces)
        for name in RANKERS:
            if find_spec(SUMY) is None:
                yield (path.stem, f"{name}: sumy is not installed", *("",) * (len(HEADINGS) - 2))
            else:
                yield _row(path.stem, name, pieces, _ranker(name))


def _own_row(chats: str, pieces: Sequence[PlayedChat]) -> tuple[str, ...]:
    found = {kind: Found() for kind in KINDS}

    def made(name: str, messages: Sequence[Message]) -> str:
        extracted = extract(messages, previous=None, tokens_max=TOKENS, count_tokens=_COUNT)
        context, labels = extracted.context, _labels(name)
        lists = (context.decisions, [item.task for item in context.action_items], context.unresolved)
        for kind, lines in zip(KINDS, lists, strict=True):
            judged_lines(kind, lines, labels, found[kind])
        return _text(extracted)

    row = _row(chats, "abridged", pieces, made)
    counted = [str(count) for count in found.values()]
    return (*row[: -len(KINDS)], *counted) if any(name in JUDGED for name, _ in pieces) else row


def _row(
    chats: str, by: str, pieces: Sequence[PlayedChat], made: Callable[[str, Sequence[Message]], str]
) -> tuple[str, ...]:
    sums = _Sums()
    for name, messages in pieces:
        text = made(name, messages)
        source = "\n".join(said for message in messages for said in texts_of(message))
        labels = _labels(name)
        kept = {labels.get(digest_of(_said(line))) for line in text.splitlines()} - {None}
        sums.tokens += _COUNT(text)
        sums.identifiers.append(survival(source, text))
        sums.kept += len(kept)
        sums.there += len(set(labels.values()))
    share = f"{sum(sums.identifiers) / len(sums.identifiers):.0%}" if sums.identifiers else ""
    kept_of = f"{sums.kept} of {sums.there}"
    return (chats, by, str(len(pieces)), str(sums.tokens), share, kept_of, *("",) * len(KINDS))


def _said(line: str) -> str:
    prefix = _SPEAKER.match(line)
    return line[prefix.end() :] if prefix else line


def _labels(name: str) -> dict[str, str]:
    parts = (judgement.split() for judgement in JUDGED.get(name, ()))
    return {digest: label for label, _, digest in parts}


def _text(extracted: Extract) -> str:
    context = extracted.context
    tasks = (item.task for item in context.action_items)
    lists = (context.participants, context.decisions, tasks, context.unresolved, context.domain_entities)
    return "\n".join((extracted.summary, *extracted.key_points, *(line for lines in lists for line in lines)))


def _ranker(name: str) -> Callable[[str, Sequence[Message]], str]:
    """Rank the sentences that an extract is made from with one of sumy's rankers, up to as many tokens."""
    module, summarizer = RANKERS[name]
    ranker: Any = getattr(import_module(f"sumy.summarizers.{module}"), summarizer)()
    parser: Any = import_module("sumy.parsers.plaintext").PlaintextParser

    def made(_: str, messages: Sequence[Message]) -> str:
        own = extract(messages, previous=None, tokens_max=TOKENS, count_tokens=_COUNT)
        room = _COUNT(_text(own))

        def fitting(infos: Sequence[Any]) -> list[Any]:
            left, taken = room, []
            for info in infos:
                cost = _COUNT(f"{info.sentence}\n")
                if cost <= left:
                    left -= cost
                    taken.append(info)
            return taken

        lines = [passage.text for passage in gathered(messages, previous=None).passages]
        document = parser.from_string("\n".join(lines), _Sentences()).document
        return "\n".join(str(sentence) for sentence in ranker(document, fitting))

    return made


class _Sentences:
    """sumy's interface of a tokenizer."""

    def to_sentences(self, text: str) -> tuple[str, ...]:
        return tuple(sentences(text))

    def to_words(self, sentence: str) -> tuple[str, ...]:
        return tuple(_WORD.findall(sentence.casefold()))


def _start(messages: Sequence[Message]) -> Iterator[Message]:
    left = PIECE_CHARS_MAX
    for message in messages:
        left -= len(message.content)
        if left < 0:
            return
        yield message
