"""Advice on the settings for a measured speed."""

from __future__ import annotations

import pytest

from abridged.service.cli.speed import advice, longest_prompt, patience, speed_line
from abridged.service.config.settings import Settings
from abridged.service.models.inventory import ModelSpeed

SPEED = ModelSpeed(read=20.0, written=8.0)


def settings(**groups: dict[str, object]) -> Settings:
    given = {"ollama": {"first_byte_timeout_s": 300}, "summarizer": {"deadline_s": 600}}
    return Settings.model_validate({name: given.get(name, {}) | groups.get(name, {}) for name in {*given, *groups}})


def test_a_speed_that_suffices_is_said_to_suffice():
    """The figure, the setting, and no advice."""
    assert speed_line(SPEED, settings(), prompt_tokens=4_000) == (
        "reads 20.0 tokens/s, writes 8.0 tokens/s; a pass of 4,000 tokens waits about 200 s, "
        "ollama.first_byte_timeout_s is 300: enough"
    )
    assert advice(SPEED, settings(), prompt_tokens=4_000) == ""


def test_a_speed_that_does_not_suffice_names_what_to_raise_and_what_to_lower():
    """Half as much again as the pass would wait, or a source that is read in two thirds of the limit."""
    assert advice(SPEED, settings(), prompt_tokens=7_000) == (
        "set ollama.first_byte_timeout_s=530, or policy.max_input_tokens=3500: longer sources are then read in parts"
    )


def test_a_deadline_that_comes_first_is_the_limit():
    """The advice names that deadline, and raises it too."""
    short = settings(summarizer={"deadline_s": 100})

    assert "summarizer.deadline_s is 100: too short" in speed_line(SPEED, short, prompt_tokens=4_000)
    assert advice(SPEED, short, prompt_tokens=4_000).startswith("set summarizer.deadline_s=300")


def test_patience_is_what_advice_says_to_raise():
    """Each limit that is below half as much again as the wait, and nothing where both suffice."""
    assert patience(SPEED, settings(), prompt_tokens=4_000) == {}
    assert patience(ModelSpeed(None, None), settings(), prompt_tokens=4_000) == {}
    assert patience(SPEED, settings(), prompt_tokens=9_000) == {
        "ollama.first_byte_timeout_s": 680,
        "summarizer.deadline_s": 680,
    }


def test_what_is_too_slow_for_any_source_is_not_told_to_take_less():
    """policy.max_input_tokens has a least value, and the prompt a frame."""
    assert "max_input_tokens" not in advice(ModelSpeed(2.0, 1.0), settings(), prompt_tokens=4_000)


def test_a_speed_that_is_not_told_is_not_judged():
    """No figure, no verdict."""
    unknown = ModelSpeed(None, None)

    assert speed_line(unknown, settings(), prompt_tokens=4_000).count("at an unknown speed") == 2
    assert advice(unknown, settings(), prompt_tokens=4_000) == ""


@pytest.mark.parametrize(
    ("num_ctx", "max_input_tokens", "source", "tokens"),
    [(8_192, 8_000, 8_000, 6_656), (32_768, 8_000, 8_000, 8_500), (32_768, 8_000, 4_096, 4_596)],
)
def test_the_longest_prompt_is_bounded_by_window_policy_and_source(num_ctx, max_input_tokens, source, tokens):
    """The longest prompt is the window without the answer, or the source with its instructions."""
    given = settings(ollama={"num_ctx": num_ctx}, policy={"max_input_tokens": max_input_tokens})

    assert longest_prompt(given, source_tokens_max=source) == tokens
