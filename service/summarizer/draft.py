"""Defines the answer of a model once, for the JSON Schema of the request and for its validation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from abridged.service.domain.record import (
    ACTION_ITEMS_MAX,
    DECISIONS_MAX,
    DOMAIN_ENTITIES_MAX,
    KEY_POINTS_MAX,
    PARTICIPANTS_MAX,
    STRING_CHARS_MAX,
    SUMMARY_CHARS_MAX,
    UNRESOLVED_MAX,
    ActionItem,
    RecordContext,
)
from abridged.service.text.markup import answered_turn
from abridged.service.text.sentences import up_to_last_end

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)

REASONS_MAX = 8
"""The most reasons that a model gets: more do not help it to repair its answer."""

CHANGES_MAX = 20

ITEMS_MIN = 2
ITEM_TOKENS = 32
ITEM_CHARS_MIN = 120
NAME_CHARS = 60
"""A list may have one item per ITEM_TOKENS of a summary, but at least ITEMS_MIN; an item may have as many characters as
the summary has tokens, but at least ITEM_CHARS_MIN; an owner or a due date has NAME_CHARS."""

NARRATIVE_CHARS_PER_TOKEN = 5
"""Most characters of a narrative per token of the whole summary: more than any script needs, so that only a runaway
answer meets the limit."""

LENGTHS_MAX: Mapping[str, int] = {
    "key_points": KEY_POINTS_MAX,
    "participants": PARTICIPANTS_MAX,
    "decisions": DECISIONS_MAX,
    "action_items": ACTION_ITEMS_MAX,
    "unresolved": UNRESOLVED_MAX,
    "domain_entities": DOMAIN_ENTITIES_MAX,
}
"""Most items of each list."""

_TEXT_LISTS = ("key_points", "participants", "decisions", "unresolved", "domain_entities")

Text = Annotated[str, Field(max_length=STRING_CHARS_MAX)]


class InvalidDraft(Exception):
    """The answer is not a draft. `reasons` name fields and rules, never the answer's text."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class Strict(BaseModel):
    """A model's answer: exactly these fields, of exactly these types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Shape = TypeVar("Shape", bound=Strict)


class DraftItem(Strict):
    """Something to do."""

    task: Text
    owner: Text
    due: Text


class DraftChange(Strict):
    """A change of the skeleton's statement with this number: its new text, or an empty one if it no longer holds."""

    number: int
    text: Text


class Draft(Strict):
    """The summary as a model writes it. `changes` are of the statements that code keeps."""

    summary: Annotated[str, Field(min_length=1, max_length=SUMMARY_CHARS_MAX)]
    key_points: Annotated[list[Text], Field(max_length=KEY_POINTS_MAX)]
    participants: Annotated[list[Text], Field(max_length=PARTICIPANTS_MAX)]
    decisions: Annotated[list[Text], Field(max_length=DECISIONS_MAX)]
    action_items: Annotated[list[DraftItem], Field(max_length=ACTION_ITEMS_MAX)]
    unresolved: Annotated[list[Text], Field(max_length=UNRESOLVED_MAX)]
    domain_entities: Annotated[list[Text], Field(max_length=DOMAIN_ENTITIES_MAX)]
    changes: Annotated[list[DraftChange], Field(max_length=CHANGES_MAX)] = []

    @property
    def context(self) -> RecordContext:
        """The structured facets, without empty and repeated items."""
        return RecordContext(
            participants=_tidy(self.participants),
            decisions=_tidy(self.decisions),
            action_items=tuple(
                ActionItem(task=i.task.strip(), owner=i.owner.strip(), due=i.due.strip())
                for i in self.action_items
                if i.task.strip()
            ),
            unresolved=_tidy(self.unresolved),
            domain_entities=_tidy(self.domain_entities),
            raw=self.raw_json,
        )

    @property
    def raw_json(self) -> str:
        """An operator's own part, as JSON; empty without one."""
        return ""

    @property
    def raw_texts(self) -> tuple[str, ...]:
        """The texts of that part which a model wrote freely."""
        return ()

    @property
    def narratives(self) -> Mapping[str, str]:
        """The texts that a model alone can write again, by field."""
        return {"summary": self.summary}

    @classmethod
    def of_text(cls, text: str, **others: str) -> Self:
        """A narrative of any length, with the other narratives of its form, and no lists."""
        lists: dict[str, Any] = {name: [] for name in _TEXT_LISTS}
        return cls.model_construct(None, summary=text, action_items=[], changes=[], **lists, **others)

    def edited(
        self,
        texts: Callable[[list[str]], list[str]],
        items: Callable[[list[DraftItem]], list[DraftItem]],
        **narratives: str,
    ) -> Self:
        """The draft with what `texts` makes of each list of texts, and `items` of the action items."""
        lists = {name: texts(getattr(self, name)) for name in _TEXT_LISTS}
        return self.model_copy(update={**lists, "action_items": items(self.action_items), **narratives})

    @property
    def highlights(self) -> tuple[str, ...]:
        """The key points, without empty and repeated ones."""
        return _tidy(self.key_points)


