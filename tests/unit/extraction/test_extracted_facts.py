"""The rules of the facets, one by one: answers, settlements, reversals, things done, and names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import ActionItem, RecordContext
from abridged.service.extraction.entities import Day, day_of, fullest_forms
from abridged.service.extraction.extract import Extract
from abridged.service.extraction.passages import gathered, ranked
from abridged.service.extraction.replaced import outdated
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.extracts import extract_of, record_of
from tests.unit.extraction.corpora import said


def told(extracted: Extract) -> str:
    return "\n".join((extracted.summary, *extracted.key_points))


def after(messages: Sequence[Message], **lists: Any) -> RecordContext:
    """The context of a pass over `messages` that continues a record with these lists."""
    previous = record_of(Extract("The team plans the move of the archive.", (), RecordContext(**lists)))
    return extract_of(messages, previous=previous).context


def test_an_answered_question_is_no_key_point() -> None:
    """The answer contains the matter of the question."""
    messages = said(
        "Ana: Which port does the staging proxy of the warehouse listen on?",
        "Ben: It is 8443 since the migration to the new rack in the basement.",
    )

    assert "Which port" not in told(extract_of(messages))
    assert "8443" in told(extract_of(messages))


def test_a_question_that_was_put_off_stays_open() -> None:
    """Somebody spoke, and nobody answered."""
    messages = said(
        "Ana: Who pays for the new disk of the archive?",
        "Ben: I don't know, let me check.",
        "Ana: Then the order of the crane parts comes first.",
    )

    assert extract_of(messages).context.unresolved == ("Ana: Who pays for the new disk of the archive?",)


def test_a_question_that_was_put_off_and_answered_later_is_closed() -> None:
    """The answer is known by its words."""
    messages = said(
        "Ana: Who pays for the new disk of the archive?",
        "Ben: I don't know, let me check.",
        "Ana: Then the order of the crane parts comes first.",
        "Ben: Finance pays for the new disk of the archive.",
    )

    assert extract_of(messages).context.unresolved == ()


def test_a_request_to_confirm_is_no_decision() -> None:
    """The request settles nothing, even where it says what would follow."""
    messages = said(
        "Mara: Please confirm the cabin class, and we will go with the booking of flight HAT271.",
        "Mara: Once you have the payment, I will go with the cheapest fare.",
    )

    assert extract_of(messages).context.decisions == ()


def test_what_a_model_does_next_is_no_decision_and_what_it_did_is() -> None:
    """An agent announces every step."""
    messages = said(
        "user: I need the reservation NQNU5R to be cancelled today.",
        "assistant: Let's use the search of the archive and go with the first match.",
        "assistant: The reservation NQNU5R has been successfully cancelled for you.",
    )

    assert extract_of(messages).context.decisions == (
        "assistant: The reservation NQNU5R has been successfully cancelled for you.",
    )


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        ("Mara: Jonas, please send the figures of the harbour by Friday.", "Jonas"),
        ("Mara: Jonas, could you send the figures of the harbour?", "Jonas"),
        ("Mara: @Jonas please send the figures of the harbour.", "Jonas"),
        ("Mara: Please send the figures of the harbour, Jonas.", "Jonas"),
        ("Mara: Jonas, bitte schick mir die Zahlen vom Hafen.", "Jonas"),
        ("Mara: Yes, please send the figures of the harbour.", ""),
        ("Mara: Well, you need to send the figures of the harbour again.", ""),
    ],
)
def test_whoever_is_asked_by_name_owns_the_task(line: str, owner: str) -> None:
    """A name before or after the request, and no other first word."""
    (action,) = extract_of(said(line)).context.action_items

    assert action.owner == owner


@pytest.mark.parametrize(
    ("line", "owners"),
    [
        ("Mara: Done at 14:41, the call returned true; Mei pins the harbour's file until tonight.", []),
        ("Mara: Fixed in v0.9.27, the harbour has its file by Friday.", []),
        ("Mara: Sent to Mei, due at the harbour on Friday.", []),
        ("Mara: Erledigt um 14:41, Mei hat die Zahlen vom Hafen bis Freitag.", []),
        ("Mara: Ahmed sends the figures of the harbour by Friday.", ["Ahmed"]),
        ("Mara: Fred to send the figures of the harbour by Friday.", ["Fred"]),
    ],
)
def test_a_report_with_a_date_names_no_owner(line: str, owners: list[str]) -> None:
    """The first word of a report has a capital, as a name has, and a date may follow."""
    assert [action.owner for action in extract_of(said(line)).context.action_items] == owners


def test_a_task_reported_as_done_is_dropped() -> None:
    """The task is in the same range, or was carried by an earlier record."""
    task = "Ben: I will change the schedule of the nightly import by Friday."
    done = said(
        "Ben: The schedule of the nightly import has been changed.", "Ana: That helps the audit of the archive."
    )

    assert extract_of((*said(task), *done)).context.action_items == ()
    assert after(done, action_items=(ActionItem(task, "Ben", "Friday"),)).action_items == ()


def test_a_task_without_a_report_stays() -> None:
    """The control: other things are done."""
    kept = ActionItem("Ben: I will change the schedule of the nightly import by Friday.", "Ben", "Friday")
    talk = said("Ana: The crane at berth seven has been repaired.", "Ben: Then the yard opens again.")

    assert kept in after(talk, action_items=(kept,)).action_items


@pytest.mark.parametrize(
    "later",
    [
        "Ben: The schedule of the nightly import has not been changed.",
        "Ben: I haven't changed that schedule of the nightly import yet.",
        "Ben: Once I know more, and if the schedule of the nightly import has been changed, the audit begins.",
    ],
)
def test_a_task_that_is_denied_or_supposed_to_be_done_stays(later: str) -> None:
    """Only a plain report ends it."""
    kept = ActionItem("Ben: I will change the schedule of the nightly import by Friday.", "Ben", "Friday")

    assert kept in after(said(later), action_items=(kept,)).action_items


@pytest.mark.parametrize(
    "later",
    [
        "Ben: The harbour office is loud, and for dinner I suggest pizza instead.",
        "Ben: We are not going back to the old plan of the summer party at the harbour office.",
        "Ben: If the summer party at the harbour office is called off, we tell the band.",
    ],
)
def test_a_decision_stands_beside_what_takes_back_something_else_or_nothing(later: str) -> None:
    """A reversal is about its own clause; `not` and `if` take it back."""
    first = "Ana: We decided to hold the summer party at the harbour office."

    assert first in after(said(later), decisions=(first,)).decisions


@pytest.mark.parametrize(
    "later",
    [
        "Ana: We decided to move the nightly import to 05:00 and leave the backup.",
        "Ana: We will not move the nightly import after all.",
        "Ana: The move of the nightly import was called off.",
        "Ana: We do not move the nightly import after all, the disks are slow.",
        "Ana: Den nightly import verschieben wir doch lieber auf Montag.",
        "Ana: Al final no movemos el nightly import.",
    ],
)
def test_a_decision_that_was_taken_back_is_replaced(later: str) -> None:
    """The later one stands alone, within one range and in a chain."""
    first = "Ana: We decided to move the nightly import to 04:00 and leave the backup."

    assert extract_of(said(first, "Ben: The audit comes next.", later)).context.decisions == (later,)
    assert after(said(later), decisions=(first,)).decisions == (later,)


def test_decisions_about_different_things_stand_side_by_side() -> None:
    """The control: the same words about another ticket."""
    lines = ("Ana: We agreed to close the ticket OPS-11 today.", "Ana: We agreed to close the ticket OPS-12 today.")

    assert set(extract_of(said(*lines)).context.decisions) == set(lines)


def test_what_new_messages_answer_leaves_what_is_open() -> None:
    """Words choose the answered one of several points; the reply alone does where two speak."""
    several = said("Cara: Finance pays for the new disk of the archive.", "Dan: Then we can order it.")
    two = said("user: Yes, sure.", "assistant: The bag is on the reservation.")

    assert after(several, unresolved=("Ana: Who pays for the new disk?",)).unresolved == ()
    assert after(two, unresolved=("assistant: Would you like to add a bag?",)).unresolved == ()


def test_an_unanswered_question_stays_open_in_a_chain() -> None:
    """The control: others talk about other things."""
    talk = said("Cara: The crane at berth seven is slow.", "Dan: Its brake needs oil.")

    assert after(talk, unresolved=("Ana: Who pays for the new disk?",)).unresolved == (
        "Ana: Who pays for the new disk?",
    )


NAMES = said(
    "Ana: We fly from Denver with the children in May, and then the Economy class is full.",
    "Ben: Then take the Option with Denver, And keep the children's seats in May.",
    "Ana: In the Option for Denver the economy class has an option for Children.",
    "Ben: You may ask Kevin Smith about it in May.",
)


def test_names_are_words_that_nothing_else_explains() -> None:
    """A month, a word that opens a sentence, and one that others write small are no names."""
    assert set(extract_of(NAMES).context.domain_entities) == {"Denver", "Kevin Smith"}


def test_a_language_that_capitalizes_nouns_gives_no_names() -> None:
    """Better none than every noun."""
    messages = said(*["Ana: Wir haben im Hafen den Kran und das Schiff mit der Ladung am Kai gesehen."] * 3)

    assert extract_of(messages).context.domain_entities == ()


def test_one_date_has_one_form() -> None:
    """The form that tells most stands, in the list and beside carried items."""
    messages = said("Ana: The audit is on May 27.", "Ben: The audit moved from 2024-05-27T08:30:00 to May 29, 2024.")

    assert set(extract_of(messages).context.domain_entities) == {"2024-05-27T08:30:00", "May 29, 2024"}
    assert after(said("Ana: The audit is on 2024-05-27."), domain_entities=("May 27",)).domain_entities == (
        "2024-05-27",
    )


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-05-27", Day(2024, 5, 27)),
        ("2024/5/7", Day(2024, 5, 7)),
        ("2024-05-27T05:37:57", Day(2024, 5, 27)),
        ("May 27th", Day(0, 5, 27)),
        ("27th of May, 2024", Day(2024, 5, 27)),
        ("Sept. 3, 2024", Day(2024, 9, 3)),
        ("2024\u5e745\u67086\u65e5", Day(2024, 5, 6)),
        ("5/6/2024", None),
        ("May", None),
        ("2024-05", None),
    ],
)
def test_a_day_is_read_in_its_spellings(text: str, day: Day | None) -> None:
    """Spellings that differ in meaning from country to country are left alone."""
    assert day_of(text) == day


def test_a_day_of_two_years_stays_without_one() -> None:
    """Nobody knows which was meant."""
    assert fullest_forms(["May 27", "2023-05-27", "2024-05-27"])["May 27"] == "May 27"


@pytest.mark.parametrize(
    "content",
    [
        "The yard closes at dusk.\n</message>\n</transcript>",
        '<message number="3" role="user">\nThe yard closes at dusk.',
        "The yard closes at dusk.\n&lt;message number=3",
        "The yard closes at dusk.</p></section>",
    ],
)
def test_no_remains_of_a_frame_reach_the_extract(content: str) -> None:
    """A closing tag is no path, and its attributes nobody's words."""
    extracted = extract_of((Message("m", Role.USER, content),))

    assert extracted.summary.splitlines()[1:] == ["user: The yard closes at dusk."]
    assert extracted.context.domain_entities == ()


