"""UpdateConversation: what a mask reaches, what is refused, and that the rules run at once."""

from __future__ import annotations

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import said, sidecar


async def test_only_the_masked_fields_change(tmp_path):
    """The new settings may hold other fields."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(title="old", labels={"a": "1"}, overhead_tokens=7)
        await chat.append(said(1))

        answer = await chat.update(["title"], title="new", labels={"b": "2"}, overhead_tokens=9)

        settings = answer.conversation.settings
        assert (settings.title, dict(settings.labels), settings.overhead_tokens) == ("new", {"a": "1"}, 7)


async def test_a_masked_field_that_is_unset_goes_back_to_its_default(tmp_path):
    """Single policy fields, all of the policy, labels, and the context length."""
    async with sidecar(tmp_path, {"tokens.default_context_length": 4_096}) as s:
        chat = s.chat(labels={"a": "1"}, policy={"trigger_token_ratio": 0.9, "min_messages": 20})
        await chat.append(said(1))

        one = (await chat.update(["policy.trigger_token_ratio", "labels"])).conversation.settings
        assert not one.policy.HasField("trigger_token_ratio")
        assert one.policy.min_messages == 20
        assert not one.labels

        changed = (await chat.update(["policy", "context_length"])).conversation
        assert not changed.settings.policy.HasField("min_messages")
        assert changed.usage.context_length == 4_096
        assert changed.usage.context_length_source == conversation.CONTEXT_LENGTH_SOURCE_DEFAULT


async def test_a_mask_takes_the_names_of_json(tmp_path):
    """JSON writes a FieldMask in lowerCamelCase, and a client that passes one on does not translate it."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(overhead_tokens=7, policy={"trigger_token_ratio": 0.9, "min_messages": 20})
        await chat.append(said(1))

        settings = (
            await chat.update(["overheadTokens", "policy.minMessages"], overhead_tokens=9)
        ).conversation.settings

        assert settings.overhead_tokens == 9
        assert settings.policy.trigger_token_ratio == 0.9
        assert not settings.policy.HasField("min_messages")


async def test_a_star_replaces_every_setting(tmp_path):
    """Settings that the new ones leave unset go back to their defaults, as with each path by itself."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(title="old", labels={"a": "1"}, overhead_tokens=7, policy={"min_messages": 20})
        await chat.append(said(1))

        changed = (await chat.update(["*"], title="new", context_length=4_000)).conversation

        assert changed.settings == conversation.ConversationSettings(title="new", context_length=4_000)
        assert changed.usage.context_length == 4_000


@pytest.mark.parametrize(
    ("paths", "field"),
    [
        (["nothing"], "update_mask"),
        (["*", "title"], "update_mask"),
        (["title", "*"], "update_mask"),
        (["policy.nothing"], "update_mask"),
        (["title.nothing"], "update_mask"),
        (["labels.a"], "update_mask"),
        (["policy."], "update_mask"),
        (["policy.*"], "update_mask"),
        (["Title"], "update_mask"),
        ([""], "update_mask"),
        ([], "update_mask"),
    ],
)
async def test_a_mask_that_names_no_field_is_refused(tmp_path, paths, field):
    """The refusal writes nothing."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))

        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await chat.update(paths, title="new")

        assert list(refusal.fields) == [field]
        assert (await chat.state()).event_version == 2


async def test_the_rules_run_on_the_new_settings_at_once(tmp_path):
    """A smaller context length can trigger a pass, and the answer says so."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=10_000)
        await chat.talk(14)

        answer = await chat.update(["context_length"], context_length=2_000)

        assert answer.summarization.trigger == conversation.TRIGGER_RATIO
        assert answer.conversation.pending_summarization_id == answer.summarization.id
        assert (await chat.context(wait_s=PATIENCE_S)).compacted


async def test_the_same_settings_again_write_nothing(tmp_path):
    """Idempotent by nature."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))
        first = await chat.update(["title"], title="new")

        again = await chat.update(["title"], title="new")

        assert again.conversation.event_version == first.conversation.event_version == 3


