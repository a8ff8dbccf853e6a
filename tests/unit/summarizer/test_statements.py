"""The statements of a draft beside their source: those that stay, their messages, and the reasons for a repair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import DECISIONS_MAX, KEY_POINTS_MAX
from abridged.service.grounding.support import concordance_of
from abridged.service.prompts.prompt import repair_text
from abridged.service.summarizer.check import CheckedDraft, Source, check_draft
from abridged.service.summarizer.draft import parsed
from abridged.service.summarizer.statements import judged
from tests.support.answers import record

SAID = (
    "The importer of Dana fails on orders_2024.csv since version 3.4.1.",
    "I'd suggest moving the archive to cold storage.",
    "Let me think about it. For now pin the parser to 3.3.9.",
    "Done, the parser is pinned to 3.3.9. Finance did not approve the second server.",
    "Dana rewrites parse_header() by Friday.",
    "Will do. Who owns the retry queue?",
)
SUGGESTED = "assistant: I'd suggest moving the archive to cold storage."
IMPORTER = f"user: {SAID[0]}"
NARRATIVE = "The importer failed on orders_2024.csv, so the parser was pinned to 3.3.9."


def messages_of(said: Sequence[str]) -> list[Message]:
    roles = (Role.USER, Role.ASSISTANT)
    return [Message(f"m{n}", roles[n % 2], text) for n, text in enumerate(said)]


def source(said: Sequence[str] = SAID) -> Source:
    return Source.of(messages_of(said), texts=(), previous=None, instructions="")


def checked(summary: str = NARRATIVE, **fields: Any) -> CheckedDraft:
    return check_draft(parsed(record(summary, **fields)), source())


def test_every_statement_of_a_record_has_its_messages():
    """List by list, in the order of the record's lists, without empty and repeated items."""
    task = {"task": "Rewrite parse_header()", "owner": "Dana", "due": "Friday"}
    found = checked(
        key_points=["", "The importer fails since version 3.4.1.", "The importer fails since version 3.4.1."],
        decisions=["Pin the parser to 3.3.9."],
        action_items=[task],
        unresolved=["Who owns the retry queue?"],
    )

    assert found.draft.highlights == ("The importer fails since version 3.4.1.",)
    assert (found.evidence.key_points, found.evidence.action_items) == (((1,),), ((5,),))
    assert found.evidence.decisions in (((3,),), ((4,),))
    assert found.evidence.unresolved == ((6,),)
    assert (found.unsupported_statements, found.removed, found.problems) == (0, (), ())


def test_what_code_knows_the_messages_of_needs_no_proof_and_is_no_fault_of_an_answer():
    """A repair hears of the model's own statements alone, and these alone are counted."""
    known, invented = "Sell the villa.", "Buy the castle."

    found = judged({"decisions": (known, invented)}, concordance_of(enumerate(messages_of(SAID), 1)), {known: (2,)})

    assert found.taken_out["decisions"] == found.unsupported["decisions"] == {invented}
    assert found.rests_on == {known: (2,)}
    assert [problem.detail for problem in found.removed("")] == ["decisions: 1 rest on no message and were taken out"]


def test_statements_that_nothing_is_near_are_taken_out():
    """Lists of any kind lose them, and nothing stands in their place."""
    task = {"task": "Water the tulips", "owner": "", "due": ""}
    found = checked(
        key_points=["The parser is pinned to 3.3.9.", "Everybody loves opera."],
        decisions=["Sell the villa.", "Pin the parser to 3.3.9."],
        action_items=[task],
        unresolved=["Which opera is best?"],
    )

    context = found.draft.context
    assert (found.draft.highlights, context.decisions) == (
        ("The parser is pinned to 3.3.9.",),
        ("Pin the parser to 3.3.9.",),
    )
    assert (context.action_items, context.unresolved) == ((), ())
    assert found.unsupported_statements == 4
    assert found.removed[0] == "no_evidence: key_points: 1 rest on no message and were taken out"


@pytest.mark.parametrize(
    ("name", "twisted", "said"),
    [
        ("key_points", "Finance approved the second server.", "user: Finance did not approve the second server."),
        ("decisions", "Move the archive to cold storage.", SUGGESTED),
        ("key_points", "Dana wanted to move the archive to cold storage.", SUGGESTED),
        ("key_points", "The importer fails since version 3.3.9.", IMPORTER),
        ("decisions", "Everybody agreed to pin the parser.", "user: For now pin the parser to 3.3.9."),
    ],
)
def test_the_source_is_quoted_in_place_of_what_it_does_not_prove(name: str, twisted: str, said: str):
    """The opposite of a message, a decision that nobody took, another speaker, a value of something else, and a true
    one in other words without a value; reasons have numbers and no text."""
    found = check_draft(parsed(record(NARRATIVE, **{name: [twisted]})), source())
    told = getattr(found.draft, name)

    assert twisted not in told
    assert said.partition(": ")[2] in {line.partition(": ")[2] for line in found.draft.key_points}
    assert all(found.evidence.key_points)
    assert found.removed[0].startswith(f"unproved: {name}: 1 are not proved, and gave way to the words of message ")
    assert not found.problems


def test_what_a_record_says_is_not_quoted_again():
    """A narrative has it, or another list."""
    said = "Dana rewrites parse_header() by Friday."
    found = checked(f"{NARRATIVE} {said}", key_points=["Dana has work to do on the header with parse_header()."])

    assert found.draft.key_points == []


def test_a_message_is_quoted_once_in_the_list_that_it_belongs_to():
    """The order of the lists does not matter: a decision stands among the decisions."""
    said = "We decided to keep the old fence of the garden until spring."
    point, decision = "The garden's fence stays.", "The fence of the garden is kept until summer."

    found = check_draft(parsed(record(NARRATIVE, key_points=[point], decisions=[decision])), source((*SAID, said)))

    assert (found.draft.key_points, found.draft.decisions) == ([], [f"user: {said}"])
    assert [reason.partition(" ")[0] for reason in found.removed] == ["unproved:", "unproved:"]