def parsed(text: str) -> Draft:
    """The draft in `text`: JSON, or JSON in one fence. Raises InvalidDraft; nothing is guessed or added."""
    return parsed_as(Draft, text)


def parsed_as(model: type[Shape], text: str, *, inner: Collection[str] = ()) -> Shape:
    """The answer in `text` as `model` describes it; see `parsed`. Reasons may name the `inner` fields too.

    List items that break a rule, items over a list's limit and keys that no rule knows are left out: what is bad of an
    answer does not cost the rest of it, and a repair is a second call.
    """
    fenced = _FENCED.match(text)
    answer = fenced.group(1) if fenced else text
    try:
        found = model.model_validate_json(answer)
        json.loads(answer, object_pairs_hook=_without_repeats)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    else:
        return found
    rest = _without_bad_parts(answer, errors)
    if rest is not None:
        return parsed_as(model, rest, inner=inner)
    reasons = dict.fromkeys(_reason(dict(e), {*model.model_fields, *inner}) for e in errors)
    raise InvalidDraft(tuple(reasons)[:REASONS_MAX])


def _without_bad_parts(answer: str, errors: Sequence[ErrorDetails]) -> str | None:
    """The answer without the parts that the errors are about, which is less of it; None if one of these has to stay."""
    if not all(error["loc"] for error in errors):
        return None
    try:
        parts = json.loads(answer, object_pairs_hook=_without_repeats)
    except ValueError:
        # A number of more digits than Python reads.
        return None
    bad: dict[int | str, set[int]] = {}
    for error in errors:
        match error["loc"], error["type"]:
            case (field,), "extra_forbidden":
                del parts[field]
            case (field,), "too_long":
                del parts[field][error["ctx"]["max_length"] :]
            case (field, int(place), key), "extra_forbidden":
                del parts[field][place][key]
            case (field, int(place), *_), _:
                bad.setdefault(field, set()).add(place)
            case _:
                return None
    for field, places in bad.items():
        parts[field] = [item for place, item in enumerate(parts[field]) if place not in places]
    return json.dumps(parts)


def from_text(answer: str) -> Draft:
    """The draft that plain text is: a narrative and no lists, of the assistant's own turn. Raises InvalidDraft for
    JSON, for a fence and for more than a narrative may hold.
    """
    text = answered_turn(answer).strip()
    if text.startswith(("{", "[", "```")):
        raise InvalidDraft(("the answer: plain text is wanted, without JSON or a fence",))
    if len(text) > SUMMARY_CHARS_MAX:
        raise InvalidDraft((f"the answer: more than {SUMMARY_CHARS_MAX} characters",))
    return Draft.of_text(text)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Refuses repeated keys, of which parsers take either value."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidDraft(("the answer: a key occurs twice",))
    return dict(pairs)


def _reason(error: Mapping[str, Any], names: Collection[str]) -> str:
    """Place and rule, without pydantic's own words, which may quote the input."""
    place = ".".join(_place(part, names) for part in error["loc"]) or "the answer"
    rule = str(error["type"]).replace("_", " ")
    limit = error.get("ctx", {}).get("max_length")
    return f"{place}: {rule}" + (f" (at most {limit})" if limit else "")


def _place(part: object, names: Collection[str]) -> str:
    """The name of a known field, and a description otherwise: an unknown name is text of the answer."""
    if isinstance(part, int):
        return "[]"
    return str(part) if part in _ITEM_FIELDS or part in names else "an unknown field"


