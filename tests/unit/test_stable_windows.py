"""Windows grow at their end between two passes, in every form; all other changes are named and counted here."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest

from abridged.service.api.sent_window import sent_window
from abridged.service.codec.values import message_to_proto
from abridged.service.conversations.cache import NOTHING_SENT, Sent
from abridged.service.conversations.prefixes import DIGEST_BYTES, ResponseForm, segment_digest
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.render import rendered_window
from abridged.service.domain.render_json import Rendering, render_json
from tests.support.simulation import SimulatedChat

SEEDS = range(150)
GROWN = "grown at its end"
EXCEPTIONS = ("a late result joins its call", "a call without a result is quoted", "a system message joins the first")


@pytest.fixture(scope="module")
def windows() -> list[tuple[Conversation, Conversation]]:
    """Windows of random chats of tools, and each after the next append, in one epoch."""
    return [
        (step.before, step.after)
        for seed in SEEDS
        for step in SimulatedChat(seed).steps()
        if step.before.is_open and step.after.epoch == step.before.epoch and step.after != step.before
    ]


def exception(before: Conversation, after: Conversation) -> str:
    """Why a window may have changed before its end; empty if it may not. Looks at the appended messages alone."""
    old = [m.message for m in before.window]
    new = [m.message for m in after.window if m.number > before.message_version]
    if any(m.role is Role.SYSTEM for m in new):
        return EXCEPTIONS[2]
    talk = [m for m in old if m.role is not Role.SYSTEM]
    speakers = [place for place, m in enumerate(talk) if m.role is not Role.TOOL]
    calls = [(place, call.id) for place, m in enumerate(talk) for call in m.tool_calls]
    if not calls:
        return ""
    if any(m.role is Role.TOOL and any(m.tool_call_id == i and at < speakers[-1] for at, i in calls) for m in new):
        return EXCEPTIONS[0]
    waiting: Counter[str] = Counter()
    for m in talk:
        waiting.update(call.id for call in m.tool_calls)
        waiting[m.tool_call_id] -= waiting[m.tool_call_id] > 0
    # A result without its call is sent as what the user says.
    return EXCEPTIONS[1] if +waiting and any(waiting[m.tool_call_id] <= 0 for m in new) else ""


def messages_of(state: Conversation) -> list[Message]:
    return [m.message for m in rendered_window(state, SummaryRole.USER)]


def contract_bytes(state: Conversation) -> bytes:
    return b"".join(message_to_proto(m).SerializeToString(deterministic=True) for m in messages_of(state))


def json_bytes(state: Conversation, rendering: Rendering) -> bytes:
    """A rendering up to its closing brackets."""
    return render_json(messages_of(state), rendering).text().rstrip("]}").encode()


@pytest.mark.parametrize("rendering", [None, *Rendering])
def test_every_form_of_a_window_is_the_start_of_the_next_but_for_three_exceptions(windows, rendering):
    """Each exception happens; nothing else does."""
    seen: Counter[str] = Counter()
    for before, after in windows:
        one, other = (contract_bytes(s) if rendering is None else json_bytes(s, rendering) for s in (before, after))
        if other.startswith(one):
            seen[GROWN] += 1
            continue
        why = exception(before, after)
        assert why, (messages_of(before), messages_of(after))
        seen[why] += 1
    sys.stdout.write(f"\n{rendering or 'contract'}: {dict(seen)}\n")
    assert set(seen) == {GROWN, *EXCEPTIONS}
    assert seen[GROWN] > 0.7 * seen.total()


def same_start(one: Sequence[Any], other: Sequence[Any]) -> int:
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))])


@pytest.mark.parametrize("rendering", list(Rendering))
def test_what_is_called_stable_in_a_rendering_is_what_is_the_same_in_the_requests(rendering):
    """Entry by entry as a client parses them, across passes and exceptions too."""
    form = ResponseForm(SummaryRole.USER, rendering)
    for seed in SEEDS[:40]:
        sent = NOTHING_SENT.prefixes
        body: dict[str, Any] = {}
        for step in SimulatedChat(seed).steps():
            made = render_json(messages_of(step.after), rendering)
            digests = b"".join(segment_digest(entry.text.encode()) for entry in made.entries)
            now = json.loads(made.text())
            stable = sent.stable(form, digests) - len(made.system)
            same_system = now.get("system") == body.get("system")
            assert max(0, stable) == (same_start(body.get("messages", []), now["messages"]) if same_system else 0)
            sent, body = sent.after(form, digests), now


def test_what_is_called_stable_in_the_contract_is_what_is_the_same_in_its_bytes():
    """Message by message, across passes and exceptions too."""
    form = ResponseForm(SummaryRole.USER)
    for seed in SEEDS[:40]:
        sent: Sent = NOTHING_SENT
        before: list[bytes] = []
        for step in SimulatedChat(seed).steps():
            window = sent_window(step.after, SummaryRole.USER, sent)
            now = [message_to_proto(m).SerializeToString(deterministic=True) for m in messages_of(step.after)]
            assert sent.prefixes.stable(form, window.digests) == same_start(before, now)
            assert len(window.digests) == DIGEST_BYTES * len(now)
            sent, before = window.after(sent.prefixes.after(form, window.digests)), now


def test_half_a_surrogate_pair_changes_the_escapes_of_its_own_message_alone():
    """Messages sent before it keep their bytes."""
    told = Message("m1", Role.USER, "Grüße")
    broken = Message("m2", Role.USER, '{"s": "\\ud800"}')
    for rendering in Rendering:
        one, other = (render_json(m, rendering).text().rstrip("]}") for m in ([told], [told, broken]))
        assert other.startswith(one)
