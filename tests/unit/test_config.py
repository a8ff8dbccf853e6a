"""Settings: precedence, origins, and everything wrong said at once."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from abridged.service.config.settings import Settings, is_local_address
from abridged.service.config.sources import ConfigError, Configuration, Origin, known_settings, load
from abridged.service.domain.policy import Policy, ProfileName
from abridged.service.domain.profiles.registry import profile_of


def problems_of(environ=None, *, flags=None, config_path=None) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        load(environ or {}, flags=flags, config_path=config_path)
    return {problem.field: str(problem) for problem in refused.value.problems}


def shown(configuration: Configuration) -> dict[str, tuple[str, str]]:
    return {name: (value, str(origin)) for name, value, origin in configuration.shown()}


@pytest.fixture
def config_file(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "abridged.toml"
        path.write_text(text)
        return path

    return write


def test_without_any_source_every_setting_has_its_default():
    """An empty environment is a working configuration."""
    configuration = load({})

    assert configuration.settings == Settings()
    assert set(configuration.origins.values()) == {Origin("default")}


def test_the_default_policy_is_the_domains():
    """Policy defaults are written once, in the domain."""
    assert load({}).settings.policy_for("ollama:any") == Policy()


def test_a_flag_wins_over_environment_over_file_over_default(config_file):
    """The four sources in their order, each value with its origin."""
    path = config_file("[policy]\nmin_messages = 30\npreserve_recent = 8\n[log]\nbackend = 'memory'\n")
    environ = {"ABRIDGED_POLICY__MIN_MESSAGES": "20", "ABRIDGED_POLICY__PRESERVE_RECENT": "9"}

    configuration = load(environ, flags={"policy.min_messages": "10"}, config_path=path)

    assert configuration.settings.policy.min_messages == 10
    assert configuration.settings.policy.preserve_recent == 9
    assert configuration.settings.log.backend == "memory"
    assert shown(configuration)["policy.min_messages"] == ("10", "flag policy.min_messages")
    assert shown(configuration)["policy.preserve_recent"] == ("9", "environment ABRIDGED_POLICY__PRESERVE_RECENT")
    assert shown(configuration)["log.backend"] == ('"memory"', f"file {path}")
    assert shown(configuration)["policy.min_gain"] == ("0.2", "default")


def test_the_environment_can_name_the_file_and_the_flag_wins(config_file, tmp_path):
    """`ABRIDGED_CONFIG` is read when `--config` is absent."""
    path = config_file("[ollama]\nnum_ctx = 4096\n")

    assert load({"ABRIDGED_CONFIG": str(path)}).settings.ollama.num_ctx == 4096
    assert load({"ABRIDGED_CONFIG": str(tmp_path / "none")}, config_path=path).settings.ollama.num_ctx == 4096


def test_standard_variables_are_read_as_they_are():
    """Ours wins over the standard one, and `SUMMARY_MODEL` over `LLM_MODEL`."""
    standard = {"OLLAMA_HOST": "gpu-box:11435", "LLM_MODEL": "llama3.2", "OLLAMA_API_KEY": "k"}

    settings = load(standard).settings
    assert settings.ollama.hosts == ("gpu-box:11435",)
    assert settings.ollama.api_key is not None
    assert settings.ollama.api_key.get_secret_value() == "k"
    assert settings.summarizer.models == ("ollama:llama3.2",)
    assert load({"SUMMARY_MODEL": "openai:gpt-4o-mini"}).settings.summarizer.models == ("openai:gpt-4o-mini",)
    assert load({"OPENAI_BASE_URL": "http://vllm:8000/v1"}).settings.openai.url == "http://vllm:8000/v1"
    assert load({**standard, "SUMMARY_MODEL": "qwen3:4b"}).settings.summarizer.models == ("ollama:qwen3:4b",)
    ours = {**standard, "SUMMARY_MODEL": "x", "ABRIDGED_SUMMARIZER__MODELS": "ollama:a, extractive"}
    assert load(ours).settings.summarizer.models == ("ollama:a", "extractive:default")


def test_lists_are_written_with_commas_and_tables_as_json():
    """A variable holds every value readably."""
    environ = {
        "ABRIDGED_SERVER__LISTEN": "127.0.0.1:0,unix:/run/a.sock",
        "ABRIDGED_TOKENS__CONTEXT_LENGTHS": '{"ollama:qwen*": 32768}',
        "ABRIDGED_SERVER__TOKENS": '[{"token": "t", "namespace": "shop"}]',
    }

    settings = load(environ).settings

    assert settings.server.listen == ("127.0.0.1:0", "unix:/run/a.sock")
    assert settings.tokens.context_lengths == {"ollama:qwen*": 32768}
    assert settings.server.tokens[0].namespace == "shop"
    assert problems_of({"ABRIDGED_SERVER__TOKENS": "[{"}).keys() == {"server.tokens"}


@pytest.mark.parametrize("name", ["ABRIDGED_POLICY__TRIGER_TOKEN_RATIO", "ABRIDGED_POLICY_TRIGGER_TOKEN_RATIO"])
def test_an_unknown_variable_is_refused_with_the_nearest_name(name):
    """A misspelt variable never passes in silence."""
    with pytest.raises(ConfigError, match="did you mean ABRIDGED_POLICY__TRIGGER_TOKEN_RATIO"):
        load({name: "0.8"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("ABRIDGED_POLICY__TRIGER", "ABRIDGED_POLICY__TRIGGER_TOKEN_RATIO"),
        ("ABRIDGED_SUMMARIZER__QUEUE", "ABRIDGED_SUMMARIZER__QUEUE_MAX"),
        ("ABRIDGED_LOG__LOG_LEVEL", "ABRIDGED_TELEMETRY__LOG_LEVEL"),
        ("ABRIDGED_MODEL", "ABRIDGED_SUMMARIZER__MODELS"),
        ("ABRIDGED_POLICY__ZZZ", None),
        ("ABRIDGED_SUMMARIZER__Z", None),
    ],
)
def test_the_nearest_name_is_near_by_its_last_part(given, meant):
    """A long group makes no two names alike, and a name that is cut short is known by its first words."""
    with pytest.raises(ConfigError) as refused:
        load({given: "1"})

    if meant is None:
        assert "did you mean" not in str(refused.value)
    else:
        assert f"did you mean {meant}?" in str(refused.value)


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_name(config_file):
    """The key may be at the top, in a group, or within a table."""
    path = config_file("""
        [polcy]
        enabled = true
        [log]
        pth = "x"
        [policy_by_model."ollama:*"]
        min_gian = 0.3
    """)

    found = problems_of(config_path=path)

    assert "did you mean policy?" in found["polcy"]
    assert "did you mean log.path?" in found["log.pth"]
    found = problems_of(config_path=config_file('[policy_by_model."ollama:*"]\nmin_gian = 0.3\n'))
    assert "did you mean min_gain?" in found["policy_by_model.ollama:*.min_gian"]


def test_everything_wrong_is_said_at_once_with_field_and_origin(config_file):
    """One start shows all mistakes, from all sources."""
    path = config_file("[policy]\nmin_gain = 3\n[summarizer]\nmodels = ['qwen2.5:3b']\n")
    environ = {"ABRIDGED_OLLAMA__NUM_CTX": "many", "ABRIDGED_NOTHING": "1"}

    found = problems_of(environ, flags={"server.listen": "nowhere", "log.pth": "x"}, config_path=path)

    assert list(found) == [
        "",
        "log.pth",
        "server.listen[0]",
        "policy.min_gain",
        "summarizer.models[0]",
        "ollama.num_ctx",
    ]
    assert "ABRIDGED_NOTHING" in found[""]
    assert found["policy.min_gain"].endswith(f"(file {path})")
    assert found["ollama.num_ctx"].endswith("(environment ABRIDGED_OLLAMA__NUM_CTX)")
    assert found["server.listen[0]"].endswith("(flag server.listen)")
    assert "such as 'ollama:qwen2.5:3b' or 'openai:gpt-4o-mini'; the providers are" in found["summarizer.models[0]"]


def test_one_text_where_a_list_is_wanted_is_refused_in_words_of_toml(config_file):
    """The value lacks brackets; our own type for it is nobody's business."""
    path = config_file("""
        [server]
        listen = "127.0.0.1:0"
        tokens = "t"
        [ollama]
        hosts = "gpu"
    """)

    found = problems_of(config_path=path)

    assert found["server.listen"] == f"server.listen: must be a list of text (file {path})"
    assert found["server.tokens"] == f"server.tokens: must be a list of tables (file {path})"
    assert found["ollama.hosts"] == f"ollama.hosts: must be a list of text (file {path})"
    assert (
        "must be a list of text"
        in problems_of(flags={"server.tokens": [{"token": "t", "scopes": "read"}]})["server.tokens[0].scopes"]
    )


