"""A service of the real wire over made-up arrays, with faults on demand.

It is a planner and a constructor in one gRPC server. What a rank gets is a pure
function of (step, rank, microbatch), as in the real one; see ``arrays``.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from concurrent import futures

import grpc
import numpy as np

from millrace import messages as m
from millrace.receive import DTYPES
from millrace.table import END, ENTRY, HEAD, LINE, MAGIC, ORIGIN
from millrace.wire import WireError

FRAME = 500  # bytes of a frame's body: small, so that a step has several
NAMES = {dtype: name for name, dtype in DTYPES.items()}
IDENTITY = bytes(range(32))


def strides(mesh):
    """How the ranks of a mesh are numbered: tp, cp, dp, pp from the inside out."""
    dp, cp, pp, tp = mesh[:4]
    apart = (tp * cp, tp, tp * cp * dp, 1)
    return [stride if size > 1 else 0 for stride, size in zip(apart, (dp, cp, pp, tp))]


class Fault(Exception):
    """What a handler raises to end a call with a status."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Service:
    def __init__(
        self,
        steps=1 << 30,
        microbatches=2,
        mesh=(2, 1, 1, 1, 1),
        format="megatron",
        credentials=None,
    ):
        self.steps, self.microbatches, self.mesh, self.format = steps, microbatches, mesh, format
        self.generation = 1
        self.moves = {}  # step -> generation that batches from it on are of, for ranks taken along
        self.constructor = ""  # the address that ranks are given; empty: its own
        self.ahead = 1 << 30  # steps planned ahead of the slowest ack seen
        self.protocol = m.PROTOCOL
        self.streams = False  # whether it knows Deliver
        self.epoch = 0
        self.fetches = True
        self.images = False  # whether it serves a job with images
        self.topology = ""  # of the mesh that goes on after the last step
        self.joined = []  # (step, name) of sources that joined, by rising step
        self.lengths = {}  # step -> tokens of a row, where it is not 64
        self.patient = threading.Event()  # closed: Report waits
        self.why_waits = False  # with it, so does Why
        self.share_mute = 0.0  # seconds in which Share says nothing, used up
        self.asked = []  # (method, request) in order of arrival
        self.acked = 0
        self.faults = []  # (method, step or None, Fault): used up one by one
        self.broken = {}  # step -> frames sent before the stream breaks, used up
        self.waits = False  # whether it says that Batch waits: before each answer, says times
        self.looks = 1  # that it asks for
        self.says, self.pause = 0, 0.0  # with this pause after each
        self.mute = {}  # step -> seconds in which it says nothing, used up
        self.gate = threading.Event()  # closed: Batch waits
        self.gate.set()
        self.patient.set()
        self.change = threading.Condition()
        self.server = None
        self.credentials = credentials  # with TLS

    # ---- life ----

    def start(self, port=0):
        # As the real one: clients may ping an idle connection.
        pings = [("grpc.http2.min_recv_ping_interval_without_data_ms", 5000)]
        self.server = grpc.server(futures.ThreadPoolExecutor(32), options=pings)
        handlers = {
            "Planner": {
                "Join": grpc.unary_unary_rpc_method_handler(
                    self._unary(lambda request: self.join(request), m.JoinAgainRequest)
                ),
                "State": grpc.unary_unary_rpc_method_handler(
                    self._unary(self.state, m.StateRequest)
                ),
                "Change": grpc.unary_unary_rpc_method_handler(
                    self._unary(self.make_change, m.ChangeRequest)
                ),
                "Status": grpc.unary_unary_rpc_method_handler(
                    self._unary(lambda request: m.StatusReply(), m.StatusRequest)
                ),
                "Why": grpc.unary_unary_rpc_method_handler(self._unary(self.why, m.WhyRequest)),
                "Report": grpc.unary_unary_rpc_method_handler(
                    self._unary(self.report, m.ReportRequest)
                ),
            },
            "Constructor": {
                "Deliver": grpc.stream_stream_rpc_method_handler(self.deliver),
                "Batch": grpc.unary_stream_rpc_method_handler(self.batch),
                "Share": grpc.unary_unary_rpc_method_handler(
                    self._unary(lambda request: self.share(request), m.ShareRequest)
                ),
                "Ack": grpc.unary_unary_rpc_method_handler(self._unary(self.ack, m.AckRequest)),
            },
        }
        self.server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler("millrace.v1." + k, v)
                for k, v in handlers.items()
            ]
        )
        at = f"127.0.0.1:{port}"
        if self.credentials is None:
            self.port = self.server.add_insecure_port(at)
        else:
            self.port = self.server.add_secure_port(at, self.credentials)
        self.server.start()
        return self

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def stop(self):
        self.gate.set()
        self.patient.set()
        with self.change:
            self.ahead = 1 << 30
            self.change.notify_all()
        self.server.stop(0).wait()

    def count(self, method):
        return sum(name == method for name, _ in self.asked)

    def requests(self, method):
        return [request for name, request in self.asked if name == method]

    # ---- what it serves ----

    def token(self, step):
        return m.ResumeToken(
            version=1,
            job="fake",
            identity=IDENTITY,
            step=step,
            digest=bytes([step % 256]) * 32,
            mesh=m.Mesh(*self.mesh),
        ).encode()

    def arrays(self, step, rank, microbatch):
        """The arrays of one microbatch: all dtypes, a scalar, an empty one."""
        seed = [step, *rank, microbatch]
        draw = np.random.default_rng(seed)
        made = {
            "tokens": draw.integers(0, 50000, (2, 64), dtype=np.int64),
            "loss_mask": draw.random((2, 64), dtype=np.float32),
            "cu_seqlens": draw.integers(0, 64, (2, 16), dtype=np.int32),
            "raw": draw.integers(0, 255, (3 + step % 5,), dtype=np.uint8),
            "max_seqlen": np.array(step, np.int32),
            "none": np.empty((0, 4), np.int64),
        }
        if self.format == "hf":
            made["max_length_q"] = np.array(step + 1, np.int32)
        if self.images:
            made["pixel_values"] = draw.integers(0, 255, (step % 3 * 4, 12), dtype=np.uint8)
            made["image_grid_thw"] = np.full((step % 3, 3), (1, 2, 2), np.int64)
        return made

    def places(self, step, rank, microbatch):
        """The arrays beside the model's: of a job with images, those that begin with image."""
        if not self.images:
            return {}
        draw, images, world = np.random.default_rng([step, *rank, microbatch, 1]), step % 3, 2
        made = {
            "image.cu_seqlens": np.arange(images + 1, dtype=np.int32) * 4,
            "image.dest": draw.integers(0, 9, (images, 5), dtype=np.int64),
            "image.send_counts": draw.integers(0, 9, world, dtype=np.int32),
            "image.recv_counts": draw.integers(0, 9, world, dtype=np.int32),
        }
        if rank[2] == 0:
            # One in the second document of the first row, two in the first of the second.
            source = [[1, 0, 0, 1, 5, 1, 2, 2], [0, 0, 1, 0, 0, 2, 4, 2], [0, 1, 1, 0, 4, 1, 2, 2]]
            made["image.source"] = np.array(source, np.int64)
            made["image.sha256"] = draw.integers(0, 255, (3, 32), dtype=np.uint8)
        return made

    def rows(self, step, rank, microbatch):
        first = (rank[0] * self.microbatches + microbatch) * 2
        last = 1 + sum(since <= step for since, _ in self.joined)  # the newest source
        return [
            m.RowInfo(first + i, [30, 34 - i], [0, last], [step, step + 1], [i, i + 1])
            for i in range(2)
        ]

    def frames(self, step, rank, generation=1):
        header, body = (
            m.BatchHeader(step=step, rows=self.mesh[0] * self.microbatches * 2),
            bytearray(),
        )
        header.sequence_length = self.lengths.get(step, 64)
        moved = [generation for since, generation in self.moves.items() if since <= step]
        header.generation = max(moved, default=generation)
        header.joined = [name for since, name in self.joined if since <= step]
        for number in range(self.microbatches):
            part = m.Microbatch(rows=[row.encode() for row in self.rows(step, rank, number)])
            place = (step, rank, number)
            for name, array in {**self.arrays(*place), **self.places(*place)}.items():
                body += bytes(-len(body) % 64)
                wire = array.astype(np.int32) if name == "tokens" else array
                part.tensors.append(
                    m.Tensor(
                        name,
                        NAMES[array.dtype],
                        list(array.shape),
                        len(body),
                        wire.nbytes,
                        "int32" if wire is not array else "",
                    )
                )
                body += wire.tobytes()
            header.microbatches.append(part)
        header.body_size = len(body)
        yield m.Frame(header.encode(), bytes(body[:FRAME])).encode()
        for at in range(FRAME, len(body), FRAME):
            yield m.Frame(b"", bytes(body[at : at + FRAME])).encode()

    def parts(self, step, rank, generation=1):
        """The frames of a step on a stream: the same content with a table."""
        (first, *rest) = (m.Frame.decode(frame) for frame in self.frames(step, rank, generation))
        header, body = m.BatchHeader.decode(first.header), b"".join(f.body for f in (first, *rest))
        raw = encode_table(header)
        yield m.Frame(raw, body[:FRAME]).encode()
        for at in range(FRAME, len(body), FRAME):
            yield m.Frame(b"", body[at : at + FRAME]).encode()

    # ---- the calls ----

    def _unary(self, method, kind):
        def handler(raw, context):
            request = kind.decode(raw)
            try:
                return method(request).encode()
            except Fault as fault:
                context.abort(fault.code, str(fault))

        return handler

    def _fault(self, method, request, step=None):
        self.asked.append((method, request))
        for at, (name, wanted, fault) in enumerate(self.faults):
            if name == method and wanted in (None, step):
                del self.faults[at]
                raise fault

    def join(self, request):
        self._fault("Join", request)
        if request.job not in ("", "fake"):
            raise Fault(grpc.StatusCode.NOT_FOUND, f"no job {request.job}: this one is fake")
        ours = m.Mesh(*self.mesh, stride=strides(self.mesh))
        for axis in ("dp", "cp", "pp", "tp"):
            given = getattr(request.mesh, axis)
            if given not in (0, getattr(ours, axis)):
                raise Fault(grpc.StatusCode.FAILED_PRECONDITION, f"{axis} is {getattr(ours, axis)}")
            if getattr(request.rank, axis) >= getattr(ours, axis):
                raise Fault(grpc.StatusCode.INVALID_ARGUMENT, f"no such {axis} rank")
        try:
            at = m.ResumeToken.decode(request.token)
        except WireError as error:
            what = f"the token is damaged: {error}"
            raise Fault(grpc.StatusCode.INVALID_ARGUMENT, what) from None
        if request.token and at.job != "fake":
            raise Fault(grpc.StatusCode.FAILED_PRECONDITION, f"the token is of job {at.job}")
        step = at.step if request.token else request.at.step
        return m.JoinReply(
            job="fake",
            identity=IDENTITY,
            generation=self.generation,
            next_step=step,
            constructor=self.constructor or self.address,
            fetches=self.fetches,
            microbatches=self.microbatches,
            format=self.format,
            sources=["web", "code"],
            mesh=ours,
            token=self.token(step),
            epoch=self.epoch,
            join=self.count("Join"),
            protocol=self.protocol,
        )

    def state(self, request):
        self._fault("State", request, request.step)
        return m.StateReply(self.token(request.step), bytes([request.step % 256]) * 32, self.epoch)

    def make_change(self, request):
        self._fault("Change", request)
        change = json.loads(request.change)
        if "paus" in change:
            raise Fault(grpc.StatusCode.INVALID_ARGUMENT, 'did you mean "pause"?')
        return m.ChangeReply(change.get("step") or self.acked + 8, self.epoch)

    def report(self, request):
        self._fault("Report", request, request.step)
        self.patient.wait()
        return m.ReportReply(self.epoch)

    def why(self, request):
        if not self.why_waits:
            raise Fault(grpc.StatusCode.UNIMPLEMENTED, "nobody asks that here")
        self.patient.wait()
        return m.Waiting()

    def share(self, request):
        pause, self.share_mute = self.share_mute, 0.0
        time.sleep(pause)
        raise Fault(grpc.StatusCode.UNIMPLEMENTED, "nothing is shared here")

    def ack(self, request):
        self._fault("Ack", request)
        if request.generation != self.generation:
            raise Fault(grpc.StatusCode.ABORTED, f"generation {request.generation} is over")
        self._advance(request.acked)
        return m.AckReply()

    def batch(self, raw, context):
        request = m.BatchRequest.decode(raw)
        try:
            self._fault("Batch", request, request.step)
            if request.generation != self.generation:
                raise Fault(grpc.StatusCode.ABORTED, f"generation {request.generation} is over")
            if self.waits:
                context.send_initial_metadata((("millrace-waits", str(self.looks)),))
            yield from self._say(request)
            self._wait(request, context)
            yield from self._answer(request)
        except Fault as fault:
            context.abort(fault.code, str(fault))

    def deliver(self, requests, context):
        hello = m.DeliverHello.decode(next(requests))
        room, step = [hello.until], hello.step
        try:
            if not self.streams:
                raise Fault(grpc.StatusCode.UNIMPLEMENTED, "there are no streams here")
            if self.waits:
                context.send_initial_metadata((("millrace-waits", str(self.looks)),))
            self._advance(hello.acked)
            threading.Thread(target=self._hear, args=(requests, room), daemon=True).start()
            while step < 1 << 60:
                self._wait_for(lambda step=step: room[0] > step, context)
                self._fault("Deliver", hello, step)
                if hello.generation != self.generation:
                    raise Fault(grpc.StatusCode.ABORTED, "that generation is over")
                hello.step = step
                yield from self._say(hello)
                self.gate.wait()
                self._wait_for(lambda step=step: step <= self.acked + self.ahead, context)
                yield from self._answer(hello, True)
                step = 1 << 60 if step >= self.steps else step + 1
            self._wait_for(lambda: False, context)
        except Fault as fault:
            context.abort(fault.code, str(fault))

    def _hear(self, requests, room):
        try:
            for raw in requests:
                request = m.DeliverRequest.decode(raw)
                self.asked.append(("Told", request))
                room[0] = max(room[0], request.until)
                self._advance(request.acked)
        except grpc.RpcError:  # it was cancelled
            pass

    def _wait_for(self, until, context):
        with self.change:
            while not until():
                if not context.is_active():
                    raise Fault(grpc.StatusCode.CANCELLED, "the rank is gone")
                self.change.wait(0.05)

    def _advance(self, acked):
        with self.change:
            self.acked = max(self.acked, acked)
            self.change.notify_all()

    def _wait(self, request, context):
        self.gate.wait()
        self._advance(request.acked)
        with self.change:
            while request.step > self.acked + self.ahead and context.is_active():
                self.change.wait(0.05)

    def _say(self, request):
        """Says what is waited for, or nothing at all for as long as ``mute`` says."""
        reason = b"\x0a\x03why"
        for _ in range(self.says):
            yield bytes([3 << 3 | 2, len(reason)]) + reason
            time.sleep(self.pause)
        time.sleep(self.mute.pop(request.step, 0))

    def _answer(self, request, table=False):
        if request.step >= self.steps:
            end = m.BatchHeader(request.step, True, topology=self.topology)
            yield m.Frame(encode_table(end) if table else end.encode()).encode()
            return
        rank = (request.rank.dp, request.rank.cp, request.rank.pp, request.rank.tp)
        left = self.broken.pop(request.step, None)
        frames = self.parts if table else self.frames
        for frame in frames(request.step, rank, request.generation):
            if left == 0:
                raise Fault(grpc.StatusCode.UNAVAILABLE, "the stream broke")
            left = None if left is None else left - 1
            yield frame


