"""Settings of an append that a conversation does not adopt, because it already exists and keeps its own."""

from __future__ import annotations

from service.client import ConversationSettings

__all__ = ["kept_settings"]

_FIELDS = ("model", "context_length", "reserved_output_tokens", "overhead_tokens")


def kept_settings(asked: ConversationSettings, stands: ConversationSettings) -> str:
    """A note on which settings in `asked` differ from those the conversation has, `stands`; empty if none do."""
    kept = [
        f"--{field.replace('_', '-')} ({getattr(stands, field) or 'none'})"
        for field in _FIELDS
        if getattr(asked, field) and getattr(asked, field) != getattr(stands, field)
    ]
    kept += [f"--label {key}" for key, value in asked.labels.items() if stands.labels.get(key) != value]
    return f"already exists and keeps its own {', '.join(kept)}" if kept else ""
