"""Connections that are dead without a word, slow links, and other servers at an address."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
import pytest
from conftest import check_batch
from fake import Fault
from processes import until

import millrace
from millrace import attention, planners, rpc, session
from millrace.access import Access
from millrace.config import TLS, pick_address

PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])
NEXT = pytest.mark.parametrize("prefetch", [0, 1])
WAY = pytest.mark.parametrize("way", ["stream", "calls"])


def check_steps(service, loader, steps):
    for step in steps:
        for microbatch in range(service.microbatches):
            check_batch(service, next(loader), step, microbatch)


@PREFETCH
@WAY
def test_a_dead_connection_to_the_constructor_is_replaced(
    serve, between, open_loader, prefetch, way
):
    service = serve()
    proxy = between(service)
    service.streams, service.waits, service.constructor = True, True, proxy.address
    loader = open_loader(service, prefetch=prefetch, way=way)
    check_steps(service, loader, range(3))
    proxy.forget()
    began = time.monotonic()
    check_steps(service, loader, range(3, 9))
    assert time.monotonic() - began < 5 and proxy.came == 2
    assert service.requests("Join")[-1].silent == proxy.address


@PREFETCH
def test_a_dead_connection_is_replaced_before_the_stream_too(
    serve, between, open_loader, monkeypatch, prefetch
):
    monkeypatch.setattr(session, "SHARE_TIME", 1.0)
    service = serve()
    proxy = between(service)
    service.streams, service.constructor, service.share_mute = True, proxy.address, 3.0
    loader = open_loader(service, prefetch=prefetch)
    check_steps(service, loader, range(3))
    assert proxy.came >= 2 and service.requests("Join")[-1].silent == proxy.address


@pytest.fixture
def soon(monkeypatch):
    """A planner that says nothing is asked sooner what it waits for."""
    monkeypatch.setattr(rpc, "LOOK", 0.1)
    for name, seconds in (("AFTER", 0.2), ("EVERY", 0.2), ("TIME", 0.5)):
        monkeypatch.setattr(planners, f"WHY_{name}", seconds)


@PREFETCH
def test_a_dead_connection_to_the_planner_is_replaced(serve, between, open_loader, soon, prefetch):
    service = serve()
    proxy = between(service)
    service.streams, service.constructor = True, service.address
    loader = open_loader(service, prefetch=prefetch, address=proxy.address)
    check_steps(service, loader, range(2))
    proxy.forget()
    began = time.monotonic()
    assert loader.state_dict()["token"] == service.token(2)
    assert time.monotonic() - began < 4 and proxy.came == 2
    check_steps(service, loader, range(2, 4))
    assert loader.stats.retries == 0


def test_a_planner_that_is_slow_keeps_its_connection(serve, between, open_loader, soon):
    service = serve()
    service.patient.clear()
    service.why_waits = True
    proxy = between(service)
    loader = open_loader(service, address=proxy.address)
    threading.Timer(1.5, service.patient.set).start()
    loader.report({"web": 1.0}, step=0, timeout=20)
    assert service.count("Report") == 1


def test_a_state_that_is_late_is_the_planners(serve, open_loader, soon):
    service = serve()
    loader = open_loader(service, timeout=4)  # on a busy machine, for the first step
    check_steps(service, loader, range(1))
    service.faults = [("State", 1, Fault(grpc.StatusCode.UNAVAILABLE, "gone"))] * 1000
    with pytest.raises(millrace.WaitError) as caught:
        loader.state_dict()
    said = f"for the state at step 1 from the planner at {service.address}"
    assert said in str(caught.value) and "constructor" not in str(caught.value)


def test_a_connection_that_does_not_come_to_be_is_given_up(serve, between, monkeypatch):
    """After 5 s; here less, of the same option."""
    name = "grpc.min_reconnect_backoff_ms"
    options = [(key, 300 if key == name else value) for key, value in rpc.OPTIONS]
    monkeypatch.setattr(rpc, "OPTIONS", options)
    proxy = between(serve())
    proxy.swallow()
    tls = TLS(None, None, None)
    channel = rpc.open_channel(proxy.address, tls, Access(proxy.address, None, False))
    began = time.monotonic()
    with pytest.raises(millrace.LostError) as caught:
        rpc.call_unary(channel, "/millrace.v1.Planner/Join", b"", 9, "joining")
    channel.close()
    assert caught.value.code == "UNAVAILABLE" and time.monotonic() - began < 4


@NEXT
@WAY
def test_a_step_over_a_slow_link_moves(serve, between, open_loader, soon, prefetch, way):
    """It takes longer than nothing may move, and than a call without a word; parts come."""
    service = serve(microbatches=6)
    proxy = between(service)
    service.streams, service.waits, service.looks = True, True, 10
    service.constructor = proxy.address
    loader = open_loader(service, prefetch=prefetch, way=way, stall_timeout=2)
    check_steps(service, loader, range(1))
    proxy.rate = 4000
    check_steps(service, loader, range(1, 2 + prefetch))
    assert loader.stats.wait_seconds > 2.1 and loader.stats.retries == 0


@NEXT
def test_a_link_too_slow_for_a_frame_gets_the_time_that_it_needs(
    serve, between, open_loader, monkeypatch, prefetch
):
    monkeypatch.setattr(attention, "EVERY", 0.1)
    service = serve(microbatches=1)
    proxy = between(service)
    service.streams, service.waits, service.constructor = True, True, proxy.address
    loader = open_loader(service, prefetch=prefetch, stall_timeout=20)
    check_steps(service, loader, range(1))
    proxy.rate = 1500
    slow = 2 + prefetch
    check_steps(service, loader, range(1, slow))
    retries = loader.stats.retries
    assert retries >= 1
    check_steps(service, loader, range(slow, slow + 4))
    assert loader.stats.retries <= retries + 1  # every second one is lost if each finds out again


def test_the_time_for_a_slow_link_counts_elsewhere_too():
    """The planner may name another constructor to a rank that heard nothing of one."""
    watch = attention.Attention()
    first = watch.begin(None, "one:1", lambda: False, 3)
    first.silent = True
    watch.end(first, False)
    second = watch.begin(None, "two:1", lambda: False, 3)
    assert second.allowed == 2 * attention.LOOKS
    second.missed = 4
    watch.heard(second)
    watch.whole(second)
    assert second.limit == 2 * attention.LOOKS  # a frame takes longer than LOOKS there
    watch.heard(second)
    watch.whole(second)
    assert second.limit == attention.LOOKS
    watch.close()


@PREFETCH
def test_another_server_at_the_address_is_named(serve, between, open_loader, prefetch):
    service = serve()
    proxy = between(service)
    proxy.status = 404
    loader = open_loader(service, prefetch=prefetch, address=proxy.address)
    said = rf"answers at {proxy.address} is not a Millrace service \(HTTP 404\): check address"
    with pytest.raises(millrace.UserError, match=said):
        next(loader)
    assert proxy.answered == 1


HTTP1 = b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("speaks", "number"),
    [(b"SSH-2.0-OpenSSH_9.6\r\n", ""), (HTTP1, r" \(HTTP 505\)"), (b"220 mail ESMTP\r\n", "")],
)
def test_what_speaks_no_http2_is_named(serve, open_loader, speaks, number):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    came = listener.accept()[0]
                    came.sendall(speaks)
                    kept.append(came)

        kept = []
        threading.Thread(target=answer, daemon=True).start()
        at = f"127.0.0.1:{listener.getsockname()[1]}"
        said = f"answers at {at} is not a Millrace service{number}: check address and port"
        with pytest.raises(millrace.UserError, match=said):
            next(open_loader(serve(), address=at, stall_timeout=300, timeout=300))
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        for one in kept:
            one.close()


@pytest.mark.parametrize(
    ("is_", "said"),
    [
        (": this is a Millrace loader or constructor", "a Millrace loader or constructor"),
        ("", "another role or service"),
    ],
)
def test_another_role_at_the_address_is_named(serve, open_loader, is_, said):
    service = serve()
    text = f"unknown service millrace.v1.Planner{is_}"
    service.faults.append(("Join", None, Fault(grpc.StatusCode.UNIMPLEMENTED, text)))
    text = f"answers at {service.address} is {said}, not the planner: give the address that `mill"
    with pytest.raises(millrace.UserError, match=text) as error:
        next(open_loader(service))
    assert error.value.code == "UNIMPLEMENTED"


@pytest.mark.parametrize("status", [404, 403, 500, 502, 503])
@WAY
def test_another_server_after_joining_is_waited_out(serve, between, open_loader, status, way):
    """An ingress, or Envoy, whose service is away for a while."""
    service = serve()
    proxy = between(service)
    service.streams, service.constructor = True, proxy.address
    loader = open_loader(service, prefetch=0, address=proxy.address, way=way)
    check_steps(service, loader, range(2))
    proxy.status = status
    proxy.reset()

    def let():
        until(lambda: proxy.answered >= 4)
        proxy.status = 0
        proxy.reset()

    threading.Thread(target=let).start()
    check_steps(service, loader, range(2, 4))
    assert loader.stats.retries >= 2


def test_an_envoy_that_has_no_service_yet_is_waited_for(serve, between, open_loader):
    service = serve()
    proxy = between(service)
    proxy.status = 503
    loader = open_loader(service, address=proxy.address, stall_timeout=4)
    with pytest.raises(millrace.WaitError, match="503"):
        next(loader)


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("a" * 63 + ".b", True),
        ("a" * 64 + ".b", False),
        (".".join(["a" * 49] * 5) + ".abc", True),
        (".".join(["a" * 49] * 5) + ".abcd", False),
    ],
)
def test_names_that_no_host_can_have(host, good):
    if good:
        assert pick_address(f"{host}:80,{host}.:81")
        return
    with pytest.raises(millrace.UserError, match="no host has such a name"):
        pick_address(f"localhost:1,{host}:80")


@pytest.mark.parametrize(
    "path", ["/" + "x" * 107, "/" + "\u00e9" * 54, "/a\0b", "\ud800"], ids=ascii
)
def test_paths_that_no_socket_can_have(path):
    assert pick_address("unix:/" + "x" * 106)
    for call in (
        lambda: millrace.connect(f"unix:{path}", dp_rank=0),
        lambda: millrace.peek(f"unix:{path}", 0),
        lambda: millrace.change(f"localhost:1,unix:{path}", {"pause": "web"}),
    ):
        with pytest.raises(millrace.UserError, match="the address is "):
            call()


def test_a_connection_without_calls_is_closed_and_opened_again(serve, between, monkeypatch):
    """After 3 s; here 1 s, the least that gRPC takes."""
    monkeypatch.setattr(rpc, "OCCASIONAL", (rpc.OCCASIONAL[0], 1000))
    proxy = between(serve())
    tls = TLS(None, None, None)
    channel = rpc.open_channel(proxy.address, tls, Access(proxy.address, None, False))
    for came in (1, 2):
        with pytest.raises(millrace.Error):
            rpc.call_unary(channel, "/millrace.v1.Planner/Nothing", b"", 9, "asking")
        assert proxy.came == came
        time.sleep(2.5)
    channel.close()


@pytest.fixture
def busy():
    """Processes that keep all cores busy."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(3 * (os.cpu_count() or 1))]
    yield
    for process in processes:
        process.kill()
        process.wait()


def test_calls_end_when_their_service_stops(busy):
    """All of them: gRPC's own retry loses one of twenty on a busy machine, deadline or not."""
    answers = grpc.unary_stream_rpc_method_handler(lambda request, context: iter([b"one"]))
    handler = grpc.method_handlers_generic_handler("any", {"Ask": answers})
    for _ in range(30):
        server = grpc.server(futures.ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers((handler,))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        channel = rpc.open_channel(address, TLS(None, None, None), Access(address, None, False))
        ask = channel.unary_stream("/any/Ask")

        def call(ask=ask):
            with contextlib.suppress(grpc.RpcError):
                while True:
                    assert list(ask(b"", timeout=5)) == [b"one"]

        callers = [threading.Thread(target=call, daemon=True) for _ in range(4)]
        for caller in callers:
            caller.start()
        time.sleep(0.05)
        server.stop(0).wait()
        until(lambda callers=callers: not any(caller.is_alive() for caller in callers))
        channel.close()
