"""Stored events: every one comes back as it was, and one that cannot be read is refused, not guessed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abridged.service.codec import enums
from abridged.service.codec.events import ERASED, EVENT_TYPES, UnknownEvent, decode, encode
from abridged.service.codec.values import (
    canonical,
    message_from_proto,
    message_to_proto,
    overrides_from_proto,
    overrides_to_proto,
    policy_from_proto,
    policy_to_proto,
    settings_from_proto,
    settings_to_proto,
    timestamp,
    timestamp_us,
)
from abridged.service.domain import events as domain
from abridged.service.domain.ledger import LedgerEntry, LedgerFinds, Replaced, Use
from abridged.service.domain.message import Attachment, Message, Role, ToolCall
from abridged.service.domain.policy import Policy, ProfileName
from abridged.service.domain.receipt import Receipt, ReceiptItem, ReceiptKind, ReceiptLine, ReceiptPlace
from abridged.service.domain.record import (
    ActionItem,
    EpisodeFigures,
    FormName,
    MessageRange,
    Provenance,
    RecordContext,
    RecordQuality,
    SummaryRecord,
)
from abridged.service.domain.rules import FoundRule, RevokedRule, RuleFinds, RuleName
from abridged.service.domain.tokens import TokenSource
from abridged.service.text.identifiers import IdentifierKind
from abridged.v1 import conversation_pb2, event_pb2

EXAMPLES = 40
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COUNT = st.integers(0, 2**31 - 1)
TIME_US = st.integers(0, 4_000_000_000_000_000)
RATIO = st.floats(0, 4)
ITEMS = st.lists(TEXT, max_size=3).map(tuple)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3).map(MappingProxyType)
RANGES = st.lists(st.tuples(COUNT, st.integers(0, 500)).map(lambda r: MessageRange(r[0], r[0] + r[1])), max_size=3).map(
    tuple
)
MESSAGES = st.builds(
    Message,
    id=TEXT,
    role=st.sampled_from(Role),
    content=TEXT,
    name=TEXT,
    tool_calls=st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=3).map(tuple),
    tool_call_id=TEXT,
    attachments=st.lists(st.builds(Attachment, TEXT, TEXT, COUNT, TEXT), max_size=2).map(tuple),
    create_time_us=TIME_US,
    token_count=st.none() | COUNT,
    user_id=TEXT,
    agent_id=TEXT,
    labels=LABELS,
    is_continuation=st.none() | st.booleans(),
    sentiment=st.none() | RATIO,
    flows=ITEMS,
    tools=ITEMS,
)
TOOLS = st.lists(TEXT, min_size=1, max_size=3).map(tuple)
POLICIES = st.builds(
    Policy, trigger_token_ratio=RATIO, min_messages=COUNT, enabled=st.booleans(), clear_exclude_tools=TOOLS
)
OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        f.name: st.sampled_from(type(f.default)) if isinstance(f.default, Enum) else st.just(f.default)
        for f in fields(Policy)
        if f.default != ()
    }
    | {"clear_exclude_tools": TOOLS},
).map(MappingProxyType)
SETTINGS = st.builds(
    domain.Settings,
    model=TEXT,
    requested_context_length=COUNT,
    context_length=COUNT,
    context_length_source=st.sampled_from(domain.ContextLengthSource),
    reserved_output_tokens=COUNT,
    overhead_tokens=COUNT,
    calibration_factor=RATIO,
    policy=OVERRIDES,
    title=TEXT,
    labels=LABELS,
    profile=st.sampled_from(ProfileName),
)
RECORDS = st.builds(
    SummaryRecord,
    id=TEXT,
    create_time_us=TIME_US,
    depth=COUNT,
    parent_id=TEXT,
    summary=TEXT,
    key_points=ITEMS,
    context=st.builds(
        RecordContext,
        ITEMS,
        ITEMS,
        st.lists(st.builds(ActionItem, TEXT, TEXT, TEXT), max_size=2).map(tuple),
        ITEMS,
        ITEMS,
        TEXT,
    ),
    covered=RANGES,
    tokens_before=COUNT,
    tokens_after=COUNT,
    model=TEXT,
    prompt_name=TEXT,
    prompt_version=TEXT,
    provenance=st.sampled_from(Provenance),
    attempts=COUNT,
    latency_ms=COUNT,
    quality=st.builds(RecordQuality, RATIO, COUNT, RATIO),
    label=TEXT,
    short_summary=TEXT,
    short_tokens=COUNT,
    episode=st.none() | st.builds(EpisodeFigures, COUNT, st.none() | RATIO, st.none() | RATIO, ITEMS, ITEMS),
)
PLANS = st.builds(
    domain.PassPlan,
    pass_id=TEXT,
    trigger=st.sampled_from(domain.Trigger),
    covered=RANGES,
    source=RANGES,
    base_id=TEXT,
    parent_id=TEXT,
    depth=COUNT,
    token_ratio=RATIO,
    message_version=COUNT,
    replaced_tokens=COUNT,
    summary_tokens_max=COUNT,
    policy=POLICIES,
    rebase=st.booleans(),
    replaces_id=TEXT,
    beside_ids=ITEMS,
    form=st.sampled_from(FormName),
    merged_ids=ITEMS,
    label=TEXT,
    short_ids=ITEMS,
    overlap=RANGES,
)
VERSIONS = {"SummarizationCompleted": 2}
SOURCES = st.sampled_from(TokenSource)
NAMES = st.lists(TEXT, max_size=3).map(tuple)
NUMBERS = st.lists(COUNT, max_size=3).map(tuple)

ENTRIES = st.builds(
    LedgerEntry, st.sampled_from(IdentifierKind), TEXT, TEXT, NUMBERS, COUNT, st.sampled_from(Use), COUNT, COUNT, COUNT
)
FINDS = st.builds(
    LedgerFinds,
    st.lists(ENTRIES, max_size=3).map(tuple),
    st.lists(st.builds(Replaced, TEXT, COUNT), max_size=3).map(tuple),
    COUNT,
    COUNT,
    SOURCES,
)
RECEIPTS = st.none() | st.builds(
    Receipt,
    st.lists(
        st.builds(
            ReceiptLine,
            st.sampled_from(ReceiptKind),
            st.sampled_from(ReceiptPlace),
            COUNT,
            st.lists(st.builds(ReceiptItem, TEXT, COUNT), max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)
RULES = st.builds(
    RuleFinds,
    st.lists(st.builds(FoundRule, TEXT, COUNT, COUNT, st.floats(0, 2)), max_size=3).map(tuple),
    st.lists(st.builds(RevokedRule, TEXT, COUNT, COUNT), max_size=3).map(tuple),
    COUNT,
    SOURCES,
)
MARKS = st.lists(st.builds(domain.ResultMark, COUNT, TEXT, COUNT), max_size=3).map(tuple)

EVENTS = {
    "ConversationOpened": st.builds(domain.ConversationOpened, TEXT, SETTINGS),
    "SettingsChanged": st.builds(domain.SettingsChanged, SETTINGS),
    "MessageAppended": st.builds(domain.MessageAppended, COUNT, MESSAGES, COUNT, SOURCES, TEXT, st.just(0)),
    "UsageReported": st.builds(domain.UsageReported, COUNT, TEXT, COUNT, COUNT, COUNT, RATIO),
    "SummarizationRequested": st.builds(domain.SummarizationRequested, PLANS),
    "SummarizationStarted": st.builds(domain.SummarizationStarted, TEXT, COUNT, TEXT),
    "SummarizationReleased": st.builds(domain.SummarizationReleased, TEXT),
    "SummarizationCompleted": st.builds(
        domain.SummarizationCompleted,
        TEXT,
        RECORDS,
        SOURCES,
        st.booleans(),
        marks=MARKS,
        finds=FINDS,
        receipt=RECEIPTS,
        rules=RULES,
    ),
    "SummarizationCleared": st.builds(domain.SummarizationCleared, PLANS, MARKS, RECEIPTS),
    "SummaryRevoked": st.builds(domain.SummaryRevoked, TEXT, NAMES, NAMES, NAMES),
    "SummaryRated": st.builds(domain.SummaryRated, TEXT, st.sampled_from(domain.Rating), TEXT),
    "TitleChanged": st.builds(domain.TitleChanged, TEXT, TEXT),
    "MessagesPinned": st.builds(domain.MessagesPinned, NUMBERS),
    "MessagesUnpinned": st.builds(domain.MessagesUnpinned, NUMBERS),
    "MessagesRedacted": st.builds(
        domain.MessagesRedacted,
        NUMBERS,
        NAMES,
        NAMES,
        NAMES,
        FINDS,
        RULES,
        st.lists(st.builds(RuleName, COUNT, TEXT), max_size=3).map(tuple),
    ),
    "RulesDropped": st.builds(domain.RulesDropped, st.lists(st.builds(RuleName, COUNT, TEXT), max_size=3).map(tuple)),
    "ConversationForked": st.builds(domain.ConversationForked, TEXT, TEXT, COUNT, COUNT),
    "ConversationClosed": st.builds(domain.ConversationClosed),
    "ConversationReopened": st.builds(domain.ConversationReopened),
    "ConversationErased": st.builds(domain.ConversationErased, TEXT, COUNT, TEXT, COUNT),
    "ConversationArchived": st.builds(
        domain.ConversationArchived, TEXT, COUNT, COUNT, TEXT, COUNT, TEXT, st.dictionaries(TEXT, TEXT), TEXT, TEXT
    ),
    "ConversationUnarchived": st.builds(domain.ConversationUnarchived),
    "TextPurged": st.builds(domain.TextPurged, COUNT),
    "ConversationRewound": st.builds(domain.ConversationRewound, COUNT, NAMES, NAMES, NAMES),
    "SummarizationFailed": st.builds(
        domain.SummarizationFailed,
        pass_id=TEXT,
        error_class=st.sampled_from(domain.ErrorClass),
        attempts=COUNT,
        retryable=st.booleans(),
        wait_messages=COUNT,
        wait_until_us=TIME_US,
        output_bytes=COUNT,
        output_hash=st.binary(max_size=8),
        cause=st.text(max_size=8),
        asked=st.booleans(),
    ),
    "SummarizationSkipped": st.builds(
        domain.SummarizationSkipped,
        reason=st.sampled_from(domain.SkipReason),
        pass_id=TEXT,
        attempts=COUNT,
        wait_messages=COUNT,
        wait_until_us=TIME_US,
    ),
}
PAIRED: list[Any] = [member for member in vars(enums).values() if isinstance(member, enums.EnumMap)]


@pytest.mark.parametrize("name", EVENTS)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_every_event_comes_back_as_it_was(name, data):
    """Every field of every type; the same event has the same bytes, however often it is written and read."""
    event = data.draw(EVENTS[name])
    type_name, version, payload = encode(event)

    assert (type_name, version) == (name, VERSIONS.get(name, 1))
    assert decode(type_name, version, payload) == event
    assert encode(decode(type_name, version, payload))[2] == payload


def test_every_event_type_is_in_the_registry_and_in_these_tests():
    """A new type is stored, and tested, or this fails."""
    names = {kind.__name__ for kind in domain.Event.__args__}

    assert set(EVENT_TYPES) == set(EVENTS) == names - {domain.ErasedEvent.__name__}


@pytest.mark.parametrize("name", EVENTS)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_an_erased_event_is_told_from_every_other(name, data):
    """Erased events decode alike, whatever their type was; no event with a content has their payload."""
    assert decode(name, 1, ERASED) == domain.ErasedEvent()
    assert encode(data.draw(EVENTS[name]))[2] != ERASED


def test_bytes_do_not_depend_on_the_order_of_labels():
    """Maps are written sorted: the same content has one form."""
    forwards = Message("m", Role.USER, labels={"a": "1", "b": "2"})
    backwards = Message("m", Role.USER, labels={"b": "2", "a": "1"})

    assert encode(domain.MessageAppended(1, forwards, 1, TokenSource.CALLER)) == encode(
        domain.MessageAppended(1, backwards, 1, TokenSource.CALLER)
    )
    assert canonical(message_to_proto(forwards)) == canonical(message_to_proto(backwards))


@given(MESSAGES, st.integers(1, 1 << 40), COUNT)
def test_a_messages_own_bytes_spare_encoding_it_again(message, number, tokens):
    """The event around the client's bytes is the same to the last byte."""
    event = domain.MessageAppended(number, message, tokens, TokenSource.CALLER, "test")

    assert encode(event, sent=canonical(message_to_proto(message))) == encode(event)


