"""The lists of label values and their maximum lengths, which bound the number of metric series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OTHER = "_OTHER"
MODELS_NAMED_MAX = 3
HOSTS_NAMED_MAX = 4
METHODS_MAX = 40
TIMED_METHODS_MAX = 2
EVENT_TYPES_MAX = 26
CALL_SERIES_MAX = 100
"""Pairs of method and code, at most: new ones beyond are counted under `_OTHER` and their code."""

GRPC_CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)


@dataclass(frozen=True, slots=True)
class MetricLabels:
    """The closed lists of label values, from code and configuration, never from a request.

    Attributes:
        models: The operator's models, most important first; those past `MODELS_NAMED_MAX` are counted under `_OTHER`.
        hosts: The operator's model hosts, most important first; those past `HOSTS_NAMED_MAX` have no breaker series.
        methods: Full names of the served methods, `package.Service/Method`; at most `METHODS_MAX`.
        timed_methods: Methods with a duration series of their own; at most `TIMED_METHODS_MAX`. The others share one.
        event_types: The types of events, `EVENT_TYPES_MAX` at most.
        triggers: Why passes begin.
        error_classes: Why models do not make a record.
        skip_reasons: Why nothing is compressed although a pass is due.
        held_by: Why a window past its trigger stays as it is.
    """

    models: Sequence[str] = ()
    hosts: Sequence[str] = ()
    methods: Sequence[str] = ()
    timed_methods: Sequence[str] = ()
    event_types: Sequence[str] = ()
    triggers: Sequence[str] = ()
    error_classes: Sequence[str] = ()
    skip_reasons: Sequence[str] = ()
    held_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        assert len(self.methods) <= METHODS_MAX, "more methods than the series budget allows"
        assert len(self.timed_methods) <= TIMED_METHODS_MAX, "more timed methods than the series budget allows"
        assert len(self.event_types) <= EVENT_TYPES_MAX, "more event types than the series budget allows"
        assert set(self.timed_methods) <= set(self.methods), "a timed method that is not served"
