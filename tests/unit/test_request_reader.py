"""Reading a request costs no more than its bytes are worth, whatever they hold."""

from __future__ import annotations

from contextlib import suppress

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.api.errors import CompressedRequest, InvalidRequest
from abridged.service.api.request_reader import FIELDS_MAX, RequestReader
from abridged.service.api.server import SERVICES
from abridged.service.api.validation import ALL_LISTED_FIELDS_MAX, Validation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log
from abridged.v1 import message_pb2
from tests.support.command import abridged_process
from tests.support.flood import APPEND, ATTACKS, SUBSCRIBE, UPDATE, field
from tests.support.growth import takes_at_most

VALIDATION = Validation()
READERS: dict[str, RequestReader] = {
    APPEND: RequestReader(api.AppendMessagesRequest.FromString, VALIDATION, 1 << 24),
    UPDATE: RequestReader(api.UpdateConversationRequest.FromString, VALIDATION, 1 << 24),
    SUBSCRIBE: RequestReader(log.SubscribeEventsRequest.FromString, VALIDATION, 1 << 24),
}
READ_AT_MOST = 8.0
"""Largest ordinary appends that a hostile request may cost. Reading one of those takes some three milliseconds."""

_UNKNOWN = 200
_FIELD_15 = 15 << 3
_C1 = field(1, b"c1")

_NUMBERS = st.integers(1, 20)
_CONTENTS = st.recursive(
    st.binary(max_size=8),
    lambda inner: st.lists(st.builds(field, _NUMBERS, inner), max_size=3).map(b"".join),
    max_leaves=8,
)
_FIELDS = st.one_of(
    st.builds(field, _NUMBERS, _CONTENTS),
    st.builds(lambda n, value: bytes((n << 3, value)) if n < 16 else b"", _NUMBERS, st.integers(0, 255)),
    st.builds(lambda n, value: bytes((n << 3 | 1,)) + value, st.integers(1, 15), st.binary(min_size=8, max_size=8)),
    st.builds(lambda n, value: bytes((n << 3 | 5,)) + value, st.integers(1, 15), st.binary(min_size=4, max_size=4)),
)

_SHORT_OF_MEMORY = """
import resource
from pathlib import Path
from abridged.v1 import conversation_service_pb2 as api
from abridged.service.api.request_reader import RequestReader
from abridged.service.api.validation import Validation

read = RequestReader(api.AppendMessagesRequest.FromString, Validation(), 1 << 26)
message = b"\\x1a" + bytes((0x80, 0x80, 0x80, 0x10)) + bytes(0x2000000)
request = b"\\x12" + bytes((0x85, 0x80, 0x80, 0x10)) + message
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), -1))
read(request)
"""
"""A request of one message with 32 MiB of text, and 8 MiB of memory left to parse it in."""


def read(request: tuple[RequestReader, bytes]) -> None:
    """Read a request, whatever comes of it."""
    reader, data = request
    with suppress(InvalidRequest, CompressedRequest):
        reader(data)


def largest_append() -> bytes:
    """512 messages, a megabyte in all."""
    messages = [message_pb2.Message(id=f"m{n}", role=message_pb2.ROLE_USER, content="x" * 2_000) for n in range(512)]
    return api.AppendMessagesRequest(conversation_id="c1", messages=messages).SerializeToString()


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.method in READERS])
def test_no_attack_costs_more_than_a_few_large_appends(name):
    """Counted on the wire before anything is made of it, and refused at the first rule that is broken."""
    attack = ATTACKS[name]
    hostile, ordinary = (READERS[attack.method], attack.request), (READERS[APPEND], largest_append())

    assert takes_at_most(READ_AT_MOST, read, hostile, than=ordinary)


def test_every_field_counts_wherever_it_is():
    """Fields of the request, its messages, its settings and its mask count; one more than allowed is refused."""
    append, update = READERS[APPEND], READERS[UPDATE]
    for reader, request in (
        (append, _C1 + field(2) * FIELDS_MAX),
        (append, _C1 + field(2, field(5) * (FIELDS_MAX - 1))),
        (append, _C1 + field(2, field(12) * (FIELDS_MAX - 1))),
        (append, _C1 + field(5, field(7) * (FIELDS_MAX - 1))),
        (append, _C1 + field(2, b"\x10\x02" * (FIELDS_MAX - 1))),
        (append, _C1 + field(_UNKNOWN) * FIELDS_MAX),
        (update, _C1 + field(3, field(1) * (FIELDS_MAX - 1))),
    ):
        with pytest.raises(InvalidRequest, match=f"more than {FIELDS_MAX} fields"):
            reader(request)


def test_a_request_of_as_many_fields_as_may_be_is_read():
    """The bound refuses nothing else."""
    message = field(2, b"\x10\x02" * (FIELDS_MAX - 2))

    request = READERS[APPEND](_C1 + message)

    assert isinstance(request, api.AppendMessagesRequest)
    assert request.messages[0].role == message_pb2.ROLE_USER


def test_all_violations_of_a_small_request_are_named_and_the_first_of_a_large_one():
    """Telling one costs more than finding it."""
    few, many = ALL_LISTED_FIELDS_MAX - 1, ALL_LISTED_FIELDS_MAX
    with pytest.raises(InvalidRequest) as small:
        READERS[APPEND](_C1 + field(2) * few)
    with pytest.raises(InvalidRequest) as large:
        READERS[APPEND](_C1 + field(2) * many)

    assert len(small.value.violations) > 10
    assert len(large.value.violations) == 1


@given(st.lists(_FIELDS, max_size=6).map(b"".join), st.integers(0, 3))
def test_what_the_parser_takes_is_never_called_no_message(written, cut):
    """However it is made up, and wherever it ends."""
    request = written[: len(written) - cut]
    try:
        READERS[APPEND](request)
    except InvalidRequest as error:
        if "no message" in str(error):
            with pytest.raises(DecodeError):
                api.AppendMessagesRequest.FromString(request)
    except CompressedRequest:
        assert request[0] == _FIELD_15


@pytest.mark.parametrize("compressed", [b"\x1f\x8b\x08\x00", b"\x78\x9c\xed\xc2", b"\x78\x01\x00", b"\x78\xda\x00"])
def test_what_is_compressed_is_not_inflated(compressed):
    """gzip and deflate, by how they begin."""
    with pytest.raises(CompressedRequest):
        READERS[APPEND](compressed)


def test_no_request_of_the_contract_begins_as_something_compressed():
    """Compressed bytes would begin with field 15, a number, or with field 3 of no type."""
    pool = descriptor_pool.Default()
    requests = [m.input_type for name in SERVICES for m in pool.FindServiceByName(name).methods]

    assert requests
    assert not [r.full_name for r in requests for f in r.fields if f.number == 15]


def test_running_out_of_memory_is_not_the_callers_fault():
    """Protobuf has one type for both, so that a server short of memory would call a good request a bad one."""
    ran = abridged_process(program=_SHORT_OF_MEMORY)

    assert ran.err.strip().endswith("MemoryError"), ran.err
