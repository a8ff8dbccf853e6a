"""Values are found by shape: forms of standards, trades and countries that no list of the code has."""

from __future__ import annotations

import pytest

from abridged.service.text.values import RUN_CHUNKS_MAX, values
from tests.support.growth import grows_linearly

FORMS = {
    "an IBAN in groups (ISO 13616)": ("It goes to DE89 3704 0044 0532 0130 00 today", "DE89 3704 0044 0532 0130 00"),
    "an ISBN (ISO 2108)": ("it has the ISBN 978-3-16-148410-0 on it", "ISBN 978-3-16-148410-0"),
    "a container (ISO 6346)": ("Container CSQU3054383 is here", "CSQU3054383"),
    "a time of RFC 5424": ("since 2003-10-11T22:14:15.003Z it hangs", "2003-10-11T22:14:15.003Z"),
    "a duration of ISO 8601": ("wait for PT1H15M at most", "PT1H15M"),
    "an address of RFC 5952": ("use 2001:db8::1 from now on", "2001:db8::1"),
    "a network of RFC 1918": ("the subnet is 172.16.0.0/12, no other", "172.16.0.0/12"),
    "a MAC (EUI-48)": ("MAC 00:1b:44:11:3a:b7 is blocked", "MAC 00:1b:44:11:3a:b7"),
    "a Debian version": ("it needs 1:2.36-9+deb12u10 to run", "1:2.36-9+deb12u10"),
    "a requirement of PEP 440": ("pin polars==0.20.31, please", "polars==0.20.31"),
    "a schedule of crontab(5)": ("run it at 17 */6 * * 1-5", "17 */6 * * 1-5"),
    "a thread (ISO 261)": ("the bolts are M12×1.25 again", "M12×1.25"),
    "an oil (ISO 3448)": ("it takes VG 68 only", "VG 68"),
    "a Plus Code": ("meet at QRJ8+4W then", "QRJ8+4W"),
    "a fuse (IEC 60269)": ("a fuse of 16 A gG is in it", "16 A gG"),
    "a measure in parts": ("tables of 2 × 32 A each", "2 × 32 A"),
    "a German date": ("am 3. Oktober 2026 um zehn", "3. Oktober 2026"),
    "a Spanish date": ("el 3 de marzo de 2026 a las diez", "3 de marzo de 2026"),
    "a Polish date": ("od 15 października 2026, na tydzień", "15 października 2026"),
    "a French price": ("cela coûte 64,20 € par mois", "64,20 €"),
    "a price a unit": ("queda en 1,18 €/km por viaje", "1,18 €/km"),
    "a Japanese price": ("料金は8,800円です", "8,800円"),
    "a Japanese date": ("入社は令和8年10月3日です", "8年10月3日"),
    "a Chinese count": ("库存还有37件左右", "37件"),
    "a Chinese amount in words": ("补三十五元吧", "三十五元"),
    "a branch": ("push it to fix/ledger-dup-retry now", "fix/ledger-dup-retry"),
    "a zone of the tz database": ("in America/Tijuana it is noon", "America/Tijuana"),
    "a span of code": ("call it `Idempotency-Key` then", "Idempotency-Key"),
    "an order": ("the order is PO 4500118827/20 there", "PO 4500118827/20"),
    "a ratio of chemistry": ("at m/z 1035.80 it shows", "m/z 1035.80"),
    "a German appointment": ("am Montag, 07.04., 10:40 kommt er", "Montag, 07.04., 10:40"),
    "a Polish appointment": ("w czwartek, 14 sierpnia, 16:30 i koniec", "czwartek, 14 sierpnia, 16:30"),
    "an American appointment": ("book Wednesday, Feb 19 at 07:30 CST for him", "Wednesday, Feb 19 at 07:30 CST"),
    "an American date": ("due May 15, 2024, no later", "May 15, 2024"),
    "hours of a day": ("freitags 13:15–16:45 am Gerät", "freitags 13:15–16:45"),
    "a threshold of statistics": ("the threshold is 5 σ again", "5 σ"),
    "a build in brackets": ("Xcode 15.4 (15F31d) builds it", "15.4 (15F31d)"),
    "a Japanese price without tax": ("基本は8,800円（税別）です", "8,800円（税別）"),
    "a count with its noun": ("we are down to 128 convives", "128 convives"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_found_whole(form):
    """The value is found as it is written, once."""
    text, value = FORMS[form]

    assert [found.text for found in values(text)].count(value) == 1, [found.text for found in values(text)]
    assert all(text[found.start : found.start + len(found.text)] == found.text for found in values(text))


@pytest.mark.parametrize(
    "text",
    [
        "Please leave the key with the neighbours, and/or under the mat.",
        "Bitte lass den Schlüssel beim Nachbarn, der Rest ist egal.",
        "Deja la llave en casa de los vecinos, por favor.",
        "Laisse la clé chez les voisins, s'il te plaît.",
        "鍵は隣の人に預けてください。",
        "请把钥匙交给邻居。",
        "Zostaw klucz u sąsiadów, proszę.",
        "PLEASE LEAVE THE KEY WITH THE NEIGHBOURS",
    ],
)
def test_a_sentence_without_values_has_none(text):
    """Words are no values in any language, in capitals either."""
    assert list(values(text)) == []


@pytest.mark.parametrize("written", ["**HAT083**", "*HAT083*,", "(**HAT083**).", "***HAT083***:"])
def test_marks_of_emphasis_are_no_part_of_a_value(written):
    """A value is one, whoever emphasizes it."""
    assert [found.text for found in values(f"Flight {written} leaves at noon")] == ["HAT083"]


def test_a_measurement_after_a_code_is_a_value_of_its_own():
    """The code therefore says what it is a value of."""
    assert [found.text for found in values("P1851 0.0007 and K7 12.5")] == ["P1851", "0.0007", "K7", "12.5"]


def test_dates_in_a_list_are_values_of_their_own():
    """A time of day and a year belong to the date before them, another date does not."""
    text = "2025-08-31, 2025-02-11, 07:30; Freitag, 28.03., 10:40"
    assert [found.text for found in values(text)] == ["2025-08-31", "2025-02-11, 07:30", "Freitag, 28.03., 10:40"]


@pytest.mark.parametrize("unit", ["17 ", "1-", "7×", "`", "A1 ", "三", "9年", "x_", "1.", "(1"])
def test_values_are_found_in_time_in_proportion(unit):
    """The text may be made of anything; a run is bounded."""
    assert grows_linearly(lambda text: list(values(text)), lambda size: unit * size, size=20_000)
    assert max((found.text.count(" ") for found in values(unit * 200)), default=0) <= RUN_CHUNKS_MAX
