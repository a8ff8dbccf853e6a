"""The event loop that every process of ours runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the loop for asyncio.Runner: uvloop's where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:  # a platform that has none
        return None
    return uvloop.new_event_loop
