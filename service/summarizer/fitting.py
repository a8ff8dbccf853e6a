"""Making a draft as small as the window needs it: list items are left out by code, then an extract is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from service.summarizer.draft import Draft

__all__ = ["fitted"]

_LEFT_OUT_FIRST: Final = ("key_points", "domain_entities", "participants", "unresolved", "action_items", "decisions")
"""Lists by what they cost to lose: most key points stand in the narrative too, decisions often nowhere else."""


def fitted(draft: Draft, *, tokens_max: int, cost: Callable[[Draft], int], cut_narrative: bool = False) -> Draft | None:
    """The draft with as many list items as fit, the first ones of each list; None when its narrative alone is too long.

    With `cut_narrative` the beginning of the narrative that fits is left, at least a character.
    `cost` is what a draft takes in the window, in tokens. The work is one costing for each halving of a list.
    """
    if cost(draft) <= tokens_max:
        return draft
    for name in _LEFT_OUT_FIRST:
        bare = draft.model_copy(update={name: []})
        if cost(bare) <= tokens_max:
            return _with_most_items(draft, name, tokens_max=tokens_max, cost=cost)
        draft = bare
    return _cut(draft, tokens_max=tokens_max, cost=cost) if cut_narrative else None


def _cut(draft: Draft, *, tokens_max: int, cost: Callable[[Draft], int]) -> Draft:
    text = draft.summary
    fits, fails = 1, len(text)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if cost(draft.model_copy(update={"summary": text[:middle]})) <= tokens_max:
            fits = middle
        else:
            fails = middle
    return draft.model_copy(update={"summary": text[:fits].rstrip() or text[:1]})


def _with_most_items(draft: Draft, name: str, *, tokens_max: int, cost: Callable[[Draft], int]) -> Draft:
    """The draft with the longest start of list `name` that fits; without the list it fits."""
    items = getattr(draft, name)
    fits, fails = 0, len(items)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if cost(draft.model_copy(update={name: items[:middle]})) <= tokens_max:
            fits = middle
        else:
            fails = middle
    return draft.model_copy(update={name: items[:fits]})
