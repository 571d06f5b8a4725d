"""Declared functions: what a declaration may say, and what apply checks."""

# ruff: noqa: UP045 - Python 3.9 cannot evaluate X | None, which the decorator does
from __future__ import annotations

import functools
import importlib
import json
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, TypedDict

import numpy as np
import numpy.typing as npt
import pytest

import millrace
from millrace import _columns
from millrace._function import DeclarationError
from millrace.transform import Tokens, apply

REPOSITORY = Path(__file__).parents[3]


class Row(TypedDict):
    text: str
    n: Optional[int]


@dataclass
class Point:
    x: float
    yes: bool


class Doubled(TypedDict):
    n: npt.NDArray[np.int64]


@millrace.transform
def upper(text: str) -> str:
    return text.upper()


@millrace.transform("map")
def counted(text: str, n: Optional[int]) -> Row:
    return {"text": text, "n": None if n is None else n + 1}


@millrace.transform("map", input={"x": "meta.x"})
def point(x: float, yes: bool = True) -> Point:
    return Point(x / 2, yes)


@millrace.transform("filter")
def long(text: str) -> bool:
    return len(text) > 2


@millrace.transform("flat_map")
def words(text: str) -> list[str]:
    return text.split()


@millrace.transform("map_batches")
def doubled(n: npt.NDArray[np.int64]) -> Doubled:
    return {"n": 2 * n}


@millrace.transform("map", output="ids")
def reversed_ids(ids: Tokens) -> Tokens:
    return ids[::-1]


@millrace.transform("map", output={"parts": list[list[str]], "raw": bytes})
def parts(text: str):
    return {"parts": [text.split(), []], "raw": text.encode()}


@millrace.transform
def drawn(text: str, rng: np.random.Generator) -> str:
    return f"{text}{rng.integers(1 << 40)}"


@millrace.transform
class Adds:
    def __init__(self) -> None:
        self.end = "!"

    def __call__(self, text: str) -> str:
        return text + self.end


def test_kinds():
    assert apply(upper, [{"text": "é", "n": 1}]) == [{"text": "É", "n": 1}]
    assert apply(counted, [{"text": "a", "n": 1}, {"text": "b"}]) == [
        {"text": "a", "n": 2},
        {"text": "b", "n": None},
    ]
    assert apply(point, [{"meta.x": 3}]) == [{"meta.x": 3, "x": 1.5, "yes": True}]
    assert apply(long, [{"text": "ab"}, {"text": "abc"}]) == [{"text": "abc"}]
    assert apply(words, [{"text": "a b"}, {"text": ""}, {"text": "c"}]) == [
        {"text": "a"},
        {"text": "b"},
        {"text": "c"},
    ]
    assert apply(doubled, [{"n": 1}, {"n": -2}]) == [{"n": 2}, {"n": -4}]
    assert apply(reversed_ids, [{"ids": [1, 2, 3]}])[0]["ids"].tolist() == [3, 2, 1]
    assert apply(parts, [{"text": "a é"}]) == [
        {"text": "a é", "parts": [["a", "é"], []], "raw": "a é".encode()}
    ]
    assert apply(Adds, [{"text": "a"}]) == [{"text": "a!"}]
    assert apply(upper, []) == []
    assert upper("a") == "A"  # the function is as it was
    assert millrace.transform.apply(upper, [{"text": "a"}]) == [{"text": "A"}]


def test_chance_is_the_rows():
    rows = [{"text": str(i)} for i in range(3)]
    whole = apply(drawn, rows, seed=7, source="web", file=1)
    assert whole == apply(drawn, rows, seed=7, source="web", file=1)
    assert len({row["text"][1:] for row in whole}) == 3
    for other in ({"seed": 8}, {"source": "w"}, {"file": 2}):
        assert whole != apply(drawn, rows, **{"seed": 7, "source": "web", "file": 1, **other})


