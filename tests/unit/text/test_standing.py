"""Standing rules apart from tasks, anecdotes and quotations, in every language that has the words for it."""

from __future__ import annotations

import math
import time

import pytest

from abridged.service.text.standing import (
    RULE_CHARS_MAX,
    SAID_CHARS_MAX,
    statements,
    states_preference,
)


def rules_in(text: str) -> list[str]:
    """The rules that a message lays down."""
    return [said.text for said in statements(text) if said.is_rule]


def tentative_in(text: str) -> list[str]:
    """The sentences of a message that may lay down a rule."""
    return [said.text for said in statements(text) if 0 < said.doubt < math.inf]


@pytest.mark.parametrize(
    "text",
    [
        "Please never send the customers a mail without asking me first.",
        "From now on write all dates in the form 2024-03-05.",
        "Keep every reply under three sentences.",
        "Bitte schreib in Mails an Kunden immer die Uhrzeit mit Zeitzone.",
        "Ab jetzt nenn mir alle Preise nur noch brutto.",
        "Por favor, escribe siempre los importes en euros y sin IVA.",
        "A partir de ahora no me mandes ningún correo sin avisarme antes.",
        "À partir de maintenant, tu me donnes toujours les prix en euros TTC.",
        "S'il te plaît, ne cite jamais les clients dans les messages.",
        "Daqui pra frente, escreva sempre as datas por extenso nas mensagens.",
        "Od teraz zawsze podawaj mi ceny brutto w mailach.",
        "今後メールには必ず日付を西暦で書いてください。",
        "Whenever you show me prices, give every amount in euros and without cents.",
        "Bitte nenn mir in jeder Antwort alle Beträge in Franken.",
        "A partir de ahora escríbeme siempre las fechas en todas las tablas sin abreviar.",
        "以后给客户的每封邮件都必须用中文写。",
    ],
)
def test_a_rule_is_found_as_it_was_written(text):
    """Rules are found in the languages that have sections for them."""
    assert rules_in(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "Please rerun that one test with -race.",
        "I must have been asleep.",
        "You always need three coffees after a bisect, apparently.",
        "It never fails on Fridays, of course.",
        "My sister says we should always bring cake.",
        "Do you always answer in English?",
        "Add the new price to the table and send it to Tom.",
        "Immer wenn ich dusche, klingelt der Bote.",
        "Mein Chef sagt immer, das wird schon.",
        "Mi madre siempre me llama a media tarde.",
        "Ma sœur oublie toujours ses clés.",
        "Minha irmã sempre esquece as chaves.",
        "Moja siostra zawsze zapomina kluczy.",
        "姉はいつも鍵を忘れるんだよね。",
        "我姐总是忘带钥匙。",
    ],
)
def test_a_task_an_anecdote_and_a_question_are_no_rule(text):
    """Words of duration alone make none."""
    assert rules_in(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "My boss asked if we must never write to the staging database.",
        "Priya asked whether you can always put her in copy on every mail about freight from now on.",
        "Meine Chefin hat gefragt, ob du ab jetzt in jeder Mail bitte immer die Preise brutto schreibst.",
        "Ma chef a demandé si tu peux toujours écrire les prix TTC dans chaque mail.",
        "Die Mutter von Ibarra hat gefragt, ob sie immer den Impfpass mitbringen muss.",
        "La mamá de Ibarra me preguntó si tiene que traer siempre el carnet.",
        "La mère d'Ibarra m'a demandé si elle doit toujours apporter le carnet.",
        "A mãe do Ibarra perguntou se tem de trazer sempre o boletim.",
        "Mama Ibarry pytała, czy zawsze musi przynosić książeczkę.",
        "お母さんに、毎回必ず手帳を持ってくる必要があるかと聞かれました。",
        "妈妈问我是不是每次都必须带疫苗本。",
    ],
)
def test_what_somebody_asked_is_no_rule(text):
    """A question that somebody tells of lays nothing down."""
    assert rules_in(text) == []


@pytest.mark.parametrize(
    "text",
    ["Always ask me whether a discount applies before you send an offer.", "以后每次发报价之前都要先问我要不要打折。"],
)
def test_a_question_that_the_assistant_is_to_ask_is_a_rule(text):
    """Nobody has asked it."""
    assert rules_in(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "Nothing before ten in the morning, please.",
        "Short answers for me, I read them on the tram.",
        "Und bitte keine Röhrchen mit Kappen von der blauen Sorte, die klemmen im Wechsler.",
        "返信は短めでお願いね。",
    ],
)
def test_a_sentence_that_may_be_a_rule_is_tentative(text):
    """Evidence is there, and too little of it for a rule."""
    assert tentative_in(text) == [text]
    assert rules_in(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "The train leaves at nine and gets in at noon.",
        "Could you ask whether they always close on Mondays?",
        "log:\n  level: info\nreply:\n  to: ops",
        '{"always": true, "never": ["send", "mail"], "rule": "must", "format": "plain text"}',
        "Short answers for me, and the key is sk-live-4eC39HqLyjWDarjtT1zdp7dc.",
        "Some people like short answers:",
        "Priya asked whether short answers are fine for the tram.",
    ],
)
def test_what_reads_like_no_rule_is_not_even_tentative(text):
    """A remark, a question, settings, data, and what could not be kept letter by letter."""
    assert tentative_in(text) == []


def test_a_rule_is_its_sentence_alone():
    """White space and punctuation are as they were, and the sentences around it stay out."""
    rule = "Please  never mention prices in  mails to customers!"

    assert rules_in(f"Thanks, that helped.\n  {rule} The list is nearly done.") == [rule]


