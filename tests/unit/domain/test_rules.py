"""Standing rules: found in users' words, kept letter by letter, ended by later messages, shown within a limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.commands import DropRules
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import MessageNotFound, RuleNotFound
from abridged.service.domain.events import MessageAppended, MessagesPinned, RulesDropped, SummaryRevoked
from abridged.service.domain.fold import evolve
from abridged.service.domain.ledger import Replaced
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import SMALL_GROWTH_MAX, Policy, SummaryRole
from abridged.service.domain.render import rendered_summaries, rendered_window
from abridged.service.domain.rules import (
    NO_RULES,
    RULES_FRAME_TOKENS,
    RULES_MAX,
    FoundRule,
    RevokedRule,
    RuleFinds,
    RuleName,
    Rules,
    Surroundings,
    rule_lines,
)
from abridged.service.domain.rules_found import found_rules, known_rules
from abridged.service.domain.tokens import TokenSource
from abridged.service.summarizer.finds import rules_in
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.chats import OPEN, append, appended, complete, completed, live_in, pending_in
from tests.support.given import Given
from tests.support.given import given as having

ROOM = 1_000
NOWHERE = Surroundings(lambda _: False, "")
RULE = "Please never send the customers a mail without asking me first."
TAKEN_BACK = "You can send the customers mails directly again now."


def finds(*rules: FoundRule, revoked: tuple[RevokedRule, ...] = (), limit: int = ROOM) -> RuleFinds:
    """The finds of a pass."""
    return RuleFinds(rules, revoked, limit)


def found(number: int, tokens: int = 10, text: str = "") -> FoundRule:
    """A rule of a message."""
    return FoundRule(text or f"Always {number}.", number, tokens)


def shown(rules: Rules) -> list[int]:
    """The messages whose rules the window shows."""
    return [rule.number for rule in rules.in_window]


def talk(*texts: str) -> list[MessageAppended]:
    """A user and an assistant in turn."""
    said = [text for said in texts for text in (said, "Understood, I will keep to it.")]
    roles = (Role.USER, Role.ASSISTANT)
    return [appended(n, message=Message(f"m{n}", roles[(n - 1) % 2], text)) for n, text in enumerate(said, start=1)]


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        ("Never delete files in /srv/a without asking me.", "Never delete files in /srv/b without asking me."),
        ("Never mention prices to Mr. Hale.", "You may mention prices to Ms. Ito."),
    ],
)
def test_a_rule_for_one_thing_outlives_what_is_said_of_another(rule, later):
    """A path or a name tells that the later sentence, of the same words, is about something else."""
    assert found_rules(talk(rule, later), (), NO_RULES)[1] == ()
    assert len(found_rules(talk(rule, rule), (), NO_RULES)[1]) == 1


def test_only_users_lay_down_rules():
    """Words of a model, a tool or a system message are no rule."""
    others = [
        appended(n, message=Message(f"m{n}", role, RULE, tool_call_id="c" if role is Role.TOOL else ""))
        for n, role in enumerate((Role.ASSISTANT, Role.TOOL, Role.SYSTEM), start=1)
    ]

    assert found_rules(others, (), NO_RULES) == ([], ())
    assert [one.text for one in found_rules(talk(RULE), (), NO_RULES)[0]] == [RULE]


def test_people_among_themselves_lay_down_no_rules():
    """A transcript without an assistant has nobody whom they bind; an assistant that speaks later is bound."""
    said, answered = talk(RULE)

    assert found_rules([said], (), NO_RULES) == ([], ())
    assert [one.text for one in found_rules([said], [answered], NO_RULES)[0]] == [RULE]


def test_a_known_rule_is_taken_back_where_only_the_user_is_heard():
    """The assistant's messages have left with the rule."""
    first, reply, last, _ = talk(RULE, TAKEN_BACK)
    rules = NO_RULES.after(finds(*found_rules([first, reply], (), NO_RULES)[0]), NOWHERE)

    assert found_rules((), [last], rules) == ([], (RevokedRule(RULE, 1, 3),))


def test_a_message_that_stays_adds_no_rule_and_ends_one():
    """The window has the message itself; the rule that it takes back has left."""
    first, reply, last, _ = talk(RULE, TAKEN_BACK)

    alone, ended = found_rules([first], [reply], NO_RULES)
    rules = NO_RULES.after(finds(*alone), NOWHERE)
    assert found_rules((), [first, reply, last], rules) == ([], (RevokedRule(RULE, 1, 3),))
    assert ended == ()


