"""Writes the same tokenized rows for each peer, in the form that it reads fastest."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from trainer import LENGTH

FILES = 4
GROUP = 256  # rows of a row group


def tokens_of(rows: int) -> np.ndarray[Any, Any]:
    """Rows of token ids, the same in each run."""
    return np.random.default_rng(13).integers(0, 100_000, (rows, LENGTH), np.int32)


def write_parquet(rows: np.ndarray[Any, Any], folder: str) -> list[str]:
    """Files of lists of int32, plain, for Millrace and DataLoader."""
    os.makedirs(folder)
    paths = []
    for i, part in enumerate(np.array_split(rows, FILES)):
        offsets = np.arange(len(part) + 1, dtype=np.int32) * LENGTH
        column = pa.ListArray.from_arrays(offsets, part.ravel())
        paths.append(os.path.join(folder, f"{i}.parquet"))
        pq.write_table(
            pa.table({"tokens": column}),
            paths[-1],
            row_group_size=GROUP,
            compression="none",
            use_dictionary=False,
        )
    return paths


def write_mosaic(rows: np.ndarray[Any, Any], folder: str) -> None:
    """Shards of MosaicML Streaming."""
    from streaming import MDSWriter

    with MDSWriter(out=folder, columns={"tokens": f"ndarray:int32:{LENGTH}"}) as writer:
        for row in rows:
            writer.write({"tokens": row})


def write_lit(rows: np.ndarray[Any, Any], folder: str) -> None:
    """Chunks of LitData."""
    import torch
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(
        folder, chunk_size=64 * LENGTH, item_loader=TokensLoader(block_size=LENGTH)
    )
    for i, row in enumerate(rows):
        writer.add_item(i, torch.from_numpy(row))
    writer.done()
    writer.merge()


def write_grain(rows: np.ndarray[Any, Any], path: str) -> None:
    """One array that is mapped into memory."""
    np.save(path, rows)
