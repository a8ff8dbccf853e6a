"""The ledger: its entries within its limits, their replacements, and their return."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.events import (
    MessageAppended,
    MessagesPinned,
    MessagesRedacted,
    MessagesUnpinned,
    RulesDropped,
    SummaryRevoked,
)
from abridged.service.domain.fold import evolve
from abridged.service.domain.ledger import (
    LEDGER_FRAME_TOKENS,
    NO_LEDGER,
    NUMBERS_MAX,
    Ledger,
    LedgerEntry,
    LedgerFinds,
    Replaced,
    Use,
    joined_entries,
    ledger_lines,
)
from abridged.service.domain.ledger_entries import LISTED_MIN, READ_CHARS_MAX, found_in
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import Policy
from abridged.service.domain.rules import FoundRule, RuleFinds, RuleName
from abridged.service.domain.tokens import TokenSource
from abridged.service.text.identifiers import IdentifierKind
from tests.support.chats import OPEN, append, appended, completed, live_in, only_plan
from tests.support.given import given as having

ROOM = 1_000


def entry(
    text: str,
    *numbers: int,
    kind: IdentifierKind = IdentifierKind.TICKET,
    use: Use = Use.USER,
    context: str = "",
    tokens: int = 5,
) -> LedgerEntry:
    """An entry of these messages."""
    return LedgerEntry(kind, text, context, numbers or (1,), len(numbers) or 1, use, tokens)


def ledger(*entries: LedgerEntry, limit: int = ROOM, memory: int = 2 * ROOM) -> Ledger:
    """The ledger after these were found."""
    return NO_LEDGER.after(LedgerFinds(entries, (), limit, memory))


def texts(made: Ledger) -> list[str]:
    """Return the texts of the ledger that the window shows."""
    return [one.text for one in made.in_window]


def test_what_people_and_calls_named_outranks_what_tools_returned():
    """Frequent or recent names outrank the rest."""
    noise = [entry(f"T-{number}", 9, use=Use.TOOL) for number in range(50)]
    made = ledger(*noise, entry("OPS-1", 1), entry("OPS-2", 1, 5, 7), entry("OPS-3", 2, use=Use.CALL), limit=26)

    assert texts(made) == ["OPS-2", "OPS-3", "OPS-1"]


def test_a_quantity_that_many_rows_have_by_chance_is_not_named_again():
    """`34 ms` in six results of a tool is six waits; an identifier that two results name is one thing."""
    rows = [entry(f"{n} ms", *range(9, 16), kind=IdentifierKind.AMOUNT, use=Use.TOOL) for n in range(50)]
    ticket, said = entry("OPS-7", 2, 3, use=Use.TOOL), entry("12 kg", 1, kind=IdentifierKind.AMOUNT)
    often = entry("3 kg", *range(1, 9), kind=IdentifierKind.AMOUNT)

    assert texts(ledger(*rows, ticket, said, limit=23)) == ["12 kg", "OPS-7"]
    assert texts(ledger(often, entry("OPS-8", 8), limit=18)) == ["OPS-8"]


def test_what_a_person_hands_on_from_a_program_is_a_row_of_data():
    """A long message that names something every few words; the same words among others are the person's own."""
    rows = "\n".join(f"Requirement already satisfied: package-{n} in /usr/lib ({n}.4.{n})" for n in range(20))
    story = "It broke after the upgrade on our old machine, and nobody here knows the reason. " * 40

    def uses(text: str) -> set[Use]:
        found, _ = found_in(said_by_user(text), (), NO_LEDGER)
        return {one.use for one in found if one.text == "9.4.9"}

    assert (uses(rows), uses(f"{story}\n{rows}")) == ({Use.TOOL}, {Use.USER})


def test_a_tools_value_is_named_by_its_own_line():
    """The same lines of a person are read on."""
    lines = "the new IBAN of the sender\nDE89370400440532013000"

    def name(role: Role) -> str:
        message = Message("m1", role, lines, tool_call_id="c" if role is Role.TOOL else "")
        found, _ = found_in([MessageAppended(1, message, 9, TokenSource.ESTIMATE)], (), NO_LEDGER)
        return next(one.context for one in found if one.text.startswith("DE89"))

    assert (name(Role.TOOL), name(Role.USER)) == ("", "new IBAN of the sender ")


