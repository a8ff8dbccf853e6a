"""The table of docs/clients.md: each task with its command, its RPC and its method, and all of them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from abridged.client import AsyncConversations, Conversations
from abridged.service.api.methods import METHOD_SCOPES
from abridged.service.cli.main import COMMANDS

PAGE = (Path(__file__).parents[3] / "docs" / "clients.md").read_text(encoding="utf-8")
OTHER_COMMANDS = {"serve", "demo", "chat", "config", "protos", "log", "bench"}
"""Commands that make no call of the contract, or one that is another command's."""


def rows() -> list[list[str]]:
    """The cells of each task."""
    _, _, behind = PAGE.partition("| task | command | RPC | Python |\n|---|---|---|---|\n")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in behind.partition("\n\n")[0].splitlines()]


def commands(cell: str) -> list[str]:
    return re.findall(r"`abridged (\w+)", cell)


def rpcs(cell: str) -> list[str]:
    return [name for name in cell.split(", ") if name]


def methods(cell: str) -> list[str]:
    return re.findall(r"`(\w+)\(", cell)


def source(method: str) -> str:
    """The text that makes the request of a client's method."""
    return inspect.getsource(
        inspect.unwrap(getattr(Conversations, method, None) or getattr(AsyncConversations, method))
    )


def test_the_table_has_every_method_of_the_clients():
    """A caller who looks for a task finds it without reading the client."""
    own = {
        name
        for client in (Conversations, AsyncConversations)
        for name, _ in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_")
    }
    assert {name for *_, cell in rows() for name in methods(cell)} == own


def test_the_table_has_every_rpc_and_every_command_of_one():
    """A caller in another language finds the RPC of a command that a person has tried."""
    assert {name for _, _, cell, _ in rows() for name in rpcs(cell)} == {
        name.partition("/")[2] for name in METHOD_SCOPES
    }
    assert {name for _, cell, *_ in rows() for name in commands(cell)} == set(COMMANDS) - OTHER_COMMANDS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_methods_of_a_task_make_its_calls(row):
    """A reader who goes across a row stays at one call."""
    _, _, called, cell = row
    for method in methods(cell):
        assert all(re.search(rf"[/.]{rpc}\b", source(method)) for rpc in rpcs(called)), method
