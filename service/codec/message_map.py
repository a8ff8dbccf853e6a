"""Maps a domain type to its contract message, field by field, in both directions.

The tables name the fields whose names or values differ. A field that only one side has fails the import.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

D = TypeVar("D")
P = TypeVar("P", bound=Message)
_REQUIRED: Final = object()


class Form(Protocol):
    """A value's form in the contract."""

    def to_proto(self, value: Any, /) -> Any:
        """The contract's value."""
        ...

    def to_domain(self, value: Any, /) -> Any:
        """The domain's value."""
        ...


class Conversion(NamedTuple):
    """A form by two functions."""

    to_proto: Callable[[Any], Any]
    to_domain: Callable[[Any], Any]


class Field(NamedTuple):
    """A field of a domain type in the contract.

    Attributes:
        name: The contract's name; empty for the same.
        form: The form of the value, or of each item of a repeated field; None if both sides have the same.
        default: The value that an unset field stands for; a message is left unset for it.
    """

    name: str = ""
    form: Form | None = None
    default: Any = _REQUIRED


class MessageMap(Generic[D, P]):
    """A domain type and its contract message. A field's entry is its form, its name in the contract, or a Field.

    `apart` are the fields of either side that the caller converts.
    """

    def __init__(
        self, domain: Callable[..., D], contract: type[P], *, apart: Collection[str] = (), **entries: Form | str | Field
    ) -> None:
        self._domain, self._contract = domain, contract
        contracted: dict[str, Any] = dict(contract.DESCRIPTOR.fields_by_name)
        kind: Any = domain
        names = [f.name for f in fields(kind)] if is_dataclass(kind) else kind._fields
        own = [name for name in names if name not in apart]
        table = {name: _field(name, entries.pop(name, "")) for name in own}
        assert not entries, f"{contract.__name__}: no fields {sorted(entries)}"
        assert {f.name for f in table.values()} == set(contracted) - set(apart), f"{contract.__name__}: other fields"
        self._encoders = [(name, f.name, _encoder(f, contracted[f.name])) for name, f in table.items()]
        self._decoders = [(name, _decoder(f, contracted[f.name])) for name, f in table.items()]

    def to_proto(self, value: D, **apart: Any) -> P:
        values = {name: encode(getattr(value, own)) for own, name, encode in self._encoders}
        return self._contract(**values, **apart)

    def to_domain(self, proto: P, **apart: Any) -> D:
        """The domain's value. Raises KeyError for an enum's value of a newer contract."""
        return self._domain(**self.values(proto), **apart)

    def values(self, proto: P) -> dict[str, Any]:
        """The domain's fields that are not apart."""
        return {name: decode(proto) for name, decode in self._decoders}


def _field(own: str, entry: Form | str | Field) -> Field:
    if isinstance(entry, str):
        return Field(entry or own)
    return entry._replace(name=entry.name or own) if isinstance(entry, Field) else Field(own, entry)


def _encoder(field: Field, contracted: FieldDescriptor) -> Callable[[Any], Any]:
    form, default = field.form, field.default
    if form is None:
        return lambda value: value
    if contracted.is_repeated:
        return lambda values: [form.to_proto(value) for value in values]
    if default is not _REQUIRED and contracted.message_type:
        return lambda value: None if value == default else form.to_proto(value)
    return form.to_proto


def _decoder(field: Field, contracted: FieldDescriptor) -> Callable[[Any], Any]:
    form, default = field.form, field.default
    name = field.name
    value = attrgetter(name)
    if contracted.is_repeated:
        return (lambda p: tuple(value(p))) if form is None else lambda p: tuple(map(form.to_domain, value(p)))
    if form is None:
        return (lambda p: value(p) if p.HasField(name) else None) if contracted.has_presence else value
    if default is _REQUIRED:
        return lambda p: form.to_domain(value(p))
    if contracted.message_type:
        return lambda p: form.to_domain(value(p)) if p.HasField(name) else default
    return lambda p: form.to_domain(value(p)) if value(p) else default
