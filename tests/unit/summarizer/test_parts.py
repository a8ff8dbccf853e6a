"""The parts of a source that is too long for one call."""

from __future__ import annotations

import json

from abridged.service.domain.material import read_text
from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import FormName
from abridged.service.summarizer.forms import FORMS
from abridged.service.summarizer.questions import Questions
from abridged.service.summarizer.summarizer import WindowCost
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.summarizers import work_on
from tests.support.texts import document

COUNTER = EstimatingCounter()


def test_a_piece_of_a_long_message_is_judged_by_itself():
    """The whole message would cost its length once for each part, and every part would have to speak of all of it."""
    text = document(120)
    work = work_on([Message("m1", Role.USER, "Please read this."), Message("m2", Role.USER, text)])
    questions = Questions(
        work, FORMS[FormName.FACETS], cost=WindowCost(work, COUNTER), counter=COUNTER, window_tokens=4_096
    )

    parts = questions.parts(questions.limits())

    judged = [sum(COUNTER.count(m.message.content) for m in part.messages) for part in parts]
    assert len(parts) > 2
    assert sum(judged) < 1.1 * COUNTER.count(text)
    assert "".join(m.message.content for part in parts for m in part.messages if m.number == 2).endswith(text)
    assert parts[0].messages[0] is work.messages[0]


def test_a_piece_of_a_long_document_is_judged_by_itself():
    """The pieces have its text, so that its blocks would say it once more for each of them."""
    text = document(120)
    block = json.dumps({"type": "search_result", "content": [{"type": "text", "text": text}]})
    message = Message("m1", Role.USER, extra_json=f'{{"api":"anthropic","body":[{block}]}}')
    work = work_on([message])
    questions = Questions(
        work, FORMS[FormName.FACETS], cost=WindowCost(work, COUNTER), counter=COUNTER, window_tokens=4_096
    )

    parts = questions.parts(questions.limits())

    judged = [sum(COUNTER.count(read_text(m.message)) for m in part.messages) for part in parts]
    assert len(parts) > 2
    assert COUNTER.count(text) <= sum(judged) < 1.1 * COUNTER.count(text)


def test_a_merged_draft_rests_on_messages_that_its_parts_do_not_name():
    """Partial summaries have no numbers; the messages of the whole source have."""
    said = ("Please read this.", "The parser stays pinned to 3.3.9.")
    work = work_on([Message(f"m{n}", Role.USER, text) for n, text in enumerate(said, 1)])
    questions = Questions(
        work, FORMS[FormName.FACETS], cost=WindowCost(work, COUNTER), counter=COUNTER, window_tokens=4_096
    )

    for last in (False, True):
        _, source = questions.of_merge(["The parser was pinned."], questions.room(), last=last)

        assert source.concordance.support("The parser is pinned to 3.3.9.").numbers == (2,)