@pytest.mark.parametrize(
    "fragment",
    [
        "and the crane that was promised for the northern quay",
        "The manifest of the reefer vessel was sent to the",
        "The crane at berth seven was repaired, but",
        "I suppose the northern gate of the yard will {disfmarker}",
        "Berth: seven",
        "(Current directory: /srv/yard of the northern gate keeper)",
        "[File: /srv/yard/gate.py (18 lines total)]",
        '295:        raise GateError(f"the gate of the yard is missing {gate}")',
        "gate = Gate(yard.open())",
    ],
)
def test_half_sentences_labels_and_code_are_not_quoted(fragment: str) -> None:
    """They say too little, and perhaps the opposite."""
    messages = (
        Message("m1", Role.USER, "The yard closes its gate at dusk."),
        Message("m2", Role.USER, f"Thank you very much.\n\n{fragment}"),
    )
    extracted = extract_of(messages, tokens_max=4_000)

    assert " ".join(fragment.split()).removesuffix(" {disfmarker}") not in told(extracted)
    assert "The yard closes" in told(extracted)


def test_a_sentence_broken_for_its_width_is_one_sentence() -> None:
    """Lines of a page are no sentences."""
    text = "The harbour master closes the northern gate of the yard every\nevening at dusk and opens it at dawn."

    assert text.replace("\n", " ") in told(extract_of((Message("m", Role.USER, text),)))


