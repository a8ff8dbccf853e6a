"""The scripted provider: steps, files, and its default record."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from service.domain.message import Message, Role
from service.domain.record import DOMAIN_ENTITIES_MAX, KEY_POINTS_MAX
from service.models.model import (
    Completion,
    Material,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
    SummaryModel,
)
from service.models.scripted import ScriptedModel, ScriptError, load_script
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
    messages = tuple(
        Message(str(n), Role.USER, f"Step {n}: ticket ABC-{n} moved to host-{n}.internal.", f"user{n}")
        for n in range(1_000)
    )
    model = load_script("default", clock=time.monotonic)

    text = (await ask(model, material=Material(messages=messages), summary_tokens_max=400)).text

    record = json.loads(text)
    assert len(text) < 400 * 4
    assert 0 < len(record["key_points"]) <= KEY_POINTS_MAX
    assert 0 < len(record["domain_entities"]) <= DOMAIN_ENTITIES_MAX


async def test_the_default_record_merges_texts():
    """Merging keeps the identifiers of what is merged."""
    material = Material(merge=("The import failed with E4031.", "Then host-7.internal was replaced."))

    record = json.loads((await ask(load_script("default", clock=time.monotonic), material=material)).text)

    assert {"E4031", "host-7.internal"} <= set(record["domain_entities"])


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
