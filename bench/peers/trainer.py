"""A trainer rank that takes batches of a peer, at its own pace, and says how long it waited.

    python trainer.py '{"peer": "torch", "rank": 0, "ranks": 2, "batch": 8, "steps": 300, ...}'

Run by loaders.py, which has written the inputs. A batch is int64 tokens of whole rows. With
"check", each batch's rows are hashed instead of measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import documents
import numpy as np

LENGTH = 4096


def hash_rows(batch: Any) -> list[str]:
    """One hash for each row, whatever the batch is made of."""
    rows = np.ascontiguousarray(np.asarray(batch), dtype=np.int64).reshape(-1, LENGTH)
    return [hashlib.blake2b(row.tobytes(), digest_size=12).hexdigest() for row in rows]


def millrace_batches(of: dict[str, Any]) -> Iterator[Any]:
    """Batches of the service at "address"."""
    import millrace

    loader = millrace.connect(
        of["address"],
        dp_rank=of["rank"],
        dp_size=of["ranks"],
        way=of["way"],
        prefetch=of["ahead"],
        tensors=["tokens"],  # as the peers give
    )
    for batch in loader:
        yield batch["tokens"]


def torch_batches(of: dict[str, Any]) -> Iterator[Any]:
    """PyTorch's DataLoader over Parquet: whole batches out of shuffled row groups, one worker."""
    import pyarrow.parquet as pq
    import torch.utils.data

    class Rows(torch.utils.data.IterableDataset[Any]):
        """The row groups of this rank, in an order of its epoch."""

        def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
            files = [pq.ParquetFile(path) for path in of["parquet"]]
            groups = [(file, n) for file in files for n in range(file.num_row_groups)]
            for epoch in range(of["epochs"]):
                random.Random(epoch).shuffle(groups)
                rest = np.empty((0, LENGTH), np.int64)
                for file, n in groups[of["rank"] :: of["ranks"]]:
                    column = file.read_row_group(n, columns=["tokens"]).column(0).combine_chunks()
                    rows = column.values.to_numpy().reshape(-1, LENGTH)
                    rows = rows[np.random.default_rng(epoch).permutation(len(rows))]
                    rest = np.concatenate([rest, rows.astype(np.int64)])
                    while len(rest) >= of["batch"]:
                        yield rest[: of["batch"]]
                        rest = rest[of["batch"] :]

    return iter(
        torch.utils.data.DataLoader(
            Rows(), batch_size=None, num_workers=1, prefetch_factor=max(of["ahead"], 2)
        )
    )


def torch_text(of: dict[str, Any]) -> Iterator[Any]:
    """PyTorch's DataLoader over JSON lines: tiktoken and packing in one worker."""
    import torch.utils.data

    class Packed(torch.utils.data.IterableDataset[Any]):
        """Rows of this rank's files."""

        def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
            documents.encoding()
            return packed(of)

    return iter(torch.utils.data.DataLoader(Packed(), batch_size=None, num_workers=1))


def lines(of: dict[str, Any]) -> Iterator[str]:
    """The texts of this rank's files, again and again."""
    for _ in range(of["epochs"]):
        for path in of["jsonl"][of["rank"] :: of["ranks"]]:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    yield json.loads(line)["text"]


