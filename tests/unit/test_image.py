"""The image's build finds every file that it copies. No engine is needed: Docker's rules for a context are few."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]


def as_regex(pattern: str) -> re.Pattern[str]:
    """Docker's pattern of paths: Go's `filepath.Match`, and `**` for any number of folders."""
    cleaned = pattern.strip("/")
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[[^]]*\]|.", cleaned)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(t, t if t.startswith("[") and len(t) > 2 else re.escape(t)) for t in tokens))


def is_in_context(path: str, rules: Iterable[str]) -> bool:
    """Return whether `.dockerignore` lets a path through: the last rule for it or a folder above it decides."""
    included = True
    folders = [path, *(str(folder) for folder in PurePosixPath(path).parents)][:-1]
    for line in rules:
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        exception = rule.startswith("!")
        regex = as_regex(rule.removeprefix("!"))
        if any(regex.fullmatch(folder) for folder in folders):
            included = exception
    return included


def copied(dockerfile: str) -> Iterator[str]:
    """The sources of the COPY and ADD lines that come from the context, not from another stage."""
    for line in dockerfile.replace("\\\n", " ").splitlines():
        words = line.split()
        if words and words[0].upper() in ("COPY", "ADD") and not any(w.startswith("--from=") for w in words):
            yield from (w for w in words[1:-1] if not w.startswith("--"))


def missing(dockerfile: str, rules: Iterable[str], files: Iterable[str]) -> list[str]:
    """The sources that match no file of the context."""
    rules = list(rules)
    context = [f for f in files if is_in_context(f, rules)]
    return [
        source
        for source in copied(dockerfile)
        if source != "." and not any(as_regex(source).match(f"{f}/") for f in context)
    ]


def files_below(root: Path) -> list[str]:
    names = ("proto", "service", "eventlog", "observability", "src")
    below = (f for name in names for f in (root / name).rglob("*") if f.is_file())
    return [f.relative_to(root).as_posix() for f in (*root.iterdir(), *below) if f.is_file()]


def test_each_file_that_the_image_copies_is_in_its_context():
    """A lock that .dockerignore leaves out would end the build at its first COPY."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    dockerfile = (ROOT / "Dockerfile").read_text()

    assert len(list(copied(dockerfile))) >= 4
    assert missing(dockerfile, rules, files_below(ROOT)) == []


def test_each_path_that_the_wheel_is_built_from_is_in_the_context():
    """`COPY . .` copies the paths that pass the filter, and hatchling needs all of it."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()

    for path in ("pyproject.toml", "README.md", "LICENSE", "service/cli/main.py", "src/abridged/v1/message.proto"):
        assert (ROOT / path).exists(), path
        assert is_in_context(path, rules), path


def test_a_file_that_is_absent_or_filtered_is_found():
    """The control: the check names an absent file and one that a later rule takes out again."""
    dockerfile = "FROM x AS build\nCOPY --chown=1 a.txt \\\n  b.txt ./\nCOPY --from=build /opt /opt\n"

    assert missing(dockerfile, [], ["a.txt"]) == ["b.txt"]
    assert missing(dockerfile, ["*", "!a.txt"], ["a.txt", "b.txt"]) == ["b.txt"]
    assert missing(dockerfile, ["*", "!*.txt", "b*"], ["a.txt", "b.txt"]) == ["b.txt"]
    assert missing(dockerfile, ["**/*.log"], ["a.txt", "b.txt"]) == []
