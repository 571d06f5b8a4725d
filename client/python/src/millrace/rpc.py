"""Calls: channels, the classes of gRPC's status codes, and retry.

Bytes go in and out as they are; messages.py gives them meaning. Every call has
a deadline. What backoff.py says of pauses holds for retry.

gRPC is imported by the first function that needs it: the workers that run Python transforms
import this package too, and neither call anyone nor want gRPC's threads near a fork.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from typing import Any, Callable, TypeVar
from urllib.parse import quote

from millrace.access import Access, Channel
from millrace.backoff import Backoff
from millrace.certificates import files_of, refusal
from millrace.config import TLS
from millrace.errors import BugError, Error, LostError, MovedError, UserError, WaitError, with_code

T = TypeVar("T")

log = logging.getLogger("millrace")

# Seconds between two log lines about the same call: it may be tried again for minutes.
LOG_EVERY = 5.0

# Deadlines of the first attempt and of the longest one, in seconds. They double:
# an attempt whose peer vanished silently ends, a slow link gets its time.
FIRST_PATIENCE, MAX_PATIENCE = 20.0, 480.0

# Seconds that a unary call may take before its caller looks around, and between two such looks.
LOOK = 1.0

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A cluster's proxy is for the world outside, and does not know its pods.
    ("grpc.enable_http_proxy", 0),
    # Our retry decides when to try again. gRPC's own, of calls that a service that stops has not
    # begun, loses some: where the next attempt finds nobody to connect to, they never end.
    ("grpc.enable_retries", 0),
    # So reconnecting must not lag behind.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # This is also how long a connection may take to be there: gRPC's own 20 s are half of what a
    # rank waits while nothing moves.
    ("grpc.min_reconnect_backoff_ms", 5000),
    # Pings on idle connections too, as often as the service allows: a router between forgets none
    # of them, and a connection that is gone is closed in the end.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Two loaders in one process do not share a connection's flow control, and a channel that is
    # opened in place of another one has a connection of its own.
    ("grpc.use_local_subchannel_pool", 1),
]

# A connection without calls is closed, and the next call opens it again: thousands of ranks call
# the planner when they join and when they save. With TLS it stays, as a certificate that ends would
# not open it again.
OCCASIONAL = ("grpc.client_idle_timeout_ms", 3000)

USER = {
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "NOT_FOUND",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "OUT_OF_RANGE",
    "ALREADY_EXISTS",
    "UNIMPLEMENTED",  # something else listens at that address
}
LOST = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "RESOURCE_EXHAUSTED", "CANCELLED"}


# How gRPC reports that something else than gRPC answered: with an HTTP status, or with none of
# its own. The code of an error that says so, and the statuses beside 5xx that may pass.
HTTP_STATUS = re.compile(r"Received http2 header with status: (\d{3})")
NO_STATUS = ("No status received", "Stream removed")
HTTP, HTTP_BUSY = "HTTP", ("408", "429")
# How it reports that no HTTP/2 was answered, and the status of HTTP/1, if it was that.
OTHER_TONGUE = re.compile(r"Expected SETTINGS frame as the first frame|connect an http1\.x server")
HTTP1_STATUS = re.compile(r"http1\.x server \(HTTP status (\d{3})\)")
# How another role than the one that was asked refuses (internal/rpc/answer.go).
OTHER_ROLE = re.compile(r"unknown service millrace\.v1\.(\w+)(?:: this is (.*))?")

# How gRPC reports that it does not trust the other side of a connection, and that this one has hung
# up, perhaps as it does not trust ours, or takes TLS only.
UNTRUSTED = re.compile("handshake failed|SSL_ERROR_SSL|not in peer certificate|ostname [Vv]erif")
HUNG_UP = re.compile("Socket closed|Connection reset|recvmsg|TSI_DATA_CORRUPTED")

# What is said of calls on a connection that was closed for another one.
DROPPED = "nothing came any more on the connection, which was closed for another one"


class Closed(Error):
    """The loader was closed while something waited."""


class _Process:
    """What this process is to gRPC."""

    used = False  # a channel was opened
    forked = False  # from one that had opened a channel


def _fork() -> None:
    _Process.forked = _Process.used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)


def forked() -> bool:
    """Returns whether this process is the fork of one that used gRPC here.

    gRPC's threads do not live on in the fork, its locks and timers do: a call may
    wait for ever there, deadline or not. So nothing may be called, or closed.
    """
    return _Process.forked


def check_fork() -> None:
    """Raises UserError if forked()."""
    if forked():
        raise UserError(
            "this process was forked from one that had used a loader, and gRPC does not work "
            "across a fork: start it with the method 'spawn' or 'forkserver' "
            "(DataLoader(multiprocessing_context='spawn')), or fork before the first use"
        )


def target(address: str) -> str:
    """Returns what gRPC calls address: to it a path is a part of a URL, where % # ? mean more."""
    scheme, _, path = address.partition(":")
    return f"unix:{quote(os.fsencode(path))}" if scheme == "unix" else address


