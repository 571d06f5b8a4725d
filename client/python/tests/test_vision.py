"""Images: beside the model's keys, in the digest, normalized, and from the real service."""

from __future__ import annotations

import hashlib
import io
import pathlib
import struct
import subprocess
import sys
import tarfile
import threading
import types
import zlib

import numpy as np
import pytest
from conftest import check_batch
from processes import BINARY, needs_binary, real_service

import millrace
import millrace.jax
from millrace import digest, dump, rank, vision
from millrace.receive import VISION

# ---- beside the model's keys ----


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("pp", [0, 1])
def test_images_stay_beside_the_model_s_keys(serve, open_loader, prefetch, pp):
    service = serve(mesh=(1, 1, 2, 1, 1))
    service.images = True
    loader = open_loader(service, prefetch=prefetch, pp_rank=pp)
    assert loader.images == {}
    for number in range(8):
        place = (number // 2, (0, 0, pp, 0), number % 2)
        check_batch(service, next(loader), place[0], place[2], place[1])
        want = service.places(*place)
        assert ["image." + name for name in loader.images] == list(want)
        for name, array in loader.images.items():
            np.testing.assert_array_equal(array, want["image." + name])
            assert array.dtype == want["image." + name].dtype and array.flags.writeable
        assert ("source" in loader.images) == (pp == 0) and loader.extras == {}


def test_a_job_without_images_has_none(serve, open_loader):
    loader = open_loader(serve())
    next(loader)
    assert loader.images == {}


def test_jax_keeps_images_local(serve, monkeypatch):
    """Processes have unlike numbers of images, so these cannot be global arrays."""
    jax = types.ModuleType("jax")
    jax.numpy = types.SimpleNamespace(asarray=lambda value: "local")
    jax.make_array_from_process_local_data = lambda sharding, value: sharding
    monkeypatch.setitem(sys.modules, "jax", jax)
    service = serve()
    service.images = True
    data = millrace.jax.Iterator(service.address, dp_rank=0, sharding="global")
    kinds = next(data)
    assert {key for key, kind in kinds.items() if kind == "local"} == set(VISION)
    assert kinds["tokens"] == "global" and "source" in data.loader.images
    data.close()


# ---- the digest ----


def test_row_digest_of_images():
    """Against the definition, byte by byte."""
    images = [dump.Image(3, 0, 1, 4, 2, b"a" * 32), dump.Image(3, 1, 0, 2, 2, b"b" * 32)]
    got = digest.row_digest([np.array([7, 300]), np.array([300])], [(1, "x", b"y")], images)
    want = struct.pack("<3I3i", 2, 2, 1, 7, 300, 300)
    want += struct.pack("<II", 1, 1) + b"x" + struct.pack("<Q", 1) + b"y"
    want += struct.pack("<4I", 0, 1, 4, 2) + b"a" * 32 + struct.pack("<4I", 1, 0, 2, 2) + b"b" * 32
    assert got == hashlib.sha256(want).digest()


def dumped(service, folder, tps=1):
    for dp in range(2):
        for tp in range(tps):
            where = ["--address", service.address, "--dp-rank", str(dp), "--tp-rank", str(tp)]
            assert rank.main([*where, "--dump", str(folder), "--steps", "2"]) == 0
    return folder


def last_digest(folder, capsys):
    capsys.readouterr()
    assert digest.main([str(folder)]) == 0
    return capsys.readouterr().out.splitlines()[-1]


def test_images_are_in_the_digest_of_a_dump(serve, tmp_path, capsys):
    service = serve()
    without = last_digest(dumped(service, tmp_path / "without"), capsys)
    service.images = True
    chain = bytes(32)
    for step in range(2):
        rows = []
        for dp, number in ((0, 0), (0, 1), (1, 0), (1, 1)):
            place = (step, (dp, 0, 0, 0), number)
            sha256 = service.places(*place)["image.sha256"]
            for row, spots in enumerate([[(1, 5, 2, 2)], [(0, 0, 4, 2), (0, 4, 2, 2)]]):
                lengths = [30, 34 - row]
                content = struct.pack("<3I", 2, *lengths)
                tokens = service.arrays(*place)["tokens"][row, : sum(lengths)]
                content += tokens.astype("<i4").tobytes()
                for spot, sha in zip(spots, sha256[row:]):
                    content += struct.pack("<4I", *spot) + sha.tobytes()
                rows.append(hashlib.sha256(content).digest())
        chain = digest.chain(chain, digest.step_digest(step, rows))
    folder = dumped(service, tmp_path / "with")
    assert last_digest(folder, capsys) == f"digest step=2 {chain.hex()}" != without


def test_ranks_with_other_images_are_noticed(serve, tmp_path, capsys):
    service = serve(mesh=(2, 1, 1, 2, 1))
    service.images = True
    arrays, places = service.arrays, service.places
    service.arrays = lambda step, r, number: arrays(step, (*r[:3], 0), number)
    service.places = lambda step, r, number: places(step, (*r[:3], 0), number)
    last_digest(dumped(service, tmp_path / "equal", tps=2), capsys)
    service.places = places
    assert digest.main([str(dumped(service, tmp_path / "other", tps=2))]) == 3
    assert "equal images" in capsys.readouterr().err


# ---- normalize ----


def test_normalize_by_hand():
    """Two patches of 2 x 2, with numbers that are exact."""
    pixels = np.array(
        [[0, 255, 51, 102, 255, 255, 0, 0, 0, 51, 102, 153], [255] * 4 + [0] * 8], np.uint8
    )
    made = vision.normalize(pixels, mean=(0, 1, 0.2), std=(1, 0.5, 0.2))
    red, green, blue = [0, 1, 0.2, 0.4], [0, 0, -2, -2], [-1, 0, 1, 2]
    want = [
        [*red, *red, *green, *green, *blue, *blue],
        [*[1] * 8, *[-2] * 8, *[-1] * 8],
    ]
    assert made.dtype == np.float32 and made.shape == (2, 24)
    np.testing.assert_allclose(made, want, atol=1e-7)
    still = vision.normalize(pixels, (0, 1, 0.2), (1, 0.5, 0.2), temporal=1)
    want = [[*red, *green, *blue], [*[1] * 4, *[-2] * 4, *[-1] * 4]]
    np.testing.assert_allclose(still, want, atol=1e-7)


def test_normalize_nothing():
    made = vision.normalize(np.empty((0, 588), np.uint8), (0.5,) * 3, (0.5,) * 3)
    assert made.shape == (0, 1176) and made.dtype == np.float32


@pytest.mark.parametrize(
    ("pixels", "options", "words"),
    [
        (np.zeros((2, 12), np.float32), {}, "float32"),
        (np.zeros((2, 13), np.uint8), {}, "13"),
        (np.zeros((2, 6), np.uint8), {}, "6"),
        (np.zeros((2, 0), np.uint8), {}, "uint8"),
        (np.zeros(12, np.uint8), {}, "uint8"),
        (np.zeros((2, 12), np.uint8), {"mean": (0.5,)}, "three numbers"),
        (np.zeros((2, 12), np.uint8), {"std": (0.5, 0, 0.5)}, "above 0"),
        (np.zeros((2, 12), np.uint8), {"temporal": 0}, "temporal is 0"),
    ],
)
def test_normalize_refuses(pixels, options, words):
    with pytest.raises(millrace.UserError, match=words):
        vision.normalize(pixels, **{"mean": (0.5,) * 3, "std": (0.5,) * 3, **options})


# ---- positions ----


def test_mrope_by_hand():
    """Two rows: three tokens of text; then a text, and one with two images and text behind."""
    position_ids = np.array([[0, 1, 2, 0, 1, *range(13)]])
    bounds = np.array([0, 3, 5, 18], np.int32)
    # Behind one token of text 4 x 6 patches, so 2 x 3 tokens, and behind one more 2 x 2 blocks.
    source = np.array([[0, 0, 1, 1, 1, 6, 4, 6], [0, 1, 1, 1, 8, 4, 4, 4]])
    text, time, height, width = vision.mrope(position_ids, bounds, [1, 2], source)[:, 0]
    np.testing.assert_array_equal(text, position_ids[0])
    alone = [0, 1, 2, 0, 1]
    assert time.tolist() == [*alone, 0, *[1] * 6, 4, *[5] * 4, 7]
    assert height.tolist() == [*alone, 0, 1, 1, 1, 2, 2, 2, 4, 5, 5, 6, 6, 7]
    assert width.tolist() == [*alone, 0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 5, 6, 7]


def test_mrope_without_images():
    position_ids = np.array([[0, 1, 0]])
    made = vision.mrope(position_ids, np.array([0, 2, 3]), [2], np.empty((0, 8), np.int64))
    np.testing.assert_array_equal(made, np.repeat(position_ids[None], 4, axis=0))


def test_mrope_refuses_an_image_that_is_cut():
    position_ids, bounds = np.array([[0, 1, 2, 3]]), np.array([0, 4])
    source = np.array([[0, 0, 0, 0, 1, 4, 4, 4]])
    with pytest.raises(millrace.UserError, match="4 tokens at 1 of a document of 4"):
        vision.mrope(position_ids, bounds, [1], source)


# ---- the real service ----

SPEC = """
name: vlm
seed: 5
sources:
  - name: pairs
    files: "*.tar"
    transforms:
      - text: "{txt}"
      - tokenize: bytes
      - image: {columns: [png], token: 300, begin: 301, end: 302, patch: 4, merge: 2, min_pixels: 64, max_pixels: 4096}
      - append_eod: {}
batch: {sequence_length: 64, sequences: 8, microbatch_size: 2}
topology: {dp: 2, pp: 2}
strategy: [graph: image, distribute: world, cost: {expression: patches}, balance: {}]
"""  # noqa: E501

PATCH, MERGE, STEPS = 4, 2, 4


def png(picture):
    """Returns a picture, uint8 [height, width, 3], as PNG."""

    def chunk(kind, data):
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    height, width, _ = picture.shape
    lines = b"".join(b"\0" + line.tobytes() for line in picture)  # filter 0: as it is
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def patches(picture):
    """Cuts a picture as docs/bytes.md says: block by block, in a patch channel by channel."""
    down, across = (n // (PATCH * MERGE) for n in picture.shape[:2])
    cut = picture.reshape(down, MERGE, PATCH, across, MERGE, PATCH, 3)
    return cut.transpose(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3 * PATCH * PATCH)


def write_pairs(folder):
    """Writes a tar of captions with no, one, or a picture that needs no resizing.

    Returns the pictures by the SHA-256 of their files.
    """
    draw, pictures = np.random.default_rng(9), {}
    folder.mkdir()
    with tarfile.open(folder / "pairs.tar", "w") as tar:
        for number in range(60):
            members = [("txt", b"caption %d" % number)]
            if number % 3:
                size = draw.integers(1, 4, 2) * PATCH * MERGE
                picture = draw.integers(0, 256, (*size, 3), dtype=np.uint8)
                members.append(("png", png(picture)))
                pictures[hashlib.sha256(members[1][1]).digest()] = picture
            for name, data in members:
                member = tarfile.TarInfo(f"{number:03d}.{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return pictures


def dump_all_ranks(address, folder):
    """Has the four ranks of dp 2 x pp 2 dump what they get."""

    def run(dp, pp, failed):
        where = ["--address", address, "--dp-rank", str(dp), "--pp-rank", str(pp)]
        if rank.main([*where, "--dump", str(folder), "--steps", str(STEPS), "--timeout", "60"]):
            failed.append((dp, pp))

    failed = []
    ranks = [(dp, pp, failed) for pp in range(2) for dp in range(2)]  # by their numbers
    threads = [threading.Thread(target=run, args=place) for place in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failed


def microbatches(folder):
    """Yields, of each microbatch, the arrays of ranks 0 to 3: dp is a rank's inner axis."""
    folders = [folder / f"dp{dp}-cp0-pp{pp}-tp0" for pp in range(2) for dp in range(2)]
    for name in sorted(path.name for path in folders[0].glob("*.npz")):
        yield [dict(np.load(pathlib.Path(rank) / name)) for rank in folders]


def check_images(ranks, pictures):
    """Follows each image of the rows to its encoder and back; returns the encoders."""
    encoders = []
    for dp in range(2):
        source, sha256 = ranks[dp]["image.source"], ranks[dp]["image.sha256"]
        for (encoder, number, row, document, at, tokens, *grid), sha in zip(source, sha256):
            at_encoder = ranks[encoder]
            start, end = at_encoder["image.cu_seqlens"][number : number + 2]
            want = patches(pictures[sha.tobytes()])
            np.testing.assert_array_equal(at_encoder["pixel_values"][start:end], want)
            assert at_encoder["image_grid_thw"][number].tolist() == [1, *grid]
            assert tokens == len(want) // MERGE**2
            assert at_encoder["image.dest"][number].tolist() == [dp, row, document, 0, tokens]
            assert at == 1  # after begin
            encoders.append(encoder)
        assert (ranks[dp]["tokens"] == 300).sum() == source[:, 5].sum()
    send, recv = (np.stack([r[f"image.{way}_counts"] for r in ranks]) for way in ("send", "recv"))
    np.testing.assert_array_equal(send.T, recv)
    assert send.sum(1).tolist() == [r["image.dest"][:, 4].sum() for r in ranks]
    return encoders


@needs_binary
def test_images_of_the_real_service(tmp_path, capsys):
    """dp 2 x pp 2: the digest is the reference's, the pixels are the pictures'."""
    pictures = write_pairs(tmp_path / "job")
    spec = tmp_path / "job" / "job.yaml"
    spec.write_text(SPEC)
    with real_service(spec) as address:
        dump_all_ranks(address, tmp_path / "dump")
    command = [BINARY, "reference", str(spec), "--steps", str(STEPS), "--every"]
    want = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    capsys.readouterr()
    assert digest.main([str(tmp_path / "dump")]) == 0
    got = capsys.readouterr().out
    assert got.split() == want.split() and len(got.splitlines()) == STEPS
    encoders = []
    for ranks in microbatches(tmp_path / "dump"):
        encoders += check_images(ranks, pictures)
        assert all(
            ("image.source" in arrays) == (pp == 0) for arrays, pp in zip(ranks, (0, 0, 1, 1))
        )
    assert len(encoders) > 4 * STEPS and set(encoders) == {0, 1, 2, 3}
