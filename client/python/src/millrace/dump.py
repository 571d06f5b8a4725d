"""What a rank received, on disk: written by millrace.rank, read by millrace.digest.

A folder for each rank holds rank.json (who, and the position it started at), and
for each microbatch a .npz file with its tensors and a .json file with its rows, called
step-STEP-NUMBER-of-COUNT.
A rank that resumes adds to its folder; what it received again is written again.
"""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from millrace.errors import UserError
from millrace.loader import Loader
from millrace.messages import ResumeToken
from millrace.receive import Array, Extra, parted
from millrace.table import IMAGE, KEPT


def where(loader: Loader, rank: dict[str, int]) -> dict[str, Any]:
    """Describes a rank and its position, as JSON values."""
    mesh = loader.mesh  # asks the service, which says what is wrong with a token
    step, microbatch = loader.position
    token = ResumeToken.decode(loader.state_dict()["token"])
    return {
        "rank": rank,
        "mesh": mesh._asdict(),
        "job": loader.job,
        "identity": loader.identity.hex(),
        "format": loader.format,
        "step": step,
        "microbatch": microbatch,
        "digest": token.digest.hex(),  # the chain of all steps before
    }


class Writer:
    """Writes the dump of one rank into a folder of its own below ``folder``."""

    def __init__(self, folder: str, place: dict[str, Any]) -> None:
        name = "-".join(f"{axis}{number}" for axis, number in place["rank"].items())
        self._folder = pathlib.Path(folder) / name
        self._folder.mkdir(parents=True, exist_ok=True)
        head = self._folder / "rank.json"
        if not head.exists() or json.loads(head.read_text())["step"] > place["step"]:
            head.write_text(json.dumps(place, indent=1) + "\n")

    def add(self, loader: Loader, batch: dict[str, Any]) -> None:
        """Writes the microbatch that loader returned last."""
        name = f"step-{loader.step:08d}-{loader.microbatch:04d}-of-{loader.num_microbatches:04d}"
        rows = [
            {"row": row.row, "lengths": [segment.length for segment in row.segments],
             "segments": [asdict(segment) for segment in row.segments]}
            for row in loader.lineage
        ]  # fmt: skip
        images = {IMAGE + name: array for name, array in loader.images.items()}
        arrays: dict[str, Any] = {**batch, **loader.kept, **images}
        np.savez(self._folder / f"{name}.npz", **arrays)
        # Last, and whole: a microbatch counts once its rows are there.
        part = self._folder / f"{name}.part"
        part.write_text(json.dumps(rows) + "\n")
        part.replace(self._folder / f"{name}.json")


class Image(NamedTuple):
    """An image of a row, as the row's digest has it."""

    row: int  # in the microbatch
    document: int  # in the row
    at: int  # place of its first placeholder in the document
    height: int  # patches
    width: int
    sha256: bytes  # of the encoded image
    tokens: int = 0  # placeholders


class Rows(NamedTuple):
    """One microbatch of a dump: row numbers, document lengths, and its token tensor."""

    rows: list[int]
    lengths: list[list[int]]
    tokens: Array | None  # None on pipeline stages that get no tokens
    extras: dict[str, list[Extra]]  # of the kept columns
    bounds: Array | None  # ends of padded documents, of format megatron-thd
    images: Sequence[Image] = ()  # in placeholders' order; on the first pipeline stage only
    loss: Array | None = None  # the tensor that tells which tokens carry loss; None as tokens
    ranks: int = 0  # that share the row, of the pool of all dp x cp ranks; 0: those of cp


class Dump:
    """The dump of one rank."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.place: dict[str, Any] = json.loads((folder / "rank.json").read_text())

    def coordinate(self, axis: str) -> int:
        """Returns the rank's number on an axis."""
        return int(self.place["rank"][axis])

    def microbatches(self, step: int) -> Iterator[tuple[int, Rows]]:
        """Yields number and content of each microbatch of a step that is there."""
        for path in sorted(self.folder.glob(f"step-{step:08d}-*.json")):
            described = json.loads(path.read_text())
            numbers = [row["row"] for row in described]
            lengths = [row["lengths"] for row in described]
            yield int(path.stem.split("-")[2]), _rows(path, self.place["format"], numbers, lengths)

    def steps(self) -> set[tuple[int, int]]:
        """Returns the steps that are there whole, each with the number of its microbatches."""
        names = [path.stem.split("-") for path in self.folder.glob("step-*.json")]
        counts = Counter((int(step), int(whole)) for _, step, _, _, whole in names)
        return {(step, whole) for (step, whole), count in counts.items() if count == whole}


# The tensor of token ids in each format.
TOKENS = ("tokens", "input_ids", "input", "inputs")

# And the one that tells which tokens carry loss.
LOSS = {"hf": "labels", "torchtitan": "labels", "jax": "targets_segmentation"}


def _rows(path: pathlib.Path, format: str, numbers: list[int], lengths: list[list[int]]) -> Rows:
    """Reads a microbatch."""
    with np.load(path.with_suffix(".npz")) as arrays:
        aside = {name: arrays[name] for name in arrays if name.startswith((KEPT, IMAGE))}
        tokens = [arrays[name] for name in TOKENS if name in arrays]
        bounds = arrays.get("cu_seqlens_padded")
        loss = arrays.get(LOSS.get(format, "loss_mask"))
        ranks = int(arrays["local_cp_size"][0]) if "local_cp_size" in arrays else 0
    microbatch = parted(aside, [])
    return Rows(
        numbers,
        lengths,
        tokens[0] if tokens else None,
        microbatch.extras(),
        bounds,
        _images(microbatch.images),
        loss,
        ranks,
    )


def _images(arrays: dict[str, Array]) -> list[Image]:
    """Returns the images of a microbatch's rows."""
    if "source" not in arrays:
        return []
    return [
        Image(row, document, at, height, width, digest.tobytes(), tokens)
        for (_, _, row, document, at, tokens, height, width), digest in zip(
            arrays["source"].tolist(), arrays["sha256"]
        )
    ]


def read(folders: list[str]) -> list[Dump]:
    """Returns the dumps of all ranks in the folders or right below them."""
    heads = {
        head.resolve()
        for folder in folders
        for pattern in ("rank.json", "*/rank.json")
        for head in pathlib.Path(folder).glob(pattern)
    }
    if not heads:
        raise UserError(
            f"no rank.json in {', '.join(folders)}: give folders of millrace.rank --dump"
        )
    return [Dump(head.parent) for head in sorted(heads)]
