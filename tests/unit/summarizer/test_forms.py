"""Drafts of another form than a record's JSON: the caller knows neither prompts nor schema nor reader."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import FormName
from abridged.service.models.model import CompletionRequest
from abridged.service.models.scripted.model import ScriptedModel, default_answer
from abridged.service.prompts.prompt import PromptTemplate
from abridged.service.summarizer.draft import Draft, InvalidDraft
from abridged.service.summarizer.forms import FORMS, DraftForm, RepairWords, forms_with
from tests.support.summarizers import Heard, by_model, work_on

TEXT = "Maria moved the importer to host db-07 on 2026-03-12 because table orders was slow."


def read(answer: str, _summary_tokens: int) -> Draft:
    """Text as it is, unless it is JSON."""
    if answer.startswith("{"):
        raise InvalidDraft(("the answer: write plain text",))
    lists: dict[str, list[str]] = {name: [] for name in Draft.model_fields if name != "summary"}
    return Draft.model_validate({"summary": answer, **lists})


PLAIN = DraftForm(
    prompt=PromptTemplate("plain", "1", "Write sentences.", "{{previous}}{{transcript}}"),
    merge_prompt=PromptTemplate("plain-merge", "1", "Join the texts.", "{{previous}}{{transcript}}"),
    schema=lambda _: None,
    read=read,
    repair=RepairWords(cut_off="shorter", looped="once", again="Write the sentences again."),
    extracted=FORMS[FormName.FACETS].extracted,
)


async def test_a_model_is_asked_for_plain_text_and_its_answer_is_read_as_that():
    """The form has the prompt, no schema, the reader and the words of a repair; the checks are the same."""
    requests: list[CompletionRequest] = []

    def answer(request: CompletionRequest) -> str:
        requests.append(request)
        return TEXT if len(requests) > 1 else '{"summary": "x"}'

    work = work_on([Message(f"m{n}", Role.USER, f"{TEXT} That was message {n}.") for n in range(1, 9)])
    model = ScriptedModel([answer, answer], clock=time.monotonic)
    summary = await by_model(model, form=PLAIN).summarize(work, Heard())

    assert {(request.prompt_name, request.system, request.schema) for request in requests} == {
        ("plain", "Write sentences.", None)
    }
    assert "write plain text" in requests[1].user
    assert requests[1].user.endswith("\nWrite the sentences again.")
    assert (summary.draft.summary, summary.template) == (TEXT, PLAIN.prompt)


async def test_the_parts_of_a_long_source_are_merged_by_the_forms_own_prompt():
    """The prompt has each part as one of several partial texts."""
    requests: list[CompletionRequest] = []

    def answer(request: CompletionRequest) -> str:
        requests.append(request)
        return TEXT

    work = work_on([Message(f"m{n}", Role.USER, f"{TEXT} That was message {n}. " * 20) for n in range(1, 13)])
    summary = await by_model(ScriptedModel([answer], clock=time.monotonic), form=PLAIN).summarize(work, Heard())

    assert [request.prompt_name for request in requests][-2:] == ["plain", "plain-merge"]
    assert TEXT in requests[-1].user
    assert summary.draft.summary == TEXT


@pytest.mark.parametrize(("messages", "is_narrowed"), [(8, True), (200, False)])
async def test_a_repair_asks_for_the_narrative_alone_where_code_keeps_the_rest(messages: int, is_narrowed: bool):
    """Nobody keeps the lists of one part of a long source: the model writes all of it again."""
    repairs: list[CompletionRequest] = []

    def answer(request: CompletionRequest) -> str:
        if "not accepted" not in request.user:
            return '{"summary": "x"}'
        repairs.append(request)
        return default_answer(request)

    work = work_on([Message(f"m{n}", Role.USER, f"{TEXT} That was message {n}. " * 5) for n in range(messages)])
    await by_model(ScriptedModel([answer], clock=time.monotonic), window=4_096).summarize(work, Heard())

    parts = [repair for repair in repairs if "partial_summary" not in repair.user]
    assert all(repair.schema is not None for repair in parts)
    keys = {len(repair.schema["properties"]) for repair in parts if repair.schema}
    assert keys == ({1} if is_narrowed else {7})
    assert all(('the key "summary" alone' in repair.user) is is_narrowed for repair in parts)


async def test_a_scripted_model_writes_plain_text_where_no_schema_is_asked_for():
    """The model's default answer quotes the prompt, as its record does."""
    work = work_on([Message(f"m{n}", Role.USER, f"{TEXT} That was message {n}.") for n in range(1, 9)])
    summary = await by_model(ScriptedModel([default_answer], clock=time.monotonic), form=PLAIN).summarize(work, Heard())

    assert summary.draft.summary.startswith(f"Messages by user. {TEXT[:-1]}")


def test_an_operators_prompt_takes_the_place_of_the_shipped_one():
    """The rest of the form stays as it is, and no smaller question replaces the operator's."""
    own = PLAIN.prompt
    form = forms_with({FormName.FACETS: own})[FormName.FACETS]

    assert form == replace(FORMS[FormName.FACETS], prompt=own, small=None)
    assert forms_with({}) == FORMS
