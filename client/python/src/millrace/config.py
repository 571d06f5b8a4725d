"""The configuration of a rank: where the service is, and which rank it is."""

from __future__ import annotations

import numbers
import operator
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from millrace import messages
from millrace.errors import UserError

AXES = ("dp", "cp", "pp", "tp")

# What connect(start=) takes.
BEGINNING = "beginning"

# Characters of a host name at the most, and of what is between two dots in it.
NAME, LABEL = 253, 63
# Bytes of the path of a Unix socket at the most.
SOCKET = 107

# The highest number of a rank, and of the ranks of an axis; of steps and tokens; and of steps that
# are read ahead, which is more than any rank has memory for. As in the Go client.
RANKS, COUNTS, AHEAD = (1 << 31) - 1, (1 << 63) - 1, 1024

# Ten years, in seconds: gRPC takes an infinite deadline for one that is over.
FOREVER = 10 * 365 * 86400.0

# host:port, the host a name, an IPv4 address or a bracketed IPv6 one; or unix:path.
ADDRESS = re.compile(r"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%\w]+\]):(?P<port>[0-9]{1,5})|unix:\S.*")


def text(what: str, value: Any) -> str:
    """Returns a text, "" for None. Raises UserError for anything else."""
    if value is None or isinstance(value, str):
        return value or ""
    raise UserError(f"{what} is {value!r}: give a str, or leave it out")


def check_path(what: str, value: Any) -> str | None:
    """Returns a path as a str, None for None. Raises UserError for what no file can have."""
    if value is None:
        return None
    try:
        path = os.fsdecode(value)
        if b"\0" not in os.fsencode(path):
            return path
    except (TypeError, ValueError):  # no path; text that the system has no bytes for
        pass
    raise UserError(f"{what} is {value!r}: give a path, or leave it out")


def whole(what: str, value: Any) -> int:
    """Returns a whole number, NumPy's too, as an int. Raises UserError for anything else."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise UserError(f"{what} is {value!r}: give a whole number")


def step_number(what: str, value: Any) -> int:
    """Returns the number of a step as an int. Raises UserError for what is none."""
    if 0 <= (step := whole(what, value)) <= COUNTS:
        return step
    raise UserError(f"{what} is {step}: steps count up from 0, to {COUNTS} at most")


def seconds(what: str, value: Any) -> float:
    """Returns a number of seconds. Raises UserError for what is none, or not above 0."""
    number: Any = value if isinstance(value, numbers.Real) and not isinstance(value, bool) else 0
    if number > 0:
        return float(min(number, FOREVER))  # of an int that no float holds, too
    raise UserError(f"{what} is {value!r}: give the seconds, as a number above 0")


class Mesh(NamedTuple):
    """The sizes of the job's mesh of ranks."""

    dp: int
    cp: int
    pp: int
    tp: int
    vpp: int

    @classmethod
    def of(cls, mesh: messages.Mesh) -> Mesh:
        """Returns what a message says."""
        return cls(mesh.dp, mesh.cp, mesh.pp, mesh.tp, mesh.vpp)


class Rank(NamedTuple):
    """A rank's place on one axis. None: the caller did not say."""

    rank: int | None
    size: int | None

    @classmethod
    def of(cls, axis: str, rank: Any, size: Any) -> Rank:
        """Returns the place on an axis that a caller gave."""
        given = ((f"{axis}_rank", rank), (f"{axis}_size", size))
        return cls(*(None if value is None else whole(what, value) for what, value in given))

    def check(self, axis: str) -> None:
        """Raises UserError if rank and size do not fit each other."""
        if self.size is not None:
            check_size(f"{axis}_size", self.size)
        most = RANKS if self.size is None else self.size - 1
        if not 0 <= (self.rank or 0) <= most:
            raise UserError(f"{axis}_rank is {self.rank}: ranks of this axis go from 0 to {most}")


