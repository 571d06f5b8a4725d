"""A function that does nothing, for the memory of a job with workers."""

import millrace


@millrace.transform
def same(text: str) -> str:
    return text
