"""Functions for the memory of jobs with workers: one gives more than it takes."""

import millrace


@millrace.transform
def same(text: str) -> str:
    return text


@millrace.transform("map_batches")
def hundredfold(text: list[str]) -> list[str]:
    return [t * 100 for t in text]
