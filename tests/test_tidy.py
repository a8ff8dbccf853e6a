"""The style as tests: a reviewer would otherwise have to repeat these rules again and again.

An exception to a rule stands in the rule's table with its reason; one that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.time_assertions import short_waits, time_assertions

ROOT = Path(__file__).parent.parent
PRODUCT = ("service/", "eventlog/", "observability/")
MEASUREMENTS = "bench/"
LOADED_BY_NAME = re.compile(r"((?:abridged\.service|bench)(?:\.\w+)+):(\w+)")
"""A name for pkgutil.resolve_name: the arrow that no import statement shows."""
PURE = ("service/domain/", "service/extraction/", "service/grounding/", "service/prompts/", "service/text/")
PURE_PACKAGES = tuple(f"abridged.{folder.replace('/', '.')}" for folder in PURE)

FUNCTION_LINES_MAX = 70
README_LINES_MAX = 150

LONG_FUNCTIONS: dict[str, str] = {}
BROAD_EXCEPTS: dict[str, str] = {
    "eventlog/async_append.py": "one append's listener does not silence the others of its group",
    "eventlog/group_commit.py": "the writer's thread: a bug stops the log loudly, no caller hangs",
    "eventlog/memory.py": "the hook's error is the outcome of its append",
    "service/conversations/log_copy.py": "an edited line may contradict the fold in any way, and is looked for",
    "service/api/pipeline.py": "whatever a call ends in becomes its status",
    "service/api/items.py": "whatever an item of a stream ends in becomes its status",
    "service/api/contexts.py": "a window that fails does not make an error of what was appended",
    "service/api/http.py": "one route's bug does not take the port down",
    "service/passes/reactor.py": "one broken pass does not stop the others",
    "service/passes/claims.py": "a renewal that fails does not end those of other passes",
    "service/passes/lookout.py": "a damaged conversation does not keep others waiting",
    "service/conversations/purges.py": "whatever is in the way of a purge, it is tried again",
    "service/conversations/following.py": "events that cannot be read now do not end the following",
    "service/passes/preparations.py": "one broken preparation does not stop the others",
    "service/recall/projection.py": "what the index cannot follow stops it, loudly, and nothing else",
    "service/passes/titles.py": "one broken title does not stop the others",
}
"""Supervision boundaries. Cleaning up and raising again is no such handler."""
SLEEPING_TESTS: dict[str, str] = {
    "tests/hostile/test_floods.py": "an honest caller appends now and then, beside an attack that goes on",
    "tests/integration/test_http.py": "a client that drips its request",
    "tests/integration/test_overload.py": "callers who come back at once, whatever they are told",
    "tests/languages/conformance.py": "libraries pause before they connect again, each for as long as it likes",
    "tests/integration/test_prometheus.py": "a real Prometheus that scrapes in its own time is asked again",
}
UNIMPORTED_MODULES: dict[str, str] = {
    "abridged.service.cli.main": "the console script",
}
IMPORT_NAMES: dict[str, str] = {
    "googleapis-common-protos": "google.rpc",
    "grpcio": "grpc",
    "grpcio-health-checking": "grpc_health",
    "grpcio-reflection": "grpc_reflection",
    "grpcio-status": "grpc_status",
    "opentelemetry-api": "opentelemetry.trace",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "protobuf": "google.protobuf",
}
"""Import names of the packages whose own names are others."""
BANNED_STEMS = re.compile(r"^_?(utils?|helpers?|common|managers?|base|misc|tools?|shared|\w+_v\d+)$")
BANNED_CLASSES = re.compile(r"^_?(Base[A-Z]\w*|Enhanced\w*|\w*(Manager|Helper|Utils?|Processor|V[2-9]))$")
SILENCER = re.compile(
    r"#\s*(noqa|type:\s*ignore|pragma:\s*no cover)"
    r"(?P<codes>:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*|\[[a-z-]+(,\s*[a-z-]+)*\])?(?P<reason>.*)$"
)
HEADLESS = re.compile(
    r"\A\s*(?:Whether|What(?:ever)?|Who(?:ever)?|Which|How|Where|When|If|Because|Since|Until|Also|So|Then|But|And|There"
    r"|Here|This|That|These|Those|Such|Its?|Their|None|Nothing|Not|Neither|Either|As|Than|Else|Of|By|In|From|With(?:out)?"
    r"|For|At|On|To|Before|After|Between|Among|Besides?|Beyond|Under|Over|Through)\b|\b(?:is|are) none\b(?! of\b)"
)
"""Begins with a word of grammar, and leaves the reader to find the subject."""
FOREIGN = [
    re.compile(pattern)
    for pattern in (
        rf"{re.escape(str(ROOT))}\b",
        r"(?<![\w.~-])/(?:root)/(?!\.ollama)",
        r"/home/(?!nonroot|abridged)\w+/",
        "pypi" + r"\.org|python" + r"hosted\.org|registry\.npm" + r"js|proxy\." + r"golang|repo1\.maven",
        r"--(extra-)?" + r"index-url|--find" + r"-links",
    )
]
"""Paths of one machine and hosts of package indexes; the last one also keeps them out of the locks."""


@cache
def tracked() -> tuple[str, ...]:
    """Every file of the repository that is, or is about to be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return tuple(sorted({name for name in listed if (ROOT / name).is_file()}))


