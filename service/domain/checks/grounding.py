"""How much of a draft comes from its source, and how much of the source the draft speaks of.

Two questions with two answers: `known` is about the draft (a text about something else has words that the source never
says), `coverage` about the source (a text about its first message alone leaves the rest out). Both are as lenient as
the evidence is thin: a source of three short messages proves little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from service.domain.words import Known, known_share, word_keys

__all__ = ["Ground", "ground_of"]

PARTS_MAX: Final = 8
_PART_KEYS: Final = 50
"""So many new words make a part of the source that a summary has to speak of."""

_PARTS_MIN: Final = 6
_TOUCHED_KEYS: Final = 2
"""One word may be there by chance."""

_NEW_KEYS_MIN: Final = 12
"""Fewer new words are small talk: a summary may leave them out."""

_EVIDENCE_PER_WORD: Final = 8
"""For each word that a draft must share with its source, the source has to have so many."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a draft stands on: `said` are the keys of source and record before, `new` those of the source alone.

    `parts` are stretches of the source in order, each with the keys that tell it from most of the others.
    """

    said: frozenset[str]
    new: frozenset[str]
    parts: tuple[frozenset[str], ...]

    def known(self, text: str) -> Known:
        """How many of the words of `text` were said."""
        return known_share(text, self.said)

    def words_needed(self, most: int) -> int:
        """How many words of its source a draft can be asked for: at most `most`, fewer where the source has few."""
        return min(most, len(self.said) // _EVIDENCE_PER_WORD)

    def coverage(self, keys: frozenset[str]) -> float:
        """The part of the source that `keys` speak of, 0..1; 1.0 when the source is too short to tell."""
        if len(self.parts) < _PARTS_MIN:
            return 1.0
        return sum(len(keys & part) >= _TOUCHED_KEYS for part in self.parts) / len(self.parts)

    def says_nothing_new(self, keys: frozenset[str]) -> bool:
        """Whether `keys` have nothing of what the source says for the first time, though it says enough."""
        return len(self.new) >= _NEW_KEYS_MIN and not keys & self.new


def ground_of(texts: Sequence[str], earlier: str) -> Ground:
    """The ground of a source, given as the texts of its messages in order, and of the record before it."""
    before = word_keys(earlier)
    said = [word_keys(text) for text in texts]
    everything = frozenset(chain(before, *said))
    return Ground(everything, everything - before, _parts([keys - before for keys in said]))


def _parts(said: Sequence[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Equal stretches of `said`, each without the keys that more than a third of them have."""
    total = sum(map(len, said))
    count = min(PARTS_MAX, len(frozenset(chain(*said))) // _PART_KEYS)
    if count < _PARTS_MIN:
        return ()
    stretches: list[set[str]] = [set() for _ in range(count)]
    place = 0
    for keys in said:
        # In a fixed order, so that the same source has the same parts on any machine.
        for key in sorted(keys):
            stretches[place * count // total].add(key)
            place += 1
    spread = Counter(key for stretch in stretches for key in stretch)
    most = max(1, count // 3)
    own = (frozenset(key for key in stretch if spread[key] <= most) for stretch in stretches)
    return tuple(keys for keys in own if len(keys) >= _TOUCHED_KEYS)
