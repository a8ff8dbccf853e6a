"""`abridged.testing.replay` and `abridged log replay`: a log without a sidecar shows what a sidecar shows of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from abridged.client import Conversations, start_local
from abridged.testing import LogLinesRefused, replay
from abridged.v1.conversation_pb2 import Conversation
from tests.support.command import PROGRAM, abridged

COMMAND = (sys.executable, "-c", PROGRAM)
SMALL = {
    "summarizer.models": "scripted:default",
    "tokens.default_context_length": "1024",
    "policy.trigger_token_ratio": "0.5",
    "policy.reset_token_ratio": "0.4",
    "policy.tail_token_ratio": "0.2",
}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with passes, a pin, a rewind, a fork and a closed conversation."""
    folder = tmp_path_factory.mktemp("recorded")
    with start_local(folder / "a.db", settings=SMALL, command=COMMAND) as address, Conversations(address) as chats:
        for number in range(24):
            said = f"Order {number} goes to dock {number}. " * 8
            chats.append("whole", [{"id": f"m{number}", "role": "user", "content": said}])
            chats.wait_idle("whole", wait_s=30)
        chats.pin("whole", [23])
        chats.fork("whole", "fork", to_version=22)
        chats.append("fork", [{"role": "assistant", "content": "Which dock is next?"}])
        chats.rewind("whole", to_version=23)
        chats.append("other", [{"role": "user", "content": "Is anybody there?"}])
        chats.close_conversation("other")
    path = folder / "log.jsonl"
    path.write_text(abridged("log", "export", str(folder / "a.db")).out, encoding="utf-8")
    return path


def test_a_folded_log_shows_what_a_sidecar_shows(lines):
    """The same messages of the contract, of every conversation; a context has no caller who was sent one before."""
    folded = replay(lines)

    assert list(folded) == ["whole", "fork", "other"]
    assert folded["whole"].context.compacted
    with start_local(lines=lines, command=COMMAND) as address, Conversations(address) as chats:
        for name, shown in folded.items():
            assert shown.conversation == chats.conversation(name)
            assert shown.context == chats.context(name)
            assert shown.summarizations == list(reversed(list(chats.summarizations(name))))
            assert next(event.type for event in shown.events) in ("ConversationOpened", "ConversationForked")


def test_the_command_prints_the_same(lines):
    """A line of JSON for each conversation, or a row for people."""
    folded = replay(lines.read_bytes())
    as_json, as_rows = abridged("log", "replay", str(lines), "--json"), abridged("log", "replay", str(lines))

    shown = [json.loads(line) for line in as_json.out.splitlines()]
    assert [one["namespace"] for one in shown] == ["default"] * 3
    assert [ParseDict(one["conversation"], Conversation()) for one in shown] == [
        f.conversation for f in folded.values()
    ]
    assert [len(one["summarizations"]) for one in shown] == [len(f.summarizations) for f in folded.values()]
    assert [row.split()[0] for row in as_rows.out.splitlines()] == ["CONVERSATION", *folded]


def test_the_file_of_a_log_is_exported_first(lines):
    """A user who has no lines yet needs no second command."""
    file = abridged("log", "replay", str(lines.with_name("a.db")))

    assert (file.out, file.err) == (abridged("log", "replay", str(lines)).out, "")


def test_every_message_is_there_for_another_policy(lines):
    """The messages include those that a pass covers and those from before a fork, not those that a rewind removed."""
    folded = replay(lines)

    assert [message.id for message in folded["whole"].messages()] == [f"m{number}" for number in range(23)]
    assert [message.id for message in folded["fork"].messages()][:-1] == [f"m{number}" for number in range(22)]


def test_a_broken_line_is_named_and_nothing_is_folded(lines):
    """An event that is missing would be a conversation that never was."""
    whole = lines.read_bytes().splitlines(keepends=True)

    with pytest.raises(LogLinesRefused, match="line 4: position 4 stands in the place of 3"):
        replay(b"".join([*whole[:3], *whole[4:]]))


def test_another_namespace_has_other_conversations(lines):
    """A log of many tenants is asserted on by tenant."""
    assert dict(replay(lines, namespace="elsewhere")) == {}