def test_what_a_person_hands_on_is_named_by_its_own_line_too():
    """Lines that a user pastes name their values as the lines of a tool do."""
    rows = "\n".join(f"id=RS-{n:05} ORD-{n:04}-X0 zone=north\nDE8937040044053201{n:04}" for n in range(60))
    found, _ = found_in(said_by_user(rows), (), NO_LEDGER)

    assert {one.context for one in found if one.text.startswith("DE89")} == {""}


def test_lines_of_a_listing_have_numbers_and_no_values():
    """Programs print files so; times at the beginning of lines are values."""
    listing = "[File: report.py (3 lines)]\n1:import numpy\n2:from os import path\n3:result = 12 * width"
    times = "The plan:\n09:30 breakfast\n10:15 the walk\n13:00 lunch"

    def found(text: str) -> set[str]:
        return {one.text for one in found_in(said_by_user(text), (), NO_LEDGER)[0]}

    assert found(listing) == {"report.py"}
    assert {"09:30", "10:15", "13:00"} <= found(times)


def test_the_window_shows_no_more_than_the_limit():
    """The frame and the names of kinds are counted too; the rest is remembered, up to its own limit."""
    made = ledger(*(entry(f"OPS-{number}", number) for number in range(1, 101)), limit=100, memory=200)

    assert LEDGER_FRAME_TOKENS < made.tokens <= 100
    assert made.shown == (100 - LEDGER_FRAME_TOKENS - 3) // 5
    assert len(made.entries) == 200 // 5


def test_a_ledger_without_room_shows_nothing_and_costs_nothing():
    """The ledger remembers its entries all the same, and shows them when there is room."""
    made = ledger(entry("OPS-1", 1), limit=0)

    assert (made.tokens, ledger_lines(made)) == (0, [])
    assert texts(made.after(LedgerFinds((), (), ROOM, ROOM))) == ["OPS-1"]


def test_mentions_of_one_identifier_are_one_entry():
    """Mentions may be in any case of letters: counts add up; the newest form and words, and the strongest use, stay."""
    made = ledger(entry("ops-1", 3, use=Use.TOOL, context="see"), entry("OPS-1", 7, use=Use.ASSISTANT, context="fix"))

    assert made.entries == (LedgerEntry(IdentifierKind.TICKET, "OPS-1", "fix", (3, 7), 2, Use.ASSISTANT, 5),)


def test_an_entry_names_its_first_message_and_the_newest_ones():
    """However many there are: an entry's size is bounded."""
    made = ledger(*(entry("OPS-1", number) for number in range(1, 101)))

    assert made.entries[0].numbers == (1, *range(94, 101))
    assert len(made.entries[0].numbers) == NUMBERS_MAX
    assert made.entries[0].times == 100


def test_a_replaced_value_is_not_shown():
    """A later message that names the value again shows it again."""
    made = ledger(entry("gate 12", 3), entry("gate 14", 5))
    replaced = made.after(LedgerFinds((), (Replaced("gate 12", 5),), ROOM, ROOM))

    assert texts(replaced) == ["gate 14"]
    assert set(texts(replaced.after(LedgerFinds((entry("gate 12", 9),), (), ROOM, ROOM)))) == {"gate 12", "gate 14"}


@pytest.mark.parametrize(
    ("older", "newer", "is_replaced"),
    [
        ("The deposit is 500 EUR.", "The deposit is 600 EUR now.", True),
        ("The order total is 4500 EUR.", "The order total is 4700 EUR.", True),
        ("The retry budget is PT45M.", "Then the retry budget has to be PT55M instead.", True),
        ("Die neue Kaution sind 2.956,50 €.", "Im Vertrag steht als neue Kaution 2.994,00 €.", True),
        ("キャッシュの有効期限は36時間です。", "キャッシュの有効期限は72時間に変更して。", True),
        ("The order total is 4500 EUR.", "The shipping costs 30 EUR.", False),
        ("The order total is 4500 EUR.", "The order has the number 4411902.", False),
        ("The rent is 4500 EUR a month.", "Imagine the rent were 4700 EUR a month.", False),
        ("The rent is 4500 EUR a month.", "Say, the rent is 4700 EUR a month.", False),
        ("Die Miete ist 4500 EUR im Monat.", "Angenommen, die Miete ist 4700 EUR im Monat.", False),
    ],
)
def test_a_value_is_replaced_by_one_of_the_same_thing(older, newer, is_replaced):
    """The words around both values, and their form, tell it in any language."""
    found, _ = found_in(said_by_user(older, newer), (), NO_LEDGER)

    assert bool(found[0].replaced_by) is is_replaced


