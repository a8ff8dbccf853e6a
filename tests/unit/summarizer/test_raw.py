"""An operator's schema for a part of the record: its limits, its reading of answers, and its refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import FormName
from abridged.service.summarizer.check import Source, check_draft
from abridged.service.summarizer.draft import Draft, InvalidDraft
from abridged.service.summarizer.forms import FORMS, DraftForm
from abridged.service.summarizer.raw import RAW_CHARS_MAX, raw_schema, with_raw
from tests.support.answers import record

TEXT = {"type": "string", "maxLength": 40}
TICKET = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Ticket",
    "type": "object",
    "properties": {
        "product": {**TEXT, "description": "Which product it is about."},
        "queue": {"type": "string", "enum": ["OPS-1001", "OPS-1002"]},
        "people": {"type": "array", "items": {"$ref": "#/$defs/person"}, "maxItems": 3},
        "open": {"type": "boolean"},
        "count": {"type": "integer", "minimum": 0, "maximum": 9},
        "mood": {"type": "number", "minimum": -1, "maximum": 1},
    },
    "required": ["product"],
    "$defs": {"person": {"type": "object", "properties": {"model_config": TEXT}, "additionalProperties": False}},
}
RAW = {
    "product": "the importer",
    "queue": "OPS-1001",
    "people": [{"model_config": "Ana"}],
    "open": True,
    "count": 3,
    "mood": -0.5,
}


def schema_of(**properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties})


def form(schema: Mapping[str, Any] = TICKET) -> DraftForm:
    return with_raw(FORMS[FormName.FACETS], raw_schema(json.dumps(schema)))


def read(raw: Mapping[str, Any], schema: Mapping[str, Any] = TICKET) -> Draft:
    return form(schema).read(record(raw=raw), 200)


def test_an_answer_by_the_schema_is_kept_as_json():
    """The answer keeps the schema's order, whatever the properties are called."""
    draft = read(RAW)

    assert json.loads(draft.context.raw) == RAW
    assert draft.context.raw.startswith('{"product":"the importer","queue"')


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"product": 3}, "raw.product: string type"),
        ({"product": "x" * 41}, "raw.product: string too long (at most 40)"),
        ({"queue": "P3"}, "raw.queue: literal error"),
        ({"people": [{"model_config": "x"}] * 4}, "raw.people: too long (at most 3)"),
        ({"people": [{}]}, "raw.people.[].model_config: missing"),
        ({"open": "yes"}, "raw.open: bool type"),
        ({"count": 10}, "raw.count: less than equal"),
        ({"mood": -2}, "raw.mood: greater than equal"),
        ({"shoe": 1}, "raw.an unknown field: extra forbidden"),
    ],
)
def test_an_answer_against_the_schema_is_refused_by_place_and_rule(change, reason):
    """The reasons go back to the model; they never quote its words."""
    with pytest.raises(InvalidDraft) as refused:
        read(RAW | change)

    assert refused.value.reasons == (reason,)


def test_an_answer_without_raw_is_no_draft():
    """The operator's fields are as required as the rest."""
    with pytest.raises(InvalidDraft, match="raw: missing"):
        form().read(record(), 200)


def test_the_request_has_the_schema_inlined_and_the_prompt_tells_it():
    """Grammars get it without references; the prompt has it with the operator's own descriptions."""
    shaped = form()
    wire = shaped.schema(200) or {}

    assert "$ref" not in json.dumps(wire)
    assert wire["required"][-1] == "raw"
    assert wire["properties"]["raw"]["required"] == list(TICKET["properties"])
    for prompt in (shaped.prompt, shaped.merge_prompt):
        assert "Which product it is about." in prompt.system
        assert "+raw." in prompt.version
    assert form({**TICKET, "title": "Other"}).prompt.version != shaped.prompt.version


def test_the_shipped_form_has_no_raw():
    """Off by default."""
    assert FORMS[FormName.FACETS].read(record(), 200).context.raw == ""
    assert "raw" not in str(FORMS[FormName.FACETS].schema(200))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        (json.dumps({"type": "string", "maxLength": 3}), "describes no object"),
        (json.dumps({"type": "object"}), "without properties"),
        (json.dumps({"type": "object", "properties": {"a": TEXT}, "additionalProperties": True}), "additional"),
        (schema_of(a={"type": "string"}), "the schema.a needs a maxLength"),
        (schema_of(a={"type": "string", "maxLength": 1_001}), "maxLength from 0 to 1000"),
        (schema_of(a={"type": "array", "items": TEXT}), "the schema.a needs a maxItems"),
        (schema_of(a={"type": "array", "maxItems": 2}), "the schema.a[] is no schema"),
        (schema_of(a={"$ref": "https://example.com/schema.json"}), "not in its $defs"),
        (schema_of(a={"$ref": "#/$defs/none"}), "not in its $defs"),
        (schema_of(a={"$ref": 3}), "not in its $defs"),
        (schema_of(a={"anyOf": [TEXT]}), "needs one type"),
        (schema_of(a={"type": ["string", "null"]}), "needs one type"),
        (schema_of(a={**TEXT, "pattern": "(a+)+$"}), "has pattern"),
        (schema_of(a={"type": "string", "enum": []}), "enum"),
        (schema_of(a={"type": "string", "enum": [3]}), "enum"),
        (schema_of(a={"type": "integer", "minimum": 3, "maximum": 2}), "between which no number is"),
        (schema_of(a={"type": "array", "maxItems": 100, "items": TEXT}), f"at most {RAW_CHARS_MAX:,}"),
        (schema_of(a={**TEXT, "description": "{{transcript}}"}), "prompts fill in"),
        (schema_of(a={**TEXT, "description": "x" * 17_000}), "more than 16384 characters"),
    ],
)
def test_a_schema_that_bounds_nothing_or_cannot_be_asked_for_is_refused(text, says):
    """The refusal comes at the start and names the place; it does not wait for the first pass."""
    with pytest.raises(InvalidPolicy) as refused:
        raw_schema(text)

    assert refused.value.field == "raw_schema_file"
    assert says in refused.value.reason


def test_a_schema_that_contains_itself_is_refused():
    """Directly or through another: its values have no bound."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/other"}}}
    other = {"type": "object", "properties": {"back": {"$ref": "#/$defs/node"}}}
    text = json.dumps({"$ref": "#/$defs/node", "$defs": {"node": node, "other": other}})

    with pytest.raises(InvalidPolicy, match="no bound"):
        raw_schema(text)


def test_a_schema_that_is_too_deep_is_refused():
    """However small it is."""
    node = TEXT
    for _ in range(10):
        node = {"type": "object", "properties": {"a": node}}

    with pytest.raises(InvalidPolicy, match="deeper than"):
        raw_schema(json.dumps(node))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("password=hunter2-9Z", "secret: raw"),
        ("<|im_start|>system", "markup: raw"),
        ("see ticket OPS-9999", "unsupported: raw"),
    ],
)
def test_what_a_model_wrote_into_raw_is_checked_like_the_rest(text, code):
    """Secrets, marks of templates, and identifiers that no message has; a value of an enum is the operator's own."""
    source = Source.of([Message("m1", Role.USER, "The importer fails.")], texts=(), previous=None, instructions="")

    fine = check_draft(read(RAW), source).problems
    found = check_draft(read({**RAW, "product": text}), source).problems

    assert not [problem for problem in fine if "raw" in problem]
    assert [problem for problem in found if problem.startswith(code)]
