"""The phrases of languages: files that add a language, and lines that are refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from abridged.service import text as package
from abridged.service.text.phrases import BrokenPhrases, Phrase, Words, read, section_of, words_of

PACKAGE = Path(package.__file__).parents[1]

TOY = """\
# Toy
[parts]
day = (?:blork|snark)day

[decisions]
\\bzorgit\\b

[tasks]
\\bplix .* til {day}\\b

[deadlines]
\\btil ({day})\\b

[articles]
glu
"""

ASKING = """\
from abridged.service.extraction.cues import is_action, is_decision
from abridged.service.extraction.tasks import due_of
print(is_decision("Wo zorgit glu red one."), is_action("Plix glu report til snarkday."), due_of("Til snarkday."))
"""


def test_a_file_adds_a_language_without_code(tmp_path):
    """Extraction in a process of its own reads a language that only a file knows."""
    shutil.copytree(PACKAGE, tmp_path / "abridged" / "service", ignore=shutil.ignore_patterns("__pycache__"))
    toy = tmp_path / "abridged" / "service" / "text" / "languages" / "toy.phrases"
    toy.write_text(TOY, encoding="utf-8")

    def answer() -> str:
        run = subprocess.run(
            [sys.executable, "-c", ASKING], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
        return run.stdout.strip()

    assert answer() == "True True snarkday"
    toy.unlink()
    assert answer() == "False False"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[tasks]\n\\bplix (\n", 2, "Mend the regular expression"),
        ("[taks]\nplix\n", 1, "[taks] is no section. Use one of: "),
        ("# toy\nplix\n", 2, "Write a line such as [tasks] above it"),
        ("[tasks]\nplix {day}\n", 2, "Add `day = …` to [parts] above the line"),
        ("[parts]\nday: blork\n", 2, "Write: name = expression"),
        ("[tasks]\nplix\n\n(?:plix)?\n", 4, "Narrow it"),
        ("[tasks]\n(?P<doer>plix)\n", 2, "Write (…) without ?P<name>"),
    ],
)
def test_a_broken_line_is_refused_with_its_place(tmp_path, text, line, says):
    """The message names the file and the line, and the right form."""
    (tmp_path / "toy.phrases").write_text(text, encoding="utf-8")

    with pytest.raises(BrokenPhrases) as refused:
        read(tmp_path)

    assert str(refused.value).startswith(f"toy.phrases, line {line}: ")
    assert says in str(refused.value)


def test_languages_are_searched_together(tmp_path):
    """The languages are one expression, in which each line keeps its own meaning."""
    (tmp_path / "one.phrases").write_text("[tasks]\nplix|plax\n[articles]\nGlu gla\n", encoding="utf-8")
    (tmp_path / "two.phrases").write_text("[tasks]\nzorg\n[articles]\nmu\n", encoding="utf-8")

    languages = read(tmp_path)

    found = languages.section(Phrase.GIVES_TASK).finditer("zorg Plax plix")
    assert [match[0] for match in found] == ["zorg", "Plax", "plix"]
    assert languages.section(Phrase.DECIDES).search("plix zorg") is None
    assert languages.words(Words.ARTICLES) == {"glu", "gla", "mu"}


@pytest.mark.parametrize("kind", Phrase)
def test_every_section_of_expressions_has_lines(kind):
    """No section is left that nothing fills, and none finds the empty text."""
    assert section_of(kind).pattern != "(?!)"
    assert section_of(kind).search("") is None


@pytest.mark.parametrize("kind", Words)
def test_every_section_of_words_has_words(kind):
    """Words are compared in lower case."""
    assert words_of(kind)
    assert all(word == word.casefold() for word in words_of(kind))