def test_a_quantity_of_rows_that_no_word_names_is_remembered_and_not_shown():
    """A name makes it a fact, and so does a person who says it."""
    made = ledger(fact("34 ms", 2, use=Use.TOOL), fact("35 ms", 2, use=Use.TOOL, context="latency "), fact("36 ms", 2))

    assert set(texts(made)) == {"35 ms", "36 ms"}
    assert "34 ms" in [one.text for one in made.entries]


@pytest.mark.parametrize("count", [2, 4, 9])
def test_values_of_a_series_do_not_replace_each_other(count):
    """Each is of a thing of its own, unless somebody speaks of a change."""
    rows = [f"The importer reads the orders of host db-{n:02d}." for n in range(1, count + 1)]
    changes = [f"The host of the importer is now db-{n:02d}." for n in range(1, count + 1)]

    def replaced(texts: Sequence[str]) -> list[int]:
        found, gone = found_in(said_by_user(*texts), (), NO_LEDGER)
        by_key = {one.key: one.number for one in gone}
        assert by_key == {one.text: one.replaced_by for one in found if one.replaced_by}
        return [one.replaced_by for one in found]

    assert replaced(rows) == [0] * count
    assert replaced(changes) == [*range(2, count + 1), 0]


@pytest.mark.parametrize(
    ("offers", "is_replaced"), [("120 EUR and 140 EUR", True), ("120 EUR, 140 EUR and 160 EUR", False)]
)
def test_a_list_of_offers_is_not_replaced_in_one_pass_or_in_two(offers, is_replaced):
    """Three values of one shape in a message are of three things."""
    messages = said_by_user(f"The hotel has rooms at {offers}.", "The hotel rooms went up to 150 EUR.")
    _, at_once = found_in(messages, (), NO_LEDGER)

    found, _ = found_in(messages[:1], (), NO_LEDGER)
    first = NO_LEDGER.after(LedgerFinds(tuple(one.entry() for one in found), (), ROOM, ROOM))
    _, later = found_in(messages[1:], (), first)

    assert (bool(at_once), bool(later)) == (is_replaced, is_replaced)


def test_a_neighbour_by_chance_makes_no_series():
    """Only values that share a word are counted."""
    said = said_by_user(
        "The budget is 30 euros.", "The tickets cost 44 euros.", "We raised the budget: it is 45 euros."
    )
    _, replaced = found_in(said, (), NO_LEDGER)

    assert [one.key for one in replaced] == ["30 euros"]


def test_a_value_that_the_newer_message_names_too_is_not_replaced_by_its_others():
    """Both orders lead to the same."""
    for later in ("The car is 45 euros, the cabin is 90 euros.", "The cabin is 90 euros, the car is 45 euros."):
        _, replaced = found_in(said_by_user("The cabin is 90 euros.", "The car is 40 euros.", later), (), NO_LEDGER)
        assert "90 euros" not in [one.key for one in replaced]
    _, replaced = found_in(said_by_user("The port is 8080.", "The port is no longer 8080, it is 8443."), (), NO_LEDGER)
    assert [one.key for one in replaced] == ["8080"]


def said_by_user(*texts: str) -> list[MessageAppended]:
    messages = (Message(f"m{n}", Role.USER, text) for n, text in enumerate(texts, 1))
    return [MessageAppended(n, message, 9, TokenSource.ESTIMATE) for n, message in enumerate(messages, 1)]


def fact(text: str, *numbers: int, context: str = "", use: Use = Use.USER, replaced_by: int = 0) -> LedgerEntry:
    """A fact of these messages."""
    made = entry(text, *numbers, kind=IdentifierKind.AMOUNT, use=use, context=context)
    return made._replace(context_tokens=3 if context else 0, replaced_by=replaced_by, is_fact=True)


