"""A tokenizer that is rebuilt from a model's description counts as the real one does, to the token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abridged.service.domain.tokens import TokenSource
from abridged.service.tokenizers.errors import VocabularyUnknown
from abridged.service.tokenizers.exact import ExactCounter
from abridged.service.tokenizers.pre_tokenizers import PRE_TOKENIZERS
from abridged.service.tokenizers.rebuilt import TOKENS_MAX, TYPED_CHARS_MAX, rebuilt
from tests.support.vocabularies import byte_level_info, llama_info, llama_json

TESTS = Path(__file__).parents[2]
SAMPLES = json.loads((TESTS / "unit/tokenizers/samples.json").read_text(encoding="utf-8"))
GOLDEN = json.loads((TESTS / "golden/token_counts.json").read_text(encoding="utf-8"))
MIXED = st.lists(
    st.sampled_from(
        [" ", "  ", "\n", "\t", "isn't", "'LL", "1234567", "ß", "漢字", "🎉", "👩\u200d💻", "a_b", "</x>", "é"]
    )
    | st.text(st.characters(codec="utf-8"), max_size=6),
    max_size=20,
).map("".join)


@pytest.fixture(scope="module")
def llama() -> ExactCounter:
    return ExactCounter("tokenizer:llama", "llama2", rebuilt(llama_info()))


@pytest.fixture(scope="module")
def real_llama() -> Any:
    return _real(llama_json())


@pytest.fixture(scope="module")
def byte_level() -> tuple[ExactCounter, Any]:
    info, real = byte_level_info()
    return ExactCounter("tokenizer:own", "own", rebuilt(info)), real


def _real(text: str) -> Any:
    from tokenizers import Tokenizer

    real = Tokenizer.from_str(text)
    real.no_padding()
    real.no_truncation()
    return real


def real_count(real: Any, text: str) -> int:
    return len(real.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_sentence_pieces_count_as_the_real_tokenizer_does(llama, real_llama, name):
    """Latin and other scripts, CJK, code, JSON, emoji: no difference, and the golden figure."""
    text = SAMPLES[name]["text"]

    assert llama.count(text) == real_count(real_llama, text) == GOLDEN["llama2"][name]


@given(MIXED)
@example("   isn't")
def test_sentence_pieces_count_any_text_alike(llama, real_llama, text):
    """Control tokens apart, which are text when somebody types them."""
    if not any(mark in text for mark in ("<s>", "</s>", "<unk>")):
        assert llama.count(text) == real_count(real_llama, text)


@given(MIXED)
def test_byte_pairs_count_any_text_alike(byte_level, text):
    """Split by our expression for GPT-2, and by the library's own."""
    ours, real = byte_level

    assert ours.count(text) == real_count(real, text)


def test_control_another_pre_tokenizer_counts_differently(byte_level):
    """The comparison therefore sees which one is used: GPT-2 keeps digits together, StarCoder takes them one by one."""
    info, _ = byte_level_info("starcoder")
    ours, _ = byte_level

    assert ExactCounter("x", "own", rebuilt(info)).count("4096 rows at 10.0.0.7") != ours.count("4096 rows at 10.0.0.7")


def test_a_control_token_that_is_typed_counts_as_text(llama):
    """Templates put them in as tokens; `</s>` that a user types reaches the model's template as text."""
    assert llama.count("</s>") > 1


def test_a_token_that_users_may_type_counts_as_one(byte_level):
    """Kind 4 of GGUF: added tokens that are matched in text."""
    info, _ = byte_level_info()
    tokens = [*info["tokenizer.ggml.tokens"], "<tool>"]
    kinds = [*info["tokenizer.ggml.token_type"], 4]
    counter = ExactCounter("x", "own", rebuilt(info | _arrays(tokens=tokens, token_type=kinds)))

    assert counter.count("<tool>") == 1 < byte_level[0].count("<tool>")


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_every_known_pre_tokenizer_can_be_built(name):
    """The library reads its expressions, and a text comes back whole: each token is a byte at least."""
    counter = ExactCounter("x", "own", rebuilt(byte_level_info(name)[0]))

    assert 0 < counter.count("Ada's 12345 rows,\n\n  漢字 isn't\t🎉 done/") <= 60


def _with_kinds(info: Mapping[str, Any]) -> list[tuple[str, int]]:
    return list(zip(info["tokenizer.ggml.tokens"], info["tokenizer.ggml.token_type"], strict=True))


