"""A conversation's state as bytes, and back: every field of it, by the types that the domain gives them.

The bytes are for one version of the program: store `STATE_CODEC` with them, and do not read those of another one.
Nothing is left out, because the types are walked; an unknown type fails when this module is imported.
"""

from __future__ import annotations

import json
import zlib
from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from service.domain.conversation import Conversation
from service.domain.policy import Policy
from service.domain.sequence import Sequence

FOLD: Final = 3
"""Raised when the fold makes another state of the same events, so that states of before are not read."""

_Encode = Callable[[Any, "_Policies"], Any]
_Decode = Callable[[Any, list[Policy]], Any]
_Policies = dict[Policy, int]
"""The policies of the passes by their places: nearly all passes have the same one."""

_SIZE_BYTES = 4
_COMPRESSION = 1
"""A third of zlib's default time for nine tenths of its gain."""

_PLAIN = (bool, int, float, str, NoneType)
_EMPTY: Final = MappingProxyType[Any, Any]({})


class _Form(NamedTuple):
    """How values of a type are written; None for those that JSON takes as they are."""

    name: str
    encode: _Encode | None = None
    decode: _Decode | None = None


def state_to_bytes(state: Conversation) -> bytes:
    """The state, as JSON in UTF-8, compressed: all but its history, then each part of that."""
    policies: _Policies = {}
    history = [getattr(state, name) for name in _HISTORY]
    later = [_encoded(form, items, policies) for form, items in zip(_HISTORY.values(), history, strict=True)]
    without: dict[str, Any] = dict.fromkeys(_HISTORY, Sequence())
    encoded = _encoded(_STATE, state._replace(**without), policies)
    plain = [_encoded(_POLICY, policy, policies) for policy in policies]
    return b"".join(map(_frame, ((plain, encoded, [len(items) for items in history]), *later)))


def state_from_bytes(encoded: bytes) -> Conversation:
    """The state that `state_to_bytes` wrote with the same STATE_CODEC; what other bytes lead to is not defined.

    Its history is decoded when it is first looked at: a window is made without it.
    """
    first, *later = _frames(encoded)
    plain, values, lengths = _read(first)
    policies = [_decoded(_POLICY, policy, []) for policy in plain]
    state: Conversation = _decoded(_STATE, values, policies)
    history: dict[str, Any] = {
        name: Sequence.deferred(length, partial(_items_of, form, frame, policies)) if length else Sequence()
        for (name, form), length, frame in zip(_HISTORY.items(), lengths, later, strict=True)
    }
    return state._replace(**history)


def _frame(values: Any) -> bytes:
    compressed = zlib.compress(json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode(), _COMPRESSION)
    return len(compressed).to_bytes(_SIZE_BYTES, "big") + compressed


