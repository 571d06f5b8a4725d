"""The connections of a rank to the planners and constructors of its job.

There is one for each address and access key, opened at its first call. They know nothing of what
is asked on them, and try nothing again.
"""

from __future__ import annotations

import threading
from typing import Callable

from millrace import rpc
from millrace.access import Access, Channel
from millrace.config import Config


class Connections:
    """See the module. Safe for several threads."""

    def __init__(self, config: Config, planners: list[str], closed: threading.Event) -> None:
        tls = config.tls.used()
        self._tls = config.tls
        self._access = {one: Access(one, config.access_key_file, tls) for one in planners}
        self._channels: dict[tuple[str, str], Channel] = {}
        self._closed = closed  # from then on none is opened
        self._guard = threading.Lock()  # of _channels

    def close(self) -> None:
        """Ends all calls. Idempotent."""
        with self._guard:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def to(self, address: str, planner: str) -> Channel:
        """Returns the channel to an address, with the access key that a planner's address has.

        The address of another planner has a key of its own.
        """
        key = (address, address if address in self._access else planner)
        with self._guard:
            if self._closed.is_set():
                raise rpc.Closed("the loader was closed")
            if key not in self._channels:
                access = self._access[key[1]]
                self._channels[key] = rpc.open_channel(address, self._tls, access)
            return self._channels[key]

    def another(self, planner: str) -> Channel:
        """Returns a channel beside the one to a planner; the caller closes it, or replaces that."""
        return rpc.open_channel(planner, self._tls, self._access[planner])

    def replace(self, planner: str, silent: Channel, by: Channel) -> bool:
        """Takes another channel in place of one to a planner; False if that is not here."""
        key = (planner, planner)
        with self._guard:
            if self._closed.is_set() or self._channels.get(key) is not silent:
                return False
            self._channels[key] = by
            return True

    def drop(self, address: str) -> None:
        """Closes the connections to an address; the next call there opens another one."""
        self._drop(lambda to, _: to == address)

    def drop_outdated(self) -> None:
        """Closes the connections whose TLS files have changed since."""
        self._drop(lambda _, channel: channel.outdated())

    def _drop(self, which: Callable[[str, Channel], bool]) -> None:
        """Closes connections, chosen by where they lead and their channel."""
        with self._guard:
            keys = [key for key, channel in self._channels.items() if which(key[0], channel)]
            dropped = [self._channels.pop(key) for key in keys]
        for channel in dropped:
            channel.drop()
