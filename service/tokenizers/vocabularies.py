"""Finds the vocabulary of a chat model by the model's name: models of one family share a vocabulary."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

_MODELS: Final = {
    "o200k": "gpt-4o* chatgpt-4o* gpt-4.1* gpt-4.5* gpt-5* gpt-oss* o1 o1-* o3 o3-* o4-*",
    "cl100k": "gpt-4 gpt-4-* gpt-3.5-* gpt-35-*",
    "llama3": "llama3* llama-3* meta-llama-3* hermes3*",
    "qwen": "qwen* qwq*",
    "gemma": "gemma* gemini*",
    "deepseek": "deepseek-v3* deepseek-chat* deepseek-reasoner*",
    "smollm": "smollm* gpt2* starcoder*",
    "llama2": "llama2* llama-2* mistral mistral-7b* mixtral* codellama* tinyllama* vicuna* zephyr* phi3* phi-3*",
}
"""Globs on the names of models, without provider and path, by vocabulary. OpenAI's are taken from tiktoken's table."""

_NAMES_KEPT: Final = 1_000
"""The most names that are remembered, because clients choose the names of models."""


@lru_cache(_NAMES_KEPT)
def vocabulary_of(model: str) -> str:
    """The vocabulary of the model, on any server; empty if the model's name does not say."""
    name = model.lower().rpartition("/")[2].removeprefix("ollama:").removeprefix("openai:")
    names = (name, name.partition(":")[2], name.partition(":")[0])
    return next(
        (
            vocabulary
            for vocabulary, globs in _MODELS.items()
            for glob in globs.split()
            if any(fnmatchcase(spelled, glob) for spelled in names)
        ),
        "",
    )
