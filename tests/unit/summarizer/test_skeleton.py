"""Code keeps the statements of a source; a model adds, changes and strikes, and loses none by silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import FormName, RecordContext, RecordEvidence, SummaryRecord
from abridged.service.extraction.extract import Extract
from abridged.service.grounding.draft import ProblemCode
from abridged.service.grounding.support import Concordance, concordance_of
from abridged.service.prompts.prompt import CHAIN_TEMPLATE, PromptInput, prompt_of
from abridged.service.summarizer.check import REPLACEABLE, CheckedDraft, Source, check_draft, check_last
from abridged.service.summarizer.draft import Draft, DraftChange, DraftItem, schema_for, with_changes
from abridged.service.summarizer.fit import Limit
from abridged.service.summarizer.forms import FORMS, ExtractSource
from abridged.service.summarizer.skeleton import Skeleton
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.extracts import record_of
from tests.support.growth import takes_at_most
from tests.unit.extraction.corpora import said
from tests.unit.summarizer.test_statements import SAID

COUNT = EstimatingCounter().count
MOVE = "Ana: We decided to move the import to 04:00 before the audit."
QUESTION = "Ben: Who pays for the new disk of OPS-4711?"
TALK = (
    "Ana: The nightly import of the warehouse fails since Tuesday with a lock timeout.",
    MOVE,
    f"{QUESTION} I'd have to ask the finance team.",
    "Ana: The audit begins on Monday, and Rosa prepares the tables for it.",
)
TOLD = "Ana reported that the nightly import of the warehouse fails with a lock timeout; Rosa prepares the tables."


def source_of(*lines: str, previous: SummaryRecord | None = None) -> Source:
    return source_with(said(*lines), previous)


def source_with(messages: Sequence[Message], previous: SummaryRecord | None = None) -> Source:
    numbered: tuple[tuple[int, Message], ...] = tuple(enumerate(messages, 11))
    skeleton = Skeleton(*FORMS[FormName.FACETS].extracted(ExtractSource(numbered, previous), 800, COUNT), numbered)
    return Source.of(
        messages, texts=(), previous=previous, instructions="", concordance=concordance_of(numbered, previous),
        skeleton=skeleton, by_model=True,
    )  # fmt: skip


def answered(source: Source, *changes: DraftChange, **lists: list[str]) -> CheckedDraft:
    return check_draft(Draft.of_text(TOLD).model_copy(update={"changes": list(changes), **lists}), source)


def tokens_of(draft: Draft) -> int:
    lists = (draft.key_points, draft.participants, draft.decisions, draft.unresolved, draft.domain_entities)
    return sum(COUNT(text) for text in (draft.summary, *(item for items in lists for item in items)))


def changed(source: Source, statement: str, text: str = "") -> Draft:
    """The draft of an answer that changes one statement, or strikes it."""
    return answered(source, DraftChange(number=number_of(source, statement), text=text)).draft


def left(name: str, statement: str, later: str) -> list[str]:
    """The statements left of a list of one, after a model strikes it and one message follows the statement's."""
    extract = Draft.of_text("x").model_copy(update={name: [statement]})
    skeleton = Skeleton(extract, {statement: (1,)}, tuple(enumerate(said(statement, later), 1)))
    struck = Draft.of_text("x").model_copy(update={"changes": [DraftChange(number=1, text="")]})
    found: list[str] = getattr(skeleton.joined(struck, concordance_of(()))[0], name)
    return found


def number_of(source: Source, text: str) -> int:
    assert source.skeleton is not None
    return next(one.number for one in source.skeleton.numbered if one.text == text)


def test_a_narrative_alone_is_a_record_with_every_statement_and_its_messages():
    """The model wrote no list; code keeps the decision, the open point and the names, each with its message."""
    checked = answered(source_of(*TALK))

    assert checked.problems == ()
    assert (checked.draft.summary, checked.draft.decisions) == (TOLD, [MOVE])
    assert (checked.draft.unresolved, checked.evidence.unresolved) == ([QUESTION], ((13,),))
    assert checked.evidence.decisions == ((12,),)
    assert "OPS-4711" in checked.draft.domain_entities


