"""How Ollama's versions differ on the wire: texts, fields, and what happens to a prompt that is too long.

Sources: its release notes and its behaviour at the versions named; each property says since when.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["MANNERS", "NEWEST", "Manner"]


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

    def kept_tokens(self, num_ctx: int) -> int:
        """How many tokens a silent cut leaves: half the window and two since 0.30, the whole window before."""
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
        """What /api/show puts in place of a long array unless `verbose` is set."""
        return None if self.has_llama_server else []


NEWEST = Manner("0.33.0")
MANNERS = (Manner("0.6.8"), Manner("0.12.6"), Manner("0.24.0"), Manner("0.30.11"), NEWEST)
