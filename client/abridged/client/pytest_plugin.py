"""Fixtures for pytest: a sidecar of its own for each test that asks for one.

def test_the_window_fits(abridged):
    abridged.append("chat-1", [{"role": "user", "content": "Good morning"}])
    assert abridged.wait_idle("chat-1", wait_s=5)

@pytest.mark.abridged(lines="tests/log.jsonl", settings={"policy.trigger_token_ratio": "0.9"})
async def test_a_recorded_chat(abridged_address):
    async with AsyncConversations(abridged_address) as chats: ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from abridged.client.blocking import Conversations
from abridged.client.local import LocalAddress, start_local

_MARK = "abridged"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, which pytest may be asked to refuse otherwise."""
    config.addinivalue_line("markers", f"{_MARK}(lines=None, settings=None): what the sidecar of a test begins with")


@pytest.fixture
def abridged_command() -> Sequence[str]:
    """The command that runs abridged; a fixture of this name in a conftest.py takes its place."""
    return ("abridged",)


@pytest.fixture
def abridged_address(request: pytest.FixtureRequest, abridged_command: Sequence[str]) -> Iterator[LocalAddress]:
    """The address of a sidecar that lives as long as the test, with its log in memory and without a model. Its clock is
    moved with `advance`.

    The mark `abridged` has its settings, and the lines of a log to begin with, as `start_local` takes them.
    """
    mark = request.node.get_closest_marker(_MARK)
    with start_local(command=abridged_command, **(mark.kwargs if mark else {})) as address:
        yield address


@pytest.fixture
def abridged(abridged_address: str) -> Iterator[Conversations]:
    """A client of the test's own sidecar."""
    with Conversations(abridged_address) as chats:
        yield chats
