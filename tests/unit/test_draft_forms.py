"""Drafts of another form than a record's JSON: whoever asks knows neither schema nor reader."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from service.domain.message import Message, Role
from service.models.model import CompletionRequest
from service.models.scripted import ScriptedModel
from service.summarizer.draft import Draft, DraftForm, InvalidDraft
from tests.support.summarizers import Heard, by_model, work_on

TEXT = "Maria moved the importer to host db-07 on 2026-03-12 because table orders was slow."
SCHEMA: Mapping[str, Any] = {"type": "string"}


def read(answer: str, _summary_tokens: int) -> Draft:
    """Text as it is, unless it is JSON."""
    if answer.startswith("{"):
        raise InvalidDraft(("the answer: write plain text",))
    lists: dict[str, list[str]] = {name: [] for name in Draft.model_fields if name != "summary"}
    return Draft.model_validate({"summary": answer, **lists})


async def test_a_model_is_asked_for_plain_text_and_its_answer_is_read_as_that():
    """Its schema goes to the model, a bad answer goes back with the form's own reason, and the checks are the same."""
    requests: list[CompletionRequest] = []

    def answer(request: CompletionRequest) -> str:
        requests.append(request)
        return TEXT if len(requests) > 1 else '{"summary": "x"}'

    work = work_on([Message(f"m{n}", Role.USER, f"{TEXT} That was message {n}.") for n in range(1, 9)])
    model = ScriptedModel([answer, answer], clock=time.monotonic)
    summary = await by_model(model, form=DraftForm(lambda _: SCHEMA, read)).summarize(work, Heard())

    assert [request.schema for request in requests] == [SCHEMA, SCHEMA]
    assert "write plain text" in requests[1].user
    assert summary.draft.summary == TEXT
