"""Signed tool envelopes are unwrapped; nothing else is touched."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.text.envelope import unwrap_envelope


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ({"result": "42 rows"}, "42 rows"),
        ({"result": {"rows": 42}, "tool": "count"}, '{"rows": 42}'),
        ({"rows": 42}, '{"rows": 42}'),
        ("plain text", "plain text"),
        ('{"result": "inner"}', "inner"),
        ("[1, 2]", "[1, 2]"),
        ({"result": ""}, ""),
        ({"result": None}, "null"),
        ({"result": "größer 世界"}, "größer 世界"),
    ],
)
def test_an_envelope_gives_its_result(payload: object, result: str) -> None:
    """Only the tool's answer is left."""
    assert unwrap_envelope(json.dumps({"payload": payload, "sig": "eyJhbGciOi"})) == result


@pytest.mark.parametrize(
    "content",
    [
        "",
        "say {payload, sig}",
        '{"payload": 1}',
        '{"payload": 1, "sig": "x", "more": 2}',
        '{"payload": {"result": 1}, "sig": ',
        '["payload", "sig"]',
        '{"a": "\\"payload\\" \\"sig\\""}',
        '{"payload": ' + "[" * 100_000 + ', "sig": ',
    ],
)
def test_other_content_comes_back_as_it_is(content: str) -> None:
    """Text that merely resembles an envelope is somebody's text."""
    assert unwrap_envelope(content) == content


@given(st.text())
def test_any_text_survives(content: str) -> None:
    """Unwrapping never raises."""
    assert unwrap_envelope(content) == content


def test_half_a_surrogate_pair_is_replaced():
    """A text that JSON can spell and UTF-8 cannot carry does not reach a renderer."""
    unwrapped = unwrap_envelope('{"payload": "broken \\ud800 text", "sig": "s"}')

    assert unwrapped == "broken ? text"
