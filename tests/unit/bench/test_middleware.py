"""The policy of LangChain's middleware, on chats that are small enough to follow."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import Policy
from abridged.service.domain.render import RenderedMessage
from bench.middleware import KEPT, PROMPT_TOKENS, READ_TOKENS_MAX, SummarizationMiddleware, readable, safe_cut
from bench.player import played

BUDGET = 6_144


def rendered(role: Role, number: int, tokens: int = 1, *, calls: str = "", answers: str = "") -> RenderedMessage:
    made = tuple(ToolCall(call, "search", "{}") for call in calls)
    return RenderedMessage(Message(str(number), role, "text", tool_calls=made, tool_call_id=answers), number, tokens)


@pytest.mark.parametrize(("count", "place"), [(KEPT, 0), (KEPT + 1, 1), (KEPT + 7, 7)])
def test_the_newest_messages_stay(count, place):
    """A chat that has no more than these has no cut."""
    assert safe_cut([rendered(Role.USER, n) for n in range(count)]) == place


def test_a_cut_separates_no_call_from_its_results():
    """The cut moves before the call; a result whose call is not near may be cut off."""
    messages = [rendered(Role.USER, n) for n in range(KEPT + 4)]
    messages[2] = rendered(Role.ASSISTANT, 2, calls="ab")
    messages[3], messages[4] = rendered(Role.TOOL, 3, answers="a"), rendered(Role.TOOL, 4, answers="b")

    assert safe_cut(messages) == 2
    assert safe_cut([*messages[2:5], *[rendered(Role.USER, n) for n in range(KEPT + 5)], messages[4]]) == 9


def test_the_last_tokens_are_read_from_a_users_message_on():
    """The newest message alone may be too long; then nothing is read."""
    users, answer = [rendered(Role.USER, n, 1_500) for n in range(4)], rendered(Role.ASSISTANT, 9, 100)

    assert readable(users) == users[2:]
    assert readable([answer, *users[:2]]) == users[:2]
    assert not readable([*users, rendered(Role.USER, 5, READ_TOKENS_MAX + 1)])


async def test_a_summary_takes_the_place_of_all_but_the_newest_and_is_billed():
    """The prompts grow until they are too long, and the bill has what the summary's model read and wrote."""
    messages = [Message("s", Role.SYSTEM, "Be brief.")]
    messages += [Message(f"m{n}", Role.USER, f"The order {n} of Weber goes to Bern. " * 12) for n in range(45)]
    summaries: list[tuple[str, int, int]] = []
    middleware = SummarizationMiddleware(BUDGET, lambda *summary: summaries.append(summary))
    prompts: list[list[RenderedMessage]] = []

    await played(
        [("a", messages)],
        context_length=BUDGET,
        policy=Policy(enabled=False),
        on_window=lambda name, _, state: prompts.append([*middleware.before_model(name, state)]),
    )

    first = next(n for n, prompt in enumerate(prompts) if prompt[-1].number > len(prompt))
    assert [m.number for m in prompts[first]] == [1, 0, *range(first - KEPT + 2, first + 2)]
    assert sum(m.tokens for m in prompts[first - 1][1:]) < 4_000 <= sum(m.tokens for m in prompts[first - 1][1:]) + 200
    assert "Here is a summary" in prompts[first][1].message.content
    asked = sum(m.tokens for m in prompts[first - 1][1 : 1 + first - KEPT])
    name, read, written = summaries[0]
    assert (name, read) == ("a", PROMPT_TOKENS + asked)
    assert written == pytest.approx(prompts[first][1].tokens, abs=15)
    assert prompts[first + 1][:-1] == prompts[first]
