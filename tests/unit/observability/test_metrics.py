"""The instruments: their counts, their names, and that callers cannot make them grow."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from abridged.observability.facts import ConversationsCounted, LogMeasured, PassEnded, PassOutcome, RecordCommitted
from abridged.observability.labels import (
    CALL_SERIES_MAX,
    EVENT_TYPES_MAX,
    GRPC_CODES,
    HOSTS_NAMED_MAX,
    METHODS_MAX,
    MODELS_NAMED_MAX,
    OTHER,
    TIMED_METHODS_MAX,
    MetricLabels,
)
from abridged.observability.metrics import BREAKER_VALUES, NOT_BEGUN, Metrics
from abridged.service.domain.events import ErrorClass, SkipReason, Trigger
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.models.breaker import BreakerState
from abridged.service.telemetry.telemetry import metric_labels

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
APPEND = "abridged.v1.ConversationService/AppendMessages"
LABELS = metric_labels(
    models=("ollama:a", "extractive"),
    hosts=("127.0.0.1:11434",),
    methods=(APPEND, "abridged.v1.ConversationService/GetContext"),
    timed_methods=(APPEND,),
    event_types=("MessageAppended",),
)
RECORD = RecordCommitted(
    depth=1, tokens_before=1_000, tokens_after=250, ratio_after=0.4, unsupported_claims=2, unsupported_statements=3
)


def opened(labels: MetricLabels = LABELS) -> Metrics:
    return Metrics(version="1.2.3", labels=labels)


def value(metrics: Metrics, name: str, labels: Mapping[str, str] | None = None) -> float:
    (found,) = [
        sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == name and sample.labels == (labels or {})
    ]
    return float(found)


def series(metrics: Metrics) -> int:
    return sum(len(family.samples) for family in metrics.collect())


def widest() -> MetricLabels:
    methods = tuple(f"abridged.v1.S/M{i}" for i in range(METHODS_MAX))
    return metric_labels(
        models=tuple(f"ollama:m{i}" for i in range(2 * MODELS_NAMED_MAX)),
        hosts=tuple(f"10.0.0.{i}:11434" for i in range(2 * HOSTS_NAMED_MAX)),
        methods=methods,
        timed_methods=methods[:TIMED_METHODS_MAX],
        event_types=tuple(f"Event{i}" for i in range(EVENT_TYPES_MAX)),
    )


def test_a_hundred_thousand_conversations_stay_within_the_series_limit() -> None:
    """The series are at most 600, whatever callers ask for."""
    metrics = opened(widest())

    for number in range(100_000):
        metrics.rpc_ended(f"abridged.v1.S/M{number % 97}", GRPC_CODES[number % 17], seconds=0.01)
        if number % 10 == 0:
            outcome = list(PassOutcome)[number // 10 % 5]
            trigger = list(Trigger)[number // 50 % 6]
            metrics.pass_ended(PassEnded(outcome, trigger, model=f"ollama:user-typed-{number}", record=RECORD))
            metrics.commit([f"Event{number % 31}"], seconds=0.001)
            metrics.breaker_changed(f"host-{number}", BreakerState.OPEN)

    assert series(metrics) <= 600
    assert sum(len(f.samples) for f in metrics.collect() if f.name == "abridged_breaker_state") == HOSTS_NAMED_MAX


def test_folding_keeps_the_sum_of_calls_by_code_exact() -> None:
    """Calls past the pair limit are counted under `_OTHER` with their own code."""
    metrics = opened(widest())

    for method in range(METHODS_MAX):
        for code in GRPC_CODES:
            metrics.rpc_ended(f"abridged.v1.S/M{method}", code, seconds=0.01)

    calls = [s for f in metrics.collect() if f.name == "abridged_grpc_server_calls" for s in f.samples]
    by_code = {code: sum(s.value for s in calls if s.labels["code"] == code) for code in GRPC_CODES}
    assert len(calls) == CALL_SERIES_MAX
    assert by_code == dict.fromkeys(GRPC_CODES, METHODS_MAX)


def test_every_label_value_is_there_before_anything_happened() -> None:
    """Ratios and alerts see zeros from the first scrape, not gaps."""
    metrics = opened()

    for outcome in PassOutcome:
        for trigger in Trigger:
            for model in (*LABELS.models, OTHER):
                labels = {"outcome": outcome.value, "trigger": trigger.value, "model": model}
                assert value(metrics, "abridged_summarizations_total", labels) == 0
    not_begun = {"outcome": "skipped", "trigger": NOT_BEGUN, "model": OTHER}
    assert value(metrics, "abridged_summarizations_total", not_begun) == 0
    for error in ErrorClass:
        assert value(metrics, "abridged_summarization_failures_total", {"error_class": error.value}) == 0
    for reason in SkipReason:
        assert value(metrics, "abridged_summarization_skips_total", {"reason": reason.upper()}) == 0
    for method in LABELS.methods:
        assert value(metrics, "abridged_grpc_server_calls_total", {"method": method, "code": "OK"}) == 0
    for code in GRPC_CODES:
        assert value(metrics, "abridged_grpc_server_calls_total", {"method": OTHER, "code": code}) == 0
    assert value(metrics, "abridged_breaker_state", {"host": LABELS.hosts[0]}) == 0
    assert value(metrics, "abridged_events_appended_total", {"type": "MessageAppended"}) == 0
    for holding in HeldBy:
        assert value(metrics, "abridged_conversations_held", {"held_by": holding.value}) == 0
    for name in ("abridged_conversations_over_budget", "abridged_log_size_bytes", "abridged_log_free_bytes"):
        assert value(metrics, name) == 0


def test_a_pass_is_counted_by_outcome_trigger_and_model() -> None:
    """One fact moves outcome, duration, attempts, tokens and quality."""
    metrics = opened()

    metrics.pass_ended(
        PassEnded(
            PassOutcome.SUCCESS,
            Trigger.RATIO,
            model="ollama:a",
            duration_s=3.0,
            attempts=2,
            tokens_in=900,
            tokens_out=200,
            record=RECORD,
        )
    )

    outcome = {"outcome": "success", "trigger": "ratio", "model": "ollama:a"}
    assert value(metrics, "abridged_summarizations_total", outcome) == 1
    assert value(metrics, "abridged_summarization_duration_seconds_sum") == 3.0
    assert value(metrics, "abridged_summarization_attempts_sum") == 2
    assert value(metrics, "abridged_summarizer_tokens_total", {"direction": "in"}) == 900
    assert value(metrics, "abridged_summarizer_tokens_total", {"direction": "out"}) == 200
    assert value(metrics, "abridged_summarizer_tokens_total", {"direction": "saved"}) == 750
    assert value(metrics, "abridged_compaction_ratio_sum") == 0.25
    assert value(metrics, "abridged_unsupported_claims_total") == 2
    assert value(metrics, "abridged_unsupported_statements_total") == 3


def test_a_fallback_says_why_the_model_failed_and_is_no_success() -> None:
    """Outcome fallback also counts the class of the model's failure."""
    metrics = opened()

    metrics.pass_ended(
        PassEnded(
            PassOutcome.FALLBACK,
            Trigger.EMERGENCY,
            model="extractive",
            duration_s=1.0,
            error_class=ErrorClass.TRANSPORT,
            record=RECORD,
        )
    )

    outcome = {"outcome": "fallback", "trigger": "emergency", "model": "extractive"}
    assert value(metrics, "abridged_summarizations_total", outcome) == 1
    assert value(metrics, "abridged_summarization_failures_total", {"error_class": "TRANSPORT"}) == 1