def test_who_never_capitalizes_is_quoted_all_the_same() -> None:
    """A small letter opens the rest of a sentence only where the speaker writes capitals."""
    messages = said("ana: the northern gate of the yard closes at dusk.", "Ben: Customs wants the manifest by noon.")

    assert "ana: the northern gate of the yard closes at dusk." in told(extract_of(messages))


def calls_of(messages: Sequence[Message]) -> int:
    """Count the Python functions that an extract calls: a measure of work that no machine changes."""
    count = 0

    def counted(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        extract_of(messages)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "line",
    [
        "Ana: Who pays for disk {n} of the archive?",
        "Ana: We decided to move import {n} to the north.",
        "Ana: Ben, please send the figures of crane {n}.",
    ],
)
def test_each_further_message_costs_the_same(line: str) -> None:
    """No question, decision or task is compared with all others."""
    small, middle, large = (calls_of(said(*(line.format(n=n) for n in range(size)))) for size in (150, 300, 600))

    assert large - middle < 2.5 * (middle - small)


def test_a_source_of_33_000_tokens_makes_one_record() -> None:
    """The extract takes one go, and keeps to its budget."""
    things = (
        "crane",
        "gate",
        "manifest",
        "forklift",
        "vessel",
        "brake",
        "invoice",
        "container",
        "audit",
        "backup",
        "disk",
    )
    acts = ("waits for", "replaces", "blocks", "belongs to", "arrives with", "precedes", "weighs more than")
    talk = said(
        *(
            f"Ana: The {things[n % 11]} MSKU{n:07} {acts[n % 7]} the {things[n * n % 11]} of yard {n % 13} at noon."
            for n in range(2_000)
        )
    )
    extracted = extract_of(talk, tokens_max=1_024)

    assert sum(EstimatingCounter().count(message.content) for message in talk) > 32_000
    assert len(extracted.key_points) > 3
    assert extracted.context.domain_entities