def packed(of: dict[str, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Documents end to end, cut into rows."""
    pending: list[int] = []
    size = LENGTH * of["batch"]
    texts: list[str] = []
    for text in lines(of):
        texts.append(text)
        if len(texts) < 32:
            continue
        for ids in documents.encode(texts):
            pending += ids
        texts = []
        while len(pending) >= size:
            yield np.asarray(pending[:size], np.int64).reshape(-1, LENGTH)
            pending = pending[size:]


def mosaic_batches(of: dict[str, Any]) -> Iterator[Any]:
    """MosaicML Streaming over its own shards, with PyTorch's DataLoader and one worker."""
    import torch.utils.data
    from streaming import StreamingDataset

    data = StreamingDataset(local=of["mds"], batch_size=of["batch"], shuffle=True, shuffle_seed=1)
    loader = torch.utils.data.DataLoader(data, batch_size=of["batch"], num_workers=1)
    for _ in range(of["epochs"]):
        for batch in loader:
            yield batch["tokens"].long()


def lit_batches(of: dict[str, Any]) -> Iterator[Any]:
    """LitData over its own chunks of tokens, with its loader and one worker."""
    import torch.distributed
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    torch.distributed.init_process_group("gloo")  # by which it knows its rank
    data = StreamingDataset(
        input_dir=of["lit"], item_loader=TokensLoader(block_size=LENGTH), shuffle=True, seed=1
    )
    loader = StreamingDataLoader(data, batch_size=of["batch"], num_workers=1)
    for _ in range(of["epochs"]):
        for batch in loader:
            yield batch.long()


def grain_batches(of: dict[str, Any]) -> Iterator[Any]:
    """Grain over a memory-mapped array, one worker process."""
    import grain.python as grain

    class Source:
        """Rows of a file of int32."""

        def __init__(self) -> None:
            self.rows = np.load(of["npy"], mmap_mode="r")

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, i: Any) -> np.ndarray[Any, Any]:
            return np.asarray(self.rows[i], np.int64)

    return iter(
        grain.MapDataset.source(Source())
        .shuffle(seed=1)
        .repeat(of["epochs"])[of["rank"] :: of["ranks"]]
        .batch(of["batch"], drop_remainder=True)
        .to_iter_dataset()
        .mp_prefetch(grain.MultiprocessingOptions(num_workers=1))
    )


def grain_text(of: dict[str, Any]) -> Iterator[Any]:
    """Grain over the lines of JSON files, tiktoken and packing in one worker process."""
    import grain.experimental as experimental
    import grain.python as grain

    class Lines:
        """The lines of this rank's files, by their place."""

        def __init__(self) -> None:
            self.places = []
            for path in of["jsonl"][of["rank"] :: of["ranks"]]:
                with open(path, "rb") as file:
                    while line := file.readline():
                        self.places.append((path, file.tell() - len(line)))

        def __len__(self) -> int:
            return len(self.places)

        def __getitem__(self, i: Any) -> str:
            path, offset = self.places[i]
            with open(path, "rb") as file:
                file.seek(offset)
                return str(json.loads(file.readline())["text"])

    def tokens(text: str) -> dict[str, np.ndarray[Any, Any]]:
        return {"tokens": np.asarray(documents.encode([text])[0], np.int64)}

    documents_of = grain.MapDataset.source(Lines()).shuffle(seed=1).repeat(of["epochs"]).map(tokens)
    rows = experimental.ConcatThenSplitIterDataset(
        documents_of.to_iter_dataset(), length_struct={"tokens": LENGTH}
    )
    batches = rows.batch(of["batch"], drop_remainder=True)
    options = grain.MultiprocessingOptions(num_workers=1)
    return (b["tokens"] for b in batches.mp_prefetch(options))


PEERS = {
    "millrace": millrace_batches,
    "torch": torch_batches,
    "torch-text": torch_text,
    "mosaic": mosaic_batches,
    "litdata": lit_batches,
    "grain": grain_batches,
    "grain-text": grain_text,
}


def main() -> None:
    of = json.loads(sys.argv[1])
    os.environ |= {"RANK": str(of["rank"]), "WORLD_SIZE": str(of["ranks"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(of["port"])}
    os.environ |= {"LOCAL_RANK": str(of["rank"]), "LOCAL_WORLD_SIZE": str(of["ranks"])}
    batches = PEERS[of["peer"]](of)
    if of["check"]:
        hashes = [h for _ in range(of["steps"]) for h in hash_rows(next(batches))]
        print(json.dumps(hashes), flush=True)
        os._exit(0)
    for _ in range(of["warm"]):
        next(batches)
    documents.mark("begin")
    waits = []
    for _ in range(of["steps"]):
        begun = time.perf_counter()
        next(batches)
        waits.append(time.perf_counter() - begun)
        if of["pace"]:
            time.sleep(of["pace"])
    documents.mark("end")
    print(json.dumps(waits), flush=True)
    os._exit(0)  # workers of a loader that has more to give are not waited for


if __name__ == "__main__":
    main()