def test_a_rule_shows_until_it_is_taken_back_or_dropped():
    """The state remembers it, and by which message it ended."""
    rules = NO_RULES.after(finds(found(1), found(3), found(5)), NOWHERE)
    assert shown(rules) == [1, 3, 5]

    ended = rules.after(finds(revoked=(RevokedRule("Always 3.", 3, 9),)), NOWHERE)
    assert shown(ended) == [1, 5]
    assert [rule.revoked_by for rule in ended.entries] == [0, 9, 0]

    dropped = ended.without([RuleName(5, "Always 5.")], NOWHERE)
    assert shown(dropped) == [1]
    assert shown(dropped.after(finds(found(5)), NOWHERE)) == [1], "found again, it stays dropped"


def test_a_rewind_takes_rules_away_and_gives_back_those_that_stand_again():
    """A rule that a removed message took back stands."""
    rules = NO_RULES.after(finds(found(1), found(7), revoked=(RevokedRule("Always 1.", 1, 9),)), NOWHERE)

    back = rules.restricted(lambda number: 0 < number <= 6, NOWHERE)
    assert [(rule.number, rule.revoked_by) for rule in back.entries] == [(1, 0)]
    assert shown(back) == [1]


def test_a_rule_is_not_shown_beside_its_message_nor_twice():
    """A pinned message says it. A record that has its letters may deny it, and hides a tentative rule alone."""
    around = Surroundings(lambda number: number == 1, "user: Always 3. Ada says Always 5. is out of date. Always 7.")

    rules = NO_RULES.after(finds(found(1), found(3), found(5), found(7)._replace(doubt=0.5)), around)
    assert shown(rules) == [3, 5]
    assert rule_lines(rules) == ["Standing rules to follow, as said:", "- Always 3. [3]", "- Always 5. [5]"]


def test_rules_without_room_are_named_by_their_messages():
    """The newest are shown; of many, the newest messages are named."""
    rules = NO_RULES.after(finds(*(found(n) for n in range(1, 6)), limit=52), NOWHERE)

    assert rule_lines(rules) == [
        "Standing rules to follow, as said:",
        "- Always 4. [4]",
        "- Always 5. [5]",
        "3 more rules: messages 1, 2, 3",
    ]
    assert rules.tokens <= 52
    assert rule_lines(NO_RULES.after(finds(found(1), limit=5), NOWHERE)) == []


def tentative(number: int, doubt: float = 1.0, tokens: int = 10) -> FoundRule:
    """A tentative rule of a message."""
    return FoundRule(f"Perhaps {number}.", number, tokens, doubt)


def test_tentative_rules_are_quoted_behind_the_others():
    """A reader sees which are certain; both are in the order of their messages."""
    rules = NO_RULES.after(finds(tentative(4), found(3), tentative(2)), NOWHERE)

    assert rule_lines(rules) == [
        "Standing rules to follow, as said:",
        "- Always 3. [3]",
        "Said by the user, perhaps as rules:",
        "- Perhaps 2. [2]",
        "- Perhaps 4. [4]",
    ]
    alone = NO_RULES.after(finds(tentative(2)), NOWHERE)
    assert rule_lines(alone) == ["Said by the user, perhaps as rules:", "- Perhaps 2. [2]"]
    assert alone.tokens == rules.tokens - 2 * 10 - RULES_FRAME_TOKENS


def test_of_tentative_rules_those_of_least_doubt_have_the_room():
    """The newer of equals comes first; the window names none of the others."""
    said = [tentative(1, 0.5), tentative(2, 1.5), tentative(3, 1.0), tentative(4, 1.5)]

    assert shown(NO_RULES.after(finds(*said, limit=40), NOWHERE)) == [1, 3, 4]
    standing = [found(n, 12) for n in range(10, 20)]
    assert shown(NO_RULES.after(finds(*said, *standing, limit=40), NOWHERE)) == [], "there is no room for these"
    assert NO_RULES.after(finds(*said, limit=40), NOWHERE).unshown == ()


