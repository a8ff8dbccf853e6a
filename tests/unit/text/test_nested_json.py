"""JSON of clients and tools: how deep it may be, and that reading it takes time in proportion to it."""

from __future__ import annotations

import pytest

from abridged.service.text.nested_json import DEPTH_MAX, data_of, outline, strictly_parsed
from tests.support.growth import grows_linearly


def test_a_string_without_an_end_takes_time_in_proportion():
    """Source code that was cut off has a quote in every line."""
    assert grows_linearly(outline, lambda size: '{"a":"' + '\\"' * size, size=20_000)


@pytest.mark.parametrize("text", ['{"a":"[[[', '"\\', '{"a":"\\"'])
def test_a_string_without_an_end_is_no_json(text):
    """The reader refuses such a text as it does any other that is no JSON."""
    with pytest.raises(ValueError):
        strictly_parsed(text)


def test_brackets_in_strings_do_not_count():
    """An outline has the structure alone."""
    assert outline('{"a":"[\\"[","b":[]}') == '{"":"","":[]}'
    assert strictly_parsed(f'["{"[" * (DEPTH_MAX + 1)}"]') == ["[" * (DEPTH_MAX + 1)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' {"a": [1]}', {"a": [1]}),
        ("[]", []),
        ('"a"', None),
        ("17", None),
        ("{a}", None),
        ("[" * 300 + "]" * 300, None),
    ],
)
def test_data_are_objects_and_lists(text: str, value: object):
    """A text of a person may be a number, and is no data."""
    assert data_of(text) == value
