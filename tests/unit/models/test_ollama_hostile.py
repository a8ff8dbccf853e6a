"""Model servers that mean harm, over real HTTP: their bytes are bounded, and leave the event loop to the others."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from abridged.service.models.http.errors import AnswerEncoded, HostRefused
from abridged.service.models.http.lines import ANSWER_LINES_MAX
from abridged.service.models.http.small_reads import HEAD_BYTES_MAX, READ_BYTES
from abridged.service.models.model import Completion, ModelError, ModelUnavailable, SummaryModel
from tests.support.ollama_behaviour import Behaviour, Refusal
from tests.support.ollama_hostile import CHUNK_BYTES, HOSTILE, PACKET_BYTES, whole
from tests.support.ollama_model import PATIENT, model_over, record_request
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S

PUMPS_MAX = 16
"""Packets of an endless answer: a megabyte, in which the turns of the loop can be counted."""

FINAL = {"message": {"content": "{}"}, "done": True, "done_reason": "stop", "prompt_eval_count": 120, "eval_count": 2}


async def ask(model: SummaryModel) -> Completion:
    return await model.complete(record_request(), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)


def lines(*said: object) -> Behaviour:
    return whole(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in said))


class Turns:
    """Turns of the event loop that others than the model call had since the server began to pump."""

    count = 0

    @asynccontextmanager
    async def counted(self, server: FakeOllama) -> AsyncIterator[None]:
        counting = asyncio.create_task(self._count(server))
        try:
            yield
        finally:
            counting.cancel()

    async def _count(self, server: FakeOllama) -> None:
        while True:
            self.count += server.pumped > 0
            await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["endless-lines", "endless-blanks"])
async def test_an_answer_has_a_largest_number_of_lines(name):
    """A server that never ends and stalls on no clock is cut off by counting."""
    async with FakeOllama(behaviour=HOSTILE[name]) as server, model_over(server) as model:
        with pytest.raises(ModelUnavailable, match=f"more than {ANSWER_LINES_MAX} lines"):
            await ask(model)


async def test_between_two_lines_of_an_answer_the_loop_is_free():
    """Twenty thousand lines may come in one packet: appends are not to wait for all of them."""
    turns = Turns()
    async with (
        FakeOllama(behaviour=HOSTILE["endless-lines"]) as server,
        model_over(server) as model,
        turns.counted(server),
    ):
        with pytest.raises(ModelUnavailable):
            await ask(model)

    assert turns.count >= ANSWER_LINES_MAX * 0.9


@pytest.mark.parametrize(
    ("name", "read_bytes", "turn_bytes"),
    [("endless-continue", HEAD_BYTES_MAX, READ_BYTES), ("endless-chunks", PUMPS_MAX * PACKET_BYTES, CHUNK_BYTES)],
)
async def test_what_comes_without_a_line_leaves_the_loop_free_too(name, read_bytes, turn_bytes):
    """Interim responses are taken apart a small read a turn of the loop, chunks of a byte one by one."""
    turns = Turns()
    behaviour = replace(HOSTILE[name], wire_again_max=PUMPS_MAX)
    async with FakeOllama(behaviour=behaviour) as server, model_over(server) as model, turns.counted(server):
        with pytest.raises(ModelError):
            await ask(model)

    assert turns.count >= read_bytes / (2 * turn_bytes)


async def test_a_response_that_never_begins_is_cut_off():
    """Interim responses without end: the call ends by the bytes read, not by its deadline."""
    async with FakeOllama(behaviour=HOSTILE["endless-continue"]) as server, model_over(server) as model:
        with pytest.raises(ModelUnavailable, match="does not speak HTTP"):
            await ask(model)


@pytest.mark.parametrize("interim", [0, 2_000])
async def test_a_few_interim_responses_are_skipped(interim):
    """A proxy may send some; two thousand stay below the bound of everything before a body."""
    said = b"HTTP/1.1 100 Continue\r\n\r\n" * interim
    assert len(said) < HEAD_BYTES_MAX
    behaviour = lines(FINAL)
    async with (
        FakeOllama(behaviour=replace(behaviour, wire=said + behaviour.wire)) as server,
        model_over(server) as model,
    ):
        assert (await ask(model)).text == "{}"


@pytest.mark.parametrize("name", ["gzip", "gzip-twice"])
async def test_a_compressed_answer_is_refused_before_it_is_inflated(name):
    """A gigabyte of zeros is a megabyte of gzip, and two kilobytes of gzip of that."""
    async with FakeOllama(behaviour=HOSTILE[name]) as server, model_over(server) as model:
        tracemalloc.start()
        try:
            with pytest.raises(AnswerEncoded):
                await ask(model)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak < 20_000_000
    assert {request.headers["accept-encoding"] for request in server.requests} == {"identity"}


@pytest.mark.parametrize("status", [200, 403, 502])
async def test_no_path_takes_a_compressed_answer(status):
    """A server's words on its models and on its refusals are inflated as little as its answers are."""
    zeros = HOSTILE["gzip"].wire.partition(b"\r\n\r\n")[2]
    refusal = Refusal(status, zeros, headers={"content-encoding": "gzip"})
    expected = {200: AnswerEncoded, 403: HostRefused, 502: ModelUnavailable}[status]
    async with (
        FakeOllama(behaviour=Behaviour(everywhere=True, refusal=refusal)) as server,
        model_over(server) as model,
    ):
        tracemalloc.start()
        try:
            with pytest.raises(ModelError) as failure:
                await ask(model)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert type(failure.value) is expected
    assert peak < 20_000_000


