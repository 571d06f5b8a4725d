"""Pieces of templates, each for something that chat templates use, or might."""

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{ message.content | trim }}{{ '<|im_end|>' }}{%- endgeneration %}
    {%- else %}
        {{- message.content ~ '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

BRACKETS = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
{% for m in rest if m.role != 'tool' %}
{% if m.role == 'user' %}
[INST] {{ (system + '\\n\\n' if system is defined and loop.first else '') + m['content'].strip() }} [/INST]
{% elif m['role'] == 'assistant' %}
 {{ m.content }}{{ eos_token }}
{% else %}{{ raise_exception('only user and assistant') }}{% endif %}
{% endfor %}"""

VALUES = [
    "1", "-1", "2 ** 10", "2 ** -1", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 % -3", "7.5 % 2", "-7.5 // 2", "1 / 2", "4 / 2", "1e3", "1.0", "0.1 + 0.2",
    "1e16", "1e-5", "123456789.0", "1_000", "true", "none", "None and 1", "0 or ''", "not 1", "not []", "1 < 2 < 3", "1 < 3 < 2", "1 == 1.0", "True == 1", "'a' < 'b'", "[1, 2] < [1, 3]",
    "'a' ~ 1 ~ none", "'ab' * 3", "[1] * 2", "[1] + [2]", "(1, 2) + (3,)", "(1,)", "()", "[]", "{}", "{'a': 1, 'b': [none, true, 1.5]}", "['a', \"it's\", 'q\"', '\\'\"']", "['\\n\\t\\\\', 'é', '\\x00', '\\u200b', '\\U0001f600']",
    "'a' in 'abc'", "'a' not in ['b']", "'k' in {'k': 1}", "1 in [1.0]", "1 if true else 2", "1 if false", "(1 if false) is defined", "nothing", "nothing is defined", "nothing.x is defined", "nothing is undefined or 1",
    "none.x", "none.x is none", "messages[99]", "messages[-1].role", "messages[0]['role'] + '!'", "messages[0].nothing", "messages[1:3] | length", "messages[::-1][0].role", "'abcdef'[1:4]", "'abcdef'[-2:]", "'abcdef'[::-1]", "'aé日😀'[2:]", "'aé日😀' | length",
    "'aé日😀'[-1]", "[1, 2, 3][5:]", "[1, 2, 3][-1]", "[1,2,3][0]", "'x'.upper()", "'ABC'.lower()", "'hELLO wORLD'.capitalize()", "\"they're bill's\".title()", "'hello world-x' | title", "'Éa'.lower()", "'ß'.upper()",
    "' a '.strip() + '|'", "'xxaxx'.strip('x')", "'abcab'.lstrip('ab')", "'abc'.rstrip('c')", "'a,b,c'.split(',')", "'a,b,c'.split(',', 1)", "' a  b '.split()", "' a  b c '.split(none, 1)", "'a,b,c'.rsplit(',', 1)", "'a</think>b'.split('</think>')[-1]",
    "'a\\nb\\r\\nc\\n'.splitlines()", "'a\\n\\nb'.splitlines(true)", "'abc'.startswith('ab')", "'abc'.startswith(('x', 'a'))", "'abc'.endswith('c')", "'aaa'.replace('a', 'b', 2)", "'abc'.find('c')", "'日本'.find('本')", "'abc'.find('z')", "'abca'.rfind('a')", "'abca'.count('a')", "'-'.join(['a', 'b'])",
    "'12'.isdigit()", "'a1'.isalnum()", "'ab'.isalpha()", "' '.isspace()", "'a-b-c'.partition('-')", "'a-b-c'.rpartition('-')", "'abc'.removeprefix('a')", "'abc'.removesuffix('c')",
    "{'a': 1}.get('a')", "{'a': 1}.get('b')", "{'a': 1}.get('b', 2)", "{'a': 1}.items()|list", "{'a': 1, 'b': 2}.keys()|list", "{'a': 1}.values()|list", "{'items': 1}['items']", "{'items': 1}.items is mapping", "{'x': {'y': [3]}}.x.y[0]", "[1,2].index(2)", "[1,2,2].count(2)",
    "[1, 2] | join(', ')", "[{'a': 1}, {'a': 2}] | join('-', attribute='a')", "messages | map(attribute='role') | join(',')", "['a', 'b'] | map('upper') | list", "messages | selectattr('role', 'equalto', 'user') | list | length", "messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list",
    "[1, 2, 3] | select('odd') | list", "[1, 0, 2] | select | list", "[1, 2, 3] | reject('gt', 1) | list", "messages | selectattr('tool_calls') | list | length", "messages | selectattr('tool_calls', 'defined') | list | length", "messages | map(attribute='x', default='-') | list",
    "'a' | default('b')", "nothing | default('b')", "'' | default('b')", "'' | default('b', true)", "nothing | d", "none | default('x')", "[3, 1, 2] | sort", "['b', 'A', 'c'] | sort", "['b', 'A'] | sort(case_sensitive=true)", "[1, 3, 2] | sort(reverse=true)", "messages | sort(attribute='role') | map(attribute='role') | list",
    "{'b': 1, 'a': 2, 'C': 0} | dictsort", "{'b': 1, 'a': 2} | dictsort(by='value')", "{'a': 1} | items | list", "[1, 2] | first", "[1, 2] | last", "[] | first", "'abc' | first", "[1, 2] | reverse | list", "'abc' | reverse", "[1, 1, 2, 'a', 'A'] | unique | list", "[1, 2] | sum", "[1, 5, 2] | max", "[1, 5, 2] | min", "[] | max",
    "2.5 | round", "3.5 | round", "2.675 | round(2)", "5 | round", "1234.5 | round(-2)", "1.1 | round(0, 'ceil')", "1.9 | round(0, 'floor')", "-3 | abs", "-2.5 | abs", "'12' | int", "'x' | int", "'x' | int(7)", "3.9 | int", "'3.9' | int", "'1.5' | float", "1 | string + 'a'", "1.0 | string", "none | string", "[1] | string", "'abc' | list", "{'a': 1} | list", "'<a>' | e", "'<a>' | safe",
    "'a\\nb\\n\\nc' | indent(2)", "'a\\nb' | indent(2, true)", "'a\\nb' | indent('> ')", "'  a ' | trim + '|'", "'xax' | trim('x')", "'aXbX' | replace('X', '-')", "'aXbX' | replace('X', '-', 1)", "'hello' | capitalize", "'a b' | upper | lower", "'abc' | length", "{'a': 1} | count",
    "tools | tojson", "tools[0] | tojson(indent=4)", "tools[0].function.parameters | tojson(indent=2)", "messages[2].tool_calls | tojson", "messages[2].tool_calls[0].function.arguments | tojson(sort_keys=true)", "{'b': 1, 'a': [1, {}]} | tojson(separators=(',', ':'))", "'é<>&\\'\"\\u2028\\x7f\\x01😀' | tojson", "'é😀' | tojson(ensure_ascii=true)", "[] | tojson(indent=2)", "{} | tojson(indent=2)", "[1, [2]] | tojson(indent='\\t')", "1e100 | tojson", "1.0 | tojson", "nothing | tojson", "none | tojson", "(1, 2) | tojson",
    "1 is number", "true is number", "1 is integer", "true is integer", "1.0 is float", "'a' is string", "{} is mapping", "[] is sequence", "{} is sequence", "'a' is iterable", "1 is iterable", "none is none", "1 is not none", "true is true", "1 is true", "true is boolean", "2 is even", "3 is odd", "4 is divisibleby 2", "4 is divisibleby(3)", "1 is eq 1", "'a' is in ['a']", "true is sameas true", "'a' is lower", "'A' is upper", "range is callable", "tools is not none and tools is iterable", "messages is sequence and messages is not mapping",
    "range(3) | list", "range(1, 7, 2) | list", "range(3, 0, -1) | list", "dict(a=1)", "dict([('a', 1)])", "dict({'a': 1}, b=2)", "namespace(a=1).a", "strftime_now('%Y-%m-%d %d %B %b %A %a %H:%M:%S %y %j %p %I %%')", "strftime_now('%-d/%-m')", "raise_exception('no')", "messages.append(1)", "{}.update({'a': 1})", "messages.__class__", "messages['__class__']", "nothing + 1", "nothing.x.y", "nothing()", "1 + 'a'", "none + 1", "{} + {}", "1 < 'a'", "none < 1", "'a' in 1", "{[]: 1}", "1 // 0", "for", "messages[", "'a' 'b'", "-1 ** 2", "not 1 == 2", "1 if 0 else 2 if 0 else 3", "'a' if true else nothing.x", "[1, 2,]", "(1)", "1, 2", "messages | length > 3", "'%s' ~ 1", "-'a'", "+1", "'x' | nofilter", "1 is notest", "[1, 2] | map('nofilter') | list",
]

STATEMENTS = [
    CHATML, BRACKETS,
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n  {% if true %}  \nb\n  {%- endif -%}  \n c\n\n", "  {{ 1 }}  \n{{ 2 }}\n", "a {#- c -#} b {# d #}\ne", "  {# x #}\n  y", "{%+ if true %}\n x{% endif +%}\ny", "  {%+ if true -%}\n x{% endif %}", "a\r\nb\rc\n", "a\n\n", "{{ 'a\nb' }}", "\t{% set x = 1 %}\t{{ x }}",
    "{% raw %}{{ x }}{% y %}{% endraw %}", "a\n  {%- raw -%} \n {{ x }} \n {%- endraw -%} \nb", "{% raw %}\n x\n  {% endraw %}\ny",
    "{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem is defined }};{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }} {% endfor %}", "{% for (k, v) in [(1, 2)] %}{{ k }}{{ v }}{% endfor %}", "{% for a in [1, 2, 3, 4] if a is even %}{{ loop.index }}:{{ a }} {% endfor %}", "{% for c in 'héy' %}{{ c }}.{% endfor %}", "{% for k in {'x': 1} %}{{ k }}{% endfor %}", "{% for x in nothing %}a{% endfor %}b", "{% for x in none %}a{% endfor %}", "{% for x in 5 %}a{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}", "{% set ns = namespace(n=0, l=[]) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.n }}{{ ns.l }}", "{% if true %}{% set y = 5 %}{% endif %}{{ y }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set x %}  text {{ 1 }} {% endset %}[{{ x }}]", "{% set x | upper | trim %} abc {% endset %}[{{ x }}]", "{% set d = {} %}{% set d.x = 1 %}", "{% set x = (1, 2)[1] %}{{ x }}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} {{ f(b=1, a=0) }} {{ f() }}", "{% macro f() %}{{ x }}{% endmacro %}{% set x = 3 %}{{ f() }}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}{{ f(2) | upper | length }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "{% macro m(x) %}{% for i in x %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}{% endmacro %}{{ m([1, 2]) ~ '!' }}", "{% macro f() %}{% set z = 1 %}{% endmacro %}{{ f() }}{{ z is defined }}",
    "{% filter upper %}abc{{ 'd' }}{% endfilter %}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% if 0 %}a{% elif nothing %}b{% elif 1 %}c{% else %}d{% endif %}", "{% if messages %}x{% endif %}{% if not tools %}y{% endif %}", "a{% generation %}b{% endgeneration %}{% generation %}c{% endgeneration %}d", "é{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}😀{% endgeneration %}{% endif %}{% endfor %}", "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}",
    "{% if true %}a", "{% endif %}", "{{ 1", "{% nothing %}", "{# open", "{% for x in [1] %}{% endif %}", "{{ }}", "{% break %}", "{% set 1 = 2 %}", "{{ 1 }} }} {{ 2 }}", "{{ {'a': {'b': 1}}['a'] }}", "{{ '}}' }}{{ \"%}\" }}", "{%- if true -%} x {%- else -%} y {%- endif -%}", "{{- 1 -}}  {{- 2 -}}\n", "{{ bos_token }}{{ eos_token }}{{ sep_token }}", "{{ messages[2].tool_calls[0].function.arguments.x }} {{ messages[2].tool_calls[0]['function']['arguments'] }}", "{% set m = messages[1] %}{{ m.role }}{{ m['content'] }}{{ m.get('x', '?') }}{{ m.x }}", "{{ '{' }}{{ '\\n' }}{{ '\\\\' }}{{ '\\d' }}{{ '\\101' }}",
]

SNIPPETS = ["{{ " + value + " }}" for value in VALUES] + STATEMENTS
