"""The whole measurement, and docs/quality.md, which is made of it: goals beside figures, met or missed."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from abridged.service.models.model import SummaryModel
from bench.player import MODEL_WINDOW
from bench.quality import runs, written
from bench.quality.examined import Share
from bench.quality.lossy import LossyModel
from bench.quality.probes import HITS, PROBES, Answers, probe_chats, probed
from bench.quality.reporting import FaithfulModel, LieKind
from bench.quality.runs import CHAIN, PROFILES, Corpus, Run, Summarizing
from bench.quality.survival import END, PASSES
from bench.quality.trials import Failures, Pins, TokenErrors, failing_tried, lies_told, pins_tried, token_errors

_REQUIRED_GOALS: Final = {1: 0.99, 3: 0.98, 10: 0.95}
_FREED_MEDIAN: Final = 0.7
_ALIVE: Final = 0.95
_LEDGER_SHARE: Final = 0.15
_NOISE: Final = 0.05
_LIES_CAUGHT: Final = 0.95
_EVIDENCE_RIGHT, _EVIDENCE_WRONG = 0.95, 0.02
_STATEMENTS_MIN: Final = 50
"""The least number of statements of which a share says anything."""

_PINNED_PASSES: Final = 50
_FROM_WINDOW, _WITH_TOOLS, _TOKENS = 0.6, 0.9, 0.25
_TOKEN_ERROR, _TOKEN_ERROR_P95 = 0.03, 0.1
_WRITTEN_VALUES: Final = {4_096: 0.92, 2_048: 0.80}
_WRITTEN_NAMED, _WRITTEN_SAID, _WRITTEN_RULES = 0.8, 0.95, 0.9
_HONEST_LOST = 0.03

Row = tuple[str, ...]


@dataclass(slots=True)
class Measured:
    """Everything that was measured; `errors` are the token errors by corpus, None where they could not be compared."""

    runs: list[Run] = field(default_factory=list)
    real: list[Run] = field(default_factory=list)
    answers: dict[str, Answers] = field(default_factory=dict)
    pins: Pins = field(default_factory=Pins)
    failures: Failures = field(default_factory=Failures)
    lies: dict[LieKind, Share] = field(default_factory=dict)
    errors: dict[str, TokenErrors | None] = field(default_factory=dict)
    written: list[written.Half] = field(default_factory=list)


async def measured(data: Path | None, asked: SummaryModel | None, progress: Callable[[str], None]) -> Measured:
    """Measure on generated conversations, on the chats of the folder `data`, and with the real model `asked`."""
    found = Measured()
    generated = runs.generated_corpus()
    lossy, extractive = runs.lossy(), Summarizing("extractive")
    every = [runs.faithful([generated]), lossy, extractive]
    if asked is not None:
        every.append(Summarizing(asked.name, asked))
    async for run in _all_runs(generated, every, runs.corpora_in(data) if data else [], [lossy, extractive]):
        found.runs.append(run)
        progress(" ".join(runs.row(run)[:3]))
    real = runs.real_chats(data) if data else []
    for corpus in real:
        found.real += [await runs.run(corpus, CHAIN, who, every=True) for who in (lossy, extractive)]
        progress(f"{corpus.name}, as they are")
    found.errors = {corpus.name: token_errors(corpus.chats) for corpus in (generated, *real)}
    found.pins = await pins_tried(CHAIN.policy)
    progress("pins")
    found.failures = await failing_tried([strategy.policy for strategy in PROFILES])
    progress("bad answers")
    found.lies = await lies_told(CHAIN.policy)
    progress("lies")
    found.written = await written.halves(written.CHATS)
    progress("chats by other writers")
    async with probe_chats() as probing:
        facts = [fact for chat in probing.chats for fact in chat.facts]
        models: list[SummaryModel | None] = [FaithfulModel(facts, window=MODEL_WINDOW)]
        models += [LossyModel(window=MODEL_WINDOW), None]
        for model in models:
            name = model.name if model else "extractive"
            found.answers[name] = await probed(probing, CHAIN.policy, model)
            progress(f"probes {name}")
    return found


async def _all_runs(
    generated: Corpus, every: Sequence[Summarizing], joined: Sequence[Corpus], built_in: Sequence[Summarizing]
) -> AsyncIterator[Run]:
    async for run in runs.runs_of([generated], every):
        yield run
    for corpus in joined:
        for who in built_in:
            yield await runs.run(corpus, CHAIN, who)


def document(found: Measured) -> str:
    """docs/quality.md."""
    return "\n".join(
        (
            _INTRODUCTION,
            *_table(("what", "goal", "measured", ""), list(verdicts(found))),
            _READING,
            *_table(runs.HEADINGS, [runs.row(run) for run in found.runs]),
            _COLUMNS,
            *_table(
                ("chats", "summarizer", "windows' required", "said, at the end", "named again", "largest ledger"),
                [_alive_row(run) for run in found.real],
            ),
            _QUESTIONS,
            *_table(_ANSWER_HEADINGS, [_answers_row(name, answers) for name, answers in found.answers.items()]),
            _WRITTEN,
            *_table(written.HEADINGS, written.rows(found.written)),
            _CONVERSATIONS,
        )
    )


def verdicts(found: Measured) -> Iterator[Row]:
    """Yield the subject, its goal, the figure and the verdict of each row; the verdict is empty without a goal."""
    generated = [run for run in found.runs if run.corpus.planted]
    for passes, goal in _REQUIRED_GOALS.items():
        shares = [(run, run.examined.required[passes].value) for run in generated if passes in run.examined.required]
        planted = [(run, run.survey.tallies[passes]) for run in generated if run.survey.tallies[passes].asked]
        stated = [(run, Share(tally.written, tally.asked).value) for run, tally in planted]
        tallies = [(run, run.survey.tallies[passes]) for run in generated]
        ruled = [(run, Share(tally.ruling, tally.rules).value) for run, tally in tallies if tally.rules]
        kinds = (
            ("required identifiers", shares),
            ("all planted identifiers", stated),
            ("rules without a pin", ruled),
        )
        for what, found_of in kinds:
            if found_of:
                run, least = min(found_of, key=lambda pair: pair[1])
                yield _least(f"{what}, passes: {passes}, worst run", goal, least, _name(run))
    for run in found.real:
        yield _least(f"required identifiers alive, {_name(run)}", _ALIVE, run.examined.alive())
        end = run.survey.tallies[END]
        yield _least(f"all that was said alive, {_name(run)}", _ALIVE, Share(end.written, end.asked).value)
        if run.again.alive.whole:
            yield _least(f"alive when named again, {_name(run)}", _ALIVE, run.again.alive.value)
    yield _least(f"pins after {found.pins.passes} passes", 1, found.pins.kept.value)
    enough = found.pins.passes >= _PINNED_PASSES
    yield _holds(
        "passes that these pins went through", f"at least {_PINNED_PASSES}", f"{found.pins.passes}", met=enough
    )
    everyone = [*found.runs, *found.real]
    covered = min(1 - run.survey.missing / max(1, run.survey.messages) for run in everyone)
    yield _least("messages in the window or covered, worst run", 1, covered)
    yield from _ledger_goals(generated, everyone)
    yield from _evidence_goals(generated, found)
    yield from _pass_goals(everyone, generated)
    yield from _failure_goals(found.failures)
    for half in found.written:
        if half.name == written.SCORED:
            yield from _written_goals(half)
    for name, errors in found.errors.items():
        if errors is None:
            yield f"token error after calibration, {name}", "", "not compared: chats too short, or no vocabulary", ""
        else:
            for what, found_errors in (("next turn", errors.next_turn), ("other text", errors.other_text)):
                says = f"token error after calibration, {name}, {what}"
                yield _at_most(f"{says}, median", _TOKEN_ERROR, median(found_errors))
                yield _at_most(f"{says}, 95th percentile", _TOKEN_ERROR_P95, quantiles(found_errors, n=20)[-1])
    for name, answers in found.answers.items():
        yield _least(f"answers in the window, {name}", _FROM_WINDOW, answers.window.value)
        yield _least(f"answers with Expand and search, {name}", _WITH_TOOLS, answers.tools.value)
        yield _at_most(f"tokens of both, {name}", _TOKENS, answers.with_tools.value)


def _ledger_goals(generated: Sequence[Run], everyone: Sequence[Run]) -> Iterator[Row]:
    yield _at_most("largest ledger, of its window", _LEDGER_SHARE, max(run.examined.largest for run in everyone))
    entries = sum(run.examined.noise.whole for run in generated)
    noise = sum(run.examined.noise.part for run in generated) / max(1, entries)
    decoys = sum(run.examined.decoys.part for run in generated) / max(1, entries)
    yield _at_most("entries of ledgers that are noise: neither planted nor decoys", _NOISE, noise)
    yield "entries that are decoys: identifiers that one tool result names, and nobody else", "", _percent(decoys), ""
    yield "entries that are planted identifiers", "", _percent(1 - noise - decoys), ""
    yield _none("secrets in records or ledgers", sum(run.examined.secrets for run in generated))
    prompts = sum(
        run.summarizing.model.escapes for run in generated[:1] if isinstance(run.summarizing.model, FaithfulModel)
    )
    yield _none("injections that leave their frame, in windows", sum(run.examined.escapes for run in everyone))
    yield _none("injections that leave their frame, in prompts", prompts)
    yield "injections quoted as data in summaries", "", f"{sum(run.examined.markers for run in generated):,}", ""


def _evidence_goals(generated: Sequence[Run], found: Measured) -> Iterator[Row]:
    for run in generated:
        right, wrong = run.examined.evidence_right, run.examined.evidence_wrong
        if run.strategy is CHAIN and right.whole >= _STATEMENTS_MIN:
            yield _least(f"evidence right, {_name(run)}, {right.whole} statements", _EVIDENCE_RIGHT, right.value)
            yield _at_most(f"evidence wrong, {_name(run)}", _EVIDENCE_WRONG, wrong.value)
    for kind, share in found.lies.items():
        yield _least(f"lies caught: {kind}, of {share.whole}", _LIES_CAUGHT, share.value)


def _pass_goals(everyone: Sequence[Run], generated: Sequence[Run]) -> Iterator[Row]:
    freed = [share for run in everyone for share in run.examined.freed]
    least = min(freed)
    yield _holds(
        f"share of its range that a pass frees, least of {len(freed):,}", "above 0 %", _percent(least), met=least > 0
    )
    for strategy in PROFILES:
        shares = [share for run in everyone if run.strategy is strategy for share in run.examined.freed]
        if shares:
            yield _least(
                f"share of its range that a pass frees, median, {strategy.name}", _FREED_MEDIAN, median(shares)
            )
    for run in generated:
        if run.summarizing.model is not None and run.strategy is CHAIN:
            calls = run.examined.calls
            once = sum(count <= 1 for count in calls) / max(1, len(calls))
            thrash = run.costs.calls / max(1, run.costs.passes)
            what = f"records of one call, {_name(run)}; the others had a repair or a source in parts"
            yield what, "", _percent(once), ""
            yield f"calls a committed pass, those of failed ones too, {_name(run)}", "", f"{thrash:.2f}", ""


def _written_goals(half: written.Half) -> Iterator[Row]:
    for length, goal in _WRITTEN_VALUES.items():
        there = [found for (of, _), found in half.survived.items() if of == length]
        who = f"by other writers, window of {length:,}, worst run"
        yield _least(f"values alive, {who}", goal, min(found.values.value for found in there))
        yield _least(f"beside their names, {who}", _WRITTEN_NAMED, min(found.named.value for found in there))
        yield _at_most(f"old values alone, {who}", 0, max(found.old_alone.value for found in there))
        yield _least(f"rules, {who}", _WRITTEN_SAID, min(found.rules.value for found in there))
        yield _least(f"rules that are meant as one, {who}", _WRITTEN_RULES, min(f.right_rules.value for f in there))
        yield _least(f"open points, {who}", _WRITTEN_SAID, min(found.open_points.value for found in there))
    rules = half.rules
    yield _least("rules by other writers found, each in a form of its own", _WRITTEN_SAID, rules.found.value)
    yield _least("the share of these that are meant as one", _WRITTEN_RULES, rules.right.value)
    text = f"rules among the {rules.taken.whole + rules.quoted.whole:,} sentences of users of services and tools"
    yield f"{text}, standing or tentative", "", _percent(rules.quoted.value), ""
    yield "other sentences there, taken for a rule, standing or tentative", "", _percent(rules.taken.value), ""
    for kind in written.LIES:
        share = half.statements.caught[kind]
        yield _least(f"lies by other writers caught: {kind}, of {share.whole}", _LIES_CAUGHT, share.value)
    told = half.statements
    yield _at_most(f"honest statements by other writers lost, of {told.lost.whole}", _HONEST_LOST, told.lost.value)
    yield "honest statements by other writers, word for word", "", _percent(told.word_for_word.value), ""
    yield "honest statements by other writers, in the source's own words", "", _percent(told.quoted.value), ""
    for kind in written.LIES:
        taken = told.taken_out[kind]
        yield _least(
            f"lies by other writers in a narrative taken out: {kind}, of {taken.whole}", _LIES_CAUGHT, taken.value
        )
    honest = told.taken_out["honest"]
    yield _at_most(f"honest sentences there taken out, of {honest.whole}", _HONEST_LOST, honest.value)


def _failure_goals(failures: Failures) -> Iterator[Row]:
    text = f"bad answers committed, of {failures.bad} of {failures.answers}"
    yield _none(text, len(failures.committed))
    yield _none("messages lost to them", failures.lost)
    yield _least("appends that went on beside them", 1, failures.appended.value)


def _alive_row(run: Run) -> Row:
    end = run.survey.tallies[END]
    said, again = Share(end.written, end.asked), run.again.alive
    return (
        run.corpus.name,
        run.summarizing.name,
        _percent(run.examined.alive()),
        f"{_percent(said.value)} of {said.whole}",
        f"{_percent(again.value)} of {again.whole}" if again.whole else "-",
        _percent(run.examined.largest),
    )


_ANSWER_HEADINGS: Final = (
    "summarizer", "window", "beside its name", "last 6 messages", "with Expand and search",
    "window's tokens", "with what was read",
)  # fmt: skip


def _answers_row(name: str, answers: Answers) -> Row:
    shares = (answers.window, answers.attributed, answers.last, answers.tools)
    sizes = (answers.tokens, answers.with_tools)
    return (
        name,
        *(_percent(share.value) for share in shares),
        *(_percent(size.value) for size in sizes),
    )


def _name(run: Run) -> str:
    return f"{run.corpus.name}, {run.summarizing.name}" + ("" if run.strategy is CHAIN else f", {run.strategy.name}")


def _least(what: str, goal: float, value: float, beside: str = "") -> Row:
    measured = _percent(value) + (f" ({beside})" if beside else "")
    return what, f"at least {_percent(goal)}" if goal < 1 else _percent(goal), measured, _verdict(met=value >= goal)


def _at_most(what: str, goal: float, value: float) -> Row:
    # Rounded up, as what should be large is rounded down: a miss never reads as its goal.
    shown = _percent(math.ceil(value * 1_000 - 1e-9) / 1_000)
    return what, f"at most {_percent(goal)}", shown, _verdict(met=value <= goal)


def _none(what: str, count: int) -> Row:
    return what, "0", f"{count:,}", _verdict(met=count == 0)


def _holds(what: str, goal: str, measured: str, *, met: bool) -> Row:
    return what, goal, measured, _verdict(met=met)


def _verdict(*, met: bool) -> str:
    return "met" if met else "**missed**"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{math.floor(value * 1_000 + 1e-9) / 10:g} %"


def _table(headings: Row, rows: Sequence[Row]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (headings, ("---",) * len(headings), *rows)]


_INTRODUCTION: Final = """\
# Quality