@pytest.mark.parametrize(
    ("type_name", "version"), [("MessageForgotten", 1), ("", 1), ("MessageAppended", 2), ("MessageAppended", 0)]
)
def test_an_unknown_type_or_version_is_refused(type_name, version):
    """Skipping an event would falsify everything after it."""
    with pytest.raises(UnknownEvent, match="version"):
        decode(type_name, version, b"")


@pytest.mark.parametrize("name", EVENTS)
@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read_but_never_crashes(name, payload):
    """Any bytes of any version decode to an event of the type, or raise UnknownEvent."""
    for version in range(1, VERSIONS.get(name, 1) + 1):
        with suppress(UnknownEvent):
            assert type(decode(name, version, payload)).__name__ == name


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff\xff",
        event_pb2.MessageAppended(number=1).SerializeToString(),
        event_pb2.MessageAppended(message=message_to_proto(Message("m", Role.USER))).SerializeToString() + b"\x20\x63",
    ],
    ids=["broken", "no role", "a newer source"],
)
def test_an_unreadable_payload_is_refused_with_its_cause(payload):
    """Broken bytes, a missing enum and a number of a newer contract."""
    with pytest.raises(UnknownEvent, match="unreadable payload") as refused:
        decode("MessageAppended", 1, payload)
    assert refused.value.__cause__ is not None


