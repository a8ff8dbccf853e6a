"""`make run`, which is `abridged demo`: the main job from end to end, wherever it is run."""

from __future__ import annotations

import re
import signal

import pytest

from abridged.service.cli.demo_lines import INDENT
from abridged.service.config.settings import Settings
from tests.support.command import ROOT, Ran, abridged, abridged_process, fake_ollama, on_terminal
from tests.support.patience import PATIENCE_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def ran(folder):
    """The demonstration without a terminal and without Ollama."""
    return abridged_process("demo", environ={"TMPDIR": str(folder), "TERM": "dumb", "NO_COLOR": "1"})


def makers_of(ran: Ran) -> set[tuple[str, str]]:
    """Return who made the records, and with how many model calls."""
    return set(re.findall(r"^ +record: .* tokens, (\S+), (\d+) model calls?; ", ran.out, re.MULTILINE))


def window_of(ran: Ran) -> list[str]:
    """The lines of the window that were printed."""
    lines = ran.out.splitlines()
    (start,) = (place for place, line in enumerate(lines) if "what the model gets now" in line)
    (end,) = (place for place, line in enumerate(lines) if line.startswith("ratio "))
    return lines[start + 1 : end]


def test_it_ends_well_without_a_terminal(ran):
    """Exit code 0 with standard input closed, and no complaint."""
    assert ran.code == 0
    assert "abridged" not in ran.err
    assert "Traceback" not in ran.err


def test_it_says_that_no_model_is_asked_without_ollama(ran):
    """Nobody takes an extract for a model's summary."""
    assert "connection refused" in ran.out
    assert "Summaries by extractive:default" in ran.out


def test_it_shows_the_ratio_climb_to_the_trigger(ran):
    """Each bar is longer than the one before until a pass begins."""
    before = ran.out[: ran.out.index("trigger: pass ")]
    ratios = [float(found) for found in re.findall(r"\[[#.]{24}\] (\d\.\d\d) ", before)]

    assert len(ratios) >= 5
    assert ratios == sorted(ratios)
    assert ratios[-1] >= 0.8


def test_it_shows_each_pass_in_three_lines(ran):
    """Trigger and messages, tokens before and after, the check; a smaller window after it."""
    passes = re.findall(
        r"^     trigger: pass \w+, ratio at (0\.\d\d), for \d+ messages: [-\d, ]+\n(?:     ~ .+\n)*"
        r"     record: ([\d,]+) -> ([\d,]+) tokens, extractive:default, 0 model calls; "
        r"window: [\d,]+ -> [\d,]+ tokens, ratio is now (0\.\d\d)\n"
        r"     check: passed, nothing invented; \d+ messages left: .+\n",
        ran.out,
        re.MULTILINE,
    )

    assert len(passes) == ran.out.count("trigger: pass") >= 2
    for before, replaced, record, after in passes:
        assert float(after) < float(before)
        assert int(record) < int(replaced.replace(",", ""))


def test_it_prints_the_whole_summary_as_the_model_gets_it(ran):
    """Narrative, decisions, rules and facts, each line in its place; the head says who takes how many tokens."""
    window = window_of(ran)
    (head,) = (line for line in window if " summary-depth:" in line)
    figures = re.search(r"^ +([\d,]+)  .*the record \(([\d,]+) tokens\), .*facts added by code \(([\d,]+)\):$", head)
    assert figures is not None
    whole, record, added = (int(figure.replace(",", "")) for figure in figures.groups())

    assert whole == record + added
    parts = (
        "<conversation_summary>",
        "Decisions:",
        "Standing rules to follow, as said:",
        "Facts as written:",
        "</conversation_summary>",
    )
    places = [window.index(f"{INDENT}{part}") for part in parts]
    assert places == sorted(places)
    assert window[places[2] + 1].endswith("From now on, never post names of customers in this channel. [21]")


def test_it_prints_the_pin_and_the_newest_messages_as_a_line_each(ran):
    """The summary stands behind the system message, the pinned decision and the tail behind the summary."""
    lines = [line for line in window_of(ran) if not line.startswith(INDENT)]

    assert lines[0].split()[2] == "system:"
    assert " system summary-depth:" in lines[1]
    assert re.search(r"^ +23 +\d+  user priya: .*decision.*  \(pinned\)$", lines[2])
    assert re.search(r"^ +73 ", lines[-1])
    assert re.search(r"[\d,]+ tokens of 73 messages became [\d,]+;", ran.out)


