"""The contract of an edit: what nothing asks for is put back or named, whatever the model wrote."""

from __future__ import annotations

import json

import pytest

from specchat.edit.contract import find_warnings, keep_contract
from specchat.edit.source_text import make_source
from specchat.syntax.languages import LANGUAGES
from tests.front import command
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tools.contract_table import outcomes
from tools.lossy_edits import COUNT, outcomes_of, own_files
from tools.refactoring_cases import read_cases

SHARES = 8  # of the cases with each model; a default run has the first
APP = """\
import os
import json
from flask import Flask, abort

app = Flask(__name__)
LIMIT = 30


def load(path):
    with open(path) as file:
        return json.load(file)


@app.route("/health")
def health():
    return "ok"


def index():
    if not os.path.exists("data.json"):
        abort(404)
    return load("data.json")


app.add_url_rule("/", "index", index)
app.add_url_rule("/home", "home", index)

if __name__ == "__main__":
    app.run(port=8080)
"""
SHAPES = """\
class Shape:
    sides = 0
    name: str = "shape"

    def area(self):
        return 0

    def label(self):
        return f"{self.name} of {self.area()}"


class Square(Shape):
    sides = 4
"""
SCRIPT = """\
import sys

paths = sys.argv[1:]
for path in paths:
    print(path)
print("done")
"""
GO = """\
package main

import (
\t"fmt"
\t"os"
)

const Limit = 10

type Point struct {
\tX int
\tY int
}

func init() { fmt.Println(os.Args) }

func Add(a, b int) int { return a + b }
"""
JS = """\
import { load, save } from "./files.js";
import "./polyfill.js";

const limit = 30;
export class Store {
  items = [];
  add(item) { this.items.push(item); }
  clear() { this.items = []; }
}
export function run() { return load(limit); }
window.addEventListener("load", run);
module.exports = { run, save };
"""
RUST = """\
use std::fs;
mod tests_common;

const LIMIT: u32 = 3;

#[derive(Debug)]
pub struct Point { x: i32, y: i32 }

impl Point {
    fn sum(&self) -> i32 { self.x + self.y }
    fn read() -> String { fs::read_to_string("p").unwrap() }
}
"""
C = """\
#ifndef POINT_H
#define POINT_H
#include <stdio.h>
#include <stdlib.h>

extern int limit;
struct point { int x; int y; };
int sum(struct point p) { return p.x + p.y; }
void show(int n) { printf("%d", n); }
#endif
"""
JAVA = """\
import java.util.List;
import java.util.Map;

class Box {
    private int size = 3;
    static { System.loadLibrary("box"); }
    int size() { return size; }
    @Override public String toString() { return "box"; }
}
"""
BASH = '#!/bin/sh\nset -e\nROOT=/srv\n\nclean() { rm -r "$ROOT/tmp"; }\n\ntrap clean EXIT\nclean\nmake all\n'
JSON = '{\n  "name": "shop",\n  "scripts": {"test": "jest", "lint": "eslint ."},\n  "files": ["a.js", "b.js"]\n}\n'
YAML = "on: push\njobs:\n  test:\n    runs-on: linux\n    steps:\n      - run: make\n      - run: make test\n"
TOML = '[project]\nname = "shop"\nversion = "1.0"\n\n[tool.ruff]\nline-length = 100\n'
CSS = "body { margin: 0; color: red; }\n@media print { nav { display: none; } }\n.card { padding: 1em; }\n"
HTML = '<html><head><script src="a.js"></script></head><body><h1>Shop</h1><p>Welcome</p></body></html>\n'
MARKDOWN = "# Shop\n\nWhat it is.\n\n## Install\n\n- get it\n- run it\n\n## Licence\n\nMIT\n"
RULE = 'app.add_url_rule("/home", "home", index)\n'
MAIN = '\nif __name__ == "__main__":\n    app.run(port=8080)\n'

