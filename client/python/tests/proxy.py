"""A TCP proxy with the faults of networks: connections that die without a word, slow links.

And a server that is none of Millrace: it answers every call with an HTTP status.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Proxy:
    """Carries what comes at ``address`` to a port of this machine."""

    def __init__(self, port):
        self.port = port
        self.rate = 0  # bytes a second towards the client; 0: as fast as it goes
        self.status = 0  # of HTTP, with which calls on connections to come are answered
        self.answered = 0  # calls, so
        self.came = 0  # connections
        self._dead = 0  # those up to this number carry nothing any more
        self._silent = False
        self._open = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self):
        """Has all open connections die without a word, as a router does that lost its table."""
        self._dead = self.came

    def swallow(self):
        """Has the open connections die, and those to come, which are taken and not carried."""
        self._silent = True

    def reset(self):
        """Ends the open connections."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stop(self):
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.came += 1
                if self.status:
                    self._open.append(client)
                    threading.Thread(target=answer, args=(client, self), daemon=True).start()
                    continue
                ends = [client]
                if not self._silent:
                    ends.append(socket.create_connection(("127.0.0.1", self.port)))
                self._open += ends
                for one, other in zip(ends, reversed(ends)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    given = (self.came, one, other, other is client)
                    threading.Thread(target=self._carry, args=given, daemon=True).start()

    def _carry(self, number, of, to, down):
        with contextlib.suppress(OSError):
            while data := of.recv(1 << 16):
                if number <= self._dead or self._silent:
                    continue
                while down and self.rate and data:  # however much came at once
                    time.sleep(len(data[: 1 << 8]) / self.rate)
                    to.sendall(data[: 1 << 8])
                    data = data[1 << 8 :]
                to.sendall(data)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)


SETTINGS, ACK = b"\0\0\0\x04\0\0\0\0\0", b"\0\0\0\x04\x01\0\0\0\0"
HEADERS, END = 1, b"\x05"  # the last frame of a stream, and the last one of its headers


def answer(client, proxy):
    """Speaks as much of HTTP/2 as it takes to answer all calls with a status."""
    status = b"\x08\x03%d" % proxy.status  # the header :status, which is not in a table
    with contextlib.suppress(OSError), client, client.makefile("rb") as came:
        came.read(len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        client.sendall(SETTINGS + ACK)
        while head := came.read(9):
            came.read(int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS:
                proxy.answered += 1
                size = len(status).to_bytes(3, "big")
                client.sendall(size + bytes([HEADERS]) + END + head[5:9] + status)
