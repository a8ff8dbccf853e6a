"""Tests of a program on a chat that it once had: `pytest --record` writes its log, `pytest` asserts on that."""

from __future__ import annotations

import json
from pathlib import Path

import chat
import pytest

from abridged.client import AsyncConversations, Conversations, start_local
from abridged.client.local import LocalAddress
from abridged.testing import replay
from abridged.v1.summary_pb2 import PROVENANCE_MODEL

LOG = Path(__file__).with_name("chat.jsonl")
DAY_S = 86_400
pytestmark = pytest.mark.abridged(lines=LOG)


@pytest.fixture(scope="module", autouse=True)
def recorded(request: pytest.FixtureRequest) -> None:
    """Play the chat, if asked to. Name your own model in the settings to record its summaries."""
    if request.config.getoption("record"):
        with start_local(record=LOG, settings={"summarizer.models": "scripted:default"}) as address:
            chat.main(address)
    if not LOG.exists():
        pytest.exit("no chat is recorded: pytest --record", returncode=1)


@pytest.fixture
def branch(abridged: Conversations, request: pytest.FixtureRequest) -> str:
    """The recorded chat for one test to change: no other test sees it."""
    return abridged.fork(chat.CHAT, request.node.name).conversation.id


def test_the_window_of_the_last_turn() -> None:
    """Folded from the log, without a sidecar."""
    window = replay(LOG)[chat.CHAT].context

    summary, *_, newest = window.messages
    assert window.compacted
    assert window.message_version == newest.number == 24
    assert summary.message.id == window.summary_id
    assert "order 6" in summary.message.content
    assert newest.message.content == chat.ask("")[0]


def test_a_sidecar_goes_on_from_the_log(abridged: Conversations) -> None:
    """The sidecar serves the folded window, and its record says how it was made."""
    assert abridged.context(chat.CHAT).messages == replay(LOG)[chat.CHAT].context.messages
    (record,) = abridged.summaries(chat.CHAT)
    assert record.provenance == PROVENANCE_MODEL
    assert record.covered_message_count == 17


def test_one_more_question_is_appended_once(abridged: Conversations, branch: str) -> None:
    """A repeat by its id changes nothing."""
    question = {"id": "u13", "role": "user", "content": "Which of them was the first?"}

    once, again = (abridged.append(branch, [question], rendering="openai") for _ in range(2))

    assert abridged.wait_idle(branch, wait_s=5)
    assert once.message_version == again.message_version == 25
    assert once.context.rendered_json == again.context.rendered_json
    assert json.loads(again.context.rendered_json)["messages"][-1]["content"] == question["content"]


def test_the_chat_goes_on_a_day_later(abridged: Conversations, abridged_address: LocalAddress, branch: str) -> None:
    """The sidecar's clock makes it a day later, and no test waits for it."""
    before = abridged.conversation(branch).update_time.ToSeconds()

    abridged_address.advance(DAY_S)
    abridged.append(branch, [{"id": "u13", "role": "user", "content": "Good morning"}])

    assert abridged.wait_idle(branch, wait_s=5)
    assert abridged.conversation(branch).update_time.ToSeconds() - before >= DAY_S
    assert abridged.context(branch).compacted


async def test_an_event_loop_sees_the_same_window(abridged: Conversations, abridged_address: LocalAddress) -> None:
    async with AsyncConversations(abridged_address) as chats:
        window = await chats.context(chat.CHAT)

    assert window.messages == abridged.context(chat.CHAT).messages
