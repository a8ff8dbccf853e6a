"""The words around a value: the name of the thing that has it, and whether its sentence speaks of a change."""

from __future__ import annotations

import pytest

from abridged.service.text.mentions import Mention, mentions
from abridged.service.text.surroundings import NAME_CHARS_MAX, NAME_WORDS_MAX, REACH_BEFORE
from tests.support.growth import grows_linearly


def last(text: str) -> Mention:
    """The last value that somebody who says the text names."""
    return list(mentions(text, said=True))[-1]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("So the retry budget needs to be PT1H15M now.", "retry budget needs to be ", "PT1H15M"),
        ("Ask OPS-4411 first. The release deadline is 2024-05-15.", "release deadline is ", "2024-05-15"),
        ("We are down to 9.8 kN of drawbar force.", "", "9.8 kN"),
        ("We support what is >=3.10,<3.13.", "support what is ", ">=3.10,<3.13"),
        ("We support what is >=1.21,<2.", "support what is ", ">=1.21,<2"),
        ("requires numpy>=1.21, !=1.22.1,<2.0", "requires numpy", ">=1.21, !=1.22.1,<2.0"),
        ("The ribbon is Pantone 7527 C again.", "ribbon is Pantone ", "7527 C"),
        ('{"miete_kalt": "998,00"}', "miete_kalt=", "998,00"),
        ("limits:\n  memory: 2304Mi", "memory=", "2304Mi"),
        ("P1851 is at 0.0004 mm", "P1851 is at ", "0.0004 mm"),
        ("岸田さんの定期代が月額15,000円から変わります", "岸田さんの定期代が月額", "15,000円"),
        ("17 mm", "", "17 mm"),
    ],
)
def test_a_value_is_named_by_the_text_from_the_telling_words_nearest_to_it(text, name, value):
    """The name is as it was written, and begins with a telling word of the same clause."""
    found = last(text)

    assert (found.words.name, found.text) == (name, value)


def test_words_after_the_value_name_it_if_none_before_it_does():
    """They stand in what is read with it, or else before it."""
    assert (last("47 % of the pallets").words.name, last("47 % of the pallets").words.rest) == ("", " of the pallets")
    assert last("47 %, of all that came on Tuesday: pallets").words.name == "came Tuesday pallets: "


@pytest.mark.parametrize(
    ("text", "name", "by_line"),
    [
        ("front=58.2C  rear=41.0C\n2025-02-11 07:03:02", "rear=41.0C ", ""),
        ("Dates of the visit:\n\n  2025-02-11", "Dates of the visit: ", "Dates of the visit: "),
        ("the new IBAN\nDE89370400440532013000", "new IBAN ", ""),
    ],
)
def test_a_program_names_a_value_in_its_line_or_in_one_before_a_colon(text, name, by_line):
    """A line before it that ends in anything else is another record."""
    found = next(one for one in mentions(text, said=True) if one.text[:4] in ("2025", "DE89"))
    program = next(one for one in mentions(text, said=True, by_line=True) if one.text == found.text)

    assert (found.words.name, program.words.name) == (name, by_line)


def test_a_command_is_named_by_no_line_before_it():
    """The output of the one before it says nothing of it."""
    assert last("main...origin/main\n$ git branch -r --sort=-committerdate | head -4").words.name == ""


def test_the_label_of_another_value_names_none_before_it():
    """The words in front of it do."""
    assert last("SPN_TEMP, which may rise until late, front=").words.name == "rise late: "


def test_columns_of_a_line_name_their_own_values():
    """The words of another column do not."""
    said = {one.text: one.words.name for one in mentions("Advance   £265,625    Share 85%\nProduct | 4.39%", said=True)}

    assert said == {"£265,625": "Advance ", "85%": "Share ", "4.39%": "Product | "}


def test_credentials_of_a_command_name_nothing():
    """Only its program knows where they end."""
    said = list(mentions("Run deployctl -u bob:hunter22abcDEF@x for OPS-4411, then stop", said=True))

    assert ("OPS-4411", "") in [(one.text, one.words.name) for one in said]