def test_what_does_not_fit():
    for fn, row, said in [
        (upper, {"text": 1}, "column text: a value is int, not string"),
        (upper, {}, "column text: a value is None, not string: declare Optional"),
        (doubled, {"n": 1.5}, "column n: a value is float, not int"),
        (doubled, {"n": True}, "bool, not int"),
        (doubled, {"n": 1 << 63}, "beyond 64 bits"),
    ]:
        with pytest.raises(ValueError, match=said):
            apply(fn, [row])

    @millrace.transform(output={"n": int, "s": Optional[str]})
    def loose(text: str):
        return eval(text)

    ok = {"n": 1, "s": None}
    assert apply(loose, [{"text": repr(ok)}]) == [{"text": repr(ok), **ok}]
    for out, said in [
        ("{'n': 1.5, 's': ''}", "row 1: what it gives as n is float, not int"),
        ("{'n': 1, 's': b''}", r"what it gives as s is bytes, not string\?"),
        ("{'n': 1}", "columns n were given, not n, s"),
        ("3", "int was given, not the columns n, s"),
        ("{'n': 1, 's': '\\ud800'}", "text that UTF-8 cannot hold"),
        ("{}[object()]", r"row 1: KeyError: <object object at 0x\.\.\.> "),
        ("b'\\xff'.decode()", "can't decode byte 0xff in position 0"),
        ("1/0", r"row 1: ZeroDivisionError: division by zero \(.*in loose"),
        ("exit(3)", "SystemExit: 3"),
    ]:
        with pytest.raises(ValueError, match=said):
            apply(loose, [{"text": repr(ok)}, {"text": out}])


