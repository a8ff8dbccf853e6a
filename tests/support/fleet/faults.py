"""The kinds of faults that a run may have, the points of a pass where they happen, and the bugs that may be planted."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """A kind of fault that a run may have."""

    KILLED = "killed"
    STOPPED = "stopped"
    RESTARTED = "restarted"
    SLOW_MODEL = "slow model"
    FAILING_MODEL = "failing model"
    REFUSED_COMMIT = "refused commit"
    UNANSWERED_COMMIT = "unanswered commit"
    SLOW_COMMIT = "slow commit"
    SLOW_LEASES = "slow leases"
    NO_LEASES = "no leases"
    BLIND_LOOKOUT = "blind lookout"
    WRONG_CLOCK = "wrong clock"


AT_POINTS = (Fault.KILLED, Fault.STOPPED)
"""Faults that happen at a point of a pass; each run has one of them."""

OTHER_FAULTS_MAX = 6
"""The most faults of other kinds in one run: among many faults few passes come as far as the last of them."""


class Point(StrEnum):
    """A place in the course of a pass where a process may be killed or stopped."""

    CLAIM_SENT = "claim sent"
    CLAIM_COMMITTED = "claim committed"
    CLAIM_CHECKED = "claim checked"
    MODEL_ASKED = "model asked"
    MODEL_ANSWERED = "model answered"
    END_SENT = "end sent"
    END_COMMITTED = "end committed"
    RELEASE_SENT = "release sent"
    RENEWAL_SENT = "renewal sent"
    RENEWAL_ANSWERED = "renewal answered"


SHARES = {Point.END_SENT: 0.15, Point.CLAIM_CHECKED: 0.2}
"""Shares of calls that a fault strikes at a point, if not 0.04: the matter checked may be over afterwards."""


class Bug(StrEnum):
    """A bug that a run may have planted."""

    NO_FENCE = "an end is written under whatever claim is the newest"
    COUNTED_FROM_ANSWER = "a lease is counted from the answer to its renewal"
    SHARED_OWNER = "all processes have one owner's name"
    EARLY_TAKEOVER = "a claim is taken over before its lease has lapsed"
    NOT_RELEASED = "the lease of a pass that has ended is renewed for ever"
    RESURRECTED = "a lease that has lapsed is renewed"
    NO_LAPSE = "a process does not stop when its lease has lapsed"
