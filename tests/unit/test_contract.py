"""The contract as other languages get it: their generators' output compiles, and reads as it was meant.

The rules of protoc's Java generator are those of its reference on generated code: the class of a file is its name in
camel case unless an option names it, and each field makes accessors beside its own.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileOptions, MethodOptions

PROTOS = Path(__file__).parents[2] / "proto"
FILES: list[FileDescriptor] = [
    importlib.import_module(str(path.relative_to(PROTOS).with_suffix("")).replace("/", ".") + "_pb2").DESCRIPTOR
    for path in sorted((PROTOS / "abridged").rglob("*.proto"))
]
READS = ("Get", "List", "Read", "Search", "Watch", "Subscribe", "Wait")

_OF_EVERY_MESSAGE = frozenset(
    {
        "getAllFields",
        "getClass",
        "getDefaultInstance",
        "getDefaultInstanceForType",
        "getDescriptor",
        "getDescriptorForType",
        "getInitializationErrorString",
        "getParserForType",
        "getSerializedSize",
        "getUnknownFields",
    }
)
"""Getters that every generated message has by itself."""


def messages(file: FileDescriptor) -> Iterator[Descriptor]:
    waiting = list(file.message_types_by_name.values())
    while waiting:
        message = waiting.pop()
        yield message
        waiting.extend(nested for nested in message.nested_types if not nested.GetOptions().map_entry)


def camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"_|(?<=\d)", name))


def top_level_names(file: FileDescriptor) -> set[str]:
    return {*file.message_types_by_name, *file.enum_types_by_name, *file.services_by_name}


def outer_class(file: FileDescriptor) -> str:
    options: FileOptions = file.GetOptions()
    if options.java_outer_classname:
        return options.java_outer_classname
    name = camel(Path(file.name).stem)
    return f"{name}OuterClass" if name in top_level_names(file) else name


def accessors(field: FieldDescriptor) -> Iterator[str]:
    """Getters that Java's generated message has for a field."""
    name = f"get{camel(field.name)}"
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    if is_map:
        yield from (name, f"{name}Map", f"{name}Count", f"{name}OrDefault", f"{name}OrThrow")
    elif field.is_repeated:
        yield from (name, f"{name}List", f"{name}Count")
    else:
        yield name
    if field.type == FieldDescriptor.TYPE_STRING:
        yield f"{name}Bytes"
    elif field.type == FieldDescriptor.TYPE_ENUM:
        yield from (f"{name}Value", *([f"{name}ValueList"] if field.is_repeated else []))
    elif field.message_type is not None and not is_map:
        yield from (f"{name}OrBuilder", f"{name}Builder", f"{name}BuilderList", f"{name}OrBuilderList")


def java_collisions(message: Descriptor) -> list[str]:
    """Getters that two things of one message would generate."""
    made = Counter(dict.fromkeys(_OF_EVERY_MESSAGE, 1))
    for field in message.fields:
        made.update(set(accessors(field)))
    made.update(f"get{camel(oneof.name)}Case" for oneof in message.oneofs if not _is_optional(oneof))
    return sorted(name for name, count in made.items() if count > 1)


def _is_optional(oneof: Any) -> bool:
    return bool(oneof.name.startswith("_"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: Path(file.name).stem)
def test_every_file_has_a_java_class_of_its_own(file):
    """Messages are classes of the package, and so is the file: one that is named as a message does not compile."""
    taken = {name for other in FILES for name in top_level_names(other)}

    assert file.GetOptions().java_multiple_files
    assert outer_class(file) not in taken
    assert [outer_class(other) for other in FILES].count(outer_class(file)) == 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: Path(file.name).stem)
def test_no_two_fields_generate_the_same_accessor(file):
    """A field `covered` has a `getCoveredCount`, as a field `covered_count` has; Java derives more from a name."""
    collisions = {message.full_name: found for message in messages(file) if (found := java_collisions(message))}

    assert collisions == {}


def test_names_that_collide_in_java_are_found():
    """The control: the names that collided before v1 was frozen, and one of each other kind."""
    kinds = descriptor_pb2.FieldDescriptorProto
    proto = descriptor_pb2.FileDescriptorProto(name="control.proto", package="control", syntax="proto3")
    made = proto.message_type.add(name="Control")
    for number, (name, kind, label) in enumerate(
        [
            ("covered", kinds.TYPE_INT64, kinds.LABEL_REPEATED),
            ("covered_count", kinds.TYPE_INT64, kinds.LABEL_OPTIONAL),
            ("hash", kinds.TYPE_STRING, kinds.LABEL_OPTIONAL),
            ("hash_bytes", kinds.TYPE_BYTES, kinds.LABEL_OPTIONAL),
            ("serialized_size", kinds.TYPE_INT64, kinds.LABEL_OPTIONAL),
        ],
        start=1,
    ):
        made.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)

    collisions = java_collisions(pool.FindMessageTypeByName("control.Control"))

    assert collisions == ["getCoveredCount", "getHashBytes", "getSerializedSize"]


def test_every_duration_and_time_has_its_type():
    """No number whose unit only its name or a comment knows."""
    units = re.compile(r"_(ms|us|ns|s|sec|secs|seconds|millis|micros|nanos|minutes|time|at|duration|timeout)$")
    bare = [
        field.full_name
        for file in FILES
        for message in messages(file)
        for field in message.fields
        if units.search(field.name) and field.message_type is None
    ]

    assert bare == []


def test_every_list_is_repeated():
    """No text holds a list that its reader has to take apart; a call's arguments are JSON text in the chat APIs."""
    joined = {
        field.full_name
        for file in FILES
        for message in messages(file)
        for field in message.fields
        if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated and re.search(r"[^s]s$", field.name)
    }

    assert joined == {"abridged.v1.ToolCall.arguments"}


@pytest.mark.parametrize("file", [f for f in FILES if f.services_by_name], ids=lambda file: Path(file.name).stem)
def test_every_method_says_whether_it_may_be_repeated(file):
    """Reads have no side effects; of the others the option or the comment tells."""
    untold = [
        method.full_name
        for service in file.services_by_name.values()
        for method in service.methods
        if method.name.startswith(READS) and method.GetOptions().idempotency_level == MethodOptions.IDEMPOTENCY_UNKNOWN
    ]

    assert untold == []


def test_the_zero_of_every_enum_is_unspecified():
    """A field that a client of an older contract leaves unset means nothing by accident."""
    zeros = {
        enum.full_name: enum.values_by_number[0].name
        for file in FILES
        for enum in [*file.enum_types_by_name.values(), *(e for m in messages(file) for e in m.enum_types)]
    }

    assert [name for name, zero in zeros.items() if not zero.endswith("_UNSPECIFIED")] == []
