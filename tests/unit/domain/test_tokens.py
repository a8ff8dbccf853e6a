"""The worth of a message, the count that is trusted, and the learning of an estimate."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.attachments import IMAGE_TOKENS
from abridged.service.domain.message import Attachment, Message, Role, ToolCall
from abridged.service.domain.tokens import (
    CALIBRATION_TOKENS_MIN,
    FACTOR_MAX,
    FACTOR_MIN,
    MESSAGE_OVERHEAD_TOKENS,
    NAME_OVERHEAD_TOKENS,
    TOOL_CALL_OVERHEAD_TOKENS,
    TokenCount,
    TokenSource,
    calibrated_factor,
    calibrated_tokens,
    factor_to,
    message_tokens,
)


class WordCounter:
    """One token a word: counts that a reader of these tests can check."""

    name = "words"

    def source_for(self, model: str) -> TokenSource:
        return TokenSource.TOKENIZER if model == "words-1" else TokenSource.ESTIMATE

    def count(self, text: str) -> int:
        return len(text.split())

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def of(self, _model: str) -> WordCounter:
        return self


WORDS = WordCounter()


def learned(reports: list[tuple[int, int]], *, start: float = 1.0) -> float:
    factor = start
    for observations, (counted, reported) in enumerate(reports):
        factor = calibrated_factor(factor, counted, reported=reported, observations=observations)
    return factor


def test_a_plain_message_counts_its_content_and_its_frame() -> None:
    """Role and marks of the chat template are counted too."""
    counted = message_tokens(Message("m", Role.USER, "three words here"), WORDS, model="words-1")

    assert counted == TokenCount(3 + MESSAGE_OVERHEAD_TOKENS, TokenSource.TOKENIZER)


def test_an_empty_message_still_costs_its_frame() -> None:
    """No message is free."""
    assert message_tokens(Message("m", Role.ASSISTANT), WORDS, model="words-1").tokens == MESSAGE_OVERHEAD_TOKENS


def test_the_name_of_the_speaker_is_counted() -> None:
    """Names are rendered, so they are counted."""
    named = message_tokens(Message("m", Role.USER, name="Ada Lovelace"), WORDS, model="words-1")

    assert named.tokens == MESSAGE_OVERHEAD_TOKENS + NAME_OVERHEAD_TOKENS + 2


def test_tool_calls_and_results_count_what_is_rendered() -> None:
    """Names and arguments of calls, and the id that ties a result to its call."""
    call = Message("m", Role.ASSISTANT, tool_calls=(ToolCall("c1", "look up", '{"a": 1}'),))
    result = Message("m", Role.TOOL, "found it", tool_call_id="c1")

    assert (
        message_tokens(call, WORDS, model="words-1").tokens == MESSAGE_OVERHEAD_TOKENS + TOOL_CALL_OVERHEAD_TOKENS + 4
    )
    assert message_tokens(result, WORDS, model="words-1").tokens == MESSAGE_OVERHEAD_TOKENS + 3


def test_attachments_count_what_the_caller_says() -> None:
    """The caller knows what the model counts."""
    message = Message("m", Role.USER, attachments=(Attachment("a", token_count=85), Attachment("b", token_count=170)))

    assert message_tokens(message, WORDS, model="words-1").tokens == MESSAGE_OVERHEAD_TOKENS + 255


@pytest.mark.parametrize(
    ("uri", "media_type", "tokens"),
    [
        ("https://example.org/a", "image/png", IMAGE_TOKENS),
        ("data:image/jpeg;base64,AAAA", "", IMAGE_TOKENS),
        ("https://example.org/files/1?sig=abc", "image/*", IMAGE_TOKENS),
        ("data:text/plain,one%20two%20three", "", 3),
        ("data:;base64,b25lIHR3bw==", "text/plain; charset=utf-8", 2),
        ("https://example.org/a.txt", "text/plain", 0),
        ("data:application/pdf;base64,AAAA", "", 0),
        ("data:text/plain;base64,/w==", "", 0),
    ],
)
def test_an_attachment_that_nobody_counted_is_estimated(uri: str, media_type: str, tokens: int) -> None:
    """Text in the URI is sent as text, and an image is worth a thousand words; nothing else is known of a file."""
    message = Message("m", Role.USER, attachments=(Attachment(uri, media_type),))
    counted = Message("m", Role.USER, attachments=(Attachment(uri, media_type, 85),))

    assert message_tokens(message, WORDS, model="words-1").tokens == MESSAGE_OVERHEAD_TOKENS + tokens
    assert message_tokens(counted, WORDS, model="words-1").tokens == MESSAGE_OVERHEAD_TOKENS + 85


@pytest.mark.parametrize("trusted", [0, 7, 9_000])
def test_the_count_of_the_caller_is_trusted_over_everything(trusted: int) -> None:
    """A caller that knows the model's own count need not pay for ours."""
    message = Message("m", Role.USER, "some text", name="Ada", token_count=trusted)

    assert message_tokens(message, WORDS, model="words-1") == TokenCount(trusted, TokenSource.CALLER)


