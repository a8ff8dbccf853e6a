"""The models that the fake has, and their entries in /api/tags, /api/show and /api/ps."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.ollama_manner import Manner

TIME = "2026-01-02T03:04:05.678901Z"
VOCABULARY = 2_000


@dataclass(frozen=True, slots=True)
class FakeModel:
    """A model on the fake's disk.

    Two names of one `blob` are one model with one digest. `token_ratio` is how many tokens the model's own tokenizer
    makes of one of ours: 3 is about the ratio of Hindi. `vocabulary` is the verbose description's part about it.
    """

    name: str = "qwen2.5:3b"
    context_length: int = 32_768
    capabilities: tuple[str, ...] = ("completion", "tools")
    family: str = "qwen2"
    expires_at: str = TIME
    blob: str = ""
    token_ratio: float = 1.0
    vocabulary: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def digest(self) -> str:
        """A hash of everything that makes the model."""
        made_of = (self.name, self.context_length, self.capabilities, self.family)
        return hashlib.sha256((self.blob or repr(made_of)).encode()).hexdigest()

    def tokens(self, ours: int) -> int:
        """Return the number of the model's own tokens that `ours` tokens of the fake's make."""
        return math.ceil(ours * self.token_ratio)

    @property
    def thinks(self) -> bool:
        """True if the model thinks unless told not to."""
        return "thinking" in self.capabilities

    def details(self) -> dict[str, Any]:
        """The `details` object of several answers."""
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.family,
            "families": [self.family],
            "parameter_size": "3.1B",
            "quantization_level": "Q4_K_M",
        }

    def tag(self) -> dict[str, Any]:
        """The entry in /api/tags."""
        return {
            "name": self.name,
            "model": self.name,
            "modified_at": TIME,
            "size": 1_929_912_432,
            "digest": self.digest,
            "details": self.details(),
        }

    def resident(self, num_ctx: int, manner: Manner) -> dict[str, Any]:
        """The entry in /api/ps."""
        entry = {
            "name": self.name,
            "model": self.name,
            "size": 2_300_000_000,
            "digest": self.digest,
            "details": self.details(),
            "expires_at": self.expires_at,
            "size_vram": 0,
        }
        return entry | ({"context_length": num_ctx} if manner.tells_loaded_context else {})

    def show(self, manner: Manner, *, verbose: bool) -> dict[str, Any]:
        """The answer of /api/show."""
        tokens: object = [f"token{n}" for n in range(VOCABULARY)] if verbose else manner.hidden_array()
        answer: dict[str, Any] = {
            "modelfile": f"FROM {self.name}\n",
            "parameters": "temperature                    0.7",
            "template": "{{ .Prompt }}",
            "system": "You are a helpful assistant.",
            "license": "Apache License, Version 2.0",
            "details": self.details(),
            "model_info": {
                "general.architecture": self.family,
                "general.parameter_count": 3_085_938_688,
                f"{self.family}.context_length": self.context_length,
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.merges": tokens,
                "tokenizer.ggml.tokens": tokens,
            },
            "tensors": [{"name": "token_embd.weight", "type": "Q6_K", "shape": [2_048, VOCABULARY]}],
            "modified_at": TIME,
        }
        if verbose:
            answer["model_info"] |= self.vocabulary
        if manner.lists_capabilities:
            answer["capabilities"] = list(self.capabilities)
        return answer
