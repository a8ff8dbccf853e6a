"""Reads the values that are said one after the other, each with the earlier ones that it may supersede.

A ledger lets a statement supersede one value, the likeliest. Whoever quotes a source, or leaves a sentence of it out,
asks for every one and sets a bar of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from abridged.service.domain.ledger_entries import LISTED_MIN, stated_by
from abridged.service.domain.standing_values import StandingValues, Stated, odds_of, shape_of, told_by
from abridged.service.text.mentions import Mention, mentions


class Said(NamedTuple):
    """A value in a text.

    Attributes:
        place: The text's place among those that were read, from 0.
        mention: The value there.
        stated: What its sentence says of it.
        supersedes: The earlier values that it may supersede, case folded, each with the log odds; empty for a value
            that is only supposed.
    """

    place: int
    mention: Mention
    stated: Stated
    supersedes: tuple[tuple[str, float], ...]


def values_said(texts: Iterable[tuple[int, str]], standing: StandingValues) -> Iterator[Said]:
    """The values of texts in their order, each text after the number of its message. `standing` has them in the end.

    A value supersedes none of its own message, and none that this message names again.
    """
    for number, said in groupby(enumerate(texts), key=lambda one: one[1][0]):
        named = [(place, mention) for place, (_, text) in said for mention in mentions(text, said=True)]
        shapes = {key: shape_of(key) for key in (mention.text.casefold() for _, mention in named)}
        times = Counter(shapes.values())
        told = {sentence: told_by(sentence) for sentence in {mention.words.sentence for _, mention in named}}
        for key in shapes:
            standing.named_again(key, number)
        for place, mention in named:
            is_listed = times[shapes[mention.text.casefold()]] >= LISTED_MIN
            stated = stated_by(mention, number, told[mention.words.sentence], is_listed=is_listed)
            candidates = () if mention.words.supposed else standing.candidates(stated)
            yield Said(place, mention, stated, tuple((old, odds_of(signs)) for old, signs in candidates))
            standing.stands(stated)
