"""Runs whole jobs under several limits of memory, and prints what the processes of the loader took at most.

    python bench/peers/memory.py --millrace bin/millrace --data $MILLRACE_DATA [--limits 256MiB,512MiB,2GiB] [--markdown FILE]

Run by `make bench-memory`. Every role is a process. What is printed is the greatest resident size of the loader, as the
kernel kept it (VmHWM), and of its child processes (workers of Python functions, FFmpeg) together, looked at 20 times a
second. Where the children decode, they share the limit, and what counts is the most that the loader and they had at one
time. The limit is `resources.loader_buffer`. The interpreter that runs this has the millrace package, for the job with a function.
"""

# ruff: noqa: E501 - rows of tables, and specs

import argparse
import glob
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import measure

UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}
# CONSTANT is what a loader may take beside its limit: internal/service's overhead, which Go's collector is given
# too, and ten times the longest record of these jobs (3.3 MB), as docs/jobspec.md says of max_record.
CONSTANT = (96 << 20) + 10 * 3_300_000


@dataclass
class Job:
    name: str
    source: str  # fields of the source
    write: Callable[[str, str], None]  # the files, from the shared data, into a folder
    steps: int = 10
    code: int = 0  # that it ends with
    batch: str = "sequence_length: 4096, sequences: 16"
    children: bool = False  # whose memory is within the limit, too


