"""Functions that the jobs of the tests name."""

from typing import Optional, TypedDict

import millrace
from numpy.random import Generator


class Labelled(TypedDict):
    text: str
    length: int


@millrace.transform
def label(text: str, lang: str) -> Labelled:
    if "zz" in text:
        raise ValueError("zz is no word")
    return {"text": f"{lang.upper()} {text}", "length": len(text)}


@millrace.transform(kind="filter")
def long_enough(length: int) -> bool:
    return length > 20


class Part(TypedDict):
    text: str
    at: int


@millrace.transform(kind="flat_map")
def parts(text: str, title: Optional[str]) -> list[Part]:
    words = text.split()
    return [{"text": " ".join(words[i : i + 8]), "at": i} for i in range(0, len(words), 8)]


@millrace.transform
def shuffled(text: str, rng: Generator) -> str:
    words = text.split()
    return " ".join(words[i] for i in rng.permutation(len(words)))


@millrace.transform(kind="filter")
def rare(text: str) -> bool:
    return text.startswith("rare")


@millrace.transform
def same(text: str) -> str:
    return text
