from __future__ import annotations

import os
import tempfile

import fake
import numpy as np
import pytest
from proxy import Proxy

import millrace
from millrace import backoff

# Sockets lie in folders of tests, and have paths of 107 bytes at most.
if len(tempfile.gettempdir()) > len("/private/tmp"):
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Retries wait less, so that a test of them is short."""
    monkeypatch.setattr(backoff, "FIRST", 0.01)
    monkeypatch.setattr(backoff, "LONGEST", 0.05)


@pytest.fixture
def serve():
    """Returns a function that starts a fake service; all are stopped at the end."""
    started = []

    def start(**options):
        started.append(fake.Service(**options).start())
        return started[-1]

    yield start
    for service in started:
        service.stop()


@pytest.fixture
def between():
    """Returns a function that starts a proxy before a service; all are stopped at the end."""
    started = []

    def start(service):
        started.append(Proxy(service.port))
        return started[-1]

    yield start
    for proxy in started:
        proxy.stop()


@pytest.fixture
def open_loader():
    """Returns connect() for rank dp=0 of a fake service; all loaders are closed at the end."""
    opened = []

    def connect(service, **options):
        given = {"dp_rank": 0, "timeout": 20, **options}
        address = given.pop("address", service.address)
        opened.append(millrace.connect(address, **given))
        return opened[-1]

    yield connect
    for loader in opened:
        loader.close()


def check_batch(service, batch, step, microbatch, rank=(0, 0, 0, 0)):
    """Asserts that batch is exactly what the service made, in order, type and value."""
    want = service.arrays(step, rank, microbatch)
    assert list(batch) == list(want)
    for name, array in want.items():
        got = np.asarray(batch[name])
        np.testing.assert_array_equal(got, array, err_msg=f"{name} of step {step}")
        if not isinstance(batch[name], int):
            assert got.dtype == array.dtype and got.shape == array.shape, name


def take(loader, count):
    """Returns the next ``count`` microbatches."""
    return [next(loader) for _ in range(count)]
