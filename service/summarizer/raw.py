"""An operator's own part of a record: JSON by their own schema, `context.raw`.

The schema is turned into a type once, at the start. The type yields the schema that constrains the answer and validates
the answer, so both agree. Invariant: whatever the type accepts has at most RAW_CHARS_MAX characters; a
schema without such a bound, or with a keyword that grammars cannot express, is refused by its place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, create_model

from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.record import STRING_CHARS_MAX
from abridged.service.prompts.prompt import PromptTemplate
from abridged.service.summarizer.draft import Draft, Strict, inlined, parsed_as, schema_for, without_cut_ends
from abridged.service.summarizer.forms import DraftForm

FIELD: Final = "raw_schema_file"
RAW_CHARS_MAX: Final = 8_000
"""Most characters of `raw`, counted with every string escaped: a quarter of what a record of the largest size has."""

SCHEMA_CHARS_MAX: Final = 16_384
DEPTH_MAX: Final = 6
ITEMS_MAX: Final = 100
ENUM_MAX: Final = 100
INTEGER_MAX: Final = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""

CHARS_PER_TOKEN: Final = 4
ESCAPED_CHARS: Final = 2
"""Characters of a string's character in JSON, as models write them."""

_NUMBER_CHARS: Final = 24
_SAID: Final = frozenset({"title", "description", "$schema", "$defs", "$id", "$comment"})
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "enum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
}
_LOCAL: Final = "#/$defs/"


class RawDraft(Draft):
    """A draft with an operator's own part. `closed` has the strings that their schema lists."""

    raw: Any
    closed: ClassVar[frozenset[str]] = frozenset()

    @property
    def raw_json(self) -> str:
        return json.dumps(self.raw.model_dump(by_alias=True), ensure_ascii=False, separators=(",", ":"))

    @property
    def raw_texts(self) -> tuple[str, ...]:
        return tuple(text for text in _strings(self.raw.model_dump(by_alias=True)) if text not in self.closed)


@dataclass(frozen=True, slots=True)
class RawSchema:
    """An operator's schema, read.

    Attributes:
        draft: The type of a draft with `raw`.
        names: The names of its properties, at any depth.
        wire: The schema of `raw` in requests, inlined.
        instruction: The words of the prompt on it.
        chars: Most characters of a value.
    """

    draft: type[RawDraft]
    names: frozenset[str]
    wire: Mapping[str, Any]
    instruction: str
    chars: int


def raw_schema(text: str) -> RawSchema:
    """The schema in `text`. Raises InvalidPolicy for one that is no bounded schema of an object."""
    if len(text) > SCHEMA_CHARS_MAX:
        raise InvalidPolicy(FIELD, f"has more than {SCHEMA_CHARS_MAX} characters")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidPolicy(FIELD, "is not valid JSON") from None
    if not isinstance(schema, dict) or "{{" in text:
        raise InvalidPolicy(FIELD, "is not a JSON object, or has '{{', which prompts fill in")
    reading = _Reading(schema.get("$defs", {}))
    kind, chars = reading.of(schema, "the schema", ())
    if not isinstance(kind, type) or not issubclass(kind, Strict):
        raise InvalidPolicy(FIELD, "describes no object")
    if chars > RAW_CHARS_MAX:
        raise InvalidPolicy(FIELD, f"allows {chars:,} characters, at most {RAW_CHARS_MAX:,} are possible")
    draft = create_model("RawDraft", __base__=RawDraft, raw=(kind, ...))
    draft.closed = frozenset(reading.closed)
    compact = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    wanted = "The object has one more key, raw. Its value follows this JSON Schema, with every property"
    instruction = f"\n- {wanted}: {compact}"
    return RawSchema(draft, frozenset(reading.names), inlined(kind.model_json_schema()), instruction, chars)


def with_raw(form: DraftForm, schema: RawSchema) -> DraftForm:
    """The form, whose drafts have `raw` too."""

    def wire(summary_tokens: int) -> Mapping[str, Any]:
        whole: dict[str, Any] = dict(schema_for(summary_tokens))
        return whole | {
            "properties": {**whole["properties"], "raw": schema.wire},
            "required": [*whole["required"], "raw"],
        }

    return replace(
        form,
        prompt=_telling(form.prompt, schema),
        merge_prompt=_telling(form.merge_prompt, schema),
        schema=wire,
        read=lambda answer, tokens: without_cut_ends(parsed_as(schema.draft, answer, inner=schema.names), tokens),
        beside_tokens=schema.chars // CHARS_PER_TOKEN,
        repair=replace(form.repair, narrative=""),
        small=None,
    )


def _telling(template: PromptTemplate, schema: RawSchema) -> PromptTemplate:
    digest = hashlib.sha256(schema.instruction.encode()).hexdigest()[:8]
    return replace(template, system=template.system + schema.instruction, version=f"{template.version}+raw.{digest}")


