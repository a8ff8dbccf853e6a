"""The conditions of `abridged log export` on conversations, and the lines of those that meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import click

from abridged.eventlog.event import StreamId
from abridged.eventlog.rows import StoredRows
from abridged.eventlog.verification import LogVerification
from abridged.service.cli.failures import CommandFailed
from abridged.service.cli.options import label_of
from abridged.service.cli.terminal import number_of, say
from abridged.service.config.settings import DEFAULT_NAMESPACE
from abridged.service.conversations.log_part import Choice, ConversationMissing, lines_of_part, part_of_log
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable

_ANY = Choice()


def choice_of(
    *, names: Sequence[str], labels: Sequence[str], since: str | None, until: str | None, closed: bool | None
) -> Choice | None:
    """The conditions as they were given; None without any. Raises BadParameter."""
    choice = Choice(
        frozenset(map(_stream_of, names)),
        tuple(map(label_of, labels)),
        _ANY.since_us if since is None else _time_us(since, "--since"),
        _ANY.until_us if until is None else _time_us(until, "--until"),
        closed,
    )
    return choice if choice != _ANY else None


def lines_of_choice(
    log: LogVerification, rows: StoredRows[Row], choice: Choice, walked: Callable[[int, int], None]
) -> Iterator[str]:
    """Yield the lines of the part that is chosen, and say what it is. Raises CommandFailed and LogCorrupt."""
    if log.fault is not None:
        raise CommandFailed(
            f"the read table, which says what is chosen, {log.fault}",
            hint="stop the sidecar and run `abridged log rebuild`",
        )
    try:
        part = part_of_log(log, ConversationTable(rows), choice)
    except ConversationMissing as error:
        raise CommandFailed(
            f"there is no conversation {error}", hint="`abridged log stats` names the largest"
        ) from error
    if not part.conversations:
        raise CommandFailed("no conversation meets the conditions")
    forked = f", {part.ancestors:,} of them for their forks" if part.ancestors else ""
    say(
        f"a part: {number_of(part.events, 'event')} in {number_of(len(part.conversations), 'conversation')}{forked}",
        is_error=True,
    )
    for stream, file in sorted(part.archives.items()):
        say(f"archived  {stream.namespace}/{stream.name}: the part has no content of it, {file} has", is_error=True)
    yield from lines_of_part(log, part, walked)


def _stream_of(text: str) -> StreamId:
    namespace, slash, conversation = text.rpartition("/")
    if not conversation or (slash and not namespace):
        raise click.BadParameter(f"{text!r} is neither ID nor NAMESPACE/ID", param_hint="--conversation")
    return StreamId(namespace or DEFAULT_NAMESPACE, conversation)


def _time_us(text: str, option: str) -> int:
    try:
        time = datetime.fromisoformat(text)
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    except (ValueError, OverflowError) as error:
        wanted = "2026-03-01 or 2026-03-01T12:00:00Z"
        raise click.BadParameter(f"{text!r} is no time such as {wanted}", param_hint=option) from error
