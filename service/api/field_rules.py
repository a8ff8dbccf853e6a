"""The contract's field rules, compiled from the options of its descriptors: docs/adr/0079-rules-are-compiled.md.

Names, numbers and meaning of the rules are protovalidate's, as far as proto/buf/validate/validate.proto declares them.
The compilation of a message's rules raises KeyError for a rule that is not known here.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet

KEY_CHARS_SHOWN = 64
NANOS_PER_S = 1_000_000_000

PATTERNS = {
    "^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$": "1 to 128 of A-Z a-z 0-9 . _ : @ - that begin with a letter or digit",
    "^[A-Za-z0-9][A-Za-z0-9._:@/+=_-]{0,127}$": (
        "1 to 128 of A-Z a-z 0-9 . _ : @ / + = - that begin with a letter or digit"
    ),
    "^[A-Za-z0-9._/-]{1,63}$": "1 to 63 of A-Z a-z 0-9 . _ / -",
    "^[^\\x00-\\x1f]*$": "without control characters",
}
"""The contract's patterns in words."""

MUST_BE_SET: Final = "must be set"

_EXTENSION: Final = 1159
"""The number of the option that holds the rules of a field or a oneof."""

_REPEATED, _MAP, _REQUIRED, _IGNORE = 18, 19, 25, 27
"""The numbers of FieldRules; those of the rules of single values are in _RULES_OF."""

_ONEOF_REQUIRED = 1
"""The number of OneofRules."""

_MIN_ITEMS, _MAX_ITEMS, _ITEMS = 1, 2, 4
"""The numbers of RepeatedRules."""

_MAX_PAIRS, _KEYS, _VALUES = 2, 4, 5
"""The numbers of MapRules."""

_MIN_LEN, _MAX_LEN, _PATTERN = 2, 3, 6
"""The numbers of StringRules."""

_DEFINED_ONLY, _NOT_IN = 2, 4
"""The numbers of EnumRules."""

Violation = tuple[str, str]
"""The path of a field, as BadRequest has it, and what it must be."""

_Options = Mapping[int, Sequence[Any]]
"""The values of an encoded message by field number, undecoded."""

_Comparison = tuple[Callable[[Any, Any], bool], str]
"""A comparison, and its words."""

_RulesOf = Callable[[FieldDescriptor, _Options], "Iterator[_Rule]"]
"""Makes the rules of a single value."""


class _Rule(NamedTuple):
    holds: Callable[[Any], object]
    text: Callable[[Any], str]


class _Checks(NamedTuple):
    """The checks of a value: `holds` is quick, and `broken` yields the violations of the value at a path."""

    holds: Callable[[Any], object]
    broken: Callable[[Any, str], Iterator[Violation]]


class _Field(NamedTuple):
    """A field that has checks; `must_be_set` says that its absence breaks a rule."""

    name: str
    number: int
    has_presence: bool
    checks: _Checks
    must_be_set: bool


class MessageRules:
    """The rules of one message type, with those of the messages in it."""

    def __init__(self, descriptor: Descriptor, known: dict[str, MessageRules]) -> None:
        """`known` has the rules of other types by name, and gets the rules that this type needs."""
        known[descriptor.full_name] = self
        fields = (_field(field, known) for field in descriptor.fields)
        self._fields = [field for field in fields if field is not None]
        self._holds = {field.number: field.checks.holds for field in self._fields}
        self._needed = [field for field in self._fields if field.must_be_set]
        self._oneofs = [o.name for o in descriptor.oneofs if _option(_rules(o), _ONEOF_REQUIRED, default=0)]

    @property
    def is_empty(self) -> bool:
        """True if the type has no rule."""
        return not self._fields and not self._oneofs

    def holds(self, message: Message) -> bool:
        """Return whether the message breaks no rule."""
        checks = self._holds
        for field, value in message.ListFields():
            holds = checks.get(field.number)
            if holds is not None and not holds(value):
                return False
        for needed in self._needed:
            if not (message.HasField(needed.name) if needed.has_presence else getattr(message, needed.name)):
                return False
        return all(message.WhichOneof(name) for name in self._oneofs)

    def broken(self, message: Any, path: str = "") -> Iterator[Violation]:
        """Yield the violations of the message: of its oneofs, then of its fields, in their order."""
        prefix = f"{path}." if path else ""
        for name in self._oneofs:
            if not message.WhichOneof(name):
                yield f"{prefix}{name}", MUST_BE_SET
        for field in self._fields:
            if not field.has_presence or message.HasField(field.name):
                yield from field.checks.broken(getattr(message, field.name), f"{prefix}{field.name}")
            elif field.must_be_set:
                yield f"{prefix}{field.name}", MUST_BE_SET


def _field(field: FieldDescriptor, known: dict[str, MessageRules]) -> _Field | None:
    options = _rules(field)
    required = bool(_option(options, _REQUIRED, default=0))
    assert field.has_presence or not required, f"{field.full_name} has no presence, so that it cannot be required"
    checks = _checks(field, options, known)
    if checks is None and not required:
        return None
    checks = checks or _of_value(())
    lacks = False if field.has_presence else not checks.holds([] if field.is_repeated else field.default_value)
    return _Field(field.name, field.number, field.has_presence, checks, required or lacks)


