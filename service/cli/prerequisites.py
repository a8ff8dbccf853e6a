"""Checks the files, addresses and packages that the settings name, before a sidecar opens any, and reports all at once.

No check uses a network: an unreachable model affects only passes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from abridged.service.cli.failures import of_config_error
from abridged.service.config.prompt_file import own_prompts, raw_schema_text, title_template
from abridged.service.config.settings import LogSettings, Settings
from abridged.service.config.sources import ConfigError, Configuration, Problem
from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.record import FormName
from abridged.service.models.settings import SettingUnusable
from abridged.service.recall.errors import RecallMissing
from abridged.service.recall.file import require_installed
from abridged.service.tokenizers.choice import counter_named
from abridged.service.tokenizers.errors import TokenizerMissing
from abridged.service.tokenizers.exact import require_exact


def check_prerequisites(found: Configuration) -> None:
    """Raise Misconfigured with every setting whose value names something missing or unusable."""
    problems = []
    for name, index, attempt in _attempts(found.settings):
        try:
            attempt()
        except InvalidPolicy as error:
            problems.append(Problem(name, found.origins[name], error.reason))
        except (RecallMissing, SettingUnusable, TokenizerMissing) as error:
            problems.append(Problem(f"{name}{index}", found.origins[name], str(error)))
    if problems:
        raise of_config_error(ConfigError(tuple(problems)))


def log_path_problem(path: Path) -> str:
    """Return the reason why `path` cannot hold a log; empty if it can."""
    folder = path.absolute().parent
    if not folder.is_dir():
        return "its folder does not exist"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "its folder cannot be written"
    if path.is_dir():
        return "it is a folder"
    return "" if not path.exists() or os.access(path, os.R_OK | os.W_OK) else "it cannot be written"


def _attempts(settings: Settings) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Setting, index in its list, and a check that raises if the value is unusable; in the settings table's order."""
    if settings.log.file is not None:
        yield "log.path", "", partial(_check_path, settings.log.file, "a log")
    if settings.log.url is not None:
        yield "log.url", "", partial(_check_log_url, settings.log)
    for name, models in ("summarizer.models", settings.summarizer.models), ("titles.models", settings.titles.models):
        for index, model in enumerate(models):
            for provider in settings.providers_of([model]):
                yield from ((name, f"[{index}]", partial(provider.check_model, own)) for own in provider.models)
    yield "summarizer.prompt_file", "", partial(own_prompts, settings.summarizer.prompt_file)
    yield "summarizer.text_prompt_file", "", partial(own_prompts, settings.summarizer.text_prompt_file, FormName.TEXT)
    if settings.summarizer.raw_schema_file is not None:
        yield "summarizer.raw_schema_file", "", partial(_check_raw_schema, settings.summarizer.raw_schema_file)
    if settings.titles.prompt_file is not None:
        yield "titles.prompt_file", "", partial(title_template, settings.titles.prompt_file)
    for provider in settings.providers:
        for field, attempt in provider.checks():
            setting, bracket, place = field.partition("[")
            yield f"{provider.name}.{setting}", bracket + place, attempt
    if settings.encryption.keys_path is not None:
        yield "encryption.keys_path", "", partial(_check_path, settings.encryption.keys_path, "data keys")
    if settings.recall.path is not None:
        yield "recall.path", "", partial(_check_path, settings.recall.path, "an index")
    if settings.recall.index == "both":
        yield "recall.index", "", partial(require_installed, settings.recall.embedder)
    yield "tokens.counter", "", partial(counter_named, settings.tokens.counter_name)
    if settings.tokens.tokenizer_files:
        yield "tokens.tokenizer_files", "", require_exact


def _check_raw_schema(path: Path) -> None:
    from abridged.service.summarizer.raw import raw_schema

    raw_schema(raw_schema_text(path))


def _check_path(path: Path, kept: str) -> None:
    if problem := log_path_problem(path):
        raise SettingUnusable(f"cannot keep {kept} at {path}: {problem}")


def _check_log_url(log: LogSettings) -> None:
    # The import loads the sidecar, which settings of a file do not need.
    from abridged.service.bootstrap.backends import stored_backend

    stored_backend(log)
