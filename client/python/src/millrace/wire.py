"""The protobuf wire format, as much of it as Millrace speaks.

A message is a dataclass whose fields are declared with their number and kind;
``encode`` and ``decode`` walk that declaration. This replaces the protobuf
package, which is slow on bulk and often pinned to another version by a trainer.

Decoding accepts whatever proto3 allows a sender: unknown fields, any order,
packed and unpacked numbers. Groups (removed before proto3) are refused, and so
is everything that is truncated or too long: always with WireError.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar, Union

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

DOUBLE = struct.Struct("<d")

Value = Union[int, memoryview]
M = TypeVar("M", bound="Message")


NUMBERS = ("uint32", "uint", "sint")  # those that are packed where they are repeated
UINT32 = (1 << 32) - 1


class WireError(ValueError):
    """Bytes that are no protobuf message of the expected type."""


class Spec(NamedTuple):
    """How a field travels: its number, kind, and message type if it has one."""

    number: int
    kind: str  # uint32, uint, sint (both of 64 bits), bool, double, string, bytes, message
    repeated: bool
    message: type[Message] | None


def field(
    number: int, kind: str, repeated: bool = False, message: type[Message] | None = None
) -> Any:
    """Declares a field of a Message; its default is proto3's zero value."""
    spec = Spec(number, kind, repeated, message)
    return dataclasses.field(default_factory=lambda: _zero(spec), metadata={"spec": spec})


def _zero(spec: Spec) -> Any:
    if spec.repeated:
        return []
    if spec.message is not None:
        return spec.message()
    zeros = {"bool": False, "double": 0.0, "string": "", "bytes": b""}
    return 0 if spec.kind in NUMBERS else zeros[spec.kind]


class Message:
    """Base of the message dataclasses in messages.py."""

    @classmethod
    def specs(cls) -> dict[str, Spec]:
        """Returns the declared fields by name."""
        found: dict[str, Spec] | None = cls.__dict__.get("_specs")
        if found is None:
            fields = dataclasses.fields(cls)  # type: ignore[arg-type]
            found = {f.name: f.metadata["spec"] for f in fields}
            cls._specs = found  # type: ignore[attr-defined]
        return found

    def encode(self) -> bytes:
        """Returns the message as bytes.

        Fields at their zero value are left out, but a message in a message is
        always there, so that no receiver has to tell "empty" from "absent".
        """
        out = bytearray()
        for name, spec in self.specs().items():
            value = getattr(self, name)
            if spec.repeated:
                _put_repeated(out, spec, value)
            elif spec.message is not None or value != _zero(spec):
                _put(out, spec, value)
        return bytes(out)

    @classmethod
    def decode(cls: type[M], data: bytes | memoryview) -> M:
        """Returns the message in data. Raises WireError."""
        by_number = {spec.number: (name, spec) for name, spec in cls.specs().items()}
        message = cls()
        for number, value in fields(data):
            if number not in by_number:
                continue
            name, spec = by_number[number]
            if spec.repeated:
                getattr(message, name).extend(_get_repeated(spec, value))
            else:
                setattr(message, name, _get(spec, value))
        return message


def fields(data: bytes | memoryview) -> Iterator[tuple[int, Value]]:
    """Yields number and raw value of each field: an int for a varint, else a view."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        tag, at = varint(view, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise WireError("a field has number 0")
        if kind == VARINT:
            value, at = varint(view, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = varint(view, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"field {number} has wire type {kind}")
        if size > len(view) - at:
            raise WireError(f"field {number} is cut off: {len(view) - at} of {size} bytes")
        yield number, view[at : at + size]
        at += size


def varint(view: memoryview, at: int) -> tuple[int, int]:
    """Returns the varint at ``at`` (64 bits, wrapped) and where the next byte is."""
    value = shift = 0
    while True:
        if at >= len(view):
            raise WireError("a varint is cut off")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift >= 70:
            raise WireError("a varint has more than 10 bytes")


def put_varint(out: bytearray, value: int) -> None:
    """Appends value, which is in [0, 2**64)."""
    if not 0 <= value < 1 << 64:
        raise WireError(f"{value} does not fit an unsigned 64-bit field")
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put(out: bytearray, spec: Spec, value: Any) -> None:
    if spec.kind in (*NUMBERS, "bool"):
        put_varint(out, spec.number << 3 | VARINT)
        put_varint(out, _number_to_wire(spec, value))
        return
    if spec.kind == "double":
        put_varint(out, spec.number << 3 | FIXED64)
        out += DOUBLE.pack(value)
        return
    if spec.message is not None or spec.kind == "string":
        value = value.encode()
    put_varint(out, spec.number << 3 | BYTES)
    put_varint(out, len(value))
    out += value


def _put_repeated(out: bytearray, spec: Spec, values: list[Any]) -> None:
    if spec.kind not in (*NUMBERS, "double"):
        for value in values:
            _put(out, spec, value)
        return
    packed = bytearray()
    for value in values:
        if spec.kind == "double":
            packed += DOUBLE.pack(value)
        else:
            put_varint(packed, _number_to_wire(spec, value))
    if packed:
        put_varint(out, spec.number << 3 | BYTES)
        put_varint(out, len(packed))
        out += packed


def _get_repeated(spec: Spec, value: Value) -> Iterator[Any]:
    if spec.kind == "double" and not isinstance(value, int):
        yield from _doubles(spec, value)
        return
    if spec.kind not in NUMBERS or isinstance(value, int):
        yield _get(spec, value)
        return
    at = 0
    while at < len(value):
        number, at = varint(value, at)
        yield _number_from_wire(spec, number)


def _doubles(spec: Spec, value: memoryview) -> list[float]:
    if len(value) % DOUBLE.size:
        raise WireError(f"field {spec.number} has {len(value)} bytes of doubles")
    return [number for (number,) in DOUBLE.iter_unpack(value)]


def _get(spec: Spec, value: Value) -> Any:
    is_number = spec.kind in (*NUMBERS, "bool")
    if is_number != isinstance(value, int):
        raise WireError(f"field {spec.number} is not of kind {spec.kind}")
    if isinstance(value, int):
        return _number_from_wire(spec, value)
    if spec.message is not None:
        return spec.message.decode(value)
    if spec.kind == "double":
        if len(value) != DOUBLE.size:
            raise WireError(f"field {spec.number} is not a double")
        return _doubles(spec, value)[0]
    if spec.kind == "bytes":
        return bytes(value)
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"field {spec.number} is no UTF-8: {error}") from error


def _number_to_wire(spec: Spec, value: int) -> int:
    if spec.kind == "uint32" and not 0 <= value <= UINT32:
        raise WireError(f"{value} does not fit an unsigned 32-bit field")
    if spec.kind != "sint":
        return int(value)
    if not -(1 << 63) <= value < 1 << 63:
        raise WireError(f"{value} does not fit a signed 64-bit field")
    return ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF


def _number_from_wire(spec: Spec, value: int) -> Any:
    if spec.kind == "bool":
        return value != 0
    if spec.kind == "uint32":  # protobuf's rule for one that is too long
        return value & UINT32
    if spec.kind == "sint":
        return (value >> 1) ^ -(value & 1)
    return value
