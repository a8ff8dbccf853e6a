"""Digests of a conversation's last responses: they tell how much of the next one a prompt cache still holds."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.render_json import Rendering

FORMS_MAX = 4
"""Forms of a conversation that are remembered: one for each chat model that its caller may ask in turn."""

DIGEST_BYTES = 16
"""Bytes of the digest of one segment. Two texts with one digest are not found by chance, nor in 2**64 tries on
purpose."""

RESPONSE_BYTES = 256
"""The memory that a remembered response takes beside its digests."""


class ResponseForm(NamedTuple):
    """A caller's choices about the bytes of the same window."""

    role: SummaryRole
    rendering: Rendering | None = None
    cache_marks: bool = False


class _Response(NamedTuple):
    form: ResponseForm
    digests: bytes


class Prefixes(NamedTuple):
    """The digests of each form's last response, the most recent form last."""

    responses: tuple[_Response, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of memory that the prefixes take."""
        return sum(RESPONSE_BYTES + len(response.digests) for response in self.responses)

    def stable(self, form: ResponseForm, digests: bytes) -> int:
        """Count the segments at the start of a response that equal those of the last one in this form."""
        before = next((response.digests for response in self.responses if response.form == form), b"")
        if digests.startswith(before):
            return len(before) // DIGEST_BYTES
        most = min(len(before), len(digests))
        starts = range(0, most, DIGEST_BYTES)
        changed = (at for at in starts if before[at : at + DIGEST_BYTES] != digests[at : at + DIGEST_BYTES])
        return next(changed, most) // DIGEST_BYTES

    def after(self, form: ResponseForm, digests: bytes) -> Prefixes:
        """The prefixes after a response of these segments. The form that was used longest ago goes first."""
        others = [response for response in self.responses if response.form != form]
        return Prefixes((*others[-(FORMS_MAX - 1) :], _Response(form, digests)))


NO_PREFIXES = Prefixes()


def segment_digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