# language, the text before, the instruction, the text after, and what is said to be lost
# ruff: noqa: E501, ISC004
LOST = [
    ("python", APP, "add a docstring to load", APP.replace(RULE, ""), 'line 26: `app.add_url_rule("/home"'),
    ("python", APP, "add a docstring to load", APP.replace("LIMIT = 30\n", ""), "line 6: `LIMIT = 30`"),
    ("python", APP, "make load faster", APP.replace(MAIN, ""), "line 28: `if __name__"),
    ("python", APP, "make load faster", APP.replace("import json\n", ""), "line 2: `import json`"),
    ("python", APP, "fix index", APP.replace("    app.run(port=8080)\n", "    pass\n"), "line 29: `app.run(port=8080)`"),
    ("python", APP, "fix index", APP.replace('@app.route("/health")\n', ""), 'line 14: `@app.route("/health")`'),
    ("python", APP, "fix index", APP.replace("app = Flask(__name__)\n", ""), "line 5: `app = Flask(__name__)`"),
    ("python", APP, "add a rule for /about", APP.replace(RULE, RULE.replace("home", "about")), "line 26: `app.add_url"),
    ("python", APP, "remove health", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "remove LIMIT, and do not remove app.add_url_rule", APP.replace(RULE, ""), "line 26: `app.add_"),
    ("python", APP, "remove the unused imports", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "remove the unused imports", APP.replace("import json\n", ""), "line 2: `import json`"),
    ("python", APP, "remove unused code", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "Remove unnecessary code", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "fix the typo in pages/strip_tags.py home", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "app: add a limit of uploads", APP.replace("LIMIT = 30", "MAX_BYTES = 30"), "line 6: `LIMIT = 30`"),
    ("python", APP, "write a new limit of bytes", APP.replace("LIMIT = 30", "MAX_BYTES = 30"), "line 6: `LIMIT = 30`"),
    ("python", APP, "remove the last function", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "remove the check in index", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "use pathlib instead of os.path", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "wrap the script in a main function", APP.replace(RULE, ""), "line 26: `app.add_url_rule"),
    ("python", APP, "rename load to read", APP.replace("load", "read").replace("LIMIT = 30\n", ""), "line 6: `LIMIT"),
    ("python", APP, "reformat", APP.replace("import os\n", "").replace(MAIN, ""), "line 1: `import os`"),
    ("python", SHAPES, "add type hints", SHAPES.replace("    sides = 0\n", ""), "line 2: `sides = 0`"),
    ("python", SHAPES, "add type hints", SHAPES.partition("    def label")[0] + SHAPES[-36:], "line 8: `def label"),
    ("python", SHAPES, "add type hints", SHAPES.partition("\n\nclass Square")[0], "line 12: `class Square"),
    ("python", SCRIPT, "wrap it in main", f"{SCRIPT[:11]}def main():\n    {SCRIPT[12:32]}\n\nmain()\n", "line 4: `for path in paths"),
    ("python", SCRIPT, "add a comment", SCRIPT.replace('print("done")\n', ""), 'line 6: `print("done")`'),
    ("go", GO, "document Add", GO.replace("func init() { fmt.Println(os.Args) }\n", ""), "line 15: `func init()"),
    ("go", GO, "document Add", GO.replace("\tY int\n", ""), "line 12: `Y int`"),
    ("go", GO, "document Add", GO.replace("const Limit = 10\n", ""), "line 8: `Limit = 10`"),
    ("javascript", JS, "document run", JS.replace('import "./polyfill.js";\n', ""), 'line 2: `import "./polyfill'),
    ("javascript", JS, "document run", JS.replace('window.addEventListener("load", run);\n', ""), "line 11: `window.add"),
    ("typescript", JS, "document run", JS.replace("  clear() { this.items = []; }\n", ""), "line 8: `clear()"),
    ("tsx", JS, "document run", JS.replace("module.exports = { run, save };\n", ""), "line 12: `module.exports"),
    ("rust", RUST, "document sum", RUST.replace("#[derive(Debug)]\n", ""), "line 6: `#[derive(Debug)]`"),
    ("rust", RUST, "document sum", RUST.replace("mod tests_common;\n", ""), "line 2: `mod tests_common;`"),
    ("rust", RUST, "document sum", RUST.replace(", y: i32 }", " }"), "line 7: `y: i32`"),
    ("c", C, "document sum", C.replace("extern int limit;\n", ""), "line 6: `extern int limit;`"),
    ("c", C, "document sum", C.replace("#include <stdlib.h>\n", ""), "line 4: `#include <stdlib.h>`"),
    ("cpp", C, "document sum", C.replace(" int y;", ""), "line 7: `int y;`"),
    ("java", JAVA, "document size", JAVA.replace('    static { System.loadLibrary("box"); }\n', ""), "line 6: `static"),
    ("java", JAVA, "document size", JAVA.replace("@Override ", ""), "line 8: `@Override`"),
    ("bash", BASH, "quote the variables", BASH.replace("trap clean EXIT\n", ""), "line 7: `trap clean EXIT`"),
    ("json", JSON, "set the name to store", JSON.replace(', "lint": "eslint ."', ""), 'line 3: `"lint": "eslint ."`'),
    ("json", JSON, "set the name to store", JSON.replace(', "b.js"', ""), 'line 4: `"b.js"`'),
    ("yaml", YAML, "run on pull requests", YAML.replace("      - run: make test\n", ""), "line 7: `- run: make test`"),
    ("toml", TOML, "set the version to 2.0", TOML.partition("\n[tool")[0], "line 5: `[tool.ruff]`"),
    ("css", CSS, "make the padding 2em", CSS.replace(" color: red;", ""), "line 1: `color: red;`"),
    ("html", HTML, "fix the heading", HTML.replace("<p>Welcome</p>", ""), "line 1: `<p>Welcome</p>`"),
    ("markdown", MARKDOWN, "fix the spelling", MARKDOWN.partition("\n## Licence")[0], "line 10: `## Licence`"),
]  # fmt: skip
COUNTS = """\
import json
from read import load


def load_all(paths):
    limit = 10
    found = [load(path) for path in paths]
    log(found)
    return found[:limit]


def show(paths):
    log(paths)
    print("limit", len(paths) > 1)


def run(paths):
    log(paths)
    show(load_all(paths))
"""
VAGUE = [  # words that name another place, or none: a value, a copy of a call, a whole text put into itself
    ("limit = 10", "limit = 11", "fix load_all", "line 6: `limit = 10` would become"),
    ("limit = 10", "limit = 11", "set the limit to 20", "line 6: `limit = 10` would become"),
    ("limit = 10", "limit = 11", "support an empty list, see #1", "line 6: `limit = 10` would become"),
    ("> 1)", "> 2)", "handle an empty list in version 1.2", "line 14: `print("),
    ("> 1)", "< 1)", "make show faster", "line 14: `print("),
    ("    log(found)\n", "", "load_all: fix the order", "line 8: `log(found)` would be lost"),
    ("    log(paths)\n    print", "    print", "add a function `clear`", "line 13: `log(paths)` would be lost"),
    ("    log(found)\n", "", "cover the use-case of an empty list", "line 8: `log(found)` would be lost"),
]
ADDED = "\n\ndef clear(paths):\n    log(paths)\n"
NAMED = [
    ("limit = 10", "limit = 20", "load at most 20 files"),
    ("limit = 10", "limit = 20", "increase the limit"),
    ('"limit"', '"size"', 'show "size" instead'),
    ("    log(paths)\n    print", "    print", "show: no longer call `log`"),
]
OTHER = [  # what a small model did to the bodies of real functions
    (
        "python",
        "def find(text):\n    pos = 0\n    while text:\n        pos += 1\n        skip(text)\n    restore(pos)\n    return pos\n",
        "handle an empty text",
        "def find(text):\n    if not text.empty:\n        find(text)\n    return pos\n",
        "line 3: `while text` would be lost",
    ),
    (
        "python",
        "def find(text):\n    runs: dict = {}\n    return runs\n",
        "simplify the loop",
        "def find(text, silent=False):\n    runs = {}\n    return runs\n",
        "line 1: `def find(text)` would become",
    ),
]
MATCH = "impl C {\n    fn from(code: C) -> i32 {\n        match code {\n            C::A => 0,\n            C::B => 1,\n        }\n    }\n}\n"
CUT_OUT = [  # of functions, with nothing in their place, by words about one kind of change or about no removal
    ("go", GO, "import time, too", GO.replace("{ return a + b }", "{ }"), "line 17: `return a + b`"),
    (
        "rust",
        MATCH,
        "rename the parameter code of from to x",
        MATCH.replace("            C::B => 1,\n", ""),
        "line 5: `C::B => 1",
    ),
    ("python", COUNTS, "remove the unused import", COUNTS.replace("    limit = 10\n", ""), "line 6: `limit = 10`"),
    ("python", COUNTS, "return a list of the lengths", COUNTS.replace("    limit = 10\n", ""), "line 6: `limit = 10`"),
    (
        "python",
        COUNTS,
        "support an empty list of paths",
        COUNTS.replace("    return found[:limit]\n", ""),
        "line 9: `return found",
    ),
]
REPLACED = """\
def count(words):
    found = {}
    best = 0
    for word in words:
        found[word] = found.get(word, 0) + 1
        log(word)
    for word in words:
        if best < found[word]:
            best = found[word]
    return best


async def load(path, limit=3):
    data = await read(path)
    if data:
        label = "full"
    else:
        label = "empty"
    return label, data
"""
DROPPED = [  # of functions that the words may be about: what is gone or shorter, with something else or nothing for it
    ("    best = 0\n    for", "    for", "fix the bugs in count", "line 3: `best = 0` would be lost"),
    ("    return best\n", "    print(best)\n", "fix count", "line 10: `return best` would become"),
    (
        "        found[word] = found.get(word, 0) + 1\n        log(word)\n    for word in words:\n",
        "",
        "Make it faster",
        "line 4: `for word in words` would be lost",
    ),
    ("await read", "read", "improve load", "line 14: `data = await read(path)` would become"),
    ('    else:\n        label = "empty"\n', "", "use a better label in load", "line 15: `if data` would become"),
    (", limit=3", ", limit", "make load faster", "line 13: `async def load(path, limit=3)` would become"),
    (", limit=3", ", limit=4", "move limit before load", "line 13: `async def load(path, limit=3)` would become"),
    ("best = 0", "best = 1", "move best below found", "line 3: `best = 0` would become"),
    ('"full"', '"whole"', "make load faster", 'line 16: `label = "full"` would become'),
    (
        "    for word in words:\n        if best < found[word]:\n            best = found[word]\n",
        "",
        "swap the loops in count",
        "line 7: `for word in words` would be lost",
    ),
    ("label, data", "label", "correct load", "line 19: `return label, data` would become"),
]
COUNTED_WORDS = REPLACED.partition("    best = 0\n")[2].partition("\n\n")[0]
REPLACEMENTS = [  # what takes over all that is gone
    ("    best = 0\n    for", "    best = max(words)\n    for", "fix the bugs in count"),
    (f"    best = 0\n{COUNTED_WORDS}", "    for word in words:\n        found[word] = found.get(word, 0) + 1\n        log(word)\n"
     "    return max(found.values())\n", "make count shorter"),
    ('    if data:\n        label = "full"\n    else:\n        label = "empty"\n',
     '    label = "full" if data else "empty"\n', "use a conditional expression in load"),
]  # fmt: skip
COUNTED = "import os\n\n\ndef add(a, b):\n    # the sum\n    return a + b\n"
KEPT = [
    ("python", APP, "add a docstring to load", APP.replace("path):\n", 'path):\n    """Read a file."""\n')),
    ("python", APP, "rename load to read_json", APP.replace("load(", "read_json(")),
    ("python", APP, "rename LIMIT to MAX", APP.replace("LIMIT", "MAX")),
    ("python", APP, "sort the imports", APP.replace("import os\nimport json\n", "import json\nimport os\n")),
    ("python", APP, "one import a line", APP.replace("Flask, abort", "Flask\nfrom flask import abort")),
    ("python", APP, "remove the unused constant", APP.replace("LIMIT = 30\n", "")),
    ("python", APP, "remove LIMIT", APP.replace("LIMIT = 30\n", "")),
    ("python", APP, "remove the rule for /home", APP.replace(RULE, "")),
    ("python", APP, "remove the main guard", APP.replace(MAIN, "")),
    ("python", APP, "delete `health`", APP[: APP.index("@app.route")] + APP[APP.index("def index") :]),
    ("python", APP, "remove the first function", APP[: APP.index("def load")] + APP[APP.index("@app.route") :]),
    ("python", APP, "run on port 80", APP.replace("8080", "80")),
    ("python", APP, "reformat", APP.replace('"', "'").replace("def load(path):", "def load(\n    path,\n):")),
    ("python", APP, "use pathlib instead of os.path", APP.replace("import os\n", "from pathlib import Path\n").replace(
        "os.path.exists(\"data.json\")", "Path(\"data.json\").exists()")),
    ("python", "import os, re\nx = re.compile('a')\n", "remove unused imports", "import re\nx = re.compile('a')\n"),
    ("python", "from a import b, c\nprint(c)\n", "entferne unbenutzte Importe", "from a import c\nprint(c)\n"),
    ("python", SCRIPT, "wrap it in main", "import sys\n\n\ndef main():\n" + "".join(
        f"    {line}\n" for line in SCRIPT.split("\n")[2:-1]) + "\n\nif __name__ == '__main__':\n    main()\n"),
    ("python", SCRIPT, "convert the script to functions", "import sys\n\n\ndef show(paths):\n    for path in paths:\n"
        "        print(path)\n    print('done')\n\n\nshow(sys.argv[1:])\n"),
    ("python", SCRIPT, "use logging instead of print", "import logging\n" + SCRIPT.replace("print", "logging.info")),
    ("python", SCRIPT, "stop printing done", SCRIPT.replace('print("done")\n', "")),
    ("python", SCRIPT, "remove the debug code", SCRIPT.replace('    print(path)\nprint("done")\n', "    pass\n")),
    ("python", COUNTED, "get rid of the comments in add", COUNTED.replace("    # the sum\n", "")),
    ("python", COUNTED, "strip the comments in `add`", COUNTED.replace("    # the sum\n", "")),
    ("python", SCRIPT, "remove the prints", SCRIPT.replace('    print(path)\nprint("done")\n', "    pass\n")),
    ("python", SHAPES, "split label", SHAPES.replace("        return f\"{self.name} of {self.area()}\"", "        return "
        "self._join(self.name)\n\n    def _join(self, name):\n        return f\"{name} of {self.area()}\"")),
    ("python", SHAPES, "merge Square into Shape", SHAPES.partition("\n\nclass Square")[0]),
    ("python", SHAPES, "make the methods functions", "sides = 0\nname: str = 'shape'\n\n\ndef area(shape):\n    return 0\n"
        "\n\ndef label(shape):\n    return f'{shape.name} of {area(shape)}'\n\n\nclass Shape:\n    pass\n\n\n"
        "class Square(Shape):\n    sides = 4\n"),
    ("python", "class P:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n", "make it a dataclass",
        "from dataclasses import dataclass\n\n\n@dataclass\nclass P:\n    x: int\n    y: int\n"),
    ("go", GO, "move Add to the top", GO.replace("const Limit", "func Add(a, b int) int { return a + b }\n\nconst Limit")
        .removesuffix("\nfunc Add(a, b int) int { return a + b }\n")),
    ("javascript", JS, "use let", JS.replace("const ", "let ")),
    ("javascript", JS, "make run an arrow function", JS.replace("function run() { return load(limit); }",
        "const run = () => load(limit);")),
    ("javascript", JS, "remove the method clear", JS.replace("  clear() { this.items = []; }\n", "")),
    ("rust", RUST, "derive Clone, too", RUST.replace("Debug", "Clone, Debug")),
    ("c", C, "remove the unused include", C.replace("#include <stdlib.h>\n", "")),
    ("java", JAVA, "remove the unused imports", JAVA.replace("import java.util.Map;\n", "")),
    ("bash", BASH, "use /tmp as root", BASH.replace("/srv", "/tmp")),
    ("json", JSON, "remove the lint script", JSON.replace(', "lint": "eslint ."', "")),
    ("yaml", YAML, "run ruff, too", YAML + "      - run: ruff check\n"),
    ("toml", TOML, "set the version to 2.0", TOML.replace("1.0", "2.0")),
    ("css", CSS, "replace red by blue", CSS.replace("red", "blue")),
    ("html", HTML, "write Hello instead of Welcome", HTML.replace("Welcome", "Hello")),
    ("markdown", MARKDOWN, "translate it to German", "# Laden\n\nWas es ist.\n\n## Einrichten\n\n- hol es\n- starte es\n\n"
        "## Lizenz\n\nMIT\n"),
    ("", "a\nb\n", "sort", "b\n"),
]  # fmt: skip


