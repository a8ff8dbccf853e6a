"""The contract's own field rules, enforced on every request."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message
from protovalidate import Validator

from service.api.errors import InvalidRequest

__all__ = ["Validation"]

KEY_CHARS_SHOWN = 64
ALL_LISTED_FIELDS_MAX = 128
"""Of a request with more fields the first violation is told, not every one: telling one costs what checking twenty
fields does."""


class Validation:
    """Checks requests against the rules that are written into the contract."""

    def __init__(self) -> None:
        self._validator = Validator()

    def check(self, request: Message, *, fields: int) -> None:
        """Raise InvalidRequest that names every field which breaks a rule, or of many `fields` the first."""
        violations = self._validator.collect_violations(request, fail_fast=True)
        if violations and fields <= ALL_LISTED_FIELDS_MAX:
            violations = self._validator.collect_violations(request)
        if violations:
            raise InvalidRequest(tuple((_path(v.proto), v.proto.message or v.proto.rule_id) for v in violations))


def _path(violation: Any) -> str:
    """`messages[2].role`, as BadRequest has it."""
    if not violation.field:
        return ""
    parts: list[str] = []
    for element in violation.field.elements:
        subscript = element.subscript
        parts.append(f"{element.field_name}{'' if subscript is None else _subscript(subscript.value)}")
    return ".".join(parts)


def _subscript(value: object) -> str:
    """`[2]` or `["key"]`; a key is the caller's and may be of any length."""
    if isinstance(value, str) and len(value) > KEY_CHARS_SHOWN:
        value = f"{value[:KEY_CHARS_SHOWN]}..."
    return f"[{json.dumps(value, ensure_ascii=True)}]"
