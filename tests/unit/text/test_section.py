"""Sections are searched by their openings, and find what their lines find one after the other, without case."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abridged.service.text.phrases import Phrase, patterns_of, section_of
from abridged.service.text.section import Section, in_lower
from abridged.service.text.sentences import parts_of
from tests.support.shared_data import FILES, shared_chats

TESTS = Path(__file__).parents[2]
WRITTEN = (*(TESTS / "unit" / "extraction").rglob("*.jsonl"), *(TESTS.parent / "bench" / "written").rglob("*.*"))
"""Sentences in eight languages."""

SENTENCES = 40
"""Sentences of a source that all sections read."""

CASED = [chr(code) for code in range(0x110000) if chr(code).lower() != chr(code) or chr(code).upper() != chr(code)]

ELEMENTS = st.sampled_from(
    [
        *(
            "i",
            "s",
            "k",
            "a",
            "I",
            "\u0131",
            "\u00df",
            "\u03c3",
            "\u672a",
            " ",
            "-",
            "'",
            r"\.",
            r"\w",
            r"\W",
            r"\d",
            ".",
        ),
        *(
            "[ik]",
            "[a-k]",
            "[^i]",
            "[s.-]",
            "[a[]",
            "[Ik]",
            r"[\ws]",
            r"\u0130",
            r"\x41",
            "(?-i:I)",
            "(?-i:sa)",
            "(?=s)",
            "(?!a)",
        ),
        *(r"\b", "^", "$", "(?<!i)", "(?<=s )", "(?<!a|k)", "(?<!\\w)", r"\B"),
    ]
)
EXPRESSIONS = st.recursive(
    ELEMENTS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: f"(?:{'|'.join(branches)})"),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        inner.map(lambda one: f"({one})"),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "??", "?+", "{2}", "{0,2}"])).map(
            lambda it: f"(?:{it[0]}){it[1]}"
        ),
        st.tuples(st.sampled_from("iska"), st.sampled_from("?*+")).map("".join),
    ),
    max_leaves=8,
)
TEXTS = st.text("iskaISKA\u0130\u0131\u017f\u212a\u00df\u1e9e\u03a3\u03c2\u03c3\u672a -'.1\n", max_size=12)


def plain_of(lines: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(lines), re.IGNORECASE)


@cache
def plain(kind: Phrase) -> re.Pattern[str]:
    return plain_of([line.pattern for line in patterns_of(kind)])


def spans(found: Iterator[re.Match[str]]) -> list[tuple[int, int, str]]:
    return [(*match.span(), match[match.lastindex or 0]) for match in found]


@settings(max_examples=300)
@given(st.lists(EXPRESSIONS, min_size=1, max_size=3), st.lists(TEXTS, min_size=1, max_size=12))
def test_any_expressions_find_what_they_find_in_one(lines: list[str], texts: list[str]) -> None:
    """No form of an expression, letter of another case or place in a text makes a difference."""
    section, whole = Section(lines), plain_of(lines)

    for text in texts:
        assert section.is_in(text) is (whole.search(text) is not None), (lines, text)


@pytest.mark.parametrize(
    ("lines", "text", "without"),
    [
        (["us"], "\u017f U\u017f", "u"),
        (["ki"], "\u212a\u0130", "k"),
        (["\u03c3\u03b1\u03c3"], "\u03a3\u0391\u03a3", "\u03a3"),
        (["a(?-i:B)"], "AB", "ab"),
        ([r"a\x42"], "ab", "a"),
        (["aB"], "ab", "a"),
        ([r"\bab"], "xab ab", "xab"),
        ([r"\b'a"], "b'a", "'a"),
        ([r"(?<!x)(?<=\d )ab"], "x1 ab", "x ab"),
        (["a?b", "c??d", "e*f"], "b", "ace"),
        (["(?:ab|(?:|c)d)e"], "de", "abd"),
        (["(?!a)b"], "b", "a"),
        (["[abc]d|[]x]y"], "]y", "xd"),
        (["[^a]b"], "cb", "ab"),
        (["[a[]b"], "[b", "b"),
        (["^|b"], "a", "c"),
        ([r"[a\]|(]b", "(a|(b))c"], "|b", "a|"),
        (["^a|(?:^|x)b"], "b", "ab"),
        (["未|[的得]了"], "他来得了", "的"),
    ],
)
def test_a_line_is_read_as_python_reads_it(lines: list[str], text: str, without: str) -> None:
    """One example for each form that a line may begin with, or that keeps it from being read further."""
    section, whole = Section(lines), plain_of(lines)

    assert spans(section.finditer(text)) == spans(whole.finditer(text)) != []
    assert section.is_in(without) is (whole.search(without) is not None)


def test_a_text_in_lower_case_is_as_long_and_as_python_compares_it() -> None:
    """Letters of Unicode are equal in lower case if IGNORECASE takes them for each other."""
    alphabet = "".join(CASED)
    lower = in_lower(alphabet)

    assert len(lower) == len(alphabet)
    assert all(in_lower(letter) == small for letter, small in zip(alphabet, lower, strict=True))
    for letter in "abcdefghijklmnopqrstuvwxyzßäàçéñóœąłż\u03c3\u03bc\u0432\u0434\u0441\u044a":
        assert re.findall(letter, alphabet, re.IGNORECASE) == [one for one in alphabet if in_lower(one) == letter]


def test_the_sets_of_the_lines_hold_the_same_letters_in_lower_case() -> None:
    """Sets do not have ranges such as `[ -a]`, which have more letters without case."""
    alphabet = "".join(CASED)
    lines = [pattern.pattern for kind in Phrase for pattern in patterns_of(kind)]
    sets = {found for line in lines for found in re.findall(r"\[\^?(?:\\.|[^\]\\])+\]|\\[wWdDsS]", line)}
    read = [one for one in sets if (bare := re.sub(r"\\.", "", one)) == bare.lower()]

    assert len(read) > 50
    for one in read:
        as_written = [match.start() for match in re.finditer(one, alphabet, re.IGNORECASE)]
        assert as_written == [match.start() for match in re.finditer(one, in_lower(alphabet))], one


def written() -> list[str]:
    """Sentences of every file of tests and benchmarks that has some, in turn."""
    files = [[*parts_of(path.read_text(encoding="utf-8"))] for path in sorted(WRITTEN)]
    return [file[place % len(file)] for place in range(SENTENCES // 20) for file in files][: 2 * SENTENCES]


def shared() -> list[str]:
    chats = [chat["messages"] for name in FILES for chat in islice(shared_chats(name), 5)]
    said = [part for messages in chats for message in messages for part in parts_of(message["content"] or "") if part]
    return said[:: len(said) // SENTENCES]


def of_phrases() -> list[str]:
    """The words of every line without the signs between them, in every case and with letters of other cases."""
    words = [" ".join(re.findall(r"[^\W\d_]+", line.pattern)) for kind in Phrase for line in patterns_of(kind)]
    odd = str.maketrans({"i": "\u0130", "s": "\u017f", "k": "\u212a"})
    mixed = [word[:200] for word in words[:: len(words) // SENTENCES]]
    return [case(word) for word in mixed for case in (str.upper, lambda word: word.translate(odd))]


@pytest.mark.parametrize("sentences", [written, shared, of_phrases])
def test_sections_find_what_the_whole_expression_finds(sentences) -> None:
    """Each section, in sentences of many languages: the same phrases at the same places."""
    for sentence in sentences():
        for kind in Phrase:
            assert spans(section_of(kind).finditer(sentence)) == spans(plain(kind).finditer(sentence)), (kind, sentence)


@settings(max_examples=100)
@given(st.data())
def test_a_phrase_is_found_in_any_case_and_company(data: st.DataObject) -> None:
    """Texts that a line of a section finds by construction."""
    kind = data.draw(st.sampled_from(Phrase))
    line = data.draw(st.sampled_from(patterns_of(kind)))
    phrase = data.draw(st.from_regex(line))
    text = data.draw(
        st.sampled_from([phrase, f"Also, {phrase} 👍", phrase.upper(), phrase.title(), f"\u0130 {phrase}"])
    )

    assert spans(section_of(kind).finditer(text)) == spans(plain(kind).finditer(text))