def test_what_is_lost_without_being_asked_for_is_named_with_its_line():
    wrong = list[str]()
    for language, before, instruction, after, expected in LOST + OTHER + CUT_OUT:
        assert before != after, instruction
        said = found(language, before, after, instruction)
        if not any(expected in each for each in said):
            wrong.append(f"{language}, {instruction!r}: {said} instead of {expected}")
    for old, new, instruction, expected in VAGUE:
        said = found("python", COUNTS, COUNTS.replace(old, new, 1) + ADDED, instruction)
        if not any(expected in each for each in said):
            wrong.append(f"{instruction!r}: {said} instead of {expected}")
    for old, new, instruction in NAMED:
        if said := found("python", COUNTS, COUNTS.replace(old, new, 1), instruction):
            wrong.append(f"{instruction!r}: {said}, though it is asked for")
    twice = COUNTS.replace("    return found[:limit]\n", f"    return found[:limit]\n\n{COUNTS}")
    if not any("`import json` would be added" in each for each in found("python", COUNTS, twice, "fix load_all")):
        wrong.append("the text in itself")
    for language, before, instruction, after in KEPT:
        if said := found(language, before, after, instruction):
            wrong.append(f"{language}, {instruction!r}: {said}, though it is asked for")
    assert not wrong, "\n".join(wrong)


