"""The contract's rules as the sidecar compiles them, beside protovalidate, which reads the same rules."""

from __future__ import annotations

import json
import math
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import protovalidate
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given
from hypothesis import strategies as st

import abridged.v1
from abridged.service.api.errors import InvalidRequest
from abridged.service.api.field_rules import PATTERNS, MessageRules
from abridged.service.api.validation import ALL_LISTED_FIELDS_MAX, Validation
from abridged.v1.conversation_service_pb2 import RENDERING_OLLAMA, ExpandSummaryRequest, RenderedMessages
from abridged.v1.message_pb2 import Message as ChatMessage

MODULES = sorted(file.stem for file in Path(abridged.v1.__path__[0]).glob("*_pb2.py"))
TYPES = [
    getattr(module, name)
    for module in (import_module(f"abridged.v1.{name}") for name in MODULES)
    for name in module.DESCRIPTOR.message_types_by_name
]
RULES = {kind.DESCRIPTOR.full_name: MessageRules(kind.DESCRIPTOR, {}) for kind in TYPES}
"""The rules of every type: a rule that is not known fails here."""
TYPES_AT_ONCE = 12
LENGTHS = (0, 1, 63, 64, 128, 129, 255, 256, 257, 1_000, 1_001)
TEXTS = (
    "bad id",
    "a\n",
    "\n",
    "a\x1fb",
    "A.b_c:@-",
    "a/b+c=",
    *("x" * n for n in LENGTHS),
    *("𝄞" * n for n in LENGTHS),
)
NUMBERS = (0, 1, -1, 2, 5, 6, 31, 32, 64, 65, 256, 257, 1_000, 1_001, 100_001, 2**31 - 1, 2**62 - 1, 2**62)
REALS = (0.0, -0.0, 5e-324, 1.0, 1.0000001, 2.0, 2.5, -1.0, -1.1, math.nan, math.inf, -math.inf)
ITEMS = (0, 1, 2, 9, 65, 129)
PAIRS = (1, 2, 17, 65)

REQUIRED = b"\xba\x48\x03\xc8\x01\x01"
"""The options of a field with `(buf.validate.field).required = true`."""

WORDS = {
    "enum.defined_only": "must be a value that this version knows",
    "enum.not_in": "must be set",
    "repeated.min_items": "must not be empty",
    "required": "must be set",
    "string.min_len": "must be set",
}
"""The sidecar's words in place of protovalidate's, which are for a programmer of rules."""


@given(st.randoms())
def test_what_breaks_a_rule_is_what_protovalidate_says(chance):
    """Both name the same fields of every type in the same words, and the quick check gives the same verdict."""
    for kind in chance.sample([kind for kind in TYPES if not RULES[kind.DESCRIPTOR.full_name].is_empty], TYPES_AT_ONCE):
        message = kind.FromString(filled(kind(), chance).SerializeToString())
        rules = RULES[kind.DESCRIPTOR.full_name]

        named = list(rules.broken(message))

        # protovalidate names the pairs of a map in no order.
        assert sorted(named) == sorted(map(in_words, VALIDATOR.collect_violations(message)))
        assert rules.holds(message) is not bool(named)


def test_a_field_without_presence_cannot_be_required():
    """The compiler refuses the rule: a request without the field would be refused with no word of the reason."""
    file = FileDescriptorProto(name="required.proto", syntax="proto3")
    field = file.message_type.add(name="Required").field.add(name="text", number=1)
    field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
    field.options.MergeFromString(REQUIRED)
    pool = DescriptorPool()
    pool.Add(file)

    with pytest.raises(AssertionError, match=r"Required\.text has no presence"):
        MessageRules(pool.FindMessageTypeByName("Required"), {})


def test_the_fields_of_a_request_are_named_in_their_order():
    """A long key is cut, and a key that is wrong is told from a value."""
    message = ChatMessage(role=9, name="x" * 257, labels={"a" * 65: "x", "": "\n"})  # type: ignore[arg-type]  # unknown

    with pytest.raises(InvalidRequest) as refused:
        Validation().check(message, fields=lambda: ALL_LISTED_FIELDS_MAX)

    assert refused.value.violations == [
        ("role", "must be a value that this version knows"),
        ("name", "must be at most 256 characters"),
        ('labels[""]', "its key must be set"),
        ('labels[""]', "must be without control characters"),
        (f'labels["{"a" * 64}..."]', "its key must be 1 to 63 of A-Z a-z 0-9 . _ / -"),
    ]


def test_a_choice_that_is_not_taken_is_told_those_that_are():
    """A value that is there is not said to be missing."""
    rendered = RenderedMessages(rendering=RENDERING_OLLAMA, json="[]")

    with pytest.raises(InvalidRequest) as refused:
        Validation().check(rendered, fields=lambda: ALL_LISTED_FIELDS_MAX)

    assert refused.value.violations == [("rendering", "must be one of RENDERING_OPENAI, RENDERING_ANTHROPIC")]


def test_a_choice_that_nobody_made_is_named():
    """The request is right otherwise."""
    with pytest.raises(InvalidRequest) as refused:
        Validation().check(ExpandSummaryRequest(conversation_id="c"), fields=lambda: ALL_LISTED_FIELDS_MAX)

    assert refused.value.violations == [("what", "must be set")]


VALIDATOR = protovalidate.Validator()


def filled(message: Any, chance: random.Random, depth: int = 0) -> Any:
    """The message with some of its fields, of values around the bounds of rules."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < (0.5 if depth < 2 else 0.75):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for place in range(chance.choice(PAIRS)):
                getattr(message, field.name)[chance.choice(TEXTS) + str(place)[:-1]] = chance.choice(TEXTS)
        elif field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(chance.choice(ITEMS if depth == 0 or field.message_type is None else ITEMS[:3])):
                if field.message_type is not None:
                    filled(values.add(), chance, depth + 1)
                else:
                    values.append(value_of(field, chance))
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            filled(getattr(message, field.name), chance, depth + 1)
        else:
            setattr(message, field.name, value_of(field, chance))
    return message


def value_of(field: FieldDescriptor, chance: random.Random) -> Any:
    """A value of the field's type."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = chance.choice(TEXTS)
            return text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return chance.choice(REALS)
        case FieldDescriptor.CPPTYPE_ENUM:
            return chance.choice((0, 1, 2, 3, 77, -1))
        case FieldDescriptor.CPPTYPE_INT64:
            return chance.choice(NUMBERS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case _:
            return abs(chance.choice(NUMBERS)) % 2**31


def in_words(violation: Any) -> tuple[str, str]:
    """A violation of protovalidate in the sidecar's words."""
    said = violation.proto
    text = WORDS.get(said.rule_id, said.message)
    if said.rule_id == "string.pattern":
        text = f"must be {PATTERNS[violation.rule_value]}" if violation.field_value else "must be set"
    if said.rule_id == "enum.not_in" and violation.field_value:
        text = "must be one of RENDERING_OPENAI, RENDERING_ANTHROPIC"
    path = ".".join(map(part, said.field.elements))
    return path, f"its key {text}" if said.for_key else text


def part(element: Any) -> str:
    """One element of a path."""
    if element.subscript is None:
        return str(element.field_name)
    key = element.subscript.value
    if isinstance(key, int):
        return f"{element.field_name}[{key}]"
    shown = key if len(key) <= 64 else f"{key[:64]}..."
    return f"{element.field_name}[{json.dumps(shown)}]"
