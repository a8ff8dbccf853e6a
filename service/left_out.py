"""Leaves out what libraries import for uses that the sidecar has none of: docs/adr/0063-what-a-start-loads.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

HTTPX_COMMAND = "httpx._main"
"""The command line of httpx, which loads everything that draws on a terminal."""

_changing = Lock()


@contextmanager
def left_out(name: str) -> Iterator[None]:
    """Have the import of the module `name` fail in this process until the context ends, unless it is loaded.

    Importers must do without it: this is for libraries that try to. The context of the first of several threads
    decides.
    """
    modules: dict[str, Any] = sys.modules
    with _changing:
        is_first = name not in modules
        if is_first:
            modules[name] = None
    try:
        yield
    finally:
        if is_first:
            with _changing:
                del modules[name]
