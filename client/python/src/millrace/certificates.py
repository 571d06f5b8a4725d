"""The TLS files of this process: read again when they have changed, checked before they are used.

A certificate that is renewed on disk counts for all channels that are opened from then on.
"""

from __future__ import annotations

import base64
import calendar
import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Optional

from millrace.config import TLS
from millrace.errors import UserError

log = logging.getLogger("millrace")

Stamp = tuple[Optional[tuple[int, int, int]], ...]
Held = tuple[Optional[bytes], Optional[bytes], Optional[bytes]]  # authority, key, certificate

# Seconds before the end of a certificate from which on that is said, and the part of its life if
# that is less: as the roles do (internal/rpc/certificate.go).
MARGIN, SHARE = 7 * 86400.0, 1 / 6

# Seconds that a look at what is spoken at an address may take.
LOOK = 1.0


class Files:
    """The files of a TLS, the same object for all channels of this process that use them."""

    def __init__(self, tls: TLS) -> None:
        self.tls = tls
        self.met = False  # another side has accepted them: what fails from now on may pass
        self._guard = threading.Lock()  # of all below
        self._held: Held | None = None
        self._seen: Stamp = ()
        self._problem = ""
        self._ends = (0.0, 0.0)  # of the certificate: when that is said, and when it ends
        self._said = 0

    def read(self) -> Held:
        """Returns authority, key and certificate.

        Raises UserError for files that are at fault at first: gRPC would try for ever with them.
        Later ones may be half written, and what they held before counts.
        """
        with self._guard:
            stamp = self.stamp()
            if self._held is None:
                self._take(stamp)
            elif stamp != self._seen:
                try:
                    self._take(stamp)
                except UserError as error:
                    if str(error) != self._problem:
                        log.warning("the TLS files have changed and are not used: %s", error)
                    self._problem = str(error)
            self._warn()
            assert self._held is not None
            return self._held

    def stamp(self) -> Stamp:
        """Returns what tells files from those that take their place."""
        return tuple(_stamp(path) for path in self.tls)

    def _take(self, stamp: Stamp) -> None:
        held, ends = _check(self.tls)
        self._held, self._seen, self._ends = held, stamp, ends
        self._problem, self._said = "", 0

    def _warn(self) -> None:
        near, end = self._ends
        now = time.time()
        if not end or self._said >= 2 or now < near:
            return
        if now >= end:
            self._said = 2
            log.error("the TLS certificate %s has ended: %s", self.tls.cert, _date(end))
        elif not self._said:
            self._said = 1
            log.warning("the TLS certificate %s ends soon: %s", self.tls.cert, _date(end))


_all: dict[TLS, Files] = {}


def files_of(tls: TLS) -> Files:
    """Returns the files of this process that a TLS names."""
    return _all.setdefault(tls, Files(tls))


def refusal(address: str, tls: TLS) -> str | None:
    """Returns what one who takes TLS says of these files; "" if nothing, None if none is there.

    It asks on a connection of its own, as gRPC does not tell. It says and believes nothing there.
    """
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    said = None
    try:
        if tls.cert and tls.key:
            context.load_cert_chain(tls.cert, tls.key, password="")
        raw = socket.create_connection((host.strip("[]"), int(port)), LOOK)
        with raw, context.wrap_socket(raw, server_hostname=host.strip("[]")) as connection:
            said = ""
            connection.recv(1)
    except ssl.SSLError as error:
        return said if said is None else str(error)
    except (OSError, ValueError):
        pass
    return said


def _check(tls: TLS) -> tuple[Held, tuple[float, float]]:
    """Raises UserError for files that are no TLS material, or whose dates nobody would accept.

    What a certificate is for, the other side judges. Returns what they hold, when it is to be said
    that the certificate ends, and when that is; 0 without one, or if its dates cannot be read.
    """
    what = f"the TLS file {tls.ca}"
    try:
        if tls.ca:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(tls.ca)
        ca = _read(tls.ca)
        if not tls.cert or not tls.key:
            return (ca, None, None), (0.0, 0.0)
        what = f"the TLS files {tls.cert} and {tls.key}"
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(tls.cert, tls.key, password="")
        cert, key = _read(tls.cert), _read(tls.key)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise UserError(
            f"reading {what}: {error}: give PEM files, a key beside its certificate, "
            "without a passphrase"
        ) from None
    dates = _dates(cert or b"")
    if dates is None:
        return (ca, key, cert), (0.0, 0.0)
    begin, end = dates
    now = time.time()
    if not begin <= now <= end:
        raise UserError(
            f"the TLS certificate {tls.cert} is valid from {_date(begin)} to {_date(end)}, and "
            f"now it is {_date(now)}: renew it, or set the clock"
        )
    return (ca, key, cert), (end - min(MARGIN, (end - begin) * SHARE), end)


# The first certificate of a PEM file, under any of the names that OpenSSL takes.
PEM = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END (?:X509 |TRUSTED )?CERTIFICATE",
    re.DOTALL,
)

# Tags of DER, the form of certificates (X.690, RFC 5280).
VERSION, UTC_TIME, GENERALIZED_TIME = 0xA0, 0x17, 0x18


def _dates(pem: bytes) -> tuple[float, float] | None:
    """Returns from when to when the first certificate of a PEM file is valid; None: not known.

    The ssl module tells that only of a certificate that it has verified, for a purpose.
    """
    try:
        found = PEM.search(pem)
        (_, certificate), *_ = _parts(base64.b64decode(found[1] if found else b""))
        (_, signed), *_ = _parts(certificate)
        fields = [value for tag, value in _parts(signed) if tag != VERSION]
        begin, end = (_time(*part) for part in _parts(fields[3]))  # after number, algorithm, issuer
    except (ValueError, LookupError):
        return None
    return begin, end


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields tag and content of the values of DER that stand one after another."""
    while data:
        tag, size, start = data[0], data[1], 2
        if size >= 0x80:
            start += size - 0x80
            size = int.from_bytes(data[2:start], "big")
        if start + size > len(data):
            raise ValueError("the value is cut off")
        yield tag, data[start : start + size]
        data = data[start + size :]


def _time(tag: int, text: bytes) -> float:
    """Returns the seconds of a time of a certificate, which is YYMMDDhhmmssZ or with a century."""
    digits = text.decode("ascii")
    if tag == UTC_TIME:
        digits = ("19" if digits >= "50" else "20") + digits
    elif tag != GENERALIZED_TIME:
        raise ValueError("no time")
    return float(calendar.timegm(time.strptime(digits, "%Y%m%d%H%M%SZ")))


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path or "")
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: str | None) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
