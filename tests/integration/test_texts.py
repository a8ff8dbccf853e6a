"""TextService: a text of any length into one summary, and counts, over a real channel; nothing is kept."""

from __future__ import annotations

import asyncio
import re

import grpc
import pytest

from abridged.service.summarizer.texts import PASSES_OF_A_TEXT
from abridged.service.tokenizers.estimated import EstimatingCounter
from abridged.v1 import conversation_pb2, event_pb2, message_pb2, summary_pb2
from abridged.v1 import conversation_service_pb2 as conversations
from abridged.v1 import server_info_service_pb2 as info
from abridged.v1 import text_service_pb2 as api
from tests.support.answers import hanging, record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import ANY_DRAFT, Sidecar, on_ollama, said, script, sidecar
from tests.support.texts import document, summarized

EXTRACTIVE = {"summarizer.models": ["extractive:default"]}
UNSAID = "Tangerine-Walrus-77"


async def count(s: Sidecar, **fields):
    """CountTokens."""
    return await s.texts.CountTokens(api.CountTokensRequest(**fields), timeout=PATIENCE_S, metadata=s.metadata)


@pytest.mark.parametrize("model", ["scripted:default", "extractive:"])
async def test_a_text_becomes_a_shorter_one_that_says_who_made_it(tmp_path, model):
    """The summary has at most the tokens asked for, as the sidecar counts them."""
    text = document(20)
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        made = (await summarized(s, text, max_tokens=200)).summary

    counter = EstimatingCounter()
    assert made.text.startswith(made.summary)
    assert made.tokens_before == counter.count(text)
    assert 0 < made.tokens_after == counter.count(made.text) <= 200
    assert made.model.startswith(model)
    assert made.quality.reduction == pytest.approx(1 - made.tokens_after / made.tokens_before)
    assert made.error_class == conversation_pb2.ERROR_CLASS_UNSPECIFIED


async def test_the_extract_of_a_document_has_no_speaker_and_takes_no_capitals_for_decisions(tmp_path):
    """A licence decides nothing, and owns no task; nobody says its sentences."""
    clauses = [
        "IN NO EVENT UNLESS REQUIRED BY APPLICABLE LAW OR AGREED TO IN WRITING WILL ANY COPYRIGHT HOLDER BE LIABLE.",
        "License will terminate automatically if You fail to comply with any of its terms.",
        "The licensee receives a copy of the source with every copy of the program that it distributes.",
        "Each contributor grants a patent licence for the claims that its own contributions need.",
    ]
    async with sidecar(tmp_path, EXTRACTIVE) as s:
        made = (await summarized(s, "\n\n".join(clauses * 3), max_tokens=400)).summary

    context = made.context
    assert list(context.participants) == []
    assert [item.owner for item in context.action_items if item.owner] == []
    assert list(context.decisions) == []
    assert "user:" not in made.text


