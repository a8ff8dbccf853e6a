"""The field rules of the contract, read from its descriptors as a validator reads them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.unknown_fields import UnknownFieldSet

_PROTO = Path(__file__).parents[2] / "proto"
_FIELD_RULES = 1159
"""The extension of FieldOptions, in proto/buf/validate/validate.proto."""


def rules_of(field: FieldDescriptor) -> Any:
    """The field's rules, a buf.validate.FieldRules. The generated code keeps them as options that it does not know."""
    (data,) = [one.data for one in _unknown(field) if one.field_number == _FIELD_RULES]
    return _rules_type().FromString(data)


def _unknown(field: FieldDescriptor) -> Iterator[Any]:
    found: Any = UnknownFieldSet(field.GetOptions())
    return iter(found)


@cache
def _rules_type() -> Any:
    with tempfile.NamedTemporaryFile() as made:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{_PROTO}", "--include_imports"]
        subprocess.run([*command, f"--descriptor_set_out={made.name}", "buf/validate/validate.proto"], check=True)
        files = FileDescriptorSet.FromString(Path(made.name).read_bytes()).file
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("buf.validate.FieldRules"))
