"""The fields of a request that a server accepts: learned from its refusals, one step at a time.

Invariant: each step asks for less than the one before, so a request is refused for its fields a few times at most, and
the next ones never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

_LENGTHS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_OPTIONAL = ("repeat_penalty", "stream_options", "temperature", "seed")


class Format(StrEnum):
    """Ways to ask for an answer's form, strictest first. The prompt describes the form too."""

    SCHEMA = "json_schema"
    BARE_SCHEMA = "json_schema without lengths"
    OBJECT = "json_object"
    NONE = "none"


_NEXT = {Format.SCHEMA: Format.BARE_SCHEMA, Format.BARE_SCHEMA: Format.OBJECT, Format.OBJECT: Format.NONE}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields that a request has.

    Attributes:
        format: The way to ask for JSON. OpenAI's strict mode refuses schemas with lengths.
        limit: The field for the longest answer. OpenAI's newer models refuse `max_tokens`, older servers know no other.
        left_out: Fields that the server does not accept.
    """

    format: Format = Format.SCHEMA
    limit: str = "max_tokens"
    left_out: frozenset[str] = frozenset()

    def without(self, fields: frozenset[str]) -> Dialect | None:
        """The next dialect after a refusal that names `fields`; None if there is nothing left to try."""
        if "max_tokens" in fields and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        for name in _OPTIONAL:
            if name in fields and name not in self.left_out:
                return replace(self, left_out=self.left_out | {name})
        if "response_format" in fields and self.format in _NEXT:
            return replace(self, format=_NEXT[self.format])
        return None

    def at_most(self, other: Dialect) -> Dialect:
        """The lesser of both in each field, so that no order of refusals brings one back."""
        formats = tuple(Format)
        return Dialect(
            max(self.format, other.format, key=formats.index),
            other.limit if self.limit == "max_tokens" else self.limit,
            self.left_out | other.left_out,
        )

    def response_format(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The field `response_format` for a schema; None to leave it out."""
        match self.format:
            case Format.SCHEMA:
                return _schema_format(schema)
            case Format.BARE_SCHEMA:
                return _schema_format(_without_lengths(schema))
            case Format.OBJECT:
                return {"type": "json_object"}
            case Format.NONE:
                return None

    @property
    def described(self) -> str:
        """The dialect in a few words, for a log line."""
        left_out = f", without {', '.join(sorted(self.left_out))}" if self.left_out else ""
        return f"response_format {self.format}, {self.limit}{left_out}"


def _schema_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": dict(schema)}}


def _without_lengths(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The inlined schema without limits of length. The names below `properties` are the answer's own."""
    bare = {keyword: value for keyword, value in schema.items() if keyword not in _LENGTHS}
    if "items" in bare:
        bare["items"] = _without_lengths(bare["items"])
    if "properties" in bare:
        bare["properties"] = {name: _without_lengths(child) for name, child in bare["properties"].items()}
    return bare
