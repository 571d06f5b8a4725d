"""The access key of a job: where it is found, and the calls that carry it.

The service leaves its key for clients of the same user on the same machine, under
its address. Elsewhere a file or the environment gives it. The key itself is in no
message, log or repr.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import ipaddress
import os
import pwd
import re
import socket
from typing import Any, Callable

from millrace.certificates import Files, Stamp
from millrace.errors import Error, LostError, UserError

# The environment says which key counts, for the service too (internal/rpc/key.go).
KEY, KEY_FILE, KEY_DIR = "MILLRACE_ACCESS_KEY", "MILLRACE_ACCESS_KEY_FILE", "MILLRACE_KEY_DIR"

VALID = re.compile(r"[!-~]{16,256}")


class Access:
    """The access key for the service at an address."""

    def __init__(self, address: str, file: str | None, tls: bool) -> None:
        self._given = "" if file else os.environ.get(KEY, "").strip()
        self._named = file or os.environ.get(KEY_FILE) or ""
        self._address = address
        self._found = not (tls or self._given or self._named)
        self._latest = ""
        if self._given:
            _valid(KEY, self._given)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the headers of a call.

        Raises UserError for a file that holds no key or may not be read, and LostError where
        descriptors have run out or the disk fails, which may pass.
        """
        key = self._key()
        return (("authorization", f"Bearer {key}"),) if key else ()

    def _key(self) -> str:
        """Returns the current key: a service that starts again has another one.

        A key that was read stays valid here when the service ends and removes its file.
        """
        if self._given:
            return self._given
        if self._named:
            try:
                self._latest = _read(self._named)
            except OSError as error:
                if not self._latest:
                    named = ": give the file that the service's --access-key-file names"
                    raise _unread(error, named) from None
        elif self._found:
            self._latest = self._find() or self._latest
        return self._latest

    def _find(self) -> str:
        """Returns the key that the service has left; empty if there is none."""
        failed: Error | None = None  # of the first file that may be there
        for folder in _folders():
            try:
                return _read(os.path.join(folder, _name(self._address)))
            except FileNotFoundError:
                continue
            except OSError as error:
                failed = failed or _unread(error)
            except UserError as error:
                failed = failed or error
        if isinstance(failed, UserError) and not self._latest:
            given = "give the service's key with access_key_file="
            raise UserError(f"{failed}; mend that, or {given}, {KEY_FILE} or {KEY}")
        if failed is not None and not self._latest:
            raise failed
        return ""


class Channel:
    """A gRPC channel to an address, whose calls carry an access key."""

    def __init__(
        self,
        channel: Any,
        access: Access,
        address: str,
        files: Files | None = None,  # with TLS
        stamp: Stamp = (),  # of the files, when they were read
    ) -> None:
        self._channel = channel
        self._access = access
        self.address = address
        self.files = files
        self._stamp = stamp
        self._met = False
        self.dropped = False

    @property
    def met(self) -> bool:
        """Says whether somebody has accepted this side: on this channel, or with its files."""
        return self._met if self.files is None else self.files.met

    def accepted(self) -> None:
        """Notes an answer."""
        self._met = True
        if self.files is not None:
            self.files.met = True

    def outdated(self) -> bool:
        """Says whether the TLS files have changed since: no new connection would show them."""
        return self.files is not None and self.files.stamp() != self._stamp

    def unary_unary(self, method: str) -> Callable[..., Any]:
        """Returns the call of a method that answers once."""
        call = self._channel.unary_unary(method)
        return functools.partial(call, metadata=self._access.metadata())

    def unary_stream(self, method: str) -> Callable[..., Any]:
        """Returns the call of a method that answers with a stream."""
        call = self._channel.unary_stream(method)
        return functools.partial(call, metadata=self._access.metadata())

    def stream_stream(self, method: str) -> Callable[..., Any]:
        """Returns the call of a method with a stream in both directions."""
        call = self._channel.stream_stream(method)
        return functools.partial(call, metadata=self._access.metadata())

    def future(self, method: str) -> Callable[..., Any]:
        """Returns what makes a unary call, and returns before its answer is there."""
        call = self._channel.unary_unary(method).future
        return functools.partial(call, metadata=self._access.metadata())

    def close(self) -> None:
        """Ends all calls."""
        self._channel.close()

    def drop(self) -> None:
        """Ends all calls as lost: the next channel to the same address is another connection."""
        self.dropped = True
        self._channel.close()


def _unread(error: OSError, advice: str = "") -> Error:
    """Returns the error of a file that cannot be read."""
    text = f"reading the access key: {error}"
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.EIO):
        return LostError(text)  # of no descriptors, or of the disk: not the user's fault
    return UserError(text + advice)


def _read(file: str) -> str:
    with open(file, "rb") as opened:
        return _valid(file, opened.read(1024).decode("latin-1").strip())


def _valid(where: str, key: str) -> str:
    if not VALID.fullmatch(key):
        raise UserError(
            f"{where} holds no access key: valid are 16 to 256 visible characters in one line"
        )
    return key


def _folders() -> list[str]:
    """Returns where services leave their keys."""
    folder = os.environ.get(KEY_DIR)
    if folder:
        return [folder]
    user = os.geteuid()
    folders = [os.path.join(os.environ.get("TMPDIR") or "/tmp", f"millrace-{user}")]
    home = os.environ.get("HOME", "")
    if not home:
        try:
            home = pwd.getpwuid(user).pw_dir
        except KeyError:  # a container's user may have no name
            return folders
    return [os.path.join(home, ".millrace", "keys"), *folders] if home[:1] == "/" else folders


def _name(address: str) -> str:
    """Returns the name of the file that holds the key of the service at address."""
    machine = socket.gethostname()
    if address.startswith("unix:"):
        path = os.path.abspath(address[len("unix:") :])
        name = f"{machine}-unix-{hashlib.sha256(path.encode()).digest()[:8].hex()}"
    else:
        host, _, port = address.rpartition(":")
        host = host.strip("[]").lower()
        name = f"{machine}-localhost-{port}" if _here(host) else f"{host}-{port}"
    return re.sub("[^A-Za-z0-9.-]", "_", name) + ".key"


def _here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    return ip.is_unspecified or str(ip) in ("127.0.0.1", "::1")
