"""Writes conversations as JSON Lines, and the same as Parquet and Arrow files with nested columns.

    structs.py FOLDER

Needs pyarrow and datasets. Tests in Go read each file, and compare it with the lines.
"""

from __future__ import annotations

import copy
import json
import pathlib
import sys
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'Weather of a "place" \\ <b>today</b>.',
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Zürich, 東京 …"}, "days": {"type": "integer", "enum": [1, 2, 3]}},
            "required": ["place"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": []}}}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A call of a tool."""
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


RECORDS: list[dict[str, Any]] = [
    {"id": 0, "messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]},
    {"id": 1, "messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "line\n\ttab \"quote\" \\ \u0001 ünï 😀", "loss": False}]},
    {
        "id": 2,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "tool_calls": [call("weather", place="Zürich", days=2), call("clock", zone="CET")]},
            {"role": "tool", "content": "12 °C", "name": "weather"},
            {"role": "assistant", "content": "12 °C", "score": 0.5, "loss": True},
        ],
        "tools": [WEATHER, CLOCK],
        "meta": {"lang": ["en"], "source": []},
    },
    {"id": 3, "messages": [{"role": "assistant", "tool_calls": [call("clock")]}, {"role": "assistant", "tool_calls": []}], "tools": [CLOCK]},
    {"id": 4, "messages": [], "tools": []},
    {"id": 5, "messages": None, "tools": None, "meta": None},
    {"id": 6, "messages": [None, {"role": "user", "content": "after a null", "score": 1.0}], "meta": {}},
    {"id": 7, "messages": [{}], "tools": [WEATHER], "meta": {"lang": None, "z": ["a", None]}},
]
# Long enough for rows that go on over several pages.
RECORDS += [
    {
        "id": 8 + i,
        "messages": [
            {"role": ["user", "assistant"][k % 2], "content": f"{i}.{k} " + "word " * (k * 3 % 17), **({"score": k / 4} if k % 5 == 0 else {})} for k in range(3 * i + 1)
        ],
        "tools": [copy.deepcopy(WEATHER)] * (i % 3),
        "meta": {f"k{k}": [f"{i}"] * k for k in range(i % 4)},
    }
    for i in range(6)
]


def types(text: pa.DataType, role: pa.DataType, many: Any) -> pa.Schema:
    """The schema of the records, with some of its types given."""
    prop = pa.struct([("type", text), ("description", text), ("enum", many(pa.int64()))])
    arguments = pa.struct([("place", text), ("days", pa.int32()), ("zone", text)])
    function = pa.struct([("name", text), ("arguments", arguments)])
    message = pa.struct(
        [
            ("role", role),
            ("content", text),
            ("name", text),
            ("score", pa.float64()),
            ("tool_calls", many(pa.struct([("id", text), ("type", text), ("function", function)]))),
            ("loss", pa.bool_()),
        ]
    )
    parameters = pa.struct([("type", text), ("properties", pa.struct([("place", prop), ("days", prop), ("zone", prop)])), ("required", many(text))])
    tool = pa.struct([("type", text), ("function", pa.struct([("name", text), ("description", text), ("parameters", parameters)]))])
    return pa.schema([("id", pa.int64()), ("messages", many(message)), ("tools", many(tool)), ("meta", pa.map_(text, many(text)))])


def table(schema: pa.Schema) -> pa.Table:
    """The records as a table."""
    rows = [{**r, "meta": None if r.get("meta") is None else list(r["meta"].items())} for r in RECORDS]
    return pa.Table.from_pylist(rows, schema)


def ordered(record: dict[str, Any]) -> dict[str, Any]:
    """A record with its fields in the order of the schema."""
    names = ["role", "content", "name", "score", "tool_calls", "loss"]
    messages = record["messages"]
    if messages is not None:
        messages = [m and {n: m[n] for n in names if n in m} for m in messages]
    return {**record, "messages": messages}


def ascii_only(value: Any) -> Any:
    """A value with question marks for all other characters."""
    if isinstance(value, dict):
        return {k: ascii_only(v) for k, v in value.items()}
    if isinstance(value, list):
        return [ascii_only(v) for v in value]
    return value.encode("ascii", "replace").decode() if isinstance(value, str) else value


def main(folder: pathlib.Path) -> None:
    """Write all files."""
    lines = [json.dumps(ordered(r), ensure_ascii=False, separators=(",", ":")) for r in RECORDS]
    (folder / "talks.jsonl").write_text("\n".join(lines) + "\n")
    plain = table(types(pa.string(), pa.string(), pa.list_))
    small = {"row_group_size": 5, "data_page_size": 1, "write_batch_size": 2}
    pq.write_table(plain, folder / "talks.parquet", **small, compression="none", write_page_checksum=False)
    pq.write_table(table(types(pa.large_string(), pa.large_string(), pa.large_list)), folder / "talks-v2.parquet", **small, data_page_version="2.0", compression="zstd", use_dictionary=False)
    with pa.ipc.new_stream(folder / "talks-stream.arrow", plain.schema) as w:
        w.write_table(plain, max_chunksize=6)
    words = pa.dictionary(pa.int8(), pa.string())
    encoded = table(types(pa.large_string(), pa.string(), pa.large_list))
    column = encoded.column("messages").combine_chunks()
    items = column.values
    fields = [f if f.name != "role" else pa.field("role", words) for f in items.type]
    children = [items.field(i) if f.name != "role" else items.field(i).dictionary_encode().cast(words) for i, f in enumerate(fields)]
    items = pa.StructArray.from_arrays(children, fields=fields, mask=items.is_null())
    column = pa.LargeListArray.from_arrays(column.offsets, items, mask=column.is_null())
    pa.feather.write_feather(encoded.set_column(1, "messages", column), str(folder / "talks.feather"), compression="lz4", chunksize=9)
    damaged = bytearray((folder / "talks.parquet").read_bytes())
    damaged[784] ^= 1  # a level: the columns of a message do not agree any more
    (folder / "talks-damaged.parquet").write_bytes(damaged)
    # As Hugging Face datasets writes fields of several types, such as arguments: JSON in a struct.
    calls = [{"messages": [m for m in ordered(r)["messages"] or [] if m]} for r in RECORDS[:4]]
    calls = ascii_only(calls)  # datasets escapes the rest
    text, many = datasets.Value("string"), datasets.List
    function = {"name": text, "arguments": datasets.Json()}
    message = {"role": text, "content": text, "name": text, "score": datasets.Value("float64")}
    message |= {"tool_calls": many({"id": text, "type": text, "function": function}), "loss": datasets.Value("bool")}
    hub = datasets.Dataset.from_list(calls, features=datasets.Features({"messages": many(message)}))
    hub.to_parquet(folder / "hub.parquet")
    datasets.Dataset.from_list(calls, on_mixed_types="use_json").to_parquet(folder / "hub-json.parquet")
    with datasets.arrow_writer.ArrowWriter(path=str(folder / "hub.arrow"), features=hub.features) as w:
        w.write_table(hub.data.table)
        w.finalize()
    (folder / "hub.jsonl").write_text("\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in calls) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