def test_facts_in_brackets_have_lines_of_their_own():
    """The name opens the bracket that the rest closes."""
    first = fact("$130", 1, context="Economy (")._replace(rest="), Business ($378)")
    made = ledger(first, fact("$109", 2, context="Economy (")._replace(rest=")"))

    assert ledger_lines(made) == ["Facts as written:", "Economy ($130), Business ($378)", "Economy ($109)"]


def test_a_fact_is_shown_with_its_name_or_not_at_all():
    """Facts come in the order in which they were first said; those of one name share a line, replaced ones say so."""
    made = ledger(
        fact("9.8 kN", 7, context="drawbar force: "),
        fact("A-17", 3, context="gate "),
        fact("08:30", 4, context="slots: "),
        fact("09:15", 5, context="slots: "),
        fact("14.2 kN", 2, context="drawbar force: ", replaced_by=7),
        entry("OPS-1", 3),
    )

    assert ledger_lines(made) == [
        "Facts as written:",
        "no longer: drawbar force: 14.2 kN",
        "gate A-17",
        "slots: 08:30, 09:15",
        "drawbar force: 9.8 kN",
        "Identifiers as written:",
        "ticket: OPS-1",
    ]
    assert ledger(fact("9.8 kN", 7, context="drawbar force: "), limit=LEDGER_FRAME_TOKENS + 7).shown == 0


def test_a_fact_that_the_record_says_beside_its_name_is_not_repeated():
    """The same value elsewhere is another fact."""
    facts = (fact("120 EUR", 1, context="deposit: "), fact("80 EUR", 2, context="deposit: "))
    beside = f"The room costs 120 EUR, {'as we said before, ' * 9} beside a deposit.\nThe deposit of 80 EUR is paid."

    assert texts(NO_LEDGER.after(LedgerFinds(facts, (), ROOM, ROOM), beside)) == ["120 EUR"]


@pytest.mark.parametrize(
    ("value", "longer"), [("1.2", "1.2.3"), ("$5", "$5,000"), ("12345", "12345.67"), ("10:00", "10:00:30")]
)
def test_a_fact_that_the_record_says_as_a_part_of_another_value_is_shown(value, longer):
    """A full stop, a comma and a colon between digits make a value longer, and end a sentence elsewhere."""
    one = fact(value, 1, context="limit: ")

    assert texts(NO_LEDGER.after(LedgerFinds((one,), (), ROOM, ROOM), f"The limit is {longer} now.")) == [value]
    assert texts(NO_LEDGER.after(LedgerFinds((one,), (), ROOM, ROOM), f"The limit is {value}. Now.")) == []


def test_a_labelled_value_of_a_tool_goes_before_one_that_stands_somewhere():
    """A key of JSON names its value, so that even a short one needs a place."""
    made = ledger(
        fact("33 ms", 1, context="waited ", use=Use.TOOL),
        fact("137", 1, context="exitCode=", use=Use.TOOL),
        limit=20,
    )

    assert texts(made) == ["137"]


def test_values_of_tools_fill_the_room_that_what_was_said_leaves():
    """A long value of a tool needs a place more than a short number that a model said once; what a user says and the
    reply repeats comes first."""
    made = ledger(
        fact("24", 1, context="about ", use=Use.ASSISTANT),
        fact("KX-5512093-R", 2, context="serial=", use=Use.TOOL),
        fact("17:30", 3, 4, context="meeting ", use=Use.USER),
    )

    assert texts(made) == ["17:30", "KX-5512093-R", "24"]


def test_what_messages_said_goes_when_they_go():
    """Mentions by other messages of an identifier stay; words of a message that went do not."""
    made = ledger(entry("OPS-1", 3, 7, context="fix"), entry("OPS-2", 7))

    left = made.restricted(lambda number: number < 7, lambda _: True)

    assert left.entries == (entry("OPS-1", 3),)


def test_a_facts_name_is_that_of_its_first_message_and_goes_with_it():
    """Later messages name it in passing; words of a message stay no longer than the message."""
    made = ledger(fact("4-17", 7, context="see "), fact("4-17", 3, context="gate "))

    assert [one.context for one in made.entries] == ["gate "]
    assert [one.context for one in made.restricted(lambda number: number < 7, lambda _: True).entries] == ["gate "]
    assert [one.context for one in made.restricted(lambda number: number > 3, lambda _: True).entries] == [""]