def test_what_is_gone_from_a_function_has_something_in_its_place():
    wrong = list[str]()
    for old, new, instruction, expected in DROPPED:
        assert old in REPLACED, old
        said = found("python", REPLACED, REPLACED.replace(old, new, 1), instruction)
        if not any(expected in each for each in said):
            wrong.append(f"{instruction!r}: {said} instead of {expected}")
    for old, new, instruction in REPLACEMENTS:
        assert old in REPLACED, old
        if said := found("python", REPLACED, REPLACED.replace(old, new, 1), instruction):
            wrong.append(f"{instruction!r}: {said}, though it is replaced")
    assert not wrong, "\n".join(wrong)


def found(language: str, before: str, after: str, instruction: str) -> list[str]:
    """What is said about a new text."""
    source = make_source(before.encode(), f"a{LANGUAGES[language].suffixes[0] if language else '.txt'}")
    return [str(each) for each in find_warnings(source, after, instruction).deviations]


@pytest.mark.parametrize("count", [22, pytest.param(COUNT, marks=pytest.mark.full)])
def test_what_is_spoiled_beside_the_asked_change_is_never_written(count):
    results = [(kind, case.name, case.instruction, result) for kind, case, _answer, result, _why in outcomes_of(
        own_files(), count)]  # fmt: skip

    assert count == len(results)
    assert not [each for each in results if each[-1] == "WRONG WRITTEN"]