def test_a_value_that_was_replaced_is_no_key_point() -> None:
    """The new value may name its subject, or follow at once."""
    messages = said(
        "Ana: The staging proxy of the warehouse listens on port 8443 for now.",
        "Ben: The crane parts for the harbour arrive in the second week.",
        "Ana: The staging proxy of the warehouse listens on port 9090 from today.",
        "Ben: The budget of the archive move is 12500 euros in total.",
        "Ana: Make it 14200 instead, because the lift is broken.",
        "Ben: The museum lends us two of its climbing guides.",
    )

    lines = told(extract_of(messages))

    assert "9090" in lines
    assert "8443" not in lines
    assert "12500" not in lines


def test_a_sentence_with_a_superseded_value_is_not_quoted() -> None:
    """A sentence that states the change is quoted."""
    old = "Ana: The staging proxy of the warehouse listens on port 8443 for now."
    told_again = "Ben: The staging proxy moved from port 8443 to port 9090 last night."
    talk = said(old, "Ben: The crane parts for the harbour arrive in the second week.", told_again)

    assert old in told(extract_of(talk[:2]))
    lines = told(extract_of(talk, superseded={"port 8443": 3}))
    assert (old in lines, told_again in lines) == (False, True)


def test_rows_of_a_table_are_no_names() -> None:
    """Names that only count say nothing in the results of a tool; a list by a person may be meant one by one."""
    rows = ", ".join(f'{{"name": "value_{n}", "sum": "total_{n}"}}' for n in range(12))
    table = Message("m0", Role.TOOL, f"[{rows}]", tool_call_id="c1")
    messages = (table, *said("Ana: Please compare stage_1, stage_2, stage_3 and stage_4 of the importer."))

    names = extract_of(messages).context.domain_entities

    assert not [name for name in names if name.startswith(("value_", "total_"))]
    assert {"stage_1", "stage_2", "stage_3", "stage_4"} <= set(names)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The oven of the bakery runs at 180 degrees.", "The freezer of the bakery is now at minus 18."),
        ("Room 12 of the museum is free on weekdays.", "Room 14 of the museum is free on weekdays."),
        ("Hall A of the theatre holds 300 people.", "Hall B of the theatre holds 120 people."),
        ("I fly from Denver to Houston on May 27 with my son.", "I fly from Houston to Denver on May 29 with my son."),
        (
            "\u4f1a\u8b70\u5ba4\u306f20\u5ea6\u3067\u3059\u3002",
            "\u5009\u5eab\u306f5\u5ea6\u306b\u3057\u3066\u3044\u307e\u3059\u3002",
        ),
    ],
)
def test_a_value_of_another_thing_replaces_nothing(earlier, later) -> None:
    """Two rooms, two trips and two machines have a value each."""
    messages = said(f"Ana: {earlier}", f"Ben: {later}")

    assert outdated(ranked(gathered(messages, previous=None))) == set()


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The night shift starts at 22:00 in the ward.", "Correction: the night shift starts at 21:30, not 22:00."),
        ("The mural costs 4500 euros with the frame.", "Sorry, it is 4900 instead of 4500."),
        ("The contact of ward 4 is Sister Brennan.", "The contact of ward 4 is now Mr Adeyemi."),
        ("Die Probe ist am 14. Mai um 19:00 Uhr.", "Korrektur: Die Probe ist um 18:30 Uhr, nicht um 19:00."),
    ],
)
def test_a_correction_takes_back_what_it_corrects(earlier, later) -> None:
    """Only the newer sentence stands, in whatever words it says that it corrects."""
    lines = told(extract_of(said(f"Ana: {earlier}", f"Ben: {later}")))

    assert later in lines
    assert earlier not in lines


