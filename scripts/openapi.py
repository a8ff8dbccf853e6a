"""Write the contract's unary calls as an OpenAPI page, in Connect's JSON: `openapi.py DESCRIPTORS`, to standard output.

DESCRIPTORS is a descriptor set with imports and comments. Field rules of buf.validate become limits of JSON Schema
where it has the same ones; the others are in the comments. Streams frame their messages, which OpenAPI cannot say, so
they are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet, MethodOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "abridged.v1"
_JSON = "application/json"
_WELL_KNOWN: dict[str, dict[str, Any]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Any": {"type": "object", "properties": {"@type": {"type": "string"}}, "required": ["@type"]},
}
"""https://protobuf.dev/programming-guides/json/"""

_SCALARS: dict[int, dict[str, Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0},
    FieldDescriptor.CPPTYPE_INT64: {"type": ["string", "integer"], "format": "int64"},
    FieldDescriptor.CPPTYPE_UINT64: {"type": ["string", "integer"], "format": "uint64"},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.CPPTYPE_FLOAT: {"type": "number", "format": "float"},
}
_LIMITS = {
    "max_len": "maxLength",
    "pattern": "pattern",
    "gte": "minimum",
    "lte": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "min_items": "minItems",
    "max_items": "maxItems",
    "max_pairs": "maxProperties",
}
"""Rules that JSON Schema has too. The unset value of a field passes most rules, so `min_len` is not among them."""

_ERROR = {
    "type": "object",
    "description": "An error of Connect; `details[0].debug.reason` is the name of an ErrorReason without its prefix.",
    "properties": {
        "code": {"type": "string"},
        "message": {"type": "string"},
        "details": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"type": {"type": "string"}, "value": {"type": "string"}, "debug": {"type": "object"}},
            },
        },
    },
    "required": ["code"],
}


class Page:
    """The page of one set of descriptors."""

    def __init__(self, files: FileDescriptorSet) -> None:
        self._pool = DescriptorPool()
        for file in files.file:
            self._pool.Add(file)
        # The options of generated code do not know the rules; those of the set itself do.
        self._options = GetMessageClass(self._pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
        self._comments = {
            name: text for file in files.file if file.package == PACKAGE for name, text in _comments(file)
        }
        self._files = [self._pool.FindFileByName(file.name) for file in files.file if file.package == PACKAGE]
        self._schemas: dict[str, dict[str, Any]] = {"connect.error": _ERROR}

    def __call__(self, version: str) -> dict[str, Any]:
        """The page, as an object of JSON."""
        paths = {path: operation for file in self._files for path, operation in self._paths(file)}
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "abridged",
                "version": version,
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "http://127.0.0.1:7421"}],
            "security": [{}, {"token": []}],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(self._schemas.items())),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }

    def _paths(self, file: FileDescriptor) -> Iterator[tuple[str, dict[str, Any]]]:
        for service in file.services_by_name.values():
            for method in service.methods:
                if method.client_streaming or method.server_streaming:
                    continue
                operation: dict[str, Any] = {
                    "operationId": f"{service.name}_{method.name}",
                    "tags": [service.name],
                    **self._described(method.full_name),
                    "requestBody": {"required": True, **_content(self._reference(method.input_type))},
                    "responses": {
                        "200": {"description": "OK", **_content(self._reference(method.output_type))},
                        "default": {"description": "An error", **_content(_reference("connect.error"))},
                    },
                }
                if method.GetOptions().idempotency_level != MethodOptions.IDEMPOTENCY_UNKNOWN:
                    operation["x-idempotent"] = True
                yield f"/{service.full_name}/{method.name}", {"post": operation}

    def _reference(self, of: Descriptor | EnumDescriptor) -> dict[str, Any]:
        if of.full_name in _WELL_KNOWN:
            return dict(_WELL_KNOWN[of.full_name])
        if of.full_name not in self._schemas:
            self._schemas[of.full_name] = {}
            made = self._object(of) if isinstance(of, Descriptor) else self._enum(of)
            self._schemas[of.full_name] = made
        return _reference(of.full_name)

    def _object(self, message: Descriptor) -> dict[str, Any]:
        fields = {field.json_name: self._field(field) for field in message.fields}
        return {"type": "object", **self._described(message.full_name), "properties": fields}

    def _enum(self, enum: EnumDescriptor) -> dict[str, Any]:
        values = [f"{value.name}: {self._comments.get(f'{enum.full_name}.{value.name}', '')}" for value in enum.values]
        text = "\n".join((self._comments.get(enum.full_name, ""), "", *values)).strip()
        return {"type": "string", "description": text, "enum": [value.name for value in enum.values]}

    def _field(self, field: FieldDescriptor) -> dict[str, Any]:
        made = self._type(field)
        for rules in self._rules(field):
            limits = ((_LIMITS.get(rule.name), value) for rule, value in rules.ListFields())
            made |= {name: value for name, value in limits if name and not isinstance(value, Message)}
        oneof = field.containing_oneof
        text = self._comments.get(field.full_name, "")
        if oneof is not None and len(oneof.fields) > 1:
            others = " or ".join(each.json_name for each in oneof.fields if each is not field)
            text = f"{text} Not together with {others}.".strip()
        return made | ({"description": text} if text else {})

    def _type(self, field: FieldDescriptor) -> dict[str, Any]:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            return {"type": "object", "additionalProperties": self._value(kind.fields_by_name["value"])}
        return {"type": "array", "items": self._value(field)} if field.is_repeated else self._value(field)

    def _value(self, field: FieldDescriptor) -> dict[str, Any]:
        if (kind := field.message_type or field.enum_type) is not None:
            return self._reference(kind)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return {"type": "string", "contentEncoding": "base64"}
        return dict(_SCALARS.get(field.cpp_type, {"type": "string"}))

    def _rules(self, field: FieldDescriptor) -> Iterator[Message]:
        """The rules of a field's type."""
        options = self._options.FromString(field.GetOptions().SerializeToString())
        for option, rules in options.ListFields():
            if option.full_name == "buf.validate.field":
                yield from (value for _, value in rules.ListFields() if isinstance(value, Message))

    def _described(self, name: str) -> dict[str, str]:
        return {"description": self._comments[name]} if name in self._comments else {}


def _comments(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """The comment before each definition of a file, by the names that lead to it."""
    for location in file.source_code_info.location:
        if not location.leading_comments or len(location.path) % 2:
            continue
        at: Any = file
        names = [file.package]
        for number, index in zip(location.path[::2], location.path[1::2], strict=True):
            at = getattr(at, at.DESCRIPTOR.fields_by_number[number].name)[index]
            names.append(at.name)
        yield ".".join(names), " ".join(location.leading_comments.split())


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {_JSON: {"schema": schema}}}


if __name__ == "__main__":
    given = FileDescriptorSet.FromString(Path(sys.argv[1]).read_bytes())
    print(json.dumps(Page(given)("v1"), indent=1, ensure_ascii=False))
