"""How long the trainer has stood still."""

from __future__ import annotations

import time

from millrace.waiting import Stood


def test_a_wait_that_another_thread_tells_of_counts_once():
    """It tells what was known amid the wait, before or after that has ended."""
    stood = Stood()
    stood.ended(5.0)
    with stood.still(time.monotonic() - 100):
        told = stood.seconds()
        stood.ended(3.0)  # of long ago
        stood.ended(told)
        assert 105 <= told <= stood.seconds() < 150
    after = stood.seconds()
    assert told <= after < 150 and not stood.waits()
    stood.ended(told)
    assert stood.seconds() == after
    with stood.still(None):
        assert stood.seconds() == after and not stood.waits()
    with stood.still(time.monotonic() - 100):
        assert 205 <= stood.seconds() < 300
    assert 205 <= stood.seconds() < 300