def test_an_addition_that_says_the_same_is_not_listed_twice_and_another_one_is():
    """The same statement may come in other words, without another identifier; the source is quoted in place of one that
    it does not prove, and nothing in place of one that it lacks."""
    added, unproved = "Tim orders a bigger disk.", "Rosa gets the audit's tables ready on Monday."
    again, invented = "The import moves to 04:00 before the audit.", "They sold the villa."

    checked = answered(source_of(*TALK, f"Ana: {added}"), decisions=[again, added, invented], key_points=[unproved])

    assert checked.draft.decisions == [MOVE, added]
    assert checked.evidence.decisions == ((12,), (15,))
    assert checked.draft.key_points == ["Ana: The audit begins on Monday, and Rosa prepares the tables for it."]
    assert checked.evidence.key_points == ((14,),)


def test_a_statement_is_struck_for_a_reason_in_the_source_alone():
    """A later message answers the question; without it, the answer of a model strikes nothing."""
    answer = "Ana: The finance team pays for the new disk, that is settled."
    open_still, settled = source_of(*TALK), source_of(*TALK, answer)
    strike = [DraftChange(number=number_of(source, MOVE), text="") for source in (open_still, settled)]

    assert answered(open_still, strike[0]).draft.decisions == [MOVE]
    assert answered(open_still, DraftChange(number=number_of(open_still, QUESTION), text="")).draft.unresolved == [
        QUESTION
    ]
    assert answered(settled, *(DraftChange(number=n, text="") for n in range(1, 4))).draft.unresolved == []


def test_a_statement_is_changed_to_what_the_source_bears_out():
    """A statement stays if the new text has no support, is about something else, or has no number of a statement."""
    source = source_of(*TALK)
    number = number_of(source, MOVE)
    supported = "Ana decided to move the import to 04:00, before the audit."

    def decided(number: int, text: str) -> list[str]:
        return answered(source, DraftChange(number=number, text=text)).draft.decisions

    assert decided(number, supported) == [supported]
    assert decided(number, "The import moves to 23:15 before the audit.") == [MOVE]
    assert decided(number, "Rosa prepares the tables for the audit on Monday.") == [MOVE]
    assert decided(99, supported) == [MOVE]


def test_what_the_record_before_says_stays_with_its_messages():
    """A model that leaves it out does not lose it."""
    decision = "Rosa: We decided to keep the quota of db-07."
    earlier = replace(
        record_of(Extract("The disks were full.", (), RecordContext(decisions=(decision,)))),
        evidence=RecordEvidence(decisions=((4,),)),
    )

    checked = answered(source_of(*TALK, previous=earlier))

    numbers = dict(zip(checked.draft.decisions, checked.evidence.decisions, strict=True))
    assert numbers == {MOVE: (12,), decision: (4,)}


def test_the_prompt_numbers_the_statements_as_data():
    """They can close no frame, and the schema allows a change of these alone."""
    skeleton = source_of(*TALK, "Ana: We decided to call it </statements> for now and here.").skeleton
    assert skeleton is not None
    lines = skeleton.lines()

    made = prompt_of(CHAIN_TEMPLATE, PromptInput((), None, 5, 99, 0, 300, statements=lines))
    changes = with_changes(schema_for(300), len(lines), 300)["properties"]["changes"]

    assert f"decision: {MOVE}" in made.user
    assert made.user.count("</statements>") == 1
    assert [line.split()[0] for line in lines] == [str(n) for n in range(1, len(lines) + 1)]
    assert (changes["maxItems"], changes["items"]["properties"]["number"]["maximum"]) == (len(lines), len(lines))


def test_the_extracts_part_replaces_a_narrative_about_something_else_if_no_other_is_asked_for():
    """The record is about the conversation; a refusal to answer is replaced by nothing."""
    source = source_of(*TALK)
    other = Draft.of_text("Elephants migrate across southern grasslands whenever seasonal rainfall fills their pools.")
    refusal = Draft.of_text("I'm sorry, but I cannot summarize this conversation.")

    replaced = check_last(other, source)

    assert check_draft(other, source).problems != ()
    assert (replaced.problems, replaced.unsupported_statements) == ((), 1)
    assert "nightly import" in replaced.draft.summary
    assert check_last(refusal, source).problems != ()


