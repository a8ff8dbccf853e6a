"""Exchanges: what the user says, and everything up to the last reply before the user speaks again.

A boundary between two exchanges divides no question from its answer and no call from its result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Reversible, Sequence
from itertools import chain, takewhile

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.message import Role
from abridged.service.domain.window import ToolPairs, tool_pairs, tool_units

Messages = Sequence[MessageAppended]


def answered_since(window: Reversible[MessageAppended], number: int) -> int:
    """Count the user's questions that got their reply, an assistant's first message without a tool call, after this
    message. Looks at the messages since and at the exchange that they continue.
    """
    count = 0
    replied = False
    for m in reversed(window):
        if _is_reply(m):
            if m.number <= number:
                break
            replied = True
        elif m.message.role is Role.USER:
            count += replied
            replied = False
            if m.number <= number:
                break
    return count


def exchanges(chat: Messages, *, messages_max: int) -> list[Messages]:
    """The exchanges of a window, oldest first; linear.

    A tool result that came after the user had spoken joins the exchanges from its call on, if they have at most
    `messages_max` messages together. A longer exchange is divided between its tool calls, and never after a user's
    message.
    """
    parts: list[Messages] = []
    for exchange in _joined(_begun(chat), tool_pairs(chat), messages_max):
        if len(exchange) <= messages_max:
            parts.append(exchange)
        else:
            parts.extend(_divided(exchange))
    return parts


def whole_before_kept(units: Iterable[Messages], dropped: Collection[int], pins: Collection[int]) -> list[Messages]:
    """The units up to the first with a message that is neither dropped nor pinned, without their pins."""
    may_leave = frozenset(chain(dropped, pins))
    whole = takewhile(lambda unit: all(m.number in may_leave for m in unit), units)
    left = ([m for m in unit if m.number not in pins] for unit in whole)
    return [unit for unit in left if unit]


def _is_reply(m: MessageAppended) -> bool:
    return m.message.role is Role.ASSISTANT and not m.message.tool_calls


def _begun(chat: Messages) -> list[list[MessageAppended]]:
    groups: list[list[MessageAppended]] = []
    for m in chat:
        speaks = m.message.role is Role.USER
        if not groups or (speaks and groups[-1][-1].message.role is not Role.USER):
            groups.append([])
        groups[-1].append(m)
    return groups


def _joined(groups: list[list[MessageAppended]], pairs: ToolPairs, messages_max: int) -> list[list[MessageAppended]]:
    """The groups, those between a call and its late result joined if they are not too long together."""
    if not pairs.late:
        return groups
    place = {m.number: i for i, group in enumerate(groups) for m in group}
    reach = {i: i for i in range(len(groups))}
    for call in pairs.late:
        start, end = place[call[0]], place[pairs.results[call]]
        reach[start] = max(reach[start], end)
    joined: list[list[MessageAppended]] = []
    until = -1
    for i, group in enumerate(groups):
        if i <= until and len(joined[-1]) + len(group) <= messages_max:
            joined[-1].extend(group)
        else:
            joined.append(list(group))
        if sum(map(len, groups[i : reach[i] + 1])) <= messages_max:
            until = max(until, reach[i])
    return joined


def _divided(exchange: Messages) -> list[Messages]:
    """The exchange by tool units; what the user said stays with what follows."""
    parts: list[list[MessageAppended]] = []
    for unit in tool_units(exchange, tool_pairs(exchange)):
        if parts and parts[-1][-1].message.role is Role.USER:
            parts[-1].extend(unit)
        else:
            parts.append(list(unit))
    return list(parts)