def test_what_a_worker_checks_too():
    kept = []

    @millrace.transform("map_batches", output="n")
    def fewer(n: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return n[1:]

    @millrace.transform("map_batches", output="n")
    def keeps(n: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        kept.append(n)
        return n

    for fn, said in [(fewer, "column n has 1 values for 2 rows"), (keeps, "it keeps a column")]:
        with pytest.raises(ValueError, match=said):
            apply(fn, [{"n": 1}, {"n": 2}])


def test_text_and_bytes_as_loaders_give_them():
    @millrace.transform(output="n")
    def both(text: str, raw: bytes, names: list[str], some: Optional[str]) -> int:
        assert (type(text), type(raw), names, some) == (str, bytes, ["é", "b"], None)
        return len(text) + len(raw)

    row = {"text": "é".encode(), "raw": "é", "names": ["é".encode(), "b"]}
    assert apply(both, [row])[0]["n"] == 3
    for change, said in [
        ({"text": b"\xff"}, "column text: a value is bytes that are not UTF-8, not string"),
        ({"raw": "\ud800"}, "column raw: a value is text that UTF-8 cannot hold"),
        ({"names": [b"\xff"]}, "column names: a value is bytes that are not UTF-8"),
    ]:
        with pytest.raises(ValueError, match=said):
            apply(both, [{**row, **change}])


def test_declarations():
    def declared(fn, *args, **options):
        with pytest.raises(DeclarationError) as error:
            millrace.transform(*args, **options)(fn)
        return str(error.value)

    def untyped(text):
        return text

    def odd(text: dict) -> str:
        return ""

    def silent(text: str):
        return text

    def two(text: str, n: int) -> str:
        return text

    def starred(*text: str) -> str:
        return ""

    def chance(n: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        return n

    def lists(text: str) -> list[str]:
        return [text]

    assert "none of map, filter, flat_map, map_batches" in declared(upper, "mapp")
    assert "parameter text has no annotation" in declared(untyped)
    assert "text is <class 'dict'>: give str, bytes" in declared(odd)
    assert "what it gives is not said" in declared(silent)
    assert 'Declare output="name"' in declared(two)
    assert "parameter text is not a plain one" in declared(starred)
    assert "a map_batches takes no rng" in declared(chance, "map_batches")
    assert "a column of map_batches is a list" in declared(lists, "map_batches")
    assert "which is not a parameter" in declared(lists, input={"other": "x"})
    assert "give cpu, gpu or gpu_memory" in declared(lists, needs={"tpu": 1})
    assert "a filter gives no columns" in declared(lists, "filter", output="text")
    for options, valid in [
        ({"needs": 5}, "numbers by resource"),
        ({"needs": ["gpu"]}, "numbers by resource"),
        ({"needs": {"gpu": "1"}}, "numbers by resource"),
        ({"needs": {"gpu": True}}, "numbers by resource"),
        ({"needs": {"gpu": float("inf")}}, "numbers by resource"),
        ({"input": 5}, "paths of columns by parameter"),
        ({"input": {"text": 5}}, "paths of columns by parameter"),
        ({"input": {"text": ""}}, "paths of columns by parameter"),
        ({"version": 2}, 'text, such as "2"'),
        ({"output": 5}, "a column, or types by column"),
        ({"output": ["text"]}, "a column, or types by column"),
        ({"output": {5: int}}, "a column, or types by column"),
        ({"output": ""}, "a column, or types by column"),
    ]:
        [(word, value)] = options.items()
        assert f"upper: {word} is {value!r}: give {valid}" in declared(upper, **options)
    with pytest.raises(DeclarationError, match=r"decorate it with @millrace\.transform"):
        apply(untyped, [])


def test_what_is_no_function():
    for target in (functools.partial(upper, "a"), Adds()):
        with pytest.raises(DeclarationError, match="neither a function nor a class: write "):
            millrace.transform(target)
        with pytest.raises(DeclarationError, match="neither a function nor a class: write a"):
            millrace.transform(version="2")(target)


def test_declarations_of_something_else():
    def loud(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            return fn(*args) + "!"

        return wrapper

    class More(Adds):
        def __call__(self, text: str) -> str:
            return text + "more"

    with pytest.raises(DeclarationError, match="upper has the declaration of upper, which would"):
        apply(loud(upper), [{"text": "a"}])
    with pytest.raises(
        DeclarationError, match=r"More has the declaration of Adds.*a subclass, too"
    ):
        apply(More, [{"text": "a"}])
    assert apply(millrace.transform(loud(upper)), [{"text": "a"}]) == [{"text": "A!"}]
    assert apply(millrace.transform(More), [{"text": "a"}]) == [{"text": "amore"}]
    assert apply(Adds, [{"text": "a"}]) == [{"text": "a!"}]


def test_kept_columns_are_seen():
    memory = bytearray(4096)
    batch = _columns.Batch(3)
    batch.add([1, 2, 3], _columns.Type("int"))
    batch.write(memoryview(memory))
    reader = _columns.Reader(memoryview(memory).toreadonly(), [_columns.Type("int")])
    column = reader.columns(True)[0]
    part = column[1:]
    del column
    assert reader.kept()
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 5
    del part
    assert not reader.kept()


def test_example(capsys):
    runpy.run_path(str(REPOSITORY / "examples" / "transforms.py"), run_name="__main__")
    assert "'score': 0.25" in capsys.readouterr().out


def test_workers_import_no_grpc():
    code = "import sys, millrace, millrace._worker; sys.exit('grpc' in sys.modules)"
    source = str(REPOSITORY / "client" / "python" / "src")
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": source})


@pytest.mark.parametrize("folder", ["mine", "lib/site-packages"])
def test_an_exception_names_the_line_of_the_user(tmp_path, folder):
    """Not those of a library that it calls, however many they are."""
    where = tmp_path / folder
    where.mkdir(parents=True)
    (where / "lines.py").write_text(
        "import json\nimport millrace\n\n"
        "@millrace.transform\ndef f(text: str) -> str:\n    return g(text)\n\n"
        "def g(text):\n    return json.loads(text)\n"
    )
    lines = runpy.run_path(str(where / "lines.py"))
    with pytest.raises(ValueError, match="JSONDecodeError") as raised:
        apply(lines["f"], [{"text": "{"}])
    assert str(raised.value).endswith(
        "(lines.py:6 in f: return g(text); lines.py:9 in g: return json.loads(text))"
    )


def test_sharegpt(tmp_path, monkeypatch):
    """The step of docs/chat.md makes role and content of from and value."""
    page = (REPOSITORY / "docs" / "chat.md").read_text(encoding="utf-8")
    (tmp_path / "sharegpt.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    step = importlib.import_module("sharegpt").messages
    roles = ["system", "human", "function_call", "observation", "gpt"]
    values = ["Be brief.", "2 + 2?", '{"name": "add", "arguments": {"a": 2}}', "4", "It is 4."]
    row = {"conversations[].from": roles, "conversations[].value": values}
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    (made,) = apply(step, [row])
    assert json.loads(made["messages"]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ]
    with pytest.raises(ValueError, match="row 0: KeyError: 'bot'"):
        apply(step, [{**row, "conversations[].from": ["bot"] * 5}])
