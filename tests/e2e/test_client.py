"""The client package against a sidecar: a program's view without a server of its own."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer

from abridged.client import (
    HISTORY_TOOLS,
    AsyncConversations,
    Conversations,
    Patience,
    SidecarError,
    reason,
    start_local,
)
from abridged.testing import replay
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.conversation_service_pb2 import AppendMessagesResponse, GetConversationRequest
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from abridged.v1.error_reason_pb2 import ERROR_REASON_SUMMARIZATION_FAILED
from abridged.v1.message_pb2 import ROLE_USER, Message
from tests.support.command import PROGRAM, abridged, served
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
HELLO = {"role": "user", "content": "Good morning"}
RECORDED = {"tokens.default_context_length": "1024", "summarizer.models": "scripted:default"}
SMALL = {"tokens.default_context_length": "1024"}
SILENT = {"policy.profile": "episodes", "summarizer.models": "scripted:default"}
STUBBORN = Patience(attempts_max=1_000, pause_base_s=0.05, pause_max_s=0.1)


def test_a_chat_goes_in_and_its_window_comes_out(tmp_path):
    """Messages without ids get them, each append its own; lists page by themselves."""
    with served(tmp_path) as sidecar, Conversations(sidecar.address) as chats:
        chats.wait_ready(within_s=PATIENCE_S)
        appended = chats.append("chat-1", [HELLO, {"role": "assistant", "content": "Hello"}])
        yes = Message(role=ROLE_USER, content="Yes")
        first, second = (chats.append("chat-1", [yes]) for _ in range(2))

        assert appended.message_version == 2
        assert all(len(message.id) == 32 for message in appended.messages)
        assert [m.already_appended for m in (*first.messages, *second.messages)] == [False, False]
        assert yes.id == ""
        window = json.loads(chats.context("chat-1", rendering="openai").rendered_json)
        assert window["messages"][0] == HELLO
        assert [m.number for m in chats.originals("chat-1", first=1, last=4)] == [1, 2, 3, 4]
        assert chats.count_tokens("", ["Good morning"]).total_tokens > 0
        forked = chats.fork("chat-1", "chat-2", to_version=1)
        chats.append("chat-1", [{"role": "assistant", "content": "Hi"}], replace_after=1)
        assert [m.number for m in chats.context("chat-1").messages] == [1, 5]
        assert [m.number for m in chats.context("chat-2").messages] == [1]
        assert forked.conversation.forked_from == "chat-1"


@pytest.mark.parametrize("form", ["", "openai"])
def test_an_append_is_repeated_under_the_callers_request_id(form):
    """A program that crashed sends its messages once more, as it has them: without ids."""
    with start_local(command=COMMAND) as address, Conversations(address) as chats:
        once, again = (chats.append("chat-1", [HELLO, HELLO], form=form, request_id="turn-1") for _ in range(2))

        assert once.message_version == again.message_version == 2
        assert [m.id for m in once.messages] == [m.id for m in again.messages]
        with pytest.raises(SidecarError) as reused:
            chats.append("chat-1", [{"role": "user", "content": "Other"}], form=form, request_id="turn-1")
        assert reused.value.reason == "REQUEST_ID_REUSED"


def test_an_append_returns_the_window_as_it_is_asked_for(tmp_path):
    """Each option of the window is one of the append, too, and asks for the window by itself."""
    script = tmp_path / "answers.json"
    script.write_text(json.dumps({"steps": [{"text": "not JSON"}]}))
    with start_local(command=COMMAND) as address, Conversations(address) as chats:
        assert not chats.append("chat-1", [HELLO]).HasField("context")
        tools = chats.append("chat-1", [HELLO], rendering="openai", with_tools=HISTORY_TOOLS).context.tools_json
        assert tools == chats.context("chat-1", rendering="openai", with_tools=HISTORY_TOOLS).tools_json
        assert [tool["function"]["name"] for tool in json.loads(tools)] == ["expand_history", "search_history"]
        assert chats.append("chat-1", [HELLO], with_ledger=True).HasField("context")
        assert chats.append("chat-1", [HELLO], cache_marks=True).HasField("context")
        assert chats.append("chat-1", [HELLO], abort_on_failure=True).HasField("context")
    failing = SMALL | {"summarizer.models": f"scripted:{script}", "policy.fallback": "never"}
    with start_local(settings=failing, command=COMMAND) as address, Conversations(address) as chats:
        long = [{"role": "user", "content": f"Order {n} is late. " * 20} for n in range(14)]
        assert chats.append("chat-1", long, wait_s=PATIENCE_S, rendering="openai").HasField("context")
        refused = chats.append("chat-2", long, wait_s=PATIENCE_S, abort_on_failure=True)
        assert refused.context_failure.reason == ERROR_REASON_SUMMARIZATION_FAILED


def test_settings_records_and_passes_are_read_and_changed_one_by_one():
    """A title that is unset has its default back."""
    with start_local(settings=SMALL, command=COMMAND) as address, Conversations(address) as chats:
        chats.append("chat-1", [{"role": "user", "content": f"Order {n} is late. " * 20} for n in range(20)])
        assert chats.wait_idle("chat-1", wait_s=PATIENCE_S)
        titled = chats.update("chat-1", ConversationSettings(title="Orders"), ["title"], expected_version=20)
        untitled = chats.update("chat-1", ConversationSettings(), ["title"])
        record, made = next(chats.summaries("chat-1")), next(chats.summarizations("chat-1"))

        assert [c.conversation.title for c in (titled, untitled)] == ["Orders", ""]
        assert chats.summarization("chat-1", made.id) == made
        found = chats.summary("chat-1", record.id, with_message_ids=True)
        assert (found.summary, len(found.message_ids)) == (record, record.covered_message_count)
        *_, last = chats.summarize_text("Order 7 is late. " * 200)
        assert last.summary.text


@dataclass
class _Answer:
    """An answer as the APIs' libraries return it."""

    fields: dict[str, Any]

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self.fields


