"""The list of models: who answers, and which failures move on."""

from __future__ import annotations

import time

import pytest

from abridged.service.models.model import (
    Completion,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
    SummaryModel,
)
from abridged.service.models.preference import PreferredModel
from abridged.service.models.scripted.model import ScriptedModel
from tests.support.ollama_model import record_request
from tests.support.patience import PATIENCE_S


def scripted(name, *steps, context_length=8_192) -> ScriptedModel:
    return ScriptedModel(steps, clock=time.monotonic, name=f"scripted:{name}", context_length=context_length)


async def ask(model: SummaryModel) -> Completion:
    return await model.complete(record_request(), deadline_s=PATIENCE_S, on_progress=lambda _chars: None)


async def test_a_missing_model_moves_on_to_the_next():
    """The first model that exists answers, and the completion says which."""
    model = PreferredModel([scripted("big", ModelMissing("no")), scripted("small", "answer")])

    completion = await ask(model)

    assert (completion.text, completion.model) == ("answer", "scripted:small")
    assert model.name == "scripted:big"


@pytest.mark.parametrize("error", [ModelUnavailable("down"), ModelRefused("no"), PromptTruncated("cut")])
async def test_only_a_missing_model_moves_on(error):
    """A model that is there but fails is not replaced by the next."""
    second = scripted("small", "answer")

    with pytest.raises(type(error)):
        await ask(PreferredModel([scripted("big", error), second]))

    assert second.asked == 0


async def test_no_model_at_all_is_a_missing_model_that_names_them():
    """The operator reads which models to pull."""
    model = PreferredModel([scripted("big", ModelMissing("no")), scripted("small", ModelMissing("no"))])

    with pytest.raises(ModelMissing, match="scripted:big, scripted:small"):
        await ask(model)


async def test_the_description_is_that_of_the_model_that_would_answer():
    """A missing first model does not hide the window of the second."""

    class Missing(ScriptedModel):
        async def describe(self):
            raise ModelMissing("no")

    model = PreferredModel([Missing(["x"], clock=time.monotonic), scripted("small", "x", context_length=2_048)])

    assert (await model.describe()).window == 2_048
