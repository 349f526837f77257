"""Chat templates that take memory or time: each is refused in a process that has little of both."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specchat.text.chat_template import ChatTemplate
from specchat.weights.gguf.gguf_tokenizer import _chat_template
from tests.each_row import each_row

MEMORY_BYTES = 2**30
SECONDS = 60  # of processor time for one template; the slowest takes two
DOUBLING = "{%% set ns = namespace(x=%s) %%}{%% for i in range(64) %%}{%% set ns.x = %s %%}{%% endfor %%}"
BIG = "{% set s = 'a' * 9000000 %}"
DATA_LOOP = "{% for a in range(90000) %}" + "a" * 90000 + "{% endfor %}"
WIDE = 3_000_000_000

HOSTILE = {
    "a repeated text": "{{ 'a' * 3000000000 }}",
    "a repeated text, count first": "{{ 3000000000 * 'a' }}",
    "a repeated list": "{{ ([1] * 3000000000) | length }}",
    "a repeated tuple": "{{ ((1,) * 3000000000) | length }}",
    "a large power": "{{ 10 ** 10000000 }}",
    "powers of powers": "{{ ((9 ** 999) ** 999) ** 999 }}",
    "a large product": "{% set ns = namespace(x=9) %}{% for i in range(64) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "a doubled text, ~": DOUBLING % ("'ab'", "ns.x ~ ns.x"),
    "a doubled text, +": DOUBLING % ("'ab'", "ns.x + ns.x"),
    "a doubled text, join": DOUBLING % ("'ab'", "[ns.x, ns.x] | join"),
    "a doubled text, join of a text": DOUBLING % ("'ab'", "ns.x.join([ns.x, ns.x])"),
    "a doubled text, replace": DOUBLING % ("'ab'", "ns.x.replace('a', ns.x)"),
    "a doubled text, the filter replace": DOUBLING % ("'ab'", "ns.x | replace('a', ns.x)"),
    "a doubled text, %": DOUBLING % ("'ab'", "'%s%s' % (ns.x, ns.x)"),
    "a doubled text, the filter format": DOUBLING % ("'ab'", "'%s%s' | format(ns.x, ns.x)"),
    "a doubled text, format": DOUBLING % ("'ab'", "'{0}{0}'.format(ns.x)"),
    "a doubled text, format_map": DOUBLING % ("'ab'", "'{a}{a}'.format_map({'a': ns.x})"),
    "a doubled text, tojson": DOUBLING % ("'\"'", "ns.x | tojson"),
    "a doubled text, set block": (
        "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}"
        "{% set ns.x = y %}{% endfor %}"
    ),
    "a doubled text, macro": (
        "{% macro m(x, n) %}{% if n %}{{ m(x ~ x, n - 1) }}{% endif %}{% endmacro %}{{ m('ab', 64) }}"
    ),
    "a doubled list": DOUBLING % ("[1]", "ns.x + ns.x"),
    "nested lists, printed": DOUBLING % ("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
    "nested lists, as JSON": DOUBLING % ("[1]", "[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    "nested lists, compared": (
        DOUBLING % ("[1]", "[ns.x, ns.x]")
        + DOUBLING.replace("ns", "other") % ("[1]", "[other.x, other.x]")
        + "{{ ns.x == other.x }}"
    ),
    "nested lists, the test eq": (
        DOUBLING % ("[1]", "[ns.x, ns.x]")
        + DOUBLING.replace("ns", "other") % ("[1]", "[other.x, other.x]")
        + "{{ ns.x is eq(other.x) }}"
    ),
    "nested lists, counted": (
        DOUBLING % ("[1]", "[ns.x, ns.x]")
        + DOUBLING.replace("ns", "other") % ("[1]", "[other.x, other.x]")
        + "{{ [ns.x].count(other.x) }}"
    ),
    "nested tuples, hashed": DOUBLING % ("(1,)", "(ns.x, ns.x)") + "{{ {ns.x: 1} | length }}",
    "nested namespaces": (
        "{% set ns = namespace(x=1) %}{% for i in range(64) %}{% set ns.x = namespace(a=ns.x, b=ns.x) %}{% endfor %}"
        "{{ ns.x }}"
    ),
    "a wide field, %": f"{{{{ '%{WIDE}d' % 1 }}}}",
    "a wide field by its argument": f"{{{{ '%*d' % ({WIDE}, 1) }}}}",
    "a wide field of a key": f"{{{{ '%(a)0{WIDE}d' % {{'a': 1}} }}}}",
    "a wide field, precision": "{{ '%.3000000000f' % 1.5 }}",
    "a wide field, the filter format": f"{{{{ '%{WIDE}d' | format(1) }}}}",
    "a wide field, format": f"{{{{ '{{:{WIDE}}}'.format(1) }}}}",
    "a wide field, computed": f"{{{{ '{{:{{}}}}'.format(1, {WIDE}) }}}}",
    "a wide field, through attr": f"{{{{ ('{{:{WIDE}}}' | attr('format'))(1) }}}}",
    "center": f"{{{{ 'a' | center({WIDE}) }}}}",
    "center of nothing": f"{{{{ ''.center({WIDE}) }}}}",
    "indent of empty JSON": f"{{{{ [] | tojson(indent={WIDE}) }}}}",
    "center of a text": f"{{{{ 'a'.center({WIDE}) }}}}",
    "zfill": f"{{{{ 'a'.zfill({WIDE}) }}}}",
    "ljust": f"{{{{ 'a'.ljust({WIDE}) }}}}",
    "expandtabs": f"{{{{ '\\t'.expandtabs({WIDE}) }}}}",
    "translate": BIG + "{{ s.translate({97: s}) }}",
    "to_bytes": f"{{{{ (5).to_bytes({WIDE}) }}}}",
    "indent": f"{{{{ 'a\nb' | indent({WIDE}) }}}}",
    "indent of JSON": f"{{{{ [1] | tojson(indent={WIDE}) }}}}",
    "indent of nested JSON": (
        "{% set ns = namespace(x=[1] * 100000) %}{% for i in range(600) %}{% set ns.x = [ns.x] %}{% endfor %}"
        "{{ ns.x | tojson(indent=16) }}"
    ),
    "separators of JSON": BIG + "{{ range(1000) | list | tojson(separators=(s, s)) }}",
    "round": "{{ 2.5 | round(1000000000, 'ceil') }}",
    "round of an integer": "{{ 5 | round(-1000000000) }}",
    "batch": f"{{{{ [1] | batch({WIDE}, 'x') | list }}}}",
    "slice": f"{{{{ [1] | slice({WIDE}) | list }}}}",
    "map": f"{{{{ [1] | map('center', {WIDE}) | list }}}}",
    "sum of lists": "{% set x = [[1] * 90] * 90000 %}{{ x | sum(start=[]) | length }}",
    "lipsum": "{{ lipsum(n=100000) }}",
    "loops": "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
    "loops in a comprehension": "{% for a in range(90000) if range(90000) | select | list | length == 0 %}{% endfor %}",
    "a chain of filters": "{% set x = range(90000)" + " | select('defined')" * 90 + " %}{% for i in x %}{% endfor %}",
    "a recursive loop": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "recursion": "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "recursion by two": (
        "{% macro m(n) %}{% if n %}{% set a = m(n - 1) %}{% set b = m(n - 1) %}{% endif %}{% endmacro %}{{ m(60) }}"
    ),
    "data in a loop": DATA_LOOP,
    "data in a loop in a set block": "{% set x %}" + DATA_LOOP + "{% endset %}",
    "a text in a loop": BIG + "{% for a in range(90000) %}{{ s }}{% endfor %}",
    "a long constant joined in a loop": (
        "{% set ns = namespace(x=[]) %}{% for i in range(2400) %}{% set ns.x = ns.x + ['"
        + "a" * 200000
        + "' ~ i] %}{% endfor %}"
    ),
    "slices in a loop": (
        BIG + "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = ns.x + [s[i:]] %}{% endfor %}"
    ),
    "a text as a list": BIG + "{{ s | list | length }}",
    "a text in pieces": BIG + "{{ s.split('a') | length }}",
    "a long needle, rfind": "{% set s = 'a' * 4000000 %}{% set n = 'b' + 'a' * 2000000 %}{{ s.rfind(n) }}",
    "many characters to strip": BIG + "{% set c = 'b' * 4000000 + 'a' %}{{ s.strip(c) }}",
    "many characters to trim": BIG + "{% set c = 'b' * 4000000 + 'a' %}{{ s | trim(c) }}",
    "a deep expression": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "many elifs": "{% if a %}" + "{% elif a %}" * 20000 + "{% endif %}",
    "nested blocks": "{% for a in [1] %}" * 60 + "{% endfor %}" * 60,
    "a long number": "{{ " + "9" * 9000 + " }}",
    "a long template": "a" * 300000,
    "another file": "{% include '/etc/passwd' %}",
}
PROGRAM = """
import json, resource, sys
from specchat.text.chat_template import ChatTemplate, TemplateError
import jinja2.sandbox, specchat.text.chat_template, specchat.text.template_budget
specchat.text.template_budget.BUDGET //= %d
resource.setrlimit(resource.RLIMIT_AS, (%d, resource.RLIM_INFINITY))
for name, source in json.load(sys.stdin).items():
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + %d, resource.RLIM_INFINITY))
    try:
        result = len(ChatTemplate(source, {}).render([{"role": "user", "content": "Hi"}], True))
    except TemplateError as error:
        result = str(error)
        if isinstance(error.__cause__, MemoryError) and name != "many elifs":  # Python's parser says so of that
            result = ""
    print(json.dumps([name, result, sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - used]), flush=True)
