"""`abridged doctor`: checks the sidecar, its models, search and log one by one, with a remedy for each fault."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from http import HTTPStatus
from pathlib import Path

import click

from abridged.client import Patience, SidecarError
from abridged.eventlog.backend import StoredBackend
from abridged.eventlog.errors import EventLogError, LogForeign
from abridged.service.bootstrap.backends import NO_CRYPTOGRAPHY, stored_backend
from abridged.service.bootstrap.recall import embedded_dimension, index_bytes, lacking
from abridged.service.bootstrap.stored import is_encrypted
from abridged.service.cli.configured import configuration
from abridged.service.cli.failures import CHECK_DATABASE, CHECK_KEYS, GIVE_KEY, CommandFailed
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import json_text
from abridged.service.cli.prerequisites import log_path_problem
from abridged.service.cli.sidecar import HttpPortError, client_for, client_settings, failure_at, get, named_by
from abridged.service.cli.speed import advice, longest_prompt, speed_line
from abridged.service.cli.terminal import say
from abridged.service.config.settings import ClientSettings, LogSettings, Settings
from abridged.service.models.inventory import FAIL, OK, SKIP, WARN, Finding, ModelSpeed
from abridged.service.models.model import ModelError
from abridged.service.models.settings import SettingUnusable
from abridged.service.recall.errors import EmbedderAway, RecallMissing
from abridged.v1.server_info_service_pb2 import GetServerInfoResponse

_MARKS = {OK: "green", WARN: "yellow", FAIL: "red", SKIP: ""}

TIMEOUT_S = 3.0
OWN_CHECKS = "run `abridged doctor` with that sidecar's --config and without client.address, which --address sets too"
SAME_SETTINGS = "start the sidecar and the doctor with the same --config file, or the same variables ABRIDGED_*"
OF_THESE = "if the sidecar has this host and key, too"
FORGET_INDEX = "put it on an encrypted disk; or unset recall.path, and remove the file"
REINDEX = "stop the sidecar and run `abridged log reindex`"
UNANSWERED = "it loads, or works for others, or is too slow: see `ollama ps` and the host's own log, then try again"
GONE = "the log was moved or replaced, or the sidecar was started with another place for it: see docs/production.md"


@click.command(short_help="Check the sidecar, Ollama and the log.")
@click.option("--live", is_flag=True, help="Only check that the sidecar is alive, for container health checks.")
@click.option(
    "--speed/--no-speed", default=True, help="Ask each model a small question; a slow one takes minutes to answer it."
)
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one check each.")
@sidecar_options
@click.pass_obj
def doctor(invocation: Invocation, *, live: bool, speed: bool, as_json_: bool) -> None:
    """Check the sidecar of these settings and what it depends on.

    The sidecar is the one at server.listen, asked with a token of server.tokens, unless --address or client.address
    names another; then /readyz and the log of these settings are left out, since they may not be that sidecar's. The
    hosts of Ollama are always those of these settings. Each model that is there is asked a small question: it tells how
    fast the model is, and so whether the settings give a pass enough time. Exit code 1 when sidecar, settings or log
    are broken; not for an unavailable model.
    """
    found = configuration(invocation)
    settings, client = found.settings, client_settings(found)
    if live:
        _live(settings, client)
        return
    findings = asyncio.run(_examined(settings, client, named_by=named_by(found), asks=speed))
    for finding in findings:
        if as_json_:
            say(json_text(asdict(finding)))
            continue
        say(f"{finding.verdict:<4}  {finding.what}", mark=_MARKS[finding.verdict])
        if finding.hint:
            say(f"      {finding.hint}")
    broken = sum(finding.verdict == FAIL for finding in findings)
    if broken:
        raise CommandFailed(f"{broken} of {len(findings)} checks failed")


def _live(settings: Settings, client: ClientSettings) -> None:
    if not settings.server.http_listen:
        finding, _ = asyncio.run(_sidecar(client))
        if finding.verdict == FAIL:
            raise CommandFailed(finding.what)
        return
    try:
        status, body = get(settings.server.http_listen, "/livez", timeout_s=TIMEOUT_S)
    except HttpPortError as error:
        raise CommandFailed(str(error)) from error
    if status != 200:
        raise CommandFailed(f"{settings.server.http_listen}: HTTP {status} {body.strip()[:80]}")
    say("live")


async def _examined(settings: Settings, client: ClientSettings, *, named_by: str, asks: bool) -> list[Finding]:
    """Run the checks; those of an HTTP port or a log only if no `named_by` says that the sidecar may have others."""
    sidecar, info = await _sidecar(client)
    models = tuple(info.summarizer_models) if info is not None else settings.summarizer.models
    findings = [sidecar]
    if differ := models != (own := settings.summarizer.models):
        what = f"settings: the sidecar's models are {', '.join(models)}, and {', '.join(own)} in these settings"
        findings.append(Finding(WARN, f"{what}; hosts and keys below are of these settings", SAME_SETTINGS))
    if settings.server.http_listen:
        if named_by:
            findings.append(_left_out("readiness", "HTTP port", named_by))
        elif info is not None:
            findings += await asyncio.to_thread(_readiness, settings.server.http_listen)
    if settings.titles.enabled:
        models = (*models, *(model for model in settings.titles.models if model not in models))
    if not any(model.startswith("ollama:") for model in models):
        findings.append(Finding(OK, f"Ollama is not asked: the models are {', '.join(models)}"))
    asked = await examined_models(settings, models, asks=asks)
    if differ:
        asked = [replace(each, hint=f"{OF_THESE}: {each.hint}" if each.hint else "") for each in asked]
    findings += asked
    findings += await _search(settings, info)
    if settings.log.backend != "memory":
        serving = info.log_id if info is not None else ""
        findings += [_left_out("log", "log", named_by)] if named_by else _log(settings.log, serving)
        if settings.encryption.is_on or not named_by:
            findings += await asyncio.to_thread(lambda: [*_encryption(settings)])
    return findings


def _left_out(check: str, checked: str, named_by: str) -> Finding:
    return Finding(SKIP, f"{check}: client.address ({named_by}) may name a sidecar with another {checked}", OWN_CHECKS)


async def _sidecar(settings: ClientSettings) -> tuple[Finding, GetServerInfoResponse | None]:
    quick = settings.model_copy(update={"deadline_s": TIMEOUT_S})
    async with client_for(quick, patience=Patience(attempts_max=1)) as client:
        try:
            serving = await client.is_serving()
            info = await client.server_info()
        except SidecarError as error:
            failure = await asyncio.to_thread(failure_at, settings.address, error)
            return Finding(FAIL, f"sidecar: {failure.message}", failure.hint), None
    what = f"sidecar {settings.address}: version {info.version}, namespace {info.namespace}, log {info.log_id[:8]}"
    if not serving:
        return Finding(FAIL, f"{what}; it does not serve", "it is starting or stopping: try again"), info
    exactly = " or the chat model's own tokenizer" if info.counts_exactly else ""
    return Finding(OK, f"{what}, serving; counts tokens by {info.counter}{exactly}"), info


def _readiness(address: str) -> Iterator[Finding]:
    """Ask `/readyz`: a sidecar that serves may accept calls and refuse appends."""
    try:
        status, body = get(address, "/readyz", timeout_s=TIMEOUT_S)
        checks = json.loads(body)["checks"]
        unfit = ", ".join(f"{name}: {answer}" for name, answer in checks.items() if answer != "ok")
    except HttpPortError as error:
        yield Finding(WARN, f"readiness: {error}", "start the sidecar with these settings, or set server.http_listen")
    except (ValueError, KeyError, AttributeError):
        yield Finding(WARN, f"readiness: who answers at {address} is no sidecar", "set server.http_listen")
    else:
        if status == HTTPStatus.OK:
            yield Finding(OK, f"readiness {address}: {', '.join(checks)}")
        else:
            yield Finding(FAIL, f"readiness {address}: {unfit or 'starting'}", "see docs/production.md")


async def examined_models(settings: Settings, models: Sequence[str], *, asks: bool) -> list[Finding]:
    """Return each provider's findings about its hosts and `models`; `asks` has each model's speed measured."""
    findings: list[Finding] = []
    used = {provider.name for provider in settings.providers if provider.models}
    for provider in settings.providers_of(models):
        if not provider.models and provider.name in used:
            continue  # It would say that nothing uses its settings.
        for server in await provider.inventory(timeout_s=TIMEOUT_S, clock=time.monotonic):
            findings += server.findings
            if asks:
                findings += [await _speed(name, ask, settings) for name, ask in server.speeds.items()]
    return findings


async def _speed(model: str, ask: Callable[[], Awaitable[ModelSpeed]], settings: Settings) -> Finding:
    limit_s = settings.ollama.first_byte_timeout_s
    say(f"asking {model} a small question, for at most {limit_s:g} s; --no-speed leaves it out", is_error=True)
    try:
        speed = await ask()
    except ModelError as error:
        return Finding(WARN, f"model {model}: a small question was not answered: {error}", UNANSWERED)
    tokens = longest_prompt(settings, source_tokens_max=settings.policy.max_input_tokens)
    hint = advice(speed, settings, prompt_tokens=tokens)
    what = f"model {model}: {speed_line(speed, settings, prompt_tokens=tokens)}"
    return Finding(WARN if hint else OK, what, hint)


async def _search(settings: Settings, info: GetServerInfoResponse | None) -> list[Finding]:
    """Check the search extra, the embedding model and the index; `info` is the sidecar's answer, None without one."""
    lacks = lacking(settings)
    if info is not None and not info.HasField("recall") and lacks is None:
        return [Finding(WARN, "search: off in the sidecar, on in these settings", "start the sidecar with them")]
    findings = [] if lacks is not None else [await _embedder(settings)]
    if info is not None and info.HasField("recall"):
        findings += _index_findings(info)
    return findings or [Finding(OK, f"search: off; {lacks[0] if lacks else 'recall.index'} switches it on")]


