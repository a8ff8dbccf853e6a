"""The shipped product: the wheel, and the files that put it into containers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from abridged.service.config.sources import load
from abridged.service.version import VERSION
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PACKAGES = ("service", "eventlog", "observability", "testing", "client/abridged", "proto/abridged/v1")
"""Folders of the checkout that are shipped, inside one package."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_S)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def yaml_of(name: str) -> dict[str, Any]:
    document = yaml.safe_load((ROOT / name).read_text())
    assert isinstance(document, dict)
    return document


def docker_environment() -> dict[str, str]:
    """Return the variables that the last stage of the Dockerfile sets."""
    stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    return dict(re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)$", stage, re.MULTILINE))))


def test_the_wheel_holds_the_product_and_nothing_else(unpacked):
    """No tests, no benches, no scripts."""
    folders = {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")}
    assert folders == {"abridged"}, "a user's own package `service` or `buf` stays the user's"
    assert not [path for path in unpacked.rglob("*") if path.name.startswith("test_") or path.name == "conftest.py"]


def test_the_wheel_holds_every_file_of_its_packages(unpacked):
    """Generated code, rules, dashboards, migrations and bundled texts are shipped with the code."""
    listed = subprocess.run(
        [
            "git",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            *PACKAGES,
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    inside = re.compile(r"^(?:proto/abridged/|client/abridged/)?")
    wanted = {f"abridged/{inside.sub('', name)}" for name in listed if (ROOT / name).is_file()}
    shipped = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert wanted - shipped == set()


def test_the_wheel_carries_its_licence_and_its_command(unpacked):
    """The wheel has the files that an installer and a lawyer look for."""
    (info,) = unpacked.glob("*.dist-info")
    assert "abridged = abridged.service.cli.main:main" in (info / "entry_points.txt").read_text()
    assert "Apache License" in (info / "licenses" / "LICENSE").read_text()


@pytest.fixture
def shipped(unpacked, tmp_path):
    """Run the wheel's command, in a folder that is no checkout."""
    program = (
        "import abridged.service.cli.main as m, sys; assert m.__file__.startswith(sys.argv[1]), m.__file__;"
        "del sys.argv[1]; m.main(prog_name='abridged')"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, str(unpacked), *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(unpacked)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    return run


def test_the_shipped_command_runs_without_the_sources(shipped):
    """The wheel has everything that `abridged --help` needs."""
    ran = shipped("--help")

    assert ran.returncode == 0, ran.stderr
    assert "serve" in ran.stdout


def test_a_users_own_packages_of_any_name_hide_nothing(unpacked, tmp_path):
    """The folder of a program comes before the installed packages."""
    for name in ("service", "eventlog", "observability", "buf", "bench"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this is the user's own')", encoding="utf-8")
    program = "from abridged.service.cli.main import main; import abridged.client; main(['--version'])"

    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{unpacked}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert (run.returncode, run.stdout, run.stderr) == (0, f"-c {VERSION}\n", "")


@pytest.mark.parametrize("arguments", [("bench",), ("bench", "--only", "disk"), ("bench", "--help")])
def test_the_shipped_bench_says_where_the_measurements_are(shipped, arguments):
    """The message names the folder that is missing, the repository to clone and the command to run there."""
    ran = shipped(*arguments)

    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr.splitlines() == [
        "abridged: this installation has no folder bench/: the measurements come with a checkout, not with the wheel",
        f"  clone the repository at version {VERSION} and run `make bench` in its top folder",
    ]


def test_the_image_runs_as_nobody_in_particular_and_says_whether_it_lives():
    """Non-root, a health check, only the wheel and its pinned packages."""
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    last = stages[-1]

    assert len(stages) == 3
    assert "\nUSER 65532:65532\n" in last
    assert "\nHEALTHCHECK " in last
    assert 'CMD ["abridged", "doctor", "--live"]' in last
    assert 'ENTRYPOINT ["abridged"]' in last
    assert not re.search(r"^(COPY|ADD) (?!--from=build)", last, re.MULTILINE)
    assert stages[1].count("--require-hashes") == stages[1].count("-r requirements") == 5


def test_the_settings_of_the_image_are_settings():
    """gRPC stays on loopback until somebody sets a token; only the port without text is open.

    The log is in the image's folder, which is its volume, unless a variable names a database.
    """
    settings = load(docker_environment()).settings

    assert settings.server.listen == ("127.0.0.1:7420",)
    assert settings.server.http_listen == "0.0.0.0:7421"
    assert (settings.log.file, "WORKDIR /var/lib/abridged\n" in (ROOT / "Dockerfile").read_text()) == (
        Path("abridged.db"),
        True,
    )
    assert load({**docker_environment(), "ABRIDGED_LOG__URL": "postgresql://db/abridged"}).settings.log.file is None


@pytest.mark.parametrize("name", ["abridged", "abridged-1", "abridged-2"])
def test_the_composed_sidecars_start_with_a_token(tmp_path, name):
    """The environment of compose.yaml is a valid configuration, open to its network and closed without the token."""
    compose = yaml_of("compose.yaml")
    sidecar = compose["services"][name]
    (secret,) = sidecar["secrets"]
    (tmp_path / secret).write_text("s3cret")
    given = {name: value.replace("/run/secrets", str(tmp_path)) for name, value in sidecar["environment"].items()}

    settings = load({**docker_environment(), **given, "SUMMARY_MODEL": "qwen2.5:3b"}).settings

    (grant,) = settings.server.tokens
    assert grant.token is not None
    assert grant.token.get_secret_value() == "s3cret"
    assert settings.server.listen == ("0.0.0.0:7420",)
    assert settings.ollama.hosts == ("ollama:11434",)
    assert (settings.log.url is not None) == ("profiles" in sidecar)
    assert all(port.startswith("127.0.0.1:") for s in compose["services"].values() for port in s.get("ports", []))


def test_no_read_only_service_takes_a_secret_from_the_environment():
    """Compose copies such a secret into the container's root, and refuses one that is read-only."""
    compose = yaml_of("compose.yaml")
    read_only = {name: service for name, service in compose["services"].items() if service.get("read_only")}

    assert read_only.keys() == {"abridged", "abridged-1", "abridged-2"}
    taken = {secret for service in read_only.values() for secret in service["secrets"]}
    assert {secret: list(compose["secrets"][secret]) for secret in taken} == {"abridged_token": ["file"]}


def test_the_composed_token_is_readable_in_the_container_and_nowhere_else(tmp_path):
    """The first commands of compose.yaml make it, whatever the umask, where neither git nor an image takes it."""
    header = (ROOT / "compose.yaml").read_text().partition("\nname:")[0]
    commands = [line.removeprefix("#   ") for line in header.splitlines() if line.startswith("#   ")]
    made = commands[: commands.index("docker compose up --wait")]
    token = tmp_path / yaml_of("compose.yaml")["secrets"]["abridged_token"]["file"]

    for umask in ("0077", "0002"):
        subprocess.run(["/bin/sh", "-ec", "\n".join([f"umask {umask}", *made])], cwd=tmp_path, check=True)
        assert [oct(path.stat().st_mode & 0o777) for path in (token, token.parent)] == ["0o644", "0o700"]
        assert re.fullmatch("[0-9a-f]{64}\n", token.read_text())

    assert f"ABRIDGED_CLIENT__TOKEN_FILE={token.relative_to(tmp_path)} " in header
    ignored = subprocess.run(["git", "check-ignore", "-q", token.relative_to(tmp_path)], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    assert "!secrets" not in (ROOT / ".dockerignore").read_text().split()


def test_every_composed_service_that_comes_up_stays_up():
    """`docker compose up --wait` fails when one ends: what ends has a profile that only its own name enables."""
    compose = yaml_of("compose.yaml")
    up = {name for name, service in compose["services"].items() if set(service.get("profiles", [])) <= {"postgres"}}

    assert compose["services"].keys() - up == {"model"}
    assert {name for name in up if compose["services"][name].get("restart") != "unless-stopped"} == set()
    assert "#   docker compose run --rm model\n" in (ROOT / "compose.yaml").read_text()


def test_prometheus_finds_the_sidecar_and_its_rules():
    """Names and paths of compose.yaml, deploy/prometheus.yml and observability/rules agree."""
    compose, prometheus = yaml_of("compose.yaml"), yaml_of("deploy/prometheus.yml")
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["prometheus"]["volumes"])

    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    (pattern,) = prometheus["rule_files"]

    assert target.partition(":")[0] in compose["services"]
    assert target.partition(":")[2] == docker_environment()["ABRIDGED_SERVER__HTTP_LISTEN"].partition(":")[2]
    assert mounts["./deploy/prometheus.yml"] == "/etc/prometheus/prometheus.yml"
    assert mounts["./observability/rules"] == "/etc/prometheus/rules"
    assert list((ROOT / "observability").glob(pattern))
