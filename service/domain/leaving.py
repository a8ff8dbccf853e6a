"""Reads what leaves a window: the identifiers of its messages and of the records that a pass replaces.

Every identifier counts that the ledger's own reading meets, also those that are not worth one of its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended, PassPlan
from abridged.service.domain.ledger import NO_LEDGER, Use
from abridged.service.domain.ledger_entries import found_in
from abridged.service.domain.message import Role
from abridged.service.domain.receipt import Decided, Leaving, Named
from abridged.service.domain.render import said_text
from abridged.service.text.mentions import Mention, mentions
from abridged.service.text.naming import Names

_USES: Final = tuple(Use)


class Hearing:
    """Collects the identifiers that `found_in` meets in messages that leave, and in tool results that stay."""

    def __init__(self, leaving: Iterable[MessageAppended], staying: Iterable[MessageAppended] = ()) -> None:
        self._leaving = {m.number for m in leaving}
        self._names: dict[str, Named] = {}
        self._results: dict[int, dict[str, Named]] = {m.number: {} for m in staying if m.message.role is Role.TOOL}

    def __call__(self, mention: Mention, number: int, use: Use) -> None:
        """Take note of an identifier that a message names; messages come in order."""
        if number in self._leaving:
            _note(self._names, mention.text, number, use)
        elif use is Use.TOOL and number in self._results:
            _note(self._results[number], mention.text, number, use)

    def leaving(self, records: Iterable[str], decisions: Iterable[Decided]) -> Leaving:
        """Return everything that was heard, with the identifiers of the texts of records, and with decisions."""
        names = dict(self._names)
        for text in records:
            for mention in mentions(text, said=True):
                if mention.text.casefold() not in names:
                    _note(names, mention.text, 0, Use.ASSISTANT)
        decided = {one.text.casefold(): one for one in decisions}
        return Leaving(names, decided, self._results, Names((*names, *decided)))


def names_of(m: MessageAppended) -> Mapping[str, Named]:
    """The identifiers of one message, by key."""
    heard = Hearing((m,))
    found_in((m,), (), NO_LEDGER, heard)
    return heard.leaving((), ()).names


def replaced_texts(state: Conversation, plan: PassPlan) -> list[str]:
    """The texts of records that the window no longer shows after the pass: of those that give way to the new one, and
    of those that it shows in short from now on."""
    return [
        said_text(shown)
        for shown in state.shown
        if shown.record.id not in plan.beside_ids or (shown.record.id in plan.short_ids and not shown.short)
    ]


def _note(names: dict[str, Named], text: str, number: int, use: Use) -> None:
    key = text.casefold()
    known = names.get(key)
    names[key] = Named(text, number, use if known is None else min(use, known.use, key=_USES.index))
