"""Loads the settings: flag over environment over TOML file over default, each value with its origin.

No other module reads the environment, and this one hands it out once (`environment`). All errors are reported together;
each line names field and origin, and never a value: one of them may be a secret.

    ConfigError   one or more Problems
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from abridged.service.config.settings import EXTRACTIVE_PREFIX, PROVIDER_TYPES, PolicySettings, Settings, TokenGrant
from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.profiles.registry import profile_of

PREFIX = "ABRIDGED_"
"""Prefix of our environment variables."""

CONFIG_VARIABLE = "ABRIDGED_CONFIG"
STANDARD_VARIABLES = {
    **{variable: f"{p.name}.{field}" for p in PROVIDER_TYPES for variable, field in p.variables.items()},
    "SUMMARY_MODEL": "summarizer.models",
    "LLM_MODEL": "summarizer.models",
}
"""Variables that other programs set too, most specific first; ours precedes them."""

TOKENS = "server.tokens"
REDACTED = "(secret)"
SECRET_FILE_BYTES_MAX = 16_384

# Kubernetes puts these into every container of a namespace that has a Service whose name begins with `abridged`. The
# shortest of them, NAME_PORT, is one by its value alone: a port of ours that somebody misspelt is a number.
_SERVICE_LINK = re.compile(
    r"ABRIDGED_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)=.*"
    r"|ABRIDGED_(\w+_)?PORT=(tcp|udp|sctp)://.*",
    re.ASCII | re.DOTALL,
)

LIKENESS_MIN = 0.6
WHOLE_LIKENESS_MIN = 0.9
"""The likeness below which only the group of two whole names may be alike."""
BEGINNING_WEIGHT = 0.95
GROUP_WEIGHT = 0.3

# An IPv6 address opens with a bracket too.
_JSON_LIST = re.compile(r'\s*\[\s*["{\]]')


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a value; `kind` is flag, environment, file or default, `detail` says which one."""

    kind: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.detail}".rstrip()


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `field` is empty when it is not about one field."""

    field: str
    origin: Origin
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message} ({self.origin})" if self.field else f"{self.message} ({self.origin})"


class ConfigError(Exception):
    """The settings cannot be used. `problems` has all that was found, in the order of the settings table."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: dotted name, its field, its environment variable."""

    name: str
    field: FieldInfo
    variable: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings that hold together, and the origin of each by its dotted name."""

    settings: Settings
    origins: Mapping[str, Origin]

    def shown(self) -> list[tuple[str, str, Origin]]:
        """Name, value as JSON with secrets redacted, and origin of every setting, in the order of the table."""
        return [(s.name, _shown(_value_at(self.settings, s.name)), self.origins[s.name]) for s in known_settings()]


def environment() -> Mapping[str, str]:
    """The environment of this process. Everything else takes a mapping."""
    return os.environ


def known_settings() -> tuple[Setting, ...]:
    """Every setting in the order of the table."""
    return tuple(_settings_of(Settings, ""))


def load(
    environ: Mapping[str, str], *, flags: Mapping[str, Any] | None = None, config_path: Path | None = None
) -> Configuration:
    """Settings from all sources; raises ConfigError with everything that is wrong.

    `flags` maps dotted names to values, text or already typed. `config_path` is the file of `--config`; without it
    `ABRIDGED_CONFIG` names one; without that, no file is read.
    """
    named = config_path or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    loading = _Loading()
    loading.read_file(named)
    loading.read_environment(environ)
    loading.read_flags(flags or {})
    loading.read_secret_files()
    return loading.finish()


class _Loading:
    """Values and problems as they are gathered; a later source replaces the whole value of an earlier one."""

    def __init__(self) -> None:
        self._known = {setting.name: setting for setting in known_settings()}
        self._groups = {name.partition(".")[0] for name in self._known if "." in name}
        self._values: dict[str, Any] = {}
        self._origins: dict[str, Origin] = {}
        self._problems: list[Problem] = []

    def read_file(self, path: Path | None) -> None:
        if path is None:
            return
        origin = Origin("file", str(path))
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            self._refuse("", origin, f"cannot be read: {error.strerror}")
            return
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self._refuse("", origin, f"is not valid TOML: {error}")
            return
        for key, value in document.items():
            if key in self._groups and isinstance(value, dict):
                for inner, inner_value in value.items():
                    self._set(f"{key}.{inner}", inner_value, origin)
            else:
                self._set(key, value, origin)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        for variable, name in reversed(STANDARD_VARIABLES.items()):
            if environ.get(variable):
                self._set(name, _standard_value(self._known[name], environ[variable]), Origin("environment", variable))
        by_variable = {setting.variable: setting for setting in self._known.values()}
        for variable, text in sorted(environ.items()):
            if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
                continue
            origin = Origin("environment", variable)
            if setting := by_variable.get(variable):
                self._set_text(setting, text, origin)
            elif not _SERVICE_LINK.fullmatch(f"{variable}={text}"):
                self._refuse("", origin, f"there is no setting {variable}{_did_you_mean(variable, by_variable)}")

    def read_flags(self, flags: Mapping[str, Any]) -> None:
        for name, value in flags.items():
            origin = Origin("flag", name)
            if isinstance(value, str) and name in self._known:
                self._set_text(self._known[name], value, origin)
            else:
                self._set(name, value, origin)

    def read_secret_files(self) -> None:
        """Fill each secret from the file that is named in its place; the path stays visible, the secret redacted."""
        for name in [name for name in self._values if name.removesuffix("_file") in self._known.keys() - {name}]:
            secret = name.removesuffix("_file")
            if secret in self._values:
                self._refuse(name, self._origins[name], f"give either it or {secret}")
            elif (text := self._secret_in(name, self._values[name])) is not None:
                self._values[secret] = text
                self._origins[secret] = self._origins[name]
        grants = self._values.get(TOKENS)
        if isinstance(grants, list):
            self._values[TOKENS] = [self._with_token(index, grant) for index, grant in enumerate(grants)]

    def _with_token(self, index: int, grant: Any) -> Any:
        if not isinstance(grant, dict) or "token_file" not in grant:
            return grant
        name = f"server.tokens[{index}].token_file"
        if "token" in grant:
            self._refuse(name, self._origin_of(name), "give either it or token")
            return grant
        text = self._secret_in(name, grant["token_file"])
        # A value that could not be read has been refused by name; a stand-in keeps it from being refused twice.
        return {**grant, "token": text if text is not None else REDACTED}

    def finish(self) -> Configuration:
        nested: dict[str, Any] = {}
        for name, value in self._values.items():
            group, dot, field = name.partition(".")
            if dot:
                nested.setdefault(group, {})[field] = value
            else:
                nested[name] = value
        try:
            settings = Settings.model_validate(nested)
        except ValidationError as error:
            self._refuse_invalid(error)
        else:
            self._check_policies(settings)
        if self._problems:
            order = list(self._known)
            raise ConfigError(tuple(sorted(self._problems, key=lambda p: _place(order, p.field))))
        return Configuration(settings, {name: self._origins.get(name, DEFAULT) for name in self._known})

    def _refuse_invalid(self, error: ValidationError) -> None:
        found = error.errors(include_url=False)
        for details in found:
            loc = details["loc"]
            # A list whose items are refused counts as too short as well, which says nothing new.
            if details["type"] == "too_short" and any(d["loc"][: len(loc)] == loc and d["loc"] != loc for d in found):
                continue
            field = _field_name(loc, details.get("ctx", {}))
            self._refuse(field, self._origin_of(field), _message(details["type"], details["msg"], field))

    def _check_policies(self, settings: Settings) -> None:
        """Refuse a policy whose fields do not fit together by the domain's rule, with the field and its origin."""
        for pattern in (None, *settings.policy_by_model):
            try:
                settings.policy_of(pattern)
            except InvalidPolicy as error:
                field = _policy_field(pattern, error.field)
                self._refuse(field, self._origin_of(field), error.reason + self._compared(settings, pattern, error))
                if pattern is None:
                    return

    def _compared(self, settings: Settings, pattern: str | None, error: InvalidPolicy) -> str:
        """The values that do not fit together, where the rule is about more than one field. They are no secrets."""
        others = [name for name in PolicySettings.model_fields if name in error.reason and name != error.field]
        if not others:
            return ""
        shown, refused_for = [], self._origin_of(_policy_field(pattern, error.field))
        for name in (*others, error.field):
            is_of_row = pattern is not None and name in settings.policy_by_model[pattern].model_fields_set
            given = settings.policy_by_model[pattern] if pattern is not None and is_of_row else settings.policy
            is_set = name in given.model_fields_set
            group = given if is_set else profile_of(settings.policy.profile).defaults()
            origin = self._origin_of(_policy_field(pattern if is_of_row else None, name))
            # The origin of the refusal's field stands behind the whole message.
            said = "" if name == error.field and origin == refused_for else f" ({origin})"
            shown.append(f"{name} is {getattr(group, name)}{said}")
        return f"; change one of them: {', '.join(shown)}"

    def _set(self, name: str, value: Any, origin: Origin) -> None:
        if name not in self._known:
            self._refuse(name, origin, f"there is no such setting{_did_you_mean(name, (*self._known, *self._groups))}")
            return
        self._values[name] = value
        self._origins[name] = origin
        for other in _others(name) & self._values.keys():
            if self._origins[other].kind != origin.kind:
                del self._values[other], self._origins[other]

    def _set_text(self, setting: Setting, text: str, origin: Origin) -> None:
        try:
            self._set(setting.name, _from_text(setting.field, text), origin)
        except json.JSONDecodeError:
            self._refuse(setting.name, origin, "is not valid JSON")

    def _secret_in(self, field: str, path: Any) -> str | None:
        origin = self._origin_of(field)
        try:
            with Path(path).open("rb") as file:
                text = file.read(SECRET_FILE_BYTES_MAX + 1).decode().strip()
        except OSError as error:
            self._refuse(field, origin, f"the file cannot be read: {error.strerror}")
            return None
        except (UnicodeDecodeError, TypeError):
            self._refuse(field, origin, "names no text file")
            return None
        if not text or len(text) > SECRET_FILE_BYTES_MAX:
            self._refuse(field, origin, "the file is empty or too large for a secret")
            return None
        return text

    def _origin_of(self, field: str) -> Origin:
        known = [name for name in self._origins if field == name or field.startswith((f"{name}.", f"{name}["))]
        return self._origins[max(known, key=len)] if known else DEFAULT

    def _refuse(self, field: str, origin: Origin, message: str) -> None:
        self._problems.append(Problem(field, origin, message))


