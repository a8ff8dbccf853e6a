"""A file that an earlier program wrote opens: its read table is made again, and says the same.

`read-table-unversioned.sql` is the log of a program whose read table had no version: conversations of two namespaces,
summarized, labelled, reported, past their budget, waiting after a failure, with a fallback record, and with a pass that
was pending when the process stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from tests.support.read_tables import asked, restored
from tests.support.sidecar import Sidecar, script, sidecar

DUMP = "read-table-unversioned.sql"
SEALED = "SELECT position, stream, version, event_id, time_us, commitment, chain, salt, payload FROM events"
"""Events by what every schema has of them: their places, and the seals over all the rest."""

NAMESPACES = ("default", "other")
TOKENS = {"server.tokens": [{"token": name, "namespace": name} for name in NAMESPACES]}
LISTED = "SELECT view FROM conversations WHERE namespace = ? ORDER BY position DESC"
WAITING = ("waiting", "extracted")
"""Conversations whose waits ended long ago, so that a start goes on with them."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return restored(DUMP, tmp_path / "abridged.db")


async def test_an_unversioned_read_table_is_made_again_and_lists_the_same(path):
    """Every conversation as it was shown before, in the same order; nothing of the log is lost."""
    before = {namespace: _views(path, namespace) for namespace in NAMESPACES}
    events = asked(path, SEALED)

    async with sidecar(path.parent, TOKENS | script(path.parent, {"hang": True}), metadata=_bearer("default")) as s:
        assert [line["conversations"] for line in s.logs if line["event"] == "read_table.rebuilt"] == [8]
        for namespace in NAMESPACES:
            listed = {c.id: c for c in await _listed(s, namespace)}
            for view in before[namespace]:
                if view.id not in (*WAITING, "pending"):
                    shown = listed.pop(view.id)
                    # A field of a later version.
                    assert shown.title == view.settings.title
                    shown.ClearField("title")
                    assert shown == view
        assert sorted(listed) == []

    assert asked(path, SEALED)[: len(events)] == events


async def test_a_pending_pass_is_found_in_a_table_that_was_made_again(path):
    """The reactor reads no stream at a start: its work must be in the rows."""
    async with sidecar(path.parent, TOKENS, metadata=_bearer("default")) as s:
        await s.idle()

        assert (await s.chat("pending").context()).compacted
        assert (await s.chat("waiting").context()).compacted


def _views(path: Path, namespace: str) -> list[Any]:
    return [conversation.Conversation.FromString(view) for (view,) in asked(path, LISTED, namespace)]


def _bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


async def _listed(s: Sidecar, namespace: str) -> list[Any]:
    request = api.ListConversationsRequest()
    return list((await s.conversations.ListConversations(request, metadata=_bearer(namespace))).conversations)
