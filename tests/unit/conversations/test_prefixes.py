"""Beginnings of the last responses: never more is called stable than is, and only a bounded amount is remembered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from abridged.service.conversations.prefixes import FORMS_MAX, NO_PREFIXES, ResponseForm, segment_digest
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.render_json import Rendering

FORM = ResponseForm(SummaryRole.USER)
PIECES = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=6)


def digests(pieces: list[bytes]) -> bytes:
    return b"".join(map(segment_digest, pieces))


@given(PIECES, PIECES)
def test_what_is_stable_is_the_longest_common_start(before, now):
    """The pieces are compared one by one, whatever comes after the first difference."""
    common = next((n for n, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), None)
    expected = min(len(before), len(now)) if common is None else common

    assert NO_PREFIXES.after(FORM, digests(before)).stable(FORM, digests(now)) == expected


def test_every_form_has_a_last_response_of_its_own():
    """Another role or API is another prompt."""
    prefixes = NO_PREFIXES.after(FORM, digests([b"a", b"b"]))
    for other in (ResponseForm(SummaryRole.SYSTEM), ResponseForm(SummaryRole.USER, Rendering.OPENAI)):
        assert prefixes.stable(other, digests([b"a", b"b"])) == 0
        prefixes = prefixes.after(other, digests([b"a"]))

    assert prefixes.stable(FORM, digests([b"a", b"b"])) == 2


def test_the_form_asked_for_longest_ago_is_forgotten():
    """A caller that asks for every form takes no more memory than one with a few."""
    forms = [ResponseForm(role, rendering) for role in SummaryRole for rendering in Rendering][: FORMS_MAX + 1]
    prefixes = NO_PREFIXES
    for form in forms[:-1]:
        prefixes = prefixes.after(form, digests([b"a"]))
    prefixes = prefixes.after(forms[0], digests([b"a"])).after(forms[-1], digests([b"a"]))

    assert [prefixes.stable(form, digests([b"a"])) for form in forms] == [1, 0, *[1] * (FORMS_MAX - 1)]
    assert len(prefixes.responses) == FORMS_MAX