def test_messages_of_chat_apis_go_in_and_come_out(tmp_path):
    """The messages are dicts of the APIs or objects of their libraries; the system prompt is no message."""
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "text", "text": "Hello"}]
    answer = _Answer({"id": "msg_1", "type": "message", "role": "assistant", "content": blocks, "usage": {}})
    with served(tmp_path) as sidecar, Conversations(sidecar.address) as chats:
        chats.wait_ready(within_s=PATIENCE_S)
        chats.append("a", [HELLO, answer], form="anthropic", system="Be brief.")
        chats.append("o", [{"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}], form="openai")

        assert json.loads(chats.context("a", rendering="anthropic").rendered_json) == {
            "system": "Be brief.",
            "messages": [HELLO, {"role": "assistant", "content": blocks}],
        }
        (kept,) = json.loads(chats.context("o", rendering="openai").rendered_json)["messages"]
        assert kept["reasoning_content"] == "Hm."
        with pytest.raises(ValueError, match="form must be one of anthropic, openai"):
            chats.append("o", [HELLO], form="ollama")


def test_a_refusal_says_why_to_both_kinds_of_callers(tmp_path):
    """The reason is one word: no string has to be matched."""
    with served(tmp_path) as sidecar, Conversations(sidecar.address) as chats:
        with pytest.raises(SidecarError) as unknown:
            chats.conversation("nobody")
        with pytest.raises(SidecarError) as invalid:
            chats.append("no/id", [HELLO])
        with grpc.insecure_channel(sidecar.address) as channel, pytest.raises(grpc.RpcError) as raw:
            ConversationServiceStub(channel).GetConversation(GetConversationRequest(conversation_id="nobody"))

        assert [reason(error.value) for error in (unknown, invalid, raw)] == [
            "CONVERSATION_NOT_FOUND",
            "INVALID_FIELD",
            "CONVERSATION_NOT_FOUND",
        ]
        assert [field for field, _ in invalid.value.violations] == ["conversation_id"]


def test_a_stream_of_appends_answers_each_in_order(tmp_path):
    """A refusal is one of the answers."""
    with served(tmp_path) as sidecar, Conversations(sidecar.address) as chats:
        answers = list(chats.ingest((name, [HELLO]) for name in ("a", "no/id", "b")))

        assert isinstance(answers[0], AppendMessagesResponse)
        assert isinstance(answers[1], SidecarError)
        assert answers[1].reason == "INVALID_FIELD"
        assert isinstance(answers[2], AppendMessagesResponse)


def test_conversations_are_listed_to_a_limit_and_to_the_end(tmp_path):
    """Past one page."""
    with served(tmp_path) as sidecar, Conversations(sidecar.address) as chats:
        names = {f"chat-{number}" for number in range(120)}
        for _ in chats.ingest((name, [HELLO]) for name in sorted(names)):
            pass

        assert {found.id for found in chats.conversations()} == names
        assert len(list(chats.conversations(limit=3))) == 3


def test_a_listing_ends_only_where_the_sidecars_does():
    """Pages of one message each, a thousand and more of them."""
    with start_local(command=COMMAND) as address, Conversations(address) as chats:
        for _ in range(3):
            chats.append("chat-1", [{"role": "user", "content": "word " * 12}] * 400)

        assert [m.number for m in chats.originals("chat-1", first=1, last=1_200, max_tokens=20)] == [*range(1, 1_201)]


async def test_a_watch_goes_on_over_a_restart_without_a_gap(tmp_path):
    """The second sidecar is asked for the events after the last one of the first."""
    listen = f"server.listen=unix:{tmp_path / 'sidecar.sock'}"
    seen: list[int] = []
    is_known = threading.Event()

    def follow(address: str) -> None:
        with Conversations(address, patience=STUBBORN) as chats:
            for item in chats.watch("chat-1"):
                if item.event.version:
                    seen.append(item.event.version)
                if item.HasField("caught_up"):
                    is_known.set()
                if len(seen) == 4:
                    return

    with served(tmp_path, listen) as sidecar, Conversations(sidecar.address) as chats:
        chats.append("chat-1", [HELLO, HELLO])
        following = threading.Thread(target=follow, args=(sidecar.address,))
        following.start()
        assert is_known.wait(PATIENCE_S)
    with served(tmp_path, listen) as sidecar, Conversations(sidecar.address) as chats:
        chats.append("chat-1", [HELLO])
        following.join(PATIENCE_S)

    assert seen == [1, 2, 3, 4]


def test_nobody_who_answers_is_an_error_after_the_wait():
    """The client does not wait for ever."""
    with Conversations("127.0.0.1:9") as chats, pytest.raises(SidecarError) as error:
        chats.wait_ready(within_s=0.2)

    assert error.value.code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")


async def _waited(address: str) -> None:
    async with AsyncConversations(address) as chats:
        await chats.wait_ready(within_s=1.0)


def _waited_for(address: str) -> None:
    with Conversations(address) as chats:
        chats.wait_ready(within_s=1.0)


@pytest.mark.parametrize("waited", [_waited_for, lambda address: asyncio.run(_waited(address))])
def test_a_sidecar_that_answers_and_does_not_serve_is_waited_for_and_no_longer(tmp_path, waited):
    """The wait ends after its time, whatever a sidecar on its way up or down keeps answering."""
    address = f"unix://{tmp_path / 'stopping.sock'}"
    health = HealthServicer()
    health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        server.add_insecure_port(address)
        server.start()
        with pytest.raises(SidecarError, match="does not serve"):
            waited(address)
        server.stop(None).wait()


COMMAND = (sys.executable, "-c", PROGRAM)


def test_a_sidecar_of_a_program_lives_as_long_as_the_block(tmp_path):
    """The sidecar's log stays, and the next one continues it."""
    scripted = {"summarizer.models": "extractive:default"}
    for expected in (1, 2):
        with (
            start_local(tmp_path / "a.db", settings=scripted, command=COMMAND) as address,
            Conversations(address) as chats,
        ):
            assert chats.append("chat-1", [HELLO]).message_version == expected
        assert not Path(address.removeprefix("unix:")).parent.exists()


def test_a_sidecar_for_a_test_summarizes_without_a_model_and_keeps_nothing():
    """Each begins empty, and the same messages give the same window."""
    windows = []
    for _ in range(2):
        with start_local(settings=SMALL, command=COMMAND) as address, Conversations(address) as chats:
            for number in range(12):
                chats.append("chat-1", [{"role": "user", "content": f"Order {number} goes to dock {number}. " * 8}])
            assert chats.wait_idle("chat-1", wait_s=PATIENCE_S)
            assert [record.id for record in chats.summaries("chat-1")]
            windows.append(chats.context("chat-1", rendering="openai").rendered_json)

    assert windows[0] == windows[1]


def test_the_sidecar_is_that_of_the_interpreters_environment(tmp_path):
    """The environment need not be activated."""
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    (folder / "abridged").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{PROGRAM}" "$@"\n')
    (folder / "abridged").chmod(0o755)
    program = "from abridged.client import start_local\nwith start_local() as address: print(address)"
    ran = subprocess.run(
        [folder / "python", "-c", program],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert ran.stdout.startswith("unix:")


def test_a_command_that_is_missing_says_what_to_do(tmp_path):
    """The client alone has no sidecar."""
    with (
        pytest.raises(FileNotFoundError, match="nowhere: install abridged for"),
        start_local(command=(str(tmp_path / "nowhere"),)),
    ):
        pass


def test_a_recorded_log_is_served_to_a_test(tmp_path):
    """A test asserts on the recording of another run, and appends to it; the lines stay as they are."""
    lines = tmp_path / "log.jsonl"
    with start_local(tmp_path / "a.db", settings=RECORDED, command=COMMAND) as address, Conversations(address) as chats:
        for number in range(12):
            chats.append("chat-1", [{"role": "user", "content": f"Order {number} goes to dock {number}. " * 8}])
        assert chats.wait_idle("chat-1", wait_s=PATIENCE_S)
        recorded = chats.context("chat-1", rendering="openai").rendered_json
    lines.write_text(abridged("log", "export", str(tmp_path / "a.db")).out, encoding="utf-8")
    before = lines.read_bytes()

    for _ in range(2):
        with start_local(lines=lines, command=COMMAND) as address, Conversations(address) as chats:
            assert chats.context("chat-1", rendering="openai").rendered_json == recorded
            assert len(list(chats.summaries("chat-1"))) > 0
            assert chats.append("chat-1", [HELLO]).message_version == 13
    assert lines.read_bytes() == before


def test_a_sidecar_leaves_the_log_that_it_is_asked_for(tmp_path):
    """The sidecar writes its log as lines when it stops, whole, with all that it began with."""
    lines, again = tmp_path / "log.jsonl", tmp_path / "again.jsonl"
    with start_local(record=lines, command=COMMAND) as address, Conversations(address) as chats:
        chats.append("chat-1", [HELLO])
        assert not lines.exists()
    with start_local(lines=lines, record=again, command=COMMAND) as address, Conversations(address) as chats:
        chats.append("chat-1", [HELLO])

    assert replay(lines)["chat-1"].context.message_version == 1
    assert replay(again)["chat-1"].context.message_version == 2
    assert {path.name for path in tmp_path.glob("*jsonl*")} == {"again.jsonl", "log.jsonl"}


def test_a_log_that_cannot_be_left_is_an_error(tmp_path):
    """The refusal comes before anything runs: the program that asked for it would assert on nothing."""
    ran = abridged("serve", "--ephemeral", "--record", str(tmp_path / "nowhere" / "log.jsonl"))

    assert (ran.code, "nowhere/log.jsonl: this is no place for a file" in ran.err) == (2, True)


@pytest.mark.parametrize("said", ["", "advance 10\n"])
def test_a_sidecar_whose_test_ends_at_once_leaves_nothing(tmp_path, said):
    """The sidecar leaves no part of its reading, and no failure: there was nothing to do."""
    lines = tmp_path / "log.jsonl"
    with start_local(record=lines, command=COMMAND) as address, Conversations(address) as chats:
        chats.append("chat-1", [HELLO])
    folder = tmp_path / "temporary"
    folder.mkdir()

    ran = subprocess.run(
        [*COMMAND, "serve", "--ephemeral", "--log", str(lines)],
        input=said,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert (ran.returncode, list(folder.iterdir())) == (0, [])


def test_a_sidecar_ends_though_nobody_reads_its_answers(tmp_path):
    """A test run that is killed in the middle of an advance leaves no process."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--ephemeral"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write(b"advance 5\n")
    process.stdin.close()

    assert process.wait(PATIENCE_S) == 0


def test_a_sidecar_that_has_died_says_so_once(tmp_path):
    """The error comes when the clock is to be moved, or when the log that was asked for is not there."""
    with ExitStack() as local:
        address = local.enter_context(start_local(record=tmp_path / "a.jsonl", command=COMMAND))
        address._process.kill()
        address._process.wait()
        with pytest.raises(SidecarError, match="has ended"):
            address.advance(1)
        with pytest.raises(SidecarError, match="left no"):
            local.close()


@pytest.mark.parametrize(
    ("setting", "mark", "message"),
    [
        ("abridged_scope = module", 'lines="log.jsonl"', "mark the module or class instead"),
        ("", '"log.jsonl"', "name what the sidecar begins with"),
        ("", 'settings=["policy.trigger_token_ratio=0.9"]', "TypeError: settings must be a mapping, such as {"),
        ("abridged_scope = bogus", "", "abridged_scope is one of function, class"),
    ],
)
def test_a_mark_that_nobody_reads_is_refused(tmp_path, setting, mark, message):
    """A test that began with an empty sidecar would fail far from the cause."""
    suite = f"import pytest\n\n@pytest.mark.abridged({mark})\ndef test_one(abridged): ...\n"

    assert message in suite_of(tmp_path, suite, setting)


def test_a_log_that_stays_is_none_for_a_test():
    """A path would be ignored, or filled by a clock that a test moves."""
    ran = abridged("serve", "--ephemeral", "--set", "log.path=keep.db")

    assert (ran.code, "--record leaves one" in ran.err) == (2, True)


@pytest.mark.parametrize("given", [(), ("--ephemeral",)])
def test_lines_that_are_no_log_are_not_served(tmp_path, given):
    """The message says why, and nothing runs."""
    lines = tmp_path / "log.jsonl"
    lines.write_text('{"format": "abridged-log-1", "logId": "a", "events": 1}\n{"position": 7}\n', encoding="utf-8")

    ran = abridged("serve", *given, "--log", str(lines))

    assert ran.code == (1 if given else 2)
    assert ("line 2" if given else "--log and --record go with --ephemeral") in ran.err


def test_a_script_that_runs_out_says_at_which_call(tmp_path):
    """A pass that a test did not foresee is a failure that names itself, not one more of the last answer."""
    script = tmp_path / "script.json"
    script.write_text('{"repeat": false, "steps": [{"default": true}]}', encoding="utf-8")
    settings = {**SMALL, "summarizer.models": f"scripted:{script}", "policy.fallback": "never"}
    with start_local(settings=settings, command=COMMAND) as address, Conversations(address) as chats:
        for number in range(40):
            chats.append("chat-1", [{"role": "user", "content": f"Order {number} goes to dock {number}. " * 8}])
        assert chats.wait_idle("chat-1", wait_s=PATIENCE_S)
        causes = [ended.cause for ended in chats.summarizations("chat-1") if ended.cause]

    assert "the script ends after step 1, and this is call 2" in causes[-1]


def test_a_test_moves_the_clock_by_a_day():
    """A pass that waits for a moment begins when the clock has passed it, and events have the clock's time."""
    with start_local(settings=SILENT, command=COMMAND) as address, Conversations(address) as chats:
        for number in range(4):
            asked = {"role": "user", "content": f"Where does order {number} go? " * 16}
            chats.append("chat-1", [asked, {"role": "assistant", "content": f"To dock {number}. " * 16}])
        before = list(chats.summarizations("chat-1"))
        now = address.advance(86_400)
        assert chats.wait_idle("chat-1", wait_s=PATIENCE_S)
        (ended,) = chats.summarizations("chat-1")
        chats.append("chat-1", [HELLO])
        updated = chats.conversation("chat-1").update_time.ToDatetime(UTC)
        with pytest.raises(ValueError, match="not back"):
            address.advance(-1)

    assert before == []
    assert timedelta(days=1, minutes=-5) < now - datetime.now(UTC) < timedelta(days=1)
    assert ended.summary_id
    assert timedelta() <= updated - now < timedelta(minutes=5)


def test_a_sidecar_that_keeps_its_log_goes_by_the_machines_clock(tmp_path):
    """The log's events would have times that nobody lived through."""
    with (
        start_local(tmp_path / "a.db", settings=RECORDED, command=COMMAND) as address,
        pytest.raises(ValueError, match="the machine's clock"),
    ):
        address.advance(1)


@pytest.mark.parametrize("line", ["advance", "advance soon", "advance nan", "advance -1", "advance 1e300", "stop", ""])
def test_a_line_that_moves_no_clock_is_answered_so(tmp_path, line):
    """The answer is a line of its own, and the sidecar goes on."""
    with subprocess.Popen(
        [*COMMAND, "serve", "--ephemeral"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        out, _ = process.communicate(f"{line}\nadvance 0.5\n", timeout=PATIENCE_S)

    _, refused, moved = out.splitlines()
    assert refused.startswith("error: ")
    assert moved.startswith("now 2")


SUITE = """
import sys
import pytest
from abridged.client import AsyncConversations

@pytest.fixture
def abridged_command():
    return COMMAND

HELLO = {"role": "user", "content": "Good morning"}

@pytest.mark.parametrize("_", range(2))
def test_begins_empty(abridged, _):
    assert abridged.append("chat-1", [HELLO]).message_version == 1

@pytest.mark.abridged(lines="log.jsonl", settings={"server.message_bytes_max": "2000"})
@pytest.mark.asyncio
async def test_begins_with_what_was_recorded(abridged_address):
    async with AsyncConversations(abridged_address) as chats:
        assert (await chats.append("chat-1", [HELLO])).message_version == 2
"""


def test_the_fixtures_of_pytest_give_each_test_a_sidecar(tmp_path):
    """Empty, or with recorded lines; in a suite that knows no mark but those that are declared."""
    with start_local(tmp_path / "a.db", settings=RECORDED, command=COMMAND) as address, Conversations(address) as chats:
        chats.append("chat-1", [HELLO])
    (tmp_path / "log.jsonl").write_text(abridged("log", "export", str(tmp_path / "a.db")).out, encoding="utf-8")
    assert "3 passed" in suite_of(tmp_path, SUITE)


OWN_COMMAND = """
import pytest

@pytest.fixture
def abridged_command():
    return COMMAND

"""


def test_the_snippets_of_the_page_of_clients_run(tmp_path):
    """A program, with the sidecar's real port in the place of the default one, and a suite."""
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    program, suite = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    with served(tmp_path) as sidecar:
        snippet = program.replace("127.0.0.1:7420", sidecar.address)
        subprocess.run([sys.executable, "-W", "error", "-c", snippet], check=True, timeout=PATIENCE_S)

    assert "1 passed" in suite_of(tmp_path, OWN_COMMAND + suite)


SHARED = """
import pytest

pytestmark = pytest.mark.abridged(record="log.jsonl")
HELLO = {"role": "user", "content": "Good morning"}

@pytest.fixture(scope="module")
def abridged_command():
    return COMMAND

@pytest.mark.parametrize("version", [1, 2])
def test_goes_on(abridged, version):
    assert abridged.append("chat-1", [HELLO]).message_version == version
"""


def test_tests_may_share_a_sidecar_and_record_its_log(tmp_path):
    """A setting of pytest shares it, for suites in which a second a test is too long."""
    assert "2 passed" in suite_of(tmp_path, SHARED, "abridged_scope = module")

    assert replay(tmp_path / "log.jsonl")["chat-1"].context.message_version == 2


def suite_of(folder: Path, text: str, setting: str = "") -> str:
    """The output of pytest on a suite of its own, with the plug-in that the installed packages register."""
    (folder / "pytest.ini").write_text(f"[pytest]\n{setting}\n", encoding="utf-8")
    (folder / "test_suite.py").write_text(text.replace("COMMAND", repr(COMMAND)), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "test_suite.py"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    return ran.stdout + ran.stderr


def test_a_sidecar_for_a_test_prints_its_address_and_ends_with_its_input(tmp_path):
    """A test in any language therefore needs a process and its first line. The sidecar writes no file."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--ephemeral"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "ABRIDGED_LOG__PATH": str(tmp_path / "a.db"), "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdout is not None
    with Conversations(process.stdout.readline().strip()) as chats:
        assert chats.append("chat-1", [HELLO]).message_version == 1
    process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_sidecar_of_a_program_ends_with_the_program(tmp_path):
    """Even one that is killed."""
    program = (
        "import sys; from abridged.client import Conversations, start_local\n"
        "scripted = {'summarizer.models': 'extractive:default'}\n"
        "with start_local(sys.argv[1], settings=scripted, command=sys.argv[2:]) as a:\n"
        "    print(a, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.db"), *COMMAND]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        address = owner.stdout.readline().strip()
        with Conversations(address) as chats:
            assert chats.append("chat-1", [HELLO]).message_version == 1
            owner.send_signal(signal.SIGKILL)
            owner.wait(PATIENCE_S)
            with pytest.raises(SidecarError, match="nobody answers"):
                list(chats.watch("chat-1"))


async def test_the_client_of_an_event_loop_makes_the_same_calls(tmp_path):
    """The two clients share one table of calls."""
    with served(tmp_path) as sidecar:
        async with AsyncConversations(sidecar.address) as chats:
            await chats.wait_ready(within_s=PATIENCE_S)
            assert (await chats.append("chat-1", [HELLO])).message_version == 1
            assert [found.id async for found in chats.conversations()] == ["chat-1"]
            assert await chats.wait_idle("chat-1", wait_s=1)

    def calls(client: type) -> dict[str, str]:
        methods = inspect.getmembers(client, inspect.isfunction)
        return {name: str(inspect.signature(method)) for name, method in methods if not name.startswith("_")}

    blocking, awaited = calls(Conversations), calls(AsyncConversations)
    assert set(blocking) <= set(awaited)
    assert set(awaited) - set(blocking) == {"is_serving"}
    with Conversations("127.0.0.1:9") as bound:
        assert next(iter(inspect.signature(bound.search).parameters)) == "conversation_id"
        assert [*inspect.signature(bound.archive_closed).parameters] == ["closed_for_s", "dry_run"]


def test_the_package_needs_grpc_and_protobuf_alone(tmp_path):
    """The interpreter sees its wheel, links to these two, and nothing else."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT / "client", check=True, capture_output=True, timeout=PATIENCE_S)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)], check=True)
    (site / "google").mkdir()
    (site / "grpc").symlink_to(Path(grpc.__file__).parent)
    protobuf = Path(grpc.__file__).parents[1] / "google"
    (site / "google" / "protobuf").symlink_to(protobuf / "protobuf")
    (site / "google" / "_upb").symlink_to(protobuf / "_upb")
    typing_extensions = Path(grpc.__file__).parents[1] / "typing_extensions.py"
    (site / "typing_extensions.py").symlink_to(typing_extensions)

    program = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p and p] + [sys.argv[1]];"
        "import abridged.client, abridged.v1.event_log_service_pb2_grpc;"
        "print(sorted(name for name in sys.modules if name.startswith('abridged') and name.count('.') == 1))"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(site)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )

    assert run.stderr == ""
    assert run.stdout.strip() == "['abridged.client', 'abridged.v1']"
