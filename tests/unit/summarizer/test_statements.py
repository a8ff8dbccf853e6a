"""The statements of a draft beside their source: those that stay, their messages, and the reasons for a repair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abridged.service.domain.message import Message, Role
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


def test_what_code_knows_the_messages_of_is_no_fault_of_an_answer():
    """A repair hears of the model's own statements alone, and these alone are counted."""
    known, invented = "Sell the villa.", "Buy the castle."

    found = judged({"decisions": (known, invented)}, concordance_of(enumerate(messages_of(SAID), 1)), {known: (2,)})

    assert found.taken_out["decisions"] == {invented}
    assert found.evidence.decisions == ((2,),)
    assert [problem.detail for problem in found.removed] == ["decisions: 1 rest on no message and were taken out"]
    assert found.unsupported == 1


def test_decisions_and_tasks_without_support_are_taken_out():
    """Key points and questions stay, without numbers; all of them are counted."""
    task = {"task": "Water the tulips", "owner": "", "due": ""}
    found = checked(
        key_points=["The parser is pinned to 3.3.9.", "Everybody loves opera."],
        decisions=["Sell the villa.", "Pin the parser to 3.3.9."],
        action_items=[task],
        unresolved=["Which opera is best?"],
    )

    context = found.draft.context
    assert (context.decisions, context.action_items) == (("Pin the parser to 3.3.9.",), ())
    assert len(found.evidence.decisions) == 1
    assert (found.draft.highlights[1], found.evidence.key_points[1]) == ("Everybody loves opera.", ())
    assert context.unresolved == ("Which opera is best?",)
    assert found.unsupported_statements == 4
    assert found.removed == (
        "no_evidence: decisions: 1 rest on no message and were taken out",
        "no_evidence: action_items: 1 rest on no message and were taken out",
    )


def test_statements_that_twist_their_source_are_taken_out():
    """The opposite of a message, and a decision that nobody took; reasons have numbers and no text."""
    found = checked(key_points=["Finance approved the second server."], decisions=["Move the archive to cold storage."])

    assert found.draft.highlights == ()
    assert found.draft.context.decisions == ()
    assert found.removed == (
        "opposite: key_points: 1 say the opposite of message 4",
        "only_proposed: decisions: 1 were only proposed, in message 2",
    )


def test_statements_that_name_another_speaker_are_taken_out():
    """Lists lose such statements one by one; a narrative with one goes back."""
    wish = "Dana wanted to move the archive to cold storage."
    found = checked(f"{NARRATIVE} {wish}", key_points=[wish, "The parser is pinned to 3.3.9."])

    assert found.draft.highlights == ("The parser is pinned to 3.3.9.",)
    assert found.removed == ("other_speaker: key_points: 1 name another speaker than message 2",)
    assert found.problems == ("other_speaker: summary gives to one speaker what another says in message 2",)


def test_statements_of_a_value_that_no_longer_holds_are_taken_out():
    """Statements that say which value took its place stay; the sentence of a model's narrative goes as well."""
    said = ("Pin the parser to 3.3.9, please.", "The parser is pinned to 3.3.9.", "Pin the parser to 3.4.2, please.")
    messages, old = messages_of(said), "The parser is pinned to 3.3.9."
    both = "The parser was pinned to 3.3.9, then to 3.4.2."
    draft = parsed(record("Somebody asked for the parser. The parser is pinned to 3.3.9.", key_points=[old, both]))

    def found(superseded: dict[str, int]) -> CheckedDraft:
        by_model = Source.of(
            messages, texts=(), previous=None, instructions="", superseded=superseded, by_model=True
        )  # fmt: skip
        return check_draft(draft, by_model)

    assert found({}).draft.highlights == (old, both)
    outdated = found({"3.3.9": 3})
    assert outdated.draft.highlights == (both,)
    assert outdated.draft.summary == "Somebody asked for the parser."
    assert outdated.removed == ("outdated: key_points: 1 have a value for which message 3 has another",)


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