def _others(name: str) -> set[str]:
    """The settings that are this one in another spelling, all of which a later source replaces: a secret and the file
    that holds it, and the two kinds of places for a log."""
    in_database = {"log.url", "log.url_file", "log.listen_url", "log.listen_url_file", "log.name"}
    elsewhere = {"log.backend", "log.path"}
    twin = name.removesuffix("_file") if name.endswith("_file") else f"{name}_file"
    return {twin} | (in_database if name in elsewhere else elsewhere if name in in_database else set())


def _settings_of(model: type[BaseModel], group: str) -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if not group and isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _settings_of(kind, name)
        else:
            dotted = f"{group}.{name}" if group else name
            yield Setting(dotted, field, PREFIX + dotted.replace(".", "__").upper())


def _from_text(field: FieldInfo, text: str) -> Any:
    """Lists of plain values may be written with commas; lists and tables also as JSON."""
    if get_origin(field.annotation) is tuple and not _JSON_LIST.match(text):
        return [part.strip() for part in text.split(",") if part.strip()]
    if get_origin(field.annotation) in (tuple, Mapping):
        return json.loads(text)
    return text


def _standard_value(setting: Setting, text: str) -> Any:
    """Other programs' variables hold one value each; one without a provider names a model of the first."""
    if setting.name == "summarizer.models":
        prefixes = [*(kind.name for kind in PROVIDER_TYPES), EXTRACTIVE_PREFIX]
        return [text if text.startswith(tuple(f"{prefix}:" for prefix in prefixes)) else f"{prefixes[0]}:{text}"]
    return [text] if get_origin(setting.field.annotation) is tuple else text


