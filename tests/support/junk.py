"""Junk that obeys the schema, as data: chats in several languages, their honest records, and pieces of junk for them.

`junk.json` beside this file has all of it. A piece says whether it comes as the first record of its chat or as the
one that continues the chat's honest record, and which of the policy's floors, taken out, lets it through.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent
_DATA: Final = json.loads((_FOLDER / "junk.json").read_text(encoding="utf-8"))
_DEMO: Final = json.loads((_FOLDER / "../../service/cli/demo_conversation.json").read_text(encoding="utf-8"))
_EMPTY: Final = {
    "summary": "",
    **{name: [] for name in ("key_points", "participants", "decisions", "unresolved", "domain_entities")},
    "action_items": [],
}


@dataclass(frozen=True)
class JunkChat:
    """A source: the texts of its first pass and of the next, and honest records of both; the last may be missing."""

    name: str
    first: tuple[str, ...]
    later: tuple[str, ...]
    honest: dict[str, Any]
    continued: dict[str, Any] | None


@dataclass(frozen=True)
class Junk:
    """A draft that no record may come from."""

    name: str
    chat: JunkChat
    continues: bool
    record: dict[str, Any]


def _demo(first: int, end: int) -> tuple[str, ...]:
    return tuple(m["content"] for m in _DEMO["messages"][first:end] if m["content"])


def _chat(name: str, data: dict[str, Any]) -> JunkChat:
    first, later = data.get("messages"), data.get("later", ())
    return JunkChat(
        name,
        tuple(first) if first else _demo(*data["demo"]),
        _demo(*data["later_demo"]) if "later_demo" in data else tuple(later),
        _EMPTY | data["honest"],
        _EMPTY | data["continued"] if "continued" in data else None,
    )


def _record(chat: JunkChat, written: dict[str, Any]) -> dict[str, Any]:
    if not written.get("previous"):
        return _EMPTY | written
    return chat.honest | ({"key_points": chat.honest["key_points"][::-1]} if written.get("swap") else {})


CHATS: Final = {name: _chat(name, data) for name, data in _DATA["chats"].items()}
JUNK: Final = tuple(
    Junk(piece["name"], CHATS[piece["chat"]], piece["continued"], _record(CHATS[piece["chat"]], piece["record"]))
    for piece in _DATA["junk"]
)
