"""Ollama's wire without a network: lines out of packets, answers out of lines, signs of a cut prompt."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.models.http.fields import OBJECT_BYTES_MAX, NotAnObject
from abridged.service.models.http.lines import ANSWER_BYTES_MAX, LineSplitter
from abridged.service.models.model import AnswerLooped, ModelRefused, ModelUnavailable, PromptTruncated
from abridged.service.models.ollama.wire import Answer, chat_body, check_prompt_was_whole, load_body
from tests.support.ollama_model import record_request


def line(content: Any = "", **fields: Any) -> bytes:
    return json.dumps({"message": {"role": "assistant", "content": content}, "done": False} | fields).encode()


def final(**fields: Any) -> bytes:
    return line(done=True, done_reason="stop", prompt_eval_count=30, eval_count=4, **fields)


def answer_of(*lines: bytes) -> Answer:
    answer = Answer("host:1")
    for each in lines:
        answer.add(each)
    answer.check_complete()
    return answer


@given(texts=st.lists(st.text(min_size=1), max_size=8), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_lines_do_not_depend_on_where_packets_end(texts, cuts):
    """Any split of the bytes, inside characters too, gives the same lines."""
    expected = [json.dumps(text, ensure_ascii=False).encode() for text in texts]
    wire = b"\n".join(expected)
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    splitter = LineSplitter("host:1")

    lines = [found for a, b in itertools.pairwise(edges) for found in splitter.feed(wire[a:b])]
    lines += [rest] if (rest := splitter.end()) else []

    assert lines == expected


def test_a_line_without_end_is_given_up():
    """Memory for one line is bounded."""
    splitter = LineSplitter("host:1")
    assert list(splitter.feed(b"x" * OBJECT_BYTES_MAX)) == []

    with pytest.raises(ModelUnavailable):
        list(splitter.feed(b"x"))


def test_an_answer_joins_its_pieces_and_takes_counts_from_the_last_line():
    """Content of all lines, figures of the final one."""
    answer = answer_of(line('{"a"'), line(": 1}"), final())

    assert (answer.text, answer.finish_reason, answer.input_tokens, answer.output_tokens) == ('{"a": 1}', "stop", 30, 4)


def test_a_cut_answer_is_an_answer():
    """`length` is the caller's to judge."""
    assert answer_of(line('{"a"'), line(done=True, done_reason="length")).finish_reason == "length"


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([line("text")], ModelUnavailable),
        ([line("text", done="true")], ModelUnavailable),
        ([line(done=True, done_reason="load")], ModelUnavailable),
        ([b"not JSON"], ModelUnavailable),
        ([b"[1]"], ModelUnavailable),
        ([b"\xff\xfe"], ModelUnavailable),
        ([b"[" * 100_000], ModelUnavailable),
        ([line(7)], ModelUnavailable),
        ([line("text"), b'{"error": "unexpected server status: 1"}'], ModelUnavailable),
        ([line("text"), b'{"error": {"type": "exceed_context_size_error"}}'], PromptTruncated),
        ([line("", message={"content": "", "thinking": "hm"}), final()], ModelRefused),
    ],
)
def test_an_answer_that_did_not_end_as_answers_end_is_a_failure(lines, error):
    """No final line, garbage, an error line, thinking alone: each has its error type."""
    with pytest.raises(error):
        answer_of(*lines)


def test_no_text_of_an_answer_is_in_an_error():
    """The message and the error that it is chained to hold no output of the model."""
    with pytest.raises(ModelUnavailable) as failure:
        answer_of(b'{"message": "the secret word')

    reason = failure.value.__context__
    assert isinstance(reason, NotAnObject)
    assert "secret" not in f"{failure.value!r} {reason!r}"
    assert reason.__context__ is None


def test_an_answer_of_any_length_is_bounded():
    """A server that ignores num_predict is cut off."""
    answer = Answer("host:1")

    for _ in range(10):
        answer.add(line("x" * 100_000))

    with pytest.raises(ModelUnavailable):
        answer.add(line("x"))


