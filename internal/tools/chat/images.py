"""Tokens of texts and conversations with images in them, as processors of Transformers make them.

    images.py OUT.jsonl TOKENIZERS.jsonl

Like LlavaProcessor and Qwen2VLProcessor it writes each image's placeholders into the text, in the
place of a marker, and then has the tokenizer read the text, with marker, placeholder and the tokens
around it as special tokens. A case has the tokenizer's name, the text or the conversation, how many
placeholders each image has, and ids: 900 is a placeholder, 901 and 902 are around it. mask has 1 for
each token with a character of a generation that is no placeholder.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile

import cases
from transformers import PreTrainedTokenizerFast

BEGIN, PAD, END = "<!begin!>", "<!pad!>", "<!end!>"
IDS = {PAD: 900, BEGIN: 901, END: 902}

TEXTS = {
    "alone": "{}",
    "first": "{}\nWhat is in the picture?",
    "last": "What is in the picture?\n{}",
    "inside": "Look: {} is a mill.",
    "inside a word": "wa{}ter",
    "neighbours": "{}{} {}\n{}two of them",
    "spaces": "  {}  and   {} \n\n{}",
    "letters of the marker": "<image {} <|image_pad <{}> image>",
    "other letters": "Zürich {} 東京 e\u0301{}\u0301 \U0001f600{}.",
    "none": "There is no picture.",
}

TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{% macro parts(content) %}{% if content is string %}{{ content }}{% else %}{% for p in content %}{% if p.type == 'image' %}MARKER{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}
{% if m.role == 'assistant' %}{% generation %}{{ parts(m.content) }}<|im_end|>{% endgeneration %}{% else %}{{ parts(m.content) }}<|im_end|>{% endif %}
{% endfor %}"""

IMAGE = {"type": "image"}


def said(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


CONVERSATIONS = {
    "a question": [{"role": "user", "content": [IMAGE, said("What is it?")]}, {"role": "assistant", "content": "A mill."}],
    "turns": [
        {"role": "user", "content": [said("This "), IMAGE, said(" and this "), IMAGE]},
        {"role": "assistant", "content": "Two mills."},
        {"role": "user", "content": [IMAGE, IMAGE]},
        {"role": "assistant", "content": "Two more."},
    ],
    "an answer with images": [
        {"role": "user", "content": "Draw two mills."},
        {"role": "assistant", "content": [said("One: "), IMAGE, IMAGE]},
        {"role": "user", "content": [IMAGE]},
        {"role": "assistant", "content": [IMAGE, said("like so")]},
    ],
    "no image": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}],
}


def expand(text: str, marker: str, loss: list[bool], sizes: list[int], framed: bool) -> tuple[str, list[bool]]:
    """Returns text with the placeholders of images, and what of it carries loss."""
    out, carries, at = "", [], 0
    for number, part in enumerate(text.split(marker)):
        if number:
            run = PAD * sizes[number - 1]
            run = BEGIN + run + END if framed else run
            out, carries = out + run, carries + [loss[at]] * len(run)
            at += len(marker)
        out, carries = out + part, carries + loss[at : at + len(part)]
        at += len(part)
    return out, carries


def encode(path: pathlib.Path, marker: str, text: str, loss: list[bool], framed: bool) -> dict[str, object]:
    """Returns the fields of a case."""
    fast = PreTrainedTokenizerFast(tokenizer_file=str(path))
    sizes = [1 + 2 * i for i in range(text.count(marker))]
    text, loss = expand(text, marker, loss, sizes, framed)
    fast.add_special_tokens({"additional_special_tokens": [PAD, BEGIN, END]})
    own = {fast.convert_tokens_to_ids(name): number for name, number in IDS.items()}
    made = fast(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = [own.get(token, token) for token in made["input_ids"]]
    mask = [int(number != 900 and any(loss[begin:to])) for number, (begin, to) in zip(ids, made["offset_mapping"])]
    return {"sizes": sizes, "framed": framed, "ids": ids, "mask": mask}


def main(out: str, tokenizers: str) -> None:
    with open(out, "w", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        for line in pathlib.Path(tokenizers).read_text(encoding="utf-8").splitlines():
            model = {key.lower(): value for key, value in json.loads(line).items()}
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(json.dumps(model["file"]), encoding="utf-8")
            markers = ["<image>", "<|image_pad|>"]
            if '"<|x|>"' in json.dumps(model["file"]):
                markers.append("<|x|>")  # which the vocabulary has
            for number, marker in enumerate(markers):
                for title, form in TEXTS.items():
                    text = form.replace("{}", marker)
                    made = encode(path, marker, text, [True] * len(text), framed=number == 0)
                    del made["mask"]
                    case = {"tokenizer": model["name"], "title": title, "marker": marker, "text": text} | made
                    file.write(json.dumps(case, ensure_ascii=False) + "\n")
                if model["name"] not in ("llama3", "qwen2", "deepseek3", "mistral", "llama2", "gemma"):
                    continue  # what is unknown has no place in the text
                template = TEMPLATE.replace("MARKER", marker)
                for title, messages in CONVERSATIONS.items():
                    texts, spans = cases.render_jinja_template(
                        conversations=[messages], chat_template=template, return_assistant_tokens_mask=True, **cases.SPECIAL,
                    )  # fmt: skip
                    loss = [any(begin <= i < to for begin, to in spans[0]) for i in range(len(texts[0]))]
                    made = encode(path, marker, texts[0], loss, framed=number == 0)
                    case = {
                        "tokenizer": model["name"],
                        "title": title,
                        "marker": marker,
                        "template": template,
                        "messages": messages,
                    }
                    file.write(json.dumps(case | made, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