def test_a_record_that_saves_nothing_does_not_break_the_pass_that_made_it() -> None:
    """A counter cannot go down and nothing can be divided by zero, so such a record saves 0 and has no ratio."""
    metrics = opened()
    record = RecordCommitted(depth=0, tokens_before=0, tokens_after=10, ratio_after=0.9)

    metrics.pass_ended(PassEnded(PassOutcome.SUCCESS, Trigger.FORCED, record=record))

    assert value(metrics, "abridged_summarizer_tokens_total", {"direction": "saved"}) == 0
    assert value(metrics, "abridged_compaction_ratio_count") == 0


def test_a_skip_leaves_durations_alone() -> None:
    """A pass that never began is counted with its reason, is no fast pass, and had no trigger."""
    metrics = opened()

    metrics.pass_ended(PassEnded(PassOutcome.SKIPPED, None, skip_reason="IRREDUCIBLE"))

    assert value(metrics, "abridged_summarization_skips_total", {"reason": "IRREDUCIBLE"}) == 1
    assert value(metrics, "abridged_summarization_duration_seconds_count") == 0
    skipped = {"outcome": "skipped", "trigger": "none", "model": OTHER}
    assert value(metrics, "abridged_summarizations_total", skipped) == 1
    begun = [s for f in metrics.collect() if f.name == "abridged_summarizations" for s in f.samples]
    assert sum(s.value for s in begun if s.labels["trigger"] != "none") == 0


