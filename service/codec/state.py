"""A conversation's state as bytes, and back: every field of it, by the types that the domain gives them.

The bytes are for one version of the program: store `STATE_CODEC` with them, and do not read those of another one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass, replace
from enum import EnumType
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, TypedDict, get_args, get_origin, get_type_hints

import msgspec

from abridged.service.domain.conversation import Conversation, EndedPass
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.policy import Policy
from abridged.service.domain.sequence import Deferred, Sequence
from abridged.service.domain.window_size import WindowSize, window_size

FOLD: Final = 9
"""Raised when the fold makes another state of the same events, so that states of before are not read."""

_SIZE_BYTES = 4
_COMPRESSION = 1
"""A third of zlib's default time for nine tenths of its gain."""


def state_to_bytes(state: Conversation) -> bytes:
    """The state, as compressed MessagePack: all but its parts, then each of those and the ids of its window's messages.

    Equal for equal states.
    """
    head: dict[str, Any] = state._asdict()
    parts = [_frame(head[name]) for name in _PARTS]
    # Once they are encoded, equal texts take equal memory.
    size = window_size(state.window)
    head |= {name: len(head[name]) for name in _PARTS}
    # A set has no order of its own.
    head |= {name: sorted(value) for name, value in head.items() if isinstance(value, frozenset)}
    ids = [m.message.id for m in state.window]
    return b"".join((_frame((list(head.values()), size)), *parts, _frame(ids)))


def state_from_bytes(encoded: bytes) -> Conversation:
    """The state that `state_to_bytes` wrote with the same STATE_CODEC; what other bytes lead to is not defined.

    The state's window and its history are decoded when they are first looked at.
    """
    first, *later, ids = _frames(encoded)
    head, size = _HEAD.decode(zlib.decompress(first))
    state = Conversation(*map(_immutable, head))
    overrides = msgspec.convert(state.settings.policy, _Overrides)
    parts: dict[str, Any] = {}
    for name, frame in zip(_PARTS, later, strict=True):
        length, load = getattr(state, name), partial(_items_of, name, frame)
        if name == "window":
            origin: Deferred[Any] = KeptWindow(length, load, size, KeptIds(length, ids))
        else:
            origin = Deferred(length, load)
        parts[name] = Sequence.deferred(origin) if length else Sequence()
    return state._replace(settings=replace(state.settings, policy=MappingProxyType(overrides)), **parts)


class KeptWindow(Deferred[MessageAppended]):
    """The window of a state that was kept as bytes.

    Attributes:
        size: Bytes of memory that it takes, once it is decoded.
        ids: The ids of its messages, also of those that have left it since.
    """

    __slots__ = ("ids", "size")

    def __init__(self, length: int, load: Callable[[], list[MessageAppended]], size: WindowSize, ids: KeptIds) -> None:
        super().__init__(length, load)
        self.size = size
        self.ids = ids

    def beside(self) -> KeptWindow:
        return KeptWindow(0, list, WindowSize(), self.ids)


class KeptIds:
    """The ids of some messages, decoded when they are first looked at."""

    __slots__ = ("_encoded", "_ids", "count")

    def __init__(self, count: int, encoded: bytes) -> None:
        self.count = count
        self._encoded = encoded
        self._ids: frozenset[str] | None = None

    def among(self, ids: Iterable[str]) -> frozenset[str]:
        """The ones of `ids` that are among the kept ones."""
        if self._ids is None:
            self._ids = frozenset(_IDS.decode(zlib.decompress(self._encoded)))
        return self._ids.intersection(ids)


def _frame(values: Any) -> bytes:
    compressed = zlib.compress(_ENCODER.encode(values), _COMPRESSION)
    return len(compressed).to_bytes(_SIZE_BYTES, "big") + compressed


def _frames(encoded: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(encoded):
        begin = start + _SIZE_BYTES
        start = begin + int.from_bytes(encoded[start:begin], "big")
        yield encoded[begin:start]


def _items_of(name: str, frame: bytes) -> list[Any]:
    items = _PARTS[name].decode(zlib.decompress(frame))
    return _sharing_policies(items) if name == "passes" else items


def _sharing_policies(passes: list[EndedPass]) -> list[EndedPass]:
    """The passes with one object for equal policies: nearly all have the same."""
    policies: dict[Policy, Policy] = {}
    return [
        replace(ended, plan=replace(ended.plan, policy=policies.setdefault(ended.plan.policy, ended.plan.policy)))
        for ended in passes
    ]


def _immutable(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType(value)
    return Sequence(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """A mapping or a sequence of a type that the library does not know."""
    return dict(value) if isinstance(value, MappingProxyType) else list(value)


def _read_as(kind: Any) -> Any:
    return list[get_args(kind)] if get_origin(kind) is Sequence else kind  # type: ignore[misc]  # made at run time


def _shape(kind: Any, seen: set[Any]) -> Iterator[str]:
    """The type, and once each type that it is made of."""
    yield f"{kind}{sorted(kind) if isinstance(kind, EnumType) else ''}"
    if kind not in seen:
        seen.add(kind)
        if is_dataclass(kind) or hasattr(kind, "_fields"):
            for name, hint in get_type_hints(kind).items():
                yield name
                yield from _shape(hint, seen)
        for argument in get_args(kind):
            yield from _shape(argument, seen)


_TYPES = get_type_hints(Conversation)
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_PARTS = {name: msgspec.msgpack.Decoder(_read_as(_TYPES[name])) for name in ("window", "records", "passes", "revoked")}
"""The fields that grow with a conversation; the head has their lengths instead."""
_HEAD_TYPES: Any = tuple(int if name in _PARTS else _read_as(kind) for name, kind in _TYPES.items())
_HEAD: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(tuple[tuple[_HEAD_TYPES], WindowSize])
_IDS = msgspec.msgpack.Decoder(list[str])
_Overrides = TypedDict("_Overrides", get_type_hints(Policy), total=False)  # type: ignore[misc]  # made at run time
"""Fields of a policy, each of its own type."""

STATE_CODEC: Final = blake2b(f"{FOLD} {[*_PARTS]} {[*_shape(Conversation, set())]}".encode(), digest_size=8).hexdigest()
"""The name of the form of the bytes: it changes with every field, its type and its place, with what lies apart from the
head, and with FOLD."""
