"""`abridged chat`: turns typed by a person, answered by a model of Ollama, kept in bounds by the sidecar."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.command import abridged, fake_ollama, fake_openai, served
from tests.support.openai_server import FAKE_MODEL

TURN = "Please check shard {n} of invoice-worker v2.14.{n} in billing/invoice_worker/claim.py for ticket BILL-33{n:02}."


@pytest.fixture(scope="module")
def ollama():
    with fake_ollama() as url:
        yield url


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory, ollama):
    with served(tmp_path_factory.mktemp("served"), f"ollama.hosts={ollama}") as running:
        yield running


@pytest.fixture
def chat(sidecar, ollama):
    """Type lines into a chat."""

    def run(conversation, *lines, arguments=()):
        options = ("--address", sidecar.address, "--set", f"ollama.hosts={ollama}", "--model", "qwen2.5:3b")
        typed = "".join(f"{line}\n" for line in lines)
        return abridged("chat", "--conversation", conversation, *options, *arguments, stdin=typed)

    return run


def test_a_turn_is_answered_appended_and_measured(chat, sidecar):
    """The answer is shown and kept, and Ollama's count calibrates the estimates."""
    ran = chat("turns", "Which shard is slow?", "/quit", "never read")
    context = json.loads(abridged("context", "turns", "--json", "--address", sidecar.address).out)
    told = abridged("watch", "turns", "--no-follow", "--address", sidecar.address).out

    assert ran.code == 0
    assert "(ratio 0.0" in ran.out
    assert [m["message"]["role"] for m in context["messages"]] == ["ROLE_USER", "ROLE_ASSISTANT"]
    assert context["messages"][1]["message"]["content"] in ran.out
    assert "usage reported: " in told


def test_the_models_own_context_length_holds(chat):
    """The calls use the window that passes use too, and an eighth of it is kept for the answer."""
    ran = chat("budget", "hello", "/ratio", arguments=("--set", "ollama.num_ctx=4096"))

    assert "context length 4,096" in ran.out
    assert "of 3,584 tokens" in ran.out
    assert "2 of 2 messages verbatim, 0 records" in ran.out


def test_a_long_chat_is_summarized_while_it_goes_on(chat):
    """Ratio and passes are shown after each turn, and the record when it is in the context."""
    ran = chat("long", *(TURN.format(n=n) * 3 for n in range(24)), arguments=("--set", "ollama.num_ctx=1024"))

    assert ran.code == 0
    assert re.search(r"\(pass \w{8,}, (pending|completed), trigger (ratio|emergency) at ", ran.out)
    assert re.search(r"\(record \w{8,}: depth 0, messages 1-", ran.out)


def test_a_pass_can_be_forced_and_records_be_seen(chat):
    """/resummarize says how the pass ended, /summaries lists the records; anything else lists the commands."""
    turns = (TURN.format(n=n) * 3 for n in range(8))

    ran = chat("forced", *turns, "/resummarize", "/summaries", "/nonsense")

    assert re.search(r"pass \w{8,}, completed, trigger forced", ran.out)
    assert ran.out.count("record ") >= 1
    assert ran.out.count("/resummarize") == 2


def test_what_cannot_be_forced_is_told_and_the_chat_goes_on(chat):
    """A refusal of the sidecar is a line, not the end."""
    ran = chat("early", "hello", "/resummarize", "still here")

    assert ran.code == 0
    assert "NOTHING_TO_SUMMARIZE" in ran.err
    assert ran.out.count("(ratio ") == 2


def test_a_missing_model_is_told_with_the_command_that_fetches_it(chat):
    """The error comes before the first turn."""
    ran = chat("missing", "hello", arguments=("--model", "never-pulled:7b"))

    assert ran.code == 1
    assert "ollama pull never-pulled:7b" in ran.err


def test_a_failing_model_keeps_what_was_typed(sidecar):
    """The message is in the log, the half answer is not, and the next turn is taken."""
    with fake_ollama("--behaviour", "error-midway") as url:
        options = ("--address", sidecar.address, "--set", f"ollama.hosts={url}", "--model", "qwen2.5:3b")
        ran = abridged("chat", "--conversation", "failing", *options, stdin="first\nsecond\n")
    told = abridged("watch", "failing", "--no-follow", "--address", sidecar.address).out

    assert ran.code == 0
    assert ran.err.count("your message is kept") == 2
    assert re.findall(r"message \d (\w+)", told) == ["user", "user"]


@pytest.mark.parametrize("quirks", [(), ("--quirks", "strict-openai")])
def test_a_server_of_openai_s_api_answers_too(sidecar, quirks):
    """The server gets the window in its form and counts by itself; a field that it refuses is left out."""
    with fake_openai(*quirks) as url:
        options = ("--address", sidecar.address, "--set", f"openai.url={url}", "--model", f"openai:{FAKE_MODEL}")
        conversation = f"openai-{len(quirks)}"
        ran = abridged("chat", "--conversation", conversation, *options, stdin="Which shard is slow?\n/quit\n")
    told = abridged("watch", conversation, "--no-follow", "--address", sidecar.address).out

    assert ran.code == 0, ran.err
    assert f"with openai:{FAKE_MODEL}" in ran.out
    assert re.findall(r"message \d (\w+)", told) == ["user", "assistant"]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("ollama:a", "127.0.0.1:9/api/chat: "),
        ("openai:a", "127.0.0.1:9/v1/chat/completions: "),
    ],
)
def test_a_model_that_does_not_answer_is_named_with_the_url_that_was_tried(sidecar, model, says):
    """A person sees from it which of two servers is missing."""
    hosts = ("--set", "ollama.hosts=127.0.0.1:9", "--set", "openai.url=http://127.0.0.1:9/v1")
    ran = abridged("chat", "--address", sidecar.address, *hosts, "--model", model, stdin="hello\n")

    assert ran.code == 1
    assert says in ran.err


def test_without_a_sidecar_there_is_no_chat(ollama):
    """The command says so at once, with how to start one."""
    ran = abridged("chat", "--address", "127.0.0.1:9", "--set", f"ollama.hosts={ollama}", stdin="hello\n")

    assert ran.code == 1
    assert "abridged serve" in ran.err
