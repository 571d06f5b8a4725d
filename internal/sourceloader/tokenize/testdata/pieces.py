"""Tokenizers that are not byte-pair merging, and SentencePiece models, for library.py.

`files` are tokenizer.json files, `models` SentencePiece .model files; both are functions of a text to train on.
"""

import base64
import collections
import hashlib
import io
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

SIZE = 4000  # of vocabularies
SMALL = ""  # for small files: a few rules of normalization in place of the published ones
RULES = """41 300\tC0
212B\tC5
41 30A\tC5
FB01\t66 69
FB02\t66 6C
2460\t31
FF21\t41
3000\t20
A0\t20
A\t20
9\t20
D\t20
D A\t20
1\t
1F\t
AD\t
65 301\tE9
C9\tE9
B4\t20 301
"""

WORDS = [f"<0x{b:02X}>" for b in range(256)]


def sp(train: list[str], **options: object) -> bytes:
    """A SentencePiece model."""
    out = io.BytesIO()
    common = {c for c, _ in collections.Counter(c for s in train for c in s).most_common(1000) if c != "\0"}
    if SMALL and options.get("normalization_rule_name") != "identity" and "normalization_rule_tsv" not in options:
        options = {k: v for k, v in options.items() if k != "normalization_rule_name"} | {"normalization_rule_tsv": SMALL}
    lines = [line[:1000] for s in train for line in s.splitlines() if line.strip() and common.issuperset(line)]
    settings: dict[str, object] = {"vocab_size": SIZE, "minloglevel": 2, "hard_vocab_limit": False, "num_threads": 1, "shuffle_input_sentence": False}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, **(settings | options))
    return out.getvalue()


def changed(model: bytes, change: Callable[[proto.ModelProto], None]) -> bytes:
    m = proto.ModelProto()
    m.ParseFromString(model)
    change(m)
    return m.SerializeToString()


def charsmap(rule: str | Path) -> str:
    """The compiled table of a rule, or of a file of rules."""
    option: dict[str, object] = {"normalization_rule_tsv": str(rule)} if isinstance(rule, Path) else {"normalization_rule_name": rule}
    m = proto.ModelProto()
    m.ParseFromString(sp(["hello the world"] * 3, vocab_size=30, **option))
    return base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode()


def precompiled(rule: str | Path) -> normalizers.Normalizer:
    return normalizers.Precompiled(base64.b64decode(charsmap(rule)))


def wordpiece(train: list[str], **bert: bool) -> Tokenizer:
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(**bert)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(train, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=special, limit_alphabet=800, show_progress=False))
    t.decoder = decoders.WordPiece()
    return t


def bert_uncased(train: list[str]) -> Tokenizer:
    t = wordpiece(train, lowercase=True)
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[(n, t.token_to_id(n)) for n in ("[CLS]", "[SEP]")]
    )
    return t


def bert_cased(train: list[str]) -> Tokenizer:
    t = wordpiece(train, lowercase=False)
    t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
    return t


def wordpiece_odd(train: list[str]) -> Tokenizer:
    """Another prefix, short words, and a pre-tokenizer that keeps it in words."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=7))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(train, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=["[UNK]"], limit_alphabet=300, show_progress=False, continuing_subword_prefix="<w>"))
    file = json.loads(t.to_str())
    file["model"]["continuing_subword_prefix"] = "<w>"
    file["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    return Tokenizer.from_str(json.dumps(file))


def wordlevel(train: list[str]) -> Tokenizer:
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit(","), pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True), pre_tokenizers.Punctuation("merged_with_next")])
    t.train_from_iterator(train, trainers.WordLevelTrainer(vocab_size=SIZE, special_tokens=["[UNK]"], show_progress=False))
    return t


def scripts(train: list[str]) -> Tokenizer:
    """Shows where UnicodeScripts and FixedLength cut: words are unknown, single characters become bytes."""
    t = Tokenizer(models.Unigram([("<unk>", 0.0), *((w, -1.0) for w in WORDS), *((c * 2, -5.0) for c in "abе漢")], 0, True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace(split=False), pre_tokenizers.FixedLength(7)])
    return t


def unigram(train: list[str], pre: pre_tokenizers.PreTokenizer, normal: list[normalizers.Normalizer], fallback: bool = False) -> Tokenizer:
    m = proto.ModelProto()
    m.ParseFromString(sp(train, model_type="unigram", byte_fallback=fallback))
    vocab = [(p.piece, p.score) for p in m.pieces]
    t = Tokenizer(models.Unigram(vocab, 0, fallback))
    t.normalizer = normalizers.Sequence(normal)
    t.pre_tokenizer = pre
    t.decoder = decoders.Metaspace()
    t.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in ("<unk>", "<s>", "</s>")])
    return t


def t5(train: list[str]) -> Tokenizer:
    t = unigram(train, pre_tokenizers.Metaspace(), [precompiled("nmt_nfkc")])
    t.add_special_tokens([AddedToken(f"<extra_id_{i}>", special=True) for i in range(3)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def xlm_roberta(train: list[str]) -> Tokenizer:
    spaces = [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    t = unigram(train, pre_tokenizers.Metaspace(prepend_scheme="first"), [precompiled("nmt_nfkc"), *spaces])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t


def albert(train: list[str]) -> Tokenizer:
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return unigram(train, pre, [*quotes, precompiled("nmt_nfkc_cf")])


def unigram_bytes(train: list[str]) -> Tokenizer:
    return unigram(train, pre_tokenizers.Metaspace(split=False, prepend_scheme="never"), [], fallback=True)


def unigram_part(train: list[str]) -> Tokenizer:
    """Some bytes only, no pre-tokenizer, and tokens that unknown characters make up."""
    t = unigram(train, pre_tokenizers.Metaspace(), [normalizers.Nmt()])
    file = json.loads(t.to_str())
    low = min(score for _, score in file["model"]["vocab"])
    have = {w for w, _ in file["model"]["vocab"]}
    file["model"]["vocab"] += [[w, low - 30] for w in ("漢字", "한글", "😀👍") if w not in have] + [[w, low - 50] for w in WORDS[::2]]
    file["model"]["byte_fallback"] = True
    file["pre_tokenizer"] = None
    file["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(file))


def clusters(_: list[str]) -> Tokenizer:
    """Shows where grapheme clusters end: every character is replaced by another, alone or with what is joined to it."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        for c in [*range(0x21, 0x2500), *range(0x2580, 0x3100), *range(0xA000, 0xAC80), *range(0xFE00, 0xFFF0), 0x1F600, 0x1F44D]:
            f.write(f"{c:X}\t{0x4E00 + c % 0x2000:X}\n")
        f.flush()
        table = precompiled(Path(f.name))
    t = Tokenizer(models.Unigram([("<unk>", 0.0), *((w, -1.0) for w in WORDS)], 0, True))
    t.normalizer = table
    return t


