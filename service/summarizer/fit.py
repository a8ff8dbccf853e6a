"""Fits a draft to its room: list items go, the last ones of each list first, and of an extract the narrative's end.

The narrative of a model gives way to the lists that code keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from abridged.service.summarizer.draft import Draft
from abridged.service.text.sentences import parts_of

_LEFT_OUT_FIRST: Final = ("key_points", "domain_entities", "participants", "unresolved", "action_items", "decisions")
"""Lists by the cost of losing them: the narrative has most key points too, but often no decisions."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of tokens that a draft may have.

    Attributes:
        tokens: Most tokens of a draft in the window.
        cost: Returns the tokens of a draft.
        cuts: True if a narrative that is too long is cut.
        content_tokens: The size that was asked for, without the record's frame and the lists that code keeps.
    """

    tokens: float
    cost: Callable[[Draft], int]
    cuts: bool = False
    content_tokens: float = inf

    def fits(self, draft: Draft) -> bool:
        """Return whether a draft is within the limit."""
        return self.cost(draft) <= self.tokens

    def shortened(self, draft: Draft) -> Draft:
        """The draft with as many sentences of its narrative, from the first on, as fit beside all of its lists but the
        key points; at least one."""
        bare = draft.model_copy(update={"key_points": []})
        if self.fits(bare):
            return draft
        text, ends, at = draft.summary, list[int](), 0
        for part in parts_of(text):
            at = text.index(part, at) + len(part)
            ends.append(at)
        count = _most(1, len(ends), lambda n: self.fits(bare.model_copy(update={"summary": text[: ends[n - 1]]})))
        return draft.model_copy(update={"summary": text[: ends[count - 1]]}) if ends else draft

    def fitted(self, draft: Draft) -> Draft:
        """The draft within the limit; as it is if its narrative alone is too long and may not be cut."""
        return fit_draft(draft, tokens_max=self.tokens, cost=self.cost, cut_narrative=self.cuts) or draft


NO_LIMIT: Final = Limit(inf, lambda _: 0)


def fit_draft(
    draft: Draft, *, tokens_max: float, cost: Callable[[Draft], int], cut_narrative: bool = False
) -> Draft | None:
    """The draft with as many list items as fit, the first ones of each list; None if the narrative alone is too long.

    `cost` returns the tokens of a draft in the window. `cut_narrative` keeps the start of a narrative that is too long,
    at least a character. Each halving of a list costs one call of `cost`.
    """
    if cost(draft) <= tokens_max:
        return draft
    for name in _LEFT_OUT_FIRST:
        bare = draft.model_copy(update={name: []})
        if cost(bare) <= tokens_max:
            return _with_most_items(draft, name, tokens_max=tokens_max, cost=cost)
        draft = bare
    return _cut(draft, tokens_max=tokens_max, cost=cost) if cut_narrative else None


def _cut(draft: Draft, *, tokens_max: float, cost: Callable[[Draft], int]) -> Draft:
    text = draft.summary
    chars = _most(1, len(text), lambda n: cost(draft.model_copy(update={"summary": text[:n]})) <= tokens_max)
    return draft.model_copy(update={"summary": text[:chars].rstrip() or text[:1]})


def _with_most_items(draft: Draft, name: str, *, tokens_max: float, cost: Callable[[Draft], int]) -> Draft:
    """The draft with the longest fitting start of list `name`; it fits without the list."""
    items = getattr(draft, name)
    count = _most(0, len(items), lambda n: cost(draft.model_copy(update={name: items[:n]})) <= tokens_max)
    return draft.model_copy(update={name: items[:count]})


def _most(least: int, too_many: int, fits: Callable[[int], bool]) -> int:
    """The largest number from `least` to below `too_many` that fits, by halves."""
    while too_many - least > 1:
        middle = (least + too_many) // 2
        if fits(middle):
            least = middle
        else:
            too_many = middle
    return least