What windows still know of messages that are no longer in them, and whether records can be trusted. `make quality`
measures it and writes this page; `make quality DATA=FOLDER` with the chats of a folder (`*.jsonl`) too. All is counted,
not timed, and the same in every run, unless a real model is asked:

```
abridged bench --only quality --data FOLDER > docs/quality.md
abridged bench --only quality --model ollama:llama3.1:8b --address http://127.0.0.1:11434
```

## Goals
"""

_READING: Final = f"""
A miss stays here until the product mends it: the generator is not tuned to the product. An extractive summary makes no
calls, so no goal speaks of its cost.

## Survival

Windows of 4,096 tokens. Generated conversations are six of 150 turns with 16 planted facts each; real chats are joined
into long ones. Looked at after {", ".join(map(str, PASSES))} passes.
"""

_COLUMNS: Final = """
| column | meaning |
|---|---|
| required | share of the identifiers that ought to be in the window and are: what a ledger of the same budget holds \
that is made of all that has left, without values that newer ones replaced |
| identifiers | share of current planted values (of real chats: what people or the model said) that have \
left the window and that it has letter by letter |
| facts | the same, with the name that the value belongs to within 160 characters |
| rules | share of standing rules that nobody pinned, and that have left the window, whose words it has |
| stale | share of replaced values that the window has without the current one |
| pins | share of pinned messages in the window |
| covered | share of messages that are in the window or in the range of a record |
| evidence | share of statements of planted facts that name a message which says it |
| freed | share of its range that a pass freed, its ledger's growth taken off |
| reduction | tokens saved against the whole conversation, at its end |
| calls, call tokens | of the summarizer's model: read and written |
| little | share of passes that free less than a fifth of the window |

