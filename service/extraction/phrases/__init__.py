"""The phrases that cues look for, as patterns by language for a search without case.

`\\w` runs over characters of Chinese and Japanese up to the next stop or comma.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Phrases", "either"]

Phrases = Mapping[str, tuple[str, ...]]
"""The patterns of each language."""


def either(phrases: Phrases, *others: str) -> str:
    """One pattern of `others` and the phrases of every language."""
    return "|".join((*others, *(phrase for listed in phrases.values() for phrase in listed)))
