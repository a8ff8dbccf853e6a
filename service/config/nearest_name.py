"""Which setting somebody meant: the nearest name, whether it is dotted or that of an environment variable."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

PREFIX = "ABRIDGED_"
"""Of our environment variables."""

LIKENESS_MIN = 0.6
WHOLE_LIKENESS_MIN = 0.9
"""Below it, two whole names may be alike by their group alone."""
BEGINNING_WEIGHT = 0.95
GROUP_WEIGHT = 0.3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest of `known`, of equals the first; empty when none of them is near."""
    likeness, nearest = max(((_likeness(name, candidate), candidate) for candidate in known), key=lambda pair: pair[0])
    return f"; did you mean {nearest}?" if likeness >= LIKENESS_MIN else ""


def _likeness(name: str, candidate: str) -> float:
    """From 0 to 1. Group and last part are compared by themselves: a long group would make any two names alike."""
    one, other = _plain_name(name), _plain_name(candidate)
    (group, _, last), (other_group, _, other_last) = one.rpartition("."), other.rpartition(".")
    # Whoever shortens a name writes its first words.
    beginning = "_".join(other_last.split("_")[: last.count("_") + 1])
    parts = max(_ratio(last, other_last), BEGINNING_WEIGHT * _ratio(last, beginning))
    parts *= 1 - GROUP_WEIGHT + GROUP_WEIGHT * _ratio(group, other_group)
    whole = _ratio(one.replace(".", "_"), other.replace(".", "_"))
    return max(parts, whole if whole >= WHOLE_LIKENESS_MIN else 0.0)


def _plain_name(name: str) -> str:
    return name.removeprefix(PREFIX).replace("__", ".").lower()


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