files = [bert_uncased, bert_cased, wordpiece_odd, wordlevel, scripts, t5, xlm_roberta, albert, unigram_bytes, unigram_part, clusters]


def bpe(train: list[str]) -> bytes:
    return sp(train, model_type="bpe")


def bpe_llama(train: list[str]) -> bytes:
    return sp(train, model_type="bpe", byte_fallback=True, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)


def bpe_symbols(train: list[str]) -> bytes:
    """Gemma's way: no dummy prefix, user-defined symbols that contain spaces and each other."""
    symbols = ["[NEW]", "▁▁", "▁▁▁", "\n", "\n\n", "<|x|>", "<|x|>▁", "the", "é", "\t"]
    return sp(train, model_type="bpe", byte_fallback=True, add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity", user_defined_symbols=symbols, control_symbols=["<ctl>"])


def bpe_suffix(train: list[str]) -> bytes:
    return sp(train, model_type="bpe", treat_whitespace_as_suffix=True, split_by_whitespace=False, normalization_rule_name="nmt_nfkc_cf")


def bpe_extended(train: list[str]) -> bytes:
    """Tokens of one score added behind, some with characters that have none."""

    def add(m: proto.ModelProto) -> None:
        have = {p.piece for p in m.pieces}
        for piece in ("the▁", "aa", "aaa", "ab", "漢字", "한글", "字か", "😀👍", "▁▁▁", "é한"):
            if piece not in have:
                m.pieces.add(piece=piece, score=0.0)
        m.pieces.add(piece="e▁a", score=-5000.5)

    return changed(bpe_llama(train), add)


def uni(train: list[str]) -> bytes:
    return sp(train)


def uni_symbols(train: list[str]) -> bytes:
    symbols = ["[NEW]", "▁▁", "<|x|>", "the", "é"]
    return sp(train, byte_fallback=True, normalization_rule_name="nmt_nfkc_cf", user_defined_symbols=symbols, control_symbols=["<ctl>"])


def uni_raw(train: list[str]) -> bytes:
    return sp(train, add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity", split_by_whitespace=False, max_sentencepiece_length=40)


def uni_suffix(train: list[str]) -> bytes:
    def unused(m: proto.ModelProto) -> None:
        for p in m.pieces[50::9]:
            p.type = proto.ModelProto.SentencePiece.UNUSED

    return changed(sp(train, treat_whitespace_as_suffix=True, normalization_rule_name="nfkc"), unused)


models_ = [bpe, bpe_llama, bpe_symbols, bpe_suffix, bpe_extended, uni, uni_symbols, uni_raw, uni_suffix]

small_files = [bert_uncased, wordpiece_odd, wordlevel, scripts, t5, xlm_roberta, unigram_part]
small_models = [bpe, bpe_symbols, bpe_extended, uni, uni_symbols, uni_suffix]


def small(out: Path, train: list[str], words: list[str]) -> None:
    """Writes a line for each of some very small models: its name and, for some texts, the ids."""
    global SIZE, SMALL
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules, out.open("w") as f:
        rules.write(RULES)
        rules.flush()
        SIZE, SMALL = 460, rules.name
        for make in small_files:
            t = Tokenizer.from_str(make(train).to_str())
            rows = []
            for s in words:
                t.encode_special_tokens = True
                plain = t.encode(s, add_special_tokens=False).ids
                t.encode_special_tokens = False
                rows.append([s, plain, t.encode(s).ids])
            line(f, {"name": make.__name__, "file": json.loads(t.to_str()), "rows": rows})
        raw = [s.encode() for s in words] + [b"\xff", b"a\xc3 \xe4\xb8b\xed\xa0\x80", b"\xf0\x9f\x98\x80\xf0\x9f\x98"]
        for build in small_models:
            model = build(train)
            sp_model = sentencepiece.SentencePieceProcessor(model_proto=model)
            encoded = [[base64.b64encode(s).decode(), sp_model.encode(s)] for s in raw]
            long = []
            for s, times in ((" ".join(words), 2000), ("漢 x", 20000), ("a", 100000)):
                ids = sp_model.encode(s * times)
                long.append([s, times, len(ids), hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()])
            line(f, {"name": build.__name__, "model": base64.b64encode(model).decode(), "raw": encoded, "long": long})


def line(f: TextIO, value: object) -> None:
    f.write(json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n")
