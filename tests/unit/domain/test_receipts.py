"""The receipt of a pass: each thing that left counts once, at the first place that holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from abridged.service.domain.commands import RemakeFallback, RequestPass
from abridged.service.domain.conversation import Conversation, ShownRecord
from abridged.service.domain.events import MessageAppended, SummarizationCleared, SummarizationCompleted
from abridged.service.domain.fold import fold
from abridged.service.domain.leaving import Hearing, replaced_texts
from abridged.service.domain.ledger import NO_LEDGER, Ledger, LedgerEntry, Use
from abridged.service.domain.ledger_entries import found_in
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.receipt import Leaving, Receipt, ReceiptItem, ReceiptKind, ReceiptPlace
from abridged.service.domain.record import RecordContext, RecordEvidence, SummaryRecord
from abridged.service.domain.rules import FoundRule, RuleFinds
from abridged.service.domain.tokens import TokenSource
from abridged.service.domain.whereabouts import receipt_of, whereabouts_of
from abridged.service.extraction.decided import decided_in
from abridged.service.text.identifiers import IdentifierKind
from tests.support.chats import OPEN, append, appended, calling, chat, complete, pending_in, ranges, record_for, result
from tests.support.given import Given, given

POLICY = Policy(min_range_tokens=1, min_messages=0)


def talk(*texts: str, pinned: frozenset[int] = frozenset()) -> list[MessageAppended]:
    """Messages with these texts, in turns."""
    roles = (Role.USER, Role.ASSISTANT)
    return [
        appended(n, 40, message=Message(f"m{n}", roles[(n - 1) % 2], text, pinned=n in pinned))
        for n, text in enumerate(texts, 1)
    ]


def pending(*texts: str, pinned: frozenset[int] = frozenset()) -> Conversation:
    """A conversation whose messages, but for the last two, are to leave."""
    state = given(OPEN, *talk(*texts, pinned=pinned)).state
    return Given(state).when(RequestPass(), replace(POLICY, preserve_recent=2)).after


def read(state: Conversation) -> Leaving:
    """Read all that leaves with the pending pass."""
    covered = {n for r in pending_in(state).covered for n in range(r.first, r.last + 1)} - state.pins
    leaving = [m for m in state.window if m.number in covered]
    heard = Hearing(leaving, [m for m in state.window if m.number not in covered])
    found_in(leaving, (), NO_LEDGER, heard)
    return heard.leaving(replaced_texts(state, pending_in(state)), decided_in(leaving))


def completed(
    state: Conversation, record: SummaryRecord, policy: Policy = POLICY, rules: tuple[FoundRule, ...] = ()
) -> Receipt:
    """The receipt in the event of the pass."""
    command = replace(complete(state), record=record, leaving=read(state), rules=RuleFinds(rules))
    event = Given(state).when(command, policy).events[0]
    assert isinstance(event, SummarizationCompleted)
    assert event.receipt is not None
    return event.receipt


def places(receipt: Receipt, kind: ReceiptKind) -> dict[ReceiptPlace, int]:
    return {line.place: line.count for line in receipt.lines if line.kind is kind}


def test_the_page_of_windows_has_the_places_in_their_order():
    """The first that holds counts."""
    page = (Path(__file__).parents[3] / "docs" / "features" / "windows.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| place | it is there if |\n|---|---|\n")

    assert re.findall(r"^\| (\w+) \|", table.partition("\n\n")[0], re.MULTILINE) == [
        place.name for place in ReceiptPlace
    ]


def test_a_standing_rule_has_a_place_of_its_own():
    """An identifier that only the rules of the window say is there, and a rule that has no room is reachable."""
    texts = ("Never touch KX-5512093-R.", "Fine.", "Never push to main.", "Fine.", "Go on.", "Yes.")
    state = pending(*texts)
    rules = (FoundRule(texts[0], 1, 9), FoundRule(texts[2], 3, 9))

    receipt = completed(state, record_for(pending_in(state), summary="Nothing."), rules=rules)
    narrow = completed(
        state, record_for(pending_in(state), summary="Nothing."), replace(POLICY, rules_token_ratio=0.0), rules
    )

    assert places(receipt, ReceiptKind.RULE) == {ReceiptPlace.RULES: 2}
    assert places(receipt, ReceiptKind.IDENTIFIER) == {ReceiptPlace.RULES: 1}
    assert places(narrow, ReceiptKind.RULE) == {ReceiptPlace.REACHABLE: 2}


def test_a_tentative_rule_says_identifiers_and_is_not_counted_itself():
    """The window may say an identifier in one, but nobody is owed a sentence that may be no rule."""
    texts = ("Touch KX-5512093-R last.", "Fine.", "Push to main.", "Fine.", "Go on.", "Yes.")
    state = pending(*texts)

    receipt = completed(
        state, record_for(pending_in(state), summary="Nothing."), rules=(FoundRule(texts[0], 1, 9, 1.0),)
    )

    assert places(receipt, ReceiptKind.RULE) == {}
    assert places(receipt, ReceiptKind.IDENTIFIER) == {ReceiptPlace.RULES: 1}


def test_an_identifier_counts_at_the_first_place_that_says_it():
    """A pin lasts longer than a record, a record longer than the tail."""
    state = pending(
        "Keep INV-204417-B, ORD-778812, TCK-550091 and KX-5512093-R.",
        "Noted: KX-5512093-R.",
        "The invoice is INV-204417-B.",
        "And TCK-550091, see ORD-778812.",
        "Go on with TCK-550091.",
        "Yes.",
        pinned=frozenset({3}),
    )
    record = record_for(pending_in(state), summary="They spoke of INV-204417-B and ORD-778812.")

    receipt = completed(state, record)

    assert places(receipt, ReceiptKind.IDENTIFIER) == {
        ReceiptPlace.PINNED: 1,
        ReceiptPlace.RECORD: 1,
        ReceiptPlace.WINDOW: 1,
        ReceiptPlace.REACHABLE: 1,
    }
    (hidden,) = [line for line in receipt.lines if line.kind is ReceiptKind.IDENTIFIER and line.items]
    assert hidden.items == (ReceiptItem("KX-5512093-R", 2),)


def test_what_a_document_of_the_window_says_is_there():
    """An API is sent the documents and the search results of a message too."""
    state = pending("Pay INV-204417-B.", "Fine.", "The other one.", "Fine.", "Go on.", "Yes.")
    form = '{"api":"anthropic","body":[{"type":"search_result","title":"INV-204417-B is due"}]}'
    window = [m if m.number < 5 else m._replace(message=m.message._replace(extra_json=form)) for m in state.window]
    sent = state._replace(window=state.window.replaced(window))

    for found, place in ((state, ReceiptPlace.REACHABLE), (sent, ReceiptPlace.WINDOW)):
        receipt = completed(
            found, record_for(pending_in(found), summary="Nothing."), replace(POLICY, max_ledger_tokens=0)
        )
        assert places(receipt, ReceiptKind.IDENTIFIER) == {place: 1}


def test_a_pinned_message_does_not_leave():
    """A pinned message is in the range of the pass, and stays in the window."""
    state = pending("one", "two", "three", "four", "five", "six", pinned=frozenset({2}))

    receipt = completed(state, record_for(pending_in(state)))

    assert receipt.count(ReceiptPlace.REACHABLE, ReceiptKind.MESSAGE) == 3


def test_a_message_is_in_the_record_by_a_statement_that_rests_on_it():
    """The message's number is the evidence of a key point."""
    state = pending("one", "two", "three", "four", "five", "six")
    record = replace(record_for(pending_in(state)), key_points=("One.",), evidence=RecordEvidence(key_points=((1, 3),)))

    receipt = completed(state, record)

    assert places(receipt, ReceiptKind.MESSAGE) == {ReceiptPlace.RECORD: 2, ReceiptPlace.REACHABLE: 2}