UNREADABLE = {
    "nested": b'{"message": ' + b"[" * 100_000,
    "nested and closed": b'{"message": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a lone surrogate": b'{"message": {"content": "\\ud800"}}',
    "no UTF-8": b'{"message": {"content": "\xff"}}',
    "a number of many digits": b'{"eval_count": ' + b"9" * 5_000 + b"}",
    "many empty lists": b'{"message": [' + b"[]," * 40_000 + b"0]}",
    "a line of a megabyte": b'{"message": {"content": "' + b"x" * 1_000_000 + b'"}}',
    "no object": b"[1]",
}


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read_is_a_failure_of_the_model(line):
    """The line may be one of an answer, or one of the server's words on its models."""
    for behaviour in (lines(line), Behaviour(everywhere=True, refusal=Refusal(200, line))):
        async with FakeOllama(behaviour=behaviour) as server, model_over(server) as model:
            with pytest.raises(ModelUnavailable) as failure:
                await ask(model)

        assert "\ud800" not in repr(failure.value)
        assert failure.value.__cause__ is None or failure.value.__cause__.__context__ is None


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_refusal_that_cannot_be_read_is_judged_by_its_status(line, status):
    """A refusal with any body ends in an error of the table."""
    behaviour = Behaviour(refusal=Refusal(status, b'{"error": ' + line + b"}"))
    async with FakeOllama(behaviour=behaviour) as server, model_over(server) as model:
        with pytest.raises(ModelError):
            await ask(model)


@pytest.mark.parametrize("count", [-1, -(2**70), 2**70, 10**4_000, True, 1.5, float("nan"), float("inf"), "7", [7]])
async def test_a_count_that_is_none_is_not_said(count):
    """Figures of a server go into events and metrics: a figure that is no count is as if it were absent."""
    figures = dict.fromkeys(("prompt_eval_count", "eval_count", "prompt_eval_duration", "total_duration"), count)
    async with FakeOllama(behaviour=lines(FINAL | figures)) as server, model_over(server) as model:
        completion = await ask(model)

    assert (completion.input_tokens, completion.output_tokens) == (0, 0)


async def test_a_name_that_is_none_is_not_said():
    """The name that a server answers with goes into spans and records."""
    for name in ("x" * 300, "a\nb", "a b", "\x1b[2J", 7):
        async with FakeOllama(behaviour=lines(FINAL | {"model": name})) as server, model_over(server) as model:
            assert (await ask(model)).response_model == ""


@pytest.mark.parametrize("length", [-1, 2**70, 10**4_000, True, "4096"])
async def test_a_context_length_that_is_none_is_not_said(length):
    """The length would go into a conversation's settings."""
    info = {"general.architecture": "q", "q.context_length": length}
    show = Refusal(200, json.dumps({"model_info": info, "models": [], "version": "0.33.0"}).encode())
    async with FakeOllama(behaviour=Behaviour(everywhere=True, refusal=show)) as server, model_over(server) as model:
        description = await model.describe()

    assert description.context_length is None
    assert description.window == PATIENT.num_ctx
