"""Renders chat templates by Jinja2, as Transformers sets it up: cases for tests in Go.

    cases.py OUT.jsonl TEMPLATE.jinja... : each template with each conversation below
    cases.py OUT.jsonl                   : the pieces of snippets.py, beside this file

A case is a JSON object: template (its name, and its text once), title of a conversation (with its
messages and tools once), text, the
parts inside of generation tags in characters, or that it fails.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import sys

from snippets import SNIPPETS
from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template


class FixedDate(datetime.datetime):
    """The date that templates are given."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 3)


chat_template_utils.datetime = FixedDate

SYSTEM = {"role": "system", "content": "You answer briefly."}
ASK = {"role": "user", "content": "What is 2 + 2?"}
ANSWER = {"role": "assistant", "content": "It is 4."}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a place: <b>today's</b> \"sky\" & wind.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Zürich, 東京, …"},
                "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
                "units": {"type": ["string", "null"]},
                "where": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["place"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "type": "function",
            "id": "abcdef123",
            "function": {"name": "weather", "arguments": {"place": "Bern", "days": 2, "x": 0.1, "y": 1e-7, "ok": True, "no": None, "l": [1, "a"]}},
        }
    ],
}
RESULT = {"role": "tool", "name": "weather", "tool_call_id": "abcdef123", "content": '{"sky": "blue"}'}
SPECIAL = {
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
}  # fmt: skip

CONVERSATIONS = {
    "a question": ([ASK], None),
    "an answer": ([ASK, ANSWER], None),
    "a system": ([SYSTEM, ASK, ANSWER], None),
    "turns": ([SYSTEM, ASK, ANSWER, {"role": "user", "content": "And 3 + 3?"}, {"role": "assistant", "content": "6"}], None),
    "spaces": ([{"role": "user", "content": "  hi\n\n"}, {"role": "assistant", "content": "\n a \t\r\n\u00a0 b  "}], None),
    "empty": ([{"role": "user", "content": ""}, {"role": "assistant", "content": ""}], None),
    "signs": ([{"role": "user", "content": "{{ 1 }} {% if %} {# #} <|im_end|> ' \" \\ \x00"}, {"role": "assistant", "content": "é e\u0301 👩‍👩‍👧 \ufeff"}], None),
    "thoughts": ([ASK, {"role": "assistant", "reasoning_content": "Let me see.\n", "content": "4"}, ASK, {"role": "assistant", "reasoning_content": "Again", "content": "still 4"}], None),
    "thoughts in the text": ([ASK, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}, ASK, {"role": "assistant", "content": "<think>again</think>five"}], None),
    "an unknown role": ([{"role": "wizard", "content": "?"}, ASK], None),
    "two questions": ([ASK, ASK, ANSWER], None),
    "answers first": ([ANSWER, ASK], None),
    "no content": ([{"role": "user"}, ANSWER], None),
    "null": ([ASK, {"role": "assistant", "content": None, "tool_calls": None}], None),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": " here"}]}, {"role": "assistant", "content": [{"type": "text", "text": "So."}]}], None),
    "a picture": ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}, ANSWER], None),
    "tools": ([SYSTEM, ASK, ANSWER], [TOOL]),
    "a call": ([ASK, CALL, RESULT, {"role": "assistant", "content": "Blue."}], [TOOL]),
    "a call with words": ([SYSTEM, ASK, {**CALL, "content": "I look."}, RESULT, RESULT, ANSWER, ASK, ANSWER], [TOOL, TOOL]),
    "arguments as text": ([ASK, {"role": "assistant", "tool_calls": [{"type": "function", "id": "abcdef123", "function": {"name": "f", "arguments": '{"a": 1}'}}]}, RESULT, ANSWER], None),
    "a developer": ([{"role": "developer", "content": "Be kind."}, ASK, ANSWER], None),
    "ends with a question": ([ASK, ANSWER, ASK], None),
}


known: set[str] = set()  # titles of conversations that are in the file already


def case(name: str, template: str, title: str, first: bool) -> dict[str, object]:
    messages, tools = CONVERSATIONS[title]
    messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
    made: dict[str, object] = {"template": name, "title": title}
    if title not in known:
        known.add(title)
        made.update(messages=CONVERSATIONS[title][0], tools=tools)
    if first:
        made["source"] = template
    try:
        texts, spans = render_jinja_template(
            conversations=[messages], tools=tools, chat_template=template,
            return_assistant_tokens_mask=True, **SPECIAL,
        )  # fmt: skip
        made.update(text=texts[0], generated=spans[0])
    except Exception as error:  # whatever Python raises, Go has to refuse
        made["error"] = f"{type(error).__name__}: {error}"
    return made


def main(out: str, *paths: str) -> None:
    with open(out, "w", encoding="utf-8") as file:
        if not paths:
            for k, snippet in enumerate(SNIPPETS):
                file.write(json.dumps(case(f"piece {k}", snippet, "a call with words", True), ensure_ascii=False) + "\n")
        for path in paths:
            template = pathlib.Path(path).read_text(encoding="utf-8")
            name = pathlib.Path(path).stem
            for k, title in enumerate(CONVERSATIONS):
                file.write(json.dumps(case(name, template, title, k == 0), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
