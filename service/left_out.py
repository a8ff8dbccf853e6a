"""Leaves out what libraries import for uses that the sidecar has none of: docs/adr/0063-what-a-start-loads.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def left_out(name: str) -> Iterator[None]:
    """Have the import of the module `name` fail in this process until the context ends, unless it is loaded.

    Whoever imports it must do without: this is for libraries that try to.
    """
    modules: dict[str, Any] = sys.modules
    is_out = modules.setdefault(name, None) is None
    try:
        yield
    finally:
        if is_out:
            del modules[name]
