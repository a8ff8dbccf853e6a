"""Shifts of the topic: by hints, else by the words of any language."""

from __future__ import annotations

from random import Random

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.topics import CHARS_READ, topic_shifts

TOPICS = {
    "en": (
        "The importer reads table orders on database host seven.",
        "The parser fails on the header of file orders.",
        "Vegetarian meals on board of the flight to Oslo need booking.",
        "A window seat on the flight costs more than an aisle seat.",
    ),
    "de": (
        "Der Importer liest die Tabelle Bestellungen auf dem Datenbankrechner.",
        "Der Parser scheitert an der Kopfzeile der Datei Bestellungen.",
        "Vegetarische Mahlzeiten auf dem Flug nach Oslo muss man buchen.",
        "Ein Fensterplatz auf dem Flug kostet mehr als ein Gangplatz.",
    ),
    "ru": (
        "Импортер читает таблицу заказов на сервере базы данных.",
        "Парсер падает на заголовке файла заказов.",
        "Вегетарианское питание на рейсе в Осло нужно бронировать.",
        "Место возле окна на рейсе стоит дороже места возле прохода.",
    ),
    "zh": (
        "导入程序从数据库服务器读取订单表格。",
        "解析器在订单文件标题处失败。",
        "飞往奥斯陆航班素食餐需要预订。",
        "航班靠窗座位比过道座位贵。",
    ),
}


def said(text: str, place: int, hint: bool | None = None) -> Message:
    role = Role.ASSISTANT if place % 2 else Role.USER
    return Message(f"m{place}", role, text, is_continuation=hint)


def chat(*blocks: tuple[str, ...]) -> list[Message]:
    """Six messages of each block."""
    texts = [f"{block[i % len(block)]} {i}" for block in blocks for i in range(6)]
    return [said(text, place) for place, text in enumerate(texts)]


@pytest.mark.parametrize("language", TOPICS)
def test_the_words_show_where_another_topic_begins(language):
    """Languages with words suffice; the shift is before the user message that begins the topic."""
    texts = TOPICS[language]

    assert topic_shifts(chat(texts[:2], texts[2:])) == {6}


def test_a_topic_that_goes_on_has_no_shift():
    """However long it goes on."""
    texts = TOPICS["en"][:2]

    assert topic_shifts(chat(texts, texts, texts)) == frozenset()


def test_two_sides_that_share_much_are_one_topic():
    """Although other words come and go: the valley is deep, and the likeness in it is still large."""
    shared = "importer database orders parser header table"
    one, other = f"{shared} Lisbon Oslo flight", f"{shared} vegetarian window aisle"

    assert topic_shifts(chat((one,), (other,))) == frozenset()


def test_a_shift_is_before_a_message_of_the_user():
    """An assistant that answers at length does not change the topic."""
    texts = TOPICS["en"]
    by_user, by_assistant = ([said(texts[2 * (place >= turn)], place) for place in range(14)] for turn in (6, 7))

    assert topic_shifts(by_user) == {6}
    assert topic_shifts(by_assistant) == frozenset()


def test_hints_decide_alone_where_there_is_one():
    """The words are not asked, and a message without a hint continues."""
    texts = TOPICS["en"]
    messages = chat(texts[:2], texts[2:])
    messages[2] = messages[2]._replace(is_continuation=False)
    messages[4] = messages[4]._replace(is_continuation=True)

    assert topic_shifts(messages) == {2}
    assert topic_shifts([said("x", 0, hint=False), said("y", 1)]) == frozenset()


def test_results_of_tools_and_words_that_say_nothing_are_no_topic():
    """A tool may print anything; greetings have no words to compare."""
    texts = TOPICS["en"][:1]
    messages = chat(texts, texts)
    for place in (7, 8, 9):
        rows = " ".join(f"q{place}{n:02d}x" for n in range(90))
        messages[place] = Message(f"t{place}", Role.TOOL, rows, tool_call_id="a")

    assert topic_shifts(messages) == frozenset()
    assert topic_shifts([said("Lisbon" if place < 6 else "Oslo", place) for place in range(12)]) == frozenset()
    assert topic_shifts([said("ok", place) for place in range(12)]) == frozenset()
    assert topic_shifts([]) == topic_shifts([said("Hello there", 0)]) == frozenset()


def test_the_same_messages_have_the_same_shifts_in_any_process():
    """No set's order and no randomness takes part: words in another order within a message change nothing."""
    texts = TOPICS["en"]
    messages = chat(texts[:2], texts[2:])
    shuffled = []
    for m in messages:
        words = m.content.split()
        Random(m.id).shuffle(words)
        shuffled.append(m._replace(content=" ".join(words)))

    assert topic_shifts(shuffled) == topic_shifts(messages)


def test_only_the_beginning_of_a_message_is_read():
    """The bound holds the work down, whatever was pasted."""
    texts = TOPICS["en"]
    messages = chat(texts[:2], texts[:2])
    other = " ".join(f"q{n:03d}x" for n in range(400))
    pasted = [m._replace(content=m.content.ljust(CHARS_READ) + other) for m in messages[6:]]

    assert topic_shifts([*messages[:6], *pasted]) == frozenset()