def test_unknown_methods_and_codes_are_counted_as_other() -> None:
    """A client cannot name a series."""
    metrics = opened()

    metrics.rpc_ended("evil/" + "x" * 100, "NO_SUCH_CODE", seconds=0.1)

    assert value(metrics, "abridged_grpc_server_calls_total", {"method": OTHER, "code": "UNKNOWN"}) == 1
    assert value(metrics, "abridged_grpc_server_call_duration_seconds_count", {"method": OTHER}) == 1


def test_only_timed_methods_have_a_duration_of_their_own() -> None:
    """The other methods share one duration series."""
    metrics = opened()

    metrics.rpc_ended(APPEND, "OK", seconds=0.1)
    metrics.rpc_ended(LABELS.methods[1], "OK", seconds=0.1)

    assert value(metrics, "abridged_grpc_server_call_duration_seconds_count", {"method": APPEND}) == 1
    assert value(metrics, "abridged_grpc_server_call_duration_seconds_count", {"method": OTHER}) == 1


def test_a_commit_counts_its_events_by_type_once() -> None:
    """Events, batch and duration move together; an unlisted type is `_OTHER`."""
    metrics = opened()

    metrics.commit(["MessageAppended", "MessageAppended", "Unlisted"], seconds=0.003)

    assert value(metrics, "abridged_events_appended_total", {"type": "MessageAppended"}) == 2
    assert value(metrics, "abridged_events_appended_total", {"type": OTHER}) == 1
    assert value(metrics, "abridged_commit_batch_events_sum") == 3
    assert value(metrics, "abridged_commit_duration_seconds_count") == 1


def test_gauges_follow_what_they_are_told() -> None:
    """Pending passes, subscribers and breakers show the last word."""
    metrics = opened()

    metrics.passes_pending(2, oldest_timestamp_s=1_700_000_000.0)
    metrics.subscriber_opened()
    metrics.subscriber_opened()
    metrics.subscriber_closed()
    metrics.breaker_changed(LABELS.hosts[0], BreakerState.HALF_OPEN)

    assert value(metrics, "abridged_summarizations_pending") == 2
    assert value(metrics, "abridged_oldest_pending_timestamp_seconds") == 1_700_000_000.0
    assert value(metrics, "abridged_subscribers") == 1
    assert value(metrics, "abridged_breaker_state", {"host": LABELS.hosts[0]}) == 1


def test_what_nothing_holds_any_longer_is_0_again_and_what_is_unknown_is_no_0():
    """A reason that is missing from a count has 0; a count that is missing has no figure at all."""
    metrics = opened()
    metrics.conversations_counted(ConversationsCounted(over_budget=2, held={HeldBy.COOLDOWN: 5}))
    metrics.log_measured(LogMeasured(size_bytes=10, free_bytes=20))
    metrics.conversations_counted(ConversationsCounted(over_budget=1, held={HeldBy.IRREDUCIBLE: 3}))

    assert value(metrics, "abridged_conversations_held", {"held_by": "COOLDOWN"}) == 0
    assert value(metrics, "abridged_conversations_held", {"held_by": "IRREDUCIBLE"}) == 3
    assert value(metrics, "abridged_conversations_over_budget") == 1
    assert value(metrics, "abridged_log_free_bytes") == 20

    metrics.conversations_counted(None)
    metrics.log_measured(None)

    assert math.isnan(value(metrics, "abridged_conversations_held", {"held_by": "IRREDUCIBLE"}))
    assert math.isnan(value(metrics, "abridged_log_free_bytes"))


def test_every_state_of_a_breaker_has_a_value() -> None:
    """A state without one would raise where a host's breaker changes."""
    assert set(BREAKER_VALUES) == set(BreakerState)


def test_a_word_that_no_list_has_is_counted_as_other() -> None:
    """An unlisted trigger, class or reason is counted, raises nothing, and names no series."""
    metrics = opened()

    fact = PassEnded(PassOutcome.ERROR, "unlisted", model="m", error_class="Unlisted", skip_reason="Unlisted")
    metrics.pass_ended(fact)

    ended = {"outcome": "error", "trigger": OTHER, "model": OTHER}
    assert value(metrics, "abridged_summarizations_total", ended) == 1
    assert value(metrics, "abridged_summarization_failures_total", {"error_class": OTHER}) == 1
    assert value(metrics, "abridged_summarization_skips_total", {"reason": OTHER}) == 1
    assert b"nlisted" not in metrics.exposition()[0]


