"""Judges whether a model is fast enough for the settings: it must read a pass's longest prompt in time."""

from __future__ import annotations

import math

from abridged.service.config.settings import Settings
from abridged.service.domain.policy import SUMMARY_TOKENS_MAX
from abridged.service.models.inventory import ModelSpeed

FRAME_TOKENS = 500
"""Instructions and the previous record, in addition to the source."""

ANSWER_SLACK_TOKENS = 256
MARGIN = 1.5
"""A shared machine may be slower a moment later."""

INPUT_TOKENS_MIN = 1_000
"""The minimum of policy.max_input_tokens."""


def longest_prompt(settings: Settings, *, source_tokens_max: int) -> int:
    """Tokens of the longest prompt of a pass over at most `source_tokens_max`, within ollama.num_ctx."""
    source: int = min(source_tokens_max, settings.policy.max_input_tokens)
    answer: int = 2 * (settings.policy.max_summary_tokens or SUMMARY_TOKENS_MAX) + ANSWER_SLACK_TOKENS
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


def advice(speed: ModelSpeed, settings: Settings, *, prompt_tokens: int) -> str:
    """Name the settings to change if a pass would time out; empty if it would not."""
    wait_s = speed.read_s(prompt_tokens)
    _, limit_s = _limit(settings)
    if wait_s is None or speed.read is None or wait_s <= limit_s:
        return ""
    enough_s = math.ceil(wait_s * MARGIN / 10) * 10
    raised = [f"ollama.first_byte_timeout_s={enough_s}"]
    if settings.summarizer.deadline_s < enough_s:
        raised.append(f"summarizer.deadline_s={enough_s}")
    remedy = f"set {' and '.join(raised)}"
    source = math.floor((speed.read * limit_s / MARGIN - FRAME_TOKENS) / 100) * 100
    if source >= INPUT_TOKENS_MIN:
        remedy += f", or policy.max_input_tokens={source}: longer sources are then read in parts"
    return remedy


def _limit(settings: Settings) -> tuple[str, float]:
    """The setting that limits the wait for a first byte, and its value in seconds."""
    limits = {
        "ollama.first_byte_timeout_s": settings.ollama.first_byte_timeout_s,
        "summarizer.deadline_s": settings.summarizer.deadline_s,
    }
    return min(limits.items(), key=lambda limit: limit[1])


def _per_second(rate: float | None) -> str:
    return f"{rate:,.{1 if rate < 100 else 0}f} tokens/s" if rate is not None else "at an unknown speed"
