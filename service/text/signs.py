"""Weights of signs, few and each with a name, which a model in `NAME.json` has."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from operator import mul
from typing import NamedTuple


class Weighing(NamedTuple):
    """A trained model: the weight of each sign, in their order, and the bias."""

    weights: tuple[float, ...]
    bias: float

    def of(self, signs: Sequence[float]) -> float:
        """The log odds by these signs."""
        return self.bias + math.fsum(map(mul, self.weights, signs))


@cache
def weighing(name: str, signs: tuple[str, ...]) -> Weighing:
    """The model in `NAME.json` for signs of these names, read once."""
    read = json.loads(files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return Weighing(tuple(read[sign] for sign in signs), read["bias"])
