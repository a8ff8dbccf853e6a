"""A model's speed in reading and writing, from one small question that its host times by its own clock."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from service.models.deadline import Deadline
from service.models.http.address import ServerAddress
from service.models.http.fields import count_of, seconds_of
from service.models.inventory import ModelSpeed
from service.models.ollama.host import OllamaHost
from service.models.ollama.inventory import ModelEntry
from service.models.ollama.settings import OllamaSettings
from service.models.ollama.wire import load_body

LINES = 16
"""Lines of the prompt, about 15 tokens each: enough to outweigh fixed costs, and read in 20 s at 12 tokens/s."""

OUTPUT_TOKENS = 24


async def speed_of(
    address: ServerAddress, model: ModelEntry, settings: OllamaSettings, *, clock: Callable[[], float], nonce: str
) -> ModelSpeed:
    """Ask `model` a question and read the durations in its answer. `nonce` defeats the host's prompt cache.

    Waits for the load and for the answer as long as a pass would, `first_byte_s` each: a shorter wait could abandon a
    prompt that the host keeps reading, and the next pass would have to wait for it. Raises ModelError.
    """
    host = OllamaHost(address, settings, clock=clock, on_breaker=lambda _host, _state: None)
    try:
        for body in (_runner(model, settings), _question(model, settings, nonce)):
            answer = await host.post(
                "/api/chat",
                json.dumps(body).encode(),
                model=model.name,
                seconds=settings.first_byte_s,
                deadline=Deadline(math.inf, clock=clock),
            )
    finally:
        await host.close()
    # The first token of an answer arrives with the end of the prompt, before the duration begins.
    return ModelSpeed(
        read=_rate(count_of(answer.get("prompt_eval_count")), answer.get("prompt_eval_duration")),
        written=_rate((count_of(answer.get("eval_count")) or 1) - 1, answer.get("eval_duration")),
    )


def _runner(model: ModelEntry, settings: OllamaSettings) -> dict[str, Any]:
    """The body that loads the model as a pass does: other options would make the next pass reload it."""
    window = min(settings.num_ctx, model.context_length or settings.num_ctx)
    body: dict[str, Any] = json.loads(load_body(model=model.name, num_ctx=window))
    return body


def _question(model: ModelEntry, settings: OllamaSettings, nonce: str) -> dict[str, Any]:
    body = _runner(model, settings)
    lines = (f"{number}. The worker of shard {number} wrote its invoices late." for number in range(1, LINES + 1))
    text = "\n".join([f"{nonce} is a report.", *lines, "Say in one sentence what this report is about."])
    body |= {"messages": [{"role": "user", "content": text}], "truncate": False}
    body["options"] |= {"num_predict": OUTPUT_TOKENS, "temperature": 0}
    return body | ({"think": False} if model.thinks else {})


def _rate(tokens: int | None, nanoseconds: object) -> float | None:
    """Tokens per second; None if either value is zero, which answers omit, or invalid."""
    seconds = seconds_of(nanoseconds)
    return tokens / seconds if tokens and seconds else None
