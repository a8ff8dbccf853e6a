"""Standing rules over the whole path: found, shown in the window, listed, taken back, dropped and watched."""

from __future__ import annotations

from typing import Any

import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.summary_pb2 import (
    RULE_STATE_DROPPED,
    RULE_STATE_REVOKED,
    RULE_STATE_STANDING,
    RULE_STATE_TENTATIVE,
    Rule,
)
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import Chat, said, sidecar

RULE = "Please never send the customers a mail without asking me first."
OTHER = "From now on write all dates in the form 2024-03-05."
TAKEN_BACK = "You can send the customers mails directly again now."
ACCEPTED = "Understood, I will keep to it."


async def ruled(chat: Chat) -> None:
    """Append two rules, each accepted, and turns until a pass has taken them out of the window."""
    await chat.append(said(1, RULE), said(2, ACCEPTED), said(3, OTHER), said(4, ACCEPTED))
    await chat.talk(30, wait_s=PATIENCE_S)


async def asked(chat: Chat, method: str, **fields: Any) -> Any:
    """The answer of a ConversationService method about this chat."""
    request = getattr(api, f"{method}Request")(conversation_id=chat.id, **fields)
    return await getattr(chat.sidecar.conversations, method)(request, timeout=PATIENCE_S)


async def listed(chat: Chat) -> list[Rule]:
    """The rules, newest first."""
    return list((await asked(chat, "ListRules")).rules)


async def summary(chat: Chat) -> list[str]:
    """The lines of the window's summary."""
    (found,) = [m for m in (await chat.context()).messages if m.tag]
    return list(found.message.content.splitlines())


async def test_rules_that_left_the_window_are_shown_in_it(tmp_path):
    """Each as it was said, with its message; the window's tokens say so."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await ruled(chat)

        lines = await summary(chat)
        place = lines.index("Standing rules to follow, as said:")
        assert lines[place + 1 : place + 3] == [f"- {RULE} [1]", f"- {OTHER} [3]"]
        assert [(r.text, r.number, r.state, r.shown, r.in_window) for r in await listed(chat)] == [
            (OTHER, 3, RULE_STATE_STANDING, True, False),
            (RULE, 1, RULE_STATE_STANDING, True, False),
        ]
        context = await chat.context()
        assert sum(m.tokens for m in context.messages) == context.usage.window_tokens


async def test_rules_are_listed_before_any_pass_and_page_by_page(tmp_path):
    """The rules are of messages that the window has."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1, RULE), said(2, ACCEPTED), said(3, OTHER), said(4, ACCEPTED))

        first = await asked(chat, "ListRules", page_size=1)
        second = await asked(chat, "ListRules", page_size=1, page_token=first.next_page_token)
        assert [(r.number, r.in_window, r.shown) for r in (*first.rules, *second.rules)] == [
            (3, True, False),
            (1, True, False),
        ]
        assert second.next_page_token == ""


async def test_a_tentative_rule_is_quoted_behind_the_others_and_can_be_dropped(tmp_path):
    """A watcher sees how far it is from a rule."""
    perhaps = "Nothing before ten in the morning, please."
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1, f"{RULE} {perhaps}"), said(2, ACCEPTED))
        await chat.talk(30, wait_s=PATIENCE_S)

        lines = await summary(chat)
        place = lines.index("Said by the user, perhaps as rules:")
        assert lines[place - 1 : place + 2] == [f"- {RULE} [1]", lines[place], f"- {perhaps} [1]"]
        assert [(r.text, r.state, r.shown) for r in await listed(chat)] == [
            (perhaps, RULE_STATE_TENTATIVE, True),
            (RULE, RULE_STATE_STANDING, True),
        ]
        found = [rule for event in await chat.events("SummarizationCompleted") for rule in event.rules.rules]
        assert [(rule.text, rule.doubt > 0) for rule in found] == [(RULE, False), (perhaps, True)]

        await asked(chat, "DropRules", number=1, text=perhaps)
        assert lines[place] not in await summary(chat)
        assert f"- {RULE} [1]" in await summary(chat)


async def test_a_value_that_is_replaced_ends_the_tentative_rule_that_says_it(tmp_path):
    """The sentence would give the old value without a mark."""
    perhaps = "Nothing after 14 March, please."
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1, perhaps), said(2, ACCEPTED))
        await chat.append(said(3, "The deadline is 21 March now instead of 14 March."), said(4, ACCEPTED))
        await chat.talk(30, wait_s=PATIENCE_S)

        assert [(r.text, r.state, r.revoked_by) for r in await listed(chat)] == [(perhaps, RULE_STATE_REVOKED, 3)]


