"""Ray Data does the work of documents.py, or a function that does nothing.

Arguments: batches (Arrow tables at a time), rows (filter and map of one row at a time) or
nothing; cores; files, or how many rows; the folder to write to.
"""

import logging
import os
import sys
import time
from typing import Any

os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")

import documents
import pyarrow as pa
import pyarrow.compute as pc
import ray
import ray.data


def keep(table: pa.Table) -> pa.Table:
    return table.filter(pc.greater(pc.utf8_length(table["text"]), documents.LEAST))


def tokenize(table: pa.Table) -> pa.Table:
    ids = documents.encode(table["text"].to_pylist())
    return pa.table({"tokens": pa.array(ids, pa.list_(pa.int32()))})


def tokenize_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": documents.encode([row["text"]])[0]}


def write(what: str, files: list[str], out: str) -> None:
    data = ray.data.read_json(files, lines=True)
    if what == "rows":
        data = data.filter(lambda row: len(row["text"]) > documents.LEAST).map(tokenize_row)
    else:
        data = data.map_batches(keep, batch_format="pyarrow", zero_copy_batch=True)
        data = data.map_batches(tokenize, batch_format="pyarrow", zero_copy_batch=True)
    data.write_parquet(out)


def same(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def nothing(rows: int, batch: int) -> float:
    data = ray.data.range(rows).materialize()
    warm = data.limit(rows // 10).map_batches(same, batch_size=batch).materialize()
    began = time.perf_counter()
    done = data.map_batches(same, batch_size=batch).materialize()
    took = time.perf_counter() - began
    assert done.count() == rows and warm.count() == rows // 10
    return rows / took


def main() -> None:
    what, cores, given, out = sys.argv[1:]
    ray.init(
        num_cpus=int(cores),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    if what == "nothing":
        for batch in (8 << 10, 512 << 10):
            print(f"rows {batch} {nothing(int(given), batch)}", flush=True)
        return
    files = given.split(",")
    write(what, files[:1], out + "-warm")  # every worker has its imports and the encoding
    documents.mark("begin")
    write(what, files, out)
    documents.mark("end")


if __name__ == "__main__":
    main()