def test_a_policy_that_cannot_work_is_refused_at_start_with_its_origin():
    """Cross-field rules are the domain's, and they hold for every row of the table."""
    found = problems_of({"ABRIDGED_POLICY__RESET_TOKEN_RATIO": "0.9"})
    assert found["policy.reset_token_ratio"].endswith("(environment ABRIDGED_POLICY__RESET_TOKEN_RATIO)")

    table = {"policy_by_model": {"ollama:small*": {"tail_token_ratio": 0.69}}}
    assert "policy_by_model.ollama:small*.tail_token_ratio" in problems_of(flags=table)


def test_values_that_do_not_fit_together_are_all_told_with_their_origins():
    """The one that was changed is not always the one that the rule is about."""
    lower = problems_of(flags={"policy.trigger_token_ratio": "0.5"})["policy.reset_token_ratio"]
    row = {"policy_by_model": {"ollama:small*": {"tail_token_ratio": 0.69}}, "policy.reset_token_ratio": "0.75"}
    by_model = problems_of(flags=row)["policy_by_model.ollama:small*.tail_token_ratio"]

    assert lower.endswith(
        "change one of them: trigger_token_ratio is 0.5 (flag policy.trigger_token_ratio), "
        "reset_token_ratio is 0.7 (default)"
    )
    assert by_model.endswith("tail_token_ratio is 0.69 (flag policy_by_model)")
    assert "reset_token_ratio is 0.75 (flag policy.reset_token_ratio)" in by_model


