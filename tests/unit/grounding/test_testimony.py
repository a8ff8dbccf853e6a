"""A source proves a statement whose value it binds to the same words, and is quoted beside any other."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.grounding.support import Concordance, concordance_of
from abridged.service.grounding.testimony import Witnessed
from tests.support.growth import grows_linearly

SAID = (
    "Wie hoch ist die Kaution für den Laden?",
    "Sie beträgt 2.460,00 €, also drei Kaltmieten.",
    "Der Gaszähler im Hof hat die Nummer 4 GWF 8821 77.",
    '{"mietvertrag": {"stellplatz": "TG-118", "nebenkosten": "310,50"}}',
    "La furgoneta del reparto lleva la matrícula 6630 HTB.",
    "El precinto de la cámara frigorífica es PX-77120/4.",
    "定期便の追跡番号は 4471-2208-13 です。",
    "冷凍庫の型番は RZ-90K です。",
    "退货单号是 RMA-55812。快递明天来取。",
    "冷柜的保修期是 26 个月。压缩机除外。",
    "What is the batch limit of the importer?",
    "It is 0x2C00, the table is wide.",
    "The sidecar restarts with exit code 143.",
    "Anna has booked, her booking code is ZFA04Y for May.",
    "And what about Boris? His booking code is QRT77K.",
)

OF_ANOTHER = (
    "Die Nebenkosten im Mietvertrag liegen bei 4 GWF 8821 77.",
    "Der Gaszähler im Hof hat die Nummer TG-118.",
    "El precinto de la cámara frigorífica es 6630 HTB.",
    "La furgoneta del reparto lleva la matrícula PX-77120/4.",
    "冷凍庫の型番は 4471-2208-13 です。",
    "冷柜的保修期是 RMA-55812。",
    "The sidecar restarts with exit code 0x2C00.",
    "Anna's booking code is QRT77K.",
    "Nadia's booking code is QRT77K.",
)

PROVED = (
    ("Die Kaution für den Laden beträgt 2.460,00 €.", 2),
    ("Die Gaszählernummer im Hof ist 4 GWF 8821 77.", 3),
    ("Der Stellplatz im Mietvertrag ist TG-118.", 4),
    ("La matrícula de la furgoneta es 6630 HTB.", 5),
    ("冷凍庫は RZ-90K という型番である。", 8),
    ("退货单号为 RMA-55812。", 9),
    ("The limit of a batch of the importer is 0x2C00.", 12),
    ("The booking code of Boris is QRT77K.", 15),
)


def said(*texts: str) -> Concordance:
    """A talk of a user, who begins, and an assistant."""
    roles = (Role.USER, Role.ASSISTANT)
    return concordance_of(enumerate((Message(f"m{n}", roles[n % 2], text) for n, text in enumerate(texts)), 1))


def lines(found: Witnessed) -> list[str]:
    return [line.text for line in found.lines]


@pytest.mark.parametrize("statement", OF_ANOTHER)
def test_a_value_of_something_else_proves_nothing(statement: str):
    """Languages with cases, compounds and no spaces hold to this, and so does JSON."""
    found = said(*SAID).testimony(statement)

    assert found.lines
    assert not found.is_proof


@pytest.mark.parametrize(("statement", "number"), PROVED)
def test_a_value_in_a_sentence_with_half_of_the_words_proves_a_statement(statement: str, number: int):
    """The question that the value answers belongs to it, and so do its key and a part of a compound."""
    found = said(*SAID).testimony(statement)

    assert found.is_proof
    assert number in found.numbers


def test_without_a_value_only_a_whole_sentence_proves_a_statement():
    """The speaker may stand before it, and a word of address may be left out; other words, a part of the sentence, and
    what two messages say prove nothing."""
    index = said("Tom, we paint the gate green before Easter.", "Then I order the paint.")

    for statement in (
        "We paint the gate green before Easter.",
        "user: Tom, we paint the gate green before Easter.",
        "Then I order the paint.",
    ):
        assert index.testimony(statement).is_proof
    for statement in (
        "The gate is painted green before Easter.",
        "assistant: We paint the gate green before Easter.",
        "We paint the gate green before Easter. Then I order the paint.",
        "We paint the gate green.",
        "We paint",
    ):
        assert not index.testimony(statement).is_proof
        assert "Tom, we paint the gate green before Easter." in lines(index.testimony(statement))


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("If the audit fails, we switch to the old importer.", "We switch to the old importer."),
        ("It is not true that we switch to the old importer.", "We switch to the old importer."),
        ("Nobody said that we switch to the old importer.", "We switch to the old importer."),
        ("Suppose we switch to the old importer.", "We switch to the old importer."),
        ("Otherwise, we switch to the old importer.", "We switch to the old importer."),
        ("If the audit fails:\n- We switch to the old importer.\n- We call Ana.", "We call Ana."),
        ("Ha az audit megbukik, a régi importot futtatjuk.", "A régi importot futtatjuk."),
        ("Pokud audit selže, přejdeme na starý import.", "Přejdeme na starý import."),
    ],
)
def test_a_part_of_a_sentence_proves_nothing(text: str, statement: str):
    """The rest of it, or the line above its list, may be its condition; no language needs to be known for that."""
    assert not said(text, "Fine.").testimony(statement).is_proof


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("We move the importer to port 6544 if the audit fails.", "We move the importer to port 6544."),
        ("It would be port 6544 for the importer.", "The importer has the port 6544."),
        ("It is not true that the port of the importer is not 6544.", "The port of the importer is not 6544."),
        ("Wenn die Prüfung scheitert, zieht der Importer auf Port 6544 um.", "Der Importer zieht auf Port 6544 um."),
        ("Si l'audit échoue, l'importateur passe au port 6544.", "L'importateur passe au port 6544."),
        ("El importador pasa al puerto 6544 si falla la auditoría.", "El importador pasa al puerto 6544."),
        ("Se l'audit fallisce, l'importatore passa alla porta 6544.", "L'importatore passa alla porta 6544."),
        ("O importador passa para a porta 6544 se a auditoria falhar.", "O importador passa para a porta 6544."),
        ("Als de audit mislukt, gaat de importer naar poort 6544.", "De importer gaat naar poort 6544."),
        ("Jeśli audyt się nie uda, importer przechodzi na port 6544.", "Importer przechodzi na port 6544."),
        ("Если аудит провалится, импортёр переходит на порт 6544.", "Импортёр переходит на порт 6544."),
        ("감사가 실패하면 임포터는 포트 6544 를 씁니다.", "임포터는 포트 6544 를 씁니다."),
        ("監査に落ちたらインポーターのポートは 6544 にします。", "インポーターのポートは 6544 にします。"),
        ("如果审计失败\uff0c导入器的端口改为 6544。", "导入器的端口改为 6544。"),
        ("ถ้าตรวจไม่ผ่าน importer จะใช้พอร์ต 6544", "importer ใช้พอร์ต 6544"),
    ],
)
def test_what_only_may_be_or_is_denied_proves_no_value(text: str, statement: str):
    """A condition makes none of its sentence's values true, whichever language it is in."""
    assert not said(text, "Fine.").testimony(statement).is_proof
    assert said(text, "Fine.").testimony(text).is_proof


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("And we won't backport this to 24.11.", "We backport this to 24.11."),
        ("The report goes out on 3 May.", "The report does not go out on 3 May."),
        ("Nobody believes that the tests of billing pass.", "the tests of billing pass"),
        ("Shall the report go out on 3 May?", "The report goes out on 3 May."),
    ],
)
def test_a_denial_and_a_question_prove_no_assertion(text: str, statement: str):
    """Whichever of the two denies."""
    found = said(text, "Fine.").testimony(statement)

    assert (lines(found), found.is_proof) == ([text], False)


