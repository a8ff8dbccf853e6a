"""Messages that a prompt leaves out, and above all those it does not: any that may be an answer stays."""

from __future__ import annotations

import pytest

from abridged.service.domain.mechanical import is_mechanical
from abridged.service.domain.message import Attachment, Message, Role, ToolCall

TOLD = Message("b", Role.ASSISTANT, "The order was sent on Monday.")


def says(content: str, role: Role = Role.USER) -> Message:
    return Message("m", role, content)


@pytest.mark.parametrize(
    "content",
    [
        "",
        " \n",
        "...",
        "\u200b",
        "—",
        "Thanks!",
        "thank  you.",
        "THX",
        "Danke schön!",
        "Merci beaucoup.",
        "¡Gracias!",
        "Спасибо!",
        "شكرا",
        "धन्यवाद",
        "谢谢\uff01",
        "ありがとうございます。",
        "감사합니다",
        "ขอบคุณครับ",
        "Ευχαριστώ.",
    ],
)
def test_thanks_and_mere_punctuation_are_mechanical_in_any_script(content):
    """Both sides may say them, behind a message that asks nothing."""
    assert is_mechanical(says(content), TOLD)
    assert is_mechanical(says(content, Role.ASSISTANT), TOLD)


@pytest.mark.parametrize(
    "content", ["Understood.", "OK", "You\u2019re welcome!", "Verstanden.", "了解しました。", "好的"]
)
def test_an_acknowledgement_is_mechanical_of_the_assistant_alone(content):
    """A user's acknowledgement may settle a proposal."""
    assert is_mechanical(says(content, Role.ASSISTANT), says("The limit is 40."))
    assert not is_mechanical(says(content), TOLD)


@pytest.mark.parametrize(
    "content",
    [
        "yes",
        "no",
        "ok, thanks",
        "Thanks, but no.",
        "thanks for 42",
        "👍",
        "Thanks 👍",
        "?",
        "17",
        "x",
        "да",
        "はい",
        "Thanks to Ann it is fixed.",
        "+1",
        "thanks " * 20,
    ],
)
def test_whatever_may_be_an_answer_is_not_mechanical(content):
    """Words beside the thanks, numbers, emojis, consent and refusal."""
    assert not is_mechanical(says(content), TOLD)


@pytest.mark.parametrize(
    "before",
    [
        "Shall I book it?",
        "Shall I? Or not.",
        "你要吗\uff1f",
        "هل أحذفه؟",
        "Σβήνω;",
        "Okay\N{INTERROBANG}",
    ],
)
def test_nothing_is_mechanical_behind_a_question(before):
    """Thanks may mean yes there, in any script of the question."""
    assert not is_mechanical(says("Thanks!"), says(before, Role.ASSISTANT))


def test_nothing_but_emptiness_is_mechanical_where_nothing_is_known():
    """Earlier messages may be covered by another record; and parts that come with a message are something."""
    assert not is_mechanical(says("Thanks!"), None)
    assert is_mechanical(says(" "), None)
    assert not is_mechanical(Message("m", Role.USER, attachments=(Attachment("file:a"),)), TOLD)
    assert not is_mechanical(Message("m", Role.ASSISTANT, tool_calls=(ToolCall("a", "search"),)), TOLD)
    assert not is_mechanical(Message("m", Role.TOOL, "ok", tool_call_id="a"), TOLD)
    assert not is_mechanical(says("Thanks.", Role.SYSTEM), TOLD)
