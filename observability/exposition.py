"""The forms in which instruments are exposed."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["OPENMETRICS", "WithoutCreated", "takes_openmetrics"]

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def takes_openmetrics(accept: str) -> bool:
    """Whether `accept` asks for OpenMetrics, in the version that we serve or in any.

    The library accepts versions that it cannot write, and raises on those that are not numbers.
    """
    for asked in accept.split(","):
        kind, *parameters = (part.strip() for part in asked.split(";"))
        versions = {part.partition("=")[2].strip() for part in parameters if part.startswith("version")}
        if kind == OPENMETRICS.partition(";")[0] and versions <= {OPENMETRICS.partition("=")[2]}:
            return True
    return False


class WithoutCreated(Collector):
    """A registry without its `_created` samples, which are a third more series and unused here.

    The library's own switch is global to the process; this one is not.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
