"""Identifiers are found by their form, whole, once for each occurrence, and never a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.text.identifiers import CHUNK_CHARS_MAX, IdentifierKind, identifiers, numerals
from tests.support.growth import grows_linearly, takes_at_most

FORMS = {
    IdentifierKind.URL: ["https://example.org/a?b=1#c", "www.example.org/x", "api.example.com", "localhost:8080"],
    IdentifierKind.EMAIL: ["ada.lovelace@example.org"],
    IdentifierKind.UUID: ["3f2b8c1e-77aa-4d0c-9be2-5f0a1c9d7e44"],
    IdentifierKind.HASH: ["9b1d5c0a", "0xdeadbeef", "9b1d5c0aa3f4e6b7c8d9e0f1a2b3c4d5e6f70819"],
    IdentifierKind.PATH: ["/srv/app/config.yaml", "./run.sh", "~/notes", "C:\\Users\\ada", "src/app/main.py:12"],
    IdentifierKind.FILE: ["README.md", "main.go", "report_final-2.xlsx"],
    IdentifierKind.TICKET: ["PROJ-4821", "#12345"],
    IdentifierKind.VERSION: ["v2", "v2.14.3", "2.14.3", "10.0.0.1", "1.2.3-rc1"],
    IdentifierKind.CODE: ["ZFA04Y", "HAT136", "W2378156"],
    IdentifierKind.SYMBOL: [
        "snake_case",
        "MAX_RETRIES",
        "CamelCase",
        "os.path.join()",
        "run()",
        "std::vector",
        "mia_li_3668",
    ],
    IdentifierKind.AMOUNT: ["$1,200.50", "€45", "1200 USD", "EUR 99", "300 dollars"],
    IdentifierKind.DATE: [
        "2024-05-15",
        "2024-05-15T15:00:00Z",
        "12.05.2024",
        "May 15, 2024",
        "15 May",
        "2024年5月15日",
    ],
    IdentifierKind.PHONE: ["+49 30 1234567", "(555) 123-4567", "555-123-4567"],
    IdentifierKind.TIME: ["10:30", "3 pm", "11:52:09"],
    IdentifierKind.NUMBER: ["42", "1,200", "45%", "100ms", "21st"],
    IdentifierKind.DECIMAL: ["3.14", "0.5%", "1e10"],
}
CASES = [(kind, text) for kind, texts in FORMS.items() for text in texts]


@pytest.mark.parametrize(("kind", "text"), CASES)
@pytest.mark.parametrize("around", ["{}", "see {}, please", "({})", 'is "{}".', "请看{}。", '{{"key":"{}"}}'])
def test_every_form_is_found_whole_in_every_surrounding(kind: IdentifierKind, text: str, around: str) -> None:
    """Punctuation, brackets, JSON and scripts without spaces hide and cut no identifier."""
    found = [(one.kind, one.text) for one in numerals(around.format(text))]

    assert (kind, text) in found


def test_decimals_are_numerals_but_not_identifiers() -> None:
    """A measurement names nothing; and no piece of it passes for a number."""
    assert identifiers("pi is 3.14159 and the ratio 0.85") == ()
    assert [one.text for one in numerals("pi is 3.14159")] == ["3.14159"]


def test_repeats_are_kept_in_order() -> None:
    """Ranking needs to know how often and when."""
    assert [one.text for one in identifiers("ZFA04Y, then HAT136, then ZFA04Y")] == ["ZFA04Y", "HAT136", "ZFA04Y"]


@pytest.mark.parametrize(
    "prose",
    [
        "He said hello and/or goodbye, i.e. nothing, e.g. at noon in the U.S., 24/7, etc.",
        "I'm well-known; don't worry. Yes/no? It is what it is...",
        "Wir haben uns entschieden, morgen zu fahren.",
        "我们决定明天开会。",
    ],
)
def test_prose_holds_no_identifier(prose: str) -> None:
    """Abbreviations, slashes and apostrophes are not names."""
    assert identifiers(prose) == ()


@pytest.mark.parametrize("secret", ["password=hunter2", "AKIA" + "IOSFODNN7EXAMPLE", "api_key: a8f7d6e5c4b3"])
def test_a_secret_is_never_an_identifier(secret: str) -> None:
    """A text that must not be carried is not found."""
    assert not any(part in one.text for one in identifiers(f"use {secret} now") for part in ("hunter2", "AKIA", "a8f7"))


@given(st.text(st.characters(), max_size=400))
def test_what_is_found_stands_in_the_text(text: str) -> None:
    """The search makes nothing up, whatever the text."""
    assert all(one.text in text for one in numerals(text))


DEARER_THAN_PROSE_AT_MOST = 40.0
"""Ten times the cost of the dearest of 3,000 random motifs."""

HOSTILE = (
    *("a", "a.", "a/", "a_", "a__", "1,", "1.", "aB", "Aa", "(1", "-1", "=1", "\\a", "a:1", "a@a", "::a", "A-1", "{["),
    *("))", "\u00e9_1", "+1 ", "$ 1", "May ", "12 of ", "@%\n\\", "1 1 ", "555-555-"),
)


@pytest.mark.parametrize("motif", HOSTILE)
def test_a_hostile_text_is_searched_in_linear_time(motif: str) -> None:
    """No text makes a pattern explode."""
    assert grows_linearly(identifiers, lambda size: motif * (size // len(motif)), size=120_000)


@given(st.text(alphabet='aA1_-./\\:@#$%+=,()~ \u00e9"', min_size=1, max_size=6))
def test_no_short_motif_explodes_within_a_chunk(motif: str) -> None:
    """One run without spaces, as long as a chunk may be, costs at most a bounded multiple of prose."""
    run = (motif * CHUNK_CHARS_MAX)[: CHUNK_CHARS_MAX - 4] + "\u00e9 !\u00e9"
    prose = ("The crane lifted 17 crates at noon. " * CHUNK_CHARS_MAX)[: len(run)]

    assert takes_at_most(DEARER_THAN_PROSE_AT_MOST, identifiers, run, than=prose)