def test_the_first_matching_row_of_the_table_decides():
    """Only the fields that the row names differ from the default."""
    table = {"ollama:qwen*": {"preserve_recent": 12}, "ollama:*": {"preserve_recent": 3, "min_messages": 5}}

    settings = load({}, flags={"policy.min_messages": 40, "policy_by_model": table}).settings

    assert settings.policy_for("ollama:qwen3:4b").preserve_recent == 12
    assert settings.policy_for("ollama:qwen3:4b").min_messages == 40
    assert settings.policy_for("ollama:phi4").min_messages == 5
    assert settings.policy_for("openai:gpt").preserve_recent == Policy().preserve_recent


@pytest.mark.parametrize("setting", ["policy.profile", "policy_by_model.ollama:*.profile"])
def test_a_profile_that_does_not_exist_is_refused_by_name(config_file, setting):
    """The refusal lists the profiles that there are; upper case is as good as lower case."""
    table = "policy" if setting == "policy.profile" else 'policy_by_model."ollama:*"'
    found = problems_of(config_path=config_file(f'[{table}]\nprofile = "rollling"\n'))

    assert list(found) == [setting]
    assert "'chain'" in found[setting]
    assert load({"ABRIDGED_POLICY__PROFILE": "CHAIN"}).settings.policy.profile is ProfileName.CHAIN


def test_a_policy_is_asked_for_under_the_profile_that_a_conversation_has():
    """The operator's own fields replace that profile's defaults."""
    settings = load({}, flags={"policy.min_messages": 40}).settings

    assert settings.policy_for("m", ProfileName.CHAIN) == replace(
        profile_of(ProfileName.CHAIN).defaults(), min_messages=40
    )


def test_a_policy_field_that_clients_may_set_must_exist():
    """The allow list names policy fields and nothing else."""
    assert "client_policy_fields" in problems_of({"ABRIDGED_CLIENT_POLICY_FIELDS": "min_gain,endpoint"})


@pytest.mark.parametrize("address", ["0.0.0.0:7420", ":7420", "[::]:7420", "10.0.0.7:7420", "sidecar.example:7420"])
def test_an_open_grpc_address_without_a_token_is_refused(address):
    """An address beyond loopback lets somebody else connect, so there must be a token."""
    found = problems_of({"ABRIDGED_SERVER__LISTEN": f"127.0.0.1:7420,{address}"})
    assert "set server.tokens" in found["server.listen"]
    assert found["server.listen"].endswith("(environment ABRIDGED_SERVER__LISTEN)")

    grant = '[{"token": "secret"}]'
    settings = load({"ABRIDGED_SERVER__LISTEN": address, "ABRIDGED_SERVER__TOKENS": grant}).settings
    assert settings.server.listen == (address,)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/run/a.sock"])
def test_a_local_address_needs_no_token(address):
    """Loopback in every spelling, and unix sockets."""
    assert is_local_address(address)
    assert load({"ABRIDGED_SERVER__LISTEN": address}).settings.server.listen == (address,)


@pytest.mark.parametrize("address", ["7420", "localhost:", "localhost:70000", "::1:7420", "unix:relative.sock", "a:-1"])
def test_what_is_no_address_is_refused(address):
    """The refusal comes before anything is bound."""
    assert "server.listen[0]" in problems_of({"ABRIDGED_SERVER__LISTEN": address})


