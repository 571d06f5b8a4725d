"""PyTorch DataLoader workers do the work of documents.py. Arguments: cores, files, out."""

import json
import os
import sys
from collections.abc import Iterator

import documents
import pyarrow as pa
import pyarrow.parquet as pq
import torch.utils.data

BATCH = 256


class Lines(torch.utils.data.IterableDataset[pa.Table]):
    """Each worker reads every n-th file and makes tables of its documents."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def __iter__(self) -> Iterator[pa.Table]:
        info = torch.utils.data.get_worker_info()
        mine = self.files[info.id :: info.num_workers] if info else self.files
        for path in mine:
            texts: list[str] = []
            with open(path, encoding="utf-8") as lines:
                for line in lines:
                    text = json.loads(line)["text"]
                    if len(text) > documents.LEAST:
                        texts.append(text)
                    if len(texts) == BATCH:
                        yield table(texts)
                        texts = []
            if texts:
                yield table(texts)


def table(texts: list[str]) -> pa.Table:
    return pa.table({"tokens": pa.array(documents.encode(texts), pa.list_(pa.int32()))})


def main() -> None:
    cores, given, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    documents.encoding()  # workers are forked with it: they are warm
    documents.mark("begin")
    loader = torch.utils.data.DataLoader(
        Lines(given.split(",")), batch_size=None, num_workers=int(cores)
    )
    writer = None
    for batch in loader:
        writer = writer or pq.ParquetWriter(
            os.path.join(out, "part.parquet"), batch.schema, compression="zstd"
        )
        writer.write_table(batch)
    if writer:
        writer.close()
    documents.mark("end")


if __name__ == "__main__":
    main()