class _Reading:
    """Turns a schema into a type and the most characters of its values. `closed` gathers the strings that it lists,
    `names` its properties."""

    def __init__(self, definitions: Any) -> None:
        self._definitions = definitions if isinstance(definitions, dict) else {}
        self._count = 0
        self.closed: set[str] = set()
        self.names: set[str] = set()

    def of(self, node: Any, place: str, above: tuple[str, ...]) -> tuple[Any, int]:
        """`above` has the references that lead here, which may not come again."""
        if not isinstance(node, dict):
            raise InvalidPolicy(FIELD, f"{place} is no schema")
        if place.count(".") > DEPTH_MAX:
            raise InvalidPolicy(FIELD, f"{place} is deeper than {DEPTH_MAX} levels")
        if "$ref" in node:
            return self._referred(node["$ref"], place, above)
        kind = node.get("type", "string" if "enum" in node else None)
        if not isinstance(kind, str) or kind not in _KEYWORDS:
            raise InvalidPolicy(FIELD, f"{place} needs one type: {', '.join(_KEYWORDS)}")
        if unknown := sorted(set(node) - _KEYWORDS[kind] - _SAID - {"type"}):
            raise InvalidPolicy(FIELD, f"{place} has {unknown[0]}, which is not possible here")
        match kind:
            case "object":
                return self._object(node, place, above)
            case "array":
                return self._array(node, place, above)
            case "string":
                return self._string(node, place)
            case "boolean":
                return bool, len("false")
        return _number(node, place, int if kind == "integer" else float), _NUMBER_CHARS

    def _referred(self, reference: Any, place: str, above: tuple[str, ...]) -> tuple[Any, int]:
        name = reference.removeprefix(_LOCAL) if isinstance(reference, str) else ""
        if not isinstance(reference, str) or not reference.startswith(_LOCAL) or name not in self._definitions:
            raise InvalidPolicy(FIELD, f"{place} refers to something that is not in its $defs")
        if reference in above:
            raise InvalidPolicy(FIELD, f"{place} refers to itself: it has no bound")
        return self.of(self._definitions[name], place, (*above, reference))

    def _object(self, node: Mapping[str, Any], place: str, above: tuple[str, ...]) -> tuple[Any, int]:
        properties = node.get("properties")
        if not isinstance(properties, dict) or not properties or node.get("additionalProperties", False) is not False:
            raise InvalidPolicy(FIELD, f"{place} is an object without properties, or with additional ones")
        fields: dict[str, Any] = {}
        chars = 2
        for number, (name, child) in enumerate(properties.items()):
            kind, most = self.of(child, f"{place}.{name}", above)
            # Its own names are aliases: a property may be called as a method of the type is.
            fields[f"field_{number}"] = (kind, Field(alias=name))
            chars += len(json.dumps(name)) + most + 4
        self._count += 1
        self.names |= set(properties)
        return create_model(f"Raw{self._count}", __base__=Strict, **fields), chars

    def _array(self, node: Mapping[str, Any], place: str, above: tuple[str, ...]) -> tuple[Any, int]:
        most = _count_of(node, "maxItems", place, ITEMS_MAX)
        least = _count_of(node, "minItems", place, most, default=0)
        kind, chars = self.of(node.get("items"), f"{place}[]", above)
        return Annotated[list[kind], Field(min_length=least, max_length=most)], 2 + most * (chars + 2)  # type: ignore[valid-type]  # made at run time

    def _string(self, node: Mapping[str, Any], place: str) -> tuple[Any, int]:
        if "enum" in node:
            values = node["enum"]
            if not isinstance(values, list) or not 0 < len(values) <= ENUM_MAX or not all(map(_is_plain, values)):
                raise InvalidPolicy(FIELD, f"{place} has an enum that is no list of up to {ENUM_MAX} texts")
            self.closed |= set(values)
            return Literal[tuple(values)], max(len(json.dumps(value)) for value in values)
        most = _count_of(node, "maxLength", place, STRING_CHARS_MAX)
        least = _count_of(node, "minLength", place, most, default=0)
        return Annotated[str, Field(min_length=least, max_length=most)], 2 + most * ESCAPED_CHARS


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and len(value) <= STRING_CHARS_MAX


def _count_of(node: Mapping[str, Any], keyword: str, place: str, most: int, *, default: int | None = None) -> int:
    value = node.get(keyword, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidPolicy(FIELD, f"{place} needs a {keyword} from 0 to {most}")
    return value


def _number(node: Mapping[str, Any], place: str, kind: type[int | float]) -> Any:
    low, high = node.get("minimum", -INTEGER_MAX), node.get("maximum", INTEGER_MAX)
    if not all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high)) or low > high:
        raise InvalidPolicy(FIELD, f"{place} has a minimum and a maximum between which no number is")
    return Annotated[kind, Field(ge=max(low, -INTEGER_MAX), le=min(high, INTEGER_MAX))]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
