"""Settings of an append that a conversation does not take, because it exists already and keeps its own."""

from __future__ import annotations

from service.client import ConversationSettings

__all__ = ["kept_settings"]

_FIELDS = ("model", "context_length", "reserved_output_tokens", "overhead_tokens")


def kept_settings(asked: ConversationSettings, stands: ConversationSettings) -> str:
    """What was asked for and is otherwise, as a note; empty when nothing is."""
    kept = [
        f"--{field.replace('_', '-')} ({getattr(stands, field) or 'none'})"
        for field in _FIELDS
        if getattr(asked, field) and getattr(asked, field) != getattr(stands, field)
    ]
    kept += [f"--label {key}" for key, value in asked.labels.items() if stands.labels.get(key) != value]
    return f"exists already and keeps its own {', '.join(kept)}" if kept else ""