def _checks(field: FieldDescriptor, options: _Options, known: dict[str, MessageRules]) -> _Checks | None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _of_map(field.message_type, options)
    inside = _of_message(field.message_type, known) if field.message_type is not None else None
    if not field.is_repeated:
        return _joined(_of_scalar(field, options), inside)
    own = _fields(_option(options, _REPEATED, default=b""))
    items = _joined(_of_scalar(field, _fields(_option(own, _ITEMS, default=b""))), inside)
    kinds = {_MIN_ITEMS: _fewest_items, _MAX_ITEMS: _most_items}
    bounds = [kinds[name](limit) for name, (limit,) in own.items() if name != _ITEMS]
    return _of_list(bounds, items) if bounds or items else None


def _of_message(descriptor: Descriptor, known: dict[str, MessageRules]) -> _Checks | None:
    rules = known.get(descriptor.full_name) or MessageRules(descriptor, known)
    return None if rules.is_empty else _Checks(rules.holds, rules.broken)


def _of_scalar(field: FieldDescriptor, options: _Options) -> _Checks | None:
    rules = [
        rule
        for kind, (data,) in options.items()
        if kind not in (_REQUIRED, _IGNORE)
        for rule in _RULES_OF[kind](field, _fields(data))
    ]
    if not rules:
        return None
    return _of_value(rules, ignores_zero=bool(_option(options, _IGNORE, default=0)))


def _of_value(rules: Sequence[_Rule], *, ignores_zero: bool = False) -> _Checks:
    tests = [rule.holds for rule in rules]

    def holds(value: Any) -> bool:
        if ignores_zero and not value:
            return True
        for test in tests:  # noqa: SIM110 - a generator costs more than the tests
            if not test(value):
                return False
        return True

    def broken(value: Any, path: str) -> Iterator[Violation]:
        if not (ignores_zero and not value):
            yield from ((path, rule.text(value)) for rule in rules if not rule.holds(value))

    return _Checks(tests[0] if len(tests) == 1 and not ignores_zero else holds, broken)


def _joined(first: _Checks | None, second: _Checks | None) -> _Checks | None:
    if first is None or second is None:
        return first or second

    def broken(value: Any, path: str) -> Iterator[Violation]:
        yield from first.broken(value, path)
        yield from second.broken(value, path)

    return _Checks(lambda value: first.holds(value) and second.holds(value), broken)


def _of_list(bounds: Sequence[_Rule], items: _Checks | None) -> _Checks:
    def holds(values: Any) -> bool:
        return all(bound.holds(values) for bound in bounds) and (items is None or all(map(items.holds, values)))

    def broken(values: Any, path: str) -> Iterator[Violation]:
        yield from ((path, bound.text(values)) for bound in bounds if not bound.holds(values))
        if items is not None:
            for place, value in enumerate(values):
                yield from items.broken(value, f"{path}[{place}]")

    return _Checks(holds, broken)


def _of_map(entry: Descriptor, options: _Options) -> _Checks | None:
    own = _fields(_option(options, _MAP, default=b""))
    if not own:
        return None
    keys = _of_scalar(entry.fields_by_name["key"], _fields(_option(own, _KEYS, default=b""))) or _of_value(())
    values = _of_scalar(entry.fields_by_name["value"], _fields(_option(own, _VALUES, default=b""))) or _of_value(())
    bounds = [{_MAX_PAIRS: _most_pairs}[name](limit) for name, (limit,) in own.items() if name not in (_KEYS, _VALUES)]

    def holds(pairs: Any) -> bool:
        return all(bound.holds(pairs) for bound in bounds) and all(
            keys.holds(key) and values.holds(pairs[key]) for key in pairs
        )

    def broken(pairs: Any, path: str) -> Iterator[Violation]:
        yield from ((path, bound.text(pairs)) for bound in bounds if not bound.holds(pairs))
        for key, value in sorted(pairs.items()):
            at = f"{path}[{_shown(key)}]"
            yield from ((at, f"its key {text}") for _, text in keys.broken(key, at))
            yield from values.broken(value, at)

    return _Checks(holds, broken)


def _fewest_items(limit: int) -> _Rule:
    assert limit == 1, "the text is of one"
    return _Rule(bool, lambda _: "must not be empty")


def _most_items(limit: int) -> _Rule:
    return _Rule(lambda items: len(items) <= limit, lambda _: f"must contain no more than {limit} item(s)")


def _most_pairs(limit: int) -> _Rule:
    return _Rule(lambda pairs: len(pairs) <= limit, lambda _: f"map must be at most {limit} entries")


def _string_rules(_field: FieldDescriptor, own: _Options) -> Iterator[_Rule]:
    kinds: dict[int, Callable[[Any], _Rule]] = {
        _MIN_LEN: _least_length,
        _MAX_LEN: _most_length,
        _PATTERN: _pattern,
    }
    for name, (limit,) in own.items():
        yield kinds[name](limit)