def test_a_brace_that_is_put_back_has_the_indentation_of_the_file():
    before = "fn f(a: u8) -> u8 {\n    a\n}\nmod m {\n    g! {\n        x\n    }\n}\n"
    lossy = before.replace("a: u8", "b: u8").replace("    a\n", "    b\n").replace("    g! {\n        x\n    }\n", "")

    kept = keep_contract(make_source(before.encode(), "a.rs"), lossy, "rename the parameter a to b")

    assert before.replace("a: u8", "b: u8").replace("    a\n", "    b\n") == kept.text


@pytest.mark.parametrize("share", [0, *(pytest.param(each, marks=pytest.mark.full) for each in range(1, SHARES))])
def test_no_model_writes_what_nothing_asked_for_and_a_right_answer_is_taken(share):
    wrong = list[str]()
    for case, model, result, why in outcomes(share, SHARES):
        is_good_answer = model in ("perfect", "talkative")
        if result == "WRONG WRITTEN" or (is_good_answer and result != "right"):
            wrong.append(f"{model}, {case.name}, {case.instruction!r}: {result}: {why}")
    assert not wrong, "\n".join(wrong)


def test_the_blank_lines_between_imports_may_go_where_these_are_sorted_and_no_others():
    before, grouped = "import re\n\nimport os\n\nx = 1\n\ny = 2\n", "import os\nimport re\n"
    after = "import os\nimport re\n\nx = 1\ny = 2\n"

    def kept(old, new, instruction):
        return keep_contract(make_source(old.encode(), "a.py"), new, instruction).text

    assert after.replace("x = 1\n", "x = 1\n\n") == kept(before, after, "sort the imports")
    assert grouped == kept("import os\n\nimport re\n", grouped, "group the imports")
    assert "import os\n\nimport re\n" == kept("import os\n\nimport re\n", grouped, "document the imports")


