"""Addresses of Ollama servers: every form that Ollama's own server and clients read, and refused ones."""

from __future__ import annotations

import pytest

from abridged.service.models.http.address import AddressError, InsecureAddress
from abridged.service.models.ollama.settings import parse_address

FORMS = {
    "": "http://127.0.0.1:11434",
    "1.2.3.4": "http://1.2.3.4:11434",
    ":56789": "http://127.0.0.1:56789",
    "1.2.3.4:56789": "http://1.2.3.4:56789",
    "http://1.2.3.4": "http://1.2.3.4:80",
    "https://1.2.3.4": "https://1.2.3.4:443",
    "https://1.2.3.4:56789": "https://1.2.3.4:56789",
    "HTTP://1.2.3.4:8080": "http://1.2.3.4:8080",
    "example.com": "http://example.com:11434",
    "example.com:56789": "http://example.com:56789",
    "example.com/": "http://example.com:11434",
    "example.com:56789/path/": "http://example.com:56789/path",
    "https://example.com:56789/a/b": "https://example.com:56789/a/b",
    "[::1]": "http://[::1]:11434",
    "[::1]:56789": "http://[::1]:56789",
    "https://[::1]/path": "https://[::1]:443/path",
    "::1": "http://[::1]:11434",
    "0.0.0.0": "http://127.0.0.1:11434",
    "0.0.0.0:8080": "http://127.0.0.1:8080",
    "[::]:8080": "http://[::1]:8080",
    "  '1.2.3.4' ": "http://1.2.3.4:11434",
    '"1.2.3.4:1"': "http://1.2.3.4:1",
    "1.2.3.4:": "http://1.2.3.4:11434",
    "https://1.2.3.4:": "https://1.2.3.4:443",
    "[::1]:": "http://[::1]:11434",
    "my_ollama:1": "http://my_ollama:1",
    "ollama.com": "https://ollama.com:443",
}


@pytest.mark.parametrize(("text", "url"), FORMS.items())
def test_an_address_is_read_as_ollama_reads_it(text, url):
    """Defaults, ports, paths, brackets and quotes follow Ollama's rules."""
    assert parse_address(text, allow_insecure=True).url == url


@pytest.mark.parametrize(
    "text",
    [
        *(
            "localhost",
            "127.0.0.5",
            "::1",
            "10.1.2.3",
            "192.168.1.5:80",
            "172.16.0.1",
            "fd00::1",
            "100.64.1.1",
            "::ffff:100.64.1.1",
        ),
        *("ollama", "gpu.lan", "host.docker.internal", "ollama.models.svc", "ollama.models.svc.cluster.local"),
        "https://8.8.8.8",
    ],
)
def test_private_hosts_and_tls_need_no_permission(text):
    """Loopback, private networks, names that only resolve there, and https anywhere."""
    parse_address(text)


@pytest.mark.parametrize(
    "text", ["8.8.8.8", "http://example.com", "2001:4860:4860::8888", "::ffff:8.8.8.8", "134744072", "0x8.0x8.2056"]
)
def test_plain_http_beyond_private_networks_needs_permission(text):
    """However the public address is written, plain http to it is refused unless allowed."""
    with pytest.raises(InsecureAddress):
        parse_address(text)

    parse_address(text, allow_insecure=True)


@pytest.mark.parametrize(
    "text",
    [
        *("ftp://1.2.3.4", "unix:///run/ollama.sock", "http://host name", "http://h?x=1"),
        *(":::", "1:2:3", "[::1", "http://[::1", "[::1]1", "[gpu]:1", "[1:2]", "a..b", "http://gpu/\x00"),
    ],
)
def test_what_is_no_address_is_refused(text):
    """Other schemes and broken hosts are refused at once, not at the first call."""
    with pytest.raises(AddressError):
        parse_address(text)


@pytest.mark.parametrize("port", ["66000", "-1", "port", "999999", "1x", "²"])
@pytest.mark.parametrize("host", ["1.2.3.4", "http://gpu.lan", "https://[::1]"])
def test_a_port_that_is_none_is_refused(host, port):
    """The port is a slip of the pen, and the default in its place would be somebody else's server."""
    with pytest.raises(AddressError, match="number up to 65535"):
        parse_address(f"{host}:{port}")


def test_credentials_are_refused_and_not_repeated():
    """A password in the address is refused, and the message does not hold it."""
    with pytest.raises(AddressError) as refused:
        parse_address("https://user:hunter2@example.com")

    assert "hunter2" not in str(refused.value)


def test_a_label_is_host_and_port():
    """Metrics and messages name a host without scheme and path."""
    assert parse_address("https://[::1]:8443/base").label == "[::1]:8443"
