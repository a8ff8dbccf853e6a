"""Why a pass failed, in words, wherever somebody looks: the log line, the event, the pass, the commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from click.testing import CliRunner

from abridged.service.cli.main import main
from abridged.v1 import conversation_pb2 as conversation
from tests.support.answers import saying
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_responder import Ask, Piece, schema_answer, spoken
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import on_ollama, script, sidecar

ENDED_BY_A_CLOCK = {"hang": {"ollama.first_byte_timeout_s": 0.3}, "stall": {"ollama.stall_timeout_s": 0.3}}

CAUSES = {
    "hang": ("TRANSPORT", "no first byte within 0.3 s", True),
    "stall": ("TRANSPORT", "stalled: no further line within 0.3 s", True),
    "abort": ("TRANSPORT", "the connection closed early", True),
    "busy": ("TRANSPORT", "the server is busy (HTTP 503)", True),
    "bad-schema": ("MODEL_REFUSED", "cannot turn the schema into a grammar", True),
    "unauthorized": ("MODEL_REFUSED", "requires a valid bearer token", False),
    "silent-cut": ("TRUNCATED", "part was dropped", True),
}


async def looping(_ask: Ask) -> AsyncIterator[Piece]:
    yield Piece(content='{"summary": "')
    for _ in range(31):
        yield Piece(content=" the")


@pytest.mark.parametrize("behaviour", CAUSES)
async def test_a_failed_pass_tells_its_cause_everywhere(tmp_path, behaviour):
    """The same words in the log line, the event and the pass, with the host's label and none of its address."""
    error_class, words, asked = CAUSES[behaviour]
    settings = {"summarizer.retries": 0} | ENDED_BY_A_CLOCK.get(behaviour, {})
    async with (
        FakeOllama(behaviour=BEHAVIOURS[behaviour]) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | settings) as s,
    ):
        chat = s.chat()
        done = (await chat.talk(14, wait_s=PATIENCE_S)).summarization
        (event,) = await chat.events("SummarizationFailed")
        (listed,) = await chat.passes()
        (line,) = [line for line in s.logs if line["event"] == "pass.failed"]

    assert words in done.cause
    assert f"127.0.0.1:{ollama.port}" in done.cause
    assert len(done.cause) <= 200
    assert listed == done
    # A prompt that was cut is asked again in halves, until it is too short to be halved.
    attempts = 5 if error_class == "TRUNCATED" else 1
    stored = (conversation.ErrorClass.Name(event.error_class), event.cause, event.asked, event.attempts)
    assert stored == (f"ERROR_CLASS_{error_class}", done.cause, asked, attempts)
    assert done.asked is asked
    told = [line[name] for name in ("error_class", "cause", "asked", "attempts")]
    assert told == [error_class, done.cause, asked, attempts]


async def test_a_host_that_refuses_connections_was_not_asked(tmp_path):
    """The error is TRANSPORT like a deadline, and differs by its cause."""
    settings = {"summarizer.models": ["ollama:x"], "ollama.hosts": ["127.0.0.1:9"], "summarizer.retries": 0}
    async with sidecar(tmp_path, settings) as s:
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

    assert done.error_class == conversation.ERROR_CLASS_TRANSPORT
    assert (done.cause, done.asked) == ("127.0.0.1:9: connection refused, unresolvable name or failed TLS", False)


async def test_attempts_do_not_count_what_an_open_breaker_refused(tmp_path):
    """No call was made, so none is counted: not in the pass, not in the event."""
    async with FakeOllama(behaviour=BEHAVIOURS["busy"]) as ollama:
        async with sidecar(tmp_path, on_ollama(ollama) | {"summarizer.retries": 4}) as s:
            first = (await s.chat("c1").talk(14, wait_s=PATIENCE_S)).summarization
            calls = len(ollama.asked())
            second_chat = s.chat("c2")
            second = (await second_chat.talk(14, wait_s=PATIENCE_S)).summarization
            (event,) = await second_chat.events("SummarizationFailed")

        assert first.attempts == calls == len(ollama.asked()) == 5
    assert "failed repeatedly, not asked for" in second.cause
    assert (second.attempts, second.asked, event.attempts, event.asked) == (0, False, 0, False)


async def test_a_loop_is_repaired_with_another_seed_and_its_reason(tmp_path):
    """Once more, as after any other bad answer."""

    async def once(ask: Ask) -> AsyncIterator[Piece]:
        async for piece in (spoken(schema_answer) if len(ollama.asked()) > 1 else looping)(ask):
            yield piece

    async with FakeOllama(responder=once) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization
        first, second = ollama.asked()

    assert done.attempts == 2
    assert second["options"]["seed"] == first["options"]["seed"] + 1
    assert "repeated itself without end" in second["messages"][-1]["content"]


