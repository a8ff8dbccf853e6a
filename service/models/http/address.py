"""The address of a model server: text as an operator writes it, parsed once into `ServerAddress`.

`http://` alone means port 80, `https://` alone port 443; an empty port is the default; quotes and blanks around the
text are ignored; a path is kept. An invalid port is refused: the operator did not mean the default.

    SettingUnusable
    └── AddressError        the text is not an address that this product connects to
        └── InsecureAddress plain http beyond loopback and private networks, without the explicit setting
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass

from abridged.service.left_out import HTTPX_COMMAND, left_out
from abridged.service.models.settings import SettingUnusable

_PORT_MAX = 65_535
_SCHEME_PORTS = {"http": 80, "https": 443}
# Names that only resolve inside a machine or a private network (RFC 6761, 6762, 8375; ICANN's .internal; Kubernetes).
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".home.arpa", ".lan", ".svc")

_HOST = "has a host name or an IP address"

_PLAIN_URL = re.compile(
    r"https?://(127\.0\.0\.1|[A-Za-z][\w-]{0,62}(\.[\w-]{1,63}){0,8}):\d{1,5}(/[\w-]{1,63}){0,8}", re.ASCII
)
"""Needs no library to be a URL, and none is loaded for it."""


class AddressError(SettingUnusable):
    """The text is not a valid address."""


class _Unusable(Exception):
    """The rest of a message about an address."""


class InsecureAddress(AddressError):
    """Message text would cross a public network unencrypted."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of one server.

    Attributes:
        scheme: `http` or `https`.
        host: A name or an IP address; IPv6 without brackets.
        port: The TCP port.
        path: The base path; starts with a slash, or is empty.
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def label(self) -> str:
        """`host:port`, for metrics and messages."""
        return f"{self._bracketed}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return f"{self.scheme}://{self._bracketed}:{self.port}{self.path}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_private(self) -> bool:
        """True if the host is on this machine or in a private network, judged by its text."""
        ip = _as_ip(self.host)
        if ip is not None:
            return not ip.is_global
        name = self.host.lower().rstrip(".")
        return "." not in name or name.endswith(_PRIVATE_SUFFIXES)


def parse_server(
    text: str, *, whose: str, bare: tuple[str, int] | None = None, allow_insecure: bool = False
) -> ServerAddress:
    """Parse one address; `allow_insecure` permits plain http to public hosts.

    `whose` begins each message, such as `an Ollama address`. `bare` is the scheme and the port of an address without a
    scheme; None refuses it. Raises AddressError for an unknown scheme, for credentials, and for an invalid host or
    port; InsecureAddress for plain http to a public host.
    """
    stripped = text.strip().strip("\"'").strip()
    scheme, separator, rest = stripped.partition("://")
    if not separator and bare is not None:
        rest, (scheme, port_default) = stripped, bare
    elif not separator or scheme.lower() not in _SCHEME_PORTS:
        raise AddressError(f"{whose} begins with http:// or https://{', or has no scheme' if bare else ''}")
    else:
        scheme = scheme.lower()
        port_default = _SCHEME_PORTS[scheme]
    authority, _, path = rest.partition("/")
    # The text may contain a password, so the message does not repeat it.
    if "@" in authority:
        raise AddressError(f"{whose} must not contain a user name or password; use the api_key setting")
    try:
        host, port = _split_port(authority, port_default)
        address = ServerAddress(scheme, _reachable(host), port, f"/{path.strip('/')}" if path.strip("/") else "")
    except _Unusable as error:
        raise AddressError(f"{whose} {error}") from None
    if not _PLAIN_URL.fullmatch(address.url):
        _require_url(address.url, whose)
    if scheme == "http" and not address.is_private and not allow_insecure:
        raise InsecureAddress(f"{address.label} is beyond loopback and private networks: use https, or allow it")
    return address


def _require_url(url: str, whose: str) -> None:
    with left_out(HTTPX_COMMAND):
        import httpx

    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise AddressError(f"{whose} {_HOST}") from error


def _split_port(authority: str, port_default: int) -> tuple[str, int]:
    if authority.startswith("["):
        host, bracket, after = authority[1:].partition("]")
        if not bracket or ":" not in host or (after and not after.startswith(":")):
            raise _Unusable("needs brackets around an IPv6 host, '[::1]:11434'")
        return host, _port(after.removeprefix(":"), port_default)
    if authority.count(":") > 1:
        return authority, port_default
    host, _, port = authority.partition(":")
    return host, _port(port, port_default)


def _port(text: str, port_default: int) -> int:
    if not text:
        return port_default
    if text.isascii() and text.isdigit() and len(text) <= len(str(_PORT_MAX)) and int(text) <= _PORT_MAX:
        return int(text)
    raise _Unusable(f"has a number up to {_PORT_MAX} as its port")


def _reachable(host: str) -> str:
    ip = _as_ip(host)
    if any(c.isspace() or c in "?#\\%" for c in host) or (":" in host and ip is None):
        raise _Unusable(_HOST)
    if not host or (ip is not None and ip.is_unspecified):
        # 0.0.0.0 and :: are addresses to listen on; a client reaches that server on loopback.
        return "::1" if isinstance(ip, ipaddress.IPv6Address) else "127.0.0.1"
    return host


def _as_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return _as_legacy_ipv4(host)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip


def _as_legacy_ipv4(host: str) -> ipaddress.IPv4Address | None:
    """Resolvers also accept `134744072` and `0x8.2056` as addresses: such a name must not count as private."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeEncodeError):
        return None