Depth is discussed in [decision 24](adr/0024-depth-without-drift.md), the ledger in
[decision 27](adr/0027-the-ledger.md), evidence in [decision 28](adr/0028-evidence.md).

## Real chats, as they are

Each chat of a file in a window of 4,096 tokens: required identifiers over the windows after each pass, and all that
people or the model said and that has left the window. The second asks for more than a ledger may hold, of chats whose
tool output comes as user messages. `named again` counts what the chat itself asked for: an identifier that a person,
the model or a call names after every message with it had left the window. Was it in the window that they had?
"""

_QUESTIONS: Final = f"""
## Questions

{PROBES} questions about planted facts, at the end of conversations that each had a window for a quarter of their
tokens. An answer counts if its value stands in the text, letter by letter; `beside its name` wants the name that it
belongs to within 160 characters. Whoever keeps the last six messages has what they say. With `expand_history` and
`search_history` an agent that has no cleverness searches each question's words, reads {HITS} snippets, expands the best
hit, and has the answer if it stands there, or in the window, beside its name: compare it with `beside its name`. The
best hit alone often states a value that was replaced since, in more of the question's words.
"""

_WRITTEN: Final = """
## Chats by other writers

Writers who have not seen the code made the chats of `bench/written`, in eight languages, and noted what is to survive
of each: counted is what is alive at the end, among all that has left the window. Whoever writes the code may read the
chats of `seen`; those of `scored` are only scored, and the goals above are theirs. Two writers made statements such as
a summarizer might make of a chat, honest and false. A lie is caught if no record has it: neither word for word, nor, of
an old value, in a quotation that gives it alone. In place of an honest statement that is not proved a record quotes its
source; it is lost if the quotation is of none of the messages that its writer names, and lacks one of its values, or if
nothing is quoted. The sentences of a narrative are told in a model's own words, so code takes out those alone which
the source speaks against, or whose values it has nowhere or only far from what they speak of. Rows of `messages` are
of 480 single ones in eight languages: three of five lay down a rule, each in words of its own. Rows of `pairs` are of
sentences that state a value, and later ones that replace it or only look as if they did, half of each: `replaced` are
the replaced values that are known to be, `right` the share of those known to be that were. `abridged bench --only
written` counts this alone.
"""

_CONVERSATIONS: Final = """
## How it is measured

