"""The scripted provider: steps, files, and its default record."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import ToolOutput
from abridged.service.domain.record import DOMAIN_ENTITIES_MAX, KEY_POINTS_MAX, RecordContext
from abridged.service.models.model import (
    Completion,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
    SummaryModel,
)
from abridged.service.models.scripted.model import (
    Quotations,
    QuotedMessage,
    ScriptedModel,
    ScriptError,
    load_script,
    quoted_in,
)
from abridged.service.prompts.prompt import CHAIN_TEMPLATE, PromptInput, prompt_of, transcript_entry
from tests.support.extracts import extract_of, record_of
from tests.support.ollama_model import RECORD_SCHEMA, record_request
from tests.support.patience import PATIENCE_S


async def ask(model: SummaryModel, **fields) -> Completion:
    return await model.complete(record_request(**fields), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)


async def test_steps_follow_each_other_and_the_last_repeats():
    """Call n gets step n, and the last for ever after."""
    model = ScriptedModel(["one", lambda request: f"seed {request.seed}"], clock=time.monotonic)

    assert [(await ask(model)).text for _ in range(3)] == ["one", "seed 7", "seed 7"]
    assert model.asked == 3


async def test_a_hanging_step_ends_when_it_is_released():
    """A test decides when the answer comes."""
    gate = asyncio.Event()
    model = ScriptedModel([gate], clock=time.monotonic)

    call = asyncio.create_task(ask(model))
    done, _ = await asyncio.wait({call}, timeout=0.01)
    assert not done
    gate.set()

    assert json.loads((await call).text)["summary"]


async def test_the_default_record_takes_over_names_and_identifiers():
    """Participants and identifiers come from the messages, so that nothing is unsupported."""
    record = json.loads((await ask(load_script("default", clock=time.monotonic))).text)

    assert list(record) == RECORD_SCHEMA["required"]
    assert record["participants"] == ["ana", "bob"]
    assert {"E4031", "2.7.1", "import.batch_rows"} <= set(record["domain_entities"])


async def test_the_default_record_keeps_within_the_allowed_size():
    """A thousand messages give no larger record than ten."""
    entries = (
        f'<message {n} user "user{n}">\nStep {n}: ticket ABC-{n} moved to host-{n}.internal.' for n in range(1_000)
    )
    user = "\n".join(["<transcript>", *entries, "</transcript>"])
    model = load_script("default", clock=time.monotonic)

    text = (await ask(model, user=user, summary_tokens_max=400)).text

    record = json.loads(text)
    assert len(text) < 400 * 4
    assert 0 < len(record["key_points"]) <= KEY_POINTS_MAX
    assert 0 < len(record["domain_entities"]) <= DOMAIN_ENTITIES_MAX


async def test_the_default_record_merges_texts():
    """Merging keeps the identifiers of the merged texts."""
    parts = ("The import failed with E4031.", "Then host-7.internal was replaced.")
    entries = (f"<partial_summary>\n{text}\n</partial_summary>" for text in parts)
    user = "\n".join(["<transcript>", *entries, "</transcript>"])

    record = json.loads((await ask(load_script("default", clock=time.monotonic), user=user)).text)

    assert {"E4031", "host-7.internal"} <= set(record["domain_entities"])


def test_what_a_prompt_quotes_is_read_as_it_was_said():
    """Numbers, roles, names, texts without their calls, and the record before: frames of the real prompt."""
    previous = replace(
        record_of(extract_of([Message("m", Role.USER, "Ada keeps the lock in src/lock.py. It is settled so.", "Ada")])),
        context=RecordContext(participants=("Ada", "Bob"), decisions=("Keep it.",), domain_entities=("src/lock.py",)),
    )
    call = ToolCall("c", "find", '{"path": "src"}')
    messages = (
        Message("a", Role.USER, "Look <message 3 tool> & see.\nPlease.", 'R&D "ops"'),
        Message("b", Role.ASSISTANT, "I look.", tool_calls=(call,)),
    )
    entries = tuple(
        transcript_entry(n, m, tool_output=ToolOutput.FULL, cap_tokens=99, count=len) for n, m in enumerate(messages, 7)
    )
    prompt = prompt_of(CHAIN_TEMPLATE, PromptInput(entries, previous, 2, 20, 1, 300))

    quoted = quoted_in(prompt.user)

    assert quoted.messages == (
        QuotedMessage(7, "user", 'R&D "ops"', "Look &lt;message 3 tool> & see.\nPlease."),
        QuotedMessage(8, "assistant", "", "I look."),
    )
    assert (quoted.narrative, quoted.participants, quoted.names) == (
        previous.summary, ("Ada", "Bob"), ("src/lock.py",)
    )  # fmt: skip
    assert quoted_in("Say hello.") == Quotations((), (), "", (), ())


def write(tmp_path, script) -> str:
    path = tmp_path / "script.json"
    path.write_text(script if isinstance(script, str) else json.dumps(script), encoding="utf-8")
    return str(path)


async def test_a_script_file_can_do_what_a_step_can(tmp_path):
    """Every kind of step in a file, in order."""
    path = write(
        tmp_path,
        {
            "context_length": 1_024,
            "steps": [
                {"default": True},
                {"text": "not JSON"},
                {"text": '{"summ', "finish_reason": "length"},
                {"record": {"summary": "short"}},
                {"error": "unavailable", "retry_after_s": 3},
                {"error": "missing"},
                {"error": "refused"},
                {"error": "truncated"},
                {"hang": True},
            ],
        },
    )
    model = load_script(path, clock=time.monotonic)

    assert json.loads((await ask(model)).text)["participants"]
    assert (await ask(model)).text == "not JSON"
    assert (await ask(model)).finish_reason == "length"
    empty: dict[str, object] = {name: [] for name in RECORD_SCHEMA["required"]}
    assert json.loads((await ask(model)).text) == empty | {"summary": "short"}
    with pytest.raises(ModelUnavailable) as busy:
        await ask(model)
    assert busy.value.retry_after_s == 3.0
    for error in (ModelMissing, ModelRefused, PromptTruncated):
        with pytest.raises(error):
            await ask(model)
    with pytest.raises(ModelUnavailable):
        await model.complete(record_request(), deadline_s=0.01, on_progress=lambda _chars: None)
    assert (await model.describe()).context_length == 1_024
    assert model.name == f"scripted:{path}"


@pytest.mark.parametrize(
    "script",
    [
        "{",
        [],
        {"steps": []},
        {"steps": [{"error": "other"}]},
        {"steps": [{"default": False}]},
        {"steps": [{"default": True}], "context_length": 0},
    ],
)
def test_a_script_that_cannot_be_followed_is_refused_when_loaded(tmp_path, script):
    """A mistake in a script shows at the start, not at the fifth call."""
    with pytest.raises(ScriptError):
        load_script(write(tmp_path, script), clock=time.monotonic)