def test_lines_that_are_put_back_have_the_blank_lines_of_the_file():
    old = "X = 1\n\n\ndef f(a):\n    check(a)\n\n    # the end\n    return a\n\n\ndef g(b):\n    return b\n"
    renamed = old.replace("(b)", "(c)").replace("return b", "return c")
    new = renamed.replace("    check(a)\n\n", "")
    kept = keep_contract(make_source(old.encode(), "a.py"), new, "rename b to c in g")

    assert renamed == kept.text


@pytest.mark.full
def test_what_the_syntax_tree_does_keeps_the_contract():
    wrong = list[str]()
    for case in read_cases():
        words = str(case.operation)
        for name, before in case.files.items() if case.after else ():
            warnings = find_warnings(make_source(before.encode(), name), (case.after or {})[name], words)
            wrong += [f"{words}: {warnings.summary}\n{before}"] if warnings.worst_problem else []
    assert not wrong, "\n".join(wrong)


RUN = "start = 1\nrun(start)\n"
INSTRUCTION = "write start = 1"  # the fake engine answers with what follows the verb
REASON = "line 2: `run(start)` would be lost, nothing asked for that"


@pytest.mark.usefixtures("runtime")
def test_every_front_end_without_a_review_refuses_it_and_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, wrong = tmp_path / "a.py", list[str]()
    call = json.dumps({"path": "a.py", "instruction": INSTRUCTION})
    agent = f"agent\ncall edit {call}\ndone"
    ways = {
        "edit -y": (["edit", "a.py", "-y", INSTRUCTION], b"", 8),
        "edit -y --json": (["edit", "a.py", "-y", "--json", INSTRUCTION], b"", 8),
        "edit -": (["edit", "-", "--lang", "py", "--stderr", INSTRUCTION], RUN.encode(), 8),
        "script": (["-p", f"/edit a.py {INSTRUCTION}", "--json", "--edit", "auto"], b"", 8),
        "chat": (["chat"], f"/edit a.py {INSTRUCTION}\nn\n".encode(), None),
        "agent": (["-p", agent, "--json", "--agent", "--allow", "edit"], b"", 0),
    }
    for name, (arguments, stdin, code) in ways.items():
        file.write_text(RUN)
        ran = command(monkeypatch, *arguments, stdin=stdin)
        said = ran.err + ran.out.decode()
        if REASON not in said or file.read_text() != RUN or code not in (None, ran.code):
            wrong.append(f"{name}: exit code {ran.code}, {said}")
    assert not wrong, "\n".join(wrong)