def test_the_http_port_is_tcp_or_nothing():
    """Probes and scrapes come over TCP; an empty address closes the port."""
    assert "server.http_listen" in problems_of({"ABRIDGED_SERVER__HTTP_LISTEN": "unix:/run/a.sock"})
    assert load({"ABRIDGED_SERVER__HTTP_LISTEN": ""}).settings.server.http_listen == ""


@pytest.mark.parametrize("model", ["qwen2.5:3b", "ollama", "ollama:", "openai:", "anthropic:claude", ""])
def test_a_model_without_a_known_provider_or_a_name_is_refused(model):
    """A model that is not built yet is refused at start, not at the first pass."""
    assert "summarizer.models[0]" in problems_of(flags={"summarizer.models": [model]})


def test_a_list_that_needs_an_item_may_not_be_empty():
    """The refusal speaks of the setting, not of our own type for it."""
    assert problems_of(flags={"summarizer.models": ""})["summarizer.models"] == (
        "summarizer.models: must not be empty (flag summarizer.models)"
    )


def test_every_wrong_model_is_reported_beside_all_other_errors():
    """The names of models are checked at once with the settings around them, in every list."""
    flags = {"summarizer.models": ["nope:x", "ollama:"], "summarizer.retries": 99, "titles.models": ["z:1"]}

    assert set(problems_of(flags=flags)) == {
        "summarizer.models[0]",
        "summarizer.models[1]",
        "summarizer.retries",
        "titles.models[0]",
    }


def test_secrets_come_from_files_and_are_never_shown(tmp_path):
    """Tokens and keys are read from the file that is named, and printed nowhere."""
    (tmp_path / "token").write_text("hunter2\n")
    (tmp_path / "key").write_text("swordfish\n")
    grants = json.dumps([{"token_file": str(tmp_path / "token"), "scopes": ["read"]}])
    environ = {"ABRIDGED_SERVER__TOKENS": grants, "ABRIDGED_OLLAMA__API_KEY_FILE": str(tmp_path / "key")}

    configuration = load(environ)

    token, key = configuration.settings.server.tokens[0].token, configuration.settings.ollama.api_key
    assert token is not None and token.get_secret_value() == "hunter2"
    assert key is not None and key.get_secret_value() == "swordfish"
    printed = repr(configuration) + str(configuration.shown())
    assert "hunter2" not in printed
    assert "swordfish" not in printed
    assert shown(configuration)["ollama.api_key"] == ('"(secret)"', "environment ABRIDGED_OLLAMA__API_KEY_FILE")


def test_a_secret_in_two_spellings_is_refused_unless_a_later_source_replaces_it(config_file, tmp_path):
    """The same source may not say it twice; a later source may say it differently."""
    (tmp_path / "key").write_text("from-the-file")
    twice = {"ABRIDGED_OLLAMA__API_KEY": "a", "ABRIDGED_OLLAMA__API_KEY_FILE": str(tmp_path / "key")}
    assert "ollama.api_key_file" in problems_of(twice)

    path = config_file("[ollama]\napi_key = 'in-toml'\n")
    key = load({"ABRIDGED_OLLAMA__API_KEY_FILE": str(tmp_path / "key")}, config_path=path).settings.ollama.api_key
    assert key is not None and key.get_secret_value() == "from-the-file"


def test_a_secret_file_that_cannot_be_used_is_refused_by_name(tmp_path):
    """Missing, empty and binary files, and a grant with both or neither."""
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    grants = [
        {"token_file": str(tmp_path / "none")},
        {"token_file": str(tmp_path / "empty")},
        {"token_file": str(tmp_path / "binary")},
        {"token_file": str(tmp_path / "empty"), "token": "t"},
        {"namespace": "shop"},
    ]

    found = problems_of(flags={"server.tokens": grants})

    names = [f"server.tokens[{index}].token_file" for index in range(4)]
    assert set(found) == {*names, "server.tokens[4].token"}


def test_no_message_repeats_a_value():
    """An error goes to the log and the terminal; the value in it could be a secret."""
    environ = {
        "ABRIDGED_SERVER__TOKENS": '[{"token": "hunter2", "scopes": ["hunter3"]}]',
        "ABRIDGED_OLLAMA__NUM_CTX": "hunter4",
    }

    with pytest.raises(ConfigError) as refused:
        load(environ)

    assert "hunter" not in str(refused.value)
    with pytest.raises(ValueError, match="num_ctx") as raw:
        Settings.model_validate({"ollama": {"num_ctx": "hunter5"}})
    assert "hunter" not in str(raw.value)


