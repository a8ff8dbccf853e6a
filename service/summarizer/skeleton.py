"""The skeleton of a record: the statements that code keeps of a source, whatever a model writes beside them.

The skeleton is an extract: what the messages say, word for word, and what the record before still says, each with the
messages that it rests on. A model writes the narrative, adds statements, and changes or strikes one by its number.
Statements that it adds or changes need proof like any other; a change that has none gives the statement the words of
the later message that corrects it, if there is one. A strike needs a message, after those of the statement, that is
about the same and ends it: any later statement ends an open point, and only one that reverses or corrects it a
decision. Statements that a model leaves out stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from abridged.service.domain.message import Message, Role
from abridged.service.extraction.cues import asks, is_decision, is_done, is_reversal, leaves_open
from abridged.service.extraction.passages import called_tool
from abridged.service.extraction.talk import is_about, said_by
from abridged.service.extraction.tasks import due_of, owner_of
from abridged.service.grounding.claims import texts_of
from abridged.service.grounding.polarity import contradicting
from abridged.service.grounding.support import Concordance, concordance_of
from abridged.service.summarizer.draft import LENGTHS_MAX, Draft, DraftItem
from abridged.service.summarizer.statements import corrects, has_another_value, quotation
from abridged.service.text.identifiers import identifiers
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.sentences import Terms, sentences, terms_of

_SAME_SHARE: Final = 0.6
"""Share of a statement's words that another of its list has to say the same."""

_KEPT_SHARE: Final = 0.4
"""Share of the words of a changed statement that it had before."""

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


class _Read(NamedTuple):
    """A sentence of a message, and its words."""

    number: int
    text: str
    terms: Terms


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

    def told(self, draft: Draft, fits: Callable[[Draft], bool]) -> Draft:
        """The draft with the lines of the extract's that its narrative does not have, as many whole ones as fit."""
        for line in (*self.extract.summary.splitlines()[1:], *self.extract.key_points):
            if said_by(line)[1] in draft.summary or called_tool(line) is not None:
                continue
            longer = draft.model_copy(update={"summary": "\n".join(filter(None, (draft.summary, line)))})
            draft = longer if fits(longer) else draft
        return draft

    def pointed(self, draft: Draft, fits: Callable[[Draft], bool]) -> Draft:
        """The draft; one without key points has those of the extract's that its narrative does not have, as far as they
        fit."""
        if draft.key_points:
            return draft
        for line in self.extract.key_points:
            longer = draft.model_copy(update={"key_points": [*draft.key_points, line]})
            draft = longer if said_by(line)[1] not in draft.summary and fits(longer) else draft
        return draft

    def joined(self, draft: Draft, concordance: Concordance) -> tuple[Draft, Mapping[str, tuple[int, ...]]]:
        """The draft with the lists of the skeleton, less what it strikes, and with what it changes and adds; and the
        messages of the statements that code keeps."""
        kept, rests_on = self._changed(draft, concordance)
        named = [name for name in kept["participants"] if name not in _ROLES]
        joined: dict[str, list[object]] = {
            "participants": [*(_names(named, draft.participants) or kept["participants"])],
            "domain_entities": [*_names(kept["domain_entities"], draft.domain_entities)],
            **{name: _joined(kept[name], getattr(draft, name)) for name in _LISTS},
        }
        update = {name: listed[: LENGTHS_MAX[name]] for name, listed in joined.items()}
        return draft.model_copy(update={"changes": [], **update}), rests_on

    def _changed(
        self, draft: Draft, concordance: Concordance
    ) -> tuple[dict[str, list[object]], Mapping[str, tuple[int, ...]]]:
        """The lists of the skeleton after the changes of a draft that have a reason, and the messages of all that is in
        them."""
        lists: dict[str, list[object]] = {
            name: list(getattr(self.extract, name)) for name in (*_LISTS, "participants", "domain_entities")
        }
        changes = {change.number: change.text.strip() for change in draft.changes}
        changed = [(one, changes[one.number]) for one in self.numbered if one.number in changes]
        read = tuple(self._read()) if any(not text for _, text in changed) else ()
        struck: set[tuple[str, int]] = set()
        rests_on = dict(self.rests_on)
        for one, text in changed:
            if not text and self._ends(one, read):
                struck.add((one.name, one.place))
            elif text and (new := self._new_text(one, text, concordance)):
                item = _changed_to(new[0], lists[one.name][one.place], is_quoted=new[0] != text)
                lists[one.name][one.place] = item
                rests_on[_text_of(item)] = new[1]
        left = {
            name: [item for index, item in enumerate(items) if (name, index) not in struck]
            for name, items in lists.items()
        }
        return left, rests_on

    def _new_text(self, one: Numbered, text: str, concordance: Concordance) -> tuple[str, tuple[int, ...]] | None:
        """The text that takes the place of a statement, with its messages: the model's if the source proves it, or else
        the line of the later message that corrects it. None without such a message, or for a text about something
        else."""
        terms, testimony, last = terms_of(text), concordance.testimony(text), self._last(one)
        if len(terms & terms_of(one.text)) < max(_SHARED_MIN, _KEPT_SHARE * len(terms)):
            return None
        is_corrected = max(testimony.numbers, default=0) > last and has_another_value(text, one.text)
        if testimony.is_proof and (is_corrected or _things(one.text) <= _things(text)):
            return text, testimony.numbers
        later = (line for line in testimony.lines if max(line.passage.numbers, default=0) > last)
        correcting = (line for line in later if has_phrase(line.text, Phrase.CORRECTS) or is_reversal(line.text))
        return next((found for found in map(quotation, correcting) if found[0]), None)

    def _ends(self, one: Numbered, read: Sequence[_Read]) -> bool:
        """Return whether a message after those of a statement is about it and ends it."""
        terms, last = terms_of(one.text), self._last(one)
        # The words first: they are cheaper to compare than a sentence is to read.
        about = (each for each in read if each.number > last and is_about(each.terms, terms, _ABOUT_SHARE))
        return any(_is_end(each, one, terms) for each in about)

    def _last(self, one: Numbered) -> int:
        """The last of the messages that a statement rests on; 0 if none is known."""
        return max(self.rests_on.get(one.text, ()), default=0)

    def _read(self) -> Iterator[_Read]:
        """The sentences of the source with the numbers of their messages."""
        for number, message in self.said:
            for text in texts_of(message):
                yield from (_Read(number, sentence, terms_of(sentence)) for sentence in sentences(text))