def _least_length(limit: int) -> _Rule:
    assert limit == 1, "the text is of one"
    return _Rule(bool, lambda _: MUST_BE_SET)


def _most_length(limit: int) -> _Rule:
    return _Rule(lambda text: len(text) <= limit, lambda _: f"must be at most {limit} characters")


def _pattern(encoded: bytes) -> _Rule:
    pattern = encoded.decode()
    assert (pattern[0], pattern[-1]) == ("^", "$"), "it is for the whole text"
    # The ends are cut off: Python's `$` would let a line end pass.
    matches, words = re.compile(pattern[1:-1]).fullmatch, PATTERNS[pattern]
    return _Rule(matches, lambda text: f"must be {words}" if text else MUST_BE_SET)


def _enum_rules(field: FieldDescriptor, own: _Options) -> Iterator[_Rule]:
    for name, values in own.items():
        yield {_DEFINED_ONLY: _defined, _NOT_IN: _not_in}[name](field, frozenset(values))


def _defined(field: FieldDescriptor, _values: frozenset[int]) -> _Rule:
    assert field.enum_type is not None, "it is a rule of enumerations"
    known = frozenset(field.enum_type.values_by_number)
    return _Rule(known.__contains__, lambda _: "must be a value that this version knows")


def _not_in(field: FieldDescriptor, values: frozenset[int]) -> _Rule:
    assert field.enum_type is not None, "it is a rule of enumerations"
    taken = [value.name for value in field.enum_type.values if value.number not in values]
    text = f"must be one of {', '.join(taken)}"
    return _Rule(lambda value: value not in values, lambda value: text if value else MUST_BE_SET)


def _range_rules(kinds: Mapping[int, _Comparison], limit_of: Callable[[Any], _Limit]) -> _RulesOf:
    """Make the rule that bounds a number or a moment, with comparisons by number; `limit_of` decodes a bound."""

    def rules(_field: FieldDescriptor, own: _Options) -> Iterator[_Rule]:
        limits = [(kinds[name], limit_of(limit)) for name, (limit,) in sorted(own.items(), reverse=True)]
        bounds = [(compare, limit.value) for (compare, _), limit in limits]
        text = " and ".join(f"{words} {limit.text}" for (_, words), limit in limits)

        def holds(value: Any) -> bool:
            own = _comparable(value)
            return all(compare(own, bound) for compare, bound in bounds)

        yield _Rule(holds, lambda _: f"must be {text}")

    return rules


class _Limit(NamedTuple):
    value: Any
    text: str


def _comparable(value: Any) -> Any:
    return value.seconds * NANOS_PER_S + value.nanos if isinstance(value, Duration | Timestamp) else value


def _integer(bits: int) -> _Limit:
    assert bits < 1 << 63, "no bound is negative"
    return _Limit(bits, str(bits))


def _double(bits: int) -> _Limit:
    (number,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    return _Limit(number, f"{number:g}")


def _moment(kind: type[Duration | Timestamp]) -> Callable[[bytes], _Limit]:
    def limit(encoded: bytes) -> _Limit:
        moment = kind.FromString(encoded)
        return _Limit(_comparable(moment), moment.ToJsonString())

    return limit


_AT_MOST: Final = (le, "less than or equal to")
_AT_LEAST: Final = (ge, "greater than or equal to")
_OF_NUMBERS: Final = {2: (lt, "less than"), 3: _AT_MOST, 4: (gt, "greater than"), 5: _AT_LEAST}
_OF_MOMENTS: Final = {4: _AT_MOST, 6: _AT_LEAST}
_RULES_OF: Final[Mapping[int, _RulesOf]] = {
    2: _range_rules(_OF_NUMBERS, _double),
    3: _range_rules(_OF_NUMBERS, _integer),
    4: _range_rules(_OF_NUMBERS, _integer),
    14: _string_rules,
    16: _enum_rules,
    21: _range_rules(_OF_MOMENTS, _moment(Duration)),
    22: _range_rules(_OF_MOMENTS, _moment(Timestamp)),
}
"""The rules of a value by the number of its type's rules."""


def _rules(described: Any) -> _Options:
    options = _fields(described.GetOptions().SerializeToString())
    return _fields(_option(options, _EXTENSION, default=b""))


def _fields(data: bytes) -> _Options:
    found: dict[int, list[Any]] = {}
    unknown: Any = UnknownFieldSet(Empty.FromString(data))
    for field in unknown:
        found.setdefault(field.field_number, []).append(field.data)
    return found


def _option(options: _Options, number: int, *, default: Any) -> Any:
    return options[number][0] if number in options else default


def _shown(key: str) -> str:
    """The key in quotes; it is the caller's and may be of any length."""
    return json.dumps(key if len(key) <= KEY_CHARS_SHOWN else f"{key[:KEY_CHARS_SHOWN]}...", ensure_ascii=True)