def test_an_answer_is_joined_with_what_code_keeps_once():
    """A narrative that gives way to the extract's changes no list."""

    class Recorded(Skeleton):
        joins: ClassVar[list[Draft]] = []

        def joined(self, draft: Draft, concordance: Concordance) -> tuple[Draft, Mapping[str, tuple[int, ...]]]:
            self.joins.append(draft)
            return super().joined(draft, concordance)

    source = source_of(*TALK)
    assert source.skeleton is not None
    kept = source.skeleton
    draft = Draft.of_text("The user and the assistant discussed several topics.")

    replaced = check_last(draft, replace(source, skeleton=Recorded(kept.extract, kept.rests_on, kept.said)))

    assert replaced == check_last(draft, source)
    assert replaced.draft.summary != draft.summary
    assert len(Recorded.joins) == 1


def test_a_narrative_is_completed_by_whole_lines_that_fit_beside_the_lists():
    """A copy of a message has the extract's lines beside it, and no statement gives way to them."""
    source = source_of(
        *TALK, "Ana: The replica of the warehouse in Lyon has to be rebuilt from the tapes of last week."
    )
    copied = Draft.of_text(TALK[0].partition(": ")[2])
    joined = check_draft(copied, source).draft.model_copy(update={"summary": copied.summary, "key_points": []})
    lines = {*check_draft(copied, source).draft.summary.splitlines()}
    limit = Limit(tokens_of(joined) + 40, tokens_of)

    kept = check_draft(copied, source, limit).draft

    assert kept.summary.startswith(copied.summary)
    assert {copied.summary} < {*kept.summary.splitlines()} < lines
    assert tokens_of(kept) <= limit.tokens
    assert [kept.decisions, kept.unresolved, kept.domain_entities, kept.participants] == [
        joined.decisions, joined.unresolved, joined.domain_entities, joined.participants,
    ]  # fmt: skip


