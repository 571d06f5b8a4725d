"""The protocol seen by a trainer: batches, lineage, joining, the end of data."""

from __future__ import annotations

import os
import pathlib
import threading

import fake
import numpy as np
import pytest
from conftest import check_batch, take

import millrace


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_batches_are_what_the_service_made(serve, open_loader, prefetch):
    service = serve(microbatches=3)
    loader = open_loader(service, prefetch=prefetch)
    for step in range(4):
        for microbatch in range(3):
            check_batch(service, next(loader), step, microbatch)
            assert (loader.step, loader.microbatch) == (step, microbatch)
    assert loader.stats.batches == 12 and loader.stats.steps == 4
    assert loader.stats.bytes > 12 * 2 * 64 * 8 and loader.stats.wait_seconds > 0


def test_every_rank_gets_its_own(serve, open_loader):
    service = serve(mesh=(2, 2, 2, 1, 1))
    for rank in [(0, 0, 0, 0), (1, 0, 1, 0), (1, 1, 0, 0)]:
        dp, cp, pp, _ = rank
        sizes = {"dp_size": 2, "cp_size": 2, "pp_size": 2, "tp_size": 1}
        loader = open_loader(service, dp_rank=dp, cp_rank=cp, pp_rank=pp, **sizes)
        for step in range(2):
            for microbatch in range(2):
                check_batch(service, next(loader), step, microbatch, rank)


def test_arrays_are_aligned_writable_views_of_one_buffer(serve, open_loader):
    batch = next(open_loader(serve()))
    bases = set()
    for name in ("tokens", "loss_mask", "cu_seqlens"):
        array = batch[name]
        assert array.ctypes.data % 64 == 0 and array.flags.writeable and array.flags.c_contiguous
        while array.base is not None:
            array = array.base
        if name != "tokens":  # travels narrower than it is, so it has memory of its own
            bases.add(id(array))
    assert len(bases) == 1


def test_scalars(serve, open_loader):
    batch = next(open_loader(serve(format="hf")))
    assert type(batch["max_length_q"]) is int and batch["max_length_q"] == 1
    assert isinstance(batch["max_seqlen"], np.ndarray) and batch["max_seqlen"].shape == ()


def test_it_is_an_iterator_without_a_length(serve, open_loader):
    loader = open_loader(serve(steps=2))
    assert iter(loader) is loader and bool(loader)
    with pytest.raises(TypeError):
        len(loader)
    loader.set_epoch(3)
    assert len(list(loader)) == 4


def test_what_is_known_of_the_job(serve, open_loader):
    loader = open_loader(serve(mesh=(2, 1, 1, 4, 3), microbatches=3), dp_size=2, tp_rank=1)
    assert (loader.step, loader.microbatch, loader.lineage, loader.end) == (None, None, [], False)
    assert loader.mesh == (2, 1, 1, 4, 3) and loader.mesh.tp == 4
    assert (loader.job, loader.format, loader.num_microbatches) == ("fake", "megatron", 3)
    assert loader.sources == ["web", "code"] and loader.identity == fake.IDENTITY


def test_coordinates_of_ranks(serve, open_loader):
    loader = open_loader(serve(mesh=(2, 1, 2, 3, 1)), dp_rank=0, dp_size=2, pp_rank=0, tp_rank=0)
    assert loader.strides == {"dp": 3, "cp": 0, "pp": 6, "tp": 1}
    assert loader.coordinates(10) == {"dp": 1, "cp": 0, "pp": 1, "tp": 1}
    for rank in range(12):
        places = loader.coordinates(rank)
        assert sum(places[axis] * stride for axis, stride in loader.strides.items()) == rank
    for wrong in (-1, 12):
        with pytest.raises(millrace.UserError, match="its ranks are 0 to 11"):
            loader.coordinates(wrong)


def test_lineage(serve, open_loader):
    loader = open_loader(serve(), dp_rank=1)
    take(loader, 4)
    assert [row.row for row in loader.lineage] == [6, 7]
    assert loader.lineage[1].segments == [
        millrace.Segment(30, "web", 1, 1),
        millrace.Segment(33, "code", 2, 2),
    ]


def test_join_request_says_who_asks(serve, open_loader):
    service = serve(mesh=(2, 2, 1, 1, 1))
    options = {"dp_world_size": 2, "cp_rank": 1, "identity": fake.IDENTITY.hex(), "job": "fake"}
    open_loader(service, dp_rank=1, **options).mesh  # noqa: B018
    (request,) = service.requests("Join")
    assert (request.rank.dp, request.rank.cp, request.mesh.dp, request.mesh.cp) == (1, 1, 2, 0)
    assert (request.job, request.identity, request.token) == ("fake", fake.IDENTITY, b"")


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_end_of_data(serve, open_loader, prefetch, steps):
    service = serve(steps=steps)
    loader = open_loader(service, prefetch=prefetch)
    assert len(list(loader)) == 2 * steps
    for _ in range(3):
        assert loader.end and list(loader) == []
    state = loader.state_dict()
    assert (state["step"], state["microbatch"]) == (steps, 0)
    assert service.acked == steps  # the service knows that all was used
    again = open_loader(service, prefetch=prefetch)
    again.load_state_dict(state)
    assert list(again) == [] and again.state_dict() == state