def open_channel(address: str, tls: TLS, access: Access) -> Channel:
    """Returns a channel to address; it connects at its first call."""
    import grpc  # late: millrace.rpc says why

    check_fork()
    _Process.used = True
    if not tls.used():
        return Channel(
            grpc.insecure_channel(target(address), options=[*OPTIONS, OCCASIONAL]), access, address
        )
    files = files_of(tls)
    stamp = files.stamp()
    credentials = grpc.ssl_channel_credentials(*files.read())
    made = grpc.secure_channel(target(address), credentials, options=OPTIONS)
    return Channel(made, access, address, files, stamp)


def classify(error: Any, what: str) -> Error:
    """Returns a gRPC error as one of ours; ``what`` says what was going on."""
    return _classed(error.code().name, error.details() or "no details", what)


def refused(number: int, details: str, what: str) -> Error:
    """Returns the error of a code that came as a number."""
    import grpc  # late: millrace.rpc says why

    names = {code.value[0]: code.name for code in grpc.StatusCode}
    return _classed(names.get(number, "UNKNOWN"), details, what)


class OtherError(UserError):
    """What answers is no Millrace service, or another role of one: ``said`` has which."""

    said: str = ""

    @classmethod
    def of(cls, what: str, where: str, said: str, code: str) -> OtherError:
        """Returns the error of what answers ``where``."""
        error = cls(f"{what}: what answers {where} is {said}")
        error.said, error.code = said, code
        return error


def _other(code: str, details: str) -> tuple[str, str] | None:
    """Returns what answers, and the code of its error; None if that is a Millrace service."""
    status = HTTP_STATUS.search(details) or HTTP1_STATUS.search(details)
    if status or OTHER_TONGUE.search(details):
        number = f" (HTTP {status[1]})" if status else ""
        return f"not a Millrace service{number}: check address and port", HTTP
    role = OTHER_ROLE.fullmatch(details) if code == "UNIMPLEMENTED" else None
    if role is None:
        return None
    if role[1] != "Planner":
        return f"another role or service, and no Millrace {role[1].lower()}", code
    return (
        f"{role[2] or 'another role or service'}, not the planner: give the address that "
        "`millrace planner` or `millrace serve` printed"
    ), code


def _classed(code: str, details: str, what: str) -> Error:
    found = HTTP_STATUS.search(details)
    if found and (found[1] in HTTP_BUSY or found[1] >= "500"):
        text = f"what answers there is no service, or a proxy before one that is away: {details}"
        return with_code(LostError(f"{what}: {text}"), "UNAVAILABLE")
    other = _other(code, details)
    if other is not None:
        return OtherError.of(what, "there", *other)
    if code == "UNKNOWN" and details.startswith(NO_STATUS):
        return with_code(LostError(f"{what}: {details} ({code})"), "UNAVAILABLE")
    # The core reports a connection that broke in the middle of a stream so.
    if code == "RESOURCE_EXHAUSTED" and "message larger than max" in details:
        kind: type[Error] = UserError  # it would be as large the next time
    elif code in LOST or (code == "INTERNAL" and "RST_STREAM" in details):
        kind = LostError
    elif code == "OUT_OF_RANGE":
        kind = MovedError
    else:
        kind = UserError if code in USER else BugError
    return with_code(kind(f"{what}: {details} ({code})"), code)


