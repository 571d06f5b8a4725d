"""From the patches that the service delivers to what a vision encoder takes.

    mean, std = processor.image_mean, processor.image_std
    batch["pixel_values"] = millrace.vision.normalize(batch["pixel_values"], mean, std)

The service knows no model's mean and deviation; this is where they come in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from millrace.errors import UserError

__all__ = ["mrope", "normalize"]

CHANNELS = 3  # red, green, blue


def normalize(
    pixels: npt.NDArray[np.uint8],
    mean: Sequence[float],
    std: Sequence[float],
    temporal: int = 2,
) -> npt.NDArray[np.float32]:
    """Returns ``(x / 255 - mean) / std`` in the layout of Qwen2-VL's pixel_values.

    pixels: uint8 [patches, 3*P*P], as the service delivers them: in a patch its channels,
        in a channel P rows of P pixels.
    mean, std: of each channel, for values from 0 to 1.
    temporal: frames of a patch, that of a still picture being repeated: the encoder's
        temporal_patch_size (2 for Qwen2-VL); 1 for encoders of still pictures.

    The result is float32 [patches, 3*temporal*P*P]: in a patch its channels, in a channel
    its frames. It is rounded once, from float64, and shares no memory with pixels.
    """
    side = math.isqrt(pixels.shape[1] // CHANNELS) if pixels.ndim == 2 else 0
    if pixels.dtype != np.uint8 or side < 1 or pixels.shape[1] != CHANNELS * side * side:
        raise UserError(
            f"pixels are {pixels.dtype} of shape {list(pixels.shape)}: give pixel_values as "
            "delivered, uint8 [patches, 3*P*P]"
        )
    if temporal < 1:
        raise UserError(f"temporal is {temporal}: give 1 or more frames")
    tables = _tables(mean, std)
    count, plane = len(pixels), side * side
    planes = pixels.reshape(count, CHANNELS, plane)
    made = np.empty((count, CHANNELS, temporal, plane), np.float32)
    for channel, table in enumerate(tables):
        made[:, channel] = table[planes[:, channel]][:, None]
    return made.reshape(count, CHANNELS * temporal * plane)


def _tables(mean: Sequence[float], std: Sequence[float]) -> npt.NDArray[np.float32]:
    """Returns the normalized value of each of the 256 levels of each channel."""
    middle, width = np.asarray(mean, np.float64), np.asarray(std, np.float64)
    if middle.shape != (CHANNELS,) or width.shape != (CHANNELS,) or not (width > 0).all():
        raise UserError(
            f"mean is {mean} and std {std}: give three numbers each, of red, green and blue, "
            "those of std above 0"
        )
    levels = np.arange(256) / 255
    return ((levels - middle[:, None]) / width[:, None]).astype(np.float32)


def mrope(
    position_ids: npt.NDArray[np.int64],
    cu_seq_lens: npt.NDArray[np.int32],
    documents: Sequence[int],
    source: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Returns the positions [4, 1, tokens] that Qwen2-VL takes of a packed line.

    position_ids: [1, tokens], cu_seq_lens: its bounds (``cu_seq_lens_q``), of a whole line.
    documents: how many documents each row has.
    source: ``image.source`` of the microbatch.

    First come the text positions, which tell documents apart, then those of time,
    height and width. They count as one where there is no image. The tokens of an image
    share a time, and have the row and the column of their block of patches; what is behind it
    goes on after the largest of these.
    """
    made = np.repeat(position_ids[None], 4, axis=0)
    first = np.concatenate([[0], np.cumsum(documents)])
    for _, _, row, document, at, tokens, down, across in source.tolist():
        number = int(first[row] + document)
        begin, end = (int(n) for n in cu_seq_lens[number : number + 2])
        merge = math.isqrt(down * across // tokens)
        height, width = down // merge, across // merge
        if height * width != tokens or begin + at + tokens > end:
            raise UserError(
                f"an image of {down} x {across} patches has {tokens} tokens at {at} of a document "
                f"of {end - begin}: give image.source and bounds of one microbatch, uncut"
            )
        place = slice(begin + at, begin + at + tokens)
        base = int(made[1, 0, begin + at])
        made[2, 0, place] = base + np.repeat(np.arange(height), width)
        made[3, 0, place] = base + np.tile(np.arange(width), height)
        made[1, 0, place] = base
        behind = np.arange(end - place.stop) + base + max(height, width)
        made[1:, 0, place.stop : end] = behind
    return made