def test_a_decision_is_in_the_record_word_by_word_or_by_its_message():
    """A model writes it in other words."""
    state = pending(
        "We decided to ship the importer on Friday.",
        "We agreed to drop the old exporter for good.",
        "We decided to keep the nightly backups in Dublin.",
        "Fine.",
        "five",
        "six",
    )
    record = replace(
        record_for(pending_in(state), summary="user: We decided to ship the importer on Friday."),
        context=RecordContext(decisions=("The exporter goes.",)),
        evidence=RecordEvidence(decisions=((2,),)),
    )

    receipt = completed(state, record)

    assert places(receipt, ReceiptKind.DECISION) == {ReceiptPlace.RECORD: 2, ReceiptPlace.REACHABLE: 1}


def test_an_identifier_of_the_replaced_record_is_accounted_for():
    """The identifier's message left long ago, and the new record is silent about it."""
    state = pending("one", "two", "three", "four", "five", "six")
    first = record_for(pending_in(state), summary="The invoice is INV-204417-B.")
    after = Given(state).when(replace(complete(state), record=first), POLICY).after
    more = [appended(n, 40, message=Message(f"m{n}", Role.USER, "Go on.")) for n in range(7, 13)]
    again = fold([(event, 0) for event in more], after)
    again = Given(again).when(RequestPass(), replace(POLICY, preserve_recent=2)).after

    receipt = completed(again, record_for(pending_in(again)))

    (line,) = [line for line in receipt.lines if line.kind is ReceiptKind.IDENTIFIER]
    assert (line.place, line.items) == (ReceiptPlace.REACHABLE, (ReceiptItem("INV-204417-B", 0),))


