"""The skeleton of a record: the statements that code keeps of a source, whatever a model writes beside them.

It is an extract: what the messages say, word for word, and what the record before still says, each with the messages
that it rests on. A model writes the narrative, adds statements, and changes or strikes one by its number. What it adds
and changes needs support like any statement; what it strikes needs a message, after those of the statement, that is
about the same and ends it. What a model leaves out stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from abridged.service.domain.message import Message, Role
from abridged.service.extraction.cues import asks, is_decision, is_done, is_reversal, leaves_open
from abridged.service.grounding.claims import texts_of
from abridged.service.grounding.polarity import contradicting
from abridged.service.grounding.support import Concordance
from abridged.service.summarizer.draft import LENGTHS_MAX, Draft, DraftItem
from abridged.service.text.identifiers import identifiers
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.sentences import Terms, sentences, terms_of

_SAME_SHARE: Final = 0.6
"""Share of a statement's words that another of its list has to say the same."""

_ABOUT_SHARE: Final = 1 / 3
_ENDING_SHARE: Final = 1 / 2
"""Share of a statement's words in a message that is about it, with a word of an end and without one."""

_SHARED_MIN: Final = 2

_ROLES: Final = frozenset(Role)
"""Speakers without a name, whom a model that names somebody need not list."""

_LISTS: Final = {"decisions": "decision", "action_items": "action item", "unresolved": "open"}
"""The lists whose statements have numbers, and what a prompt calls one."""


class Numbered(NamedTuple):
    """A statement with its number in the prompt. `place` is its place in its list."""

    number: int
    name: str
    place: int
    text: str


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The lists that code keeps.

    Attributes:
        extract: The draft of the extract.
        rests_on: The messages that its lines rest on.
        said: The numbered messages of the source.
    """

    extract: Draft
    rests_on: Mapping[str, tuple[int, ...]]
    said: Sequence[tuple[int, Message]]

    @property
    def lists(self) -> Draft:
        """The extract without its narrative and its key points, which a model writes."""
        return self.extract.model_copy(update={"summary": "", "key_points": []})

    @property
    def numbered(self) -> tuple[Numbered, ...]:
        """The statements that a model may change or strike, numbered from 1."""
        listed = [
            (name, index, _text_of(item)) for name in _LISTS for index, item in enumerate(getattr(self.extract, name))
        ]
        return tuple(Numbered(number, *one) for number, one in enumerate(listed, 1))

    def lines(self) -> tuple[str, ...]:
        """The numbered statements as a prompt lists them."""
        return tuple(f"{one.number} {_LISTS[one.name]}: {one.text}" for one in self.numbered)

    def completed(self, narrative: str) -> str:
        """A narrative with the lines of the extract's that it does not have."""
        lines = (*self.extract.summary.splitlines()[1:], *self.extract.key_points)
        return "\n".join((narrative, *(line for line in lines if line.rpartition(": ")[2] not in narrative)))

    def joined(self, draft: Draft, concordance: Concordance) -> Draft:
        """The draft with the lists of the skeleton, less what it strikes, and with what it changes and adds."""
        kept = self._changed(draft, concordance)
        named = [name for name in kept["participants"] if name not in _ROLES]
        joined: dict[str, list[object]] = {
            "participants": [*(_names(named, draft.participants) or kept["participants"])],
            "domain_entities": [*_names(kept["domain_entities"], draft.domain_entities)],
            **{name: _joined(kept[name], getattr(draft, name)) for name in _LISTS},
        }
        update = {name: listed[: LENGTHS_MAX[name]] for name, listed in joined.items()}
        return draft.model_copy(update={"changes": [], **update})

    def _changed(self, draft: Draft, concordance: Concordance) -> dict[str, list[object]]:
        """The lists of the skeleton after the changes of a draft that have a reason."""
        lists: dict[str, list[object]] = {
            name: list(getattr(self.extract, name)) for name in (*_LISTS, "participants", "domain_entities")
        }
        by_number = {one.number: one for one in self.numbered}
        struck: set[tuple[str, int]] = set()
        for change in draft.changes:
            one = by_number.get(change.number)
            if one is None:
                continue
            text = change.text.strip()
            if not text and self._ends(one):
                struck.add((one.name, one.place))
            elif text and self._replaces(one, text, concordance):
                item = lists[one.name][one.place]
                changed = DraftItem(task=text, owner=item.owner, due=item.due) if isinstance(item, DraftItem) else text
                lists[one.name][one.place] = changed
        return {
            name: [item for index, item in enumerate(items) if (name, index) not in struck]
            for name, items in lists.items()
        }

    def _replaces(self, one: Numbered, text: str, concordance: Concordance) -> bool:
        """Whether a new text is about the same as a statement, and the source bears it out."""
        support = concordance.support(text)
        if not support.supported or contradicting(text, support, concordance) is not None:
            return False
        return len(terms_of(text) & terms_of(one.text)) >= _SHARED_MIN and _things(one.text) <= _things(text)

    def _ends(self, one: Numbered) -> bool:
        """Whether a message after those of a statement is about it and ends it."""
        terms = terms_of(one.text)
        last = max(self.rests_on.get(one.text, ()), default=0)
        after = (message for number, message in self.said if number > last)
        return any(
            _is_end(sentence, terms) for message in after for text in texts_of(message) for sentence in sentences(text)
        )


def _is_end(sentence: str, terms: Terms) -> bool:
    if asks(sentence) or leaves_open(sentence):
        return False
    ends = is_done(sentence) or is_reversal(sentence) or is_decision(sentence) or has_phrase(sentence, Phrase.CORRECTS)
    shared = len(terms_of(sentence) & terms)
    return shared >= max(min(_SHARED_MIN, len(terms)), (_ABOUT_SHARE if ends else _ENDING_SHARE) * len(terms)) > 0


def _joined(kept: Sequence[object], added: Sequence[object]) -> list[object]:
    """The statements of the skeleton, and those added that say something else."""
    known = [(terms_of(_text_of(item)), _things(_text_of(item))) for item in kept]
    joined = list(kept)
    for item in added:
        text = _text_of(item)
        terms, things = terms_of(text), _things(text)
        if not any(_says_same(terms, things, *other) for other in known):
            joined.append(item)
            known.append((terms, things))
    return joined


def _says_same(terms: Terms, things: frozenset[str], other: Terms, other_things: frozenset[str]) -> bool:
    shared = len(terms & other)
    return things <= other_things and shared >= _SAME_SHARE * max(1, len(terms))


def _names(kept: Sequence[object], added: Sequence[str]) -> list[str]:
    names = {str(name).casefold(): str(name) for name in kept}
    for name in added:
        names.setdefault(name.strip().casefold(), name)
    return list(names.values())


def _things(text: str) -> frozenset[str]:
    return frozenset(found.text.casefold() for found in identifiers(text))


def _text_of(item: object) -> str:
    return " ".join(filter(None, (item.task, item.owner, item.due))) if isinstance(item, DraftItem) else str(item)