def check_size(what: str, size: int) -> None:
    """Raises UserError for what can be no number of ranks."""
    if not 1 <= size <= RANKS:
        raise UserError(f"{what} is {size}: valid is 1 to {RANKS}")


class TLS(NamedTuple):
    """Paths of PEM files. With an authority or a certificate, connections use TLS."""

    ca: str | None
    cert: str | None
    key: str | None

    def used(self) -> bool:
        """Says whether connections use TLS."""
        return bool(self.ca or self.cert)

    def check(self) -> TLS:
        """Returns the paths as text. Raises UserError for what are none, and for half a pair."""
        paths = [check_path(f"tls_{what}", value) for what, value in self._asdict().items()]
        if bool(self.cert) != bool(self.key):
            raise UserError("tls_cert and tls_key go together: give both or neither")
        return TLS(*paths)


# How batches come: in memory shared with the constructor, on one stream for all steps, or by a
# call for each.
SHARED, STREAM, CALLS = "shared", "stream", "calls"
WAYS = ("", SHARED, STREAM, CALLS)


@dataclass(frozen=True)
class Config:
    """Everything connect() was given. Plain values, so it travels to other processes."""

    address: str
    job: str
    identity: bytes
    dp: Rank
    cp: Rank
    pp: Rank
    tp: Rank
    vpp_size: int | None
    prefetch: int
    timeout: float
    tls: TLS
    start: str = ""  # "beginning": of the job, wherever it is
    access_key_file: str | None = None
    stall_timeout: float = 40.0
    way: str = ""  # how batches come; empty: the best that is possible
    shared_dir: str = ""  # the folder of the constructor's socket, as this process sees it
    tensors: tuple[str, ...] = ()  # of the model's that a batch has; none: all

    def __post_init__(self) -> None:
        for axis in AXES:
            self.axis(axis).check(axis)
        if self.vpp_size is not None:
            check_size("vpp_size", self.vpp_size)
        if self.dp.rank is None and self.dp.size != 1:
            raise UserError("dp_rank is missing: give dp_rank= and dp_size= of this process")
        if self.prefetch < 0:
            raise UserError(
                f"prefetch is {self.prefetch}: give 0 (none) or the steps to read ahead"
            )
        if self.prefetch > AHEAD:
            raise UserError(f"prefetch is {self.prefetch}, valid is {AHEAD} or less")
        for name in ("timeout", "stall_timeout"):
            object.__setattr__(self, name, seconds(name, getattr(self, name)))
        if self.way not in WAYS:
            raise UserError(f"way is {self.way!r}: give {', '.join(WAYS[1:])}, or leave it out")
        if self.start not in ("", BEGINNING):
            raise UserError(f"start is {self.start!r}: give {BEGINNING!r}, or leave it out")
        for name, path in (
            ("tls", self.tls.check()),
            ("access_key_file", check_path("access_key_file", self.access_key_file)),
            ("shared_dir", check_path("shared_dir", self.shared_dir) or ""),
        ):
            object.__setattr__(self, name, path)
        if any("\ud800" <= c <= "\udfff" for c in self.shared_dir):
            raise UserError(
                f"shared_dir is {self.shared_dir!r}: it is sent to the constructor as UTF-8: give "
                "a path in UTF-8"
            )

    def axis(self, name: str) -> Rank:
        """Returns this rank's place on the axis called name."""
        place: Rank = getattr(self, name)
        return place

    def placed(self, places: Mapping[str, int]) -> Config:
        """Returns the configuration of another place: ``{"dp_rank": 1, "dp_size": 3}``.

        Raises UserError for names that are none of an axis, and if no size is among them.
        """
        names = [f"{axis}_{what}" for axis in AXES for what in ("rank", "size")]
        for name in places:
            if name not in names:
                raise UserError(f"{name} is not a place in a mesh: valid are {', '.join(names)}")
        if not any(name.endswith("_size") for name in places):
            raise UserError("give the size of an axis that changes, such as dp_size=3")

        def at(axis: str) -> Rank:
            now = self.axis(axis)
            rank, size = places.get(f"{axis}_rank", now.rank), places.get(f"{axis}_size", now.size)
            return Rank.of(axis, rank, size)

        return replace(self, dp=at("dp"), cp=at("cp"), pp=at("pp"), tp=at("tp"))

    def who(self) -> str:
        """Names the rank in messages, as the service does."""
        return "rank " + " ".join(f"{axis}={self.axis(axis).rank or 0}" for axis in AXES)

    def check_mesh(self, mesh: Mesh) -> None:
        """Raises UserError if an axis of the job has several ranks and ours was not given."""
        for axis in AXES:
            size = getattr(mesh, axis)
            if self.axis(axis).rank is None and size > 1:
                raise UserError(
                    f"the job has {axis}={size}, but {axis}_rank was not given: "
                    f"give {axis}_rank= of this process (0 to {size - 1})"
                )


