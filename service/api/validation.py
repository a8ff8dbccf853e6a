"""The contract's own field rules, enforced on every request."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message
from protovalidate import Validator

from service.api.errors import InvalidRequest

__all__ = ["Validation"]


class Validation:
    """Checks requests against the rules that are written into the contract."""

    def __init__(self) -> None:
        self._validator = Validator()

    def check(self, request: Message) -> None:
        """Raise InvalidRequest that names every field which breaks a rule."""
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
        suffix = "" if subscript is None else f"[{json.dumps(subscript.value, ensure_ascii=False)}]"
        parts.append(f"{element.field_name}{suffix}")
    return ".".join(parts)
