"""Makes tokenizer.json files of every kind, and encodes texts with the tokenizers library.

    python library.py DATA OUT [MEGABYTES]

Writes OUT/texts.jsonl, a text a line, and for every model OUT/NAME.json and OUT/NAME.ids: for each
text, with nothing added to it, the number of ids (u32) and the first 8 bytes of the SHA-256 over them
(u32, little-endian). NAME.post has the same of the texts with the post-processor and with special tokens read.
The last line of OUT/speed.txt for a model is the library's MB per CPU second, best of 7.

    python library.py --small OUT.jsonl

Writes a line for each of ten very small models: its name, its file and, for some texts, the ids with
and without the post-processor and special tokens. testdata/files.jsonl was written so and, with "pieces" as
one more argument, testdata/pieces-files.jsonl.
"""

import base64
import gzip
import hashlib
import json
import os
import random
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "true"
from tokenizers import AddedToken, Regex, Tokenizer  # noqa: E402
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

import pieces  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for v in value:
            yield from strings(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from strings(v)


def read(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zst":
        data = subprocess.run(["zstd", "-dcq", str(path)], capture_output=True, check=True).stdout
    return data.decode("utf-8", "replace")


def texts(data: Path, limit: int) -> list[str]:
    """The texts of the shared data, at most limit bytes of each file, and hand-made ones."""
    out: dict[str, None] = {}
    files = [p for d in ("text", "corrupt/text") for p in sorted((data / d).rglob("*")) if p.is_file()]
    for path in [*files, data / "tokenizers/sentencepiece/botchan.txt", data / "tokenizers/golden/tiktoken-testplans.txt"]:
        try:
            content = read(path)
        except (FileNotFoundError, subprocess.CalledProcessError, EOFError, OSError) as why:
            print(f"left out {path}: {why}")
            continue
        room = limit
        name = path.name.removesuffix(".gz").removesuffix(".zst")
        if name.endswith(".json"):
            parts: Iterator[str] = strings(json.loads(content))
        elif name.endswith(".jsonl"):
            parts = (s for line in content.split("\n") if line.strip().startswith("{") for s in strings(json.loads(line)))
        else:
            parts = iter([content[i : i + 100_000] for i in range(0, len(content), 100_000)])
        try:
            for part in parts:
                if room <= 0:
                    break
                part = part[: max(room, 1000)]
                out[part.encode("utf-8", "replace").decode()] = None
                room -= len(part.encode("utf-8", "replace"))
        except json.JSONDecodeError as why:
            print(f"left out the rest of {path}: {why}")
    for part in [*handmade(), read(data / "tokenizers/sentencepiece/botchan.txt") * 2, "漢 x" * 40_000]:
        out[part] = None
    out.pop("", None)
    return list(out)


def handmade() -> Iterator[str]:
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for i in range(0, len(points), 512):
        chars = [chr(c) for c in points[i : i + 512]]
        yield "".join(chars)
        if points[i] < 0x32000 or 0xE0000 <= points[i] < 0xE0400:
            yield "".join("a" + c for c in chars)
            yield " ".join(chars)
            yield "".join(c + "\u0301\u0334 1" for c in chars)
    rng = random.Random(1)
    atoms = [
        *"aZéß𝒳の漢한ıİſK \t\n\r\x0b\u00a0\u3000\u200b\u2581▁'.,-_<>[]09٣½²Ⅷ😀👍🏽\u0301\u0327\u0334\u200d\ufe0f\ufeff\x00\x7f",
        "'s", "'LL", "'ſ", " the", "<|x|>", "<s>", "</s>", "[CLS]", "[MASK]", "[NEW]", "word", "  ", "\n\n", "\r\n", "12345", "<0x0A>", "ﬁ", "Å", "e\u0301\u0323", "한글", "각",
    ]  # fmt: skip
    for _ in range(6000):
        yield "".join(rng.choice(atoms) for _ in range(rng.randint(1, 24)))
    for char in "a ▁\n1.é漢\u0301":
        for n in (1, 2, 3, 31, 32, 33, 64, 1000, 5000):
            yield char * n
            yield "x" + char * n + "y"


BYTES, PIECES, LETTERS = 3000, 4000, 800  # sizes of vocabularies and alphabets


def byte_level(pattern: str | None, vocab: int, train: list[str], **kw: object) -> Tokenizer:
    t = Tokenizer(models.BPE(**kw))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    if pattern is not None:
        steps.insert(0, pre_tokenizers.Split(Regex(pattern), "isolated"))
    t.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator(train, trainer)
    return t


def special(t: Tokenizer, *names: str) -> None:
    t.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in names])


