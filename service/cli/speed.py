"""Judges whether a model is fast enough for the settings: it must read a pass's longest prompt in time."""

from __future__ import annotations

import math

from abridged.service.config.settings import Settings
from abridged.service.domain.chunks import output_tokens_max
from abridged.service.domain.policy import SUMMARY_TOKENS_MAX
from abridged.service.models.inventory import ModelSpeed

FRAME_TOKENS = 500
"""Instructions and the previous record, in addition to the source."""

MARGIN = 1.5
"""A shared machine may be slower a moment later."""

INPUT_TOKENS_MIN = 1_000
"""The minimum of policy.max_input_tokens."""


def longest_prompt(settings: Settings, *, source_tokens_max: int) -> int:
    """Tokens of the longest prompt of a pass over at most `source_tokens_max`, within ollama.num_ctx."""
    source: int = min(source_tokens_max, settings.policy.max_input_tokens)
    answer = output_tokens_max(settings.policy.max_summary_tokens or SUMMARY_TOKENS_MAX)
    return min(source + FRAME_TOKENS, max(settings.ollama.num_ctx - answer, settings.ollama.num_ctx // 2))


def speed_line(speed: ModelSpeed, settings: Settings, *, prompt_tokens: int) -> str:
    """Say how fast the model is, and how long a pass waits for its first byte."""
    found = f"reads {_per_second(speed.read)}, writes {_per_second(speed.written)}"
    wait_s = speed.read_s(prompt_tokens)
    if wait_s is None:
        return found
    name, limit_s = _limit(settings)
    verdict = "enough" if wait_s <= limit_s else "too short"
    return f"{found}; a pass of {prompt_tokens:,} tokens waits about {wait_s:.0f} s, {name} is {limit_s:g}: {verdict}"


def patience(speed: ModelSpeed, settings: Settings, *, prompt_tokens: int) -> dict[str, int]:
    """The limits, by setting, to raise so that a pass does not time out; empty if it would not."""
    wait_s = speed.read_s(prompt_tokens)
    if wait_s is None or wait_s <= _limit(settings)[1]:
        return {}
    enough_s = math.ceil(wait_s * MARGIN / 10) * 10
    return {name: enough_s for name, limit_s in _limits(settings).items() if limit_s < enough_s}


def advice(speed: ModelSpeed, settings: Settings, *, prompt_tokens: int) -> str:
    """Name the settings to change if a pass would time out; empty if it would not."""
    raised = patience(speed, settings, prompt_tokens=prompt_tokens)
    if not raised or speed.read is None:
        return ""
    remedy = f"set {' and '.join(f'{name}={seconds}' for name, seconds in raised.items())}"
    source = math.floor((speed.read * _limit(settings)[1] / MARGIN - FRAME_TOKENS) / 100) * 100
    if source >= INPUT_TOKENS_MIN:
        remedy += f", or policy.max_input_tokens={source}: longer sources are then read in parts"
    return remedy


def _limit(settings: Settings) -> tuple[str, float]:
    """The setting that limits the wait for a first byte, and its value in seconds."""
    return min(_limits(settings).items(), key=lambda limit: limit[1])


def _limits(settings: Settings) -> dict[str, float]:
    return {
        "ollama.first_byte_timeout_s": settings.ollama.first_byte_timeout_s,
        "summarizer.deadline_s": settings.summarizer.deadline_s,
    }


def _per_second(rate: float | None) -> str:
    return f"{rate:,.{1 if rate < 100 else 0}f} tokens/s" if rate is not None else "at an unknown speed"
