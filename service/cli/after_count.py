"""Commands that take something away: they count, ask, act, and print the counts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import click
from google.protobuf.message import Message

from abridged.client import AsyncConversations
from abridged.service.cli.failures import CommandFailed
from abridged.service.cli.options import Decorated, Invocation
from abridged.service.cli.plain_json import as_json
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import number_of, say
from abridged.v1.conversation_service_pb2 import ArchiveConversationsResponse, Erasure

Counts = TypeVar("Counts", bound=Message)
Counted_co = TypeVar("Counted_co", bound=Message, covariant=True)


class Act(Protocol[Counted_co]):
    """A call of the sidecar that returns the counts of what it did, or in a dry run would do."""

    def __call__(self, client: AsyncConversations, *, dry_run: bool) -> Coroutine[Any, Any, Counted_co]: ...


def counting_options(command: Decorated) -> Decorated:
    """Add the options `--dry-run`, `--yes` and `--json`."""
    dry_run = click.option("--dry-run", is_flag=True, help="Only count.")
    yes = click.option("--yes", is_flag=True, help="Do not ask.")
    return dry_run(yes(click.option("--json", "as_json_", is_flag=True, help="Print the counts as JSON.")(command)))


def act_after_count(
    invocation: Invocation,
    act: Act[Counts],
    in_words: Callable[[Counts], str],
    *,
    verb: str,
    for_good: bool,
    hints: Mapping[str, str],
    dry_run: bool,
    yes: bool,
    as_json_: bool,
) -> tuple[Counts, Counts]:
    """Count, ask unless `yes` is set, act unless it is a dry run, and print the counts, as `in_words` says them: empty
    where there is nothing to do. Return the counts before and after. Raises CommandFailed for a no."""
    done = f"{verb.removesuffix('e')}ed"
    due = counted = call(invocation, lambda client: act(client, dry_run=True), hints=hints)
    if not dry_run:
        question = f"{verb.capitalize()} {in_words(counted)}{' for good' if for_good else ''}?"
        if in_words(counted) and not yes and not click.confirm(question, err=True):
            raise CommandFailed(f"nothing was {done}")
        counted = call(invocation, lambda client: act(client, dry_run=False), hints=hints)
    if as_json_:
        say(as_json(counted))
    elif not in_words(counted):
        left = f"nothing was left to {verb}" if for_good else f"nothing was {done}"
        say(left if in_words(due) else f"nothing to {verb}")
    else:
        say(f"{f'would {verb}' if dry_run else done} {in_words(counted)}")
    return due, counted


def conversations_in_words(counts: ArchiveConversationsResponse | Erasure) -> str:
    """The conversations and their messages; empty without any."""
    if not counts.conversations:
        return ""
    return f"{number_of(counts.conversations, 'conversation')} with {number_of(counts.messages, 'message')}"
