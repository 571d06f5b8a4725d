"""Millrace's client: the batches of one rank of a training job, as NumPy arrays.

    loader = millrace.connect("planner:7070", dp_rank=r, dp_size=n)
    loader.load_state_dict(checkpoint["data"])  # when resuming
    for batch in loader:
        train(batch)

It owns a rank's position and what is prefetched. It never decides what is in a
batch, never shuffles and never skips: the service does. ``millrace.torch`` is
the adapter to PyTorch's DataLoader.
"""

from millrace.change import change, state_at
from millrace.connect import connect
from millrace.coordinates import coordinates_from_mesh, from_megatron
from millrace.errors import (
    BugError,
    Error,
    LostError,
    MovedError,
    TopologyChanged,
    UserError,
    WaitError,
)
from millrace.lineage import Row, Segment
from millrace.loader import Loader, Stats
from millrace.peek import Peek, peek
from millrace.transform import transform

__version__ = "0.1.0"

__all__ = [
    "BugError",
    "Error",
    "Loader",
    "LostError",
    "MovedError",
    "Peek",
    "Row",
    "Segment",
    "Stats",
    "TopologyChanged",
    "UserError",
    "WaitError",
    "change",
    "connect",
    "coordinates_from_mesh",
    "from_megatron",
    "peek",
    "state_at",
    "transform",
]
