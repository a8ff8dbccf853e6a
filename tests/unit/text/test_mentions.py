"""Identifiers of a text that a ledger should keep, with the words before them and the ones that they replace."""

from __future__ import annotations

from time import process_time

import pytest

from abridged.service.text.identifiers import IDENTIFIER_CHARS_MAX, IdentifierKind
from abridged.service.text.mentions import BLOCK_CHARS, mentions


def named(text: str) -> dict[str, IdentifierKind]:
    """Return the kinds of the identifiers that the text names, by their text."""
    return {found.text: found.kind for found in mentions(text)}


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("See https://example.org/a?b=1.", IdentifierKind.URL, "https://example.org/a?b=1"),
        ("Write to ada@example.org", IdentifierKind.EMAIL, "ada@example.org"),
        ("id 123e4567-e89b-12d3-a456-426614174000", IdentifierKind.UUID, "123e4567-e89b-12d3-a456-426614174000"),
        ("at 3006277f it broke", IdentifierKind.HASH, "3006277f"),
        ("in src/import/orders.py", IdentifierKind.PATH, "src/import/orders.py"),
        ("open orders.yaml", IdentifierKind.FILE, "orders.yaml"),
        ("fixed by OPS-4411", IdentifierKind.TICKET, "OPS-4411"),
        ("since 2.7.1 only", IdentifierKind.VERSION, "2.7.1"),
        ("booking NQNU5R", IdentifierKind.CODE, "NQNU5R"),
        ("Reservation IFOYYZ is mine", IdentifierKind.CODE, "IFOYYZ"),
        ('{"reservation_id": "IFOYYZ"}', IdentifierKind.CODE, "IFOYYZ"),
        ("wait at gate 12 please", IdentifierKind.CODE, "gate 12"),
        ("order #48213 is late", IdentifierKind.CODE, "order 48213"),
        ("call load_orders() first", IdentifierKind.SYMBOL, "load_orders()"),
        ("the class OrderImporter", IdentifierKind.SYMBOL, "OrderImporter"),
        ("run `git rebase main` now", IdentifierKind.COMMAND, "git rebase main"),
        ("Then:\n$ docker compose up -d\nand wait", IdentifierKind.COMMAND, "docker compose up -d"),
        ("undo it by `mendctl rollback --to 5121`.", IdentifierKind.COMMAND, "mendctl rollback --to 5121"),
        ("$ ./tidy.sh -n reports", IdentifierKind.COMMAND, "./tidy.sh -n reports"),
        ("a fee of $1,200", IdentifierKind.AMOUNT, "$1,200"),
        ("on 2024-05-15", IdentifierKind.DATE, "2024-05-15"),
        ("on May 15, 2024", IdentifierKind.DATE, "May 15, 2024"),
        ("dial +49 170 1234567", IdentifierKind.PHONE, "+49 170 1234567"),
        ("customer 8841207", IdentifierKind.NUMBER, "8841207"),
    ],
)
def test_each_kind_of_identifier_is_found_as_written(text, kind, found):
    """Letter by letter, without the punctuation around it."""
    assert named(text).get(found) is kind


@pytest.mark.parametrize(
    "text",
    [
        "Latency fell to 3.14 and then to 0.87 of what it was.",
        "It took 12 tries in 3 days, 45 % of them at night.",
        "We meet at 10:30, or at 4 pm.",
        "make sure that the importer is ready, and go to the next room",
        "password=hunter22 and token: ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        '{"cabin_class": "economy", "free_baggage": 2}',
        "I.e. this is not one, e.g. that neither.",
        "<conversation>so</conversation> and <br/> then </message>",
        "the `parser blocks the table` and `index feeds report`, a `well - known` span",
    ],
)
def test_what_is_no_identifier_is_not_demanded(text):
    """Decimals, small numbers, times of day, prose, secrets and keys of JSON."""
    assert named(text) == {}


def test_a_secret_is_never_part_of_a_mention():
    """No identifier, context or command of a mention has it."""
    secret = "hunter22abcDEF"
    text = f"password={secret} for OPS-4411, then `curl -u bob:{secret}@x https://bob:{secret}@example.org/path`"

    assert "OPS-4411" in named(text)
    assert secret not in repr(list(mentions(f"{text}\n$ mysql --password={secret} -h db-1.internal")))


@pytest.mark.parametrize("end", "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_an_identifier_ends_with_its_line(end: str):
    """A message cannot begin a line of the ledger, whatever a renderer takes for a line's end."""
    text = (
        f"Run `git log --oneline{end}ticket: OPS-7` and `mytool --all{end}code: AB12CD` in '/srv/my files{end}x.txt'."
    )

    found = [mention.text for mention in mentions(text)]

    assert {"git log --oneline", "mytool --all"} <= set(found)
    assert all(len(one.splitlines()) == 1 for one in found)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("Your flight moved from gate 12 to 14.", "gate 12", "gate 14"),
        ("OPS-4411 -> OPS-4412", "OPS-4411", "OPS-4412"),
    ],
)
def test_a_text_says_which_identifier_gives_way(text, old, new):
    """A label with two numbers says so, and so does an arrow between two of a kind."""
    assert {found.text: found.replaces for found in mentions(text)} == {old: "", new: old}


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("Use db-oslo-2 instead of db-oslo-1, please.", "db-oslo-1", "db-oslo-2"),
        ("Rename src/a.py to src/b.py", "src/a.py", "src/b.py"),
        ("The launch was moved from 2024-05-03 to 2024-05-10.", "2024-05-03", "2024-05-10"),
        ("Der Termin ist jetzt am 2024-05-10 statt 2024-05-03.", "2024-05-03", "2024-05-10"),
        ("La sesión es el 2024-05-10 en lugar de 2024-05-03.", "2024-05-03", "2024-05-10"),
        ("退款金额不是268.50\uff0c应该是241.65。", "268.50", "241.65"),
    ],
)
def test_what_holds_no_longer_is_dropped(text, old, new):
    """The language's own words for it say so."""
    assert {found.text: found.words.dropped for found in mentions(text, said=True)} == {old: True, new: False}