def test_a_fact_is_spelled_by_its_first_message_and_goes_with_it():
    """A spelling of a message stays no longer than the message: nobody knows how another one spells the value."""
    made = ledger(fact("ab-17", 7), fact("AB-17", 3), fact("4-17", 3, 7))

    assert set(texts(made)) == {"AB-17", "4-17"}
    assert set(texts(made.restricted(lambda number: number < 7, lambda _: True))) == {"AB-17", "4-17"}
    assert texts(made.restricted(lambda number: number > 3, lambda _: True)) == ["4-17"]


@pytest.mark.parametrize(("end", "times"), [(100, 100), (97, 97), (93, 1), (50, 1)])
def test_an_entry_counts_no_message_that_a_rewind_removed(end, times):
    """Mentions known only as a number of messages count as long as those must still be there."""
    made = ledger(*(entry("OPS-1", number, use=Use.TOOL) for number in range(1, 101)))

    (left,) = made.restricted(lambda number: number <= end, lambda _: True).entries

    assert left.times == times


def test_a_value_holds_again_when_its_newer_one_never_was():
    """A rewind removed the message that replaced it; a revocation does not."""
    made = ledger(entry("gate 12", 3)).after(LedgerFinds((), (Replaced("gate 12", 5),), ROOM, ROOM))

    assert texts(made.restricted(lambda _: True, lambda number: number < 5)) == ["gate 12"]
    assert texts(made.restricted(lambda _: True, lambda _: True)) == []


def test_values_are_shown_with_the_words_before_them():
    """A date says little by itself; a path explains itself. Kinds stand in one order, and on one line each."""
    made = ledger(
        entry("2024-05-15", 1, kind=IdentifierKind.DATE, context="deadline is"),
        entry("src/a.py", 2, kind=IdentifierKind.PATH, context="fails in"),
        entry("OPS-1", 3),
        entry("OPS-2", 4),
    )

    assert ledger_lines(made) == [
        "Identifiers as written:",
        "ticket: OPS-2 OPS-1",
        "path: src/a.py",
        "date: deadline is 2024-05-15",
    ]


def test_an_entry_with_a_space_in_it_stands_between_semicolons():
    """All others between spaces."""
    dates = ("1/2/26", "2/2/26", "2 May", "3 May", "4/2/26")
    made = ledger(*(entry(text, 9 - n, kind=IdentifierKind.DATE) for n, text in enumerate(dates)))

    _, line = ledger_lines(made)

    assert line == "date: 1/2/26 2/2/26; 2 May; 3 May; 4/2/26"


def test_what_a_longer_path_says_is_not_shown_beside_it():
    """A file or folder of it. Other names that it contains are names of something else."""
    path = entry("/srv/ops-1/fields.py", 9, kind=IdentifierKind.PATH)
    parts = [entry(text, 1, kind=IdentifierKind.FILE) for text in ("fields.py", "ields.py")]
    made = ledger(path, *parts, entry("/srv/ops-1", 1, kind=IdentifierKind.PATH), entry("ops-1", 1))

    assert texts(made) == ["/srv/ops-1/fields.py", "ops-1", "ields.py"]


def entries_of(first: int, last: int) -> st.SearchStrategy[list[LedgerEntry]]:
    """Entries that name messages of this range, each identifier once a message."""
    one = st.builds(
        lambda text, number, use: entry(f"T-{text}", number, use=use),
        st.integers(1, 6),
        st.integers(first, last),
        st.sampled_from(Use),
    )
    return st.lists(one, max_size=20, unique_by=lambda made: (made.key, made.numbers))


@given(entries_of(1, 30), entries_of(31, 60))
def test_the_order_in_which_messages_leave_does_not_matter(first, second):
    """Joined at once or one after the other: the same identifiers, counts and uses."""
    at_once = joined_entries([*first, *second])
    later = joined_entries([*joined_entries(second), *joined_entries(first)])

    def figures(entries: tuple[LedgerEntry, ...]) -> dict[str, tuple[int, Use, int, int]]:
        return {one.key: (one.times, one.use, one.numbers[0], one.numbers[-1]) for one in entries}

    assert figures(at_once) == figures(later)


@given(entries_of(1, 30), st.integers(0, 60), st.integers(0, 60))
def test_a_ledger_never_exceeds_its_limits(entries, limit, memory):
    """The limits are tokens shown and tokens remembered."""
    made = ledger(*entries, limit=limit, memory=memory)

    assert made.tokens <= limit
    assert sum(one.tokens for one in made.entries) <= max(memory, limit)


