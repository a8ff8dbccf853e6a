"""Refusals of an Ollama server before it computes anything: of hosts, bodies, names, options and formats."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from typing import Any

from tests.support.ollama_behaviour import Refusal, json_error
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_manner import Manner

_NAME = re.compile(
    r"([a-z0-9][\w.-]*(:\d+)?/)?([a-z0-9_][\w.-]*/)?[a-z0-9_][\w.-]{0,79}(:[\w][\w.-]{0,79})?", re.IGNORECASE
)
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal")
_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}


def host_refusal(header: str) -> Refusal | None:
    """An empty 403 for a Host header of another name: the guard of a server on loopback against rebinding."""
    host = header.rpartition(":")[0] if re.search(r":\d+$", header) else header
    host = host.strip("[]").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        known = host in {"", "localhost", socket.gethostname().lower()} or host.endswith(_LOCAL_SUFFIXES)
    else:
        known = address.is_loopback or address.is_private
    return None if known else Refusal(403, b"", "")


def body_refusal(body: bytes) -> Refusal | None:
    """A 400 for a body that is missing, is no JSON object, or names no model or an impossible one."""
    if not body:
        return json_error(400, "missing request body")
    try:
        parsed = json.loads(body)
    except ValueError as error:
        at = getattr(error, "pos", 0)
        rest = body.decode("utf-8", "replace")[at : at + 1]
        return json_error(
            400, f"invalid character '{rest}' looking for beginning of value" if rest else "unexpected EOF"
        )
    if not isinstance(parsed, dict):
        return json_error(400, "json: cannot unmarshal value into Go value of type api.ChatRequest")
    name = str(parsed.get("model") or parsed.get("name") or "")
    if not name:
        return json_error(400, "model is required")
    return None if _NAME.fullmatch(name) else json_error(400, "invalid model name")


def request_refusal(model: FakeModel, body: dict[str, Any], manner: Manner) -> Refusal | None:
    """Return a refusal from before the slot: of the ability to think, the kind of `format`, `num_ctx`'s type."""
    if body.get("think") and not model.thinks and manner.knows_think:
        return json_error(400, f'"{model.name}" does not support thinking')
    asked = body.get("format")
    if asked not in (None, "", "json") and not isinstance(asked, dict):
        quoted = json.dumps(json.dumps(asked))
        return json_error(500, f'invalid format: {quoted}; expected "json" or a valid JSON Schema object')
    if not isinstance(body.get("options", {}).get("num_ctx", 0), int):
        return json_error(500, 'option "num_ctx" must be of type integer')
    return None


def format_refusal(schema: Any, manner: Manner) -> Refusal | None:
    """Return the refusal of a schema from which no grammar can be made."""
    if not isinstance(schema, dict):
        return None
    if not _is_schema(schema):
        return json_error(*manner.schema_error(schema))
    if _longest(schema) >= manner.repetitions_refused:
        return json_error(*manner.repetition_error())
    return None


def _is_schema(schema: dict[str, Any]) -> bool:
    kind = schema.get("type", "object")
    kinds = kind if isinstance(kind, list) else [kind]
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return set(kinds) <= _TYPES and all(_is_schema(part) for part in inner if isinstance(part, dict))


def _longest(schema: Any) -> int:
    """The largest `maxLength` or `maxItems` anywhere in a schema."""
    if not isinstance(schema, dict):
        return 0
    own = [schema[name] for name in ("maxLength", "maxItems") if isinstance(schema.get(name), int)]
    inner = [*schema.get("properties", {}).values(), schema.get("items")]
    return max([*own, *(_longest(part) for part in inner)], default=0)
