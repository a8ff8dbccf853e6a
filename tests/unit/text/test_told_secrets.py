"""Sentences that tell secrets are masked; those that only speak of passwords keep their facts."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abridged.service.text.mentions import mentions
from abridged.service.text.secrets import MASK, contains_secret, mask_reply, mask_secrets, may_carry_secret
from abridged.service.text.standing import statements
from abridged.service.text.told_secrets import told_secrets
from tests.support.growth import grows_linearly

VALUE = "Blue-Moon-" + "4417zz"


def told(name: str) -> list[dict[str, Any]]:
    lines = Path(__file__).with_name("told").joinpath(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def is_right(entry: dict[str, Any]) -> bool:
    masked = mask_secrets(entry["text"])
    return not any(one in masked for one in entry["secrets"]) and all(one in masked for one in entry["kept"])


@pytest.mark.parametrize("entry", told("seen"), ids=lambda entry: entry["text"][:40])
def test_a_secret_in_a_sentence_is_masked_and_a_fact_is_not(entry):
    """Thirteen languages, tables, commands and elements tell them."""
    assert is_right(entry), mask_secrets(entry["text"])


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("The password is unchanged and the batch cap is 4096.", "4096"),
        ("The PIN is optional, the minimum is 2500, the maximum is 9000.", "9000"),
        ("The API key is new and the port is 8443.", "8443"),
        ("Das Passwort ist unver\u00e4ndert und die Kaution ist 2956.", "2956"),
        ("We removed the password prompt with 9f2c41d7.", "9f2c41d7"),
    ],
)
def test_a_fact_of_another_clause_and_a_commit_are_no_secrets(text, fact):
    """A clause that has said what the name is joins it to no later value."""
    assert fact in mask_secrets(text)


def test_a_clause_that_goes_on_tells_the_secret():
    """The controls: what stands between name and value says nothing of the name yet."""
    for text in ("The password for prod and staging is hunter22.", "The password, as of today, is Falcon#4711."):
        assert MASK in mask_secrets(text)


def test_sentences_that_nobody_tuned_on_are_read_as_well():
    """One in fifty may be read wrongly."""
    entries = told("held")

    wrong = [entry["text"] for entry in entries if not is_right(entry)]

    assert len([entry for entry in entries if entry["secrets"]]) == 30
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize(
    "text",
    [
        f"The password was changed. It is now {VALUE}, so log in again.",
        f"What is the password? I think {VALUE} it is.",
        f"The password for the vault\nis {VALUE}.",
        f"The password of the user is {VALUE}.",
        f"login with password for ops: {VALUE}",
        f"The password is for staging and it reads {VALUE}.",
        "The new password is hunter22.",
        "The PIN of my card is 4711.",
        "We changed the password on server-2 to hunter22.",
        "hunter22 is the password for the vault.",
        "access code: 4711#",
        "pin=4711",
        "The user is root, the credentials are root and Falcon#4711.",
        "The passwords are hunter22 and so on.",
        "Has\u0142o do wifi to hunter22.",
        "Has\u0142o to hunter22.",
        "\u30d1\u30b9\u30ef\u30fc\u30c9 \u7ba1\u7406\u8005\u306f hunter22 \u3067\u3059",
        f"name;password\nbob;{VALUE}",
        f"| password | {VALUE} |",
        f"password={VALUE}",
        f"bob:{VALUE} are the credentials",
    ],
)
def test_what_a_text_says_to_be_a_secret_is_one(text):
    """Words join a value to its name, before or behind it, in the sentence or the next."""
    masked = mask_secrets(text)

    assert MASK in masked
    assert not any(one in masked for one in (VALUE, "hunter22", "4711"))


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        ("Please tell me the password.", "Winter2024xQ"),
        ("Thanks. What's the PIN? I need it to open the gate.", "8842"),
        ("Please tell me the PIN.", "It's {}8842{}."),
        ("Password:", "Winter2024xQ"),
        ("What's the CVV?", "737"),
        ("I need your API key to go on.", "8f14e45fceea167a"),
        ("Bitte geben Sie Ihr Passwort ein.", "Es ist {}Winter2024{}"),
        ("Wie lautet die PIN?", "8842"),
        ("Dime la contrase\u00f1a.", "Tigre4417x"),
        ("Donnez-moi le mot de passe.", "C'est {}Soleil22x{}."),
        ("Dimmi la password.", "Leone22x"),
        ("Geef je pincode.", "4417"),
        ("Podaj has\u0142o.", "Lew22xyz"),
        ("Jaki jest PIN do karty?", "4417"),
        ("Informe a senha.", "Leao22x"),
        ("\u041d\u0430\u0437\u043e\u0432\u0438\u0442\u0435 \u041f\u0418\u041d-\u043a\u043e\u0434.", "4417"),
        ("\u6697\u8a3c\u756a\u53f7\u3092\u6559\u3048\u3066\u304f\u3060\u3055\u3044\u3002", "{}4417{}\u3067\u3059"),
        ("\ube44\ubc00\ubc88\ud638\ub97c \uc54c\ub824 \uc8fc\uc138\uc694.", "{}Ho22xyz{}\uc785\ub2c8\ub2e4"),
        ("\u8bf7\u544a\u8bc9\u6211\u5bc6\u7801\u3002", "Mao22xy"),
        ("\u0e23\u0e2b\u0e31\u0e2a\u0e1c\u0e48\u0e32\u0e19\u0e04\u0e37\u0e2d\u0e2d\u0e30\u0e44\u0e23", "Meow22xy"),
        ("What's the PIN?", "\u0668\u0668\u0664\u0662"),
    ],
)
def test_a_short_reply_to_a_request_for_a_secret_tells_it(request_, reply):
    """Words around the value stay, and without the request it would be any word."""
    before, value, after = reply.split("{}") if "{}" in reply else ("", reply, "")

    assert mask_secrets(f"{before}{value}{after}") == f"{before}{value}{after}"
    assert mask_reply(request_, f"{before}{value}{after}") == f"{before}{MASK}{after}"


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        ("I changed the password.", "ZFA04Y"),
        ("Which server rejects the password?", "prod4417"),
        ("Which pin?", "GPIO17"),
        ("Tell me which pin.", "GPIO17"),
        ("What is the order number?", "4417882"),
        ("Please tell me the order number.", "4417882"),
        ("What's the password?", "order 4417882"),
        ("What's the PIN?", "There are 4417 of them here."),
        ("What's the PIN?", f"9417{'-and-so-forth' * 6}"),
        ("What's the password?", "rosebud"),
        ("What's the PIN?", "123"),
        ("What's the PIN?", "2024-05-12"),
        ("I don't need your password. What is your invoice number?", "INV-2024-118"),
        ("I cannot share the password. What is your order number?", "48213"),
        ("Did the password reset work?", "No, HTTP 5003"),
        ("When did you last change the password?", "March 2023"),
        ("What's the ticket for the password reset?", "INC-20931"),
        (f"What's the PIN? {'The importer reads orders. ' * 3}", "4417882"),
        (f"What's the PIN? {'The importer reads orders, ' * 20}", "4417882"),
    ],
)
def test_a_reply_to_anything_else_and_a_longer_one_are_kept(request_, reply):
    """Only their own words tell whether they have a secret."""
    assert mask_reply(request_, reply) == reply


@pytest.mark.parametrize(
    "text",
    [
        "I changed the password. Order ZFA04Y is on its way.",
        "The credentials failed for order 8f14e45f.",
        "The user id is Zq4417xx and the password is lost.",
        "The password was moved to vault-42.",
        "hunter22 is the password manager of our team.",
        "The refresh token holds for 86400 seconds.",
        "The PIN is 4 digits long.",
        "The PIN is 4711 days old.",
        "The passcode for it is a12b.",
        "The password rule has x7!q in it.",
        "The password is old; the host is vault-42.",
        "The password is for db:5432",
        "hunter22 is the one of our many hosts without password",
        "hunter22 is down, no password",
        "Without password, sesame=Zq4417xx works.",
        "The password failed with order:Zq4417xx today.",
        "The password failed for order: Zq4417xx",
        "we left at noon today, the password\nAnn, Zq4417xx",
        "\u628a\u62a5\u544a" * 10 + "\u5bc6\u7801\tb\nZq4417xx\tc",
        "| host | password |\n|---|---|\n| a | ask in room 4417 |\n| b | a1b2 |\n| c | 2024-05-12 |",
        f"The password and then {'Zq4417xx' * 70}",
        "The password check of PR#4417 and issue#4417 failed.",
        "Raise the pin to pyarrow==18.1.0 now.",
        "The password reset fee is 12500 dollars.",
        "The password for Zq4417xx is lost.",
        "Reset the password, then id=Zq4417xx was closed.",
        "| case | password reset |\n|---|---|\n| 1 | Zq4417xx |",
        "bob, the password\nann, Zq4417xx, more",
        "a,b\nc,password\nd,Zq4417xx",
        "The password is at vault.example2.com/v2 now.",
        "The door of room 4417 opens without a password.",
        f"The password is lost. {'We talk of other things, ' * 12}and Zq4417xx.",
    ],
)
def test_what_only_stands_beside_a_word_for_a_secret_is_kept(text):
    """Other names, places, counts, and things that have a password."""
    assert mask_secrets(text) == text


def test_a_cell_with_a_secret_of_its_own_is_masked_once():
    """The column and the sentence both find it."""
    assert mask_secrets("| host | password |\n| a | pin=Zq4417xx |") == f"| host | password |\n| a | {MASK} |"


def test_what_stands_far_from_the_name_in_a_long_sentence_is_kept():
    """A line without stops is no sentence."""
    text = f"the password {'and so forth ' * 40}Zq4417xx"

    assert mask_secrets(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("DB_PASS={}", "rosebud"),
        ("pass: {}", "rosebud91k"),
        ("<apiKey>{}</apiKey>", "rosebud"),
        ("mysql -u root -p{} shop", "rosebud"),
        ("sshpass -p {} ssh x", "rosebud"),
        ("redis-cli -h cache -a {} ping", "rosebud"),
        ("unzip -P {} a.zip", "rosebud"),
        ("ldapsearch -x -w {} -b dc", "rosebud"),
        ("curl -sSu kim:{} x", "rosebud"),
        ("helm login --password {} x", "rosebud91"),
        ("postgres://u:{}@host/db", "ro/sebud"),
        ("postgres://u:{}@host/db", "ro@sebud"),
        ("redis://:{}@cache", "rosebud"),
    ],
)
def test_a_secret_is_known_by_its_place_in_a_command_or_an_element(text, value):
    """Programs and formats have places for them."""
    masked = mask_secrets(text.format(value))

    assert value not in masked
    assert masked == text.format(MASK)


@pytest.mark.parametrize(
    "text",
    [
        "mysql -u root -p shop",
        "docker run -u 1000:1000 -p 8080:80 web",
        "pass: 12, fail: 3",
        "bypass=true2024x",
        "curl https://x.example.com -u",
        "http://localhost:8080/users/@bob",
        "use --password instead of asking",
        "<tokens>512</tokens><name>bob</name>",
        "the pass=1200ms of step",
    ],
)
def test_what_has_only_the_place_is_kept(text):
    """Ports, databases, counts and prose."""
    assert mask_secrets(text) == text or "tokens" in text


def test_a_rule_with_a_secret_is_not_kept_letter_by_letter():
    """Every window would show its sentence."""
    said = [f"From now on always log in with the password {VALUE}.", "From now on always log in with the password."]

    assert [one.may_be_rule for text in said for one in statements(text)] == [False, True]


def test_no_fact_is_a_secret_that_a_sentence_tells():
    """The ledger reads the masked text."""
    found = list(mentions(f"What is the wifi password? It is {VALUE}, for room 12.", said=True))

    assert not any(VALUE in part for one in found for part in (one.text, one.words.name, one.words.rest))


@pytest.mark.parametrize(
    ("command", "carries"),
    [
        (' {"command": "mkdir -p build/out"}', False),
        (" docker run -p 8080:80 web", False),
        (" git push -u origin main", False),
        (" docker login -u bob -p tulip", True),
        (" mysql -p tulip", True),
        (" mkdir -p x; vaulted -p tulip", True),
        (' ["mysql", "-ptulip"]', True),
        (" tool -p tulip", True),
    ],
)
def test_an_option_of_a_program_that_takes_no_password_hides_nothing(command, carries):
    """`-p` makes parents for mkdir, and ports for docker."""
    assert may_carry_secret(command) is carries


_PIECES = (
    *("password", " is ", "the ", "PIN ", ": ", "? ", "It is ", "\n", "| ", ", ", "=", "api key ", "4711", "hunter22"),
    *(
        VALUE,
        "[secret]",
        "<password>",
        "</",
        "--token ",
        "mysql -p",
        " -u a:",
        "://a:",
        "@b",
        "pass=",
        ". ",
        "to ",
        "-",
        "CVV ",
        "737",
        "559 120",
        "door code ",
        "my pin ",
        "alarm code ",
        "E1042",
        "one-two-three-four",
        "\u043f\u0438\u043d \u2014 ",
    ),
)


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join))
@example("://a:://a:@b@b")
@example("hunter22 is my pin Blue-Moon-4417zz")
def test_masking_a_masked_text_changes_nothing(text):
    """A record that was masked is read again by the next pass."""
    assert not contains_secret(mask_secrets(text))


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join))
def test_places_are_in_order_and_apart(text):
    """Each is masked once."""
    places = told_secrets(text)

    assert all(0 <= start < end <= len(text) for start, end in places)
    assert all(one[1] <= other[0] for one, other in pairwise(places))


@pytest.mark.parametrize(
    "motif",
    [
        "password ",
        "password is ",
        "password Zq4417xx ",
        "password? ",
        "password, ",
        "password|4711|\n",
        "Zq4417xx-",
        "abc-",
        "a_1b",
        "a.b",
        "a@b.",
        "-a",
        "--a-",
        "mysql ",
        "curl -u ",
        "login -",
        "<a ",
        "<password>",
        "://a:b/",
        "pass:",
        "_PASS=",
        ": ",
        "is password ",
        "\u5bc6\u7801",
        "-p ",
        "pin ",
        "pin is 4711",
        "alarm code ",
        "code for the door ",
        "559 120 ",
        "one-",
        "CVV 737 ",
    ],
)
def test_secrets_of_a_hostile_text_are_found_in_linear_time(motif):
    """One line, one token, and what stands behind a name are no worse."""

    def repeated(lead: str, size: int) -> str:
        return f"{lead}{motif * (size // len(motif))}"

    for lead in ("", "password "):
        assert grows_linearly(mask_secrets, partial(repeated, lead), size=40_000)
        assert grows_linearly(may_carry_secret, partial(repeated, lead), size=40_000)