def test_an_episode_that_is_shown_in_short_from_now_on_lets_go_of_its_long_text():
    """The episode's statements are in the window no longer, and the identifiers of its long text leave."""
    state = pending("one", "two", "three", "four", "five", "six")
    episode = replace(
        record_for(pending_in(state), summary="The invoice is INV-204417-B.", record_id="e1"),
        short_summary="An invoice.",
        key_points=("One.",),
        evidence=RecordEvidence(key_points=((1,),)),
    )
    long, short = (ShownRecord(episode, TokenSource.CALLER, is_short) for is_short in (False, True))
    plan = replace(pending_in(state), beside_ids=("e1",))
    before = state._replace(shown=(long,), pending=replace(plan, short_ids=("e1",)))

    assert replaced_texts(before, plan) == []
    assert replaced_texts(before._replace(shown=(short,)), pending_in(before)) == []
    receipt = completed(before, record_for(plan))

    assert places(receipt, ReceiptKind.IDENTIFIER) == {ReceiptPlace.REACHABLE: 1}
    assert places(receipt, ReceiptKind.MESSAGE) == {ReceiptPlace.REACHABLE: 4}


def test_an_entry_that_the_ledger_no_longer_shows_leaves():
    """Others have taken the entry's room, and its message left long ago."""
    state = pending("one", "two", "three", "four", "five", "six")
    entry = LedgerEntry(IdentifierKind.CODE, "KX-5512093-R", "", (1,), 1, Use.USER, 5)
    before = state._replace(ledger=Ledger((entry,), 1, 0, 20, 0, 0))

    receipt = completed(before, record_for(pending_in(before)), replace(POLICY, max_ledger_tokens=0))

    (line,) = [line for line in receipt.lines if line.kind is ReceiptKind.IDENTIFIER]
    assert (line.place, line.items) == (ReceiptPlace.REACHABLE, (ReceiptItem("KX-5512093-R", 1),))


def test_by_a_remake_only_the_record_that_it_replaces_leaves():
    """No message does, and the model's record may be silent about words of the extract."""
    state = pending("one", "two", "three", "four", "five", "six")
    extract = record_for(pending_in(state), summary="The invoice is INV-204417-B.")
    after = Given(state).when(replace(complete(state, fallback=True), record=extract), POLICY).after
    again = Given(after).when(RemakeFallback(), POLICY, next_pass_id="q").after

    receipt = completed(again, record_for(pending_in(again)))

    (line,) = receipt.lines
    assert (line.kind, line.place) == (ReceiptKind.IDENTIFIER, ReceiptPlace.REACHABLE)
    assert line.items == (ReceiptItem("INV-204417-B", 0),)