@pytest.mark.parametrize(("paragraphs", "most"), [(20, 1_024), (2, 128)])
async def test_no_summary_is_longer_than_half_of_its_text_or_128_tokens(tmp_path, paragraphs, most):
    """The bound holds whatever `max_tokens` allows."""
    async with sidecar(tmp_path, EXTRACTIVE) as s:
        made = (await summarized(s, document(paragraphs), max_tokens=100_000)).summary

    assert made.tokens_after <= max(128, made.tokens_before // 2) <= max(128, most)


async def test_a_model_that_writes_too_much_is_cut_to_max_tokens_and_said_so(tmp_path):
    """`max_tokens` holds; `clipped` says that the narrative lost its end."""
    words = " ".join(f"table orders_{n} on host db-{n:02d}.example.com" for n in range(1, 41))
    long = record(f"The importer reads {words}.")
    async with FakeOllama(responder=saying(long)) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        made = (await summarized(s, document(40), max_tokens=100)).summary

    assert made.tokens_after <= 100
    assert made.clipped
    assert long.find(made.summary[:60]) > 0


async def test_a_long_text_is_read_in_parts_that_are_merged_level_by_level(tmp_path):
    """One call for each part, merges above them, and progress that counts them all."""
    text = document(600)
    settings = {"policy.max_input_tokens": 2_000, **script(tmp_path, {"default": True})}
    async with sidecar(tmp_path, settings) as s:
        heard = await summarized(s, text, max_tokens=400)

    made = heard.summary
    assert made.tokens_before > 30_000
    assert made.provenance == summary_pb2.PROVENANCE_MERGED
    assert 15 < made.attempts <= 64
    assert made.attempts == heard.progress[-1].calls_done <= heard.progress[-1].calls_total
    assert [p.calls_done for p in heard.progress] == sorted(p.calls_done for p in heard.progress)
    assert made.tokens_after <= 400


async def test_parts_grow_up_to_what_the_model_holds_before_calls_run_out(tmp_path):
    """A text that would take more calls than a pass has, at the size that the policy prefers for parts."""
    model = script(tmp_path, {"default": True}, context_length=65_536)
    settings = {"policy.max_input_tokens": 1_000, "policy.pass_calls_max": 8, **ANY_DRAFT, **model}
    async with sidecar(tmp_path, settings) as s:
        made = (await summarized(s, document(500))).summary

    assert made.tokens_before > 8 * 1_000
    assert made.attempts <= 8
    assert made.provenance == summary_pb2.PROVENANCE_MERGED


async def test_a_text_of_megabytes_is_read_by_a_model_of_8192_tokens(tmp_path):
    """The text takes more calls than a pass has, for its parts cannot grow; all of it is read, in bounded calls."""
    text = document(16_000)[:1_500_000]
    assert len(text) == 1_500_000
    settings = {**ANY_DRAFT, **script(tmp_path, {"default": True}, context_length=8_192)}
    async with sidecar(tmp_path, settings) as s:
        made = (await summarized(s, text, max_tokens=2_000)).summary

    assert 64 < made.attempts <= PASSES_OF_A_TEXT * 64
    assert made.provenance == summary_pb2.PROVENANCE_MERGED


async def test_a_text_that_needs_too_many_calls_is_refused_with_the_size_that_fits(tmp_path):
    """The bound holds, and a caller that cuts the text to that size has its summary."""
    settings = {
        "policy.max_input_tokens": 1_000,
        "policy.pass_calls_max": 4,
        "policy.rebase_calls_max": 4,
        **ANY_DRAFT,
        **script(tmp_path, {"default": True}, context_length=4_096),
    }
    async with sidecar(tmp_path, settings) as s:
        async with refused("FAILED_PRECONDITION", "SUMMARIZATION_FAILED") as refusal:
            await summarized(s, document(2_000))
        assert refusal.metadata["error_class"] == "INVALID"
        figures = re.fullmatch(
            r"its (\d+) tokens need (\d+) model calls, a text has (\d+): about (\d+) tokens fit",
            refusal.metadata["cause"],
        )
        assert figures
        tokens, needed, most, fit = map(int, figures.groups())
        assert most == PASSES_OF_A_TEXT * 4 < needed
        assert fit < tokens

        made = (await summarized(s, document(2_000 * fit // tokens))).summary

    assert made.attempts <= most


@pytest.mark.parametrize("fallback", ["ALWAYS", "EMERGENCY", "NEVER"])
async def test_an_extract_stands_in_for_a_failed_model_only_if_fallback_is_always(tmp_path, fallback):
    """No window waits, so there is no emergency."""
    failing = script(tmp_path, {"error": "refused"})
    wanted = conversation_pb2.Fallback.Value(f"FALLBACK_{fallback}")
    async with sidecar(tmp_path, failing) as s:
        if fallback == "ALWAYS":
            made = (await summarized(s, document(20), fallback=wanted)).summary
            assert made.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
            assert made.error_class == conversation_pb2.ERROR_CLASS_MODEL_REFUSED
            assert made.attempts == 1
        else:
            async with refused("FAILED_PRECONDITION", "SUMMARIZATION_FAILED") as refusal:
                await summarized(s, document(20), fallback=wanted)
            assert refusal.metadata["error_class"] == "MODEL_REFUSED"


@pytest.mark.parametrize(
    ("step", "code", "reason", "error_class"),
    [
        ({"error": "unavailable"}, "UNAVAILABLE", "MODEL_AWAY", "TRANSPORT"),
        ({"error": "missing"}, "FAILED_PRECONDITION", "SUMMARIZATION_FAILED", "MODEL_MISSING"),
        ({"error": "refused"}, "FAILED_PRECONDITION", "SUMMARIZATION_FAILED", "MODEL_REFUSED"),
        ({"error": "truncated"}, "FAILED_PRECONDITION", "SUMMARIZATION_FAILED", "TRUNCATED"),
        ({"text": "not JSON"}, "FAILED_PRECONDITION", "SUMMARIZATION_FAILED", "INVALID"),
    ],
)
async def test_a_failed_model_is_an_error_of_its_class(tmp_path, step, code, reason, error_class):
    """Only a failure that a retry can help is UNAVAILABLE, with a time."""
    async with sidecar(tmp_path, script(tmp_path, step)) as s, refused(code, reason) as refusal:
        await summarized(s, document(20))

    assert refusal.metadata["error_class"] == error_class
    assert refusal.metadata["cause"]
    assert (refusal.retry_s is not None) == (code == "UNAVAILABLE")


async def test_a_client_may_not_set_a_fallback_that_the_operator_keeps(tmp_path):
    """A conversation's policy has the same guard."""
    settings = {"client_policy_fields": ["min_messages"]}
    async with sidecar(tmp_path, settings) as s, refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await summarized(s, document(20), fallback=conversation_pb2.FALLBACK_ALWAYS)

    assert list(refusal.fields) == ["fallback"]


@pytest.mark.parametrize(
    ("text", "said_of_it"),
    [
        ("", "must be set"),
        (" \n\t", "must not be blank"),
        ("PK\x03\x04 of an archive", "U+0003 at character 3"),
        ("a\x00b", "U+0000 at character 2"),
    ],
)
async def test_what_is_no_text_is_refused_with_its_field(tmp_path, text, said_of_it):
    """Empty, blank, binary."""
    async with sidecar(tmp_path) as s, refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await summarized(s, text)

    assert said_of_it in refusal.fields["text"]


async def test_the_output_of_a_terminal_is_text(tmp_path):
    """Colours, form feeds and tabs are no reason to refuse it."""
    async with sidecar(tmp_path, EXTRACTIVE) as s:
        made = (await summarized(s, f"\x1b[31mred\x1b[0m\t\x0c\r\n{document(20)}")).summary

    assert made.summary


@pytest.mark.parametrize("megabytes", [3, 9])
async def test_a_text_over_the_request_limit_is_refused_with_field_and_limit(tmp_path, megabytes):
    """The sidecar itself refuses it, as long as the transport lets it through; GetServerInfo has the limit."""
    async with sidecar(tmp_path) as s:
        async with refused("INVALID_ARGUMENT", "TOO_LARGE") as refusal:
            await summarized(s, "a" * (megabytes << 20))
        limits = (await s.info.GetServerInfo(info.GetServerInfoRequest())).limits

    assert list(refusal.fields) == ["text"]
    assert refusal.metadata["limit"] == str(limits.request_bytes_max)


async def test_too_many_texts_at_once_are_refused_with_a_time(tmp_path):
    """A place is free again when its caller has gone."""
    async with FakeOllama(responder=hanging()) as ollama:
        settings = {**on_ollama(ollama), "summarizer.concurrent_texts": 1}
        async with sidecar(tmp_path, settings) as s:
            held = s.texts.SummarizeText(api.SummarizeTextRequest(text=document(20)), timeout=PATIENCE_S)
            await anext(aiter(held))
            async with refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS") as refusal:
                await summarized(s, document(20))
            assert refusal.retry_s == 5.0
            held.cancel()
            while True:
                again = s.texts.SummarizeText(api.SummarizeTextRequest(text=document(20)), timeout=PATIENCE_S)
                try:
                    await anext(aiter(again))
                except grpc.aio.AioRpcError:  # the first call's place is on its way back
                    continue
                break
            again.cancel()


async def test_one_namespace_leaves_places_to_the_others(tmp_path):
    """Half of them at most, as with everything that is shared."""
    grants = [{"token": name, "namespace": name} for name in ("one", "two")]
    async with FakeOllama(responder=hanging()) as ollama:
        settings = {**on_ollama(ollama), "summarizer.concurrent_texts": 2, "server.tokens": grants}
        async with sidecar(tmp_path, settings) as s:
            s.metadata = [("authorization", "Bearer one")]
            request = api.SummarizeTextRequest(text=document(20))
            held = s.texts.SummarizeText(request, timeout=PATIENCE_S, metadata=s.metadata)
            await anext(aiter(held))
            async with refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS"):
                await summarized(s, document(20))
            other = s.texts.SummarizeText(request, timeout=PATIENCE_S, metadata=[("authorization", "Bearer two")])
            assert (await anext(aiter(other))).HasField("progress")
            held.cancel()
            other.cancel()


async def test_a_server_that_stops_says_so_to_whoever_waits_for_a_summary(tmp_path):
    """UNAVAILABLE: the next process can be asked."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        call = s.texts.SummarizeText(api.SummarizeTextRequest(text=document(20)), timeout=PATIENCE_S)
        await anext(aiter(call))

        async def rest() -> None:
            async for _ in call:
                pass

        async with refused("UNAVAILABLE", "SERVER_STOPPING"):
            await asyncio.gather(rest(), s.stop())


async def test_nothing_of_a_text_is_stored_or_logged(tmp_path):
    """The log of events lacks it, and so does the process's own, even if bad answers are logged."""
    failing = script(tmp_path, {"text": f"not JSON {UNSAID}"})
    async with sidecar(tmp_path, failing, log_content=True) as s:
        async with refused("FAILED_PRECONDITION", "SUMMARIZATION_FAILED") as refusal:
            await summarized(s, f"{document(20)} {UNSAID}")
        await s.stop()

    assert UNSAID not in s.log_text
    assert UNSAID not in refusal.text + str(refusal.metadata)
    stored = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert stored
    assert [path.name for path in stored if UNSAID.encode() in path.read_bytes()] == []


async def test_counts_say_who_counted(tmp_path):
    """Texts without a frame, messages with one, and the caller's own count before any other."""
    text = "Twelve tables were read on host db-07.example.com."
    async with sidecar(tmp_path) as s:
        counted = await count(s, texts=[text, ""], messages=[said(1, text), said(2, tokens=77)])

    of_text = EstimatingCounter().count(text)
    assert [c.tokens for c in counted.texts] == [of_text, 0]
    assert [c.tokens for c in counted.messages] == [of_text + 4, 77]
    assert counted.total_tokens == 2 * of_text + 4 + 77
    assert [c.source for c in counted.messages] == [event_pb2.TOKEN_SOURCE_ESTIMATE, event_pb2.TOKEN_SOURCE_CALLER]
    assert (counted.counter, counted.calibration_factor) == ("estimate:o200k", 1.0)


async def test_estimates_are_corrected_by_what_usage_reports_have_taught(tmp_path):
    """The correction is that of a conversation with the same model."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(model="some-model", context_length=100_000)
        await chat.append(*(said(n, "The importer reads table orders on host db. " * 20) for n in range(1, 5)))
        tokens = (await chat.state()).usage.window_tokens
        report = conversations.ReportUsageRequest(
            conversation_id="c1", message_version=4, prompt_tokens=int(tokens * 1.5)
        )
        await s.conversations.ReportUsage(report)
        plain = await count(s, texts=["word " * 1_000])
        taught = await count(s, texts=["word " * 1_000], model="some-model")

    assert plain.calibration_factor == 1.0 < taught.calibration_factor
    assert taught.total_tokens == pytest.approx(plain.total_tokens * taught.calibration_factor, abs=1)


async def test_a_count_of_nothing_is_refused(tmp_path):
    """The request has neither texts nor messages."""
    async with sidecar(tmp_path) as s, refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await count(s)

    assert list(refusal.fields) == ["texts"]


async def test_a_role_that_is_not_set_is_refused_as_in_an_append(tmp_path):
    """The contract's rules for messages hold here too."""
    async with sidecar(tmp_path) as s, refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await count(s, messages=[message_pb2.Message(content="hello")])

    assert list(refusal.fields) == ["messages[0].role"]