def test_no_pending_pass_has_no_age() -> None:
    """The timestamp of the oldest goes back to 0 with the last pass."""
    metrics = opened()
    metrics.passes_pending(1, oldest_timestamp_s=1_700_000_000.0)

    metrics.passes_pending(0)

    assert value(metrics, "abridged_oldest_pending_timestamp_seconds") == 0


def test_exemplars_appear_in_openmetrics_on_counters_and_histograms() -> None:
    """A trace id given with a fact can be followed from the scrape."""
    metrics = opened()
    metrics.rpc_ended(APPEND, "OK", seconds=0.1, trace_id=TRACE)
    record = RecordCommitted(depth=0, tokens_before=1_000, tokens_after=250, ratio_after=0.4)
    metrics.pass_ended(PassEnded(PassOutcome.SUCCESS, Trigger.RATIO, trace_id=TRACE, record=record))

    body, _ = metrics.exposition(OPENMETRICS)

    with_exemplar = {
        sample.name
        for family in parse_openmetrics(body.decode())  # type: ignore[no-untyped-call]  # the library leaves it bare
        for sample in family.samples
        if sample.exemplar and sample.exemplar.labels == {"trace_id": TRACE}
    }
    assert with_exemplar == {
        "abridged_grpc_server_calls_total",
        "abridged_grpc_server_call_duration_seconds_bucket",
        "abridged_summarizations_total",
        "abridged_summarizer_tokens_total",
        "abridged_compaction_ratio_bucket",
        "abridged_identifier_survival_ratio_bucket",
    }


def test_without_a_trace_there_is_no_exemplar() -> None:
    """An empty trace id is not an exemplar."""
    metrics = opened()
    metrics.rpc_ended(APPEND, "OK", seconds=0.1)

    assert b"trace_id" not in metrics.exposition(OPENMETRICS)[0]


@pytest.mark.parametrize("accept", ["", "text/plain", OPENMETRICS])
def test_no_created_series_is_exposed(accept: str) -> None:
    """`_created` would be a third more series that nobody reads."""
    assert b"_created" not in opened().exposition(accept)[0]


def test_two_instances_share_nothing() -> None:
    """The process has no global registry: a second instance starts at zero."""
    first, second = opened(), opened()

    first.commit(["MessageAppended"], seconds=0.001)

    assert value(second, "abridged_commit_batch_events_count") == 0


def test_each_instrument_asks_a_question_and_has_a_lawful_name() -> None:
    """Help texts say which question is answered; names carry prefix, base unit and suffix."""
    families = [f for f in opened().collect() if f.name.startswith("abridged_")]

    assert families
    for family in families:
        assert "?" in family.documentation, family.name
        assert re.fullmatch(r"abridged_[a-z_]+", family.name)
        assert not re.search(r"_(ms|milliseconds|kb|percent)", family.name)


def test_the_text_format_parses() -> None:
    """Both formats are read back by the reference parser with equal series."""
    metrics = opened()
    metrics.rpc_ended(APPEND, "OK", seconds=0.1, trace_id=TRACE)

    names = {s.name for f in parse_text(metrics.exposition()[0].decode()) for s in f.samples}

    assert names >= {"abridged_build_info", "process_resident_memory_bytes", "python_info"}
    assert names >= {s.name for f in metrics.collect() for s in f.samples}


@pytest.mark.parametrize(
    "labels",
    [
        {"methods": tuple(map(str, range(METHODS_MAX + 1)))},
        {"methods": ("a", "b", "c"), "timed_methods": ("a", "b", "c")},
        {"methods": ("a",), "timed_methods": ("b",)},
        {"event_types": tuple(map(str, range(EVENT_TYPES_MAX + 1)))},
    ],
    ids=json.dumps,
)
def test_lists_that_break_the_series_budget_are_a_programmers_error(labels: dict[str, tuple[str, ...]]) -> None:
    """Code that serves more than the budget holds fails at the start, not in Prometheus."""
    with pytest.raises(AssertionError):
        MetricLabels(**labels)