"""


USEFUL = {
    "loops": """{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.revindex0 }} {{ loop.last }}
        {{ loop.previtem }} {{ loop.nextitem.role if not loop.last }} {{ loop.cycle('a', 'b') }}
        {{ loop.changed(m.role) }}{% else %}none{% endfor %}
        {% for a in [[1, [2]], [3]] recursive %}{{ loop(a) if a is iterable else a }}({{ loop.depth }}){% endfor %}
        {% for k, v in messages[0] | dictsort if k != 'x' %}{{ k }}={{ v | tojson(indent=2) }}{% endfor %}
        {% for k, v in messages[0].items() %}{{ k }}{{ v }}{% endfor %}{{ messages[0].keys() | list }}""",
    "namespaces": """{% set ns = namespace(all=[], n=0) %}{% for m in messages[::-1] %}
        {% set ns.all = ns.all + [m] %}{% set ns.n = ns.n + 1 %}{% if ns.n > 1 %}{% break %}{% endif %}
        {% endfor %}{{ ns.all[-1]['content'] }}{{ ns.n }}""",
    "macros": """{% macro tag(name, attributes=[]) %}<{{ name }}
        {% for a in attributes %} {{ a[0] ~ '=' ~ a[1] }}{% endfor %}>{{ caller() if caller }}{% endmacro %}
        {{ tag('a', [('b', 1)]) | trim }}{% call tag('c') %}inside{% endcall %}
        {% set x %}{{ messages[0].content }}!{% endset %}{{ x ~ 1 ~ none ~ undefined_name }}
        {% filter upper %}ab{% endfilter %}{% generation %}{{ [3, 1, 2] | sort | first }}{% endgeneration %}""",
    "filters": """{{ messages | map(attribute='content') | join(', ') }}{{ 2.567 | round(1) }}{{ [1, 2] | sum }}
        {{ messages | selectattr('role', 'equalto', 'user') | list }}{{ [1, 2, 3] | batch(2) | list }}
        {{ messages | rejectattr('role', 'in', ['user']) | map(attribute='role') | unique | join }}{{ '<' | e }}
        {{ {'a': [1, 'é']} | tojson }}{{ x | default('d') }}{{ 'ab' | reverse }}{{ 'a\nb' | indent }}""",
    "texts": """{{ '%s is %5.2f' % ('x', 1.5) }}{{ '%(a)s%%' % {'a': 3} }}{{ '%d' | format(3) }}{{ ' x'.strip() }}
        {{ '{0}-{b:>4}'.format(1, b='x') }}{{ 'a<think>b</think> c'.split('</think>')[-1].lstrip() | upper }}
        {{ 'abc'.replace('b', 'x').startswith('a') }}{{ ', '.join(['a', 'b']) }}{{ 'x'.rjust(3) }}
        {{ 'a b'.split() }}{{ messages[0] }}""",
    "operators": """{{ -7 // 2 }}{{ 2 ** 8 % 7 }}{{ 'ab' * 2 }}{{ [1] * 2 + [3] }}{{ (1, 2) < (1, 3) }}
        {{ 'role' in messages[0] }}{{ 'y' not in 'xyz' }}{{ messages[0] == messages[2] }}{{ 1 < 2 <= 2 }}""",
}


def test_a_useful_template_is_rendered_as_without_a_budget():
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from specchat.text.template_sandbox import GenerationTag, _to_json

    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
    )
    plain.filters["tojson"] = lambda value, **options: _unlimited(_to_json, value, **options)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho", "x": [1]}] * 2
    for source in USEFUL.values():
        expected = plain.from_string(source).render(messages=messages)
        assert ChatTemplate(source, {}).render(messages, True) == expected, source


def _unlimited(function, *arguments, **options):
    from specchat.text.template_budget import template_budget

    with template_budget():
        return function(*arguments, **options)


@pytest.mark.parametrize(("fraction", "share"), [(24, 4), pytest.param(1, 1, marks=pytest.mark.full)])
def test_a_hostile_template_is_refused_in_one_sentence(fraction, share):
    """With the whole budget, the slowest take a second or two each, and none takes more memory than there is."""
    tried = dict([*HOSTILE.items()][::share])
    program = PROGRAM % (fraction, MEMORY_BYTES, SECONDS)
    ran = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(tried),
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    results = {name: result for name, result, _seconds in map(json.loads, ran.stdout.splitlines())}

    assert list(results) == list(tried), f"it ended in {list(tried)[len(results)]!r}: {ran.stderr[-300:]}"
    assert not {name for name, text in results.items() if not isinstance(text, str) or not text or "\n" in text}


@each_row("source", [None, "", " \n"])
def test_an_empty_template_is_none_and_the_texts_stand_one_after_the_other(source):
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    template = ChatTemplate(source, {})

    assert template.is_plain and "one\ntwo\n" == template.render(messages, add_generation_prompt=True)


@each_row("template", ["", " ", None])
def test_an_empty_template_of_a_gguf_file_is_none(template):
    metadata = {} if template is None else {"tokenizer.chat_template": template}
    rendered = ChatTemplate(_chat_template(metadata, "<s>"), {"bos_token": "<s>"})

    assert _chat_template(metadata, None) is None
    assert "<s>one\n" == rendered.render([{"role": "user", "content": "one"}], add_generation_prompt=True)