@cache
def python_files() -> tuple[str, ...]:
    return tuple(name for name in tracked() if name.endswith(".py") and "_pb2" not in name)


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(text(name), filename=name)


def product_files() -> list[str]:
    return [name for name in python_files() if name.startswith(PRODUCT)]


def own_files() -> list[str]:
    return [name for name in python_files() if name.startswith((*PRODUCT, MEASUREMENTS))]


def functions(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree(name)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def imported(name: str) -> Iterator[str]:
    """Every module that a file may mean: `from a.b import c` names `a.b` and `a.b.c`."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    yield from (module for module, _ in loaded_by_name(name))


def loaded_by_name(name: str) -> Iterator[tuple[str, str]]:
    """Modules and names that a file hands to pkgutil.resolve_name as `module:name`."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Constant) and (found := LOADED_BY_NAME.fullmatch(str(node.value))):
            yield found[1], found[2]


def module_of(name: str) -> str:
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"abridged.{module}" if name.startswith(PRODUCT) else module


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_every_function_fits_on_a_screen():
    """70 lines is the wall; tests and their fakes are held to it as well."""
    long = {
        f"{name}:{f.name}"
        for name in python_files()
        for f in functions(name)
        if (f.end_lineno or f.lineno) - f.lineno >= FUNCTION_LINES_MAX
    }
    assert long == set(LONG_FUNCTIONS)


def test_files_and_classes_are_named_for_what_they_are():
    """No utils, helpers, managers, bases and second versions."""
    stems = [
        name for name in python_files() if any(BANNED_STEMS.match(part) for part in Path(name).with_suffix("").parts)
    ]
    classes = [
        f"{name}:{node.name}"
        for name in python_files()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ClassDef) and BANNED_CLASSES.match(node.name)
    ]
    assert stems + classes == []


def test_every_module_says_what_it_owns():
    """The docstring is the first thing in a file."""
    assert [name for name in python_files() if text(name).strip() and not ast.get_docstring(tree(name))] == []


