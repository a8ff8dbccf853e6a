"""The folder of the real conversations that tests, benchmarks and trials share: `../shared/data` beside the repository.

The environment variable ABRIDGED_SHARED_DATA names another folder. The repository holds no copy of them, so a test that
uses them skips where the default folder is absent; a folder that was named and is not there fails.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from abridged.service.domain.message import Message, Role, ToolCall

FILES = ("airline_tool_chats.jsonl", "coding_agent_chats.jsonl", "meetings.jsonl")

_NAMED = "ABRIDGED_SHARED_DATA"
_KEPT = "TESTS_SHARED_DATA"
"""The same for the processes of one test run: the product refuses a variable of its own prefix that is no setting."""

_BESIDE = Path(__file__).parents[3] / "shared" / "data"


def keep_named_folder() -> None:
    """Take over the value of ABRIDGED_SHARED_DATA, before the test run removes it from its environment."""
    if named := os.environ.pop(_NAMED, ""):
        os.environ[_KEPT] = named


def shared_data_is_there() -> bool:
    """Return whether somebody named a folder, or the default one lies beside the repository."""
    return bool(os.environ.get(_KEPT)) or _BESIDE.is_dir()


def shared_file(name: str) -> Path:
    """One of FILES. Skips the test where nobody named a folder and none lies beside the repository."""
    named = os.environ.get(_KEPT, "")
    folder = Path(named) if named else _BESIDE
    if not named and not folder.is_dir():
        pytest.skip(f"needs the shared conversations, at ../shared/data or where {_NAMED} says")
    path = folder / name
    assert path.is_file(), f"{_NAMED} or ../shared/data holds no {name}"
    return path


def shared_chats(name: str) -> Iterator[dict[str, Any]]:
    """The chats of a file: `conversation_id` and `messages`."""
    for line in shared_file(name).read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def loaded(entry: Mapping[str, Any]) -> Message:
    """One of a chat's `messages`, as the domain has it."""
    calls = tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in entry.get("tool_calls") or ())
    return Message(
        entry["id"],
        Role(entry["role"]),
        entry["content"] or "",
        name=entry.get("name") or "",
        tool_calls=calls,
        tool_call_id=entry.get("tool_call_id") or "",
    )