async def _embedder(settings: Settings) -> Finding:
    name = settings.recall.embedder if settings.recall.index == "both" else ""
    try:
        dimension = await embedded_dimension(settings)
    except RecallMissing as error:
        return Finding(FAIL, f"search: {error}", "or set recall.index = off")
    except (SettingUnusable, EmbedderAway) as error:
        hint = "until it responds vectors lag and searches by meaning fail; `ollama pull` fetches a missing model"
        return Finding(WARN, f"search: {name} does not embed: {error}", hint)
    return Finding(OK, f"search: {name} embeds, {dimension} numbers a text" if name else "search: by words")


def _index_findings(info: GetServerInfoResponse) -> Iterator[Finding]:
    recall = info.recall
    made_by = f"words, and vectors by {recall.embedder}" if recall.embedder else "words"
    if recall.stopped:
        yield Finding(FAIL, f"search index: stopped: {recall.stopped}", REINDEX)
        return
    indexed = min(recall.words_position, recall.vectors_position)
    if indexed < recall.head_position:
        what = f"search index: {made_by}, up to position {indexed:,} of {recall.head_position:,}"
        yield Finding(WARN, what, "it follows the log; if this does not grow, see docs/features/search.md")
        return
    yield Finding(OK, f"search index: {made_by}, up to date")