def test_it_fits_on_three_screens(ran):
    """Nobody reads more on the first day; a record's JSON stays away."""
    assert ran.out.count("\n") <= 120
    assert '"tokensAfter"' not in ran.out


def test_the_readme_shows_what_it_prints(ran):
    """Line by line, in order, but for ids and what `[...]` leaves out."""

    def without_ids(text: str) -> str:
        return re.sub(r"pass [0-9a-f]{8,}", "pass ID", text)

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (excerpt,) = re.findall(r"^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    printed = iter(without_ids(ran.out).splitlines())

    shown = [line for line in without_ids(excerpt).splitlines() if line.strip() != "[...]"]
    assert [line for line in shown if line not in printed] == []


def test_the_page_of_windows_has_its_figures(ran):
    """A record's savings, and what code adds to it."""
    page = (ROOT / "docs" / "features" / "windows.md").read_text(encoding="utf-8")
    ((saved, whole, added),) = re.findall(
        r"such as `([^`]+) tokens`: .* at the end of `make run` ([\d,]+) tokens, ([\d,]+) of them", page, re.DOTALL
    )
    (head,) = (line for line in window_of(ran) if " summary-depth:" in line)

    assert f"     record: {saved} tokens, " in ran.out
    assert head.split()[0] == whole.replace(",", "")
    assert head.endswith(f"added by code ({added}):")


def test_it_prints_the_success_metrics(ran):
    """Scraped from the running sidecar."""
    assert re.search(r'abridged_summarizations_total\{.*outcome="success".*\} \d', ran.out)
    assert re.search(r"success ratio 1\.00 of \d finished passes", ran.out)


def test_it_invites_nobody_to_a_sidecar_that_is_gone(ran):
    """The demo ends without a terminal, and so there is nothing to talk to."""
    assert "--address" not in ran.out
    assert "curl" not in ran.out
    assert ran.out.endswith("The sidecar stops here; on a terminal it keeps running for you to try.\n")


def test_it_leaves_nothing_behind(ran, folder):
    """The log was temporary."""
    assert ran.code == 0
    assert list(folder.iterdir()) == []


def test_it_draws_nothing_that_a_dumb_terminal_does_not_know(ran):
    """No escape sequences."""
    assert "\x1b" not in ran.out


def test_it_runs_where_only_ascii_can_be_printed():
    """A conversation has other characters; they come out as marks."""
    assert abridged_process("demo", environ={"PYTHONIOENCODING": "ascii"}).code == 0


def test_it_asks_ollama_where_it_is_reachable():
    """The configured model makes the records, and the output says so."""
    with fake_ollama() as url:
        ran = abridged_process("demo", environ={"OLLAMA_HOST": url})

    assert ran.code == 0
    assert "Summaries by qwen2.5:3b" in ran.out
    assert makers_of(ran) == {("ollama:qwen2.5:3b", "1")}


def test_a_model_that_is_not_pulled_is_not_waited_for():
    """The demo says which model is missing, and goes on without it."""
    with fake_ollama("--model", "another:1b") as url:
        ran = abridged_process("demo", environ={"OLLAMA_HOST": url})

    assert ran.code == 0
    assert "no model 'qwen2.5:3b' on this host" in ran.out
    assert makers_of(ran) == {("extractive:default", "0")}
    for remedy in (
        "`ollama pull qwen2.5:3b`",
        "`--set summarizer.models=ollama:another:1b`",
        "`--set summarizer.models=extractive:default`",
    ):
        assert remedy in ran.out


def test_a_model_that_does_not_work_is_found_out_before_the_passes():
    """The model is there, but its runner crashes: the small question says so, and the records are made without it."""
    with fake_ollama("--behaviour", "crash") as url:
        ran = abridged_process("demo", environ={"OLLAMA_HOST": url})

    assert ran.code == 0
    assert "qwen2.5:3b did not answer: " in ran.out
    assert makers_of(ran) == {("extractive:default", "0")}


SCALE = 0.02


def test_a_host_that_reads_each_prompt_for_minutes_makes_every_record():
    """Two thirds of the longest wait for a first byte, 200 s of 300, and 8 tokens a second: everything fifty times as
    fast, the sidecar's clocks too. The demo announces the wait, and nothing gives up.
    """
    defaults = Settings()
    first_byte_s, deadline_s = defaults.ollama.first_byte_timeout_s, defaults.summarizer.deadline_s
    host = ("--version", "0.24.0", "--prefill-s", str(first_byte_s * 2 / 3), "--tokens-per-s", "8")
    clocks = {
        "ollama.first_byte_timeout_s": first_byte_s * SCALE,
        "ollama.stall_timeout_s": defaults.ollama.stall_timeout_s,
        "summarizer.deadline_s": deadline_s * SCALE,
    }
    options = [part for name, seconds in clocks.items() for part in ("--set", f"{name}={seconds}")]
    with fake_ollama(*host, "--time-scale", str(SCALE)) as url:
        ran = abridged_process("demo", *options, environ={"OLLAMA_HOST": url})

    assert ran.code == 0, ran.err
    assert makers_of(ran) == {("ollama:qwen2.5:3b", "1")}
    assert re.search(r"success ratio 1\.00 of \d finished passes", ran.out)
    assert re.search(r"~ pass \w+ has been running for \d+ s", ran.out)
    assert re.search(r"which reads [\d.,]+ tokens/s, writes [\d.,]+ tokens/s; a pass of [\d,]+ tokens waits", ran.out)


def test_clocks_that_are_found_too_short_are_not_kept():
    """A pass of some thousand tokens takes three seconds here, and the first byte has to come within one and a half."""
    host = ("--prefill-tokens-per-s", "1000")
    with fake_ollama(*host) as url:
        ran = abridged_process("demo", "--set", "ollama.first_byte_timeout_s=1.5", environ={"OLLAMA_HOST": url})

    assert ran.code == 0, ran.err
    assert re.search(r"ollama\.first_byte_timeout_s is 1\.5: too short; here it is \d+\.", ran.out.replace("\n", " "))
    assert {maker for maker, _ in makers_of(ran)} == {"ollama:qwen2.5:3b"}
    assert re.search(r"success ratio 1\.00 of \d finished passes", ran.out)


def test_a_pass_that_fails_is_the_end_of_it_with_one():
    """The model answers the small question, and breaks off each summary."""
    with fake_ollama("--behaviour", "abort") as url:
        ran = abridged_process("demo", environ={"OLLAMA_HOST": url})

    assert ran.code == 1
    assert "abridged: a pass failed:" in ran.err
    assert "the connection closed early or does not speak HTTP" in ran.err
    assert "Traceback" not in ran.err


def test_a_host_that_is_none_is_refused_as_serve_refuses_it():
    """The sidecar of the demonstration starts with it too, whoever makes the records."""
    ran = abridged("demo", environ={"OLLAMA_HOST": ":::"})

    assert ran.code == 2
    assert "ollama.hosts[0]: an Ollama address has a host name or an IP address (environment OLLAMA_HOST)" in ran.err
    assert ran.out == ""


def test_on_a_terminal_the_sidecar_stays_until_it_is_interrupted(folder):
    """The commands that it prints work, Ctrl-C ends it with 0, and nothing is left behind."""
    with on_terminal("demo", environ={"TMPDIR": str(folder)}) as terminal:
        screen = terminal.read_until("keeps running until Ctrl-C")
        found = re.search(r"context --address (\S+) (\S+)", screen)
        assert found is not None
        context = abridged("context", found[2], "--address", found[1])
        terminal.process.send_signal(signal.SIGINT)
        code = terminal.process.wait(timeout=PATIENCE_S)

    assert context.code == 0
    assert "summary-depth:" in context.out
    assert code == 0
    assert list(folder.iterdir()) == []


def test_when_it_is_ended_midway_nothing_is_left_behind_either(folder):
    """SIGTERM during the play: not a success, but a clean one."""
    with on_terminal("demo", environ={"TMPDIR": str(folder)}) as terminal:
        terminal.read_until("trigger: pass")
        terminal.process.send_signal(signal.SIGTERM)
        code = terminal.process.wait(timeout=PATIENCE_S)

    assert code == 1
    assert "Traceback" not in terminal.screen
    assert list(folder.iterdir()) == []


def test_when_it_is_ended_while_a_model_is_asked_nothing_is_left_behind(folder):
    """SIGTERM before there is a sidecar."""
    with (
        fake_ollama("--behaviour", "hang") as url,
        on_terminal("demo", environ={"TMPDIR": str(folder), "OLLAMA_HOST": url}) as terminal,
    ):
        terminal.read_until("a small question")
        terminal.process.send_signal(signal.SIGTERM)
        code = terminal.process.wait(timeout=PATIENCE_S)

    assert code == 1
    assert list(folder.iterdir()) == []
