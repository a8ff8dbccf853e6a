"""The contract's own field rules, enforced on every request."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from abridged.service.api.errors import InvalidRequest

if TYPE_CHECKING:
    from protovalidate import Validator, Violation

KEY_CHARS_SHOWN = 64
ALL_LISTED_FIELDS_MAX = 128
"""Of a request with more fields the first violation is named, not every one: naming one costs what checking twenty
fields does."""


PATTERNS = {
    "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$": "1 to 128 of A-Z a-z 0-9 . _ : @ - that begin with a letter or digit",
    "^[A-Za-z0-9][A-Za-z0-9._:@/+=_-]{0,127}$": (
        "1 to 128 of A-Z a-z 0-9 . _ : @ / + = - that begin with a letter or digit"
    ),
    "^[A-Za-z0-9._/-]{1,63}$": "1 to 63 of A-Z a-z 0-9 . _ / -",
    "^[^\\x00-\\x1f]*$": "without control characters",
}
"""The contract's patterns in words."""

_WORDS = {
    "enum.defined_only": "must be a value that this version knows",
    "enum.not_in": "must be set",
    "repeated.min_items": "must not be empty",
    "required": "must be set",
    "string.min_len": "must be set",
}
"""Where the validator's own words are for a programmer of rules. Of an enumeration the contract forbids the unset value
alone, and the least length of anything in it is one."""


class Validation:
    """Checks requests against the rules that are written into the contract."""

    def check(self, request: Message, *, fields: int) -> None:
        """Raise InvalidRequest that names every field which breaks a rule, or of many `fields` the first."""
        violations = self._validator.collect_violations(request, fail_fast=True)
        if violations and fields <= ALL_LISTED_FIELDS_MAX:
            violations = self._validator.collect_violations(request)
        if violations:
            raise InvalidRequest(tuple((_path(v.proto), _words(v)) for v in violations))

    @cached_property
    def _validator(self) -> Validator:
        from protovalidate import Validator

        return Validator()


def _words(violation: Violation) -> str:
    """Describe the value that the rule wants, without regular expressions or numbers of enumerations."""
    rule, message = violation.proto.rule_id, violation.proto.message
    if rule == "string.pattern":
        text = "must be set" if violation.field_value == "" else f"must be {PATTERNS[violation.rule_value]}"
    else:
        text = _WORDS.get(rule, message or rule)
    return f"its key {text}" if violation.proto.for_key else text


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
