"""What the peers share: what is done with documents, and how a phase is marked.

The work is the same for all: JSON lines, documents of more than 200 characters, cl100k_base and
an end-of-document token, Parquet with a list of tokens in each row.
"""

import functools
import os
import sys

import tiktoken

LEAST = 200
END = 100257


@functools.lru_cache
def encoding() -> tiktoken.Encoding:
    """The encoding, from TIKTOKEN_CACHE_DIR; loaded once in each process."""
    return tiktoken.get_encoding("cl100k_base")


def encode(texts: list[str]) -> list[list[int]]:
    """The tokens of documents, one core."""
    ids: list[list[int]] = encoding().encode_ordinary_batch(texts, num_threads=1)
    for tokens in ids:
        tokens.append(END)
    return ids


def mark(word: str) -> None:
    """Tells the measuring process where it is, and waits until that has looked."""
    os.write(sys.stdout.fileno(), f"mark {word}\n".encode())
    os.read(sys.stdin.fileno(), 1)
