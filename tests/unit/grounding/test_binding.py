"""A value supports a statement about the thing that the source gives it to, in any words and language, and no other."""

from __future__ import annotations

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.grounding.binding import PLACES_MAX, VALUES_MAX, WORDS_MAX, Binding
from abridged.service.grounding.reading import Passage
from abridged.service.grounding.support import Concordance, concordance_of
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
)

OF_ANOTHER = (
    "Die Nebenkosten im Mietvertrag liegen bei 4 GWF 8821 77.",
    "Der Gaszähler im Hof hat die Nummer TG-118.",
    "El precinto de la cámara frigorífica es 6630 HTB.",
    "La furgoneta del reparto lleva la matrícula PX-77120/4.",
    "冷凍庫の型番は 4471-2208-13 です。",
    "冷柜的保修期是 RMA-55812。",
    "The sidecar restarts with exit code 0x2C00.",
)

HONEST = (
    ("Für den Laden ist eine Kaution von 2.460,00 € fällig.", 2),
    ("Die Gaszählernummer ist 4 GWF 8821 77.", 3),
    ("Der Stellplatz im Vertrag ist TG-118.", 4),
    ("El vehículo de reparto tiene matrícula 6630 HTB.", 5),
    ("La cámara lleva puesto el precinto PX-77120/4.", 6),
    ("冷凍庫は RZ-90K という型番である。", 8),
    ("退货使用 RMA-55812 这个单号。", 9),
    ("The importer takes batches of at most 0x2C00.", 12),
)

TALK = ("Guten Morgen allerseits.", "Me alegro mucho.", "今日は暑いですね。", "谢谢。辛苦了。", "What a day it was.")


def said(*texts: str) -> Concordance:
    chat = (Message(f"m{n}", Role.USER if n % 2 else Role.ASSISTANT, text) for n, text in enumerate(texts, 1))
    return concordance_of(enumerate(chat, 1))


def spread(*texts: str) -> Concordance:
    """The messages with small talk after each but a question, whose numbers stay."""
    messages = [(n, Message(f"m{n}", Role.USER, text)) for n, text in enumerate(texts, 1)]
    small = [Message("small", Role.ASSISTANT, text) for text in TALK]
    return concordance_of(
        (number, said)
        for n, message in messages
        for number, said in ((n, message), *(() if message.content.endswith("?") else ((n + 100, m) for m in small)))
    )


@pytest.mark.parametrize("statement", OF_ANOTHER)
def test_a_value_of_something_else_is_no_support(statement: str):
    """Languages with cases, compounds and no spaces hold to this, and so does JSON."""
    assert not spread(*SAID).support(statement).supported


@pytest.mark.parametrize(("statement", "number"), HONEST)
def test_a_value_keeps_its_support_in_other_words(statement: str, number: int):
    """The value's question, its key and a part of a compound belong to it."""
    assert number in spread(*SAID).support(statement).numbers


def test_a_value_that_a_user_replaced_is_no_support():
    """The new one is, and so is a statement that has both."""
    index = said(
        "Which port has the importer?",
        "The port of the importer is 5433.",
        "Change of plans: the port of the importer is now 6544.",
        "Noted.",
    )

    assert not index.support("The importer has the port 5433.").supported
    assert index.support("The importer has the port 6544.").supported
    assert index.support("The port of the importer moved from 5433 to 6544.").supported


def test_two_values_in_like_sentences_are_of_two_things():
    """The sentences do not say that one of the values has changed."""
    index = said("The port of the importer is 5433.", "Good.", "And the port of the exporter is 6544.")

    assert index.support("The importer has the port 5433.").supported


def test_a_change_of_something_else_replaces_nothing():
    """However much it sounds like it: the word that tells them apart is another."""
    port = "The inner port of the {} in the cellar of the mill is {}."
    index = said(port.format("importer", 5433), *TALK, f"Change of plans! {port.format('crawler', 6544)}")

    assert index.support(port.format("importer", 5433)).supported


def test_a_value_alone_is_no_evidence():
    """All other words of the statement are unknown, so it may be about anything."""
    index = said("Zanila 的热线是 +49 30 6492 174。", *TALK)

    assert not index.support("Lilufa has +49 30 6492 174 as its hotline.").supported
    assert index.support("Zanila has +49 30 6492 174 as its hotline.").supported


def test_values_that_stand_far_apart_support_nothing_together():
    """Words other than theirs do not show that both messages are meant."""
    laptop, van = "The laptop of Dana is K-7711.", "The van of Emil is ZX-8822."
    statement = "Inventory sheets henceforth always contain Dana K-7711 right beside Emil ZX-8822 somewhere nearby."

    assert said(laptop, van).support(statement).numbers == (1, 2)
    assert not said(laptop, *TALK, *TALK, van).support(statement).supported


def test_a_value_that_stands_everywhere_binds_nothing():
    """One passage more than PLACES_MAX, and it may belong to anything."""
    text = "The deposit of the shop is 120 EUR."
    room = ("The room of the guest with the view of the harbour costs 80 EUR.", *TALK)
    statement = "The room of the guest with the view of the harbour costs 120 EUR."

    assert not said(*room, *[text] * PLACES_MAX).support(statement).supported
    assert said(*room, *[text] * (PLACES_MAX + 1)).support(statement).supported


def test_a_list_of_values_is_judged_by_its_first_ones():
    """VALUES_MAX of them, so that a statement of any length takes bounded time."""
    text = " ".join(f"K-{n}00 costs much." for n in range(VALUES_MAX + 5))
    passages = (Passage(text, 0, (1,), Role.USER),)
    binding = Binding(passages, lambda _: (0,), lambda _: 1.0)

    assert len(list(binding.bound(text, (0,)))) == VALUES_MAX


def test_a_list_of_words_is_judged_by_its_most_telling_ones():
    """WORDS_MAX of them, for the same reason; if all are as rare, the first."""
    words = [f"{first}{second}zu" for first in "bdfgklmnpr" for second in "aeiou"] + ["tulip", "zebra"]
    binding = Binding((Passage("Tulip and zebra.", 0, (1,), Role.USER),), lambda _: (0,), lambda _: 1.0)

    assert len(words) > WORDS_MAX
    assert binding.nearest(" ".join(words), (0,)) is None
    assert binding.nearest(" ".join(words[-WORDS_MAX:]), (0,)) == (0, 2 / WORDS_MAX)


def test_the_time_of_a_statement_is_linear_in_the_source():
    """A value that every message has costs no more than another."""
    text = "The deposit of the shop is 120 EUR, the rent 80 EUR and the key has the number K-{}."
    statement = " ".join(f"K-{n} costs 120 EUR." for n in range(60))

    assert grows_linearly(
        lambda known: known.support(statement), lambda size: said(*(text.format(n) for n in range(size))), size=1_000
    )