def test_what_somebody_wants_is_proved_by_nobody_else():
    """An assistant's proposal is no user's, and no wish of a user is an assistant's decision."""
    index = said("Hello.", "I suggest a limit of 6144 rows.", "I want a limit of 4096 rows instead.")

    assert index.testimony("The assistant suggested a limit of 6144 rows.").is_proof
    assert index.testimony("The user wants a limit of 4096 rows.").is_proof
    assert not index.testimony("The user suggested a limit of 6144 rows.").is_proof
    assert not index.testimony("The assistant wants a limit of 4096 rows.").is_proof


@pytest.mark.parametrize(
    ("sentence", "true", "twisted"),
    [
        (
            "Budget of team Blue is 700 EUR, budget of team Red is 900 EUR.",
            "Team Red has a budget of 900 EUR.",
            "Team Blue has a budget of 900 EUR.",
        ),
        ("The rent is 985 EUR and the deposit 2,956 EUR.", "The rent is 985 EUR.", "The deposit is 985 EUR."),
        ("Die Miete beträgt 985 € und die Kaution 2.956 €.", "Die Miete beträgt 985 €.", "Die Kaution beträgt 985 €."),
        ("家賃は 98000 円で、敷金は 196000 円です。", "家賃は 98000 円です。", "敷金は 98000 円です。"),
        (
            "Budget of team Blue is 700 EUR, budget of team Red is 900 EUR.",
            "The budget of team Red is 900 EUR and that of team Blue 700 EUR.",
            "Budget of team Blue is 900 EUR, budget of team Red is 700 EUR.",
        ),
    ],
)
def test_a_value_proves_nothing_of_a_thing_whose_own_value_stands_beside_it(sentence, true, twisted):
    """One sentence binds two values to two things, clause by clause."""
    index = said("Hello.", sentence, "Fine.")

    assert index.testimony(true).is_proof
    assert not index.testimony(twisted).is_proof