def test_what_is_checked_is_what_fits():
    """Evidence has an entry for every statement that is left, and for no other."""
    source = source_of(*TALK)
    whole = answered(source).draft

    kept = check_draft(Draft.of_text(TOLD), source, Limit(tokens_of(whole) - COUNT(MOVE) // 2, tokens_of))

    assert tokens_of(kept.draft) < tokens_of(whole)
    assert len(kept.evidence.decisions) == len(kept.draft.decisions)
    assert len(kept.evidence.key_points) == len(kept.draft.key_points)


def test_a_narrative_gives_way_to_the_lists_that_code_keeps():
    """Whole sentences go from its end; the first one stays."""
    source = source_of(*TALK)
    whole = answered(source).draft
    endless = Draft.of_text(" ".join((TOLD, *(f"The import failed in night {n} of the audit." for n in range(40)))))

    kept = check_draft(endless, source, Limit(tokens_of(whole) + 30, tokens_of, cuts=False)).draft

    assert (kept.decisions, kept.unresolved, kept.domain_entities) == (
        *(whole.decisions, whole.unresolved),
        whole.domain_entities,
    )
    assert kept.summary.startswith(TOLD)
    assert kept.summary.endswith(" of the audit.")
    assert tokens_of(kept) <= tokens_of(whole) + 30


def test_the_extracts_part_in_place_of_a_narrative_evicts_no_statement():
    """The extract's part has as many of its lines as fit beside the lists."""
    source = source_of(
        *TALK, "Ana: The replica of the warehouse in Lyon has to be rebuilt from the tapes of last week."
    )
    other = Draft.of_text("Elephants migrate across southern grasslands whenever seasonal rainfall fills their pools.")
    whole = check_last(other, source).draft
    limit = Limit(tokens_of(whole) - 20, tokens_of)

    kept = check_last(other, source, limit).draft

    assert (kept.decisions, kept.domain_entities) == (whole.decisions, whole.domain_entities)
    assert 0 < len(kept.summary) < len(whole.summary)
    assert tokens_of(kept) <= limit.tokens


def test_a_line_whose_last_words_the_narrative_has_is_no_line_that_it_has():
    """The words of a speaker are all that follows the name."""
    skeleton = source_of(*TALK).skeleton
    assert skeleton is not None
    line = "Ana: Migration of db-07 to Lyon: done."
    skeleton = replace(skeleton, extract=skeleton.extract.model_copy(update={"summary": f"Lead:\n{line}"}))

    told = skeleton.told(Draft.of_text("Rosa said it is done."), lambda _: True)

    assert line in told.summary.splitlines()


def test_a_narrative_gets_no_quoted_calls():
    """They are no sentences, and stand among the key points."""
    skeleton = source_of(*TALK).skeleton
    assert skeleton is not None
    line = "assistant: called pay({}) \u2013 Done. Then the bank refused it."
    skeleton = replace(skeleton, extract=skeleton.extract.model_copy(update={"key_points": [line]}))

    assert line not in skeleton.told(Draft.of_text("Rosa paid the invoice."), lambda _: True).summary
    assert line in skeleton.pointed(Draft.of_text("Rosa paid the invoice."), lambda _: True).key_points


def test_a_record_without_key_points_has_those_of_the_extract_that_fit():
    """A model that is asked for the narrative alone writes none."""
    source = source_of(
        *TALK, *(f"Ana: The host db-{n} of shelf {n} has a new fan and a clean filter." for n in range(20, 30))
    )
    assert source.skeleton is not None
    points = source.skeleton.extract.key_points
    assert points

    filled = answered(source)
    own = answered(source, key_points=[TALK[3]]).draft
    bare = check_draft(Draft.of_text(TOLD), source, Limit(10_000, tokens_of, content_tokens=COUNT(TOLD))).draft

    assert filled.draft.key_points == points
    assert all(filled.evidence.key_points)
    assert own.key_points == [TALK[3]]
    assert bare.key_points == []


CORRECTION = "Ben: Correction, the import moves to 05:30 before the audit, not to 04:00."


@pytest.mark.parametrize(
    ("later", "text", "is_taken"),
    [
        ("Ben: The import moves to 05:30 before the audit now.", "The import moves to 05:30 before the audit.", True),
        ("Ben: The coffee machine is new.", "We decided to move the import before the audit.", False),
        ("Ben: Rosa prints the import list before the audit.", "Rosa prints the import list before the audit.", False),
        ("Ben: Nobody will move the import before the audit.", "Ana decided to move the import to 04:00.", True),
    ],
)
def test_another_value_needs_a_later_message_that_gives_it(later: str, text: str, is_taken: bool):
    """A text that only leaves the value out, or speaks of something else, changes nothing."""
    assert changed(source_of(*TALK, later), MOVE, text).decisions == [text if is_taken else MOVE]


def test_a_change_without_proof_gives_a_statement_the_words_that_correct_it():
    """The model has seen that something changed, and the later message says what."""
    text = "Everybody agreed on the import at 05:30 before the audit."

    assert changed(source_of(*TALK, CORRECTION), MOVE, text).decisions == [CORRECTION]


def test_a_text_that_the_source_contradicts_changes_nothing():
    """Although it shares the words and the values of the statement."""
    rule = "Ana: We decided that the backup of OPS-4711 must not run before the audit."
    source = source_of(TALK[0], rule, *TALK[2:])

    assert changed(source, rule, "The backup of OPS-4711 must run before the audit.").decisions == [rule]


@pytest.mark.parametrize(
    "other",
    [
        "The bakery opens at 04:00 on the day of the audit.",
        "The bakery opens at 04:00, because lorries import bread before the audit.",
    ],
)
def test_a_text_about_something_else_that_shares_a_word_or_two_changes_nothing(other: str):
    """Two words that name its subject, and most of the shorter text, at least, are needed beside its values."""
    assert changed(source_of(*TALK, f"Ben: {other}"), MOVE, other).decisions == [MOVE]


def test_a_task_that_changes_without_proof_has_no_other_owner_and_due_date_than_the_quoted_line():
    """The words of the correction say who does what by when."""
    task = "Ana: Ben, please send the report of the audit by Friday."
    later = "Ana: Correction, the report of the audit goes out on Monday, not by Friday, and Rosa sends it."
    source = source_of(*TALK, task, "Ben: I'll do that.", later)
    assert source.skeleton is not None
    (one,) = (one for one in source.skeleton.numbered if one.name == "action_items" and "Ben" in one.text)

    change = DraftChange(number=one.number, text="Rosa sends the report of the audit by Monday.")

    items = answered(source, change).draft.action_items

    assert items == [DraftItem(task=later, owner="", due="")]


def test_a_due_date_that_was_corrected_does_not_stay_beside_the_new_text():
    """The text may name the new date in no form of a deadline."""
    item = DraftItem(task="Rosa sends the report of the audit.", owner="Rosa", due="2026-03-12")
    text = "Rosa sends the report of the audit, date 2026-03-19."
    numbered = tuple(enumerate(said("Ana: Rosa sends the report by 2026-03-12.", f"Ana: {text}"), 1))
    extract = Draft.of_text("x").model_copy(update={"action_items": [item]})
    skeleton = Skeleton(extract, {f"{item.task} Rosa 2026-03-12": (1,)}, numbered)
    answer = Draft.of_text("x").model_copy(update={"changes": [DraftChange(number=1, text=text)]})

    joined, _ = skeleton.joined(answer, concordance_of(numbered))

    assert joined.action_items == [DraftItem(task=text, owner="Rosa", due="")]


def test_a_decision_whose_value_was_replaced_is_not_kept_beside_the_new_one():
    """The old decision is no evidence, and no fault of the model, which did not write it."""
    source = source_of(
        "Ana: We decided that the port of the billing database is 5433.",
        "Ben: Fine, that works for the billing database team.",
        "Ana: Change of plans: the port of the billing database is now 6544.",
    )
    new = "The port of the billing database is 6544."

    checked = answered(source, decisions=[new])

    assert (checked.draft.decisions, checked.evidence.decisions) == ([new], ((13,),))
    assert checked.removed == ()


@pytest.mark.parametrize(
    ("later", "is_struck"),
    [
        ("Ben: As we said, the import moves to 04:00 before the audit.", False),
        ("Ben: Done, I have told everybody to move the import before the audit.", False),
        ("Ben: Should we move the import to 05:30 instead, before the audit?", False),
        ("Ben: The finance team has to decide whether to move the import to 05:30 instead before the audit.", False),
        (CORRECTION, True),
        ("Ben: On second thoughts, we do not move the import before the audit.", True),
        ("Ben: We are not going back to the old time of the import before the audit.", False),
        ("Ben: If we move the import after all, or not before the audit, I tell everybody.", False),
    ],
)
def test_a_decision_is_struck_for_a_reversal_or_a_correction_alone(later: str, is_struck: bool):
    """A mention confirms it, a question and an open matter end nothing."""
    assert left("decisions", MOVE, later) == ([] if is_struck else [MOVE])


@pytest.mark.parametrize(
    ("later", "is_struck"),
    [
        ("Ana: Finance pays for the new disk of OPS-4711, says Rosa.", True),
        ("Ana: The new chairs are blue.", False),
        ("Ana: Done, the chairs are new.", False),
        ("Ana: Who pays for the new disk of OPS-4711, does anybody know?", False),
        ("Ana: Nobody knows who pays for the new disk of OPS-4711.", False),
    ],
)
def test_an_open_point_is_struck_for_a_later_statement_about_it(later: str, is_struck: bool):
    """A sentence is about it with half of its words, or a third beside a word of an end; one word is too few."""
    assert left("unresolved", QUESTION, later) == ([] if is_struck else [QUESTION])


@pytest.mark.parametrize(
    ("question", "later"),
    [
        ("Ben: Who pays for the disk?", "Ana: Done, the disk is round."),
        ("Ben: Who pays for the new disk of the warehouse in Lyon?", "Ana: The warehouse in Lyon is large."),
    ],
)
def test_an_open_point_is_not_struck_for_a_statement_that_shares_too_little(question: str, later: str):
    """One word of three; a third of the words without a word of an end."""
    assert left("unresolved", question, later) == [question]


@pytest.mark.parametrize("numbers", [range(1, 21), [1] * 20], ids=["twenty statements", "one statement"])
def test_many_strikes_cost_little_more_than_one(numbers: Sequence[int]):
    """Sentences are read once and by their words first, and a number that comes again costs nothing."""
    places = ["river", "stone", "lantern", "orchard", "velvet", "harbour", "meadow", "copper", "whisper", "saddle"]
    moves = ((n, a, b) for n in (1, 2) for a, b in pairwise(places))
    decisions = [f"Ana: We decided to move the {a} of shelf {n} beside the {b}." for n, a, b in moves]
    decisions += ["Ana: We decided to paint the gate green.", "Ana: We decided to sell the boat."]
    texts = [f"The import of shelf {n} is done. We moved it before noon. Nobody saw the audit." for n in range(400)]
    messages = tuple((n, Message(f"m{n}", Role.USER, text)) for n, text in enumerate(texts, 1))
    skeleton = Skeleton(Draft.of_text("x").model_copy(update={"decisions": decisions}), {}, messages)
    concordance = concordance_of(())

    def strike(numbers: Sequence[int]) -> None:
        changes = [DraftChange(number=number, text="") for number in numbers]
        skeleton.joined(Draft.of_text("x").model_copy(update={"changes": changes}), concordance)

    assert len(decisions) == 20
    assert takes_at_most(6, strike, numbers, than=[1])


def test_a_statement_and_its_opposite_are_two():
    """A model's decision is not dropped because it has the words of one that it takes back."""
    skeleton = source_of(*TALK, "Ben: The import must not move to 04:00 before the audit, says finance.").skeleton
    assert skeleton is not None
    opposite = "The import is not moved to 04:00 before the audit."

    joined, _ = skeleton.joined(Draft.of_text(TOLD).model_copy(update={"decisions": [opposite]}), concordance_of(()))

    assert joined.decisions == [MOVE, opposite]


OF_NOTHING_SAID = {
    ProblemCode.GENERIC: "The user and the assistant discussed several topics.",
    ProblemCode.UNGROUNDED: "The importer of Dana and the parser of the archive went on holiday, where elephants "
    "migrate across southern grasslands whenever seasonal rainfall fills muddy pools under bright and distant stars.",
    ProblemCode.FORMAT_TALK: "Here is the corrected JSON object about the parser and the archive.",
    ProblemCode.UNSUPPORTED: "The parser was restored from INV-99817 on 12 March.",
    ProblemCode.OPPOSITE: "Finance approved the second server.",
    ProblemCode.ONLY_PROPOSED: "The user decided to move the archive to cold storage.",
    ProblemCode.REPETITION: "The importer of Dana fails, the parser is pinned, " * 6,
    ProblemCode.OTHER_SPEAKER: "Dana wanted to move the archive to cold storage.",
}
"""A narrative for each fault of one that is not about its conversation."""


@pytest.mark.parametrize("code", OF_NOTHING_SAID)
def test_the_extracts_part_replaces_a_narrative_with_any_fault_of_its_own(code: ProblemCode):
    """The replacement comes if no other answer is asked for."""
    assert set(OF_NOTHING_SAID) == REPLACEABLE
    roles = (Role.USER, Role.ASSISTANT)
    source = source_with([Message(f"m{n}", roles[n % 2], text) for n, text in enumerate(SAID)])
    draft = Draft.of_text(OF_NOTHING_SAID[code])

    assert code.value in {problem.partition(":")[0] for problem in check_draft(draft, source).problems}
    replaced = check_last(draft, source)
    assert replaced.problems == ()
    assert draft.summary not in replaced.draft.summary