def test_an_envelope_counts_as_its_result() -> None:
    """Signatures never reach a model, so they cost nothing."""
    envelope = json.dumps({"payload": {"result": "two words", "tool": "x"}, "sig": "a b c d e f"})

    assert (
        message_tokens(Message("m", Role.TOOL, envelope), WORDS, model="words-1").tokens == MESSAGE_OVERHEAD_TOKENS + 2
    )


@pytest.mark.parametrize("truth", [0.62, 0.8, 1.0, 1.17, 1.45, 1.9])
def test_twenty_reports_bring_the_median_error_to_three_percent(truth: float) -> None:
    """Twenty turns of a chat teach the factor of any model."""
    rng = random.Random(20)
    remaining = []
    for _ in range(200):
        sizes = [rng.randint(200, 6_000) for _ in range(20)]
        reports = [(size, max(1, round(size * truth * rng.gauss(1.0, 0.06)))) for size in sizes]
        remaining.append(abs(learned(reports) / truth - 1))

    assert statistics.median(remaining) <= 0.03
    assert statistics.quantiles(remaining, n=20)[-1] <= 0.10


def test_a_changed_model_is_learned_anew() -> None:
    """Old reports are forgotten: forty new ones outweigh a thousand."""
    before = learned([(1_000, 700)] * 1_000)
    after = before
    for observations in range(1_000, 1_040):
        after = calibrated_factor(after, 1_000, reported=1_300, observations=observations)

    assert before == pytest.approx(0.7, rel=0.01)
    assert after == pytest.approx(1.3, rel=0.02)


def test_one_absurd_report_moves_a_learned_factor_little() -> None:
    """A server that reports a cached prompt as almost nothing does no harm."""
    factor = learned([(1_000, 1_100)] * 20)

    assert calibrated_factor(factor, 1_000, reported=1, observations=20) == pytest.approx(factor, rel=0.06)


@pytest.mark.parametrize(("counted", "reported"), [(CALIBRATION_TOKENS_MIN - 1, 500), (500, 0), (0, 0), (500, -3)])
def test_a_report_that_can_teach_nothing_leaves_the_factor(counted: int, reported: int) -> None:
    """Tiny prompts and missing counts are not observations."""
    assert calibrated_factor(1.23, counted, reported=reported, observations=3) == 1.23


@given(st.floats(FACTOR_MIN, FACTOR_MAX), st.integers(0, 10**7), st.integers(-5, 10**9), st.integers(0, 10**6))
def test_the_factor_stays_within_its_clamps(old: float, counted: int, reported: int, observations: int) -> None:
    """No report, however wrong, makes a count less than half or more than double."""
    factor = calibrated_factor(old, counted, reported=reported, observations=observations)

    assert FACTOR_MIN <= factor <= FACTOR_MAX


@given(st.integers(CALIBRATION_TOKENS_MIN, 10**6), st.integers(1, 10**6), st.integers(0, 100))
def test_the_factor_moves_towards_the_report(counted: int, reported: int, observations: int) -> None:
    """Each report brings the factor nearer to the reported count, never past it."""
    ratio = min(FACTOR_MAX, max(FACTOR_MIN, reported / counted))
    factor = calibrated_factor(1.0, counted, reported=reported, observations=observations)

    assert min(1.0, ratio) - 1e-9 <= factor <= max(1.0, ratio) + 1e-9


def test_corrected_counts_are_rounded_up() -> None:
    """A fraction of a token is a token."""
    assert [calibrated_tokens(10, factor) for factor in (1.0, 1.01, 0.5, 2.0)] == [10, 11, 5, 20]


@pytest.mark.parametrize(("tokens", "counted"), [(27, 23), (55, 27), (28, 28)])
def test_estimates_that_a_tokenizer_counted_again_add_up_to_its_count(tokens: int, counted: int) -> None:
    """The ratio of two counts is rounded, and no token comes of it: 23 * (27 / 23) is above 27."""
    assert calibrated_tokens(counted, factor_to(tokens, estimated=counted)) == tokens


@given(st.integers(1, 1_000_000), st.integers(1, 1_000_000))
def test_a_factor_to_a_count_is_within_its_clamps_and_exact_there(tokens: int, counted: int) -> None:
    """Any count of a tokenizer and any estimate."""
    factor = factor_to(tokens, estimated=counted)

    assert FACTOR_MIN <= factor <= FACTOR_MAX
    if FACTOR_MIN < factor < FACTOR_MAX:
        assert calibrated_tokens(counted, factor) == tokens