def test_what_may_be_no_rule_ends_no_rule_that_is_certain():
    """A remark that repeats its words would take it out of the window."""
    certain = "Please never send the customers a mail without asking me first."
    perhaps = "Mails to the customers, not without asking me first, please."
    rules = NO_RULES.after(finds(found(1, text=certain)), NOWHERE)
    first, reply, last, _ = talk("Fine.", perhaps)
    assert found_rules([last], [first, reply], rules)[1] == ()
    assert found_rules([talk("Fine.", certain)[2]], [first, reply], rules)[1] == (RevokedRule(certain, 1, 3),)


def test_a_tentative_rule_ends_with_the_value_that_it_says():
    """A later message has replaced it; a certain rule stands until it is taken back, and so do others."""
    said = [
        FoundRule("Book a table at 19:30.", 1, 10, 1.0),
        FoundRule("Book a table at 19:305.", 2, 10, 1.0),
        FoundRule("Always book at 19:30.", 3, 10),
        FoundRule("Then 19:30 again.", 9, 10, 1.0),
        FoundRule("No more than 12 lines, please.", 4, 10, 1.0),
    ]
    rules = NO_RULES.after(finds(*said), NOWHERE)

    replaced = [Replaced("19:30", 7), Replaced("12", 7)]
    ended = rules_in((), (), rules, replaced, counter=EstimatingCounter(), source=TokenSource.ESTIMATE)
    assert ended.revoked == (RevokedRule("Book a table at 19:30.", 1, 7),)


def test_of_too_many_the_tentative_ones_are_forgotten_first():
    """A rule of the first message is remembered beside any number of them."""
    said = [found(1), *(tentative(n) for n in range(2, RULES_MAX + 10))]

    rules = NO_RULES.after(finds(*said), NOWHERE)
    assert len(rules.entries) == RULES_MAX
    assert rules.entries[0].number == 1


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), max_size=40),
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60), st.sampled_from([0.5, 1.5])), max_size=40),
    st.integers(0, 900),
)
def test_tentative_rules_take_no_room_of_the_others(said, perhaps, limit):
    """The window shows and names the same standing rules without them."""
    certain = [found(n, tokens) for n, tokens in said]
    alone = NO_RULES.after(finds(*certain, limit=limit), NOWHERE)
    both = NO_RULES.after(finds(*certain, *(tentative(n, d, t) for n, t, d in perhaps), limit=limit), NOWHERE)

    assert [rule for rule in both.in_window if not rule.is_tentative] == list(alone.in_window)
    assert both.unshown == alone.unshown
    assert alone.tokens <= both.tokens <= limit


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), max_size=300), st.integers(0, 900))
def test_rules_keep_to_their_limit_and_to_their_number(said, limit):
    """Every standing rule is shown, named, or has no room at all."""
    rules = NO_RULES.after(finds(*(found(n, tokens) for n, tokens in said), limit=limit), NOWHERE)

    assert rules.tokens <= limit
    assert len(rules.entries) <= RULES_MAX
    assert [rule.number for rule in rules.entries] == sorted(rule.number for rule in rules.entries)
    if rules.tokens:
        assert sorted((*shown(rules), *rules.unshown)) == [rule.number for rule in rules.entries]


def after_pass(state: Conversation, rules: RuleFinds) -> Conversation:
    """The state after its pending pass, which found these."""
    return evolve(state, replace(completed(pending_in(state)), rules=rules), 0)


def requested(count: int = 80) -> Conversation:
    messages = [appended(number) for number in range(1, count + 1)]
    return having(OPEN, *messages[:-1]).when(append(messages[-1]), Policy()).after


def test_the_tokens_of_rules_are_the_windows():
    """Exactly those that they add, as estimates that are corrected like any other."""
    state = requested()
    bare = after_pass(state, RuleFinds())
    kept = after_pass(state, finds(found(3, 40)))

    (summary,) = rendered_summaries(kept, SummaryRole.SYSTEM)
    assert kept.rules.tokens > 40
    assert kept.window_tokens - bare.window_tokens == kept.rules.tokens
    assert kept.ratio > bare.ratio
    assert sum(m.tokens for m in rendered_window(kept, SummaryRole.SYSTEM)) == kept.window_tokens
    assert "- Always 3. [3]" in summary.message.content.splitlines()
    factor = replace(kept.settings, calibration_factor=2.0)
    assert kept._replace(settings=factor).window_tokens > kept.window_tokens + kept.rules.tokens - 2


