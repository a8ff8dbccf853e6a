"""Remembers the messages of a conversation that lay down a standing rule or state a preference.

A standing message holds for many questions that share no word with it, so a search ranks these among themselves, too.
The index reads a user's messages once the reply has come: a rule is what is said to an assistant. A rule stands until a
later message ends it or a caller drops it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import NamedTuple

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.message import Message, Role
from abridged.service.domain.rules import Rule, RuleName, Rules
from abridged.service.domain.rules_found import found_rules
from abridged.service.domain.tokens import TokenSource
from abridged.service.recall.file import Connection
from abridged.service.text.standing import states_preference

RUN_MAX = 16
"""The most messages in a row before a reply that the index reads of a user: the last ones."""

COMPARED_MAX = 64
"""The number of the newest rules of a conversation that a new one may end."""

STANDING_MAX = 256
"""The number of the newest standing messages of a conversation that a search ranks."""

STANDING = (
    "SELECT DISTINCT entry AS rowid FROM standing WHERE conversation = ? AND NOT ended_by"
    f" ORDER BY entry DESC LIMIT {STANDING_MAX}"
)
"""Selects the entries of a conversation that lay down a rule which stands, or state a preference."""


class Said(NamedTuple):
    """An indexed message by its entry's id, its number and its text."""

    entry: int
    number: int
    text: str


def keep_standing(connection: Connection, conversation: int, asked: Sequence[Said], reply: MessageAppended) -> None:
    """Keep the rules and preferences of a user's messages before a reply, and end the rules that they take back."""
    known = connection.execute(
        "SELECT s.rule, e.first FROM standing s JOIN entries e ON e.id = s.entry"
        " WHERE s.conversation = ? AND s.rule <> '' AND NOT s.ended_by ORDER BY s.entry DESC LIMIT ?",
        (conversation, COMPARED_MAX),
    ).fetchall()
    rules = Rules(tuple(Rule(text, number) for text, number in reversed(known)))
    found, revoked = found_rules([*map(_appended, asked), reply], (), rules)
    by_number = {said.number: said for said in asked}
    kept = [(by_number[rule.number].entry, rule.text) for rule in found if not rule.is_tentative]
    kept += [(said.entry, "") for said in asked if states_preference(said.text)]
    for entry, rule in kept:
        connection.execute("INSERT INTO standing VALUES(?, ?, ?, 0)", (conversation, entry, rule))
    for one in revoked:
        _end(connection, conversation, RuleName(one.number, one.text), by_number[one.by].entry)


def drop_standing(connection: Connection, conversation: int, rule: RuleName) -> None:
    """Forget a rule that a caller has dropped."""
    connection.execute(f"DELETE FROM standing {_OF_RULE}", (conversation, rule.text, rule.number))


def forget_standing(connection: Connection, conversation: int, entries: Collection[int]) -> None:
    """Forget the rules and preferences of entries; the rules that they ended stand again."""
    # In two statements for all of them: no index has `ended_by`.
    of_entries = (conversation, json.dumps([*entries]))
    connection.execute(f"DELETE FROM standing WHERE conversation = ? AND entry IN ({_LISTED})", of_entries)
    connection.execute(
        f"UPDATE standing SET ended_by = 0 WHERE conversation = ? AND ended_by IN ({_LISTED})", of_entries
    )


_LISTED = "SELECT value FROM json_each(?)"
_OF_RULE = "WHERE conversation = ?1 AND rule = ?2 AND entry IN (SELECT id FROM entries WHERE first = ?3 AND id = entry)"


def _end(connection: Connection, conversation: int, rule: RuleName, by: int) -> None:
    connection.execute(f"UPDATE standing SET ended_by = ?4 {_OF_RULE}", (conversation, rule.text, rule.number, by))


def _appended(said: Said) -> MessageAppended:
    return MessageAppended(said.number, Message("", Role.USER, said.text), 0, TokenSource.ESTIMATE, "")
