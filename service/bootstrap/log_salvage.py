"""Makes a log of what a damaged one proves, with its read table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from abridged.eventlog.backend import StoredBackend
from abridged.eventlog.event import StreamId
from abridged.eventlog.salvage import Salvaged
from abridged.service.bootstrap.backends import file_backend, readable
from abridged.service.bootstrap.log_import import folded
from abridged.service.config.settings import Settings
from abridged.service.conversations.log_copy import Walked
from abridged.service.conversations.log_salvage import meaning_of
from abridged.service.conversations.rebuild import RebuildReport


def salvaged(
    settings: Settings,
    environ: Mapping[str, str],
    damaged: Path,
    *,
    unread: Callable[[StreamId, Exception], None],
    pages: Walked,
    positions: Walked,
) -> Salvaged:
    """Make the log of `settings`, in a file, from the one in `damaged`, whole or not at all.

    `unread` gets each conversation that is proven and cannot be folded all the same. Raises what SqliteBackend.salvage
    raises.
    """

    def check(new: StoredBackend) -> None:
        asyncio.run(folded(settings, environ, readable(new, settings), RebuildReport(left_out=unread)))

    meaning = meaning_of(sorted({"default", *(grant.namespace for grant in settings.server.tokens)}))
    with ExitStack() as resources:
        if settings.encryption.is_on:
            from abridged.service.bootstrap.encryption import meaning_with_keys

            meaning = resources.enter_context(meaning_with_keys(meaning, settings))
        return file_backend(settings.log.path).salvage(damaged, meaning, check, pages=pages, positions=positions)