def _is_end(read: _Read, one: Numbered, terms: Terms) -> bool:
    """Return whether a sentence about a statement ends it. A sentence that only speaks of the same ends no decision and
    no task: it may confirm it."""
    sentence = read.text
    if asks(sentence) or leaves_open(sentence):
        return False
    if is_reversal(sentence) or corrects(sentence, one.text):
        return True
    match one.name:
        case "decisions":
            return False
        case "action_items":
            return is_done(sentence)
    ends = is_done(sentence) or is_decision(sentence) or has_phrase(sentence, Phrase.CORRECTS)
    return ends or len(read.terms & terms) >= _ENDING_SHARE * len(terms)


def _changed_to(text: str, item: object, *, is_quoted: bool) -> object:
    """The item of a list with a new text; of a task, owner and due date stay unless the text names others. A quoted
    line says itself who does what by when."""
    if not isinstance(item, DraftItem):
        return text
    if is_quoted:
        return DraftItem(task=text, owner="", due="")
    is_corrected = item.due in text or has_another_value(text, item.due)
    due = due_of(text) or ("" if is_corrected else item.due)
    return DraftItem(task=text, owner=owner_of(text, "") or item.owner, due=due)


def _joined(kept: Sequence[object], added: Sequence[object]) -> list[object]:
    """The statements of the skeleton, and those added that say something else."""
    joined = list(kept)
    for item in added:
        if not any(_says_same(_text_of(item), _text_of(other)) for other in joined):
            joined.append(item)
    return joined


def _says_same(text: str, other: str) -> bool:
    """Return whether a text has no identifier that another lacks, most of its words in common with it, and not the
    opposite sense."""
    terms = terms_of(text)
    is_covered = len(terms & terms_of(other)) >= _SAME_SHARE * max(1, len(terms)) and _things(text) <= _things(other)
    return is_covered and not _is_opposite(text, other)


def _is_opposite(text: str, other: str) -> bool:
    """Return whether a text denies what another says, or one of both alone takes something back."""
    concordance = concordance_of([(1, Message("", Role.USER, said_by(other)[1]))])
    opposed = contradicting(text, concordance.support(text), concordance) is not None
    return opposed or is_reversal(text) is not is_reversal(other)


def _names(kept: Sequence[object], added: Sequence[str]) -> list[str]:
    names = {str(name).casefold(): str(name) for name in kept}
    for name in added:
        names.setdefault(name.strip().casefold(), name)
    return list(names.values())


def _things(text: str) -> frozenset[str]:
    return frozenset(found.text.casefold() for found in identifiers(text))


def _text_of(item: object) -> str:
    return " ".join(filter(None, (item.task, item.owner, item.due))) if isinstance(item, DraftItem) else str(item)