async def test_a_model_that_loops_again_and_again_is_invalid_and_its_host_stays_in_use(tmp_path):
    """No breaker opens: other conversations are served."""
    async with FakeOllama(responder=looping) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        for number in range(1, 5):
            done = (await s.chat(f"c{number}").talk(14, wait_s=PATIENCE_S)).summarization
            assert (done.error_class, done.retryable) == (conversation.ERROR_CLASS_INVALID, False)
            assert "repeated itself until the server stopped it" in done.cause
            assert (done.attempts, done.asked) == (2, True)

        assert len(ollama.asked()) == 8


async def test_a_cause_holds_no_text_of_an_answer(tmp_path):
    """Checks quote the text that they refuse; the cause names the check."""
    invented = {"record": {"summary": "I am sorry, but I cannot say who closed ticket QX-99817."}}
    async with sidecar(tmp_path, script(tmp_path, invented)) as s:
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

    assert done.error_class == conversation.ERROR_CLASS_INVALID
    assert done.cause.startswith("the answer failed the checks: ")
    assert "QX-99817" not in done.cause


async def test_a_broken_record_is_told_by_its_fields(tmp_path):
    """A person can mend the schema's place and rule."""
    async with sidecar(tmp_path, script(tmp_path, {"text": '{"summary": "half'})) as s:
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

    assert done.cause == "the answer is no valid record: the answer: json invalid"


async def test_whoever_waits_for_a_pass_hears_its_cause(tmp_path):
    """watch and summaries print it; nobody has to read the sidecar's log."""

    def run(*arguments: str) -> str:
        return CliRunner().invoke(main, arguments, env={"ABRIDGED_CLIENT__TOKEN": ""}).output

    settings = {"summarizer.models": ["ollama:x"], "ollama.hosts": ["127.0.0.1:9"], "summarizer.retries": 0}
    async with sidecar(tmp_path, settings) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)
        address = ("--address", s.running.grpc_addresses[0])
        watched = await asyncio.to_thread(run, "watch", *address, "c1", "--no-follow")
        summaries = await asyncio.to_thread(run, "summaries", *address, "c1")

    for output in (watched, summaries):
        assert "127.0.0.1:9: connection refused" in output
        assert "no model was asked" in output


async def test_the_hash_of_a_bad_answer_is_the_same_after_a_restart(tmp_path):
    """Equal answers have equal hashes as long as the log exists, and nobody without the log can test a guess."""
    hashes = set()
    for run in range(2):
        async with sidecar(tmp_path, script(tmp_path, {"text": "not JSON"})) as s:
            chat = s.chat(f"c{run}")
            await chat.talk(14, wait_s=PATIENCE_S)
            (event,) = await chat.events("SummarizationFailed")
            hashes.add(event.output_hash)
    (tmp_path / "other").mkdir()
    async with sidecar(tmp_path / "other", script(tmp_path, {"text": "not JSON"})) as s:
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)
        (elsewhere,) = await chat.events("SummarizationFailed")

    assert len(hashes) == 1
    assert elsewhere.output_hash not in hashes


@pytest.mark.parametrize(("settings", "penalty"), [({}, 1.1), ({"summarizer.repeat_penalty": 1.4}, 1.4)])
async def test_a_model_is_kept_from_looping_by_a_setting(tmp_path, settings, penalty):
    """The prompt asks for no longer lists than its summary has room for."""
    async with FakeOllama() as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)
        body = ollama.asked()[0]

    assert body["options"]["repeat_penalty"] == penalty
    assert body["format"]["properties"]["key_points"]["maxItems"] < 10


async def test_the_log_names_an_answer_that_was_cut_off(tmp_path):
    """The name is one word, as that of a check: a sentence would be redacted."""
    cut = saying("{", done_reason="length")
    async with FakeOllama(responder=cut) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)
        (line,) = [line for line in s.logs if line["event"] == "pass.failed"]

    assert line["reasons"] == ["cut_off"]


async def test_the_log_names_where_an_answer_breaks_the_schema(tmp_path):
    """The place of each reason is one word too; `cause` has the rule."""
    strange = saying('{"a": 1}')
    async with FakeOllama(responder=strange) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)
        (line,) = [line for line in s.logs if line["event"] == "pass.failed"]

    assert {"summary", "an_unknown_field"} <= set(line["reasons"])
