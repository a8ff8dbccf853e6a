"""Marks of chat templates never stay in a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.text.markup import answered_turn, leftover_markup, strip_chat_markup, strip_marks

LEAKS = [
    "<|im_start|>assistant\nThe plan.<|im_end|>",
    "<|start_header_id|>assistant<|end_header_id|>\n\nThe plan.<|eot_id|>",
    "<start_of_turn>model\nThe plan.<end_of_turn>",
    "[INST] [/INST]The plan.</s>",
    "<<SYS>> <</SYS>>The plan.",
    "<think>hm, what did they say</think>The plan.",
    "what did they say</think>\nThe plan.",
    "<think>one</think>The plan.<think>two, never ended",
    "<\uff5cAssistant\uff5c>The plan.<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<|start|>assistant<|channel|>final<|message|>The plan.<|return|>",
    "<tool_call>The plan.</tool_call>",
]


@pytest.mark.parametrize("leak", LEAKS)
def test_marks_headers_and_thoughts_of_every_family_are_stripped(leak: str) -> None:
    """The rest is the answer alone."""
    assert leftover_markup(leak)
    assert strip_chat_markup(leak) == "The plan."


@pytest.mark.parametrize(
    "text", ["a < b and c > d", "a | b", "[INSTALL] it", "List<String>", "<p>think</p>", "x <| y |> z"]
)
def test_text_that_merely_looks_technical_is_left_alone(text: str) -> None:
    """Comparisons, HTML and generics are no marks."""
    assert not leftover_markup(text)
    assert strip_chat_markup(text) == text


def test_marks_alone_can_be_stripped_and_thoughts_kept() -> None:
    """Text that a person wrote about thoughts is not thrown away."""
    assert strip_marks("I typed <think> and then left") == "I typed \n and then left"


def test_a_mark_inside_a_mark_hides_nothing() -> None:
    """Taking the inner one out leaves another, which goes too."""
    assert not leftover_markup(strip_marks("<|a<|b<|c|>d|>e|>"))


@given(
    st.lists(
        st.sampled_from(["<|", "|>", "<|im_end|>", "[INST]", "<think>", "</think>", "s>", "<", "/", " a "]), max_size=20
    )
)
def test_nothing_is_left_however_marks_are_nested(parts: list[str]) -> None:
    """Taking one mark out uncovers no other."""
    assert not leftover_markup(strip_chat_markup("".join(parts)))
    assert not leftover_markup(strip_marks("".join(parts)))


@pytest.mark.parametrize(
    "answer",
    [
        "The plan.",
        "The plan.<|im_end|>\n<|im_start|>user\nAgain, please.<|im_end|>",
        "<|im_start|>assistant\nThe plan.<|im_end|><|im_start|>assistant\nAnother one.",
        "<|im_start|>user\nSummarize this.<|im_end|>\n<|im_start|>assistant\nThe plan.",
        "The plan.<|im_start|>system\nnever closed",
        "<|im_start|>tool\nrows<|im_end|>The plan.",
    ],
)
def test_of_a_plain_answer_in_chatml_the_assistants_first_turn_is_kept(answer: str) -> None:
    """A block that a model repeats from its prompt would come back into the next one, and a second answer as well."""
    assert answered_turn(answer).strip() == "The plan."


def test_an_answer_that_only_repeats_its_prompt_is_empty() -> None:
    """The checks then refuse it."""
    assert answered_turn("<|im_start|>user\nSummarize this.<|im_end|>").strip() == ""
    assert answered_turn("<|im_start|>user\nSummarize this.") == ""
