"""Folds a recorded log without a sidecar, for tests of programs that use one.

from abridged.testing import replay

chats = replay("log.jsonl")
assert chats["support-1"].context.compacted
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from abridged.service.api.folded_log import FoldedConversation, folded_log
from abridged.service.config.settings import Settings
from abridged.service.conversations.log_copy import LogLinesRefused

__all__ = ["FoldedConversation", "LogLinesRefused", "replay"]


def replay(lines: str | Path | bytes, *, namespace: str = "default") -> Mapping[str, FoldedConversation]:
    """Fold a log that `abridged log export` wrote: its conversations in a namespace by id, oldest first, without those
    that were erased.

    `lines` are a file's path or the lines themselves. Each conversation is as a sidecar with default settings shows it
    at the end of the log; nothing is asked and nothing is written. Raises LogLinesRefused, which names the line, for
    anything but a whole log, and OSError.
    """
    data = lines if isinstance(lines, bytes) else Path(lines).read_bytes()
    folded = folded_log(Settings(), BytesIO(data), lambda _done, _total: None)
    return {key.name: conversation for key, conversation in folded.items() if key.namespace == namespace}