`bench/quality/generator.py` draws conversations from a seed. Each planted fact is a value of one kind (path,
URL, UUID, hash, ticket, version, amount, date, e-mail address, phone number, booking code, command, code symbol) that
belongs to a name of its own. The generator knows which message states it, which later message replaces it, and the
question that it is the answer to. Each tool result has a decoy, an identifier of the same kinds in a line of a log: no
code can know that nobody will ask for it. All else that has the form of an identifier is noise: what logs count, marks
of injections. Each entry of a ledger is one of the three. Standing rules, every other one pinned, credentials, injected
instructions, parallel tool calls with long results, code and turns in Chinese come with them.

- **lossy** (`bench/quality/lossy.py`) copies sentences and writes nothing of its own. A whole sentence with an
  identifier or a rule survives a call with a fixed chance, 0.9, by a hash of the sentence and the prompt. If more
  survive than the size asked for holds, the hash says which. So drift by rewriting and loss by size are real.
- **faithful** (`bench/quality/reporting.py`) loses nothing and states each planted fact in words of its own.
- **lying** adds to that an invented value, an invented event and a value of another name. A lie is caught if no record
  has it among its statements.
- A model whose every third answer is **bad** says in turns nothing, junk, NONE, a refusal, half an answer, a story in
  another language, or its own instructions; every other time in the form that was asked for.
- **extractive** is the product's own summary without a model. A real model comes with `--model`.

Tokens are compared with a real vocabulary (o200k) after twenty messages have corrected the estimate, ten messages at a
time.\
"""