@pytest.mark.parametrize("name", ["a plain number", "a quantity"])
def test_small_numbers_count_if_somebody_says_and_names_them(name):
    """A log has one in every line."""
    text = {"a plain number": "The socket has mode 0660.", "a quantity": "It needs 250 GB of disk."}[name]

    assert len(list(mentions(text, said=True))) == 1
    assert named(text) == {}
    assert list(mentions("17", said=True)) == []


def test_longer_runs_are_data_and_no_identifiers():
    """A path of 300 characters is not for people."""
    assert named("/a" * IDENTIFIER_CHARS_MAX) == {}


def test_a_text_of_many_blocks_is_read_to_its_end():
    """Blocks end at spaces, so that none is cut in two."""
    text = " ".join(f"OPS-{number} is fine" for number in range(10_000))

    assert len(text) > 2 * BLOCK_CHARS
    assert len(named(text)) == 10_000


HOSTILE = {
    "near identifiers": "aB3_x-9.z/ ",
    "one line without spaces": "a1b2c3d4e5",
    "openings of masks": "password= eyJ",
    "numbers": "123,456,789.01.02 ",
    "months": "May June 3 of ",
    "labels": "gate number # order no. ",
    "commands": "`git `git ",
    "spans of code": "`a `b1 -c ",
    "prompts": "$ ab -c d\n",
    "from and to": "from OPS-1 to OPS-2 ",
    "dots": ".a.b.c.d",
    "slashes": "/a/b" * 20 + " ",
    "dashes": "A-1-",
    "at signs": "a@b.c@",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_time_linear_in_its_length(name):
    """Eight times the text takes less than twenty times the processor time: quadratic work would take sixty-four."""
    piece = HOSTILE[name]

    def cost(chars: int) -> float:
        text = piece * (chars // len(piece))
        begin = process_time()
        for _ in mentions(text):
            pass
        return process_time() - begin

    small = min(cost(20_000) for _ in range(3))
    assert cost(160_000) < 20 * small + 0.05


def test_a_second_number_of_one_label_ends_where_it_is_written():
    """The label that it lacks takes no place, so that nothing behind it is swallowed."""
    said = "Change from gate 12 to 45, it costs 99 euros. Convert port 80 to port 443 today."

    read = [(found.text, found.words.rest) for found in mentions(said, said=True)]
    assert ("gate 45", ", it costs 99 euros") in read
    assert ("99 euros", "") in read
    assert ("port 443", " today") in read


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I need:\n\n1. Your user ID.\n2. The fee of $12.\n3. Box 7.", {"$12", "7"}),
        ("Options:\n  4) gate 12 for 30 people\n  5) 8C8K4E", {"gate 12", "30 people", "8C8K4E"}),
        ("It does this for the seed:1. Go over it, step by step.2. Add 55 to the sum.", {"55"}),
        ("Send (1) the name, (2) the code K7.", {"K7"}),
        ("The score is 3. The room is 12. Thanks", {"3", "12"}),
        ("1. März ist frei\n2. April nicht", {"1. März", "2. April"}),
    ],
)
def test_a_number_that_only_counts_an_item_is_no_value(text, found):
    """The mark of an item stands beside the next one, on lines, in brackets or behind sentences; others are values."""
    assert {mention.text for mention in mentions(text, said=True)} == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("  char cVar1;", set()),
        ("  ulong *local_10;", set()),
        ('    puts("4");', set()),
        ("    uVar1 = next_cypher(0xffffffff);", {"next_cypher(0xffffffff)", "0xffffffff"}),
        ("  for (local_14 = 0; local_14 < 16; local_14 = local_14 + 1) {", set()),
        ("for i in range(17):", set()),
        ("POOL_MAX = 180;", {"180"}),
        ("pool = open_pool(180)", {"open_pool(180)"}),
        ("DELETE FROM ledger_line WHERE batch_id = 5;", {"ledger_line WHERE", "batch_id", "5"}),
        ("limits: {cpu: 750m, memory: 2304Mi}", {"750m", "2304Mi"}),
        ("Wir nehmen Raum_7; der Preis (netto) ist 47,50 €;", {"Raum_7", "47,50 €"}),
    ],
)
def test_a_statement_of_a_program_has_no_values_of_its_own(line, found):
    """Functions, addresses and what is assigned as it is are found in it; prose, settings and queries have theirs."""
    assert {mention.text for mention in mentions(f"It does this:\n{line}\n", said=True)} == found
