"""Makes a log from the lines of another one, with its read table."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import BinaryIO

from abridged.eventlog.backend import Backend
from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.service.bootstrap.backends import log_backend
from abridged.service.bootstrap.core import open_unserved
from abridged.service.config.settings import Settings
from abridged.service.conversations.log_copy import LogLinesRefused, Walked, filled, head_of_lines, refused, unfoldable
from abridged.service.conversations.rebuild import RebuildReport, Rebuilt


def imported(settings: Settings, environ: Mapping[str, str], lines: BinaryIO, walked: Walked) -> Rebuilt:
    """Make the log of `settings` from `lines`, whole or not at all: every conversation is folded before it is there.

    Raises LogLinesRefused, FileExistsError for a log that is there, and an EventLogError if it cannot be written.
    """
    head = head_of_lines(lines)
    done: list[Rebuilt] = []

    def left_out(stream: StreamId, error: Exception) -> None:
        raise refused(stream, error) from error

    def check(copy: Backend) -> None:
        done.append(asyncio.run(folded(settings, environ, copy, RebuildReport(left_out=left_out))))

    log_backend(settings).copy(head.log_id, lambda log: filled(log, head, lines, walked), check)
    return done[0]


async def folded(settings: Settings, environ: Mapping[str, str], copy: Backend, report: RebuildReport) -> Rebuilt:
    """Fold every conversation of a log before it is in its place, which makes its read table.

    Raises LogLinesRefused for events that do not follow from those before them, and an EventLogError.
    """
    async with AsyncExitStack() as resources:
        core = open_unserved(settings, environ, resources, backend=copy)
        assert core.rebuild is not None, "the log outlives the process"
        try:
            return await asyncio.to_thread(core.rebuild, report)
        except (LogLinesRefused, EventLogError):
            raise
        except Exception as error:
            raise unfoldable(core.log, error) from error