def edit(t: Tokenizer, **changes: object) -> Tokenizer:
    """A tokenizer with fields of its model set that the library has no setter for."""
    file = json.loads(t.to_str())
    file["model"].update(changes)
    return Tokenizer.from_str(json.dumps(file))


def llama3(train: list[str]) -> Tokenizer:
    t = edit(byte_level(LLAMA3, BYTES, train), ignore_merges=True)
    special(t, "<|begin_of_text|>", "<|x|>", "<|eot_id|>")
    bos = t.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[("<|begin_of_text|>", bos)]
    )
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return t


def qwen2(train: list[str]) -> Tokenizer:
    t = byte_level(QWEN2, BYTES, train)
    t.normalizer = normalizers.NFC()
    special(t, "<|endoftext|>", "<|x|>")
    return t


def qwen35(train: list[str]) -> Tokenizer:
    t = byte_level(QWEN35, BYTES, train)
    t.normalizer = normalizers.NFC()
    return t


def o200k(train: list[str]) -> Tokenizer:
    return byte_level(O200K, BYTES, train)


def deepseek3(train: list[str]) -> Tokenizer:
    t = byte_level(None, BYTES, train)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
            pre_tokenizers.Split(Regex(DEEPSEEK3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    special(t, "<｜begin▁of▁sentence｜>")
    bos = t.token_to_id("<｜begin▁of▁sentence｜>")
    t.post_processor = processors.TemplateProcessing(
        single="<｜begin▁of▁sentence｜> $A", pair=None, special_tokens=[("<｜begin▁of▁sentence｜>", bos)]
    )
    return t


def deepseek_coder(train: list[str]) -> Tokenizer:
    t = byte_level(None, BYTES, train)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("[\r\n]"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s?\p{P}+"), "isolated"),
            pre_tokenizers.Split(Regex("[一-龥ࠀ-一가-퟿]+"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return t


def roberta(train: list[str]) -> Tokenizer:
    t = byte_level(None, BYTES, train)
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    special(t, "<s>", "</s>")
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    t.add_tokens([AddedToken("word", single_word=True, rstrip=True), AddedToken("  "), AddedToken("[NEW]", lstrip=True, rstrip=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), add_prefix_space=True)
    return t


def starcoder(train: list[str]) -> Tokenizer:
    t = byte_level(None, BYTES, train)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    return t


def behaviours(train: list[str]) -> Tokenizer:
    t = byte_level(None, BYTES, train)
    split = pre_tokenizers.Split
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            split(Regex(r"\n{2,}"), "merged_with_next"),
            split(",", "merged_with_previous"),
            split(Regex(r"[\p{Lu}]"), "merged_with_next", invert=True),
            split("e", "contiguous"),
            split(Regex(r"\t+?|[^\S\n]{2,3}"), "removed"),
            split(Regex(r"[aeiou]++(?=n)|x|(?i:ab)c?"), "isolated", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    return t


def partial(train: list[str]) -> Tokenizer:
    """Without a token for every byte."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(["hello the world, he said"] * 5, trainers.BpeTrainer(vocab_size=60, special_tokens=["<unk>"], show_progress=False))
    return t


def metaspace(train: list[str]) -> Tokenizer:
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    names = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    t.train_from_iterator(train, trainers.BpeTrainer(vocab_size=PIECES, special_tokens=names, limit_alphabet=LETTERS, show_progress=False))
    file = json.loads(t.to_str())
    file["added_tokens"] = [a for a in file["added_tokens"] if a["content"] in ("<unk>", "<s>", "</s>")]
    return Tokenizer.from_str(json.dumps(file))


def bos(t: Tokenizer) -> Tokenizer:
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def mistral(train: list[str]) -> Tokenizer:
    return bos(metaspace(train))


def llama2(train: list[str]) -> Tokenizer:
    """The form with a normalizer, where a text is one piece."""
    t = metaspace(train)
    file = json.loads(t.to_str())
    file["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(file))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return bos(t)


def llama2_unsplit(train: list[str]) -> Tokenizer:
    t = metaspace(train)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    return t


def gemma(train: list[str]) -> Tokenizer:
    t = metaspace(train)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.normalizer = normalizers.Replace(" ", "▁")
    t.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False), AddedToken("<unused1>", normalized=False)])
    return bos(t)


def no_fallback(train: list[str]) -> Tokenizer:
    """Merges across spaces, unknown characters and no bytes."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    t.normalizer = normalizers.Replace(" ", "▁")
    short = [s[:200] for s in train[:300]]
    t.train_from_iterator(short, trainers.BpeTrainer(vocab_size=PIECES // 4, special_tokens=["<unk>"], limit_alphabet=LETTERS // 8, show_progress=False))
    return t


def cl100k(data: Path) -> Tokenizer | None:
    """A vocabulary of today's size, with every merge, as Llama 3's file has it."""
    path = data / "tokenizers/tiktoken/cl100k_base.tiktoken"
    if not path.exists():
        return None
    ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in path.read_text().splitlines())}
    alphabet = {}
    names = [*range(33, 127), *range(161, 173), *range(174, 256)]
    for b in range(256):
        alphabet[b] = chr(b) if b in names else chr(256 + len([x for x in range(b) if x not in names]))

    def text(token: bytes) -> str:
        return "".join(alphabet[b] for b in token)

    merges = []
    for token, rank in ranks.items():
        local = [(token[:i], token[i:], rank) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += sorted(local, key=lambda m: (ranks[m[0]], ranks[m[1]]))
    merges.sort(key=lambda m: m[2])
    vocab = {text(t): r for t, r in ranks.items()}
    model = models.BPE(vocab, [(text(a), text(b)) for a, b, _ in merges], ignore_merges=True)
    t = Tokenizer(model)
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    special(t, "<|begin_of_text|>")
    return t


def llama_model(data: Path) -> Tokenizer | None:
    """Llama 2's vocabulary, as transformers converts it."""
    path = data / "tokenizers/sentencepiece/llama.model"
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        return None
    if not path.exists():
        return None
    sp = SentencePieceProcessor(model_file=str(path))
    vocab = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
    scores = {sp.id_to_piece(i): sp.get_score(i) for i in range(sp.get_piece_size())}
    merges = []
    for piece, score in scores.items():
        local = [(piece[:i], piece[i:], score) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += sorted(local, key=lambda m: (vocab[m[0]], vocab[m[1]]))
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    t = Tokenizer(models.BPE(vocab, [(a, b) for a, b, _ in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special(t, "<unk>", "<s>", "</s>")
    return bos(t)


MODELS = [llama3, qwen2, qwen35, o200k, deepseek3, deepseek_coder, roberta, starcoder, behaviours, partial, mistral, llama2, llama2_unsplit, gemma, no_fallback]  # fmt: skip


def digest(ids: list[int]) -> bytes:
    return struct.pack("<I", len(ids)) + hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).digest()[:8]


def speed(encode: Callable[[str], object], sample: list[str]) -> float:
    """MB per CPU second, the best of 7."""
    size = sum(len(s.encode()) for s in sample) / 1e6
    best = 0.0
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_SELF)
        for s in sample:
            encode(s)
        after = resource.getrusage(resource.RUSAGE_SELF)
        best = max(best, size / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return best


def small(out: Path) -> None:
    global BYTES, PIECES, LETTERS
    BYTES, PIECES, LETTERS = 280, 320, 32
    train = [read(Path(__file__))] * 3
    words = ["", " ", "The tokenizer's  model, he'LL say:\n\n  12345 tokens\r\n\tof 'text'.", "naïve Å e\u0301\u0323 한글 漢字かな ſ 😀", "x<|x|>word [NEW]  words  <s> <mask> ▁▁a \x00"]
    rng = random.Random(2)
    words += [s for s in handmade() if len(s) < 40 and rng.random() < 0.002]
    if sys.argv[3:] == ["pieces"]:
        return pieces.small(out, train, words + ["Ａé e\u0301É ﬁ\u0301① \u0001A\u0300 Å\u212b", "\u00ad x \u3000", " \u0001", "漢字한글😀👍 漢字한글😀👍漢", "ﬁ▁▁▁▁ the[NEW]the\r\n\n", "  漢字かなカナー a漢 бв, abcdefgh漢字漢字漢字漢字漢字 \u0951\u0300x"])
    with out.open("w") as f:
        for make in (llama3, qwen2, deepseek3, roberta, behaviours, partial, mistral, llama2, gemma, no_fallback):
            t = Tokenizer.from_str(make(train).to_str())
            rows = []
            for s in words:
                t.encode_special_tokens = True
                plain = t.encode(s, add_special_tokens=False).ids
                t.encode_special_tokens = False
                rows.append([s, plain, t.encode(s).ids])
            f.write(json.dumps({"name": make.__name__, "file": json.loads(t.to_str()), "rows": rows}, separators=(",", ":"), ensure_ascii=False) + "\n")


def main() -> None:
    if sys.argv[1] == "--small":
        return small(Path(sys.argv[2]))
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    limit = int(float(sys.argv[3]) * 1e6) if len(sys.argv) > 3 else 1 << 40
    only = sys.argv[4].split(",") if len(sys.argv) > 4 else None
    out.mkdir(parents=True, exist_ok=True)
    every = texts(data, limit)
    with (out / "texts.jsonl").open("w") as f:
        for s in every:
            f.write(json.dumps(s) + "\n")
    train = [s[:2000] for s in every if s.isprintable() or "\n" in s][:4000]
    english = read(data / "tokenizers/sentencepiece/botchan.txt")
    sample = [english[i : i + 4096] for i in range(0, len(english), 4096)]
    made = {m.__name__: (lambda m=m: m(train)) for m in [*MODELS, *pieces.files]}
    made |= {"cl100k": lambda: cl100k(data), "llama_model": lambda: llama_model(data)}
    for path in sorted((data / "tokenizers/hf-json").glob("*.json")):
        made[path.stem] = lambda path=path: Tokenizer.from_file(str(path))
    for name, make in made.items():
        if only and name not in only:
            continue
        t = make()
        if t is None:
            print(f"{name} left out: its vocabulary is not here")
            continue
        t = Tokenizer.from_str(t.to_str())
        t.save(str(out / f"{name}.json"))
        for suffix, as_text in ((".ids", True), (".post", False)):
            t.encode_special_tokens = as_text
            with (out / (name + suffix)).open("wb") as f:
                for i in range(0, len(every), 1000):
                    for e in t.encode_batch(every[i : i + 1000], add_special_tokens=not as_text):
                        f.write(digest(e.ids))
        measured(out, name, lambda s, t=t: t.encode(s, add_special_tokens=False), sample)
        print(name, t.get_vocab_size(), flush=True)
    sentencepieces(data, out, every, train, sample, only)


def sentencepieces(data: Path, out: Path, every: list[str], train: list[str], sample: list[str], only: list[str] | None) -> None:
    """The same of SentencePiece's models."""
    made = {m.__name__: (lambda m=m: m(train)) for m in pieces.models_}
    made |= {"sp_" + p.stem: p.read_bytes for p in sorted((data / "tokenizers/sentencepiece").glob("*.model"))}
    for name, make in made.items():
        if only and name not in only:
            continue
        model = make()
        (out / f"{name}.model").write_bytes(model)
        sp = pieces.sentencepiece.SentencePieceProcessor(model_proto=model)
        with (out / f"{name}.ids").open("wb") as f:
            for s in every:
                f.write(digest(sp.encode(s)))
        measured(out, name, sp.encode, sample)
        print(name, sp.get_piece_size(), flush=True)


def measured(out: Path, name: str, encode: Callable[[str], object], sample: list[str]) -> None:
    with (out / "speed.txt").open("a") as f:
        f.write(f"{name} {speed(encode, sample):.2f}\n")


if __name__ == "__main__":
    main()
