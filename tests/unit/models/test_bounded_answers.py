"""Bounds of an answer, in both dialects: the clocks, which wait for words alone, the search for loops, the limit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from abridged.service.models.http.errors import FirstByteLate
from abridged.service.models.http.lines import TOKEN_CHARS_MAX
from abridged.service.models.model import AnswerLooped, Completion, ModelUnavailable, SummaryModel
from tests.support import ollama_model, openai_model
from tests.support.answers import saying
from tests.support.ollama_behaviour import BEHAVIOURS, Behaviour
from tests.support.ollama_hostile import whole
from tests.support.ollama_model import model_over, record_request
from tests.support.ollama_responder import Ask, Piece, Responder
from tests.support.ollama_server import FakeOllama
from tests.support.openai_model import openai_over
from tests.support.openai_quirks import Quirks
from tests.support.openai_server import FakeOpenAI
from tests.support.patience import PATIENCE_S

SLOW_PING_S = 1.5
"""Seconds between two pings: more than the stall clock allows between two lines."""

REPETITIONS = 10_000
"""More than any socket takes in before somebody reads it."""

EMPTY_DELTA = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
EMPTY_LINE = {"message": {"role": "assistant", "content": ""}, "done": False}
PINGS = {
    "comment": ("openai", b": ping\n\n"),
    "event without data": ("openai", b"event: ping\nid: 7\n\n"),
    "no choice": ("openai", b'data: {"choices": []}\n\n'),
    "role alone": ("openai", b"data: " + json.dumps(EMPTY_DELTA).encode() + b"\n\n"),
    "blank line": ("ollama", b"\n"),
    "empty object": ("ollama", b"{}\n"),
    "empty content": ("ollama", json.dumps(EMPTY_LINE).encode() + b"\n"),
}
DIALECTS = ("ollama", "openai")


@asynccontextmanager
async def over(
    dialect: str,
    responder: Responder | None = None,
    *,
    first_byte_s: float = PATIENCE_S,
    stall_s: float = PATIENCE_S,
    **fault: Any,
) -> AsyncIterator[tuple[Any, SummaryModel]]:
    """A fake server that speaks the dialect and has the fault, and a model over it."""
    if dialect == "ollama":
        settings = replace(ollama_model.PATIENT, first_byte_s=first_byte_s, stall_s=stall_s)
        async with (
            FakeOllama(behaviour=Behaviour(**fault), responder=responder) as ollama,
            model_over(ollama, settings=settings) as model,
        ):
            yield ollama, model
    else:
        clocks = replace(openai_model.PATIENT, first_byte_s=first_byte_s, stall_s=stall_s)
        async with (
            FakeOpenAI(quirks=Quirks(**fault), responder=responder) as server,
            openai_over(server, settings=clocks) as endpoint,
        ):
            yield server, endpoint


async def ask(model: SummaryModel, **fields: Any) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)


@pytest.mark.parametrize("kind", PINGS)
async def test_a_server_that_pings_while_it_reads_is_given_its_time(kind):
    """A ping neither ends the first-byte clock nor begins the shorter one between two lines."""
    dialect, ping = PINGS[kind]
    async with over(dialect, stall_s=1.0, ping=ping, ping_after=0, pings=1, ping_s=SLOW_PING_S) as (_, m):
        assert (await ask(m)).text


@pytest.mark.parametrize(
    ("after", "clock", "error", "says"),
    [
        (0, "first_byte_s", FirstByteLate, "no first byte within 0.3 s"),
        (2, "stall_s", ModelUnavailable, "stalled: no further line within 0.3 s"),
    ],
)
@pytest.mark.parametrize("kind", PINGS)
async def test_a_server_that_pings_for_ever_is_ended_by_the_clock_that_runs(kind, after, clock, error, says):
    """However often it says that it is there: pings set no clock back."""
    dialect, ping = PINGS[kind]
    fault: dict[str, Any] = {clock: 0.3}
    async with over(dialect, **fault, ping=ping, ping_after=after) as (_, model):
        with pytest.raises(error, match=says):
            await ask(model)


def repeating(phrase: str, opening: str = '{"summary": "') -> Responder:
    """Says a phrase REPETITIONS times, word by word."""

    async def respond(_: Ask) -> AsyncIterator[Piece]:
        yield Piece(content=opening)
        for _again in range(REPETITIONS):
            for word in phrase.split(" "):
                yield Piece(content=f" {word}")
        yield Piece(done_reason="stop")

    return respond


LOOPS = [
    "the user asks for the import of the night",
    "x y",
    '"", "-",',
    "Die Größe der Tabelle 🎉 wächst",
    "等待导入 完成并 再次检查",
]


@pytest.mark.parametrize("phrase", LOOPS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_loop_ends_the_call_while_it_is_written(dialect, phrase):
    """A few repetitions end it, however many tokens are allowed: a bad answer of a host that works."""
    async with over(dialect, repeating(phrase)) as (server, model):
        with pytest.raises(AnswerLooped, match=r"repeats the same \d+ characters without end") as failure:
            await ask(model, output_tokens_max=1_000_000)
        await server.until(lambda fake: fake.left == 1)

    assert failure.value.error_class == "INVALID"
    assert phrase not in str(failure.value)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_server_that_ignores_the_limit_of_an_answer_is_cut_off(dialect):
    """The answer ends as if the server had stopped: a cut-off, which the pass judges."""
    async with over(dialect, endless=True) as (_, model):
        answer = await ask(model, output_tokens_max=50)

    assert answer.finish_reason == "length"
    assert len(answer.text) > 50 * TOKEN_CHARS_MAX


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("end_turn", "stop"),
        ("eos", "stop"),
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_another_reason_to_finish_is_a_cut_off_or_an_end(dialect, reason, finish):
    """Servers have their own words for both."""
    async with over(dialect, saying("{}", done_reason=reason)) as (_, model):
        assert (await ask(model)).finish_reason == finish


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_character_may_arrive_in_halves(dialect):
    """Packets end anywhere, in the middle of a code point too."""
    text = '{"summary": "Größe 中文 🎉"}'
    async with over(dialect, saying(text), piece_bytes=1) as (_, model):
        assert (await ask(model)).text == text


HALF = {
    "ollama": whole(b'{"message": {"content": "\xf0\x9f"}, "done": false}\n').wire,
    "openai": b"HTTP/1.1 200 OK\r\ncontent-length: 52\r\n\r\n"
    b'data: {"choices": [{"delta": {"content": "\xf0\x9f"}}]}\n\n',
}
TWO = {
    "ollama": whole(b'{"message": {"content": "a"}} {"message": {"content": "b"}}\n').wire,
    "openai": b'HTTP/1.1 200 OK\r\ncontent-length: 34\r\n\r\ndata: {"choices": []} {"a": "b"}\n\n',
}


@pytest.mark.parametrize("wire", [HALF, TWO], ids=["half a code point", "two objects"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_line_that_is_no_object_is_said_to_be_none(dialect, wire):
    """The client does not guess its meaning."""
    async with over(dialect, wire=wire[dialect]) as (_, model):
        with pytest.raises(ModelUnavailable, match="a line of the answer is not JSON"):
            await ask(model)


@pytest.mark.parametrize("fault", [{"tells_prompt_count": False}, {"usage": False}], ids=DIALECTS)
async def test_a_server_without_usage_is_believed(fault):
    """The server counts nothing, so nothing is learned of it."""
    async with over("openai" if "usage" in fault else "ollama", **fault) as (_, model):
        answer = await ask(model)
        factor = (await model.describe()).token_factor

    assert answer.text
    assert (answer.input_tokens, factor) == (0, 1.0)


def test_every_ping_and_fault_here_is_one_that_the_fakes_know():
    """The table above names no dialect that nothing speaks."""
    assert {dialect for dialect, _ in PINGS.values()} == set(DIALECTS)
    assert BEHAVIOURS["endless"].endless