def parse_tensors(tensors: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the names of tensors. Raises UserError for what are none."""
    if tensors is None:
        return ()
    try:
        names = () if isinstance(tensors, (str, bytes)) else tuple(tensors)
    except TypeError:  # as a number, or an array without an axis
        names = ()
    if not names or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"tensors is {tensors!r}: give a list of names, such as ['tokens', 'labels'], or "
            "leave it out for all"
        )
    return names


def check_choice(tensors: tuple[str, ...], needed: Iterable[str], why: str) -> None:
    """Raises UserError for a choice of tensors that leaves out what an adapter needs."""
    missing = [repr(name) for name in needed if tensors and name not in tensors]
    if missing:
        raise UserError(
            f"tensors is {list(tensors)!r}, without {', '.join(missing)}: {why}. Add "
            f"{'it' if len(missing) == 1 else 'them'}, or leave tensors out for all"
        )


def pick_address(address: str | None) -> str:
    """Returns address, or that of the environment. Raises UserError if it is no address."""
    found = address or os.environ.get("MILLRACE_ADDR", "")
    if not found:
        raise UserError("no address: give host:port of the planner, or set MILLRACE_ADDR")
    for at, one in enumerate(found.split(",") if isinstance(found, str) else [found]):
        text = one.lstrip() if at and isinstance(one, str) else one
        match = ADDRESS.fullmatch(text) if isinstance(text, str) else None
        if match is None or not 0 < int(match["port"] or 1) < 1 << 16:
            raise UserError(
                f"the address is {found!r}: give host:port of the planner, such as "
                "'127.0.0.1:7070', or unix:path; commas separate those of planners that may "
                "take its place"
            )
        _check_host(text)
    return found


def _check_host(address: str) -> None:
    """Raises UserError for a host name that DNS cannot hold, and a path that no socket can have."""
    if address.startswith("["):
        return
    if address.startswith("unix:"):
        path = check_path("the address", address[len("unix:") :]) or ""
        if len(os.fsencode(path)) > SOCKET:
            raise UserError(
                f"the address is {address!r}: the path of a socket has {SOCKET} bytes at most: "
                "name a shorter one, such as one from the folder that this runs in"
            )
        return
    host = address.rpartition(":")[0].rstrip(".")
    if len(host) > NAME or max(map(len, host.split("."))) > LABEL:
        raise UserError(
            f"the address is {address!r}: no host has such a name: it has {NAME} characters at "
            f"most, and {LABEL} between two dots"
        )


def parse_identity(identity: str | bytes | None) -> bytes:
    """Returns an identity given as bytes or as hexadecimal text. Raises UserError for others."""
    if identity is None or isinstance(identity, (bytes, bytearray, memoryview)):
        return bytes(identity or b"")
    if not isinstance(identity, str):
        raise UserError(f"identity is {identity!r}: give it as bytes, or as a hexadecimal number")
    try:
        return bytes.fromhex(identity)
    except ValueError:
        raise UserError(f"identity {identity!r} is not a hexadecimal number") from None
