"""Real conversations, played by `abridged append --file` into a context of 4,096 tokens without any model: verdicts,
exit codes, and each window message by message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import pytest

from abridged.v1 import conversation_pb2, summary_pb2
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.support.command import Ran, abridged, served
from tests.support.patience import PATIENCE_S
from tests.support.sent_window import faults_of
from tests.support.shared_data import FILES, shared_chats, shared_file

TRIGGER_RATIO = 0.80
NOT_DUE = {"MIN_MESSAGES", "COOLDOWN", "HYSTERESIS", "FREES_LITTLE"}


@dataclass(frozen=True)
class Played:
    """A file that was played as it was spoken, to its open end, and then to a settled one."""

    chats: dict[str, list[dict[str, Any]]]
    open_end: Ran
    settled: Ran
    faults_open: list[str]
    faults_settled: list[str]
    states: dict[str, conversation_pb2.Conversation]


@pytest.fixture(scope="module", params=FILES)
def played(request, tmp_path_factory) -> Iterator[Played]:
    """Each file on a sidecar of its own."""
    path = shared_file(request.param)
    chats = {chat["conversation_id"]: chat["messages"] for chat in shared_chats(request.param)}
    with (
        served(tmp_path_factory.mktemp("served")) as sidecar,
        grpc.insecure_channel(sidecar.address, options=[("grpc.max_receive_message_length", -1)]) as channel,
    ):
        stub: Any = ConversationServiceStub(channel)
        play = partial(abridged, "append", "--file", str(path), "--context-length", "4096", "--json")
        address = ("--address", sidecar.address)
        open_end = play("--no-settle", *address)
        faults_open = found_in(stub, chats)
        # What is known is not appended again, so the second run only settles; its batches are for speed.
        settled = play("--batch", "512", *address)
        yield Played(
            chats,
            open_end,
            settled,
            faults_open,
            found_in(stub, chats),
            {name: state_of(stub, name) for name in chats},
        )


def state_of(stub: Any, name: str) -> conversation_pb2.Conversation:
    request = api.GetConversationRequest(conversation_id=name)
    state: conversation_pb2.Conversation = stub.GetConversation(request, timeout=PATIENCE_S).conversation
    return state


def records_of(stub: Any, name: str) -> Iterator[summary_pb2.SummaryRecord]:
    token = ""
    while True:
        request = api.ListSummariesRequest(conversation_id=name, page_token=token)
        page = stub.ListSummaries(request, timeout=PATIENCE_S)
        yield from page.summaries
        if not (token := page.next_page_token):
            return


def found_in(stub: Any, chats: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the faults of the windows of all chats."""
    faults: list[str] = []
    for name, messages in chats.items():
        window = stub.GetContext(api.GetContextRequest(conversation_id=name), timeout=PATIENCE_S)
        faults += [f"{name}: {fault}" for fault in faults_of(messages, window, records_of(stub, name))]
    return faults


def outcomes(ran: Ran) -> dict[str, dict[str, Any]]:
    decoder, text, found = json.JSONDecoder(), ran.out.strip(), {}
    while text:
        outcome, end = decoder.raw_decode(text)
        found[outcome["conversation_id"]] = outcome
        text = text[end:].lstrip()
    return found


def test_every_message_of_every_chat_is_appended_once(played: Played):
    """Untidy as they are: repeated call ids, empty messages, long tool output."""
    counts = {name: (len(messages), 0) for name, messages in played.chats.items()}
    first, second = outcomes(played.open_end), outcomes(played.settled)

    assert {name: (o["appended"], o["known"]) for name, o in first.items()} == counts
    assert {name: (o["known"], o["appended"]) for name, o in second.items()} == counts
    assert not any(o["faults"] for o in (*first.values(), *second.values()))


def test_every_window_holds_each_message_once_and_no_half_tool_call(played: Played):
    """The chat, played and settled, has each message in the window or covered, in order, and calls with results."""
    assert played.faults_open == []
    assert played.faults_settled == []


def test_an_open_end_fails_where_a_window_is_left_over_its_trigger(played: Played):
    """The verdict is that of the figures, and the exit code that of the verdicts."""
    unwell = set()
    for name, outcome in outcomes(played.open_end).items():
        assert outcome["is_over"] == (outcome["ratio"] >= TRIGGER_RATIO)
        assert bool(outcome["held_by"]) <= outcome["is_over"]
        if outcome["is_over"] and outcome["held_by"] != "IRREDUCIBLE":
            assert outcome["held_by"] in NOT_DUE, "everything that was due has been done"
            unwell.add(name)
        assert outcome["is_well"] == (name not in unwell)

    assert played.open_end.code == (1 if unwell else 0)
    assert f"{len(unwell)} conversation" in played.open_end.err or not unwell


def test_a_settled_end_is_well(played: Played):
    """The end is under its trigger, or irreducible and said so; no pass has failed."""
    ends = outcomes(played.settled)

    assert (played.settled.code, played.settled.err) == (0, "")
    for name, state in played.states.items():
        assert ends[name]["is_well"]
        assert ends[name]["failed"] == 0
        held = conversation_pb2.HeldBy.Name(state.held_by).removeprefix("HELD_BY_")
        assert state.usage.ratio < TRIGGER_RATIO or held == "IRREDUCIBLE"
        assert state.message_version == len(played.chats[name])


def test_passes_are_made_where_the_chat_outgrew_its_context(played: Played):
    """The files are long enough to show something: most messages have left some window."""
    ends = outcomes(played.settled).values()

    assert sum(outcome["records"] for outcome in ends) >= 20
    assert all(outcome["records"] for outcome in ends if outcome["messages"] > 50)
