"""The language of queries: words, and "phrases" in double quotes; nothing in it is an operator. Pure.

A text is indexed as `spelled` spells it, so that scripts without spaces are found too: their runs are spelled as
overlapping keys. Quoted words alone go to FTS5, whatever the caller wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abridged.service.recall.errors import InvalidQuery
from abridged.service.text.phrases import Words, words_of
from abridged.service.text.words import STEM_CHARS, folded, script_runs

TERMS_MAX = 64
"""Limit on the words and phrases of a query."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query as it was parsed.

    Attributes:
        text: All of it without quotes, for its vector.
        words: Expressions of FTS5, one a word; a text with more and rarer ones of them is a better match.
        phrases: Expressions of FTS5 that a text must match, every one.
        stems: The beginnings of words that a snippet should show, folded.
    """

    text: str
    words: tuple[str, ...]
    phrases: tuple[str, ...]
    stems: tuple[str, ...]


def parsed(text: str) -> Query:
    """The query that a caller wrote.

    A word is what stands between blanks; one with marks in it, such as `orders_17`, is found as it stands. Words of
    grammar count only when there are no others, and words that only talk about conversations, such as `mentioned`, only
    when all others are of grammar. Raises InvalidQuery.
    """
    parts = text.split('"')
    if len(parts) % 2 == 0:
        raise InvalidQuery("has a quote that is not closed")
    phrases = [_quoted(spelled(part)) for part in parts[1::2] if spelled(part)]
    chunks = [chunk for part in parts[::2] for chunk in folded(part).split()]
    telling = _telling(chunks)
    words = [word for chunk in (telling or ([] if phrases else chunks)) for word in _words(chunk)]
    if not words and not phrases:
        raise InvalidQuery("has no word to look for")
    if len(words) + len(phrases) > TERMS_MAX:
        raise InvalidQuery(f"has more than {TERMS_MAX} words and phrases")
    stems = (run[:STEM_CHARS] for part in (*telling, *parts[1::2]) for run, _ in script_runs(folded(part)))
    return Query(
        " ".join(text.replace('"', " ").split()),
        tuple(dict.fromkeys(words)),
        tuple(dict.fromkeys(phrases)),
        tuple(dict.fromkeys(stem for stem in stems if stem not in words_of(Words.GRAMMAR))),
    )


def spelled(text: str) -> str:
    """The words of the text, folded, with blanks between them: what is indexed of it."""
    return " ".join(key for run, size in script_runs(folded(text)) for key in _keys(run, size))


def _keys(run: str, size: int) -> Iterator[str]:
    if not size or len(run) <= size:
        yield run
        return
    yield from (run[at : at + size] for at in range(len(run) - size + 1))


def _words(chunk: str) -> Iterator[str]:
    """One expression for the adjacent words of a chunk, and one for each key of a script without spaces."""
    spaced: list[str] = []
    for run, size in script_runs(chunk):
        if not size:
            spaced.append(run)
            continue
        # A single character is the beginning of a key.
        yield from (_quoted(key) if len(key) == size else f"{_quoted(key)} *" for key in _keys(run, size))
    if spaced:
        yield _quoted(" ".join(spaced))


def _telling(chunks: Sequence[str]) -> list[str]:
    """The chunks that tell the subject of the search."""
    beyond_grammar = [chunk for chunk in chunks if not _is_of(Words.GRAMMAR, chunk)]
    return [chunk for chunk in beyond_grammar if not _is_of(Words.TALK, chunk)] or beyond_grammar


def _is_of(kind: Words, chunk: str) -> bool:
    known = words_of(kind)
    return all(run in known or (len(run) == 1 and not size and not run.isdecimal()) for run, size in script_runs(chunk))


def _quoted(words: str) -> str:
    """Only letters, digits and blanks come here: `spelled` and `script_runs` leave nothing else."""
    return f'"{words}"'