async def test_a_rule_that_is_taken_back_leaves_the_window_with_the_next_pass(tmp_path):
    """The rule's message, and the one that took it back, are named for ever."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await ruled(chat)
        await chat.append(said(35, TAKEN_BACK), said(36, ACCEPTED))

        assert [(r.number, r.state, r.revoked_by) for r in await listed(chat)] == [
            (3, RULE_STATE_STANDING, 0),
            (1, RULE_STATE_REVOKED, 35),
        ]
        await chat.talk(30, wait_s=PATIENCE_S)
        assert f"- {RULE} [1]" not in await summary(chat)
        assert f"- {OTHER} [3]" in await summary(chat)
        (event,) = [e for e in await chat.events("SummarizationCompleted") if e.rules.revoked]
        assert [(one.text, one.number, one.revoked_by) for one in event.rules.revoked] == [(RULE, 1, 35)]


async def test_a_dropped_rule_leaves_the_window_at_once(tmp_path):
    """A repeat drops nothing, and the other rule stays."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await ruled(chat)
        before = await chat.context()

        for _ in range(2):
            answer = await asked(chat, "DropRules", number=1)
            assert [(r.text, r.state, r.shown) for r in answer.rules] == [(RULE, RULE_STATE_DROPPED, False)]
        after = await chat.context()

        assert f"- {RULE} [1]" not in await summary(chat)
        assert f"- {OTHER} [3]" in await summary(chat)
        assert after.usage.window_tokens < before.usage.window_tokens
        assert after.epoch > before.epoch
        (event,) = await chat.events("RulesDropped")
        assert [(one.number, one.text) for one in event.rules] == [(1, RULE)]


async def test_a_rule_that_is_dropped_in_the_window_is_not_shown_later(tmp_path):
    """The message stays as it is."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1, RULE), said(2, ACCEPTED), said(3, OTHER), said(4, ACCEPTED))
        await asked(chat, "DropRules", number=1, text=RULE)
        await chat.talk(30, wait_s=PATIENCE_S)

        lines = await summary(chat)
        assert f"- {RULE} [1]" not in lines
        assert f"- {OTHER} [3]" in lines


async def test_what_is_no_rule_is_not_dropped(tmp_path):
    """The call names a message without a rule, or a text that the message does not have."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1, RULE), said(2, ACCEPTED))

        for fields in ({"number": 2}, {"number": 1, "text": OTHER}):
            async with refused("NOT_FOUND", "RULE_NOT_FOUND"):
                await asked(chat, "DropRules", **fields)
        async with refused("NOT_FOUND", "MESSAGE_NOT_FOUND"):
            await asked(chat, "DropRules", number=9)


async def test_a_pinned_rule_stands_in_its_message(tmp_path):
    """The rule is not shown twice, and is shown again when it is unpinned."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await ruled(chat)
        await asked(chat, "PinMessages", numbers=[1])

        assert f"- {RULE} [1]" not in await summary(chat)
        assert [(r.number, r.pinned, r.in_window) for r in await listed(chat)] == [(3, False, False), (1, True, True)]
        await asked(chat, "UnpinMessages", numbers=[1])
        assert f"- {RULE} [1]" in await summary(chat)


async def test_a_rewind_takes_its_rules_along(tmp_path):
    """The records that showed them go, too."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await ruled(chat)
        await asked(chat, "RewindConversation", to_version=2)

        assert [(r.number, r.in_window) for r in await listed(chat)] == [(1, True)]


async def test_rules_survive_a_restart(tmp_path):
    """The log has them; nothing is read again."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await ruled(chat)
        before = await summary(chat)
    async with sidecar(tmp_path) as s:
        assert await summary(s.chat()) == before


@pytest.mark.parametrize("ratio", [0.0, 0.1])
async def test_a_policy_without_room_for_rules_shows_none(tmp_path, ratio):
    """They are switched off by it, and on by another pass."""
    async with sidecar(tmp_path, {"policy.rules_token_ratio": ratio}) as s:
        chat = s.chat()
        await ruled(chat)

        assert ("Standing rules to follow, as said:" in await summary(chat)) is bool(ratio)