def test_a_value_for_which_there_is_a_later_one_proves_nothing():
    """The later sentence is quoted beside it; the new value, and both together, are proved."""
    old, new = "The port of the importer is 5433.", "Change of plans: the port of the importer is now 6544."
    index = said("Which port has the importer?", old, new, "Noted.")

    replaced = index.testimony("The importer has the port 5433.")

    assert (lines(replaced), replaced.is_proof) == ([old, new], False)
    assert index.testimony("The importer has the port 6544.").is_proof


OLD, BETWEEN = "The pool has max_conns=180 set.", ("Good morning.", "The weather is fine.", "Very fine.")
NEW = "Config rolled out with max_conns=125 everywhere."


def test_a_value_that_a_later_one_likely_supersedes_is_no_proof_and_is_quoted_beside_it():
    """A word of change is not necessary, nor a word of the old sentence: the two look like one value and the next."""
    found = said("Hello.", OLD, *BETWEEN, NEW, "Noted.").testimony("The pool is set to max_conns=180.")

    assert (lines(found), found.is_proof) == ([OLD, NEW], False)


def test_a_value_that_is_said_again_holds_again():
    """The value in between superseded only what had been said before."""
    again = "The pool has max_conns=180 set again."

    assert said(OLD, *BETWEEN, NEW, *BETWEEN, again).testimony("The pool is set to max_conns=180 again.").is_proof


def test_a_value_that_a_later_one_may_supersede_is_quoted_beside_it():
    """A less likely one costs no statement its proof."""
    old, new = "The crane is booked for 07:30.", "They moved us to 10:15 because of the market."
    index = said("Hello.", old, *BETWEEN, new, "Noted.")

    assert lines(index.testimony("Delivery at 07:30 by some crane.")) == [old, new]
    assert lines(index.testimony("The crane is booked for 07:30 sharp.")) == [old]


def test_neither_an_act_nor_a_sentence_loses_its_proof_to_another_value():
    """A proposal stays one. A word-for-word statement gives way to a word of change alone."""
    act = "I suggest max_conns=180 for the pool."
    index = said("Hello.", act, *BETWEEN, NEW, "Noted.")

    assert index.testimony("The assistant suggested max_conns=180 for the pool.").is_proof
    assert said("Hello.", OLD, *BETWEEN, NEW).testimony(OLD).is_proof
    assert not said("Hello.", OLD, *BETWEEN, f"Correction: {NEW}").testimony(OLD).is_proof


def test_only_a_later_value_of_people_and_models_is_quoted_beside_one():
    """A tool's changes nothing, nor does one that is outdated itself, or supersedes what the statement lacks."""
    statement = "Perhaps some pool is set to max_conns=180."
    messages = [Message("1", Role.USER, OLD), *(Message("", Role.USER, text) for text in BETWEEN)]
    by_tool = concordance_of(enumerate([*messages, Message("2", Role.TOOL, NEW)], 1))
    by_user = concordance_of(enumerate([*messages, Message("2", Role.USER, NEW)], 1))

    assert lines(by_tool.testimony(statement)) == [OLD]
    assert lines(by_user.testimony(statement)) == [OLD, NEW]
    assert lines(by_user.testimony(statement, lambda text: text == NEW)) == [OLD]
    assert lines(by_user.testimony("Perhaps some pool has connections set.")) == [OLD]


def test_later_values_are_sought_in_the_newest_part_of_a_long_source():
    """The work is bounded, however long a source is."""
    filler = f"{'some words of a long talk ' * 9}5."
    near, far = (said(OLD, *[filler] * count, NEW) for count in (4, 1_200))

    assert lines(near.testimony("Perhaps some pool is set to max_conns=180.")) == [OLD, NEW]
    assert lines(far.testimony("Perhaps some pool is set to max_conns=180.")) == [OLD]


