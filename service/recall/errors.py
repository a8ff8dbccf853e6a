"""Errors of a search and of the index.

RecallError
├── RecallOff         the settings do not switch on what a search asks for
├── RecallStopped     the index cannot follow an event of the log; an operator has to act
│   └── RecallLocked  another process has the index's file open
├── RecallMissing     the package extra `recall` is not installed
├── EmbedderAway      the model that makes vectors does not answer now
├── EmbedderChanged   the model that makes vectors is not the one that made the index
└── InvalidQuery      a query without a word, or with an open quotation
"""

from __future__ import annotations

from pathlib import Path

EXTRA = "the package extra `recall` (scripts/install recall, or pip install 'PATH[recall]')"


class RecallError(Exception):
    """A search failed, or the index is not available. No message of this family has text of a conversation."""


class RecallOff(RecallError):
    """`setting` has to have `value` for this search."""

    def __init__(self, setting: str, value: str) -> None:
        extra = f", which needs {EXTRA}" if value == "both" else ""
        super().__init__(f"set {setting} = {value}{extra}, and restart the sidecar")
        self.setting = setting
        self.value = value


class RecallStopped(RecallError):
    """The index no longer follows the log; the message gives the cause."""


class RecallLocked(RecallStopped):
    """Another process has the index's file open."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"another process has the index {path} open: it is of one sidecar alone")


class RecallMissing(RecallError):
    """The package extra `recall` is not installed."""

    def __init__(self) -> None:
        super().__init__(f"recall.index = both needs {EXTRA}")


class EmbedderAway(RecallError):
    """The model that makes vectors does not answer now."""


class EmbedderChanged(RecallError):
    """The embedder's vectors cannot be compared with those of the index."""


class InvalidQuery(RecallError):
    """The query cannot be searched for; the message names the fault and never quotes the query."""
