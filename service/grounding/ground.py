"""Measures the share of a draft that comes from its source, and the share of the source that it covers.

`known` is about the draft: a text about something else has words that the source lacks. `coverage` is about the source:
a text about its first message alone leaves the rest out. Both are lenient if there is little evidence: a source of
three short messages proves little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from abridged.service.text.words import Known, known_share, word_keys

PARTS_MAX: Final = 8
_PART_KEYS: Final = 50
"""New words that make a part of the source, which a summary has to cover."""

_PARTS_MIN: Final = 6
_TOUCHED_KEYS: Final = 2
"""A single word may occur by chance."""

_NEW_KEYS_MIN: Final = 12
"""Fewer new words are small talk, which a summary may leave out."""

_EVIDENCE_PER_WORD: Final = 8
"""Words that the source must have for each word that a draft must share with it."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The measure of a draft: `said` are the keys of source and previous record, `new` those of the source alone.

    `parts` are consecutive stretches of the source, each with the keys that distinguish it from most others.
    """

    said: frozenset[str]
    new: frozenset[str]
    parts: tuple[frozenset[str], ...]

    def known(self, text: str) -> Known:
        """Counts the words of `text` that somebody said."""
        return known_share(text, self.said)

    def words_needed(self, most: int) -> int:
        """The number of its source's words that a draft must share: at most `most`, fewer if the source has few."""
        return min(most, len(self.said) // _EVIDENCE_PER_WORD)

    def coverage(self, keys: frozenset[str]) -> float:
        """Share of the source's parts that `keys` cover, 0..1; 1.0 if the source is too short to tell."""
        if len(self.parts) < _PARTS_MIN:
            return 1.0
        return sum(len(keys & part) >= _TOUCHED_KEYS for part in self.parts) / len(self.parts)

    def says_nothing_new(self, keys: frozenset[str]) -> bool:
        """Return whether `keys` contain nothing that is new in the source, although there is enough."""
        return len(self.new) >= _NEW_KEYS_MIN and not keys & self.new


def ground_of(texts: Sequence[str], earlier: str) -> Ground:
    """The ground of a source, given as the texts of its messages in order, and of the previous record."""
    before = word_keys(earlier)
    said = [word_keys(text) for text in texts]
    everything = frozenset(chain(before, *said))
    return Ground(everything, everything - before, _parts([keys - before for keys in said]))


def _parts(said: Sequence[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Equal stretches of `said`, each without the keys that occur in more than a third of them."""
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
