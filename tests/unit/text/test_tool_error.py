"""Results of tools that are errors: a corpus of both kinds, and that only their ends are looked at."""

from __future__ import annotations

import pytest

from abridged.service.text.tool_error import HEAD_CHARS, TAIL_CHARS, is_error

LONG = "a row of the table\n" * 500

ERRORS = [
    "Error: no such file",
    "ERROR",
    "error[E0308]: mismatched types",
    "[ERROR] the build stopped",
    "❌ Error: quota",
    "Error 404",
    "HTTP Error 500: Internal Server Error",
    "Internal server error",
    "Error executing tool search: timed out",
    "Error while reading a.txt",
    "ERROR in ./src/index.ts",
    "TypeError: unsupported operand type(s)",
    "requests.exceptions.ConnectionError: refused",
    "java.lang.NullPointerException: at Main",
    'Exception in thread "main" java.lang.Error',
    "  Traceback (most recent call last):",
    "fatal: not a git repository",
    "Fatal error: out of memory",
    "panic: runtime error: index out of range",
    "Failed to open the file",
    "Failed: 3 of 10",
    "Failed tests: 2",
    "Failure: the host is down",
    "npm ERR! code ENOENT",
    "> build\n> tsc\n\nnpm ERR! Test failed.",
    "npm error code E404",
    "exit code: 1",
    "Exit code 127\nbash: foo: command not found",
    "Command failed with exit code 2.",
    "<exit_code>1</exit_code>",
    f"{LONG}\nProcess exited with code 1",
    f"{LONG}\nprocess finished with non-zero exit status 2\n",
    f"{LONG}\nmake: *** [all] Error 2",
    f'{LONG}\nTraceback (most recent call last):\n  File "a.py", line 1\nKeyError: 1',
    '{"error": "not found"}',
    '{"error": {"code": 404}}',
    '{"errors": [{"message": "no"}]}',
    '{"is_error": true, "content": "x"}',
    '{"isError":true}',
    '{"status":"error"}',
    '{"status": "failed", "rows": []}',
    '{"success":false}',
    '{"ok": false, "description": "Bad Request"}',
    '{"stdout": "", "exit_code": 1}',
    '{"content":[{"type":"text","text":"no such table"}],"isError":true}',
    f'{{"content":[{{"type":"text","text":"{LONG}"}}],"isError": true}}',
    '[{"type":"text","text":"no such table","isError":true}]',
    '[{"type": "tool_result", "is_error": true, "content": "x"}]',
    '[{"type":"text","text":"Error: no such table"}]',
    "{error: 'not found'}",
]

RESULTS = [
    "",
    "42 flights",
    "Error-free run",
    "Error rate: 0.1%",
    "Error handling in Go, part 1",
    "ErrorHandler.java: 12 lines",
    "errors.py\nexceptions.py",
    "Errors: 0, warnings: 2",
    "0 errors, 0 warnings",
    "No errors were found in 3 files.",
    "No error: all 12 rows were read",
    "Mean squared error: 0.03",
    "Standard error: 0.2",
    "Exception handling in Python",
    "Exceptional weather",
    "Failed tests: 0",
    "Failed: 0, passed: 12",
    "Failed login attempts by host",
    "Failure rate: 0.1%",
    "Fatal accidents of 2023, by month",
    "Panic selling in the markets",
    "exit code: 0",
    f"{LONG}\nProcess exited with code 0",
    "The process ends with exit code 1 if a file is missing, and with 2 if it cannot be read.",
    f"{LONG}Error: in the middle\nexit code: 1\n{LONG}",
    '{"error": null, "flights": 3}',
    '{"error": "", "errors": [], "exception": {}}',
    '{"error_count": 0}',
    '{"status": "ok", "note": "error"}',
    '{"success": true}',
    '{"isError":false}',
    '{"exit_code": 0, "stdout": "error"}',
    '{"rows": [{"status": "error"}, {"success": false}]}',
    '{"text": "\\"error\\": 1, \\"status\\": \\"error\\""}',
    f'{{"text": "{LONG}, \\"isError\\": true}}"}}',
    '[{"type":"text","text":"Error-free run"}]',
    '[{"status": "error"}, {"status": "ok"}]',
    "[1, 2, 3]",
    "{" * 2_000,
    "[{" * 2_000,
    '"' * 2_000,
]


@pytest.mark.parametrize("text", ERRORS)
def test_an_error_is_known_by_its_ends(text):
    """A model may still have to react to it, so it is not cleared."""
    assert is_error(text)


@pytest.mark.parametrize("text", RESULTS)
def test_a_result_that_speaks_of_errors_is_none(text):
    """The result is cleared like any other."""
    assert not is_error(text)


@pytest.mark.parametrize("text", ERRORS)
def test_only_the_ends_of_a_result_are_looked_at(text):
    """A result of megabytes, blanks or brackets, therefore costs what a short one costs."""
    assert not is_error("." * HEAD_CHARS + "\n" + text[-HEAD_CHARS:] + "\n" + "." * TAIL_CHARS)


def test_the_middle_of_an_object_is_not_parsed():
    """An error behind a long first member is missed rather than looked for in the whole text."""
    assert not is_error(f'{{"rows": "{LONG}", "error": "late", "more": "{LONG}"}}')


@pytest.mark.parametrize("text", [" " * 1_000_000 + "Error: late", "{" * 1_000_000, '{"a": ' * 200_000])
def test_a_megabyte_of_blanks_or_brackets_is_no_error(text):
    """The event loop looks at whatever a tool returns."""
    assert not is_error(text)
