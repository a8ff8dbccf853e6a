"""A real vocabulary counts any text: long, hostile or broken."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abridged.service.domain.tokens import TokenSource

bpe_openai = pytest.importorskip("bpe_openai", reason="the extra `bpe` is not installed")

from abridged.service.tokenizers.embedded import EmbeddedCounter  # noqa: E402  (needs the extra)

SPECIAL = st.sampled_from(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|endofprompt|>"])


@pytest.fixture(scope="module")
def o200k() -> EmbeddedCounter:
    return EmbeddedCounter("o200k")


def test_the_count_is_that_of_the_vocabulary(o200k: EmbeddedCounter) -> None:
    """Known counts of o200k."""
    assert [o200k.count(text) for text in ("", "hello world", "2031-03-07")] == [0, 2, 6]
    assert (o200k.name, o200k.source_for("gpt-4o")) == ("bpe:o200k", TokenSource.TOKENIZER)


@given(st.lists(st.one_of(st.text(st.characters(), max_size=30), SPECIAL), max_size=12).map("".join))
@settings(deadline=None)
def test_no_text_is_refused(o200k: EmbeddedCounter, text: str) -> None:
    """Special tokens and lone surrogates in user text are counted as text."""
    assert (o200k.count(text) > 0) == bool(text)


def test_a_special_token_in_user_text_counts_as_the_characters_typed(o200k: EmbeddedCounter) -> None:
    """A user who types a control token gets no control token."""
    assert o200k.count("<|endoftext|>") > 1


@pytest.mark.parametrize("character", ["a", " ", "\n", "世", "\U0002ffff", "\u0301"])
@pytest.mark.parametrize("vocabulary", ["o200k", "cl100k"])
def test_over_a_million_characters_are_counted(vocabulary: str, character: str) -> None:
    """The library's limits, a million characters and 200,000 tokens, are not ours."""
    assert EmbeddedCounter(vocabulary).count(character * 1_000_001) > 0


@pytest.mark.parametrize("end", [" ", "\n"])
def test_counting_in_pieces_changes_nothing_where_there_are_words(o200k: EmbeddedCounter, end: str) -> None:
    """Pieces end where the vocabulary cuts too."""
    sentence = f"The quick brown fox, as they say, jumps over 13 lazy dogs.{end}"
    whole = bpe_openai.get_encoding("o200k_base").encode_ordinary(sentence * 5_000)

    assert o200k.count(sentence * 5_000) == len(whole)