def _message(kind: str, message: str, field: str) -> str:
    if kind == "tuple_type":
        return f"must be a list of {'tables' if field == TOKENS else 'text'}"
    if kind == "too_short":
        return "must not be empty"
    if kind != "extra_forbidden":
        return message
    inner = (*PolicySettings.model_fields, *TokenGrant.model_fields)
    return f"there is no such setting{_did_you_mean(field.rpartition('.')[2], inner)}"


def _policy_field(pattern: str | None, name: str) -> str:
    return f"policy.{name}" if pattern is None else f"policy_by_model.{pattern}.{name}"


def _field_name(loc: tuple[int | str, ...], ctx: Mapping[str, Any]) -> str:
    """`server.tokens[0].scopes` from pydantic's path; a rule over a whole group names its field in the context."""
    name = ""
    for part in (*loc, *([ctx["field"]] if "field" in ctx else [])):
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def _place(order: list[str], field: str) -> int:
    matches = [index for index, name in enumerate(order) if field == name or field.startswith((f"{name}.", f"{name}["))]
    return matches[-1] if matches else -1


def _value_at(settings: Settings, name: str) -> Any:
    """The value of a setting; an unset policy field has its default in the policy's profile."""
    group, _, field = name.partition(".")
    if group == "policy":
        return getattr(settings.policy_of(None), field)
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _shown(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return REDACTED
    if isinstance(value, BaseModel):
        return {name: getattr(value, name) for name in value.model_fields_set}
    return str(value)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest of `known`, of equals the first; empty when none of them is near."""
    likeness, nearest = max(((_likeness(name, candidate), candidate) for candidate in known), key=lambda pair: pair[0])
    return f"; did you mean {nearest}?" if likeness >= LIKENESS_MIN else ""


def _likeness(name: str, candidate: str) -> float:
    """The likeness of two names, from 0 to 1. Group and last part are compared by themselves: a long group would make
    any two names alike."""
    one, other = _plain_name(name), _plain_name(candidate)
    (group, _, last), (other_group, _, other_last) = one.rpartition("."), other.rpartition(".")
    # Whoever shortens a name writes its first words.
    beginning = "_".join(other_last.split("_")[: last.count("_") + 1])
    parts = max(_ratio(last, other_last), BEGINNING_WEIGHT * _ratio(last, beginning))
    parts *= 1 - GROUP_WEIGHT + GROUP_WEIGHT * _ratio(group, other_group)
    whole = _ratio(one.replace(".", "_"), other.replace(".", "_"))
    return max(parts, whole if whole >= WHOLE_LIKENESS_MIN else 0.0)


def _plain_name(name: str) -> str:
    return name.removeprefix(PREFIX).replace("__", ".").lower()


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