def test_all_ranks_end_at_the_same_step(serve, open_loader):
    service = serve(steps=3, mesh=(4, 1, 1, 1, 1))
    loaders = [open_loader(service, dp_rank=r, prefetch=r) for r in range(4)]
    assert [len(list(loader)) for loader in loaders] == [6] * 4
    assert len({repr(loader.state_dict()) for loader in loaders}) == 1


def test_loaders_in_threads(serve, open_loader):
    service = serve(steps=20, mesh=(4, 1, 1, 1, 1))
    counts = {}

    def consume(rank):
        loader = open_loader(service, dp_rank=rank)
        for number, batch in enumerate(loader):
            check_batch(service, batch, number // 2, number % 2, (rank, 0, 0, 0))
            counts[rank] = number + 1

    threads = [threading.Thread(target=consume, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == dict.fromkeys(range(4), 40)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_threads_of_one_loader_take_turns(serve, open_loader, prefetch):
    service = serve(steps=40)
    loader = open_loader(service, prefetch=prefetch)
    got, failed = [], []

    def take_all():
        try:
            got.extend(loader)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(got) == 80
    first = {batch["tokens"].tobytes() for batch in got}
    want = [service.arrays(k, (0, 0, 0, 0), m)["tokens"] for k in range(40) for m in range(2)]
    assert first == {np.asarray(tokens).tobytes() for tokens in want}


def test_what_was_known_stays_known_after_close(serve, open_loader):
    loader = open_loader(serve())
    take(loader, 3)
    known = (loader.lineage, loader.mesh, loader.sources, loader.job, loader.position)
    loader.close()
    assert (loader.lineage, loader.mesh, loader.sources, loader.job, loader.position) == known
    with pytest.raises(millrace.UserError, match="closed"):
        next(loader)
    untouched = open_loader(serve())
    untouched.close()
    with pytest.raises(millrace.UserError, match="closed"):
        _ = untouched.job


def test_address_from_the_environment(serve, monkeypatch):
    service = serve(steps=1, mesh=(1, 1, 1, 1, 1))
    monkeypatch.setenv("MILLRACE_ADDR", service.address)
    with millrace.connect(dp_size=1) as loader:
        assert len(list(loader)) == 2


@pytest.mark.parametrize(
    "address",
    ["planner-0.job.svc:7070", "10.0.0.1:7070", "[::1]:7070", "[fe80::1%eth0]:1", "unix:/s"],
)
def test_addresses(address):
    millrace.connect(address, dp_rank=0).close()


def test_ranks_may_be_numpy_s_numbers(serve, open_loader):
    service = serve(mesh=(2, 1, 1, 1, 1))
    loader = open_loader(service, dp_rank=np.int64(1), dp_size=np.int32(2), timeout=np.float32(20))
    check_batch(service, next(loader), 0, 0, (1, 0, 0, 0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls_ca": "README.md"}, "README.md.*PEM"),
        ({"tls_ca": "nowhere.pem"}, "nowhere.pem.*No such file"),
        ({"tls_cert": "README.md", "tls_key": "README.md"}, "TLS files README.md and README.md"),
    ],
)
def test_tls_files_that_are_none_are_not_waited_with(tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("no certificate")
    loader = millrace.connect("127.0.0.1:9", dp_rank=0, timeout=600, **options)
    with pytest.raises(millrace.UserError, match=words):
        next(loader)
    loader.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"address": ""}, "MILLRACE_ADDR"),
        ({"address": "localhost"}, "'localhost': give host:port"),
        ({"address": "127.0.0.1:"}, "host:port"),
        ({"address": ":7070"}, "host:port"),
        ({"address": "127.0.0.1:http"}, "host:port"),
        ({"address": "127.0.0.1:70700"}, "host:port"),
        ({"address": "127.0.0.1:7070/"}, "host:port"),
        ({"address": " 127.0.0.1:7070"}, "host:port"),
        ({"address": "http://127.0.0.1:7070"}, "host:port"),
        ({"address": "::1:7070"}, "host:port"),
        ({"address": 7070}, "address is 7070"),
        ({"address": ("127.0.0.1", 7070)}, "host:port"),
        ({"dp_rank": None}, "dp_rank is missing"),
        ({"dp_rank": 2, "dp_size": 2}, "dp_rank is 2"),
        ({"dp_rank": -1}, "dp_rank is -1: ranks of this axis go from 0 to 2147483647"),
        ({"dp_rank": 1 << 32}, "dp_rank is 4294967296: ranks of this axis go from 0 to"),
        ({"dp_rank": 1 << 31}, "dp_rank is 2147483648"),
        ({"cp_rank": 1 << 70}, "cp_rank is"),
        ({"tp_rank": np.int64((1 << 33) + 1)}, "tp_rank is 8589934593"),
        ({"cp_rank": "1"}, "whole number"),
        ({"pp_size": 0}, "pp_size is 0: valid is 1 to 2147483647"),
        ({"dp_size": (1 << 32) + 2}, "dp_size is 4294967298: valid is 1 to"),
        ({"vpp_size": -1}, "vpp_size is -1: valid is 1 to"),
        ({"vpp_size": (1 << 32) + 2}, "vpp_size is 4294967298: valid is 1 to"),
        ({"dp_size": 2, "dp_world_size": 3}, "dp_world_size is 3"),
        ({"prefetch": -1}, "prefetch"),
        ({"prefetch": 5000}, "prefetch is 5000, valid is 1024 or less"),
        ({"prefetch": 1.5}, "prefetch is 1.5: give a whole number"),
        ({"prefetch": None}, "whole number"),
        ({"dp_rank": True}, "whole number"),
        ({"vpp_size": "2"}, "vpp_size is '2'"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": None}, "timeout is None: give the seconds"),
        ({"timeout": "5"}, "seconds"),
        ({"identity": "xyz"}, "hexadecimal"),
        ({"tls_cert": "a"}, "go together"),
        ({"job": 5}, "job is 5: give a str"),
        ({"identity": 5}, "identity is 5: give it as bytes"),
        ({"tls_ca": 5}, "tls_ca is 5: give a path"),
        ({"tls_cert": 5, "tls_key": 6}, "tls_cert is 5: give a path"),
        ({"access_key_file": 5}, "access_key_file is 5: give a path"),
        ({"shared_dir": 5}, "shared_dir is 5: give a path"),
        ({"shared_dir": b"a\0b"}, "shared_dir is .*: give a path"),
        ({"shared_dir": b"/\xff"}, "shared_dir is .*: give a path in UTF-8"),
        ({"tls_ca": "a\0b"}, "tls_ca is .*: give a path"),
        ({"tls_cert": pathlib.Path("a\0b"), "tls_key": "b"}, "tls_cert is .*: give a path"),
        ({"access_key_file": "a\0b"}, "access_key_file is .*: give a path"),
        ({"access_key_file": "\ud800"}, "access_key_file is .*: give a path"),
    ],
)
def test_arguments_that_cannot_be_right(monkeypatch, options, words):
    monkeypatch.delenv("MILLRACE_ADDR", raising=False)
    with pytest.raises(millrace.UserError, match=words):
        millrace.connect(**{"address": "localhost:1", "dp_rank": 0, **options})


@pytest.mark.parametrize("path", ["/a", b"/a", pathlib.Path("/a"), b"/\xff"], ids=repr)
def test_paths_of_any_kind(path):
    names = ("access_key_file", "tls_ca", "tls_cert", "tls_key")
    config = millrace.connect("localhost:1", dp_rank=0, **dict.fromkeys(names, path))._config
    for found in (config.access_key_file, *config.tls):
        assert found == os.fsdecode(path)
        assert type(found) is str


@pytest.mark.parametrize("path", ["none", b"none", pathlib.Path("none")], ids=repr)
def test_shared_dir_of_any_kind(path):
    loader = millrace.connect("localhost:1", dp_rank=0, shared_dir=path)
    assert loader._config.shared_dir == "none"


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"job": "other"}, "no job other"),
        ({"dp_size": 3}, "dp is 2"),
        ({"dp_rank": 5}, "no such dp rank"),
        ({}, "cp=2, but cp_rank was not given"),
    ],
)
def test_the_service_refuses(serve, open_loader, prefetch, options, words):
    loader = open_loader(serve(mesh=(2, 2, 1, 1, 1)), prefetch=prefetch, **options)
    for _ in range(2):
        with pytest.raises(millrace.UserError, match=words) as caught:
            next(loader)
        assert "rank dp=" in str(caught.value) or "cp_rank" in words


def test_a_rank_that_a_broadcast_serves(serve, open_loader):
    service = serve()
    service.fetches = False
    loader = open_loader(service)
    assert not loader.fetches
    with pytest.raises(millrace.UserError, match="fetches nothing"):
        next(loader)