def test_the_identifiers_of_results_that_came_and_were_cleared_during_the_pass_are_read_then():
    """A pass reads before its model answers; a mark may take the place of a result that came since."""
    policy = replace(POLICY, clear_keep_tool_units=0, clear_min_tokens=64, preserve_recent=2)
    state = pending("one", "two", "three", "four", "five", "six")
    came = [
        appended(7, 10, message=calling(7, "a")),
        appended(8, 300, message=result(8, "a", "The host is db-replica-07.")),
        appended(9, 10),
    ]
    late = fold([(event, 0) for event in came], state)
    command = replace(complete(late), leaving=read(state))

    event = Given(late).when(command, policy).events[0]

    assert isinstance(event, SummarizationCompleted)
    assert event.receipt is not None
    assert [mark.number for mark in event.marks] == [8]
    (line,) = [line for line in event.receipt.lines if line.kind is ReceiptKind.IDENTIFIER]
    assert (line.place, line.items) == (ReceiptPlace.REACHABLE, (ReceiptItem("db-replica-07", 8),))


def test_a_pass_that_clears_counts_the_results():
    """They are reachable by their numbers, which the marks name."""
    units = [
        event
        for n in range(2, 14, 2)
        for event in (
            appended(n, 10, message=calling(n, f"c{n}")),
            appended(n + 1, 130, message=result(n + 1, f"c{n}")),
        )
    ]
    state = given(OPEN, appended(1), *units).state

    outcome = Given(state).when(append(appended(14, 10)), replace(POLICY, clear_min_tokens=64, min_messages=0))

    (event,) = [event for event in outcome.events if isinstance(event, SummarizationCleared)]
    assert event.receipt is not None
    assert places(event.receipt, ReceiptKind.MESSAGE) == {ReceiptPlace.REACHABLE: len(event.marks)}
    assert outcome.after.passes[-1].receipt == event.receipt


def test_a_secret_is_no_identifier():
    """Secrets are masked before anything is read, so that no receipt counts or shows them."""
    state = pending("The key is sk-proj-abcdefghij0123456789XYZ.", "two", "three", "four", "five", "six")

    receipt = completed(state, record_for(pending_in(state)))

    assert places(receipt, ReceiptKind.IDENTIFIER) == {}


def test_a_message_that_no_call_returns_is_gone():
    """The case must not happen: a rewind removes messages from the window before any pass."""
    state = pending("one INV-204417-B", "two", "three", "four", "five", "six")
    after = Given(state).when(complete(state), POLICY).after
    broken = after._replace(removed=ranges((1, 1)))

    receipt = receipt_of(state, broken, read(state))

    assert receipt.count(ReceiptPlace.GONE, ReceiptKind.MESSAGE) == 1
    assert receipt.count(ReceiptPlace.GONE, ReceiptKind.IDENTIFIER) == 1
    assert whereabouts_of(state, broken, read(state)).messages[1] is ReceiptPlace.GONE


@pytest.mark.parametrize("size", [10_000])
def test_after_a_cut_pass_only_what_the_budget_has_room_for_counts_as_said(size):
    """The rest waits for the next pass; a pass of each part of a long chat must not read all that waits."""
    state = pending("one INV-204417-B", "two", "three", "four", "five", "six")
    state = state._replace(pending=replace(pending_in(state), cut=True))
    waiting = [appended(7, message=Message("m7", Role.USER, "INV-204417-B")), *chat(size, first=8)]
    late = fold([(event, 0) for event in waiting], state)

    receipt = receipt_of(late, Given(late).when(complete(late), POLICY).after, read(state))

    assert places(receipt, ReceiptKind.IDENTIFIER) == {ReceiptPlace.REACHABLE: 1}