def test_a_quotation_is_nobodys_rule():
    """The quotation's words say nothing of the person who quotes."""
    quoted = 'The sign at the door reads "please never send customers a mail without asking me first".'

    assert rules_in(quoted) == []
    assert rules_in("> Please never send the customers a mail without asking me first.") == []
    assert rules_in("```\nPlease never send the customers a mail without asking me first.\n```") == []


@pytest.mark.parametrize(
    "text",
    [
        "Kirjoita aina päivämäärät muodossa 2024-03-05 kaikissa viesteissä asiakkaille.",
        "من فضلك اكتب التواريخ دائمًا بهذه الصيغة في كل الرسائل إلى العملاء.",
        "Scrivi sempre le date in lettere in tutti i messaggi ai clienti.",
        "Schrijf datums altijd voluit in berichten aan klanten.",
        "Всегда пиши даты прописью в письмах клиентам.",
        "고객에게 보내는 메일에는 항상 날짜를 서기로 써 줘.",
        "log:\n  level: info\naddress:\n  street: Main 1\nreply:\n  to: ops\ncommit:\n  sha: abc",
        "בבקשה תכתוב תמיד את התאריכים בפורמט הזה בכל ההודעות ללקוחות.",
        '{"always": true, "never": ["send", "mail"], "rule": "must", "format": "plain text"}',
        "QWxsIHByaWNlcyBpbiBldXJvcyBuZXZlciBkb2xsYXJzIHBsZWFzZSBhbHdheXMg" * 8,
    ],
)
def test_nothing_is_invented_of_what_nobody_listed(text):
    """A language without training, data and encoded bytes have no rules."""
    assert rules_in(text) == []


def test_a_secret_is_kept_in_no_rule():
    """A rule is kept letter by letter."""
    rule = "Please never write the password {} in mails to customers."

    assert rules_in(rule.format("of the server")) == [rule.format("of the server")]
    assert rules_in(rule.format("ghp_16C7e42F292c6912E7710c838347Ae178B4a")) == []
    # The password goes on over what looks like the end of a sentence.
    assert rules_in("Never share this: password=Ab\u3002Always use https in every request and never http.") == []


def test_documents_have_no_rules():
    """Nobody says so much to somebody at once."""
    rule = "Please never send the customers a mail without asking me first."
    long = f"{rule[:-1]}, {'and so on ' * (RULE_CHARS_MAX // 10)}."

    assert rules_in(long) == []
    assert rules_in(f"{rule} " * (SAID_CHARS_MAX // len(rule) + 1)) == []


@pytest.mark.parametrize(
    "line", ["return;", "/srv/lab/retrieve.py:4: BytesWarning: Text is not bytes; assuming ASCII, no guarantees."]
)
def test_the_output_of_a_program_lays_down_no_rule(line):
    """Agents hand it on as a message of the user."""
    rule = "Please never send the customers a mail without asking me first."

    assert rules_in(f"{rule}\n\n{line}") == [rule]


@pytest.mark.parametrize(
    "line",
    [
        '31:    print("Recovered flag: {}".format("".join(flag)))',
        "telnet                             frames:36 bytes:2300",
        "/* WARNING: Subroutine does not return */",
        "if (uVar2 < (ulong)(long)local_20) break;",
        "examples/",
    ],
)
def test_a_line_of_code_or_columns_is_not_even_tentative(line):
    """The words and signs of such a line are those of no language."""
    assert tentative_in(line) == []


@pytest.mark.parametrize("end", [";", ",", ""])
def test_a_list_of_rules_may_have_semicolons(end):
    """A statement of a program has more than a semicolon."""
    rules = [
        f"- never push to main without asking me first{end}",
        f"- ERROR handling: please always raise, never swallow{end}",
    ]

    assert rules_in("\n".join(rules)) == rules


def test_reading_takes_linear_time():
    """Ten times the messages take about ten times as long, whatever their text."""

    def seconds(text: str, count: int) -> float:
        began_s = time.process_time()
        for _ in range(count):
            list(statements(text))
        return time.process_time() - began_s

    for text in ("please never " * 17, "a" * 1_990, "no " * 600, "。" * 1_990, "never,\n" * 280):
        seconds(text, 1)
        assert seconds(text[: len(text) // 4], 4) * 12 + 0.05 > seconds(text, 4)


@pytest.mark.parametrize(
    "text",
    [
        "I prefer short answers to long ones.",
        "I'd rather take the train.",
        "Ich arbeite lieber morgens als abends.",
        "Prefiero los hoteles pequeños.",
        "Je préfère le thé au café.",
        "Preferisco il treno all'aereo.",
        "Ik werk liever thuis.",
        "Prefiro reuniões curtas.",
        "Wolę krótkie odpowiedzi.",
        "Я предпочитаю короткие ответы.",
        "電車のほうが好きです。",
        "我更喜欢坐火车。",
        "저는 짧은 답변을 선호합니다.",
        "ผมชอบรถไฟมากกว่าเครื่องบิน",
    ],
)
def test_a_preference_is_told_in_every_language(text):
    """The writer of the message states it."""
    assert states_preference(text)


@pytest.mark.parametrize(
    "text",
    ["I'd like to add a chart.", "Do you prefer tea?", "She prefers tea.", "Kannst du die Liste prüfen?"],
)
def test_a_request_is_no_preference(text):
    """Nor is one of somebody else."""
    assert not states_preference(text)
