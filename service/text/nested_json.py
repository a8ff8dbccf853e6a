"""Parses JSON from clients and tools, only as deep as any thread can write it again.

How deep the standard library parses and writes depends on the stack that is left, so the same text could parse on the
event loop and fail in a thread. A fixed bound makes it a property of the text.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

DEPTH_MAX: Final = 200
"""Limit on brackets open at a time, including those in strings. People and programs nest a few."""

_BRACKET_RE: Final = re.compile(r"[][{}]")


def parsed(text: str, **options: Any) -> Any:
    """The value of a JSON text, with the options of `json.loads`. Raises ValueError if it is not JSON or too deep."""
    depth = 0
    for bracket in _BRACKET_RE.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEPTH_MAX:
            raise ValueError("too deep")
    return json.loads(text, **options)
