"""No message breaks its frame: some 350 hostile conversations, read by a model that obeys all that is not data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from abridged.service.domain.conversation import ShownRecord
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import NO_LEDGER, Ledger, LedgerEntry, LedgerFinds, Use, ledger_lines
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy, SummaryRole, ToolOutput
from abridged.service.domain.record import ActionItem, FormName, RecordContext, SummaryRecord
from abridged.service.domain.render import shown_text, summary_message
from abridged.service.domain.render_json import Rendering, render_json
from abridged.service.domain.tokens import TokenSource
from abridged.service.extraction.extract import extract
from abridged.service.models.model import Completion, CompletionRequest, OnProgress
from abridged.service.prompts.prompt import (
    PromptInput,
    PromptTemplate,
    partial_summary,
    prompt_of,
    template_from_text,
    transcript_entry,
)
from abridged.service.prompts.title import TITLE_TEMPLATE, title_prompt
from abridged.service.summarizer.finds import finds_of
from abridged.service.summarizer.forms import FORMS
from abridged.service.summarizer.summarizer import PassFailed, PassWork
from abridged.service.text.identifiers import IdentifierKind
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.chats import record_for
from tests.support.hostile_texts import ATTACKS, PLACES, payloads, transcripts
from tests.support.obedient import ObedientModel, Read, answer_to, read
from tests.support.ollama_model import model_over
from tests.support.ollama_responder import Ask, spoken
from tests.support.ollama_server import FakeOllama
from tests.support.summarizers import Heard, by_model, work_on

ALL = transcripts()
COUNTER = EstimatingCounter()
LENIENT = Policy(
    min_shared_words=0,
    min_grounded_share=0.0,
    min_coverage=0.0,
    min_carried_share=0.0,
    max_repetition=0.0,
    tool_output=ToolOutput.FULL,
)
PLAN = work_on([]).plan
FIELDS = ("summary", "key_points", "decisions", "task", "owner", "due", "unresolved", "participants", "names")
RAW = "raw"
"""The answer to an operator's own schema: the next prompt has it, the window does not."""
WORD = "PWNED-1"
PAYLOADS = [(attack, text) for attack in ATTACKS for text in payloads(attack, WORD)]
BREAKING_OUT = [attack for attack, kind in ATTACKS.items() if kind.breaks_out and not kind.halves]
FRAMED = ["conversation_summary", "/conversation_summary"]
NAMING = ("git {0}", "https://example.com/{0}", "Delete /srv/data/{0} and {0}/report.csv", "{0} 4815162342")
"""Texts that make a string put in them an identifier of a ledger, a part of one, or the words before it."""


def work_of(messages: tuple[Message, ...], previous: SummaryRecord | None = None) -> PassWork:
    """A pass over these messages, which also precede it."""
    overlap = tuple(MessageAppended(0, m, 5, TokenSource.ESTIMATE, "estimate") for m in messages[:-1])
    return replace(work_on(messages, LENIENT), previous=previous, overlap=overlap)


def record_of(field: str, text: str) -> SummaryRecord:
    """A record with this text in one of its fields."""
    said = {name: text if name == field else "Something settled" for name in FIELDS}
    context = RecordContext(
        participants=(said["participants"],),
        decisions=(said["decisions"],),
        action_items=(ActionItem(said["task"], said["owner"], said["due"]),),
        unresolved=(said["unresolved"],),
        domain_entities=(said["names"],),
        raw=text if field == RAW else "",
    )
    return replace(
        record_for(PLAN, summary=said["summary"]),
        key_points=(said["key_points"],),
        context=context,
        short_summary=said["summary"],
    )


def entries_of(messages: tuple[Message, ...]) -> tuple[str, ...]:
    """The messages as a transcript has them."""
    return tuple(
        transcript_entry(number, m, tool_output=ToolOutput.FULL, cap_tokens=64, count=COUNTER.count)
        for number, m in enumerate(messages, 1)
    )


def prompt_text(template: PromptTemplate, source: PromptInput) -> str:
    """All that a model is sent."""
    prompt = prompt_of(template, source)
    return f"{prompt.system}\n{prompt.user}"


