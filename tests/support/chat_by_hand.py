"""A chat of CHAIN by hand: commands in, the state after them."""

from __future__ import annotations

from abridged.service.domain.amendments import needed
from abridged.service.domain.commands import Command
from abridged.service.domain.conversation import initial_state
from abridged.service.domain.decide import decide
from abridged.service.domain.events import Event, MessageAppended
from abridged.service.domain.fold import evolve
from abridged.service.domain.policy import Policy
from abridged.service.domain.profiles import chain
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.ranges import covers
from tests.support.chats import append, appended, complete


class Chat:
    """The state and the log of a chat whose commands a test gives."""

    def __init__(self, *commands: Command, policy: Policy | None = None) -> None:
        self.state = initial_state()
        self.log: list[tuple[Event, int]] = []
        self.policy = policy or Policy()
        self._passes = 0
        for command in commands:
            self.after(command)

    def after(self, command: Command) -> list[Event]:
        """The events of the command, applied."""
        self._passes += 1
        originals = self.originals(command)
        context = DecisionContext(chain, self.policy, 0, f"p{self._passes}", originals)
        events = decide(self.state, command, context)
        for event in events:
            self.state = evolve(self.state, event, 0, originals)
            self.log.append((event, 0))
        return events

    def compressed(self) -> str:
        """Complete the pending pass; the record's id."""
        self.after(complete(self.state))
        assert self.state.live
        return self.state.live.id

    def numbers(self) -> list[int]:
        return [m.number for m in self.state.window]

    def originals(self, command: Command) -> list[MessageAppended]:
        """The messages that the command needs, as they are read for it."""
        messages = [event for event, _ in self.log if isinstance(event, MessageAppended)]
        originals: list[MessageAppended] = []
        while ranges := needed(self.state, command, originals):
            originals += (m for m in messages if covers(ranges, m.number))
        return originals


def full_chat(count: int = 80) -> Chat:
    """Past its trigger, with a pass pending."""
    chat = Chat(append(*(appended(number) for number in range(1, count + 1))))
    assert chat.state.pending
    return chat
