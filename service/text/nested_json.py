"""Parses JSON from clients and tools, only as deep as any thread can write it again.

The depth to which the standard library parses and writes depends on the stack that is left, so the same text could
parse on the event loop and fail in a thread. A fixed bound makes it a property of the text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

DEPTH_MAX: Final = 200
"""Limit on brackets open at a time, including those in strings. People and programs nest a few."""

KEY_RE: Final = re.compile(r'"\w{1,80}"\s{0,4}:')
"""A key of an object."""

_BRACKET_RE: Final = re.compile(r"[][{}]")
_STRING_RE: Final = re.compile(r'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
"""A string, also one without an end: to look for its end from each quote in it would take time with the square of its
length."""


def parsed(text: str, **options: Any) -> Any:
    """The value of a JSON text, with the options of `json.loads`. Raises ValueError if it is not JSON or too deep."""
    require_depth(text)
    return json.loads(text, **options)


def begins_as_data(text: str) -> bool:
    """Return whether a text begins like a JSON object or list."""
    return text.lstrip()[:1] in ("{", "[")


def data_of(text: str, **options: Any) -> Any:
    """The value of a text that is a JSON object or list, with the options of `json.loads`; None of any other text."""
    if not begins_as_data(text):
        return None
    try:
        return parsed(text, **options)
    except (ValueError, RecursionError):
        return None


def require_depth(text: str) -> None:
    """Raise ValueError if more than DEPTH_MAX brackets are open at a time."""
    depth = 0
    for bracket in _BRACKET_RE.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEPTH_MAX:
            raise ValueError("too deep")


def strictly_parsed(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for NaN and infinities too, which are not JSON, though Python reads
    them and makes them of large numbers. Brackets in strings do not count."""
    try:
        require_depth(outline(text))
        return json.loads(text, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("too deep") from None


def outline(text: str) -> str:
    """A JSON text with its strings empty."""
    return _STRING_RE.sub('""', text)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number in JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refused(number)