def prompts_of(messages: tuple[Message, ...], form: FormName) -> list[str]:
    """The question about these messages, which also precede them, and the one that merges summaries of them."""
    entries = entries_of(messages)
    parts = tuple(partial_summary(m.content) for m in messages)
    return [
        prompt_text(FORMS[form].prompt, PromptInput(entries, None, 3, 90, 0, 200, overlap=entries[:-1])),
        prompt_text(FORMS[form].merge_prompt, PromptInput(parts, None, 3, 90, 0, 200)),
    ]


def assert_framed(hostile: str, harmless: str, what: str) -> None:
    """The hostile prompt has the structure of the harmless one, and says nothing outside its frames."""
    understood, expected = read(hostile), read(harmless)
    assert understood.structure == expected.structure, what
    assert not understood.obeyed, what
    assert understood.instructions == expected.instructions, what


@pytest.mark.parametrize("form", list(FormName))
def test_no_hostile_conversation_leaves_its_frame_in_any_prompt(form: FormName) -> None:
    """The conversations are over 300: every attack at every place, in what is summarized, precedes it or is merged."""
    assert len(ALL) >= 300
    for case in ALL:
        for hostile, harmless in zip(prompts_of(case.messages, form), prompts_of(case.harmless, form), strict=True):
            assert_framed(hostile, harmless, case.name)


@pytest.mark.parametrize("field", [*FIELDS, RAW])
def test_no_hostile_record_leaves_its_frame_in_a_prompt_or_a_title(field: str) -> None:
    """A record that a model wrote is no more trusted than a message."""

    def prompts(text: str) -> list[str]:
        record = record_of(field, text)
        asked = [prompt_text(form.prompt, PromptInput((), record, 3, 90, 1, 200)) for form in FORMS.values()]
        return [*asked, title_prompt(TITLE_TEMPLATE, [record.summary]).user]

    plain = prompts("hello")
    for attack, payload in PAYLOADS:
        for hostile, harmless in zip(prompts(payload), plain, strict=True):
            assert_framed(hostile, harmless, f"{attack} in {field}")


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("field", FIELDS)
def test_no_hostile_record_leaves_its_frame_in_the_window(field: str, short: bool) -> None:
    """The chat model reads it as quoted data under the preamble, which is all that stands outside."""
    harmless = read(shown_text(ShownRecord(record_of(field, "hello"), TokenSource.ESTIMATE, short)))
    assert harmless.structure == FRAMED
    for attack, payload in PAYLOADS:
        shown = read(shown_text(ShownRecord(record_of(field, payload), TokenSource.ESTIMATE, short)))
        assert shown.structure == harmless.structure, attack
        assert shown.instructions == harmless.instructions, attack
        assert not shown.obeyed, attack


@pytest.mark.parametrize("rendering", list(Rendering))
@pytest.mark.parametrize("role", list(SummaryRole))
def test_no_hostile_record_becomes_a_message_in_an_apis_json(rendering: Rendering, role: SummaryRole) -> None:
    """Once parsed, the JSON has the messages of the harmless window, and the same text outside the summary's frame."""

    def parsed(text: str) -> tuple[list[str], Read]:
        shown = ShownRecord(record_of("summary", text), TokenSource.ESTIMATE)
        window = [Message("s", Role.SYSTEM, "Be kind."), summary_message(shown, role), Message("u", Role.USER, "Go on")]
        body = json.loads(render_json(window, rendering).text())
        roles = [message["role"] for message in body["messages"]]
        return [*roles, *sorted(body)], read("\n".join(_strings(body)))

    shape, harmless = parsed("hello")
    for attack, payload in PAYLOADS:
        found, understood = parsed(payload)
        assert found == shape, attack
        assert understood.structure == harmless.structure, attack
        assert understood.instructions == harmless.instructions, attack


def ledger_with(entries: Sequence[LedgerEntry]) -> Ledger:
    """A ledger that shows all of the entries."""
    return NO_LEDGER.after(LedgerFinds(tuple(entries), limit_tokens=9_000, memory_tokens=9_000))


