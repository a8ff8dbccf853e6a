"""`abridged log`: checks, backs up or salvages a log, copies it as lines, replays those, remakes what is made of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import click

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.snapshots import SET_ASIDE
from abridged.service.cli.configured import configuration
from abridged.service.cli.failures import (
    GIVE_KEY,
    MEND_KEYS,
    RESTORE,
    RESTORE_OR_SALVAGE,
    CommandFailed,
    Misconfigured,
)
from abridged.service.cli.log_access import as_served, explained, progress, require_log_keys, require_no_keys
from abridged.service.cli.log_lines import ExportedLines, LogLines, copied_by_lines, export_log, imported_log
from abridged.service.cli.log_place import LogPlace, absent, log_argument, log_of, name_option, on_disk
from abridged.service.cli.options import Invocation, settings_options
from abridged.service.cli.prerequisites import check_prerequisites
from abridged.service.cli.terminal import number_of, say
from abridged.service.config.settings import LogSettings
from abridged.service.config.sources import environment

LINES_MAX = 100
"""Findings about conversations that are printed without `--all`."""

NAME_IT = "name its file or its URL, or set log.path or log.url"
SEE_OPERATIONS = "see docs/production.md"


@click.group(short_help="Check, back up, salvage, copy or rebuild a log.")
def log() -> None:
    """Work on a LOG: a file, or the postgresql:// URL of a database, with its name there. No sidecar may be using the
    file, but for a backup and for figures."""


@log.command(short_help="Report what is damaged in LOG.")
@log_argument
@settings_options
@click.option("--all", "is_all", is_flag=True, help=f"Print every finding, also more than {LINES_MAX}.")
@click.pass_obj
def verify(invocation: Invocation, *, place: LogSettings | None, name: str | None, is_all: bool) -> None:
    """Report everything that is damaged in LOG, or in the configured one.

    Checks a file's structure and indexes, that positions and versions have no gaps, every event against its
    commitment, every stream's hash chain, and the read table and the snapshots against the events, unless another
    version of the program made them. Changes nothing, and sidecars may go on writing to a database meanwhile.

    Exits with 1 if something is damaged, if encryption is on and the data keys of an encrypted LOG are not in their
    place, or if LOG is no log or cannot be checked; with 2 if it does not exist.
    """
    settings = configuration(invocation).settings
    of_log = on_disk(log_of(place, name, settings))
    way_out = RESTORE_OR_SALVAGE if of_log.url is None else RESTORE
    from abridged.service.bootstrap.backends import log_backend, stored_backend
    from abridged.service.cli.log_verification import verified

    def unreadable(error: Exception) -> CommandFailed:
        refusal = "no sidecar starts on this log; nothing was changed"
        details = (refusal,) if isinstance(error, LogCorrupt) else ()
        return CommandFailed(f"{stored_backend(of_log)} cannot be read: {error}", details=details, hint=way_out)

    with explained(unreadable, of_log, if_locked="stop the sidecar, or verify a backup"):
        try:
            lines_max = sys.maxsize if is_all else LINES_MAX
            settings = settings.model_copy(update={"log": of_log})
            summary = verified(log_backend(settings), lines_max, progress(), hint=way_out)
        except FileNotFoundError as error:
            raise absent(of_log) from error
        require_log_keys(settings, summary)
    say(f"ok: {summary}")


@log.command(short_help="Rebuild the read table of LOG.")
@log_argument
@settings_options
@click.pass_obj
def rebuild(invocation: Invocation, place: LogSettings | None, name: str | None) -> None:
    """Rebuild the read table of LOG, or of the configured one, from its events, which replace its snapshots.

    The sidecar does this at start if an older version made the table. Run it for a table that a newer version made, and
    for a damaged one. A file is copied into a new one, which replaces the old one when it is complete, so the volume
    needs that much room. Stop the sidecars of a database first. Exits with 1 if a conversation cannot be read: it gets
    no row, or one with its figures alone if its key is lost; its events are copied as they are, and its snapshot is
    kept, set aside.
    """
    settings = configuration(invocation).settings
    from abridged.service.bootstrap.rebuild import rebuilt_anew
    from abridged.service.conversations.rebuild import RebuildReport

    def left_out(stream: StreamId, error: Exception) -> None:
        say(f"left out  {stream.namespace}/{stream.name}: {error}")

    def kept(stream: StreamId, version: int) -> None:
        say(f"kept      {stream.namespace}/{stream.name}: its snapshot at event {version}, in {SET_ASIDE}")

    with as_served(settings, log_of(place, name, settings)) as of_log:
        done = asyncio.run(rebuilt_anew(of_log, environment(), RebuildReport(progress(), left_out, kept)))
    if done.left_out:
        raise CommandFailed(
            f"{done.left_out} of {done.left_out + done.conversations} conversations cannot be read",
            hint="`abridged log verify` says what is damaged",
        )
    say(f"ok: {number_of(done.conversations, 'conversation')} from {number_of(done.events, 'event')}")


@log.command(short_help="Rebuild the search index of LOG.")
@log_argument
@settings_options
@click.pass_obj
def reindex(invocation: Invocation, place: LogSettings | None, name: str | None) -> None:
    """Rebuild the search index of LOG, or of the configured one, from its events.

    A start does so by itself if the index is of another log or version. Run this after a change of `recall.embedder` or
    `recall.dimension`, after the model behind that name has changed, or if the index is damaged. Stop the sidecar
    whose index it is; others of a log in a database may run.
    """
    found = configuration(invocation)
    settings = found.settings
    if settings.recall.index == "off":
        raise Misconfigured("recall.index is off", hint="set recall.index to words or both")
    check_prerequisites(found)
    from abridged.service.bootstrap.recall import lacking, reindexed

    with as_served(settings, log_of(place, name, settings)) as of_log:
        if missing := lacking(of_log):
            raise Misconfigured(f"{missing[0]} is not set", hint="set it to the index's file, of one sidecar alone")
        done = asyncio.run(
            reindexed(of_log, environment(), lambda at, head: say(f"{at.words:,} of {head:,} events", is_error=True))
        )
    say(f"ok: {number_of(done.words, 'event')}")


@log.command(short_help="Make a log of what a damaged file can prove.")
@click.argument("damaged", type=LogPlace())
@click.argument("new", type=LogPlace())
@settings_options
@click.pass_obj
def salvage(invocation: Invocation, damaged: LogSettings, new: LogSettings) -> None:
    """Make a log in the file NEW of every event that the file DAMAGED can prove, and name what is missing.

    NEW is the same log, with its id, positions and event ids. A conversation keeps its events up to the first that is
    lost; proven ones behind that are in NEW.lost.jsonl, as `abridged log export` writes them. DAMAGED is only read, and
    so is its write-ahead log. The volume of NEW needs three times the room of DAMAGED for a while.

    Exits with 0 if nothing is missing; with 1 if something is, or if nothing can be proven; with 2 if there is no
    DAMAGED, or if there is a NEW.
    """
    if damaged.url is not None or new.url is not None:
        raise Misconfigured("a salvage is of a file", hint="restore a database from its own backup: docs/production.md")
    if not (damaged.path.exists() or damaged.path.with_name(f"{damaged.path.name}-wal").exists()):
        raise Misconfigured(f"there is no log at {damaged.path}", hint="name its file")
    from abridged.service.cli.log_salvage import salvage_log

    with as_served(configuration(invocation).settings, new, is_new=True) as of_log:
        done = salvage_log(of_log, damaged.path, pages=progress("pages"), positions=progress("positions"))
    say(f"ok: {done}")


@log.command("export", short_help="Write the events of LOG as lines of JSON.")
@log_argument
@click.option(
    "--conversation",
    "names",
    multiple=True,
    metavar="[NAMESPACE/]ID",
    help="This conversation; an ID alone is one of namespace default. Repeatable.",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Those with this label; repeatable.")
@click.option("--since", metavar="TIME", help="Those whose last event is not before, in UTC.")
@click.option("--until", metavar="TIME", help="Those whose last event is before, in UTC.")
@click.option("--closed/--open", "closed", default=None, help="Those that are closed, or are not.")
@settings_options
@click.pass_obj
def export(
    invocation: Invocation,
    *,
    place: LogSettings | None,
    name: str | None,
    names: Sequence[str],
    labels: Sequence[str],
    since: str | None,
    until: str | None,
    closed: bool | None,
) -> None:
    """Write every event of LOG, or of the configured one, to standard output, as a line of JSON each.

    The lines have all messages of all namespaces in clear. `abridged log import` makes the same log of them, in a file
    or in a database. The log is not changed. Exits with 1 if an event is damaged; the lines before it are no log then.

    Conditions make it a part: the whole conversations that meet all of them, and those that they were forked from. A
    part is a log of its own, with an id and positions of its own; the events' ids, versions and times are the log's.
    Archived conversations are named on standard error: a part has no content of them, and cannot take it back.
    """
    settings = configuration(invocation).settings
    from abridged.service.cli.log_part import choice_of

    choice = choice_of(names=names, labels=labels, since=since, until=until, closed=closed)
    export_log(settings, log_of(place, name, settings), sys.stdout.buffer, choice, to="standard output")


@log.command("import", short_help="Create LOG from exported LINES.")
@click.argument("lines", type=click.File("rb"))
@log_argument
@settings_options
@click.pass_obj
def import_(invocation: Invocation, lines: BinaryIO, place: LogSettings | None, name: str | None) -> None:
    """Make LOG, or the configured one, of the LINES that `abridged log export` wrote, or `-`, whole or not at all.

    LOG is the same log, with its id, positions and event ids: serve only one of both. Exits with 1 if there is a log in
    that place, or at the first line that is not one of a whole log; nothing is there then.
    """
    settings = configuration(invocation).settings
    done = imported_log(settings, log_of(place, name, settings), lines)
    say(f"ok: {number_of(done.conversations, 'conversation')} from {number_of(done.events, 'event')}")


@log.command(short_help="Copy LOG into a new FILE, while sidecars go on.")
@click.argument("places", metavar="[LOG] FILE", nargs=-1, required=True, type=LogPlace())
@name_option
@settings_options
@click.pass_obj
def backup(invocation: Invocation, *, places: Sequence[LogSettings], name: str | None) -> None:
    """Copy LOG, or the configured one, into the new FILE, while sidecars go on: every event that was acknowledged
    before, and none without those before it.

    The copy is checked as `abridged log verify` does before it has its name; it is whole or not at all. The copy has
    the read table, and not the search index, which a start makes again. The copy of a log in a database is made by the
    lines of an export. Exits with 1 if FILE is there or LOG is damaged.
    """
    *of_log, to = places
    if len(of_log) > 1 or to.url is not None:
        raise click.UsageError("a backup is one file: abridged log backup [LOG] FILE")
    settings = configuration(invocation).settings
    source = log_of(of_log[0] if of_log else None, name, settings)
    if source.url is not None:
        require_no_keys(settings)
        copied_by_lines(settings, source, to)
        return
    from abridged.service.cli.log_backup import backed_up

    with as_served(settings, source) as found:
        say(f"ok: {backed_up(found, to.path, progress)}")


@log.command(short_help="Create LOG from the FILE of a backup.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@log_argument
@click.option("--replace", "replaces", is_flag=True, help="Move the log that is there aside, to LOG.replaced.")
@settings_options
@click.pass_obj
def restore(invocation: Invocation, *, file: Path, place: LogSettings | None, name: str | None, replaces: bool) -> None:
    """Make LOG, or the configured one, of the FILE that `abridged log backup` made, whole or not at all.

    A copy of FILE is checked as `abridged log verify` does before it has its place. Stop the sidecar first. Events
    after the backup are gone from the log, and their positions will be given to others: whoever follows it must forget
    cursors beyond its end. The search index is removed, and made again by a start. A log in a database is never
    replaced. Exits with 1 if FILE is damaged, or if there is a log in that place and no --replace.
    """
    settings = configuration(invocation).settings
    of_log = log_of(place, name, settings)
    if of_log.url is not None:
        if replaces:
            raise Misconfigured("a log in a database is not replaced", hint="give the restored one another --name")
        require_no_keys(settings)
        copied_by_lines(settings, LogSettings(path=file), of_log)
        return
    from abridged.service.cli.log_backup import restored

    with as_served(settings, of_log, is_new=True) as found:
        say(f"ok: {restored(found, file, progress, replaces=replaces)}")


@log.command(short_help="Wrap the data keys of LOG with the operator's first key.")
@log_argument
@settings_options
@click.pass_obj
def rewrap(invocation: Invocation, place: LogSettings | None, name: str | None) -> None:
    """Wrap every data key of LOG, or of the configured one, with the first of the operator's keys.

    Sidecars may go on: those with encryption.key_file read it anew. Replace the operator's key in three steps: put the
    new one before the old one in that file, run this, and take the old one out. The log itself does not change.

    Exits with 1 if a data key is damaged: it is named, and all others are wrapped. Exits with 2 if encryption is off.
    """
    settings = configuration(invocation).settings
    if not settings.encryption.is_on:
        raise Misconfigured("encryption is off", hint=GIVE_KEY)
    with as_served(settings, log_of(place, name, settings)) as of_log:
        from abridged.service.bootstrap.encryption import rewrapped

        done = rewrapped(of_log, progress("data keys"))
    for key_id in done.damaged:
        say(f"damaged  data key {key_id.hex()}")
    if not done.is_whole:
        raise CommandFailed("a sidecar has made data keys under another key meanwhile", hint="run this again")
    if done.damaged:
        details = (
            f"{done.wrapped:,} others were wrapped anew; the operator's first key is enough for all of them",
            "`abridged log verify` names the conversations that are encrypted with them",
        )
        what = f"{len(done.damaged):,} data keys are damaged, or of an operator's key that is missing"
        raise CommandFailed(what, details=details, hint=MEND_KEYS)
    say(f"ok: {number_of(done.wrapped, 'data key')}")


@log.command(short_help="Count what LOG has.")
@log_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@settings_options
@click.pass_obj
def stats(invocation: Invocation, place: LogSettings | None, name: str | None, *, as_json: bool) -> None:
    """Count what LOG, or the configured one, has: events, conversations and messages, bytes by type, the times of the
    first and the last event, the size of its files and the largest conversations.

    Sidecars may go on: events that come meanwhile are left out. Every event is read and checked, and no text is shown.
    """
    settings = configuration(invocation).settings
    from abridged.service.bootstrap.backends import stored_backend
    from abridged.service.bootstrap.recall import index_bytes
    from abridged.service.cli.log_stats import plain_stats, print_stats, stats_of
    from abridged.service.cli.plain_json import json_text

    with as_served(settings, log_of(place, name, settings)) as of_log:
        backend = stored_backend(of_log.log)
        found = stats_of(backend, progress())
        found.sizes["search index"] = index_bytes(of_log)
    if as_json:
        say(json_text(plain_stats(found)))
    else:
        print_stats(found, str(backend))


@log.command("replay", short_help="Fold exported logs, or append chats under other settings.")
@click.argument("lines", metavar="FILES...", nargs=-1, required=True, type=LogLines())
@name_option
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="SETTINGS",
    help="Append the chats once more under these settings: a file such as presets/s0.toml, or `default`; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines: one conversation each, or one policy each.")
@settings_options
@click.pass_obj
def replay_(
    invocation: Invocation,
    *,
    lines: Sequence[LogSettings | BufferedReader],
    name: str | None,
    policies: Sequence[Path],
    as_json: bool,
) -> None:
    """Fold the logs in FILES, which `abridged log export` wrote, and print their conversations. A log's own file, which
    no sidecar may be using, and the URL of a database, whose sidecars go on, are exported first.

    No sidecar runs, and no model is asked. The option --policy appends the messages once more instead, of logs and of
    chats as `abridged append --file` takes them, by the sidecar's own parts under those settings: PASSES and their
    CALLS and tokens of the SUMMARIZER; the TOKENS of all PROMPTS, the share that is STABLE under a prompt cache, the
    COST of both in input tokens at full price, of which one from the cache counts 0.1, one written to it 1.25 and one
    that the summarizer writes 5; and the prompts OVER their budget. A script stands in for the model, and its records
    hold the messages' own sentences.

    Exits with 1 at the first line that is not one of a whole log, or of a chat.
    """
    settings = configuration(invocation).settings
    from abridged.service.cli.log_replay import print_folds, print_policies

    with ExitStack() as opened:
        files = [
            opened.enter_context(ExportedLines(settings, log_of(each, name, settings)))
            if isinstance(each, LogSettings)
            else each
            for each in lines
        ]
        if policies:
            print_policies(invocation, files, policies, progress, as_json=as_json)
        else:
            print_folds(invocation, files, progress(), as_json=as_json)