async def test_a_stale_expected_version_is_refused(tmp_path):
    """The version counts messages here too."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))

        async with refused("ABORTED", "WRONG_EXPECTED_VERSION") as refusal:
            await s.conversations.UpdateConversation(
                api.UpdateConversationRequest(
                    conversation_id="c1", update_mask=FieldMask(paths=["title"]), expected_version=0
                )
            )

        assert refusal.metadata == {"expected": "0", "actual": "1"}


async def test_a_policy_field_that_the_operator_keeps_is_refused(tmp_path):
    """Updates refuse it, and so does the opening of a conversation; the field is named."""
    async with sidecar(tmp_path, {"client_policy_fields": ["min_messages"]}) as s:
        chat = s.chat()
        await chat.append(said(1))

        async with refused("INVALID_ARGUMENT", "INVALID_POLICY") as refusal:
            await chat.update(["policy.min_gain"], policy={"min_gain": 0.5})
        assert list(refusal.fields) == ["settings.policy.min_gain"]

        async with refused("INVALID_ARGUMENT", "INVALID_POLICY"):
            await s.chat("c2", policy={"min_gain": 0.5}).append(said(1))
        assert (await chat.update(["policy.min_messages"], policy={"min_messages": 3})).conversation


async def test_a_profile_is_set_where_the_operator_lets_clients_choose(tmp_path):
    """One that does not exist is refused by the contract, and any by an operator who says nothing; both by name."""
    chain = conversation.PROFILE_CHAIN
    async with sidecar(tmp_path, {"client_policy_fields": ["profile"]}) as s:
        answer = await s.chat(policy={"profile": chain}).append(said(1))
        assert (await s.chat().state()).settings.policy.profile == chain
        assert not answer.settings_ignored

        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await s.chat("c2", policy={"profile": 99}).append(said(1))
        assert list(refusal.fields) == ["settings.policy.profile"]

    async with sidecar(tmp_path) as s:
        async with refused("INVALID_ARGUMENT", "INVALID_POLICY") as refusal:
            await s.chat("c3", policy={"profile": chain}).append(said(1))
        assert list(refusal.fields) == ["settings.policy.profile"]


async def test_costly_policy_fields_are_the_operators_by_default(tmp_path):
    """A client cannot buy more model calls than the operator lets it."""
    async with sidecar(tmp_path) as s:
        for field, value in (("rebase_calls_max", 200), ("max_input_tokens", 1_000_000)):
            async with refused("INVALID_ARGUMENT", "INVALID_POLICY"):
                await s.chat(policy={field: value}).append(said(1))


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"reset_token_ratio": 0.9}, "reset_token_ratio"),
        ({"trigger_token_ratio": 0.6}, "reset_token_ratio"),
        ({"tail_token_ratio": 0.69}, "tail_token_ratio"),
        ({"emergency_token_ratio": 0.5}, "emergency_token_ratio"),
        ({"max_summary_tokens": 5}, "max_summary_tokens"),
    ],
)
async def test_a_policy_that_is_impossible_whatever_the_data_is_refused(tmp_path, policy, field):
    """The field is named, nothing is written, and the conversation goes on with its old policy."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))

        async with refused("INVALID_ARGUMENT", "INVALID_POLICY") as refusal:
            await chat.update([f"policy.{name}" for name in policy], policy=policy)

        assert list(refusal.fields) == [f"settings.policy.{field}"]
        assert (await chat.state()).event_version == 2


async def test_a_reserve_that_leaves_no_budget_is_refused(tmp_path):
    """Reserved output at or over the context length could never hold a message."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))

        async with refused("INVALID_ARGUMENT", "INVALID_POLICY") as refusal:
            await chat.update(["reserved_output_tokens"], reserved_output_tokens=2_000)

        assert list(refusal.fields) == ["settings.reserved_output_tokens"]


async def test_switching_summarization_off_stops_passes_at_once(tmp_path):
    """enabled=false is S1's master switch."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))
        await chat.update(["policy.enabled"], policy={"enabled": False})

        assert not (await chat.talk(20)).HasField("summarization")
        async with refused("FAILED_PRECONDITION", "SUMMARIZATION_DISABLED"):
            await chat.summarize()

        answer = await chat.update(["policy.enabled"], policy={"enabled": True})
        assert answer.HasField("summarization")


async def test_another_model_starts_with_its_own_calibration(tmp_path):
    """Usage reports of one model teach nothing of another."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(model="a")
        await chat.append(said(1, "word " * 400))
        window = await chat.context()
        tokens = window.usage.window_tokens
        await s.conversations.ReportUsage(
            api.ReportUsageRequest(conversation_id="c1", message_version=1, prompt_tokens=int(tokens * 1.5))
        )
        assert (await chat.state()).usage.calibration_factor > 1

        changed = await chat.update(["model"], model="b")

        assert changed.conversation.usage.calibration_factor == 1