def test_docstrings_begin_with_a_noun_or_a_verb():
    """No headless clause or phrase opens one, and `none` stands for nothing."""
    strings = (
        (name, node.value.value, node.lineno)
        for name in python_files()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    assert [f"{name}:{line}" for name, said, line in strings if HEADLESS.search(said)] == []


def test_broad_excepts_stand_at_supervision_boundaries_only():
    """Anywhere else they hide the failure that should rise."""
    broad = {
        name
        for name in own_files()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not isinstance(node.body[-1], ast.Raise)
    }
    assert broad == set(BROAD_EXCEPTS)


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = set(re.findall(r"\w+", ast.unparse(handler.type))) if handler.type else {"BaseException"}
    return bool(caught & {"Exception", "BaseException"})


def test_whoever_silences_a_check_says_which_and_why():
    """`# noqa: X123 - because`, `# type: ignore[code]  # because`."""
    bare = [
        f"{name}:{number}"
        for name in python_files()
        for number, line in enumerate(text(name).splitlines(), start=1)
        if (found := SILENCER.search(line)) and not (found["codes"] and re.search(r"[a-z]{3}", found["reason"]))
    ]
    # The pattern and the words about it are in this file.
    assert [place for place in bare if not place.startswith("tests/test_tidy.py:")] == []


def test_the_makefile_runs_tests_that_exist():
    """A renamed file would leave its target without a test, which nobody runs for weeks."""
    named = set(re.findall(r"tests/[\w/.]+", text("Makefile")))

    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_environment_is_read_in_one_place():
    """Settings arrive as arguments everywhere else. The package itself has one variable, that of a library."""
    reading = {
        n for n in own_files() if re.search(r"\bos\.(environ|getenv)|from os import .*(environ|getenv)", text(n))
    }
    assert reading == {"service/__init__.py", "service/config/sources.py"}


def test_the_rules_import_the_standard_library_alone():
    """Pure: nothing in it can reach a disk, a socket or a clock of ours."""
    foreign = {
        f"{name}: {module}"
        for name in product_files()
        if name.startswith(PURE)
        for module in imported(name)
        if module.partition(".")[0] not in sys.stdlib_module_names and not f"{module}.".startswith(PURE_PACKAGES)
    }
    assert foreign == set()


def test_every_module_of_the_product_is_used_by_the_product():
    """A module that only tests or measurements import is dead. Migrations are found by their folder."""
    of_product = {module for name in product_files() for module in imported(name)}
    of_all = {module for name in own_files() for module in imported(name)}
    unused = {
        module_of(name)
        for name in own_files()
        if not name.endswith("__init__.py")
        and "/migrations/" not in name
        and module_of(name) not in (of_all if name.startswith(MEASUREMENTS) else of_product)
    }
    assert unused == set(UNIMPORTED_MODULES)


def test_a_private_name_is_used_in_its_own_file_alone():
    """A programmer who changes one has therefore seen its uses; a test may check it by itself."""
    own = {module_of(name) for name in own_files()}
    used = _uses()

    assert {f"{module}.{name}" for module in own for name in used.get(module, ()) if re.match(r"_(?!_)", name)} == set()


def _uses() -> dict[str, set[str]]:
    """The names of each module that the product and its measurements use elsewhere."""
    modules = {module_of(name) for name in python_files()}
    used: dict[str, set[str]] = {}
    for name in own_files():
        aliases: dict[str, str] = {}
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (module := f"{node.module}.{alias.name}") in modules:
                        aliases[alias.asname or alias.name] = module
                    else:
                        used.setdefault(node.module, set()).add(alias.name)
        for module, loaded in loaded_by_name(name):
            used.setdefault(module, set()).add(loaded)
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                used.setdefault(aliases[node.value.id], set()).add(node.attr)
    return used


def test_the_page_of_the_architecture_names_every_package():
    """A reader who looks for a thing finds its folder, and no file that is gone."""
    page = text("docs/architecture.md")
    packages = {f"{Path(name).parent}/" for name in own_files() if "/migrations/" not in name}
    named = set(re.findall(r"`([\w/]+(?:/|\.py))`", page))

    assert packages <= named
    assert {place for place in named if not (ROOT / place).exists()} == set()


def test_tests_neither_mock_nor_patch_nor_sleep():
    """Fakes, arguments and signals; only a fake may play a slow server."""
    tests = [name for name in python_files() if name.startswith("tests/")]
    fakes = [name for name in tests if name.startswith("tests/support/")]
    mocking = {name for name in tests for module in imported(name) if module.startswith("unittest.mock")}
    patching = {name for name in tests for f in functions(name) for a in f.args.args if a.arg == "monkeypatch"}
    sleeping = {name for name in tests for called, call in calls(name) if _sleeps(called, call)} - set(fakes)
    assert mocking | patching == set()
    assert sleeping == set(SLEEPING_TESTS)


def _sleeps(called: str, call: ast.Call) -> bool:
    yields = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return called in {"time.sleep", "asyncio.sleep", "sleep"} and not yields


def test_no_test_depends_on_the_speed_of_the_machine():
    """No measured time is held against a number, and no wait fails after a few seconds."""
    tests = [name for name in python_files() if name.startswith("tests/")]
    asserting = [f"{name}:{line}" for name in tests for line in time_assertions(tree(name))]
    hurrying = [f"{name}:{line}" for name in tests for line in short_waits(tree(name))]

    assert asserting == [], "count the work, or compare two sizes with tests/support/growth.py"
    assert hurrying == [], "wait for PATIENCE_S of tests/support/patience.py"


def test_test_names_are_sentences_with_a_guarantee():
    """The names have at least three words, and the tests have a docstring."""
    short = [
        f"{name}:{f.name}"
        for name in python_files()
        if name.startswith("tests/")
        for f in functions(name)
        if f.name.startswith("test_") and (f.name.count("_") < 3 or not ast.get_docstring(f))
    ]
    assert short == []


def test_the_readme_stays_short():
    """Five minutes; the rest is in docs/."""
    assert text("README.md").count("\n") <= README_LINES_MAX


def test_no_file_names_a_machine_or_a_package_index():
    """The repository installs anywhere, from wherever that machine gets its packages."""
    found = []
    for name in tracked():
        content = (ROOT / name).read_bytes().decode("utf-8", errors="replace")
        found += [f"{name}: {hit.group()}" for pattern in FOREIGN for hit in pattern.finditer(content)]
    assert found == []


@pytest.mark.parametrize("page", [name for name in tracked() if name.endswith(".md")])
def test_links_between_pages_lead_somewhere(page):
    """Every relative link names a file of the repository."""
    targets = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text(page))
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []


