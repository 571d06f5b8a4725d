"""The protobuf wire format: known bytes, laws, malformed input, and the .proto itself."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import re
from dataclasses import dataclass

import pytest

from millrace import messages
from millrace.wire import Message, WireError, field, fields, put_varint, varint

PROTO = pathlib.Path(__file__).parents[3] / "proto" / "millrace.proto"


@dataclass
class Numbers(Message):
    small: int = field(1, "uint")
    narrow: int = field(6, "uint32")
    narrows: list[int] = field(7, "uint32", repeated=True)
    signed: int = field(2, "sint")
    flag: bool = field(3, "bool")
    many: list[int] = field(4, "uint", repeated=True)
    deltas: list[int] = field(5, "sint", repeated=True)
    words: list[str] = field(16, "string", repeated=True)
    real: float = field(17, "double")
    reals: list[float] = field(18, "double", repeated=True)


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (Numbers(), ""),
        (Numbers(small=150), "08 96 01"),  # the example of the protobuf documentation
        (Numbers(signed=-1), "10 01"),
        (Numbers(signed=2147483647), "10 fe ff ff ff 0f"),
        (Numbers(flag=True), "18 01"),
        (Numbers(many=[3, 270, 86942]), "22 06 03 8e 02 9e a7 05"),
        (Numbers(deltas=[-2, 1]), "2a 02 03 02"),
        (Numbers(words=["", "ä"]), "82 01 00 82 01 02 c3 a4"),
        (Numbers(real=1.5), "89 01 00 00 00 00 00 00 f8 3f"),
        (Numbers(reals=[-2.0, 0.0]), "92 01 10 00 00 00 00 00 00 00 c0 00 00 00 00 00 00 00 00"),
        (Numbers(narrow=(1 << 32) - 1), "30 ff ff ff ff 0f"),
        (Numbers(narrows=[3, 270]), "3a 03 03 8e 02"),
        (Numbers(small=(1 << 64) - 1), "08 ff ff ff ff ff ff ff ff ff 01"),
    ],
)
def test_known_bytes(message, encoded):
    data = bytes.fromhex(encoded)
    assert message.encode() == data
    assert Numbers.decode(data) == message


def test_unpacked_numbers_unknown_fields_and_any_order():
    data = bytes.fromhex("20 0520 0608 01f8 01 07fa 01 01 00fd 01 0000000008 02")
    assert Numbers.decode(data) == Numbers(small=2, many=[5, 6])
    real = "91 01 00 00 00 00 00 00 f8 3f"
    assert Numbers.decode(bytes.fromhex(real + real)) == Numbers(reals=[1.5, 1.5])


def test_nested_messages_are_always_present():
    assert messages.BatchRequest().encode() == bytes.fromhex("2a 00")


@pytest.mark.parametrize(
    "data",
    [
        "08",  # no value
        "08 ff",  # varint cut off
        "08 " + "ff " * 10 + "01",  # varint too long
        "22 05 01",  # bytes cut off
        "22 01 ff",  # packed varint cut off
        "00 00",  # field number 0
        "0b 0c",  # group
        "0f 00",  # no such wire type
        "0a 01 00",  # bytes where a number is declared
        "80 01 01",  # number where a string is declared
        "82 01 01 ff",  # no UTF-8
        "09 00 00",  # fixed64 cut off
    ],
)
def test_malformed(data):
    with pytest.raises(WireError):
        Numbers.decode(bytes.fromhex(data))


@pytest.mark.parametrize(
    "message",
    [
        Numbers(small=-1),
        Numbers(small=1 << 64),
        Numbers(signed=1 << 63),
        Numbers(narrow=-1),
        Numbers(narrow=1 << 32),
        Numbers(narrows=[0, 1 << 32]),
        messages.Coordinates(dp=1 << 32),
    ],
)
def test_numbers_out_of_range(message):
    with pytest.raises(WireError, match="does not fit"):
        message.encode()


def test_a_number_of_32_bits_that_came_longer_is_its_lower_bits():
    assert Numbers.decode(bytes.fromhex("30 83 80 80 80 10")) == Numbers(narrow=3)


def test_varint_round_trip():
    draw = random.Random(1)
    for value in [0, 127, 128, (1 << 64) - 1] + [
        draw.getrandbits(draw.randint(1, 64)) for _ in range(500)
    ]:
        out = bytearray()
        put_varint(out, value)
        assert varint(memoryview(out), 0) == (value, len(out))


def test_random_messages_round_trip():
    draw = random.Random(2)
    for _ in range(200):
        message = Numbers(
            small=draw.getrandbits(64),
            narrow=draw.getrandbits(32),
            signed=draw.getrandbits(63) * draw.choice([1, -1]),
            flag=draw.random() < 0.5,
            many=[draw.getrandbits(draw.randint(1, 64)) for _ in range(draw.randrange(5))],
            deltas=[draw.randint(-(1 << 63), (1 << 63) - 1) for _ in range(draw.randrange(5))],
            words=["".join(chr(draw.randrange(1, 0xD800)) for _ in range(3)) for _ in range(2)],
            real=draw.gauss(0, 1e9),
            reals=[draw.gauss(0, 1) for _ in range(draw.randrange(5))],
        )
        assert Numbers.decode(message.encode()) == message


def test_garbage_is_a_message_or_a_wire_error():
    draw = random.Random(3)
    whole = messages.BatchHeader(
        7, False, 9, [messages.Microbatch([messages.Tensor("a", "int32", [2], 0, 8)], [b"xy"])]
    ).encode()
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            messages.BatchHeader.decode(bytes(data[: draw.randint(0, len(data))]))
        except WireError:
            refused += 1
    assert refused > 1000


def test_frame_is_split_without_a_copy():
    frame = messages.Frame(b"head", b"body" * 10).encode()
    header, body = messages.split_frame(frame)
    assert (bytes(header), bytes(body)) == (b"head", b"body" * 10)
    assert body.obj is frame
    with pytest.raises(WireError):
        messages.split_frame(bytes.fromhex("10 01"))


def test_fields_yields_views():
    data = messages.Waiting("h").encode()
    ((number, value),) = fields(data)
    assert number == 1 and isinstance(value, memoryview) and bytes(value) == b"h"


KINDS = {
    "uint32": "uint32",
    "uint64": "uint",
    "sint64": "sint",
    "bool": "bool",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}


def declared_in_proto():
    """Yields (message, field, number, kind, repeated, type) of the .proto file."""
    text = "".join(path.read_text() for path in sorted(PROTO.parent.glob("*.proto")))
    text = re.sub(r"//[^\n]*", "", text)
    for name, body in re.findall(r"message (\w+) \{([^{}]*)\}", text):
        for repeated, kind, key, number in re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", body):
            enum = "uint" if re.search(rf"^enum {kind} \{{", text, re.M) else "message"
            yield name, key, int(number), KINDS.get(kind, enum), bool(repeated), kind


@pytest.mark.skipif(not PROTO.exists(), reason="proto/millrace.proto is not beside the client")
def test_messages_agree_with_the_proto_file():
    proto = {(name, key): rest for name, key, *rest in declared_in_proto()}
    checked = 0
    for cls in vars(messages).values():
        if not (isinstance(cls, type) and issubclass(cls, Message) and cls is not Message):
            continue
        if cls in (messages.JoinRequest, messages.DeliverRequest):
            continue  # those of a rank that joins again, or begins a stream, have all their fields
        whole = {"JoinAgainRequest": "JoinRequest", "DeliverHello": "DeliverRequest"}
        name_of = whole.get(cls.__name__, cls.__name__)
        mine = {f.name for f in dataclasses.fields(cls)}
        theirs = {key for name, key in proto if name == name_of}
        # A token is read in part only: trainers pass it on as it is.
        assert mine <= theirs if cls is messages.ResumeToken else mine == theirs
        for key, spec in cls.specs().items():
            number, kind, repeated, type_name = proto[name_of, key]
            assert (spec.number, spec.repeated) == (number, repeated), key
            assert spec.kind == kind, key
            if spec.message is not None:
                assert spec.message.__name__ == type_name
            checked += 1
    assert checked > 40


@pytest.mark.skipif(not PROTO.exists(), reason="proto/millrace.proto is not beside the client")
def test_methods_agree_with_the_proto_file():
    text = PROTO.read_text()
    assert "package millrace.v1;" in text
    planner = [("Planner", method) for method in ("Join", "State", "Change", "Report")]
    for service, method in [*planner, ("Constructor", "Batch")]:
        body = re.search(rf"service {service} \{{(.*?)\n\}}", text, re.S)
        assert body and f"rpc {method}({method}Request)" in body.group(1)
    assert "rpc Deliver(stream DeliverRequest) returns (stream Frame);" in text
    assert messages.PLANNER == "/millrace.v1.Planner/"
    assert messages.CONSTRUCTOR == "/millrace.v1.Constructor/"
