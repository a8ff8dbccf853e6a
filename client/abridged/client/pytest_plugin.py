"""Fixtures for pytest: a sidecar of its own for each test that asks for one.

def test_the_window_fits(abridged):
    abridged.append("chat-1", [{"role": "user", "content": "Good morning"}])
    assert abridged.wait_idle("chat-1", wait_s=5)

@pytest.mark.abridged(lines="tests/log.jsonl", settings={"policy.trigger_token_ratio": "0.9"})
async def test_a_recorded_chat(abridged_address):
    async with AsyncConversations(abridged_address) as chats: ...

A start takes a second. The tests of a file share a sidecar with `abridged_scope = module` in the settings of pytest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from abridged.client.blocking import Conversations
from abridged.client.local import DEFAULT_COMMAND, LocalAddress, start_local

_MARK = "abridged"
_SCOPE = "abridged_scope"
_SCOPES = ("function", "class", "module", "package", "session")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, which pytest may be asked to refuse otherwise."""
    if config.getini(_SCOPE) not in _SCOPES:
        raise pytest.UsageError(f"{_SCOPE} is one of {', '.join(_SCOPES)}")
    config.addinivalue_line("markers", f"{_MARK}(lines, record, settings): as `start_local` takes them")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting that says which tests share a sidecar."""
    parser.addini(_SCOPE, "which tests share a sidecar: function, class, module, package, session", default="function")


def _scope(fixture_name: str, config: pytest.Config) -> Any:  # noqa: ARG001 -- pytest names both
    return config.getini(_SCOPE)


@pytest.fixture(scope=_scope)
def abridged_command() -> Sequence[str]:
    """The command that runs abridged; a fixture of this name in a conftest.py takes its place."""
    return DEFAULT_COMMAND


@pytest.fixture(scope=_scope)
def abridged_address(request: pytest.FixtureRequest, abridged_command: Sequence[str]) -> Iterator[LocalAddress]:
    """The address of a sidecar that lives as long as `abridged_scope` says, by default for one test, with its log in
    memory and without a model. The address can `advance` the sidecar's clock.

    The mark `abridged`, of the test or of the module, has what `start_local` takes: settings, and the lines of a log to
    begin with.
    """
    mark = request.node.get_closest_marker(_MARK)
    with start_local(command=abridged_command, **(mark.kwargs if mark else {})) as address:
        yield address


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse marks that no fixture would read."""
    shared = config.getini(_SCOPE) != "function"
    for item in items:
        own = [mark for mark in item.own_markers if mark.name == _MARK]
        if shared and own:
            raise pytest.UsageError(f"{item.nodeid}: it shares its sidecar, so mark the module or class instead")
        if any(mark.args for mark in item.iter_markers(_MARK)):
            raise pytest.UsageError(f"{item.nodeid}: name what the sidecar begins with, such as lines=...")


@pytest.fixture(scope=_scope)
def abridged(abridged_address: str) -> Iterator[Conversations]:
    """A client of that sidecar."""
    with Conversations(abridged_address) as chats:
        yield chats
