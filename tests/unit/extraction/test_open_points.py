"""A point is open when words of its speaker, or of a replier, leave it open, and until a statement closes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.record import MessageRange, RecordContext, RecordEvidence
from abridged.service.extraction.extract import Extract, extract
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.extracts import record_of
from tests.unit.extraction.corpora import said

COUNT = EstimatingCounter().count
BEFORE = ("user: The harbour archive moves in May.", "assistant: I have put the removal firm into the calendar.")
AFTER = ("user: Then the shelves of the reading room come next.", "assistant: They are 2.40 m high, eleven of them.")


def open_points(*lines: str, after: tuple[str, ...] = AFTER) -> tuple[str, ...]:
    return extract(
        said(*BEFORE, *lines, *after), previous=None, tokens_max=2_000, count_tokens=COUNT
    ).context.unresolved


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("Who pays for the northern crane?", "I can't tell from here. I've put it on your list."),
        ("Wer bezahlt den Kran am Nordpier?", "Das kann ich nicht beurteilen, ich notiere es als offene Frage."),
        ("¿Quién paga la grúa del muelle norte?", "No lo sé, lo dejo pendiente."),
        ("Qui paie la grue du quai nord ?", "Aucune idée, je le laisse en suspens."),
        ("Chi paga la gru del molo nord?", "Non lo so, la lascio in sospeso."),
        ("Quem paga o guindaste do cais norte?", "Não sei dizer, deixo em aberto."),
        ("Kto płaci za dźwig na północnym nabrzeżu?", "Nie wiem, zapisuję to jako otwarte pytanie."),
        ("Wie betaalt de kraan op de noordkade?", "Dat weet ik niet, ik noteer het."),
        ("Кто платит за кран на северном причале?", "Не знаю, оставлю под вопросом."),
        ("北の埠頭のクレーン代は誰が払いますか？", "わかりません。確認事項として残しておきます。"),
        ("北码头的吊机谁付钱？", "这个我查不到，先列入待办。"),
        ("북쪽 부두의 크레인 비용은 누가 내나요?", "아직 정해지지 않았습니다. 목록에 남겨 두겠습니다."),
        ("What is the deposit for the northern hall?", "I found nothing."),
        ("What is the deposit for the northern hall?", "Nothing was decided."),
        ("Qui paie la grue du quai nord ?", "Il faut que la banque confirme."),
        ("Qui paie la grue du quai nord ?", "Faut qu'il réponde d'abord."),
    ],
)
def test_a_question_that_the_reply_leaves_open_is_open(question: str, reply: str) -> None:
    """The point is verbatim, as it was asked, in every language with phrases."""
    assert open_points(f"user: {question}", f"assistant: {reply}") == (f"user: {question}",)


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("Who pays for the northern crane?", "The port authority does, 4,200 EUR a day."),
        ("Wer bezahlt den Kran am Nordpier?", "Die Hafenverwaltung, 4.200 Euro am Tag."),
        ("Quem paga o guindaste do cais norte?", "A autoridade portuária, 4.200 euros por dia."),
        ("北码头的吊机谁付钱？", "港务局付，每天4200欧元。"),
    ],
)
def test_a_question_that_is_answered_is_not_open(question: str, reply: str) -> None:
    """The reply says who."""
    assert open_points(f"user: {question}", f"assistant: {reply}") == ()


@pytest.mark.parametrize(
    "lines",
    [
        (
            "assistant: Is a figure of the crane wrong?",
            "user: The load. Ines says two crates more, so 33 crates, and we will see about their weight.",
        ),
        ("assistant: Is the crane booked, or are we still waiting for the port?", "user: Booked, by mail."),
        ("user: We take the crane of the pier, that's what the port has.", "assistant: Fine, I'll check its key."),
        ("user: Does that explain the noise of the crane?", "assistant: Very likely. I've noted a new bearing."),
        (
            "user: The port authority pays for the northern crane.",
            "assistant: Noted. The open question is closed.",
        ),
        ("user: What failed on the northern crane?", "assistant: Its brake. The rope has nothing to do with it."),
    ],
)
def test_a_matter_of_which_the_reply_says_more_is_not_open(lines: tuple[str, ...]) -> None:
    """A figure answers; nobody asked for a next step; a note after an answer leaves nothing open."""
    assert open_points(*lines) == ()


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("Which tariff do we take for the northern hall?", "No idea yet, I'll ask Ines on 12 May."),
        ("Does the insurance cover the northern crane?", "Nobody knows, we asked twice in 2024."),
        ("Wer unterschreibt den Vertrag für den Saal?", "Keine Ahnung, das klären die 4 Eigentümer noch."),
        ("¿Quién firma el contrato de la sala norte?", "Ni idea todavía, lo veremos el 12 de mayo."),
    ],
)
def test_a_number_after_the_words_that_leave_a_matter_open_answers_nothing(question: str, reply: str) -> None:
    """The reply has no answer before it."""
    assert open_points(f"assistant: {question}", f"user: {reply}") == (f"assistant: {question}",)


@pytest.mark.parametrize(
    ("question", "reply", "then", "is_open"),
    [
        (
            "How large was the image before?",
            "It was 131 MB. Shall I drop the zones?",
            "Let's leave that for now.",
            False,
        ),
        ("之前的镜像是多少？", "之前是 131MB，多出来的是 tzdata。", "不折腾了，先放着。", False),
        ("Does the image of 131 MB still fit?", "The 131 MB, you mean.", "I don't know, let's see later.", True),
        ("Who signs for the crate?", "Did you mean the one of 9:30?", "I don't know, let's see later.", True),
        ("Who signs for the landlord?", "Mr. Abbot signs for the landlord.", "I have to ask the bank.", False),
        ("Wer gießt die Rosen am Zaun?", "Rosen am Zaun gießt Herr Thiele.", "Ich muss noch fragen, wann.", False),
        ("Who signs for the landlord?", "Nobody knows who signs for the landlord.", "I'll have to ask.", True),
        ("Will the bank pay it out? I'd have to ask them.", "Their number is 0621 4417.", "Thank you.", True),
    ],
)
def test_a_reply_answers_with_a_number_or_the_words_of_its_question(
    question: str, reply: str, then: str, is_open: bool
) -> None:
    """The proposal of the reply is put off, not the question; a number of the question answers nothing."""
    points = open_points(f"user: {question}", f"assistant: {reply}", f"user: {then}")

    assert any(question.startswith(point.removeprefix("user: ")) for point in points) is is_open


def test_a_number_does_not_answer_a_proposal() -> None:
    """Only a question has an answer."""
    proposal = "I'd suggest a second guard for the northern pier."

    points = open_points(f"assistant: {proposal}", "user: Priya comes at 9:30. That can wait.")

    assert points == (f"assistant: {proposal}",)


def test_a_next_step_does_not_say_whether_something_is_still_open() -> None:
    """A reply that begins with the answer does."""
    question = "assistant: Is the northern crane approved, or is that still open?"

    assert open_points(question, "user: I'll look at it tomorrow.") == (question,)
    assert open_points(question, "user: Approved for 33 days, we will see about more.") == ()


def test_two_proposals_that_a_reply_puts_off_are_two_points() -> None:
    """Each names a matter of its own."""
    cabinet = "I suggest a second lock for the map cabinet."
    shed = "I suggest a new roof for the boat shed."

    points = open_points(f"assistant: {cabinet} {shed}", "user: Let me think about both. What's next?")

    assert set(points) == {f"assistant: {shed}", f"assistant: {cabinet}"}


def test_what_a_model_proposes_and_a_reply_puts_off_is_one_point() -> None:
    """The sentence that tells most stands for all; those that put it off are no points of their own."""
    proposal = "I suggest a second lock for the map cabinet of the reading room."
    lines = (
        f"assistant: I suggest a lock. {proposal}",
        "user: Let me think about it. What's next?",
        "assistant: I'll leave that open then.",
    )

    assert open_points(*lines) == (f"assistant: {proposal}",)


@pytest.mark.parametrize(
    "lines",
    [
        (
            "user: Who pays for the northern crane? I'd have to ask the port authority.",
            "assistant: The lease is silent.",
        ),
        ("user: Whether the lift holds the map cabinet, nobody knows yet.", "assistant: It is a heavy cabinet."),
        ("user: Ob der Aufzug den Kartenschrank trägt, müsste man testen.", "assistant: Er ist schwer."),
        ("assistant: I would suggest a second lock for the map cabinet.", "user: Let me think about it. What's next?"),
    ],
)
def test_a_matter_that_its_speaker_leaves_open_is_open(lines: tuple[str, ...]) -> None:
    """The speaker may do so in the same breath, in the same sentence, or as a proposal that has to wait."""
    (point,) = open_points(*lines)

    assert point in {f"{lines[0].split('? ')[0]}?", lines[0]}


def test_an_open_point_is_closed_by_a_later_statement_about_it() -> None:
    """A statement that shares a word or two with it does not close it."""
    asked = ("user: Who pays for the northern crane this spring?", "assistant: I don't know, it stays open.")
    near = ("user: The northern shelves are dusty.", "assistant: I have ordered brushes for spring cleaning.")
    closing = ("user: The port authority pays for the northern crane this spring.", "assistant: Noted.")

    assert open_points(*asked, after=near) == (asked[0],)
    assert open_points(*asked, after=(*near, *closing)) == ()


def test_a_carried_point_stays_open_until_it_is_closed() -> None:
    """Any reply settles a question that was asked last; of an older one, the reply is past, and it needs an answer."""
    point = "user: Who pays for the northern crane this spring?"
    record = replace(
        record_of(Extract("The archive moves.", (), RecordContext(unresolved=(point,)))), covered=(MessageRange(1, 9),)
    )

    def still(number: int, *lines: str) -> tuple[str, ...]:
        earlier = replace(record, evidence=RecordEvidence(unresolved=((number,),)))
        extracted = extract(
            said(*lines), previous=earlier, tokens_max=2_000, count_tokens=COUNT, numbers=range(10, 10 + len(lines))
        )
        return extracted.context.unresolved

    other = ("assistant: The shelves arrive on Monday.", "user: They go into the reading room.")
    answer = "assistant: The port authority pays for the northern crane this spring."

    assert still(3, *other) == (point,)
    assert still(9, *other) == ()
    assert still(3, *other, answer) == ()


def test_points_of_people_come_before_those_of_a_model_and_newer_ones_before_older_ones() -> None:
    """A room that is too small for all of them loses the model's first."""
    lines = (
        "user: Who pays for the northern crane?", "assistant: I can't tell, it stays open.",
        "user: Fine. And the maps?", "assistant: I would suggest a second lock for the map cabinet.",
        "user: Let me think about it. Where do the glass plates go?", "assistant: No idea, I'll note it as a question.",
    )  # fmt: skip

    assert open_points(*lines) == (
        "user: Where do the glass plates go?",
        "user: Who pays for the northern crane?",
        "assistant: I would suggest a second lock for the map cabinet.",
    )