def test_a_quotation_for_which_a_list_has_no_room_is_a_key_point_or_is_counted():
    """Reasons do not say of words that they stand where they fell off a full list."""
    said = "We decided to keep the old fence of the garden until spring."
    proved = [f"Crate {n} has the code K-{n}00." for n in range(KEY_POINTS_MAX)]
    twisted = "The fence of the garden is kept until summer."

    def found(points: list[str]) -> CheckedDraft:
        lists = {"key_points": points, "decisions": [*proved[:DECISIONS_MAX], twisted][-DECISIONS_MAX:]}
        draft = parsed(record(NARRATIVE, **lists))
        draft.decisions[:1] = proved[:2]
        return check_draft(draft, source((*SAID, *proved, said)))

    assert found([]).draft.key_points == [f"user: {said}"]
    assert "decisions: 1 are not proved, and gave way to the words of message 37" in found([]).removed[0]
    full = found(proved)
    assert said not in "\n".join((*full.draft.key_points, *full.draft.decisions))
    assert full.removed == ("unproved: decisions: 1 are not proved, and have no room even for the words of message 37",)


def test_a_statement_whose_source_cannot_be_quoted_is_counted():
    """Words are never divided, so nothing is left of a sentence that begins with one too long for a line."""
    said = f"{'x' * 400} paints the garden gate green."

    found = check_draft(parsed(record(NARRATIVE, decisions=["Eve paints the garden gate."])), source((*SAID, said)))

    assert (found.draft.decisions, found.draft.key_points) == ([], [])
    assert found.unsupported_statements == 1
    assert found.removed == ("no_evidence: decisions: 1 rest on no message and were taken out",)


def test_statements_of_a_value_that_no_longer_holds_give_way_to_the_newest_words():
    """Statements that say which value took its place stay; the sentence of a model's narrative goes."""
    said = ("Pin the parser to 3.3.9, please.", "The parser is pinned to 3.3.9.", "The parser gets pinned to 3.4.2.")
    messages, old = messages_of(said), "The parser is pinned to 3.3.9."
    both = "The parser was pinned to 3.3.9, then to 3.4.2."
    draft = parsed(record("Somebody asked for the parser. The parser is pinned to 3.3.9.", decisions=[old]))

    def found(superseded: dict[str, int]) -> CheckedDraft:
        by_model = Source.of(
            messages, texts=(), previous=None, instructions="", superseded=superseded, by_model=True
        )  # fmt: skip
        return check_draft(draft, by_model)

    outdated = found({"3.3.9": 3})
    assert (outdated.draft.decisions, outdated.draft.key_points) == ([], ["user: The parser gets pinned to 3.4.2."])
    assert outdated.draft.summary == "Somebody asked for the parser."
    assert not judged({"key_points": (both,)}, concordance_of(enumerate(messages, 1)), {both: (3,)}).taken_out[
        "key_points"
    ]


def test_a_secret_is_masked_where_it_is_quoted():
    """The source may have one in the sentence that comes nearest."""
    said = ("The new token of the importer is ghp_16C7e42F292c6912E7710c838347Ae178B4a, says Dana.", "Fine.")
    draft = parsed(record("The importer has a new token, says Dana.", key_points=["Dana has renewed the token."]))

    found = check_draft(draft, source(said))

    assert len(found.draft.key_points) == 1
    assert "ghp_" not in found.draft.key_points[0]


def test_a_tag_is_left_out_where_its_sentence_is_quoted():
    """Nobody says the frame of a prompt, nor the end of a paragraph."""
    said = ("The new parser of the importer <transcript> is pinned</b> for good, says Dana.", "Fine.")
    draft = parsed(record("The importer has a new parser, says Dana.", key_points=["Dana has renewed the parser."]))

    found = check_draft(draft, source(said))

    assert found.draft.highlights == ("user: The new parser of the importer is pinned for good, says Dana.",)


def test_a_narrative_that_twists_its_source_goes_back():
    """Only the model can write it again."""
    twisted = checked(f"{NARRATIVE} Finance approved the second server.")
    decided = checked(f"{NARRATIVE} The user decided to move the archive to cold storage.")

    assert twisted.problems == ("opposite: summary says the opposite of message 4",)
    assert decided.problems == ("only_proposed: summary makes a decision of what message 2 only proposed",)


def test_a_source_without_messages_takes_nothing_out():
    """Texts of partial summaries name no messages, and their evidence was judged before."""
    draft = parsed(record(NARRATIVE, decisions=["Pin the parser to 3.3.9."]))
    of_texts = Source.of((), texts=SAID, previous=None, instructions="")

    assert check_draft(draft, of_texts).draft.context.decisions == ("Pin the parser to 3.3.9.",)


def test_a_repair_is_told_where_how_much_was_invented_and_quotes_none_of_it():
    """The repair has each field with its count: a small model takes a quoted string for its subject."""
    found = checked(f"{NARRATIVE} Ticket OPS-4411 is closed.", key_points=["Host db-07.example.com is down."],
                    decisions=["Sell the villa."])  # fmt: skip

    text = repair_text((*found.problems, *found.removed), "Again.")

    assert "- unsupported: summary: 1 identifiers or numbers not in the source\n" in text
    assert "- unsupported: key_points: 1 identifiers or numbers not in the source were taken out\n" in text
    assert "- no_evidence: decisions: 1 rest on no message and were taken out\n" in text
    assert not {word for word in ("OPS-4411", "db-07", "villa") if word in text}
