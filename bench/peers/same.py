"""Functions for the memory of jobs with workers: some give more than they take."""

import millrace


@millrace.transform
def same(text: str) -> str:
    return text


@millrace.transform("flat_map")
def words(text: str) -> list[str]:
    return text.split()


@millrace.transform("map_batches")
def hundredfold(text: list[str]) -> list[str]:
    return [t * 100 for t in text]
