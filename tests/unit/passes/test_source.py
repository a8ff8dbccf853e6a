"""The source of a pass: the ledger that it expects is the one that its commit leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.table import Attention
from abridged.service.domain.events import Settings
from abridged.service.domain.ledger import Ledger, LedgerEntry, LedgerFinds, Replaced, Use
from abridged.service.domain.message import Message
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import MessageRange
from abridged.service.domain.render import shown_text
from abridged.service.domain.sequence import Sequence
from abridged.service.domain.sizes import ledger_tokens_max
from abridged.service.passes.commits import CommitPauses
from abridged.service.passes.source import PassSource
from abridged.service.text.identifiers import IdentifierKind
from abridged.service.text.secrets import MASK
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.reactors import ROLES, A, ReactorBench


def listed(turn: int, count: int) -> str:
    return " ".join(f"orders_{turn}_{place}" for place in range(count))


@pytest.mark.parametrize("ratio", [0.5, 0.05])
async def test_a_record_is_judged_beside_the_ledger_that_its_commit_leaves(ratio):
    """A ledger that fills its share is no measure: entries for which the commit has no room are not in the window."""
    policy = Policy(ledger_token_ratio=ratio, min_gain=0.3, min_shared_words=0)
    bench = ReactorBench(pauses=CommitPauses(), policy=policy)
    messages = tuple(
        Message(f"m{n}", ROLES[n % 2], f"Turn {n}: the importer reads {listed(n, 40)}.") for n in range(14)
    )
    contents = {m.id: canonical(message_to_proto(m)) for m in messages}
    await bench.conversations.append(A, AppendRequest(messages, contents, lambda: Settings(context_length=3_000)))
    before = await bench.conversations.state(A)
    assert before.pending is not None
    work = await PassSource(bench.conversations.log, EstimatingCounter()).work(A, before, before.pending)

    bench.reactor.start([Attention("default", A.name, pending=True, wait_until_us=0, fallback=False)])
    await bench.until_completed(A)
    await bench.reactor.stop(grace_s=1.0)

    after = await bench.conversations.state(A)
    (shown,) = after.shown
    expected = work.ledger_beside(shown_text(shown), shown.tokens)
    assert expected == {entry.key for entry in after.ledger.in_window}
    assert expected
    assert work.in_ledger
    assert (after.ledger.limit_tokens < ledger_tokens_max(before, policy)) is (ratio == 0.5)


async def test_no_identifier_is_in_a_ledger_that_is_switched_off():
    """The record has to name it."""
    bench = ReactorBench(pauses=CommitPauses(), policy=Policy(ledger_token_ratio=0))
    messages = tuple(Message(f"m{n}", ROLES[n % 2], f"Turn {n}: {listed(n, 40)}.") for n in range(14))
    contents = {m.id: canonical(message_to_proto(m)) for m in messages}
    await bench.conversations.append(A, AppendRequest(messages, contents, lambda: Settings(context_length=3_000)))
    state = await bench.conversations.state(A)
    assert state.pending is not None

    work = await PassSource(bench.conversations.log, EstimatingCounter()).work(A, state, state.pending)

    assert work.in_ledger is None


async def test_a_pass_knows_what_the_ledger_knows_to_be_superseded():
    """A pass may read messages again that have left before; what it finds itself is known, too."""
    bench = ReactorBench(pauses=CommitPauses(), policy=Policy())
    messages = tuple(Message(f"m{n}", ROLES[n % 2], f"Turn {n}: {listed(n, 40)}.") for n in range(14))
    contents = {m.id: canonical(message_to_proto(m)) for m in messages}
    await bench.conversations.append(A, AppendRequest(messages, contents, lambda: Settings(context_length=3_000)))
    before = await bench.conversations.state(A)
    assert before.pending is not None
    gone, back = (
        LedgerEntry(IdentifierKind.CODE, text, "", (1,), 1, Use.USER, 1, replaced_by=2) for text in ("A-1", "B-2")
    )
    state = before._replace(ledger=Ledger((gone, back)))

    work = await PassSource(bench.conversations.log, EstimatingCounter()).work(A, state, before.pending)

    again = replace(work, finds=LedgerFinds((back._replace(numbers=(9,), replaced_by=0),), (Replaced("c-3", 8),)))
    assert (work.superseded["a-1"], again.superseded) == (2, {"a-1": 2, "c-3": 8})


@pytest.mark.parametrize("has_left", [False, True])
async def test_an_answer_to_a_request_for_a_secret_is_masked_in_all_that_a_pass_reads(has_left):
    """The request may have left with an earlier pass."""
    secret = "Winter" + "2024xQ"
    bench = ReactorBench(pauses=CommitPauses(), policy=Policy())
    said = [f"Turn {n}: {listed(n, 40)}." for n in range(14)]
    said[2:4] = ["Thanks. Please tell me the password.", f"It's {secret}."]
    messages = tuple(Message(f"m{n}", ROLES[n % 2], text) for n, text in enumerate(said))
    contents = {m.id: canonical(message_to_proto(m)) for m in messages}
    await bench.conversations.append(A, AppendRequest(messages, contents, lambda: Settings(context_length=3_000)))
    state = await bench.conversations.state(A)
    assert state.pending is not None
    plan = state.pending
    if has_left:
        rest = (MessageRange(4, plan.covered[-1].last),)
        state = state._replace(window=Sequence([m for m in state.window if m.number >= 4]))
        plan = replace(plan, covered=rest, source=rest)

    work = await PassSource(bench.conversations.log, EstimatingCounter()).work(A, state, plan)

    assert secret not in repr((work.messages, work.overlap, work.finds, work.rules, work.leaving))
    assert any(m.message.content == f"It's {MASK}." for m in work.messages)
    assert "orders_5_1" in repr(work.finds)