def call_watched(
    channel: Channel,
    method: str,
    request: bytes,
    seconds: float,
    what: str,
    look: Callable[[float], None],
) -> bytes:
    """Calls a unary method as call_unary() does.

    As long as there is no answer, ``look`` is called each second, with how many have passed. What
    it raises ends the call.
    """
    import grpc  # late: millrace.rpc says why

    began = time.monotonic()
    try:
        call = channel.future(method)(request, timeout=seconds)
        try:
            while True:
                try:
                    reply: bytes = call.result(timeout=LOOK)
                    channel.accepted()
                    return reply
                except grpc.FutureTimeoutError:
                    look(time.monotonic() - began)
        finally:
            call.cancel()  # a no-op once it is done
    except grpc.FutureCancelledError:
        raise closed_error(channel, what, "the loader was closed") from None
    except grpc.RpcError as error:
        raise _explained(channel, error, what) from None
    except ValueError as error:  # how gRPC reports a closed channel
        raise closed_error(channel, what, error) from None


def _explained(channel: Channel, error: Any, what: str) -> Error:
    """Returns a gRPC error as one of ours, with the address of what is another service.

    Sides that do not trust each other are the user's fault, whose certificates these are. Once
    another side has accepted ours it is lost as other connections are: a certificate that has
    ended is renewed.
    """
    classed, files = classify(error, what), channel.files
    if isinstance(classed, OtherError):
        return OtherError.of(what, f"at {channel.address}", classed.said, classed.code)
    details = error.details() or ""
    if classed.code != "UNAVAILABLE" or channel.met:
        return classed
    tls = files.tls if files else TLS(None, None, None)
    untrusted = bool(files and UNTRUSTED.search(details))
    said = refusal(channel.address, tls) if not untrusted and HUNG_UP.search(details) else None
    where = f"{what}: what answers at {channel.address}"
    if files is None and said is not None:
        text = f"{where} takes TLS only: give tls_cert, tls_key and tls_ca"
    elif untrusted or said:
        text = (
            f"{where} and this side (tls_cert={tls.cert}, tls_ca={tls.ca}) do not trust each "
            f"other: {said or details}; a certificate must name the host or address that it is "
            "reached at, be valid now and be signed by the authority that the other side has"
        )
    else:
        return classed
    return with_code(UserError(text), "UNAUTHENTICATED")


def closed_error(channel: Channel, what: str, why: object) -> Error:
    """Returns the error of a call on a channel that was closed, or dropped, meanwhile."""
    if channel.dropped:
        return with_code(LostError(f"{what}: {DROPPED}"), "UNAVAILABLE")
    return Closed(f"{what}: {why}")


def call_unary(channel: Channel, method: str, request: bytes, seconds: float, what: str) -> bytes:
    """Calls a unary method. Raises a typed error."""
    import grpc  # late: millrace.rpc says why

    try:
        reply: bytes = channel.unary_unary(method)(request, timeout=seconds)
    except grpc.RpcError as error:
        raise _explained(channel, error, what) from None
    except ValueError as error:  # how gRPC reports a closed channel
        raise closed_error(channel, what, error) from None
    channel.accepted()
    return reply


def retry(
    attempt: Callable[[float], T],
    pauses: Backoff,
    closed: threading.Event,
    until: float | None,
    on_lost: Callable[[LostError], None],
) -> T:
    """Returns attempt(seconds it may take), tried again as long as it raises LostError.

    ``until`` is on time.monotonic()'s clock; None waits until ``closed`` is set.
    """
    patience, log_at = FIRST_PATIENCE, 0.0
    while True:
        left = patience if until is None else max(until - time.monotonic(), 0.001)
        try:
            return attempt(min(patience, left))
        except WaitError:
            raise
        except LostError as error:
            if closed.is_set():
                raise Closed("the loader was closed") from None
            pause, now = pauses.next(), time.monotonic()
            if until is not None and now + pause >= until:
                raise
            on_lost(error)
            if now >= log_at:
                log_at = now + LOG_EVERY
                # Running out of time is normal far ahead of a trainer that pauses.
                level = logging.INFO if error.code == "DEADLINE_EXCEEDED" else logging.WARNING
                log.log(level, "trying again in %.2f s: %s", pause, error)
        if closed.wait(pause):
            raise Closed("the loader was closed")
        patience = min(2 * patience, MAX_PATIENCE)