@given(RECORDS)
@settings(max_examples=EXAMPLES)
def test_a_record_of_the_first_schema_version_keeps_its_latency(record):
    """The latency was a number of milliseconds; every other field is read as it stands."""
    event = domain.SummarizationCompleted("p", replace(record, latency_ms=0), TokenSource.CALLER, fallback=False)
    latency_ms = b"\x88\x01\xd2\x09"  # field 17 of the record, 1,234

    decoded = decode("SummarizationCompleted", 1, encode(event)[2] + b"\x12\x04" + latency_ms)

    assert decoded == replace(event, record=replace(record, latency_ms=1_234))


@pytest.mark.parametrize("paired", PAIRED)
def test_every_enum_has_its_twin_in_both_directions(paired):
    """No member of either side is left out; UNSPECIFIED is nobody's."""
    members = list(paired._to)
    contract = {value for value in paired._to.values() if value}

    assert [paired.to_domain(paired.to_proto(member)) for member in members] == members
    assert len(contract) == len(members) == len(type(members[0]).__members__)
    with pytest.raises(KeyError):
        paired.to_domain(0)


def test_no_enum_of_the_contract_has_a_member_that_the_domain_lacks():
    """A member that a newer contract adds must be given a meaning before it is stored."""
    pairs: dict[Any, Any] = {
        enums.TRIGGERS: conversation_pb2.Trigger,
        enums.ERROR_CLASSES: conversation_pb2.ErrorClass,
        enums.SKIP_REASONS: conversation_pb2.SkipReason,
        enums.DEPTH_LIMITS: conversation_pb2.DepthLimit,
        enums.FALLBACKS: conversation_pb2.Fallback,
        enums.TOOL_OUTPUTS: conversation_pb2.ToolOutput,
        enums.SUMMARY_ROLES: conversation_pb2.SummaryRole,
        enums.TOKEN_SOURCES: event_pb2.TokenSource,
    }

    for paired, contract in pairs.items():
        assert set(paired._from) == set(contract.values()) - {0}