def test_values_of_a_family_do_not_follow_each_other():
    """Things with codes of one pattern are things of their own."""
    things = ("red crate", "cold room", "side gate", "old barn", "new shed")
    codes = [f"The {thing} has the code K-{n}00." for n, thing in enumerate(things)]

    assert lines(said(*codes).testimony("K-000 opens a red crate.")) == [codes[0]]


def test_a_value_that_is_outdated_is_not_quoted():
    """The source's newer words stand alone."""
    old, new = "The port of the importer is 5433.", "The port of the importer: 6544."
    found = said(old, "Fine.", new).testimony("The importer has the port 5433.", lambda text: "5433" in text)

    assert (lines(found), found.is_proof) == ([new], False)


def test_a_writers_name_belongs_to_what_the_writer_says():
    """The message need not say it; a name that it lacks proves nothing."""
    messages = [(1, Message("m", Role.USER, "My invoice is INV-2231.", name="Dana")), (2, Message("n", Role.USER, "?"))]
    index = concordance_of(messages)

    assert index.testimony("Dana has the invoice INV-2231.").is_proof
    assert not index.testimony("Emil has the invoice INV-2231.").is_proof


def test_two_messages_are_quoted_if_the_second_adds_much():
    """One sentence has the value, and the other says what it is of."""
    talk = ("What does the villa in Lyon cost?", "Let me look at the list of the broker.", "It is 480,000 EUR.")

    found = said(*talk).testimony("The broker's list has the villa in Lyon at 480,000 EUR.")

    assert not found.is_proof
    assert len(found.lines) == 2
    assert "It is 480,000 EUR." in lines(found)


def test_a_sentence_between_two_that_are_near_is_not_near_itself():
    """A witness has words of the statement of its own."""
    found = said("The importer fails since version 3.4.1.", "I like tea.", "Pin the parser to 3.3.9.").testimony(
        "The importer fails since version 3.3.9."
    )

    assert "I like tea." not in lines(found)


def test_nothing_is_near_what_was_made_up():
    """A source without witnesses is not quoted."""
    assert said(*SAID).testimony("Everybody loves opera.") == Witnessed()
    assert concordance_of([]).testimony("Everybody loves opera.") == Witnessed()


def test_more_of_the_words_beside_another_value_speak_against_a_statement():
    """Names in like sentences share every other word, also where they have no capital."""
    port = "The inner port of the {} in the cellar is {}."
    index = said(port.format("importer", 5433), "Thank you.", port.format("exporter", 6544))

    assert index.testimony("In the cellar the exporter has the inner port 6544.").is_proof
    assert not index.testimony("In the cellar the importer has the inner port 6544.").is_proof


def test_what_a_message_says_word_for_word_is_replaced_by_a_word_of_change_alone():
    """Like sentences with other values tell of two things."""
    crate = "Crate {} in the hall has the code K-{}00."
    first, second = crate.format(1, 1), crate.format(2, 2)

    assert said(first, "Good.", second).testimony(first).is_proof
    assert not said(first, "Good.", f"Correction: {second}").testimony(first).is_proof


def test_of_sentences_that_are_as_near_the_last_is_quoted():
    """A user who spoke last of something settled it."""
    early, late = "We meet at the old mill, then.", "Well, we meet at the old mill."

    assert lines(said(early, "Fine.", late).testimony("A meeting takes place near some old mill.")) == [late]


def test_of_two_messages_that_are_as_near_both_are_quoted():
    """Words cannot tell which of the two a statement is about."""
    oven, fridge = "The oven of the bakery is too small for us.", "The fridge in the bakery hums at night."
    talk = (oven, *(f"I see, and what is number {n}?" for n in range(9)), fridge)
    found = said(*talk).testimony("The oven in the bakery hums.")

    assert lines(found) == [oven, fridge]


def test_the_time_of_a_statement_is_linear_in_the_source():
    """A value that every message has costs no more than another."""
    text = "The deposit of the shop is 120 EUR, the rent 80 EUR and the key has the number K-{}."
    statement = " ".join(f"K-{n} costs 120 EUR." for n in range(60))

    assert grows_linearly(
        lambda known: known.testimony(statement), lambda size: said(*(text.format(n) for n in range(size))), size=1_000
    )
