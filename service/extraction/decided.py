"""The decisions that messages say, sentence by sentence: what a receipt accounts for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.message import Role, sent_content
from abridged.service.domain.receipt import Decided
from abridged.service.extraction.cues import is_decision, is_promise, stands_alone
from abridged.service.text.markup import strip_marks
from abridged.service.text.nested_json import begins_as_data
from abridged.service.text.secrets import mask_secrets
from abridged.service.text.sentences import sentences

SPOKEN_CHARS_MAX: Final = 8_000
"""A longer message is a document or the output of a program; reading one for decisions takes longer than for names."""


def decided_in(messages: Iterable[MessageAppended]) -> Iterator[Decided]:
    """Each sentence by which a person or a model settles something, unless its neighbours have to be read with it.

    A model's next step settles nothing.
    """
    for m in messages:
        text = sent_content(m.message)
        if m.message.role is Role.TOOL or begins_as_data(text) or len(text) > SPOKEN_CHARS_MAX:
            continue
        by_model = m.message.role is Role.ASSISTANT
        for sentence in sentences(mask_secrets(strip_marks(text))):
            if is_decision(sentence) and stands_alone(sentence) and not (by_model and is_promise(sentence)):
                yield Decided(sentence, m.number)
