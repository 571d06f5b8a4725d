"""The messages of proto/millrace.proto that a trainer sends or receives.

Names and numbers are those of the .proto file; a test holds them against it.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.wire import Message, WireError, field, fields

PLANNER = "/millrace.v1.Planner/"
CONSTRUCTOR = "/millrace.v1.Constructor/"

# The versions of the protocol between trainers and a service that this client speaks, the
# newest and the oldest, as in internal/rpc/protocol.go. The service chooses one.
PROTOCOL, OLDEST = 3, 2

# The first version in which a rank joins again by its position, without a token.
BY_POSITION = 3


@dataclass
class Coordinates(Message):
    dp: int = field(1, "uint32")
    cp: int = field(2, "uint32")
    pp: int = field(3, "uint32")
    tp: int = field(4, "uint32")


@dataclass
class Mesh(Message):
    dp: int = field(1, "uint32")
    cp: int = field(2, "uint32")
    pp: int = field(3, "uint32")
    tp: int = field(4, "uint32")
    vpp: int = field(5, "uint32")
    stride: list[int] = field(6, "uint32", repeated=True)


@dataclass
class JoinRequest(Message):
    job: str = field(1, "string")
    identity: bytes = field(2, "bytes")
    rank: Coordinates = field(3, "message", message=Coordinates)
    mesh: Mesh = field(4, "message", message=Mesh)
    token: bytes = field(5, "bytes")
    start: int = field(8, "uint")
    protocol: int = field(9, "uint32")
    epoch: int = field(11, "uint")  # the highest that the client heard of
    silent: str = field(12, "string")  # the constructor that says nothing to the rank
    stale_refused: int = field(13, "uint32")  # answers of planners of lower epochs
    newest: int = field(15, "uint32")


@dataclass
class Position(Message):
    generation: int = field(1, "uint")
    step: int = field(2, "uint")


@dataclass
class JoinAgainRequest(JoinRequest):
    """A JoinRequest of a rank that joined before: it says where it stands.

    A class of its own, as a message in a message is always sent.
    """

    at: Position = field(10, "message", message=Position)


# JoinRequest.start: the enum Start.
START_BEGINNING = 1


@dataclass
class JoinReply(Message):
    job: str = field(1, "string")
    identity: bytes = field(2, "bytes")
    generation: int = field(3, "uint")
    next_step: int = field(4, "uint")
    constructor: str = field(5, "string")
    fetches: bool = field(6, "bool")
    microbatches: int = field(7, "uint32")
    format: str = field(8, "string")
    sources: list[str] = field(9, "string", repeated=True)
    mesh: Mesh = field(10, "message", message=Mesh)
    token: bytes = field(11, "bytes")
    join: int = field(13, "uint")
    protocol: int = field(14, "uint32")
    epoch: int = field(15, "uint")  # of the planner


@dataclass
class LocateRequest(Message):
    job: str = field(1, "string")
    identity: bytes = field(2, "bytes")
    rank: Coordinates = field(3, "message", message=Coordinates)


@dataclass
class PeekRequest(Message):
    identity: bytes = field(1, "bytes")
    rank: Coordinates = field(2, "message", message=Coordinates)
    step: int = field(3, "uint")
    newest: bool = field(4, "bool")
    hears: bool = field(5, "bool")  # frames that say Waiting


@dataclass
class BatchRequest(Message):
    identity: bytes = field(1, "bytes")
    generation: int = field(2, "uint")
    step: int = field(3, "uint")
    acked: int = field(4, "uint")
    rank: Coordinates = field(5, "message", message=Coordinates)
    join: int = field(6, "uint")
    hears: bool = field(7, "bool")  # frames that say what is waited for
    epoch: int = field(8, "uint")
    waited_us: int = field(9, "uint")  # that the trainer stood still, plus 1


@dataclass
class DeliverRequest(Message):
    acked: int = field(1, "uint")
    until: int = field(2, "uint")
    epoch: int = field(3, "uint")
    waited_us: int = field(9, "uint")  # as in BatchRequest


@dataclass
class DeliverHello(DeliverRequest):
    """The first DeliverRequest of a stream: it says who asks. The others are shorter."""

    step: int = field(4, "uint")
    identity: bytes = field(5, "bytes")
    generation: int = field(6, "uint")
    rank: Coordinates = field(7, "message", message=Coordinates)
    join: int = field(8, "uint")
    unshared: str = field(10, "string")  # why a rank that may share memory does not
    listens: int = field(11, "uint32")  # on a line in shared memory, as the ShareReply said
    copies: bool = field(12, "bool")  # tensors may travel as copies of the tokens


@dataclass
class ShareRequest(Message):
    rank: Coordinates = field(1, "message", message=Coordinates)
    join: int = field(2, "uint")
    machine: str = field(3, "string")


@dataclass
class ShareReply(Message):
    socket: str = field(1, "string")
    ticket: bytes = field(2, "bytes")
    reason: str = field(3, "string")
    listens: int = field(4, "uint32")  # looks without a word that end the line, at the least


@dataclass
class AckRequest(Message):
    identity: bytes = field(1, "bytes")
    generation: int = field(2, "uint")
    acked: int = field(3, "uint")
    rank: Coordinates = field(4, "message", message=Coordinates)
    join: int = field(5, "uint")
    epoch: int = field(6, "uint")
    waited_us: int = field(7, "uint")  # as in BatchRequest
    leaves: bool = field(8, "bool")  # the client closes: it asks for nothing more


@dataclass
class AckReply(Message):
    pass


@dataclass
class Tensor(Message):
    name: str = field(1, "string")
    dtype: str = field(2, "string")
    shape: list[int] = field(3, "uint", repeated=True)
    offset: int = field(4, "uint")
    size: int = field(5, "uint")
    wire: str = field(6, "string")


@dataclass
class RowInfo(Message):
    row: int = field(1, "uint32")
    lengths: list[int] = field(2, "uint32", repeated=True)
    sources: list[int] = field(3, "uint32", repeated=True)
    seqs: list[int] = field(4, "uint", repeated=True)
    indices: list[int] = field(5, "uint32", repeated=True)


@dataclass
class Microbatch(Message):
    tensors: list[Tensor] = field(1, "message", repeated=True, message=Tensor)
    # Each a serialized RowInfo: lineage is long, and most trainers never look.
    rows: list[bytes] = field(2, "bytes", repeated=True)


@dataclass
class BatchHeader(Message):
    step: int = field(1, "uint")
    end_of_data: bool = field(2, "bool")
    body_size: int = field(3, "uint")
    microbatches: list[Microbatch] = field(4, "message", repeated=True, message=Microbatch)
    topology: str = field(5, "string")
    joined: list[str] = field(6, "string", repeated=True)
    sequence_length: int = field(7, "uint32")
    rows: int = field(8, "uint32")
    generation: int = field(9, "uint")


@dataclass
class StateRequest(Message):
    identity: bytes = field(1, "bytes")
    step: int = field(2, "uint")
    epoch: int = field(3, "uint")
    stale_refused: int = field(4, "uint32")
    past: bool = field(5, "bool")


@dataclass
class StateReply(Message):
    token: bytes = field(1, "bytes")
    digest: bytes = field(2, "bytes")
    epoch: int = field(3, "uint")


@dataclass
class ChangeRequest(Message):
    change: bytes = field(1, "bytes")
    identity: bytes = field(2, "bytes")
    token: bytes = field(5, "bytes")
    epoch: int = field(7, "uint")
    stale_refused: int = field(8, "uint32")


@dataclass
class ChangeReply(Message):
    step: int = field(1, "uint")
    epoch: int = field(2, "uint")
    void_to: int = field(3, "uint")  # with a token: steps from there to before it are void


@dataclass
class ReportRequest(Message):
    identity: bytes = field(1, "bytes")
    step: int = field(2, "uint")
    rank: Coordinates = field(3, "message", message=Coordinates)
    sources: list[str] = field(4, "string", repeated=True)
    losses: list[float] = field(5, "double", repeated=True)
    tokens: list[int] = field(6, "uint", repeated=True)
    step_seconds: float = field(7, "double")
    epoch: int = field(8, "uint")
    stale_refused: int = field(9, "uint32")


@dataclass
class ReportReply(Message):
    epoch: int = field(1, "uint")


@dataclass
class StatusRequest(Message):
    pass


@dataclass
class WhyRequest(Message):
    pass


@dataclass
class StatusReply(Message):
    text: str = field(1, "string")
    json: bytes = field(2, "bytes")


@dataclass
class ResumeToken(Message):
    """The part of a token that says where it is; trainers pass tokens on unread."""

    version: int = field(1, "uint32")
    job: str = field(2, "string")
    identity: bytes = field(3, "bytes")
    manifest: bytes = field(4, "bytes")
    step: int = field(6, "uint")
    digest: bytes = field(7, "bytes")
    mesh: Mesh = field(8, "message", message=Mesh)


@dataclass
class Waiting(Message):
    reason: str = field(1, "string")
    idle_ms: int = field(2, "uint")
    ranks: bool = field(3, "bool")


@dataclass
class Frame(Message):
    header: bytes = field(1, "bytes")
    body: bytes = field(2, "bytes")
    waiting: Waiting = field(3, "message", message=Waiting)


# The first byte of a frame that has nothing but what the service waits for.
WAITING = 3 << 3 | 2


def split_frame(frame: bytes) -> tuple[memoryview, memoryview]:
    """Returns header and body of a serialized Frame as views: no copy of bulk."""
    parts = [memoryview(b""), memoryview(b""), memoryview(b"")]
    for number, value in fields(frame):
        if number in (1, 2):
            parts[number] = _view(number, value)
    return parts[1], parts[2]


def _view(number: int, value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise WireError(f"field {number} of a frame is not bytes")
    return value