def _log(settings: LogSettings, serving: str) -> Iterator[Finding]:
    """Check the log and its disk or server; `serving` is the id of the sidecar's log, empty if no sidecar answers."""
    path = settings.path.absolute()
    try:
        backend = stored_backend(settings.model_copy(update={"path": path}))
    except SettingUnusable as error:
        yield Finding(FAIL, f"log: {error}", "or set log.path")
        return
    yield _file(path, backend, serving) if settings.url is None else _database(backend, serving)
    for hazard in backend.hazards():
        level = FAIL if hazard.is_refused else OK if hazard.is_avoided else WARN
        yield Finding(level, hazard.message, hazard.hint)


def _database(backend: StoredBackend, serving: str) -> Finding:
    try:
        found = backend.log_id()
        size = backend.size_bytes() if found else 0
    except EventLogError as error:
        return Finding(FAIL, f"log {backend}: {error}", CHECK_DATABASE)
    if found != serving and serving:
        return _another(str(backend), found, serving)
    return Finding(OK, f"log {backend}: log {found[:8]}, {size:,} bytes" if found else f"log {backend}: will be made")


def _encryption(settings: Settings) -> Iterator[Finding]:
    """Check the keys of an encrypted log, and what is in clear beside it."""
    if not settings.encryption.is_on:
        # A log that cannot be read has been found unfit before.
        with suppress(EventLogError, SettingUnusable):
            if is_encrypted(settings.log):
                yield Finding(FAIL, "encryption: off, and the log is encrypted", GIVE_KEY)
        return
    try:
        # Only an operator who encrypts has the library for it.
        from abridged.service.bootstrap.encryption import keys_of

        yield Finding(OK, f"encryption: {keys_of(settings)}")
    except ImportError:
        yield Finding(FAIL, f"encryption: {NO_CRYPTOGRAPHY}", "or unset encryption.key")
    except EventLogError as error:
        yield Finding(FAIL, f"encryption: {error}", CHECK_KEYS)
    except SettingUnusable as error:
        yield Finding(FAIL, f"encryption: {error}", "unarchive them before you switch encryption on")
    path = settings.encryption.key_file
    if path is not None and path.is_file() and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        yield Finding(WARN, f"encryption: {path}: mode {mode:04o} lets others read the key", f"chmod 600 {path}")
    if index_bytes(settings):
        yield Finding(WARN, "encryption: there is a search index, which has the words in clear", FORGET_INDEX)


def _another(place: str, found: str, serving: str) -> Finding:
    what = f"it is log {found[:8]}" if found else "no log is there"
    return Finding(FAIL, f"log {place}: {what}, and the sidecar serves log {serving[:8]}", GONE)


def _file(path: Path, backend: StoredBackend, serving: str) -> Finding:
    if problem := log_path_problem(path):
        return Finding(FAIL, f"log {path}: {problem}", "make the folder, run as its owner, or set log.path")
    try:
        found = backend.log_id()
    except LogForeign as error:
        return Finding(FAIL, f"log: {error}", "check log.path")
    except EventLogError as error:
        return Finding(FAIL, f"log {path}: {error}", "put the log's own file there, or a backup: docs/production.md")
    if found != serving and serving:
        return _another(str(path), found, serving)
    if not path.exists():
        return Finding(OK, f"log {path}: will be made")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Finding(WARN, f"log {path}: mode {mode:04o} lets others read conversations", f"chmod 600 {path}")
    if not found:
        return Finding(OK, f"log {path}: empty, will be made")
    return Finding(OK, f"log {path}: log {found[:8]}, writable, {path.stat().st_size:,} bytes")