def _arrays(**arrays: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in arrays.items()}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_arrays(pre="of-tomorrow"), "pre-tokenizer 'of-tomorrow' is not known"),
        (_arrays(pre="bad\nname"), "pre-tokenizer of no name"),
        (_arrays(pre=None), "pre-tokenizer of no name"),
        (_arrays(model="t5"), "type 't5'"),
        (_arrays(tokens=None), "no tokens"),
        (_arrays(tokens=[]), "no tokens"),
        (_arrays(tokens=["a"] * (TOKENS_MAX + 1)), "at most"),
        (_arrays(tokens=["a", 1]), "not texts"),
        (_arrays(tokens=["a" * 2_000]), "not texts"),
        (_arrays(token_type=[1]), "no token types"),
        (_arrays(merges=None), "no merges"),
        (_arrays(merges=["ab"]), "merge"),
        (_arrays(model="llama"), "no scores"),
        (_arrays(tokens=["a", "b"], token_type=[1, 1]), "bytes of texts have no token, the first of them 0x09"),
    ],
)
def test_a_vocabulary_of_no_known_kind_is_refused_with_its_reason(change, reason):
    """The rebuild guesses nothing: a wrong count that calls itself exact is worse than an estimate."""
    with pytest.raises(VocabularyUnknown, match=reason):
        rebuilt(byte_level_info()[0] | change)


@pytest.mark.parametrize("score", [float("nan"), float("-inf"), 10**400, None, "1"])
def test_scores_that_rank_nothing_are_refused(score):
    """Merges are sorted by them: with one that compares with none, their order would be any."""
    info = llama_info()
    scores = [*info["tokenizer.ggml.scores"][:-1], score]

    with pytest.raises(VocabularyUnknown, match="finite"):
        rebuilt(info | _arrays(scores=scores))


@pytest.mark.parametrize("byte", ["<0x0A>", "<0xF4>"])
def test_a_vocabulary_without_a_byte_of_texts_is_refused(byte):
    """Characters with that byte would count as one unknown token, or as none."""
    info = llama_info()
    kinds = [1 if token == byte else kind for token, kind in _with_kinds(info)]

    with pytest.raises(VocabularyUnknown, match=f"1 bytes of texts have no token, the first of them {byte[1:5]}"):
        rebuilt(info | _arrays(token_type=kinds))


def test_control_bytes_that_a_text_hardly_has_may_be_missing():
    """Bytes that UTF-8 never has, or only for planes without a character, may be missing, too."""
    info = llama_info()
    kinds = [
        1 if token in ("<0x00>", "<0x1F>", "<0xF1>", "<0xF2>", "<0xFF>") else kind for token, kind in _with_kinds(info)
    ]

    assert rebuilt(info | _arrays(token_type=kinds))


def test_merges_that_follow_from_scores_are_bounded():
    """Tokens that are all parts of one another imply a merge at every place of each."""
    info = llama_info()
    text = "".join(chr(0x4E00 + place) for place in range(1_600))
    parts = {text[at : at + length] for at in range(1_500) for length in range(1, 40)}
    tokens = [*info["tokenizer.ggml.tokens"], *sorted(parts - set(info["tokenizer.ggml.tokens"]))]
    more = len(tokens) - len(info["tokenizer.ggml.tokens"])
    arrays = _arrays(
        tokens=tokens,
        token_type=[*info["tokenizer.ggml.token_type"], *[1] * more],
        scores=[*info["tokenizer.ggml.scores"], *[-1.0] * more],
    )

    with pytest.raises(VocabularyUnknown, match="implies more than 1,000,000 merges"):
        rebuilt(info | arrays)


def test_tokens_that_users_may_type_are_bounded():
    """Each of their characters takes memory and time when the tokenizer is built, which no other bound covers."""
    info = llama_info()
    typed = [f"{number:05}{'x' * 1_000}" for number in range(TYPED_CHARS_MAX // 1_000)]
    arrays = _arrays(
        tokens=[*info["tokenizer.ggml.tokens"], *typed],
        token_type=[*info["tokenizer.ggml.token_type"], *[4] * len(typed)],
        scores=[*info["tokenizer.ggml.scores"], *[0.0] * len(typed)],
    )

    with pytest.raises(VocabularyUnknown, match="200,000 characters"):
        rebuilt(info | arrays)


def test_a_merge_of_unknown_tokens_is_refused():
    """A server that lies about its vocabulary is found when the tokenizer is built."""
    text = rebuilt(byte_level_info()[0] | _arrays(merges=["zzz qqq"]))

    with pytest.raises(VocabularyUnknown):
        ExactCounter("x", "own", text)


def test_an_exact_count_is_exact_for_its_own_model_alone(llama):
    """The model may have either of its names; another model's tokens are an estimate."""
    sources = [llama.source_for(model) for model in ("llama2", "ollama:llama2", "llama3", "")]

    assert sources == [TokenSource.TOKENIZER, TokenSource.TOKENIZER, TokenSource.ESTIMATE, TokenSource.ESTIMATE]
    assert (llama.count(""), llama.count(" ") >= 1) == (0, True)
