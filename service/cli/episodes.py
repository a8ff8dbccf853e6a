"""`abridged episodes`: the episodes of a conversation."""

from __future__ import annotations

import click

from service.cli.figures import ranges, short
from service.cli.options import Invocation, sidecar_options
from service.cli.plain_json import as_json, word
from service.cli.sidecar import call
from service.cli.terminal import say, say_text
from service.client import Episode, EpisodeFigures


@click.command(short_help="Show the episodes of a conversation.")
@click.argument("conversation")
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one episode each.")
@sidecar_options
@click.pass_obj
def episodes(invocation: Invocation, conversation: str, *, as_json_: bool) -> None:
    """Show the episodes of CONVERSATION, newest first. Only profile EPISODES makes any."""
    found = call(invocation, lambda client: client.episodes(conversation))
    if as_json_:
        for episode in found:
            say(as_json(episode))
        return
    if not found:
        say("no episodes yet")
    for episode in found:
        say(_episode_line(episode))
        say_text(f"  {episode.short_summary}", indent="  ")
        say_text(f"  {episode.long_summary}", indent="  ")
        for line in _figure_lines(episode.figures):
            say(f"  {line}")
        say()


def _episode_line(episode: Episode) -> str:
    shown = f"window: {word(episode, 'form').lower()}"
    return f"episode {short(episode.id)}: messages {ranges(episode)}, {shown}, {word(episode, 'provenance').lower()}"


def _figure_lines(figures: EpisodeFigures) -> list[str]:
    lines: list[str] = []
    if figures.sentiment_messages:
        mean, variance = figures.sentiment_mean, figures.sentiment_variance
        lines.append(f"sentiment {mean:+.2f}, variance {variance:.2f}, {figures.sentiment_messages} messages")
    if figures.flows:
        lines.append(f"flows: {', '.join(figures.flows)}")
    if figures.tools:
        lines.append(f"tools: {', '.join(figures.tools)}")
    return lines