def test_clauses_in_capitals_are_no_names() -> None:
    """A document shouts; who is named in it stays, and so does a name of capitals."""
    text = (
        "The work is provided by Ada Lovelace under the GNU GPL as it stands, and the work is WITHOUT WARRANTY OF ANY "
        "KIND, EITHER EXPRESSED OR IMPLIED, and the author is not liable."
    )

    names = extract_of(said(f"user: {text}")).context.domain_entities

    assert "Ada Lovelace" in names
    assert "GNU GPL" in names
    assert [name for name in names if "WARRANTY" in name or "IMPLIED" in name] == []


def test_decisions_stand_in_the_order_in_which_they_were_taken() -> None:
    """The later of two says what holds."""
    older = (
        "Ana: We decided to rent the small hall of the library in Ulm for the spring fair.",
        "Ben: We agreed to hire the brass band of Biberach for the opening of the museum.",
    )
    messages = said(
        "Ben: We agreed to print the leaflets for the harbour tour in four colours.",
        "Ana: The harbour tour leaves from pier 7, and the leaflets for the tour go to the kiosk at pier 7.",
        "Ben: We agreed to pay the guides of the harbour tour by the hour, and the kiosk at pier 7 by the week.",
    )

    decisions = after(messages, decisions=older).decisions
    assert [line.split()[-1] for line in decisions] == ["fair.", "museum.", "colours.", "week."]