def encode_table(header):
    """Returns a header as a table."""
    entries, places, names, lines, origins = b"", b"", [], b"", b""
    for number, part in enumerate(header.microbatches):
        for tensor in part.tensors:
            if tensor.name not in names:
                names.append(tensor.name)
            shape = [*tensor.shape, *[0] * (5 - len(tensor.shape))]
            code = ("", "uint8", "int32", "int64", "float32").index(tensor.dtype)
            wire = ("", "int32", "runs").index(tensor.wire)
            dims = len(tensor.shape)
            entries += ENTRY.pack(names.index(tensor.name), code, wire, number, dims, 0, *shape)
            places += struct.pack("<QQ", tensor.offset, tensor.size)
        for row in map(m.RowInfo.decode, part.rows):
            lines += LINE.pack(row.row, number, len(row.lengths), 0)
            for place in zip(row.seqs, row.lengths, row.sources, row.indices):
                origins += ORIGIN.pack(*place, 0)
    layout = entries + b"".join(struct.pack("<H", len(n)) + n.encode() for n in names)
    layout += bytes(-len(layout) % 8)
    texts = [text.encode() for text in (header.topology, *header.joined)]
    texts = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    sizes = (len(layout), len(lines) // LINE.size, len(origins) // ORIGIN.size, len(texts))
    head = HEAD.pack(
        MAGIC,
        END if header.end_of_data else 0,
        header.step,
        header.generation,
        header.body_size,
        header.sequence_length,
        header.rows,
        len(header.microbatches),
        len(entries) // ENTRY.size,
        *sizes,
    )
    return head + layout + places + lines + origins + texts