@pytest.mark.parametrize(
    ("text", "value", "rest"),
    [
        ("Der Wagen steht in Halle 3, Tor 12, bitte sehr.", "3", ", Tor 12"),
        ("oggi ha portato il Ramipril a 5 mg la sera, aggiornate", "5 mg", " la sera"),
        ("proszę dzwonić: 22 640 11 93 wew. 214, bo", "22 640 11 93", " wew. 214"),
        ("Das Konto 47110 haben sie gestern noch einmal sorgfältig geprüft, aber nicht gesperrt.", "47110", ""),
        ("It is 9.8 kN. Then we stop.", "9.8 kN", ""),
        ("Es liegt in Rack 7, Pos. C4, das weiß ich.", "Rack 7", ", Pos. C4"),
        ("Neu ist WE 14, 3. OG links. Die alte bleibt.", "3. OG", " links"),
        ("Neu ist WE 14, 3. OG links. Die alte bleibt.", "WE 14", ", 3. OG links"),
    ],
)
def test_a_short_end_of_the_clause_is_read_with_the_value(text, value, rest):
    """The value has further parts with a number in them that only commas set off."""
    found = next(one for one in mentions(text, said=True) if one.text.endswith(value))

    assert found.words.rest == rest


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        ("It flies to Orlando (MCO) on 2024-05-18 again", "2024-05-18", "Orlando (MCO) on 2024-05-18 again"),
        ("Volumen (inkl. Keller)  46 m³", "46 m³", "Volumen (inkl. Keller) 46 m³"),
        ("all is paid from the visit to the house at the sea) on 2024-05-18", "2024-05-18", "on 2024-05-18"),
        ("It is a bay (width 81 cm) of oak", "81 cm", "width 81 cm of oak"),
        (
            "They add UNIQUE KEY uk_biz_no (tenant_id, biz_no) to it",
            "uk_biz_no",
            "add UNIQUE KEY uk_biz_no (tenant_id, biz_no)",
        ),
        ("Use the key in `next_cypher` for it", "next_cypher", "Use the key in `next_cypher` for it"),
        ('The reservation ID is "4NQLHD". Thanks', "4NQLHD", 'reservation ID is "4NQLHD"'),
        ("Recovered flag: flag{d|o9yx?_brnfj{}", "o9yx?_brnfj", "flag{d|o9yx?_brnfj{}"),
        ("(a (b (c 9.8 kN", "9.8 kN", "9.8 kN"),
    ],
)
def test_marks_of_a_fact_stand_in_pairs(text, value, line):
    """A partner that stands near comes along, a lone mark goes."""
    found = next(one for one in mentions(text, said=True) if one.text == value)

    assert f"{found.words.name}{found.text}{found.words.rest}" == line


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        ("pyarrow (18.1.0+tw2)\nmore", "18.1.0+tw2", "pyarrow (18.1.0+tw2)"),
        ("join keys differ - `id_region`: no match", "id_region", "join keys differ - `id_region`"),
        ('watermark    = "PT20M"', "PT20M", "watermark=PT20M"),
        ('{"address1": "825 Laurel Lane", "zip": "77243"}', "825 Laurel", "address1=825 Laurel Lane"),
        ('{"name": "Delta 3 Dourges"}', "3 Dourges", "name=Delta 3 Dourges"),
        ('{"note": "825 Laurel Lane is the house that they sold in May"}', "825 Laurel", "note=825 Laurel"),
    ],
)
def test_a_value_of_data_ends_with_its_row_or_bracket(text, value, line):
    """No other words after it are read with it."""
    found = next(one for one in mentions(text, said=True, by_line=True) if one.text == value)

    assert f"{found.words.name}{found.text}{found.words.ending}" == line


def test_a_name_is_bounded():
    """The bounds are its number of words, and their distance."""
    words = " ".join(f"Hauptwort{letter}" for letter in "abcdefgh")

    assert last(f"{words} 2024-05-15").words.name == " ".join(words.split()[-NAME_WORDS_MAX:]) + " "
    assert len(last("Verantwortung " * 9 + "2024-05-15").words.name) <= NAME_CHARS_MAX + len("Verantwortung ")
    assert last(f"Frist {'ist ' * REACH_BEFORE}2024-05-15").words.name == ""


def test_a_row_of_data_is_named_by_its_own_line():
    """The line needs at least one word."""
    assert last("Kabine und Aufzug\nLast 450 kg").words.name == "Last "
    assert last("Kabine und Aufzug\n450 kg").words.name == "Kabine und Aufzug "


def test_a_secret_names_nothing():
    """A part of a possible secret names nothing, either."""
    found = list(mentions("login bob:hunter22abcDEF@x for OPS-4411, password=hunter22abcDEF 2024-05-15", said=True))

    assert not [one for one in found if "hunter22" in one.words.name]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Do not restart host db-prod-17.", "not restart host "),
        ("Tell them:\nDon't use version 4.11.7", "Don't use version "),
        ("Wir haben keine Tickets unter 45 Euro.", "haben keine Tickets unter "),
        ("No tomes 30 mg.", "No tomes "),
        ("It is not the cache, the port is 8443.", "port is "),
    ],
)
def test_a_name_keeps_the_word_that_denies_it(text, name):
    """Facts would say the opposite without it."""
    assert last(text).words.name.endswith(name)
    assert not last(text).words.name[: -len(name)]


def test_the_end_of_a_word_denies_nothing():
    """Wherever the reach begins: `casino` does not end in a `no`."""
    for filler in range(1, 25):
        text = f"The casino {'w' * filler} of the big hotel rooms price 45 euros"
        assert not last(text).words.name.startswith("no"), text


def test_a_value_has_its_sentence():
    """The sentence before it, and a log, state something else or nothing."""
    assert last("It was moved. The total is 4700 EUR.").words.sentence == "The total is 4700 EUR."
    assert [one.words.sentence for one in mentions("The total is 4700 EUR.")] == [""]


@pytest.mark.parametrize("unit", ["17 ", "word 1.5 ", "-> A-1 ", "statt 3 ", "第3", "\n9", "x_"])
def test_words_are_found_in_time_in_proportion(unit):
    """Each value looks no further than its reach."""
    assert grows_linearly(lambda text: list(mentions(text, said=True)), lambda size: unit * size, size=3_000)


@pytest.mark.parametrize(
    ("text", "is_supposed"),
    [
        ("Is the deadline 9 May?", True),
        ("If the budget were 50,000 EUR we could not do it.", True),
        ("The deadline is 9 May.", False),
    ],
)
def test_a_question_and_a_condition_state_no_value(text, is_supposed):
    """Values in them supersede no other value."""
    assert last(text).words.supposed is is_supposed


def test_a_comma_within_a_number_ends_no_clause():
    """The rest of a fact has whole numbers or none."""
    said = list(mentions("We launch on 4 May and have 84,500 euros. There are 12 of 3,200 seats.", said=True))

    assert [one.words.rest for one in said if one.words.rest.endswith(("84", "of 3"))] == []


def test_a_file_in_a_listing_is_not_named_by_the_lines_before_it():
    """A value that stands alone in its line is."""
    names = {one.text: one.words.name for one in mentions("Files:\nREADME.rst\nsetup.cfg\ntox.ini", said=True)}

    assert names == {"README.rst": "", "setup.cfg": "", "tox.ini": ""}
    (port,) = mentions("The port of the proxy:\n8443", said=True)
    assert "proxy" in port.words.name
