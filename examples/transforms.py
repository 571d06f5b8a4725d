"""Transforms of one's own, of each kind, as docs/transforms-python.md describes them.

`python examples/transforms.py` runs them on a few rows, without a service. It needs the
millrace package (pip install ./client/python), and nothing else.
"""

# ruff: noqa: UP045 - Python 3.9 cannot evaluate X | None, which the decorator does
from __future__ import annotations

import re
from typing import Optional, TypedDict

import numpy as np
import numpy.typing as npt

import millrace


@millrace.transform
def one_line(text: str) -> str:
    """A map of one column: what it returns takes the column's place."""
    return " ".join(text.split())


class Titled(TypedDict):
    text: str
    words: int


@millrace.transform(input={"title": "meta.title"})
def titled(text: str, title: Optional[str]) -> Titled:
    """A map that takes two fields, one of which may be missing, and gives two columns."""
    text = f"{title}\n{text}" if title else text
    return {"text": text, "words": len(text.split())}


@millrace.transform("filter")
def long_enough(text: str) -> bool:
    return len(text) >= 5


@millrace.transform("flat_map")
def sentences(text: str) -> list[str]:
    return re.findall(r"[^.]+\.", text)


class Scored(TypedDict):
    text: list[str]
    score: npt.NDArray[np.float64]


@millrace.transform("map_batches", version="1")
class Score:
    """A class is made once in each worker: a model would be loaded here."""

    def __init__(self) -> None:
        self.common = {"the", "a", "of", "and"}

    def __call__(self, text: list[str]) -> Scored:
        shares = [np.mean([w in self.common for w in t.lower().split()] or [0.0]) for t in text]
        return {"text": text, "score": np.array(shares, np.float64)}


@millrace.transform
def masked(text: str, rng: np.random.Generator) -> str:
    """Chance is keyed by the row: the same words are masked in every run of the job."""
    return " ".join("_" if rng.random() < 0.2 else word for word in text.split())


if __name__ == "__main__":
    rows = [
        {"text": "The mill   turns. The race is fast.", "meta.title": "Mill"},
        {"text": "ab", "meta.title": None},
    ]
    for step in (titled, long_enough, sentences, one_line, Score, masked):
        rows = millrace.transform.apply(step, rows, seed=1)
        print(step.__name__, *rows, sep="\n  ")