def texts(data: str) -> list[str]:
    with open(f"{data}/text/redpajama-sample/c4-rp.jsonl", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def books(data: str, folder: str) -> None:
    for i in range(6):
        os.symlink(glob.glob(f"{data}/text/books/*.zst")[0], f"{folder}/{i}.jsonl.zst")


def pictures(data: str, folder: str) -> None:
    with open(f"{data}/images/coco-captions/captions.jsonl", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    paths = {
        os.path.basename(path): path
        for path in glob.glob(f"{data}/images/coco-captions/**/*.jpg", recursive=True)
    }
    for i in range(4):
        with tarfile.open(f"{folder}/{i}.tar", "w") as tar:
            for n, record in enumerate(records * 3):
                with open(paths[record["file_name"]], "rb") as image:
                    for ending, content in (
                        ("jpg", image.read()),
                        ("txt", record["captions"][0].encode()),
                    ):
                        info = tarfile.TarInfo(f"{n:05}.{ending}")
                        info.size = len(content)
                        tar.addfile(info, io.BytesIO(content))


def shard(folder: str, members: list[tuple[str, bytes]]) -> None:
    with tarfile.open(f"{folder}/all.tar", "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def drawn(folder: str, ending: str, *how: str) -> bytes:
    path = f"{folder}/../drawn.{ending}"
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", *how, path], check=True)
    with open(path, "rb") as file:
        return file.read()


def photos(data: str, folder: str) -> None:
    several = [
        drawn(
            folder, "jpg", "-i", f"testsrc2=s={4000 + 16 * i}x3000", "-frames:v", "1", "-q:v", "4"
        )
        for i in range(4)
    ]
    members = []
    for n in range(60):
        members += [(f"{n:03}.jpg", several[n % 4]), (f"{n:03}.txt", b"a photograph")]
    shard(folder, members)


def videos(data: str, folder: str) -> None:
    several = [
        drawn(folder, "mp4", "-i", f"testsrc2=s={640 + 16 * i}x480:r=25:d=120", "-c:v", "mpeg4")
        for i in range(2)
    ]
    members = []
    for n in range(8):
        members += [(f"{n:03}.mp4", several[n % 2]), (f"{n:03}.txt", b"a video of 3,000 frames")]
    shard(folder, members)


def one_gzip(data: str, folder: str) -> None:
    all_texts = texts(data)
    member = gzip.compress(
        "".join(json.dumps({"text": text[:1500]}) + "\n" for text in all_texts).encode(), 6
    )
    with open(f"{folder}/all.jsonl.gz", "wb") as file:
        for _ in range(-(-300_000 // len(all_texts))):
            file.write(member)


def long_lines(data: str, folder: str) -> None:
    whole = "\n\n".join(texts(data))
    whole *= -(-3_000_000 // len(whole))
    with open(f"{folder}/long.jsonl", "w") as file:
        for i in range(60):
            file.write(json.dumps({"text": whole[i : i + 3_000_000]}, ensure_ascii=False) + "\n")


def bomb_of_records(data: str, folder: str) -> None:
    line = json.dumps({"text": "all work and no play " * 5_000}) + "\n"
    member = gzip.compress((line * 200).encode(), 9)
    with open(f"{folder}/bomb.jsonl.gz", "wb") as file:
        for _ in range(100):  # 2 GB
            file.write(member)


def bomb_of_one_line(data: str, folder: str) -> None:
    zeros = gzip.compress(b"0" * (64 << 20), 9)
    with open(f"{folder}/line.jsonl.gz", "wb") as file:
        file.write(gzip.compress(b'{"text": "'))
        for _ in range(64):  # 4 GiB
            file.write(zeros)


def jobs(data: str) -> list[Job]:
    tokens = f"tokenize: {{encoding: cl100k_base, ranks: {json.dumps(data + '/tokenizers/tiktoken/cl100k_base.tiktoken')}}}"
    text = f"transforms: [{tokens}, append_eod: {{}}]"

    def function(name: str) -> str:
        return f"python: {{function: 'same:{name}', path: {json.dumps(os.path.dirname(os.path.abspath(__file__)))}, interpreter: {json.dumps(sys.executable)}}}"

    def pictured(where: str) -> str:
        image = f"image: {{columns: [jpg], token: 100300, patch: 14, merge: 2, decode: {where}}}"
        return f"files: in/*.tar, transforms: [text: '{{txt}}', {tokens}, {image}, append_eod: {{}}], long: truncate"

    return [
        Job("books, 6 zstd files of 13 MB", f"files: in/*.zst, {text}", books),
        Job("948 JPEG in 4 tars", pictured("constructor"), pictures, steps=4),
        Job("the same, decoded by the loader", pictured("loader"), pictures, steps=4),
        Job(
            "60 photographs of 12 MP in a tar, pixels of 224",
            f"files: in/*.tar, keep: [jpg], transforms: [pixels: {{column: jpg, resize: shortest, size: 256, crop: 224}}, text: '{{txt}}', {tokens}]",
            photos,
            batch="sequence_length: 4, sequences: 8",
        ),
        Job(
            "8 videos of 3,000 frames in a tar, 30 frames of each",
            f"files: in/*.tar, keep: [mp4], transforms: [convert: {{column: mp4, to: frames, every: 100, max_frames: 30}}, "
            f"pixels: {{column: mp4, resize: shortest, size: 256, crop: 224}}, text: '{{txt}}', {tokens}]",
            videos,
            steps=4,
            batch="sequence_length: 16, sequences: 2",
            children=True,
        ),
        Job("300,000 records in one gzip", f"files: in/*.gz, {text}", one_gzip),
        Job(
            "the same, through a Python function",
            f"files: in/*.gz, transforms: [{function('same')}, {tokens}, append_eod: {{}}]",
            one_gzip,
        ),
        Job(
            "10,000 of them, which a function makes a hundred times as long",
            f"files: in/*.gz, transforms: [limit: 10k, {function('hundredfold')}, tokenize: bytes]",
            one_gzip,
            batch="sequence_length: 65536, sequences: 16",
        ),
        Job("60 lines of 3 MB", f"files: in/*.jsonl, {text}", long_lines),
        Job("bomb: 2 GB of records in one gzip", f"files: in/*.gz, {text}", bomb_of_records),
        Job("bomb: a line of 4 GiB", f"files: in/*.gz, {text}", bomb_of_one_line, code=3),
    ]


def peak(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status") as file:
            return next(
                (int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:")), 0
            )
    except OSError:
        return 0


def resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def is_loader(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"loader" in file.read().split(b"\0")[1:2]
    except OSError:
        return False


def run(program: str, job: Job, limit: str, folder: str) -> str:
    """Runs a job, and returns its row of the table."""
    with open(f"{folder}/job.yaml", "w") as file:
        file.write(
            f"name: memory\nsources:\n  - {{name: it, {job.source}}}\nbatch: {{{job.batch}}}\n"
            f"resources: {{loader_buffer: {limit}, constructor_buffer: 64MiB}}\n"
        )
    environment = {k: v for k, v in os.environ.items() if k != "GOMEMLIMIT"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [program, "run", f"{folder}/job.yaml", "--steps", str(job.steps), "--processes"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    loader = workers = both = 0
    while process.poll() is None:
        for pid in measure.tree(process.pid):
            if is_loader(pid):
                loader = max(loader, peak(pid))
                now = sum(measure.pss(child) for child in children(pid))
                workers, both = max(workers, now), max(both, now + resident(pid))
        time.sleep(0.05)
    took = time.perf_counter() - began
    said = process.stderr.read() if process.stderr else ""
    number, unit = limit[:-3], limit[-3:]
    allowed = int(number) * UNITS[unit]
    counted = max(loader, both) if job.children else loader
    held = "yes" if counted <= allowed + CONSTANT else "NO"
    ended = "done" if process.returncode == 0 else f"refused (exit code {process.returncode})"
    if process.returncode != job.code:
        ended = f"WRONG: exit code {process.returncode}: {said[-1000:].strip()}"
    used = f"{workers >> 20}" if workers else "-"
    if job.children:
        used += f" (with the loader {both >> 20})"
    return f"| {job.name} | {limit} | {loader >> 20} | {held} | {used} | {ended}, {took:.0f} s |"


def children(pid: int) -> list[int]:
    """The fork servers and FFmpeg of a loader; measure.pss adds what is below each."""
    return [
        child
        for child in measure.tree(pid)[1:]
        if (fields := measure.stat(child)) and int(fields[1]) == pid
    ]


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("--millrace", required=True)
    parse.add_argument("--data", required=True)
    parse.add_argument("--limits", default="256MiB,512MiB,2GiB")
    parse.add_argument("--jobs", default="", help="only those whose names contain this")
    parse.add_argument("--markdown")
    args = parse.parse_args()
    data = os.path.abspath(args.data)
    table = [
        f"| job | limit | loader, peak MiB | within limit + {CONSTANT >> 20} MiB | child processes, peak MiB | ended |",
        "|---|--:|--:|---|--:|---|",
    ]
    print("\n".join(table), flush=True)
    for job in jobs(data):
        if args.jobs not in job.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/in")
            job.write(data, f"{folder}/in")
            for limit in args.limits.split(","):
                table.append(run(os.path.abspath(args.millrace), job, limit, folder))
                print(table[-1], flush=True)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write("\n".join(table) + "\n")
    if any("| NO |" in row or "WRONG" in row for row in table):
        raise SystemExit("a job was over its limit, or did not end as it should")


if __name__ == "__main__":
    main()
