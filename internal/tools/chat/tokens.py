"""Tokens and loss masks of conversations, as apply_chat_template of Transformers makes them.

    tokens.py OUT.jsonl TOKENIZERS.jsonl [TEMPLATE.jinja...]

TOKENIZERS.jsonl has a tokenizer.json a line, with its name. A case names its tokenizer and has the
template and the conversation (once), ids and which of them carry loss, or that it fails.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile

import cases
from snippets import CHATML
from transformers import PreTrainedTokenizerFast

# A template with a token of the tokenizers in it, and generations that end without one.
SHORT = """{{ bos_token }}{% for m in messages %}
{% if m.role == 'assistant' %}<|x|>{% generation %}{{ m.content or '' }}.{% endgeneration %}{% else %}[{{ m.role }}] {{ m.content or '' }}{{ eos_token }}{% endif %}
{% endfor %}"""


# Tokenizers with a token for every byte: in others, what is unknown has no place in the text.
MODELS = ("llama3", "qwen2", "deepseek3", "mistral", "llama2", "gemma")


def by_offsets(fast, template, messages, tools, ids) -> list[int]:
    """Returns 1 for each token with a character of a generation, by the offsets of tokens.

    It is what apply_chat_template returns, but for a last character of several tokens, of which
    that takes the first only, and a generation that begins with white space without an offset.
    """
    messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
    texts, spans = cases.render_jinja_template(
        conversations=[messages], tools=tools, chat_template=template,
        return_assistant_tokens_mask=True, **cases.SPECIAL,
    )  # fmt: skip
    made = fast(texts[0], add_special_tokens=False, return_offsets_mapping=True)
    assert made["input_ids"] == ids
    return [
        int(any(start < to and end > begin for begin, to in spans[0]))
        for start, end in made["offset_mapping"]
    ]


def main(out: str, tokenizers: str, *paths: str) -> None:
    templates = {"chatml": CHATML, "short": SHORT} if not paths else {}
    for path in paths:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        if "generation %}" in text or "generation -%}" in text:
            templates[pathlib.Path(path).stem] = text
    seen: set[str] = set()
    with open(out, "w", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        for line in pathlib.Path(tokenizers).read_text(encoding="utf-8").splitlines():
            model = {key.lower(): value for key, value in json.loads(line).items()}
            if model["name"] not in MODELS or paths and model["name"] == "llama2":
                continue
            path = pathlib.Path(folder) / "tokenizer.json"
            path.write_text(json.dumps(model["file"]), encoding="utf-8")
            for name, template in templates.items():
                for title, (messages, tools) in cases.CONVERSATIONS.items():
                    if title == "an unknown role":  # which millrace refuses
                        continue
                    made: dict[str, object] = {"tokenizer": model["name"], "template": name, "title": title}
                    if name not in seen:
                        made["source"] = template
                    if title not in seen:
                        made.update(messages=messages, tools=tools)
                    seen |= {name, title}
                    fast = PreTrainedTokenizerFast(tokenizer_file=str(path))
                    try:
                        encoded = fast.apply_chat_template(
                            messages, tools=tools, chat_template=template, return_dict=True,
                            return_assistant_tokens_mask=True, **cases.SPECIAL,
                        )  # fmt: skip
                        mask = by_offsets(fast, template, messages, tools, encoded["input_ids"])
                        made.update(ids=encoded["input_ids"], mask=mask)
                        if mask != encoded["assistant_masks"]:
                            made["transformers"] = encoded["assistant_masks"]
                    except Exception as error:
                        made["error"] = f"{type(error).__name__}: {error}"
                    file.write(json.dumps(made, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
