"""Loads what only calls and passes need, once the sidecar serves: docs/adr/0063-what-a-start-loads.md."""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module

LATER = (
    "abridged.service.summarizer.by_extraction",
    "abridged.service.summarizer.by_model",
    "abridged.service.bootstrap.own_forms",
    "abridged.service.domain.leaving",
    "abridged.service.extraction.decided",
    "abridged.service.summarizer.finds",
    "abridged.service.summarizer.texts",
)
"""Modules that are imported where they are used."""


def load_the_rest(is_stopping: Callable[[], bool]) -> None:
    """Load LATER, in a thread: whoever needs a module sooner waits for that one alone."""
    for name in LATER:
        if is_stopping():
            return
        import_module(name)
    if gc.get_freeze_count():
        # As all that was loaded before: no collection goes through it.
        gc.freeze()
