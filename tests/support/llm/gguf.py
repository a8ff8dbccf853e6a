"""The metadata of a GGUF file, as far as a tokenizer needs it: the source of Ollama's verbose description."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

_PLAIN = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


def model_info(path: Path) -> dict[str, Any]:
    """Every key of the file's header with its value."""
    with path.open("rb") as file:
        magic, _version, _tensors, entries = struct.unpack("<4sIQQ", file.read(24))
        assert magic == b"GGUF", path
        return dict(_entry(file) for _ in range(entries))


def _entry(file: BinaryIO) -> tuple[str, Any]:
    name = _string(file)
    return name, _value(file, _number(file, "<I"))


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        inner, length = _number(file, "<I"), _number(file, "<Q")
        return [_value(file, inner) for _ in range(length)]
    return _number(file, _PLAIN[kind])


def _string(file: BinaryIO) -> str:
    return file.read(_number(file, "<Q")).decode("utf-8", "replace")


def _number(file: BinaryIO, form: str) -> Any:
    (value,) = struct.unpack(form, file.read(struct.calcsize(form)))
    return value
