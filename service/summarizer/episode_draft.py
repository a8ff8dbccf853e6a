"""Defines the answer of a model for an episode, and for the older ones that are made one: narratives without lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from abridged.service.domain.record import SUMMARY_CHARS_MAX
from abridged.service.summarizer.draft import Draft, Strict, inlined, narrative_chars, parsed_as, whole_sentences
from abridged.service.text.sentences import first_sentences, unrepeated

SHORT_SENTENCES_MAX: Final = 2
LONG_SENTENCES_MAX: Final = 8
SHORT_CHARS_MAX: Final = 400
"""Two long sentences."""


class EpisodeDraft(Draft):
    """An episode: `summary` is the long text."""

    short_summary: str

    @property
    def narratives(self) -> Mapping[str, str]:
        return {"summary": self.summary, "short_summary": self.short_summary}


class _Episode(Strict):
    short_summary: Annotated[str, Field(min_length=1, max_length=SHORT_CHARS_MAX)]
    long_summary: Annotated[str, Field(min_length=1, max_length=SUMMARY_CHARS_MAX)]


class _Digest(Strict):
    summary: Annotated[str, Field(min_length=1, max_length=SUMMARY_CHARS_MAX)]


_EPISODE_SCHEMA: Final = inlined(_Episode.model_json_schema())
_DIGEST_SCHEMA: Final = inlined(_Digest.model_json_schema())


def episode_draft(short: str, long: str) -> EpisodeDraft:
    """The draft of these two texts, each without the sentences that it has too many of."""
    short = first_sentences(short, SHORT_SENTENCES_MAX)
    return EpisodeDraft.of_text(first_sentences(long, LONG_SENTENCES_MAX), short_summary=short)


def episode_schema(summary_tokens: int) -> Mapping[str, Any]:
    return _bounded(_EPISODE_SCHEMA, "long_summary", summary_tokens)


def digest_schema(summary_tokens: int) -> Mapping[str, Any]:
    return _bounded(_DIGEST_SCHEMA, "summary", summary_tokens)


def episode_of(answer: str, summary_tokens: int) -> EpisodeDraft:
    """The episode in an answer; raises InvalidDraft."""
    found = parsed_as(_Episode, answer)
    return episode_draft(
        whole_sentences("short_summary", found.short_summary, SHORT_CHARS_MAX),
        whole_sentences("long_summary", found.long_summary, narrative_chars(summary_tokens)),
    )


def digest_of(answer: str, summary_tokens: int) -> Draft:
    """The digest in an answer, every sentence once; raises InvalidDraft."""
    found = parsed_as(_Digest, answer)
    whole = whole_sentences("summary", found.summary, narrative_chars(summary_tokens))
    return Draft.of_text("".join(unrepeated(whole, set())).rstrip())


def _bounded(schema: Mapping[str, Any], field: str, summary_tokens: int) -> Mapping[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(schema))
    if (chars := narrative_chars(summary_tokens)) is not None:
        made["properties"][field]["maxLength"] = chars
    return made
