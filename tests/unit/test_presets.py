"""The preset files load, and agree with the designs that they are named for."""

from __future__ import annotations

from abridged.service.config.sources import load
from abridged.service.domain.policy import DepthLimit, Fallback, ProfileName, room_ratio, summary_cap
from abridged.service.domain.record import FormName
from tests.support.presets import PRESETS


def test_the_preset_of_s1_has_the_numbers_of_s1() -> None:
    """Ratio 0.80, reset 0.70, 12 messages, 6 kept however large the window, depth 3 and then a halt, cooldown 4, no
    repair, no stand-in."""
    settings = load({}, config_path=PRESETS / "s1.toml").settings

    policy = settings.policy_for("ollama:qwen2.5:3b")
    assert (policy.trigger_token_ratio, policy.reset_token_ratio) == (0.8, 0.7)
    assert (policy.min_messages, policy.preserve_recent, policy.cooldown_messages) == (12, 6, 4)
    assert (policy.max_summary_chain_depth, policy.on_depth_limit) == (3, DepthLimit.HALT)
    assert (policy.repair_attempts, policy.fallback) == (0, Fallback.NEVER)
    assert room_ratio(policy, budget=1_000_000) == 0
    assert settings.summarizer.retries == 1


def test_the_preset_of_s0_has_the_numbers_of_s0() -> None:
    """200 tokens, 5 new exchanges, 800 tokens a summary, plain text, temperature 0.2, 500 tokens an answer, qwen2.5:3b
    on this machine."""
    settings = load({}, config_path=PRESETS / "s0.toml").settings

    policy = settings.policy_for("ollama:qwen2.5:3b")
    assert (policy.profile, policy.record_form) == (ProfileName.ROLLING, FormName.TEXT)
    assert (policy.threshold_tokens, policy.min_new_exchanges, policy.max_summary_tokens) == (200, 5, 800)
    assert settings.summarizer.num_predict == 500
    assert (settings.summarizer.models, settings.summarizer.temperature) == (("ollama:qwen2.5:3b",), 0.2)
    assert settings.ollama.hosts == ("http://localhost:11434",)


def test_the_preset_of_s2_has_the_numbers_of_s2() -> None:
    """More than 20 messages or 4,000 tokens, the last 4 verbatim, structured records, and titles."""
    settings = load({}, config_path=PRESETS / "s2.toml").settings

    policy = settings.policy_for("ollama:qwen2.5:3b")
    assert (policy.profile, policy.record_form) == (ProfileName.ROLLING, FormName.FACETS)
    assert (policy.threshold_messages, policy.threshold_tokens, policy.preserve_recent) == (20, 4_000, 4)
    assert settings.titles.enabled


def test_the_preset_of_s4_has_the_numbers_of_s4() -> None:
    """A run at 10 messages, episodes of 20 at most, an overlap of 2, a stand-in for any failure."""
    settings = load({}, config_path=PRESETS / "s4.toml").settings

    policy = settings.policy_for("ollama:qwen2.5:3b")
    assert policy.profile is ProfileName.EPISODES
    assert (policy.episode_trigger_messages, policy.max_episode_size, policy.episode_overlap) == (10, 20, 2)
    assert (policy.min_episode_size, policy.preserve_recent, policy.fallback) == (4, 2, Fallback.ALWAYS)


def test_the_preset_of_s3_has_the_numbers_of_s3() -> None:
    """256 tokens at most, 4,000 a call, 30 s, one request, and the extract whenever a model fails."""
    environ = {"SUMMARY_MODEL": "gemma:2b", "LLM_MODEL": "qwen2.5:7b"}
    settings = load(environ, config_path=PRESETS / "s3.toml").settings

    policy = settings.policy_for("")
    assert (policy.max_summary_tokens, policy.max_input_tokens) == (256, 4_000)
    assert (policy.fallback, policy.repair_attempts, settings.summarizer.retries) == (Fallback.ALWAYS, 0, 0)
    assert (settings.ollama.first_byte_timeout_s, settings.ollama.stall_timeout_s) == (30.0, 30.0)
    assert settings.summarizer.models == ("ollama:gemma:2b",)
    assert summary_cap(policy, budget=8_192, replaced_tokens=1_252) == 256
    assert summary_cap(policy, budget=8_192, replaced_tokens=300) == 150
    assert summary_cap(policy, budget=8_192, replaced_tokens=100) == 128


def test_every_preset_loads() -> None:
    """No preset has a setting that does not exist or a policy that cannot work."""
    files = sorted(PRESETS.glob("*.toml"))

    assert files
    for file in files:
        load({}, config_path=file).settings.policy_for("")