@pytest.mark.parametrize("name", ["ABRIDGED", "ABRIDGED_GRPC", "ABRIDGED_SERVER", "ABRIDGED_LOG_PATH", "ABRIDGED_2_B"])
def test_variables_that_kubernetes_adds_for_a_service_are_ignored(name):
    """A Service called `abridged`, or `abridged-server`, must not keep the pods beside it from starting."""
    links = {
        f"{name}_SERVICE_HOST": "10.0.0.1",
        f"{name}_SERVICE_PORT": "7420",
        f"{name}_SERVICE_PORT_GRPC_WEB": "7420",
        f"{name}_PORT": "tcp://10.0.0.1:7420",
    }
    for protocol in ("TCP", "UDP", "SCTP"):
        port = f"{name}_PORT_7420_{protocol}"
        links |= {port: f"{protocol.lower()}://10.0.0.1:7420", f"{port}_PROTO": protocol.lower()}
        links |= {f"{port}_PORT": "7420", f"{port}_ADDR": "fd00::1"}

    assert load(links).settings == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ABRIDGED_SERVER__HTTP_PORT", "8080"),
        ("ABRIDGED_SERVER__PORT", "7420"),
        ("ABRIDGED_PORT", "7420"),
        ("ABRIDGED_SERVER__HOST", "10.0.0.1"),
        ("ABRIDGED_SERVER__HTTP_LISTN", "tcp://10.0.0.1:7420"),
    ],
)
def test_a_port_that_somebody_misspelt_is_no_link_to_a_service(name, value):
    """Kubernetes' own variables are known by their form; everything else with our prefix has to be a setting."""
    with pytest.raises(ConfigError, match=f"there is no setting {name}"):
        load({name: value})


def test_no_setting_has_a_name_that_kubernetes_may_add():
    """The setting's variable would be lost, or be set by a Service."""
    taken = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT|_PORT$|_PORT_\d+_")
    assert [setting.variable for setting in known_settings() if taken.search(setting.variable)] == []


def test_a_file_that_is_missing_or_no_toml_is_refused(config_file, tmp_path):
    """The refusal names the path, and shows no traceback."""
    assert "cannot be read" in problems_of(config_path=tmp_path / "none.toml")[""]
    assert "is not valid TOML" in problems_of(config_path=config_file("[policy\n"))[""]


def test_settings_cannot_be_changed_after_the_start():
    """Frozen, groups included."""
    settings = load({}).settings

    with pytest.raises(ValueError, match="frozen"):
        settings.policy.min_messages = 1


def test_every_setting_has_help_a_default_and_its_own_variable():
    """The table is the documentation."""
    table = known_settings()

    assert all(setting.field.description for setting in table)
    assert not [setting.name for setting in table if setting.field.is_required()]
    assert len({setting.variable for setting in table}) == len(table)


def test_a_file_that_is_no_secret_is_a_setting_like_any_other(tmp_path):
    """`summarizer.prompt_file` names a file to be read later; there is no `summarizer.prompt` to be filled from it."""
    path = tmp_path / "prompt.txt"

    by_flag = load({}, flags={"summarizer.prompt_file": str(path)}).settings
    by_variable = load({"ABRIDGED_SUMMARIZER__PROMPT_FILE": str(path)}).settings

    assert by_flag.summarizer.prompt_file == by_variable.summarizer.prompt_file == path


def test_what_belongs_to_a_database_goes_where_its_url_goes(tmp_path: Path):
    """Refused without one, a secret like it, and replaced with it by a file that a later source names."""
    beside = {"ABRIDGED_LOG__LISTEN_URL": "postgresql://u:canary@db/a", "ABRIDGED_LOG__NAME": "b"}
    assert set(problems_of(beside)) == {"log.listen_url"}
    assert set(problems_of(flags={"log.name": "b"})) == {"log.name"}

    both = load({**beside, "ABRIDGED_LOG__URL": "postgresql://u:canary@pooler/a"})
    assert (both.settings.log.name, "canary" in str(both.shown())) == ("b", False)
    in_file = load({**beside, "ABRIDGED_LOG__URL": "postgresql://pooler/a"}, flags={"log.path": tmp_path / "a.db"})
    assert (in_file.settings.log.name, in_file.settings.log.listen_url) == ("default", None)


def test_archives_need_a_folder():
    """A sidecar that could write none does not start."""
    assert load({"ABRIDGED_LOG__ARCHIVE_DIR": ""}).settings.log.archive_dir is None
    with pytest.raises(ConfigError, match=r"log\.archive_after_s.*set log\.archive_dir"):
        load({}, flags={"log.archive_after_s": 60})
    assert load({}, flags={"log.archive_after_s": 60, "log.archive_dir": "archive"}).settings.log.archive_after_s == 60
