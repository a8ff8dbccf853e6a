"""The address of an Ollama server, in any form that OLLAMA_HOST may have.

Ollama's own rules: no scheme means http and port 11434, except for ollama.com, which speaks https alone. For an invalid
port, Ollama's server uses the default, its Python client raises; we raise.
"""

from __future__ import annotations

from service.models.http.address import ServerAddress, parse_server

_BARE = ("http", 11_434)
_BARE_CLOUD = ("https", 443)
_CLOUD = "ollama.com"


def parse_address(text: str, *, allow_insecure: bool = False) -> ServerAddress:
    """Parse one address; see `parse_server` for `allow_insecure` and the errors."""
    is_cloud = text.strip().strip("\"'").strip().rstrip("/").lower() == _CLOUD
    bare = _BARE_CLOUD if is_cloud else _BARE
    return parse_server(text, whose="an Ollama address", bare=bare, allow_insecure=allow_insecure)
