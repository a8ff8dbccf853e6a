"""Sentences of any script, bounded, and clipped between words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.text.sentences import CLIP_CHARS_MAX, clipped, parts_of, sentences
from tests.support.growth import grows_linearly


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We met at noon. Nobody came! Why was that?", ["We met at noon.", "Nobody came!", "Why was that?"]),
        ("Version 2.14.3 costs $1,200.50 today. It works.", ["Version 2.14.3 costs $1,200.50 today.", "It works."]),
        ("Ask Dr. Miller, e.g. by mail. Then wait.", ["Ask Dr. Miller, e.g. by mail.", "Then wait."]),
        ("Did you ask her? No. We stayed at home.", ["Did you ask her?", "We stayed at home."]),
        ("It costs 3 Mio. Euro. Der Rest fehlt.", ["It costs 3 Mio. Euro.", "Der Rest fehlt."]),
        ("Im XIX. Jahrhundert war hier Wald. Heute nicht.", ["Im XIX. Jahrhundert war hier Wald.", "Heute nicht."]),
        ("Neu ist WE 14, 3. OG links. Die alte bleibt.", ["Neu ist WE 14, 3. OG links.", "Die alte bleibt."]),
        ("Es liegt in Rack 7, Pos. C4 oben. Danke dir.", ["Es liegt in Rack 7, Pos. C4 oben.", "Danke dir."]),
        ("Take rooms 1, 2, 3. OK then?", ["Take rooms 1, 2, 3.", "OK then?"]),
        ("Il faut 38 mm sur 25 m. J'ai le nuancier.", ["Il faut 38 mm sur 25 m.", "J'ai le nuancier."]),
        ("Ab 20 z. B. Montag geht es.", ["Ab 20 z. B. Montag geht es."]),
        ("« Tu viens ? » demanda Marie. Il partit seul.", ["« Tu viens ? » demanda Marie.", "Il partit seul."]),
        ("NO HOLDER IS LIABLE FOR ANY DAMAGE THAT IS CAUSED BY\nTHE USE OF THIS WORK.",
         ["NO HOLDER IS LIABLE FOR ANY DAMAGE THAT IS CAUSED BY THE USE OF THIS WORK."]),
        ("我们决定。请发给我。", ["我们决定。", "请发给我。"]),
        ("- first point\n* second point\n3. third point", ["first point", "second point", "third point"]),
        ("Run this now please.\n```\nrm -rf build\n```\nThen tell me.", ["Run this now please.", "Then tell me."]),
        ("These are the steps:\nOpen the door slowly.", ["Open the door slowly."]),
    ],
)  # fmt: skip
def test_sentences_end_where_a_reader_ends_them(text: str, expected: list[str]) -> None:
    """Abbreviations and numbers end no sentence; lists, lines and code blocks do."""
    assert list(sentences(text)) == expected


@given(st.text(st.characters(), max_size=2_000))
def test_no_sentence_is_unbounded_or_empty(text: str) -> None:
    """Sentences of any text are short, on one line and say something."""
    for sentence in sentences(text):
        assert 0 < len(sentence) <= 400
        assert "\n" not in sentence


@given(st.text(alphabet="ab1,. \u4e16", max_size=600))
def test_clipping_cuts_no_word_and_no_number(text: str) -> None:
    """The kept part of a sentence is whole words of it."""
    kept = clipped(text).removesuffix("\u2026")

    assert len(clipped(text)) <= CLIP_CHARS_MAX
    assert text.startswith(kept)
    if kept and len(kept) < len(text):
        edge = (kept[-1], text[len(kept)])
        assert not all(character in "ab1" for character in edge)


@pytest.mark.parametrize("motif", ["a", ". ", "a. ", "A.B. ", "\u3002", "- ", "1. ", "``` ", "\n", " ", "a:\n", "Dr. "])
def test_a_hostile_text_is_split_in_linear_time(motif: str) -> None:
    """A fifth of a megabyte of anything."""
    assert grows_linearly(lambda text: list(sentences(text)), lambda size: motif * (size // len(motif)), size=200_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ask Dr. Miller; he knows. Then wait.", ["Ask Dr. Miller; he knows.", "Then wait."]),
        ("- yes\n  rm -rf build\n\nNo.", ["- yes", "rm -rf build", "No."]),
        ("我们决定。请发给我。", ["我们决定。", "请发给我。"]),
        (" \n", []),
    ],
)
def test_the_parts_of_a_text_are_all_of_it(text: str, expected: list[str]) -> None:
    """A check reads code, lists and short answers as well, and ends sentences where an extract does."""
    assert list(parts_of(text)) == expected


def test_a_statement_of_a_program_continues_no_prose():
    """A comment of code in a line that was not wrapped, and the lower case behind it, are no sentence."""
    comment = "/* try { // try from 00401294 to 00401372 has its CatchHandler @ 0040154c */"

    assert not any("operator" in sentence for sentence in sentences(f"{comment}\n  std::operator>>(input, local_98);"))
    wrapped = "At the end of it all the tenant shall hand over the keys and\n(b) the deposit slip (in copy);\nno more."
    assert list(sentences(wrapped)) == [wrapped.replace("\n", " ")]