def test_a_decision_bounds_the_rules_by_their_share_of_the_budget():
    """However much was found; a small budget gives them a larger share. 0 shows none, and the state remembers them all
    the same."""
    state = requested()
    many = finds(*(found(n, 50) for n in range(1, 41)), limit=0)
    command = replace(complete(state), rules=many)

    policy = Policy(rules_token_ratio=0.1, min_gain=0.0)
    kept = Given(state).when(command, policy).after
    assert 0.1 * state.budget < kept.rules.tokens <= 0.1 * SMALL_GROWTH_MAX * state.budget
    whole = Given(state).when(command, replace(policy, rules_token_ratio=0.99)).after
    assert whole.rules.tokens <= state.budget
    none = Given(state).when(command, replace(policy, rules_token_ratio=0.0)).after
    assert (none.rules.tokens, len(none.rules.entries)) == (0, 40)


def test_a_pin_takes_the_place_of_a_rule_and_a_revocation_of_all():
    """The message is back in the window; unpinned or gone again, its rule is shown again."""
    state = after_pass(requested(), finds(found(3)))
    originals = [appended(number) for number in range(1, 81)]
    record_id = live_in(state).id

    pinned = evolve(state, MessagesPinned((3,)), 0, originals)
    assert (shown(state.rules), shown(pinned.rules), pinned.rules.tokens) == ([3], [], 0)
    back = evolve(state, SummaryRevoked(record_id, (record_id,), ()), 0, originals)
    assert (shown(back.rules), len(back.rules.entries)) == ([], 1)


def test_rules_are_dropped_by_their_message_and_only_once():
    """Rules of the window can be dropped, too; a message without a rule is refused."""
    messages = talk(RULE, "Thanks a lot.")
    history = having(OPEN, *messages)

    dropped = history.when(DropRules(1), Policy()).then(RulesDropped((RuleName(1, RULE),)))
    assert [(rule.number, rule.dropped) for rule in known_rules(dropped)] == [(1, True)]
    Given(dropped).when(DropRules(1, RULE), Policy()).then()
    history.when(DropRules(1, "Another."), Policy()).then_refused(RuleNotFound, number=1)
    history.when(DropRules(3), Policy()).then_refused(RuleNotFound, number=3)
    history.when(DropRules(9), Policy()).then_refused(MessageNotFound, number=9)


def test_known_rules_are_those_of_the_window_too():
    """Messages of the window may take rules back."""
    state = having(OPEN, *talk(RULE, "Thanks a lot.", TAKEN_BACK)).state

    assert state.rules == NO_RULES
    assert [(rule.text, rule.number, rule.revoked_by) for rule in known_rules(state)] == [(RULE, 1, 5)]


@pytest.mark.parametrize(
    "rule", [RULE, "Please  always answer in   English, never in German\u00a0!", "以后给客户的每封邮件都必须用中文写。"]
)
def test_a_rule_is_byte_equal_after_fifty_passes(rule):
    """The records of the passes may say anything."""
    counter, policy = EstimatingCounter(), Policy(min_gain=0.0, min_messages=0, cooldown_messages=0)
    state = having(OPEN, *talk(rule)).state
    passes = 0
    while passes < 50:
        first = state.message_version + 1
        more = [appended(n, tokens=20) for n in range(first, first + 2)]
        state = Given(state).when(append(*more), policy, next_pass_id=f"p{first}").after
        if state.pending is None:
            continue
        plan = pending_in(state)
        leaving = [m for m in state.window if any(m.number in range(r.first, r.last + 1) for r in plan.covered)]
        staying = [m for m in state.window if m not in leaving]
        rules = rules_in(leaving, staying, state.rules, (), counter=counter, source=TokenSource.ESTIMATE)
        state = Given(state).when(replace(complete(state), rules=rules), policy, next_pass_id=f"q{first}").after
        passes += 1

    text = "\n".join(m.message.content for m in rendered_summaries(state, SummaryRole.SYSTEM))
    assert f"- {rule} [1]" in text
    assert [one.text.encode() for one in state.rules.entries] == [rule.encode()]


def test_a_chat_of_rules_alone_keeps_the_newest():
    """An event has at most RULES_MAX of the rules that a pass finds, and reading takes linear time."""
    said = [f"Please never mention item {n} in mails to customers." for n in range(RULES_MAX + 40)]
    rules, revoked = found_rules(talk(*said), (), NO_RULES)

    assert [one.text for one in rules] == said[40:]
    assert len(revoked) <= RULES_MAX