def _tidy(items: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stripped for item in items if (stripped := item.strip())))


_ITEM_FIELDS = frozenset({*DraftItem.model_fields, *DraftChange.model_fields})


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without references, titles and descriptions, within the limits of grammar converters.

    They refuse lengths of 2,000 and more, so the summary's own limit is checked after parsing.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return resolve(definitions[node["$ref"].rpartition("/")[2]])
        if node.get("type") == "object":
            properties = {name: resolve(child) for name, child in node["properties"].items()}
            return {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            }
        kept = {key: resolve(value) for key, value in node.items() if key not in ("title", "description", "$defs")}
        if kept.get("maxLength", 0) > STRING_CHARS_MAX:
            del kept["maxLength"]
        return kept

    resolved: dict[str, Any] = resolve(dict(schema))
    return resolved


_WHOLE: Mapping[str, Any] = inlined(Draft.model_json_schema())


def _without_changes(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = {name: field for name, field in schema["properties"].items() if name != "changes"}
    return {**schema, "properties": properties, "required": list(properties)}


SCHEMA: Mapping[str, Any] = _without_changes(_WHOLE)
"""The JSON Schema of a draft that changes no statement, inlined."""


def schema_for(summary_tokens: int) -> Mapping[str, Any]:
    """The schema for an answer of this size: small models fill every list to its limit and are cut off."""
    schema: dict[str, Any] = json.loads(json.dumps(SCHEMA))
    if (narrative := narrative_chars(summary_tokens)) is not None:
        schema["properties"]["summary"]["maxLength"] = narrative
    chars = _item_chars(summary_tokens)
    items = max(ITEMS_MIN, summary_tokens // ITEM_TOKENS)
    for key, field in schema["properties"].items():
        if field["type"] == "array":
            # The names of things are short.
            field["maxItems"] = min(2 * items if key == "domain_entities" else items, field["maxItems"])
            item = field["items"]
            if item["type"] == "object":
                for name, text in item["properties"].items():
                    text["maxLength"] = chars if name == "task" else NAME_CHARS
            else:
                item["maxLength"] = chars
    return schema


def with_changes(schema: Mapping[str, Any], statements: int, summary_tokens: int) -> Mapping[str, Any]:
    """The schema for an answer that may change these many numbered statements, as its last key."""
    changes: dict[str, Any] = json.loads(json.dumps(_WHOLE["properties"]["changes"]))
    changes["maxItems"] = min(statements, CHANGES_MAX)
    changes["items"]["properties"]["number"] |= {"minimum": 1, "maximum": statements}
    changes["items"]["properties"]["text"]["maxLength"] = _item_chars(summary_tokens)
    properties = {**schema["properties"], "changes": changes}
    return {**schema, "properties": properties, "required": list(properties)}


def without_cut_ends(draft: Draft, summary_tokens: int) -> Draft:
    """The draft without list items and the last sentence of the narrative if they end at the limit of `schema_for`.

    Raises InvalidDraft if that leaves no narrative.
    """
    chars = _item_chars(summary_tokens)
    return draft.edited(
        lambda texts: [text for text in texts if len(text) != chars],
        lambda items: [i for i in items if len(i.task) != chars and NAME_CHARS not in (len(i.owner), len(i.due))],
        summary=whole_sentences("summary", draft.summary, narrative_chars(summary_tokens)),
    )


def whole_sentences(field: str, text: str, chars_max: int | None) -> str:
    """The text, without its last sentence if that was cut. Raises InvalidDraft if that is all of it."""
    if len(text) != chars_max:
        return text
    whole = up_to_last_end(text)
    if not whole:
        raise InvalidDraft((f"{field}: no sentence ends within {chars_max} characters",))
    return whole


def narrative_chars(summary_tokens: int) -> int | None:
    """The limit of the narrative; None if grammars cannot express it, because the answer's own limit bounds it then."""
    chars = NARRATIVE_CHARS_PER_TOKEN * summary_tokens
    return chars if chars <= STRING_CHARS_MAX else None


def _item_chars(summary_tokens: int) -> int:
    return min(max(ITEM_CHARS_MIN, summary_tokens), STRING_CHARS_MAX)
