"""The policy's settings, made from the domain's table of fields: names, types, ranges and defaults are there, help is
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Annotated, Any, get_origin, get_type_hints

from pydantic import BeforeValidator, Field

from abridged.service.domain.policy import RANGES, Policy, Range

_HELP: Mapping[str, str] = {
    "profile": "Rules by which passes run, fixed when a conversation opens.",
    "enabled": "Off stops new passes at once; appends and reads continue.",
    "trigger_token_ratio": "Ratio that triggers a pass.",
    "reset_token_ratio": "Ratio that arms the trigger again.",
    "emergency_token_ratio": "Ratio that ignores min_messages, cooldown and hysteresis.",
    "prepare_token_ratio": "CHAIN: ratio from which a record is prepared before its trigger, e.g. 0.65; 0 for never.",
    "notice_token_ratio": "CHAIN: ratio from which a notice says what the next pass takes out; 0 for never.",
    "min_messages": "Messages of the conversation before its first pass.",
    "preserve_recent": "Newest messages kept, at most; the user's newest, pending calls and the last two always stay.",
    "tail_token_ratio": "Share of the budget that the kept messages may take; 0 keeps them whatever their tokens.",
    "after_pass_token_ratio": "CHAIN: share of a budget above 8,192 that record, ledger and longer tail fill; 0: none.",
    "pin_token_ratio": "Share of the budget that pinned messages may take.",
    "cooldown_messages": "Fewest messages between passes.",
    "rearm_messages": "Messages that arm the trigger if the ratio stays above the reset.",
    "min_range_tokens": "Fewest tokens worth a pass.",
    "min_gain": "Share that a summary must save to be committed.",
    "min_freed_token_ratio": "CHAIN: share of the budget that a pass has to free, or it waits; 0 for none.",
    "defer_while_warm_s": "CHAIN: seconds for which a pass waits while its chat's prompt is cached, e.g. 240; 0: none.",
    "max_summary_chain_depth": "Most records that build on one another.",
    "on_depth_limit": "At that depth: stop, or begin a new chain, from originals if needed.",
    "rebase_calls_max": "Most model calls of a rebase that reads more than one call holds.",
    "rewrites_max": "Records a text may pass through before originals are read again.",
    "pass_calls_max": "Most model calls of one pass, including repairs and retries.",
    "force_refresh_after_messages": "Start a pass after this many messages at the latest; 0 for never.",
    "max_summary_tokens": "Largest summary; 0 for an eighth of a budget of 4,096 to 8,192, else by its root.",
    "max_input_tokens": "Largest source of one model call; a larger one is split and merged.",
    "repair_attempts": "How often a model gets the reasons why its answer was refused, to repair it.",
    "min_shared_words": "Fewest words a draft shares with its source; a short source requires fewer.",
    "min_grounded_share": "Smallest share of a draft's words that occur in its source; 0 for no floor.",
    "min_coverage": "Smallest share of the source's parts that a draft covers, or code completes it; 0 for no floor.",
    "min_identifier_survival": "Smallest share of the required identifiers that a draft keeps; 0 for no floor.",
    "min_carried_share": "Smallest share of earlier decisions and open points kept; 0 for no floor.",
    "min_remake_share": "Share of what a fallback record keeps that its remake must keep; 0 for no floor.",
    "max_repetition": "Largest share of a draft that may repeat itself; 0 for no ceiling.",
    "fallback": "When the extractive summarizer makes a record that a model could not.",
    "abort_on_failure": "Whether GetContext fails if the pass that it waited for failed; a call can ask for it, too.",
    "tool_output": "Tool results in prompts; `capped` truncates them if one call cannot hold the source.",
    "tool_output_tokens_max": "Most tokens of a capped tool result.",
    "summary_role": "Role of the summary in the context.",
    "clearing": "Replace old tool results by one-line marks, without a model call, if that is enough.",
    "clear_keep_tool_units": "Newest answered tool calls whose results are never cleared.",
    "clear_min_tokens": "Smallest tool result that is worth clearing.",
    "clear_exclude_tools": "Tools whose results are never cleared.",
    "threshold_tokens": "ROLLING: a window of more tokens triggers a pass, if trigger_token_ratio does not first.",
    "threshold_messages": "ROLLING: so does a window of more messages; pinned and system ones do not count.",
    "min_new_messages": "ROLLING: fewest messages between passes, except in an emergency.",
    "min_new_exchanges": "ROLLING: fewest answered user messages between passes; a pass then covers whole exchanges.",
    "record_token_ratio": "ROLLING: share of the budget that all records may take; then the oldest two are merged.",
    "ledger_token_ratio": "Share of the budget that the ledger of identifiers may take; 0 for no ledger.",
    "rules_token_ratio": "Share of the budget for standing and tentative rules, more below 4,096; 0 shows none.",
    "max_ledger_tokens": "Most tokens of the ledger; CHAIN: above 2,000 only as after_pass_token_ratio leaves room.",
    "record_form": "What a model writes: `facets` (JSON with lists) or `text` (3 to 5 sentences).",
    "episode_trigger_messages": "EPISODES: messages outside episodes that trigger a pass.",
    "min_episode_size": "EPISODES: fewest messages before a topic shift ends an episode.",
    "max_episode_size": "EPISODES: messages after which an episode ends without a shift.",
    "episode_overlap": "EPISODES: messages of the previous episode that a prompt quotes; below min_episode_size.",
    "episode_token_ratio": "EPISODES: share of the budget for older short summaries before they are merged.",
}


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


IN_LOWER_CASE = BeforeValidator(_lower)
"""Takes a name of an enumeration in any case."""


def policy_fields() -> dict[str, Any]:
    """The type and pydantic field of each field of the policy, in its order, as `create_model` takes them."""
    types = get_type_hints(Policy)
    return {
        f.name: (_type(f.name, types[f.name]), Field(default=f.default, description=_HELP[f.name]))
        for f in fields(Policy)
    }


def _type(name: str, kind: type) -> Any:
    if name in RANGES:
        return Annotated[kind, _bounds(RANGES[name])]
    return Annotated[kind, IN_LOWER_CASE] if get_origin(kind) is None and issubclass(kind, Enum) else kind


def _bounds(allowed: Range) -> Any:
    return Field(
        gt=allowed.low if allowed.above else None,
        ge=None if allowed.above else allowed.low,
        lt=allowed.high if allowed.below else None,
        le=None if allowed.below else allowed.high,
    )