def _frames(encoded: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(encoded):
        begin = start + _SIZE_BYTES
        start = begin + int.from_bytes(encoded[start:begin], "big")
        yield encoded[begin:start]


def _read(frame: bytes) -> Any:
    return json.loads(zlib.decompress(frame))


def _items_of(form: _Form, frame: bytes, policies: list[Policy]) -> list[Any]:
    return list(_decoded(form, _read(frame), policies))


def _encoded(form: _Form, value: Any, policies: _Policies) -> Any:
    return value if form.encode is None else form.encode(value, policies)


def _decoded(form: _Form, value: Any, policies: list[Policy]) -> Any:
    return value if form.decode is None else form.decode(value, policies)


def _form(kind: Any) -> _Form:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Policy:
        return _Form("Policy", lambda value, policies: policies.setdefault(value, len(policies)), _shared_policy)
    if kind in _PLAIN:
        return _Form(kind.__name__)
    if origin in (Union, UnionType):
        return _optional(*[_form(a) for a in arguments if a is not NoneType])
    if origin is tuple and arguments[-1] is Ellipsis:
        return _items(_form(arguments[0]), tuple, list)
    if origin is Sequence:
        return _items(_form(arguments[0]), Sequence, list)
    if origin is frozenset:
        return _items(_form(arguments[0]), frozenset, sorted)
    if kind == abc.Mapping[str, Any]:
        return _overrides()
    if origin is abc.Mapping:
        return _mapping(*map(_form, arguments))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        members = {member.value: member for member in kind}
        return _Form(f"{kind.__name__}{sorted(members)}", None, lambda value, _: members[value])
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return _fields_of(kind)
    raise TypeError(f"a state has no form for {kind}")


def _shared_policy(place: int, policies: list[Policy]) -> Policy:
    return policies[place]


def _optional(form: _Form) -> _Form:
    encode, decode = form.encode, form.decode
    return _Form(
        f"{form.name}?",
        encode and (lambda value, policies: None if value is None else encode(value, policies)),
        decode and (lambda value, policies: None if value is None else decode(value, policies)),
    )


def _items(form: _Form, made: Callable[[Any], Any], listed: Callable[[Any], Any]) -> _Form:
    encode, decode = form.encode, form.decode
    return _Form(
        f"{made.__name__}[{form.name}]",
        (lambda value, _: listed(value))
        if encode is None
        else (lambda value, policies: [encode(item, policies) for item in listed(value)]),
        (lambda value, _: made(value))
        if decode is None
        else (lambda value, policies: made([decode(item, policies) for item in value])),
    )


def _mapping(key: _Form, item: _Form) -> _Form:
    """As pairs, because JSON has no keys but texts."""

    def decode(value: Any, policies: list[Policy]) -> Any:
        pairs = {_decoded(key, k, policies): _decoded(item, v, policies) for k, v in value}
        return MappingProxyType(pairs) if pairs else _EMPTY

    return _Form(
        f"mapping[{key.name},{item.name}]",
        lambda value, policies: [[_encoded(key, k, policies), _encoded(item, v, policies)] for k, v in value.items()],
        decode,
    )


def _overrides() -> _Form:
    """Fields of a policy, each in the form of its own type."""
    forms = {name: _form(kind) for name, kind in get_type_hints(Policy).items()}

    def decode(value: Any, policies: list[Policy]) -> Any:
        return MappingProxyType({name: _decoded(forms[name], item, policies) for name, item in value.items()})

    return _Form(
        "overrides",
        lambda value, policies: {name: _encoded(forms[name], item, policies) for name, item in value.items()},
        decode,
    )


def _fields_of(kind: Any) -> _Form:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    forms = [_form(hints[name]) for name in names]
    encoded = [(place, form.encode) for place, form in enumerate(forms) if form.encode is not None]
    decoded = [(place, form.decode) for place, form in enumerate(forms) if form.decode is not None]
    listed: Callable[[Any], list[Any]] = (
        (lambda value: [getattr(value, name) for name in names]) if is_dataclass(kind) else list
    )

    def encode(value: Any, policies: _Policies) -> Any:
        values = listed(value)
        for place, convert in encoded:
            values[place] = convert(values[place], policies)
        return values

    def decode(values: Any, policies: list[Policy]) -> Any:
        for place, convert in decoded:
            values[place] = convert(values[place], policies)
        return kind(*values)

    shape = ",".join(f"{name}:{form.name}" for name, form in zip(names, forms, strict=True))
    return _Form(f"{kind.__name__}({shape})", encode, decode)


_STATE = _form(Conversation)
_POLICY = _fields_of(Policy)
_HISTORY = {name: _form(get_type_hints(Conversation)[name]) for name in ("records", "passes", "revoked")}
"""The fields that grow with a conversation's length."""

STATE_CODEC: Final = blake2b(f"{FOLD} {_STATE.name} {_POLICY.name}".encode(), digest_size=8).hexdigest()
"""Which states the bytes are of: it changes with every field, its type and its place, and with FOLD."""
