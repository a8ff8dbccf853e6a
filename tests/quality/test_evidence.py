"""Shares of statements whose evidence code finds, and of twisted ones that it catches: figures of sentences never tuned
on.

`planted.json` and `traps.json` in tests/support have the sentences. Thresholds and lists of words were set by the
halves named `tune`. The tests print and assert the figures of the halves named `held`.
"""

from __future__ import annotations

import sys
from collections import Counter

from abridged.service.domain.record import statements_of
from abridged.service.grounding.claims import evidence_of, texts_of, unsupported
from abridged.service.grounding.polarity import contradicting
from abridged.service.grounding.roles import only_proposed
from abridged.service.grounding.support import concordance_of
from tests.support.extracts import extract_of, record_of
from tests.support.planted import planted
from tests.support.shared_data import FILES, loaded, shared_chats
from tests.support.traps import Trap, mixed, negations, reported, roles

CHATS = 60


def test_planted_statements_point_at_their_messages(capsys):
    """Statements name the right message in 95 of 100 cases, only a wrong one in 2 at most; 95 of 100 lies name none."""
    counted: Counter[str] = Counter()
    for seed in range(CHATS):
        chat = planted(seed, "held")
        index = concordance_of(chat.messages)
        for told in chat.facts:
            numbers = index.support(told.text).numbers
            outcome = "right" if told.number in numbers else "wrong" if numbers else "none"
            counted.update({outcome: 1, "facts": 1, "numbers": len(numbers), "true": told.number in numbers})
        known = evidence_of(text for _, message in chat.messages for text in texts_of(message))
        for lie in chat.lies:
            is_caught = not index.support(lie.text).supported or bool(unsupported(lie.text, known))
            counted.update({lie.kind: 1, f"{lie.kind} caught": is_caught})

    facts = counted["facts"]
    recall, wrong = counted["right"] / facts, counted["wrong"] / facts
    caught = {kind: counted[f"{kind} caught"] / counted[kind] for kind in ("fabricated", "other thing")}
    with capsys.disabled():
        sys.stdout.write(
            f"\nevidence of {facts} planted statements: recall {recall:.3f}, wrong {wrong:.3f}, precision of numbers "
            f"{counted['true'] / counted['numbers']:.3f}; lies caught: fabricated {caught['fabricated']:.3f} of "
            f"{counted['fabricated']}, about another thing of the chat {caught['other thing']:.3f} of "
            f"{counted['other thing']}\n"
        )
    assert recall >= 0.95
    assert wrong <= 0.02
    assert caught["fabricated"] >= 0.95
    assert caught["other thing"] >= 0.6


def test_opposites_are_found_and_honest_statements_stand(capsys):
    """Negations: at least 90 of 100 traps, at most 2 of 100 honest statements."""
    found, false = rates([*negations("held")], contradicting_trap)

    tell(capsys, "negations", found, false)
    assert found >= 0.9
    assert false <= 0.02


def test_a_limit_in_time_and_a_denied_part_make_no_opposite(capsys):
    """`not before ten` leaves `at ten or later` open, `hashed, never in plain text` is one clause; none is missed."""
    found, false = rates([*reported()], contradicting_trap)

    tell(capsys, "negations that were judged wrongly once", found, false)
    assert (found, false) == (1.0, 0.0)


def test_proposals_are_told_from_decisions(capsys):
    """Roles: at least 90 of 100 traps, at most 2 of 100 decisions that a user took."""
    found, false = rates([*roles("held")], proposed_trap)

    tell(capsys, "roles", found, false)
    assert found >= 0.9
    assert false <= 0.02


def test_a_message_may_report_one_thing_and_propose_another(capsys):
    """The message's reports all stand; at least 9 of 10 decisions made of its proposals are found."""
    found, false = rates([*mixed()], proposed_trap)

    tell(capsys, "roles in one message", found, false)
    assert found >= 0.9
    assert false == 0.0


def test_true_statements_in_other_words_are_no_traps(capsys):
    """Planted facts contradict nothing: at most 1 of 100."""
    flagged = total = 0
    for seed in range(CHATS):
        chat = planted(seed, "held")
        index = concordance_of(chat.messages)
        for told in chat.facts:
            total += 1
            flagged += contradicting(told.text, index.support(told.text), index) is not None

    with capsys.disabled():
        sys.stdout.write(f"\nplanted facts taken for opposites: {flagged} of {total}\n")
    assert flagged <= 0.01 * total


def test_extracts_of_real_chats_stand_whole(capsys):
    """Lines that quote the source have their evidence in it, do not contradict it and decide nothing anew."""
    total = told = right = flagged = 0
    for name in FILES:
        for chat in shared_chats(name):
            messages = [*enumerate(map(loaded, chat["messages"]), 1)]
            index = concordance_of(messages)
            record = record_of(extract_of([message for _, message in messages]))
            decisions = set(record.context.decisions)
            for text, _ in statements_of(record):
                support = index.support(text)
                total += 1
                told += support.supported
                right += any(quotes(text, messages[number - 1][1].content) for number in support.numbers)
                flagged += contradicting(text, support, index) is not None
                flagged += text in decisions and only_proposed(text, support, index) is not None

    with capsys.disabled():
        sys.stdout.write(
            f"\nextracts: {told} of {total} have evidence, {right} the quoted message, {flagged} refused\n"
        )
    assert told >= 0.98 * total
    assert flagged <= 0.005 * total


def quotes(line: str, content: str) -> bool:
    """Return whether a line of an extract is of this message, as far as both have the same form."""
    quoted = " ".join(line.split(": ", 1)[-1].split())[:60].rstrip("\u2026")
    return quoted in " ".join(content.replace("**", "").split())


def contradicting_trap(trap: Trap) -> bool:
    index = concordance_of(trap.messages)
    return contradicting(trap.statement, index.support(trap.statement), index) is not None


def proposed_trap(trap: Trap) -> bool:
    index = concordance_of(trap.messages)
    return only_proposed(trap.statement, index.support(trap.statement), index) is not None


def rates(traps, is_flagged) -> tuple[float, float]:
    """The share of traps that are found, and of honest statements that are taken for one."""
    twisted = [is_flagged(trap) for trap in traps if trap.twisted]
    honest = [is_flagged(trap) for trap in traps if not trap.twisted]
    return sum(twisted) / len(twisted), sum(honest) / len(honest)


def tell(capsys, what: str, found: float, false: float) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{what}: {found:.3f} of the traps found, {false:.3f} of the honest statements refused\n")
