"""What `abridged doctor` checks of the search index: the package extra, the model for vectors, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator

from service.bootstrap.recall import embedded_dimension
from service.client import GetServerInfoResponse
from service.config.settings import Settings
from service.models.inventory import FAIL, OK, WARN, Finding
from service.models.settings import SettingUnusable
from service.recall.errors import EmbedderAway, RecallMissing

__all__ = ["examined_search"]

OFF = "search: off; recall.index switches it on"
REINDEX = "stop the sidecar and run `abridged log reindex`"


async def examined_search(settings: Settings, info: GetServerInfoResponse | None) -> list[Finding]:
    """`info` is what the sidecar says; None when none answers."""
    findings: list[Finding] = []
    if settings.recall.index != "off":
        findings.append(await _model(settings))
    if info is not None and info.HasField("recall"):
        findings += _standing(info)
    return findings or [Finding(OK, OFF)]


async def _model(settings: Settings) -> Finding:
    name = settings.recall.embedder if settings.recall.index == "both" else ""
    try:
        dimension = await embedded_dimension(settings)
    except RecallMissing as error:
        return Finding(FAIL, f"search: {error}", "or set recall.index = off")
    except (SettingUnusable, EmbedderAway) as error:
        hint = "until it responds vectors lag and searches by meaning fail; `ollama pull` fetches a missing model"
        return Finding(WARN, f"search: {name} does not embed: {error}", hint)
    return Finding(
        OK, f"search: {name} embeds, {dimension} numbers a text" if name else "search: the extra is installed"
    )


def _standing(info: GetServerInfoResponse) -> Iterator[Finding]:
    recall = info.recall
    made_by = f"words, and vectors by {recall.embedder}" if recall.embedder else "words"
    if recall.stopped:
        yield Finding(FAIL, f"search index: stopped: {recall.stopped}", REINDEX)
        return
    indexed = min(recall.words_position, recall.vectors_position)
    if indexed < recall.head_position:
        what = f"search index: {made_by}, up to position {indexed:,} of {recall.head_position:,}"
        yield Finding(WARN, what, "it follows the log; if this does not grow, see docs/operations.md")
        return
    yield Finding(OK, f"search index: {made_by}, up to date")