@pytest.mark.parametrize("place", [0, 3, 8])
def test_the_ledger_comes_back_as_it_was_when_a_pass_is_revoked(place):
    """Entries that came with the revoked pass go; those before it show again."""
    before = ledger(*(entry(f"OPS-{number}", number) for number in range(1, 10)), limit=40, memory=400)
    after = before.after(LedgerFinds(tuple(entry(f"NEW-{n}", 10 + n + place) for n in range(8)), (), 40, 400))

    assert after != before
    assert after.restricted(lambda number: number < 10, lambda _: True) == before


def test_what_one_tool_result_names_once_stands_behind_everything_else():
    """However new it is and whatever its kind; and it fills no more than half of the limit."""
    noise = [entry(f"T-{number}", 9, use=Use.TOOL) for number in range(50)]
    used = entry("8841207", 1, kind=IdentifierKind.NUMBER, use=Use.ASSISTANT)

    assert texts(ledger(*noise, used, limit=20)) == ["8841207"]
    assert ledger(*noise, used, limit=200).tokens <= 100


def test_what_a_long_log_counts_is_an_entry_only_if_somebody_says_it():
    """Durations, sizes and times of log lines, however often; not prices and dates that are named."""
    log = "2026-03-01T10:00:00Z waited 33 ms for 250 GB\ntotal: $1,200, launch date 2026-05-15, OPS-4411\n"
    padded = log + "all is well\n" * (READ_CHARS_MAX // 10)
    results = [appended(n, 10, message=Message(f"m{n}", Role.TOOL, padded, tool_call_id=f"c{n}")) for n in (1, 2)]
    told = appended(3, 10, message=Message("m3", Role.ASSISTANT, "It needs 250 GB, as the log says."))

    alone, _ = found_in(results, (), NO_LEDGER)
    said, _ = found_in([*results, told], (), NO_LEDGER)

    assert [found.text for found in alone] == ["$1,200", "2026-05-15", "OPS-4411"]
    assert {found.text for found in said} - {found.text for found in alone} == {"250 GB"}


def test_columns_of_a_tools_table_take_no_place():
    """A label of many measured values is a column; one that has few is a field, and codes stay under any label."""
    rows = ", ".join(f'{{"price": "{n}.50", "ref": "RX{n}K"}}' for n in range(11, 16))
    result = appended(1, 10, message=Message("m1", Role.TOOL, f'[{rows}], "fee": "9.90"', tool_call_id="c"))

    found, _ = found_in([result], (), NO_LEDGER)

    assert [one.text for one in found] == [*(f"RX{n}K" for n in range(11, 16)), "9.90"]


def result(number: int, text: str) -> MessageAppended:
    """A tool's result."""
    return appended(number, 10, message=Message(f"m{number}", Role.TOOL, text, tool_call_id="c"))


def test_the_state_of_a_thing_is_the_newest_of_its_row():
    """The line of the thing's other values has it, and no older one; a return to that is one more change."""
    booked = result(1, '{"booking": {"id": "8C8K4E", "status": "active", "total": "904.50"}}')
    cancelled = result(3, '{"booking": {"id": "8C8K4E", "status": "cancelled"}}')
    found, replaced = found_in([booked, cancelled], (), NO_LEDGER)
    made = NO_LEDGER.after(LedgerFinds(tuple(one.entry()._replace(tokens=5) for one in found), replaced, ROOM, ROOM))
    assert "8C8K4E > total=904.50; status=cancelled" in ledger_lines(made)
    assert "active" not in "\n".join(ledger_lines(made))

    again, replaced = found_in([], [result(5, '{"booking": {"id": "8C8K4E", "status": "active"}}')], made)
    assert (again, replaced) == ([], (Replaced("8c8k4e > status=cancelled", 5),))
    assert "status" not in "\n".join(ledger_lines(made.after(LedgerFinds((), replaced, ROOM, ROOM))))


def test_a_listing_ends_the_states_that_it_gives_anew():
    """A listing shows none of its own; the flights of a booking may be as many as the answers of a search."""
    booked = result(1, '{"id": "8C8K4E", "status": "confirmed"}')
    flights = [{"flight_number": f"HAT27{n}", "status": "cancelled"} for n in range(2)]
    listing = result(2, json.dumps({"id": "8C8K4E", "status": "cancelled", "flights": flights}))

    found, replaced = found_in([booked, listing], (), NO_LEDGER)
    assert replaced == (Replaced("8c8k4e > status=confirmed", 2),)
    assert [one.text for one in found if "cancelled" in one.text] == []


def test_what_a_call_asks_for_is_no_state():
    """The tool may refuse it."""
    delivered = result(1, '{"id": "W1234567", "status": "delivered"}')
    asked = ToolCall("c", "update", '{"id": "W1234567", "status": "cancelled"}')
    call = appended(2, 10, message=Message("m2", Role.ASSISTANT, "", tool_calls=(asked,)))

    found, replaced = found_in([delivered, call], (), NO_LEDGER)
    assert [one.text for one in found if "status" in one.text] == ["W1234567 > status=delivered"]
    assert replaced == ()


def test_states_of_a_list_of_things_take_no_place():
    """A search returns them; two things of one result have each its own."""
    listing = [{"id": f"KX{n}", "status": "available"} for n in range(LISTED_MIN)]

    for_few, _ = found_in([result(1, json.dumps(listing[:2]))], (), NO_LEDGER)
    for_all, _ = found_in([result(1, json.dumps(listing))], (), NO_LEDGER)
    assert [one.text for one in for_few if "=" in one.text] == ["KX0 > status=available", "KX1 > status=available"]
    assert [one.text for one in for_all if "=" in one.text] == []


def test_a_short_result_is_read_as_what_people_say():
    """A short result has the few values that somebody asked for."""
    result = appended(1, 10, message=Message("m1", Role.TOOL, '{"limits": {"memory": "2304Mi"}}', tool_call_id="c"))

    assert [(one.text, one.context) for one in found_in([result], (), NO_LEDGER)[0]] == [("2304Mi", "limits > memory=")]


def test_a_record_is_not_repeated_by_the_ledger():
    """Names that a record has as a whole word are left out until a later record lacks them."""
    made = NO_LEDGER.after(LedgerFinds((entry("OPS-1", 1), entry("OPS-2", 1)), (), ROOM, ROOM), "See ops-1 and OPS-22.")

    assert texts(made) == ["OPS-2"]
    assert set(texts(made.after(LedgerFinds((), (), ROOM, ROOM), "Nothing."))) == {"OPS-1", "OPS-2"}


def test_a_revocation_takes_what_its_messages_said_out_of_the_ledger():
    """They are back in the window."""
    messages = [appended(number) for number in range(1, 81)]
    requested = having(OPEN, *messages[:79]).when(append(messages[79]), Policy())
    plan = only_plan(requested.events)
    finds = LedgerFinds((entry("OPS-1", 3),), (), ROOM, ROOM)
    state = evolve(requested.after, replace(completed(plan), finds=finds), 0)
    record_id = live_in(state).id

    assert texts(state.ledger) == ["OPS-1"]
    back = evolve(state, SummaryRevoked(record_id, (record_id,), ()), 0, messages)
    assert (back.ledger.entries, back.ledger.tokens) == ((), 0)


def test_a_standing_rule_is_not_repeated_by_the_ledger():
    """Values of the rule are facts again once a caller has dropped it, or a redaction has taken it."""
    messages = [appended(number) for number in range(1, 81)]
    requested = having(OPEN, *messages[:79]).when(append(messages[79]), Policy())
    rules = RuleFinds((FoundRule("Always name OPS-1.", 4, 10),), (), ROOM)
    facts = LedgerFinds((entry("OPS-1", 3), entry("OPS-2", 3)), (), ROOM, ROOM)
    passed = replace(completed(only_plan(requested.events)), finds=facts, rules=rules)
    state = evolve(requested.after, passed, 0)

    assert texts(state.ledger) == ["OPS-2"]
    dropped = evolve(state, RulesDropped((RuleName(4, "Always name OPS-1."),)), 0)
    redacted = evolve(state, MessagesRedacted((4,), finds=facts), 0, messages)
    assert all(set(texts(one.ledger)) == {"OPS-1", "OPS-2"} for one in (dropped, redacted))


def test_a_redaction_takes_the_spelling_of_its_message():
    """A value that another message spells otherwise is one to the ledger: a fact is spelled by the first, others by the
    newest."""
    finds = LedgerFinds((entry("aB3dE9xQ", 1, 7), fact("kX9", 1, 7), fact("xY2", 7, 9), entry("4711", 2, 7)))

    left = finds.without(lambda number: number == 7).entries
    assert [(one.text, one.numbers) for one in left] == [("kX9", (1,)), ("4711", (2,))]


def test_a_redaction_after_a_revocation_leaves_no_spelling_of_its_message():
    """The revocation has forgotten which messages named the value."""
    made = ledger(fact("AB-17", 3), fact("ab-17", 7))

    revoked = made.restricted(lambda number: number < 7, lambda _: True)
    assert [one.text for one in LedgerFinds(revoked.entries).without(lambda number: number == 7).entries] == ["AB-17"]


def test_a_value_of_a_rule_is_a_fact_while_a_pin_takes_the_rule_out_of_the_window():
    """The window has the rule's message then, and the rule again afterwards."""
    messages = [appended(number) for number in range(1, 81)]
    requested = having(OPEN, *messages[:79]).when(append(messages[79]), Policy())
    rules = RuleFinds((FoundRule("Always name OPS-1.", 4, 10),), (), ROOM)
    passed = completed(only_plan(requested.events))
    state = evolve(
        requested.after, replace(passed, finds=LedgerFinds((entry("OPS-1", 3),), (), ROOM, ROOM), rules=rules), 0
    )

    pinned = evolve(state, MessagesPinned((4,)), 0, messages)
    unpinned = evolve(pinned, MessagesUnpinned((4,)), 0, messages)
    assert [texts(one.ledger) for one in (state, pinned, unpinned)] == [[], ["OPS-1"], []]


def test_rows_of_a_tools_table_take_no_place():
    """The rows' names only count, however many a result has; an identifier beside them stays."""
    rows = ", ".join(f'{{"value_{n}": {n}, "total_{n}": {n}, "row": "row_{n}"}}' for n in range(12))
    table = appended(1, message=Message("m1", Role.TOOL, f'[{rows}, "order_archive"]', tool_call_id="c"))

    found, _ = found_in([table], (), NO_LEDGER)

    assert [one.text for one in found if one.text.startswith(("value_", "total_", "row_"))] == []
    assert "order_archive" in [one.text for one in found]


def test_rows_of_data_take_no_place_though_each_has_a_message_of_its_own():
    """Counters of rows are known across messages; numbered names of people and cards stay, and so do people's words."""
    rows = [
        appended(n, message=Message(f"m{n}", role, f'{{"key": "row_{n}", "cells": ["value_{n}", "total_{n + 1}"]}}'))
        for n, role in enumerate((Role.TOOL, Role.USER) * 6, start=1)
    ]
    cards = " ".join(f"gift_card_{7480000 + 913 * n}" for n in range(5))
    wallet = appended(20, message=Message("w", Role.TOOL, f"[{cards}]", tool_call_id="c"))
    asked = appended(21, message=Message("a", Role.USER, "Please delete row_3, it is wrong."))

    found, _ = found_in([*rows, wallet, asked], (), NO_LEDGER)

    texts = [one.text for one in found]
    assert [text for text in texts if text.startswith(("value_", "total_", "row_"))] == ["row_3"]
    assert [text for text in texts if text.startswith("gift_card_")] == cards.split()


def test_what_calls_name_one_after_the_other_is_no_row():
    """A model chose each; within one call, names that count are rows as in a result."""
    chosen = [
        appended(n, message=Message(f"m{n}", Role.ASSISTANT, "", tool_calls=(ToolCall("c", "f", arguments),)))
        for n, arguments in enumerate((f'{{"function": "load_part_{n}"}}' for n in (753, 592, 563, 866, 123)), start=1)
    ]
    listed = ", ".join(f'"row_{n}"' for n in range(5))
    rows = appended(9, message=Message("r", Role.ASSISTANT, "", tool_calls=(ToolCall("c", "f", f"[{listed}]"),)))

    found, _ = found_in([*chosen, rows], (), NO_LEDGER)

    assert [one.text for one in found] == [
        "load_part_753",
        "load_part_592",
        "load_part_563",
        "load_part_866",
        "load_part_123",
    ]