def test_a_carriage_return_in_a_line_stays_whatever_a_model_makes_of_it():
    for name, sign in (("a.js", "//"), ("a.txt", "")):
        before = f"{sign} one \r two\n{sign} three\t\nlet four = 4\n"
        for written in ("\n", "", " ", "\r"):
            new = before.replace("\r", written).replace("four", "five").replace("\t", "")

            kept = keep_contract(make_source(before.encode(), name), new, "replace `four` by `five`")

            assert (before.replace("four", "five"), None) == (kept.text, kept.warnings.worst_problem), (name, written)


@pytest.mark.full
def test_data_that_is_nested_without_end_is_no_trouble():
    for one, other in (('{"a":', "}"), ("[", "]")):
        deep = one * 5000 + "1" + other * 5000
        assert [] == found("json", deep, deep.replace("1", "2"), "set it to 2")


def test_a_call_in_a_function_is_not_lost_unasked():
    old = "def work(a):\n    b = a + 1\n    log(a, b)\n    return b\n"
    source, new = make_source(old.encode(), "a.py"), old.replace("    log(a, b)\n", "").replace("a + 1", "1 + a")

    assert "line 3: `log(a, b)`" in find_warnings(source, new, "swap the operands").summary
    assert not find_warnings(source, new, "remove the call of log").deviations


