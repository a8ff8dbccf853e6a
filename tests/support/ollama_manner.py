"""Differences between Ollama's versions on the wire: texts, fields, and the fate of a prompt that is too long.

Sources: its release notes and its behaviour at the versions named; each property says since when.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

CRASH_TEXT = (
    "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, "
    "check ollama server logs for details"
)


@dataclass(frozen=True, slots=True)
class Manner:
    """One version's ways."""

    version: str

    @property
    def number(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(int(part) for part in self.version.split("."))

    @property
    def has_llama_server(self) -> bool:
        """A llama-server child does the work (0.30.0), not a runner of Ollama's own."""
        return self.number >= (0, 30, 0)

    @property
    def knows_truncate(self) -> bool:
        """`truncate: false` refuses long prompts (0.12.4)."""
        return self.number >= (0, 12, 4)

    @property
    def knows_think(self) -> bool:
        """`think` exists (0.9.0)."""
        return self.number >= (0, 9, 0)

    @property
    def obeys_format_without_thinking(self) -> bool:
        """`format` holds with `think: false` for every thinking model (0.31.2)."""
        return self.number >= (0, 31, 2)

    @property
    def lists_capabilities(self) -> bool:
        """/api/show has `capabilities` (0.6.4)."""
        return self.number >= (0, 6, 4)

    @property
    def tells_loaded_context(self) -> bool:
        """/api/ps has `context_length` (0.10.0)."""
        return self.number >= (0, 10, 0)

    @property
    def default_context(self) -> int:
        """The window when nobody asks for one, on a machine without a GPU."""
        return 4096 if self.number >= (0, 6, 7) else 2048

    @property
    def reloads_on_shift(self) -> bool:
        """Another `shift` loads the model anew, as another `num_ctx` always does (0.30.0)."""
        return self.has_llama_server

    @property
    def finishes_left_prefill(self) -> bool:
        """A prompt is evaluated to its end though its client has gone (measured at 0.24.0; llama-server stops)."""
        return not self.has_llama_server

    @property
    def counts_cached(self) -> bool:
        """`prompt_eval_count` counts tokens from the prompt cache; 0.30.0 alone did not."""
        return self.number != (0, 30, 0)

    @property
    def repeats_max(self) -> int | None:
        """Equal tokens in a row that end an answer when there is one more: 30 since 0.20, 100 since 0.34."""
        if self.number < (0, 20, 0):
            return None
        return 100 if self.tells_repeat_limit else 30

    @property
    def tells_repeat_limit(self) -> bool:
        """True if that end is an error, not merely the stream's end (late in 2026; 0.34.0 stands for the release)."""
        return self.number >= (0, 34, 0)

    @property
    def repetitions_refused(self) -> int:
        """The `maxLength` from which a schema makes no grammar: 2,000 in llama.cpp, 16,000 measured before it."""
        return 2_000 if self.has_llama_server else 16_000

    def kept_tokens(self, num_ctx: int) -> int:
        """Return how many tokens a silent cut leaves: half the window and two since 0.30, the whole window before."""
        return num_ctx // 2 + 2 if self.has_llama_server else num_ctx

    def overflow_error(self, prompt_tokens: int, num_ctx: int) -> str:
        """The error text of the 400 for a prompt that does not fit."""
        if not self.has_llama_server:
            return "the input length exceeds the context length"
        return json.dumps(
            {
                "error": {
                    "code": 400,
                    "message": f"request ({prompt_tokens} tokens) exceeds the available context size "
                    f"({num_ctx} tokens), try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": prompt_tokens,
                    "n_ctx": num_ctx,
                }
            }
        )

    def schema_error(self, schema: object) -> tuple[int, str]:
        """Status and text for a schema with a type that does not exist."""
        if not self.has_llama_server:
            return 500, "invalid JSON schema in format"
        return 400, _nested(f"JSON schema conversion failed:\nUnrecognized schema: {json.dumps(schema)}")

    def repetition_error(self) -> tuple[int, str]:
        """Status and text for a schema with too long a repetition: before 0.30 the runner dies of it."""
        if not self.has_llama_server:
            return 500, CRASH_TEXT
        return 400, _nested("failed to parse grammar")

    def terminated_error(self) -> str:
        """The error text when the process that runs the model dies while it loads."""
        child = "llama-server" if self.has_llama_server else "llama runner"
        return f"{child} process has terminated: exit status 2"

    def missing_error(self, model: str) -> str:
        """The error text for a model that is not there."""
        if self.number >= (0, 12, 0):
            return f"model '{model}' not found"
        return f'model "{model}" not found, try pulling it first'

    def hidden_array(self) -> list[object] | None:
        """Return the stand-in of /api/show for a long array unless `verbose` is set: null, measured at 0.24.0."""
        return None if self.number >= (0, 24, 0) else []


def _nested(message: str) -> str:
    """An error of llama-server's own, as Ollama passes it on inside its error string."""
    return json.dumps({"error": {"code": 400, "message": message, "type": "invalid_request_error"}})


NEWEST = Manner("0.33.0")
MANNERS = (Manner("0.6.8"), Manner("0.12.6"), Manner("0.24.0"), Manner("0.30.11"), NEWEST)