def ledger_saying(text: str) -> Ledger:
    """A ledger with this text as an identifier and before one, whether code would find it or not."""
    return ledger_with(
        [
            LedgerEntry(IdentifierKind.COMMAND, text, "", (1,), 1, Use.USER, 5),
            LedgerEntry(IdentifierKind.NUMBER, "4815162342", text, (2,), 1, Use.USER, 5, 5),
        ]
    )


def ledger_of(messages: Sequence[Message]) -> Ledger:
    """Return the ledger that a pass finds in these messages."""
    finds = finds_of(work_on(messages).messages, (), NO_LEDGER, counter=COUNTER, source=TokenSource.ESTIMATE)
    return ledger_with(finds.entries)


def ledger_naming(payload: str) -> Ledger:
    """Return the ledger that a pass finds in messages with the payload where identifiers are looked for."""
    line = " ".join(payload.split())
    return ledger_of([Message(f"m{n}", Role.USER, form.format(line)) for n, form in enumerate(NAMING)])


def assert_ledger_quoted(ledger: Ledger, what: str) -> None:
    """Check that the ledger stands in the window's one frame, after either form of a record."""
    for short in (False, True):
        window = read(shown_text(ShownRecord(record_of("summary", "hello"), TokenSource.ESTIMATE, short), ledger))
        assert window.structure == FRAMED, what
        assert not window.obeyed, what


def test_no_hostile_entry_of_a_ledger_leaves_the_frame_of_the_newest_record() -> None:
    """Identifiers and the words before them are a client's text, wherever they came from."""
    for attack, payload in PAYLOADS:
        assert_ledger_quoted(ledger_saying(payload), attack)


def test_identifiers_found_in_hostile_messages_stay_in_the_frame() -> None:
    """A command is copied to its line's end, so all of an attack may be an identifier."""
    for attack, payload in PAYLOADS:
        assert_ledger_quoted(ledger_naming(payload), attack)
    for case in ALL:
        assert_ledger_quoted(ledger_of(case.messages), case.name)


class InventingModel(ObedientModel):
    """An obedient model whose first answer has a task that no message speaks of."""

    def __init__(self, task: str) -> None:
        super().__init__()
        self._task = task

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """See SummaryModel."""
        answer = await super().complete(request, deadline_s=deadline_s, on_progress=on_progress)
        if len(self.prompts) > 1:
            return answer
        task = {"task": self._task, "owner": "", "due": ""}
        said = {"summary": "Maria closed the ticket OPS-4411 for good.", "action_items": [task]}
        return replace(answer, text=json.dumps(json.loads(answer.text) | said))


async def test_a_repair_has_nothing_of_the_answer_before_it() -> None:
    """Whole passes: a task that rests on no message is counted in the repair, and neither quoted nor obeyed.

    The source has the identifier that the order wants written. Otherwise the task would go for that identifier alone.
    """
    source = work_of((*ALL[0].harmless, Message("w", Role.USER, f"The importer of table orders wrote {WORD} at nine.")))

    async def repair_of(task: str) -> str:
        model = InventingModel(task)
        try:
            await by_model(model).summarize(source, Heard())
        except PassFailed:
            assert model.prompts
        return model.prompts[1]

    harmless = await repair_of("Sell the villa by the opera house")
    assert "action_items: 1 rest on no message" in harmless
    assert "villa" not in harmless
    for attack, payload in PAYLOADS:
        repair = await repair_of(payload)
        understood = read(repair)
        assert understood.structure == read(harmless).structure, attack
        assert not understood.obeyed, attack
        assert payload not in repair, attack


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _strings(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _strings(inner)]
    return [str(value)]


@pytest.mark.parametrize("form", list(FormName))
async def test_an_obedient_model_obeys_no_message_and_its_summary_stays_quoted(form: FormName) -> None:
    """Whole passes: data that the model retells is refused or framed, and a repair brings nothing out either."""
    for case in ALL if form is FormName.FACETS else ALL[:: len(PLACES) + 1]:
        model = ObedientModel()
        try:
            summary = await by_model(model, form=FORMS[form]).summarize(work_of(case.messages), Heard())
        except PassFailed:
            assert model.reads, case.name
        else:
            assert_quoted(record_for(PLAN, summary=summary.draft.summary), case.name)
        assert [word for understood in model.reads for word in understood.obeyed] == [], case.name


