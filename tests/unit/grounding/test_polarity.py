"""Statements that deny their source, or affirm what their source denies."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.grounding.polarity import contradicting
from abridged.service.grounding.support import concordance_of


def against(statement: str, *said: str) -> tuple[int, ...] | None:
    index = concordance_of((n, Message(f"m{n}", Role.USER, text)) for n, text in enumerate(said, 1))
    return contradicting(statement, index.support(statement), index)


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        ("Finance did not approve the travel budget.", "Finance approved the travel budget."),
        ("Finance approved the travel budget.", "Finance did not approve the travel budget."),
        ("The reviewers rejected the caching proposal.", "The reviewers approved the caching proposal."),
        ("Wir genehmigen das Budget nicht.", "Das Budget wird genehmigt."),
        ("Do not schedule the standup before 10:00.", "Schedule the standup before 10:00."),
        ("Please don't merge the payment branch until QA signs off.", "Merge the payment branch before QA signs off."),
        ("Store the invoices in plain text, not in a database.", "Store the invoices in a database."),
        ("財務部は予算を承認しませんでした。", "財務部は予算を承認した。"),
        ("Never restart the ledger database yourself.", "The assistant may restart the ledger database on its own."),
        ("Starte bitte nie selbst die Datenbank neu.", "Der Assistent darf die Datenbank selbst neu starten."),
        ("ログにはカード番号を出さないでください。", "ログにカード番号を出してよい。"),
        ("Ask me first if the billing config changes.", "The assistant may change the billing config."),
        ("We keep the red banner on the start page.", "The red banner on the start page was dropped."),
        ("Das rote Banner der Startseite bleibt.", "Auf das rote Banner der Startseite wird verzichtet."),
        ("Use the blue banner instead of the red logo.", "The red logo is used."),
        ("Die Rechnung hat eine Nummer.", "Der Rechnung fehlt eine Nummer."),
    ],
)
def test_the_opposite_of_what_was_said_is_found(said: str, statement: str):
    """Wherever the negation stands, and in a word of its own."""
    assert against(statement, "Good morning.", said) == (2,)


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        ("Finance did not approve the travel budget.", "Finance rejected the travel budget."),
        ("I don't like the old layout and want the dark theme.", "The user wants the dark theme."),
        ("Don't forget to send the guide to Priya.", "Send the guide to Priya."),
        ("If finance does not approve the budget, we wait.", "Finance approves the budget."),
        ("It is not true that nobody signed the lease.", "The lease was signed."),
        ("No se aprobó nunca el presupuesto del taller.", "El presupuesto del taller no se aprobó."),
        ("Is the travel budget approved?", "The travel budget is approved."),
        ("The parser does not skip rows of the importer table.", "The parser reads rows of the importer table."),
        ("The weather is not nice.", "The travel budget is approved."),
        ("Never store customer passwords in plain text.", "Store customer passwords hashed, never in plain text."),
        ("Store customer passwords hashed, never in plain text.", "Never store customer passwords in plain text."),
        ("Do not merge the payment branch until QA signs off.", "The payment branch is merged after QA signs off."),
        ("Do not merge the payment branch unless QA signs off.", "The payment branch is merged after QA signs off."),
        ("Before Friday, do not merge the payment branch.", "The payment branch is merged on Friday."),
        ("Do not schedule the standup before 10:00.", "Schedule the standup at 10:00 or later."),
        ("Schedule the standup at 10:00 or later.", "Do not schedule the standup before 10:00."),
        ("Do not schedule the standup before Friday.", "Schedule the standup on Friday or later."),
        ("Der Rechnung fehlt eine Nummer.", "Die Rechnung hat keine Nummer."),
        ("The bearings are covered. The vise bolts aren't, about an hour.", "The vise bolts are charged an hour."),
        ("QA が終わるまで main にマージしないで。", "QA が終わるまで main へのマージは禁じられている。"),
        ("通報訓練は含めないで。", "通報訓練は外すことにした。"),
    ],
)
def test_what_agrees_or_says_something_else_is_no_opposite(said: str, statement: str):
    """Reach ends at `and`; idioms, conditions, questions and double negations say nothing; nor does `not A` deny B."""
    assert against(statement, said) is None


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        (
            ("The archive goes to Building 7 in May. We can't use the lift of Building 7.",),
            "The archive will be moved to Building 7 in May.",
        ),
        (
            ("You may book the hotel in Lyon up to 120 EUR. I can't pay for breakfast in Lyon.",),
            "The assistant may book a hotel in Lyon for at most 120 EUR.",
        ),
        (
            ("Ihr dürft das Hotel in Lyon bis 120 EUR buchen. Das Frühstück in Lyon brauchen wir nicht.",),
            "Der Assistent darf ein Hotel in Lyon bis 120 EUR buchen.",
        ),
        (
            ("The archive goes to Building 12. Never use the lift there for the archive.",),
            "The archive moves to Building 12 on 4 May.",
        ),
        (
            ("Never restart the ledger database yourself.", "You may restart the ledger database yourself now."),
            "The assistant may restart the ledger database on its own.",
        ),
        (
            ("Ne relance pas les gens le week-end.", "Finalement, pour relancer les gens le week-end, tu peux."),
            "Relancer les gens le week-end est permis.",
        ),
    ],
    ids=["a month", "another matter", "another matter in German", "dates", "permitted again", "permitted in French"],
)
def test_a_permission_is_forbidden_by_a_sentence_about_the_same(said: tuple[str, ...], statement: str):
    """A word in common is not enough, and a sentence that permits as much of it counts for it."""
    assert against(statement, *said) is None


def test_what_was_lifted_is_not_denied_by_what_was_said_before():
    """`No longer` says that it was so."""
    asked = "Then copy Priya on every freight mail."
    lifted = "Priya says enough already with the freight mails."
    statement = "Priya no longer gets copied on freight mails."

    assert against(statement, asked, lifted) is None
    assert against(statement, asked) == (1,)


def test_a_question_that_the_next_message_denies_is_denied():
    """A question is not denied by an answer that begins with no, but means yes."""
    question, statement = "Did legal sign the contract?", "Legal signed the contract."

    assert against(statement, question, "No, not yet.") == (1,)
    assert against(statement, question, "No problem, it is signed.") is None
    assert against("The contract was moved to legal.", question, "No, it was moved.") is None


@pytest.mark.parametrize("mark", ["?", "\uff1f", "\u061f"])
def test_a_question_asks_with_the_mark_of_its_script(mark):
    """Nobody says what it asks, and a reply that begins with no denies it."""
    assert against("العقد موقع", f"هل العقد موقع{mark}", "No, not yet.") == (1,)
    assert against("The contract is not signed.", f"Is the contract signed{mark}") is None


@pytest.mark.parametrize(
    ("proposal", "reply", "statement"),
    [
        ("I'd order a spare pump.", "The old one runs, no pump.", "A spare pump is ordered."),
        ("Ich würde einen Maler nehmen.", "Bloß keinen Maler.", "Ein Maler wird genommen."),
    ],
)
def test_a_reply_that_turns_down_what_an_assistant_says_denies_it(proposal: str, reply: str, statement: str):
    """The denial is a sentence of its own, with a word of the proposal; another reply does not deny."""
    chat = (
        Message("m1", Role.ASSISTANT, proposal),
        Message("m2", Role.USER, reply),
        Message("m3", Role.ASSISTANT, "Ok"),
    )
    index = concordance_of(enumerate(chat, 1))
    agreed = concordance_of(enumerate((chat[0], Message("m2", Role.USER, "Fine.")), 1))

    assert contradicting(statement, index.support(statement), index) == (2,)
    assert contradicting(statement, agreed.support(statement), agreed) is None


def test_a_quotation_is_no_opposite_of_what_answers_it():
    """Extracts are made of quotations; the speaker stands before them."""
    said = ("Shall we go on?", "I found one of your spare pumps.", "That one? No pump of mine.")
    chat = (Message(f"m{n}", Role.USER if n % 2 else Role.ASSISTANT, text) for n, text in enumerate(said, 1))
    index = concordance_of(enumerate(chat, 1))
    quoted, told = "assistant: I found one of your spare pumps.", "The assistant found a spare pump."

    assert contradicting(quoted, index.support(quoted), index) is None
    assert contradicting(told, index.support(told), index) == (3,)


def test_a_statement_that_one_message_affirms_is_no_opposite():
    """Somebody says so: which of two messages holds is not for this check."""
    said = ("Finance did not approve the travel budget.", "Finance approved the travel budget after all.")

    assert against("Finance approved the travel budget.", *said) is None
