"""What a decision rests on beside the state and the command: so that neither policy, time nor ids are a command's."""

from __future__ import annotations

from typing import NamedTuple

from service.domain.policy import Policy

__all__ = ["DecisionContext"]


class DecisionContext(NamedTuple):
    """The policy in force for the settings that the command leaves behind, the time in microseconds since the epoch,
    and the id that a pass gets if the decision requests one: it never requests two.
    """

    policy: Policy
    now_us: int
    next_pass_id: str