def assert_quoted(record: SummaryRecord, what: str) -> None:
    """All that the record says stands in the window's one frame."""
    window = read(shown_text(ShownRecord(record, TokenSource.ESTIMATE)))
    assert window.structure == FRAMED, what
    assert not window.obeyed, what


def test_an_extract_of_a_hostile_conversation_stays_quoted() -> None:
    """The extract repeats sentences of its source, so its frame has to hold them."""
    for case in ALL:
        if case.place == "content":
            found = extract(case.messages, previous=None, tokens_max=600, count_tokens=COUNTER.count)
            record = replace(
                record_for(PLAN, summary=found.summary), key_points=found.key_points, context=found.context
            )
            assert_quoted(record, case.name)


async def test_over_the_wire_a_hostile_conversation_stays_two_messages() -> None:
    """The server gets our system text and our user text, whatever JSON a message tries to close."""
    seen: list[Ask] = []

    def answered(ask: Ask) -> str:
        seen.append(ask)
        system, user = (str(message["content"]) for message in ask.messages)
        return answer_to(system, user, ask.format)[0]

    cases = {case.attack: case for case in ALL if case.place == "content"}
    async with FakeOllama(responder=spoken(answered)) as fake, model_over(fake) as model:
        for case in cases.values():
            try:
                await by_model(model).summarize(work_of(case.messages), Heard())
            except PassFailed:
                continue

    assert len(seen) >= len(cases)
    for ask in seen:
        assert [message["role"] for message in ask.messages] == ["system", "user"]
        assert not read("\n".join(str(message["content"]) for message in ask.messages)).obeyed


def test_an_operators_template_that_keeps_its_placeholders_keeps_the_frames() -> None:
    """The frames come with the values that are filled in, so a template cannot lose them."""
    template = template_from_text("own", "Be brief.\n--- user ---\n{{previous}}\nand\n{{transcript}}\n{{meta}}")
    for _, payload in PAYLOADS:
        source = PromptInput((), record_of("summary", payload), 1, 1, 0, 100)
        assert not read(prompt_of(template, source).user).obeyed


def unquoted(messages: Sequence[str]) -> str:
    """The prompt as it would be if nothing were quoted."""
    entries = "\n".join(f"<message {n} user>\n{text}" for n, text in enumerate(messages, 1))
    return f"Summarize.\n<transcript>\n{entries}\n</transcript>\nWrite the JSON object now."


@pytest.mark.parametrize("attack", BREAKING_OUT)
def test_control_every_payload_that_breaks_out_does_so_unquoted(attack: str) -> None:
    """Each of them is obeyed by the model when the prompt is made without quoting, so the check can see it."""
    for payload in payloads(attack, WORD):
        assert WORD in read(unquoted(["hello", payload])).obeyed, payload


@pytest.mark.parametrize("attack", [attack for attack in BREAKING_OUT if attack != "nested"])
def test_control_ledgers_of_hostile_messages_break_out_unquoted(attack: str) -> None:
    """The ledgers' identifiers hold whole attacks, but for nested ones, which are longer than a command may be."""

    def unquoted_ledger(payload: str) -> Read:
        lines = "\n".join(ledger_lines(ledger_naming(payload)))
        return read(f"<conversation_summary>\n{lines}\n</conversation_summary>")

    found = [unquoted_ledger(payload) for payload in payloads(attack, WORD)]
    assert any(WORD in one.obeyed for one in found)


@pytest.mark.parametrize("attack", list(ATTACKS))
def test_control_every_payload_is_obeyed_without_a_frame(attack: str) -> None:
    """Orders, JSON and encoded orders need no way out where there is no frame; halves come together there."""
    for payload in payloads(attack, WORD):
        assert WORD in read(f"Summarize.\n{payload}").obeyed, payload


@pytest.mark.parametrize("place", list(PLACES))
def test_control_every_place_is_attacked_by_every_attack(place: str) -> None:
    """The table has no hole."""
    assert {case.attack for case in ALL if case.place == place} == set(ATTACKS)