LOAD = """\
def load(path, mode="r"):
    with open(path, "r") as file:
        return file.read()


def show(path):
    print(load(path))
"""
MISSING = [
    ("add logging to load", '"r")', '"rb")', "logging"),
    ("add a docstring to load and read bytes", '"r")', '"rb")', "docstring"),
    ("add a comment above load", "def show", "# shows it\ndef show", ""),
    ("add a parameter timeout to load", 'mode="r")', 'mode="r", limit=1)', "`timeout`"),
    ("add an import of json", '"r")', '"rt")', "import"),
    ("add type hints to load", "file", "source", ""),  # a postcondition of its own
    ("add error handling to load", "file.read()", "file.read().strip()", "error handling"),
    ("add a test for show", "def show(path)", "def show(paths)", "test"),
    ("add a method `clear`", "def show", "def clean():\n    pass\n\n\ndef show", "`clear`"),
    ("add a retry_count constant", "def load", "RETRIES = 3\n\n\ndef load", "`retry_count`"),
    ("add a log level parameter to load", 'mode="r")', 'mode="r", level=1)', ""),
    ('in load, replace the mode "r" by "rb"', '"r")', '"rt")', '"rb"'),
    ('in load, replace the mode "r" by "rb"', '"r")', '"rb")', ""),
    ("change `show` to 'display'", "print(load(path))", "pass", "'display'"),
    ('replace "r" with a constant and "t" by nothing', '"r")', "MODE)", ""),
    ("add logging to load", "    with", "    logging.info(path)\n    with", ""),
]


def test_what_was_to_be_added_has_to_be_there():
    wrong = list[str]()
    for instruction, old, new, missing in MISSING:
        assert old in LOAD
        found = find_warnings(make_source(LOAD.encode(), "a.py"), LOAD.replace(old, new), instruction)
        if found.missing != missing:
            wrong.append(f"{instruction}: {found.missing!r} instead of {missing!r}")
    assert not wrong, "\n".join(wrong)