@cache
def anchors(page: str) -> frozenset[str]:
    """The headings of a page, as GitHub writes them behind the `#` of a link."""
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower() for heading in headings]
    return frozenset(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain)


@pytest.mark.parametrize("page", [name for name in tracked() if name.endswith(".md")])
def test_links_into_pages_lead_to_a_heading(page):
    """Behind `#` stands a heading of that page."""
    links = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)", text(page))
    paths = [((ROOT / page).parent / name if name else ROOT / page).resolve() for name, _ in links]
    assert [
        f"{path.name}#{anchor}"
        for path, (_, anchor) in zip(paths, links, strict=True)
        if path.suffix == ".md" and anchor not in anchors(str(path.relative_to(ROOT)))
    ] == []


def locked(name: str) -> dict[str, str]:
    """Package and version of every pin; each pin has at least one hash."""
    pins = re.findall(
        r"^([a-z0-9._-]+)==(\S+)((?:[^\n]*\\\n)(?:    --hash=sha256:[0-9a-f]{64}[ \\\n]*)+)", text(name), re.MULTILINE
    )
    names = re.findall(r"^([a-z0-9._-]+)==", text(name), re.MULTILINE)
    assert [pin[0] for pin in pins] == names
    return {canonicalize_name(pin[0]): pin[1] for pin in pins}


@pytest.mark.parametrize(
    ("lock", "groups"),
    [
        ("requirements.txt", ["project"]),
        ("requirements-build.txt", ["build"]),
        ("requirements-dev.txt", ["project", "build", "dev"]),
        ("requirements-recall.txt", ["recall"]),
        ("requirements-encryption.txt", ["encryption"]),
        ("requirements-exact.txt", ["exact"]),
        ("requirements-postgres.txt", ["postgres"]),
        ("requirements-llm.txt", ["llm"]),
    ],
)
def test_the_lock_satisfies_what_the_project_asks_for(lock, groups):
    """A requirement that was added or raised without `make lock` fails here."""
    document = tomllib.loads(text("pyproject.toml"))
    wanted = [r for group in groups for r in _requirements(document, group)]
    pins = locked(lock)
    drifted = [str(r) for r in wanted if not r.specifier.contains(pins.get(canonicalize_name(r.name), "0.dev0"))]
    assert drifted == []


def test_every_package_that_is_asked_for_is_imported():
    """A package that nobody imports is not installed."""
    used = {module for name in product_files() for module in imported(name)}
    wanted = [r.name for r in _requirements(tomllib.loads(text("pyproject.toml")), "project")]
    names = {name: IMPORT_NAMES.get(name, name.replace("-", "_")) for name in wanted}
    idle = [name for name, module in names.items() if not any(f"{u}.".startswith(f"{module}.") for u in used)]
    assert idle == []


def test_tests_run_on_the_versions_that_are_shipped():
    """The development lock holds every pin of the two others."""
    development = locked("requirements-dev.txt").items()
    assert locked("requirements.txt").items() | locked("requirements-build.txt").items() <= development


def _requirements(document: dict[str, Any], group: str) -> list[Requirement]:
    if group == "project":
        project = document["project"]
        return [Requirement(r) for r in (*project["dependencies"], *project["optional-dependencies"]["bpe"])]
    extras = document["project"]["optional-dependencies"]
    if group in extras:
        return [Requirement(r) for r in extras[group]]
    return [Requirement(r) for r in document["dependency-groups"][group] if isinstance(r, str)]