def test_every_policy_field_is_in_the_contract():
    """A plan carries its whole policy, so a field that the contract lacks could not be replayed."""
    contract = {f"{f.name}_s" if f.message_type else f.name for f in conversation_pb2.PolicyOverrides.DESCRIPTOR.fields}

    assert contract == {f.name for f in fields(Policy)}
    without_presence = {f.name for f in conversation_pb2.PolicyOverrides.DESCRIPTOR.fields if not f.has_presence}
    lists = {f.name for f in conversation_pb2.PolicyOverrides.DESCRIPTOR.fields if f.is_repeated}
    enums = {f.name for f in conversation_pb2.PolicyOverrides.DESCRIPTOR.fields if f.enum_type}
    assert without_presence == lists | enums
    assert lists == {f.name for f in fields(Policy) if f.default == ()}


@given(POLICIES)
def test_a_policy_is_stored_whole(policy):
    """Fields with today's default are stored, too: tomorrow's default must not change yesterday's plan."""
    assert policy_from_proto(policy_to_proto(policy)) == policy
    assert set(overrides_from_proto(policy_to_proto(policy))) == {f.name for f in fields(Policy)}


@given(OVERRIDES)
def test_only_what_was_set_is_set(overrides):
    """An override of zero is an override; a field that is not set stays the operator's."""
    assert overrides_from_proto(overrides_to_proto(overrides)) == overrides
    zero = MappingProxyType({**overrides, "min_messages": 0, "enabled": False})
    assert overrides_from_proto(overrides_to_proto(zero)) == zero


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message):
    """A count of zero is a count, and differs from a missing one."""
    for counted in (message, message._replace(token_count=0), message._replace(token_count=None)):
        assert message_from_proto(message_to_proto(counted)) == counted


@given(TIME_US)
def test_times_are_exact_to_the_microsecond(us):
    """Finer times are cut, never rounded into the future."""
    assert timestamp_us(timestamp(us)) == us


def test_settings_from_before_there_were_profiles_are_of_profile_chain():
    """The rules under which they were written; a profile of a newer version is refused, not guessed."""
    proto = settings_to_proto(domain.Settings())
    assert proto.profile == conversation_pb2.PROFILE_CHAIN

    proto.ClearField("profile")
    assert settings_from_proto(proto).profile is ProfileName.CHAIN
    unknown = event_pb2.ResolvedSettings(context_length_source=proto.context_length_source, profile=cast(Any, 99))
    with pytest.raises(UnknownEvent):
        decode("SettingsChanged", 1, event_pb2.SettingsChanged(settings=unknown).SerializeToString())
