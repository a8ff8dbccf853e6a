"""Evaluation of a request for an answer whose model is in memory, by a server of some manner: pure, from its body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.ollama_answer import Run
from tests.support.ollama_behaviour import Behaviour, Refusal, json_error
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_checks import format_refusal
from tests.support.ollama_manner import Manner
from tests.support.ollama_responder import Ask
from tests.support.ollama_runner import Evaluation

WINDOWS_PREDICTED_MAX = 10
"""The number of windows after which an answer without num_predict ends."""


def refusal_of(
    body: dict[str, Any], manner: Manner, behaviour: Behaviour, *, tokens: int, num_ctx: int
) -> Refusal | None:
    """Return the loaded model's refusal: of a prompt that is too long, or of a schema without a grammar."""
    refuses = body.get("truncate") is False and manner.knows_truncate and not behaviour.silent_cut
    if tokens > num_ctx and refuses:
        return json_error(400, manner.overflow_error(tokens, num_ctx))
    return format_refusal(body.get("format"), manner)


def kept_tokens(tokens: int, num_ctx: int, manner: Manner, behaviour: Behaviour) -> int:
    """Return how many tokens of a prompt are evaluated, by a server that may cut it."""
    if tokens > num_ctx:
        return manner.kept_tokens(num_ctx)
    return tokens // 3 if behaviour.silent_cut else tokens


def run_of(body: dict[str, Any], manner: Manner, evaluation: Evaluation, *, num_ctx: int, token_s: float) -> Run:
    """Return the bounds of the answer, and the figures of its last line."""
    predicted = int(body.get("options", {}).get("num_predict", -1))
    return Run(
        prompt_tokens=evaluation.tokens - (0 if manner.counts_cached else evaluation.cached),
        tokens_max=predicted if predicted > 0 else WINDOWS_PREDICTED_MAX * num_ctx,
        prefill_s=evaluation.seconds,
        token_s=token_s,
        room=max(0, num_ctx - evaluation.tokens) if body.get("shift") is False else None,
        repeats_max=manner.repeats_max,
        tells_repeat_limit=manner.tells_repeat_limit,
    )


def ask_of(model: FakeModel, body: dict[str, Any], messages: Sequence[dict[str, Any]], manner: Manner) -> Ask:
    """Return the responder's question, without the fields that this version ignores."""
    silent = body.get("think") is False
    ignores_format = silent and model.thinks and manner.knows_think and not manner.obeys_format_without_thinking
    return Ask(
        model=model.name,
        messages=tuple(messages),
        format=None if ignores_format else body.get("format"),
        options=body.get("options", {}),
        thinks=model.thinks and manner.knows_think and not silent,
    )