def test_plain_text_is_asked_for_without_a_format():
    """A schema of a string would have the model write a string of JSON."""
    request = record_request()

    assert json.loads(chat_body(request, model="m", num_ctx=4_096, think=None))["format"] == request.schema
    assert "format" not in json.loads(chat_body(replace(request, schema=None), model="m", num_ctx=4_096, think=None))


def test_load_and_call_ask_for_the_same_runner():
    """Another window or shift in one of them would make the server load the model twice."""
    load = json.loads(load_body(model="m", num_ctx=4_096))
    chat = json.loads(chat_body(record_request(), model="m", num_ctx=4_096, think=None))

    assert load["options"] == {"num_ctx": chat["options"]["num_ctx"]}
    assert load["shift"] is chat["shift"] is False
    assert load["messages"] == []


@pytest.mark.parametrize(
    ("evaluated", "words", "expected"),
    [
        (1_000, 700, 1_000),
        (1_100, 700, 1_000),
        (620, 600, 1_000),
        (140, 80, 1_000),
        (2_050, 1_500, 2_100),
        (2_050, 1_500, 2_000),
        (4_000, 2_900, 3_900),
        (20, 0, 0),
    ],
)
def test_a_plausible_count_passes(evaluated, words, expected):
    """Templates add tokens, estimates err, sevenfold for a page of `=`: neither is a cut prompt."""
    check_prompt_was_whole("host:1", evaluated=evaluated, words=words, expected=expected, num_ctx=4_096)


@pytest.mark.parametrize(
    ("evaluated", "words", "expected", "context"),
    [
        (590, 700, 1_000, None),
        (2_050, 1_700, 2_400, 4_096),
        (2_050, 3_600, 5_000, 4_096),
        (2_051, 20, 2_600, 4_096),
        (4_096, 20, 4_096, 4_096),
        (4_095, 20, 3_000, 4_096),
        (4_096, 6_000, 9_000, 4_096),
    ],
)
def test_a_count_that_betrays_a_cut_is_refused(evaluated, words, expected, context):
    """Fewer tokens than words, half the window plus two, or all of it; the error names the window if that was full."""
    with pytest.raises(PromptTruncated) as cut:
        check_prompt_was_whole("host:1", evaluated=evaluated, words=words, expected=expected, num_ctx=4_096)

    assert cut.value.context == context


@pytest.mark.parametrize("piece", ["again", " again", "\n", ""])
def test_equal_pieces_at_the_end_of_an_answer_that_just_stops_are_a_loop(piece):
    """Ollama ends a loop as it ends nothing else: without a final line and without an error."""
    with pytest.raises(AnswerLooped) as loop:
        answer_of(line('{"summary": "'), *[line(piece)] * 31)

    assert (loop.value.error_class, loop.value.retryable, loop.value.asked) == ("INVALID", False, True)


@pytest.mark.parametrize(
    "pieces",
    [["again"] * 24, ["again"] * 31 + ["."], ["a", "b"] * 40, [f"word {n}" for n in range(60)]],
    ids=["too few", "not at the end", "two in turn", "all different"],
)
def test_an_answer_that_stops_without_a_loop_broke_off(pieces):
    """Only a run of equal pieces at the very end is a loop; any other stop may be asked for again."""
    with pytest.raises(ModelUnavailable):
        answer_of(*map(line, pieces))


def test_thoughts_are_no_loop_of_empty_pieces():
    """A model that thinks says nothing meanwhile, in pieces that differ."""
    with pytest.raises(ModelUnavailable):
        answer_of(*(line("", message={"content": "", "thinking": f"step {n}"}) for n in range(60)))


def test_a_loop_that_ended_as_an_answer_ends_is_an_answer():
    """A loop with a final line has its text, and the text's checks judge it."""
    assert answer_of(*[line("again")] * 40, final()).finish_reason == "stop"


def test_an_answer_has_a_largest_number_of_bytes():
    """Lines that hold no text, such as thoughts, count too."""
    splitter = LineSplitter("host:1")
    line = b"x" * (OBJECT_BYTES_MAX - 1) + b"\n"

    for _ in range(ANSWER_BYTES_MAX // len(line)):
        assert len(list(splitter.feed(line))) == 1

    with pytest.raises(ModelUnavailable):
        list(splitter.feed(line))
