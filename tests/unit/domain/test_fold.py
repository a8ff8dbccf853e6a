"""The fold of many events is that of each of them, one after another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from abridged.service.domain.conversation import initial_state
from abridged.service.domain.events import ConversationOpened, Event, MessageAppended, Settings, SettingsChanged
from abridged.service.domain.fold import evolve, fold
from abridged.service.domain.message import Message, Role
from abridged.service.domain.tokens import TokenSource

MESSAGES = st.tuples(st.sampled_from(Role), st.sampled_from(TokenSource), st.integers(0, 99), st.booleans())


@given(st.lists(st.one_of(MESSAGES, st.text(max_size=3)), max_size=30), st.integers(0, 30))
def test_messages_in_a_row_fold_as_each_of_them(changes, cut):
    """Messages may have any role, count and pin, with changes of settings between; the fold may be cut anywhere."""
    events: list[tuple[Event, int]] = [(ConversationOpened("c1", Settings()), 1)]
    number = 0
    for at_us, change in enumerate(changes, start=2):
        if isinstance(change, str):
            events.append((SettingsChanged(Settings(title=change)), at_us))
            continue
        number += 1
        role, source, tokens, pinned = change
        message = Message(f"m{number}", role, "hello", pinned=pinned)
        events.append((MessageAppended(number, message, tokens, source), at_us))

    one_by_one = initial_state()
    for event, at_us in events:
        one_by_one = evolve(one_by_one, event, at_us)

    assert fold(events) == one_by_one
    assert fold(events[cut:], fold(events[:cut])) == one_by_one
