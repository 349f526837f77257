"""The contract of an edit with models that fail in typical ways: right, put back, refused, or wrong and written.

Each case is an edit of a small file. A scripted model answers with the right text, with the right text amid talk, with
the first half of it and a promise, without a statement that was to stay, without a call in a function, with another
call, with another constant, and with other tabs and blanks.

    python -m tools.contract_table
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import click

from specchat.app.edit_task import EditJob, EditResult, run_edit
from specchat.edit.contract import check_unreviewed
from specchat.edit.edit_turn import EditRun, result_of
from specchat.edit.source_text import make_source
from specchat.errors import SpecchatError
from specchat_bench.columns import markdown_table
from tools.answer_styles import PerfectModel, fenced, half

WINDOW_TOKENS = 10**5
OUTCOMES = ("right", "put back", "refused", "WRONG WRITTEN")


@dataclass(frozen=True)
class ContractCase:
    """An edit, and what else a bad model does: the lines that it loses, and the value that it changes."""

    name: str
    text: str
    instruction: str
    changes: tuple[tuple[str, str], ...]
    statement: str
    call: str
    value: tuple[str, str]

    @property
    def right(self) -> str:
        text = self.text
        for old, new in self.changes:
            assert old in text, (self.name, old)
            text = text.replace(old, new, 1)
        return text

    def without(self, lines: str) -> str:
        assert not lines or lines in self.right, (self.name, lines)
        return self.right.replace(lines, "", 1) if lines else ""

    @property
    def with_another_value(self) -> str:
        old, new = self.value
        assert not old or old in self.right, (self.name, old)
        return self.right.replace(old, new, 1) if old else ""


PYTHON = '''\
"""Reads settings."""

import json
import os

LIMIT = 30
RETRIES = {"get": 3, "put": 5}
os.umask(0o077)


class Store:
    """What was read."""

    size = 10

    def __init__(self, path):
        self.path = path
        self.items = []
        self.items.append(path)

    def load(self):
        # the file may be large
        with open(self.path) as file:
            text = file.read(LIMIT)
        self.check(text)
        return json.loads(text)

    def check(self, text):
        if len(text) > self.size:
            raise ValueError(text)


def main():
    store = Store("a.json")
    print(store.load())
    os.sync()


main()
'''
JAVASCRIPT = """\
import { readFile } from "./files.js";

const LIMIT = 30;
let count = 0;

export function load(path) {
  const text = readFile(path, LIMIT);
  check(text);
  return JSON.parse(text);
}

// counts the calls
function check(text) {
  count += 1;
  report(count);
  if (text.length > 100) {
    throw new Error("too long");
  }
}

window.addEventListener("load", () => load("a.json"));
"""
TYPESCRIPT = """\
export interface Item {
  name: string;
  size: number;
}

export class Store {
  private items: Item[] = [];
  readonly limit: number = 30;

  add(item: Item): void {
    this.check(item);
    this.items.push(item);
  }

  private check(item: Item): void {
    log(item.name);
    if (item.size > this.limit) throw new Error("too large");
  }
}

register(Store);
"""
GO = """\
package store

import (
\t"fmt"
\t"os"
)

const Limit = 30

// Load reads a file.
func Load(path string) (string, error) {
\tdata, err := os.ReadFile(path)
\tif err != nil {
\t\treturn "", err
\t}
\tcheck(data)
\treturn string(data), nil
}

func check(data []byte) {
\tfmt.Println(len(data))
\tif len(data) > 100 {
\t\tpanic("too long")
\t}
}

func init() {
\tos.Setenv("STORE", "1")
}
"""
RUST = """\
use std::fs;

const LIMIT: usize = 30;

#[derive(Debug)]
pub struct Store {
    path: String,
    size: usize,
}

impl Store {
    pub fn load(&self) -> String {
        let text = fs::read_to_string(&self.path).unwrap();
        check(&text);
        text
    }
}

fn check(text: &str) {
    report(text.len());
    if text.len() > 100 {
        panic!("too long");
    }
}
"""
C = """\
#include <stdio.h>
#include <stdlib.h>

#define LIMIT 30
static int count = 0;

int load(const char *path) {
    FILE *file = fopen(path, "r");
    check(file);
    count = count + 1;
    return count;
}

void check(FILE *file) {
    if (file == NULL) {
        perror("load");
        exit(2);
    }
}
"""
JAVA = """\
import java.util.ArrayList;
import java.util.List;

class Store {
    private static final int LIMIT = 30;
    private final List<String> items = new ArrayList<>();

    void add(String item) {
        check(item);
        items.add(item);
    }

    private void check(String item) {
        System.out.println(item);
        if (item.length() > 100) {
            throw new IllegalArgumentException(item);
        }
    }
}
"""
TOML = """\
[project]
name = "shop"
version = "1.0"
# the oldest that works
requires-python = ">=3.11"

[tool.ruff]
line-length = 100
fix = true
"""
YAML = """\
name: tests
on: push
jobs:
  test:
    runs-on: linux
    timeout-minutes: 10
    steps:
      - run: make
      - run: make test
"""
MARKDOWN = """\
# Shop

What it is.

## Install

- get it
- run it 3 times

## Licence

MIT
"""
CASES = (
    ContractCase("a.py", PYTHON, "add a docstring to Store.load", (
        ("    def load(self):\n", '    def load(self):\n        """Read the file."""\n'),),
        "os.umask(0o077)\n", "        self.check(text)\n", ("LIMIT = 30", "LIMIT = 300")),
    ContractCase("a.py", PYTHON, "add docstrings to all functions and methods", (
        ("    def load(self):\n", '    def load(self):\n        """Read the file."""\n'),
        ("    def check(self, text):\n", '    def check(self, text):\n        """Is it short?"""\n'),
        ("def main():\n", 'def main():\n    """Print it."""\n'),),
        "    size = 10\n", "    os.sync()\n", ('"put": 5', '"put": 6')),
    ContractCase("a.py", PYTHON, "in check, raise TypeError for bytes", (
        ("        if len", "        if isinstance(text, bytes):\n            raise TypeError(text)\n        if len"),),
        "main()\n", "        self.items.append(path)\n", ("LIMIT = 30", "LIMIT = 31")),
    ContractCase("a.py", PYTHON, "add type hints to `check`", (
        ("def check(self, text):", "def check(self, text: str) -> None:"),),
        "        self.items = []\n", "    os.sync()\n", ("size = 10", "size = 11")),
    ContractCase("a.py", PYTHON, "make load return None for a missing file", (
        ("        # the", "        if not os.path.exists(self.path):\n            return None\n        # the"),),
        "    size = 10\n", "    os.sync()\n", ('"get": 3', '"get": 4')),
    ContractCase("a.py", PYTHON, "add a method clear to Store that empties items", (
        ("\n    def check", "\n    def clear(self):\n        self.items = []\n\n    def check"),),
        'RETRIES = {"get": 3, "put": 5}\n', "        self.check(text)\n", ("0o077", "0o027")),
    ContractCase("a.py", PYTHON, "log the path", (
        ("import json\n", "import json\nimport logging\n"),
        ("        # the file may", "        logging.info(self.path)\n        # the file may"),),
        "os.umask(0o077)\n", "    os.sync()\n", ("LIMIT = 30", "LIMIT = 20")),
    ContractCase("a.js", JAVASCRIPT, "add a JSDoc comment to load", (
        ("export function load", "/** Reads a file. */\nexport function load"),),
        "let count = 0;\n", "  report(count);\n", ("LIMIT = 30", "LIMIT = 40")),
    ContractCase("a.js", JAVASCRIPT, "in load, return null for an empty text", (
        ("  return JSON", '  if (text === "") return null;\n  return JSON'),),
        'window.addEventListener("load", () => load("a.json"));\n', "  report(count);\n", ("> 100", "> 10")),
    ContractCase("a.ts", TYPESCRIPT, "add a method `clear` to Store", (
        ("  private check", "  clear(): void {\n    this.items = [];\n  }\n\n  private check"),),
        "  size: number;\n", "    this.check(item);\n", ("number = 30", "number = 31")),
    ContractCase("a.go", GO, "document check", (
        ("func check", "// check prints the length.\nfunc check"),),
        "const Limit = 30\n", '\tos.Setenv("STORE", "1")\n', ("> 100", "> 10")),
    ContractCase("a.go", GO, "in `check`, allow 200 bytes", (("> 100", "> 200"),),
        "const Limit = 30\n", "\tcheck(data)\n", ("Limit = 30", "Limit = 60")),
    ContractCase("a.rs", RUST, "add a comment above check", (("fn check", "// not too long\nfn check"),),
        "    size: usize,\n", "        check(&text);\n", ("= 30", "= 31")),
    ContractCase("a.rs", RUST, "implement Clone for Store, too", (("#[derive(Debug)]", "#[derive(Clone, Debug)]"),),
        "use std::fs;\n", "    report(text.len());\n", ("= 30", "= 31")),
    ContractCase("a.c", C, "in load, print the path", (
        ("    check(file);", '    printf("%s\\n", path);\n    check(file);'),),
        "static int count = 0;\n", '        perror("load");\n', ("exit(2)", "exit(0)")),
    ContractCase("A.java", JAVA, "add a method size to Store", (
        ("    private void check", "    int size() {\n        return items.size();\n    }\n\n    private void check"),),
        "    private static final int LIMIT = 30;\n", "        check(item);\n", ("> 100", "> 1000")),
    ContractCase("a.toml", TOML, 'bump the version to "1.1"', (('version = "1.0"', 'version = "1.1"'),),
        "fix = true\n", "", ("line-length = 100", "line-length = 120")),
    ContractCase("a.toml", TOML, "add the key readme with README.md to project", (
        ('version = "1.0"\n', 'version = "1.0"\nreadme = "README.md"\n'),),
        'name = "shop"\n', "", ("line-length = 100", "line-length = 88")),
    ContractCase("a.yaml", YAML, "run ruff, too", (
        ("      - run: make\n", "      - run: make\n      - run: ruff check\n"),),
        "    runs-on: linux\n", "", ("timeout-minutes: 10", "timeout-minutes: 5")),
    ContractCase("a.md", MARKDOWN, "add a section Usage after Install", (
        ("## Licence", "## Usage\n\nCall it.\n\n## Licence"),), "- get it\n", "", ("", "")),
)  # fmt: skip


def lazy(case: ContractCase) -> str:
    return half(case.name, case.right)


def with_another_call(case: ContractCase) -> str:
    return case.right.replace(case.call, re.sub(r"(\w)\(", r"\1_all(", case.call, count=1), 1) if case.call else ""


def with_other_blanks(case: ContractCase) -> str:
    """Tabs for blanks, or blanks for tabs, blanks at the ends of lines, and one more blank line."""
    if case.name.endswith((".yaml", ".md")):
        return ""  # where they may mean something
    width = 2 if case.name.endswith((".js", ".ts")) else 4
    lines = [
        line.replace("\t", " " * width) if "\t" in case.right else re.sub(rf" {{{width}}}(?= *\S)", "\t", line)
        for line in case.right.split("\n")
    ]
    known = case.text.split("\n")
    text = "\n".join(f"{line}  " if line.strip() and known.count(old) == 1 == case.right.count(f"{old}\n") else line
                     for line, old in zip(lines, case.right.split("\n"), strict=True))  # fmt: skip
    return text.replace("\n\n", "\n\n\n", 1)


MODELS: Mapping[str, Callable[[ContractCase], str]] = {
    "perfect": lambda case: case.right,
    "talkative": lambda case: f"Sure! I did what you asked for:\n\n{fenced(case.right)}\n\nThe rest stays as it was.",
    "lazy": lazy,
    "loses a statement": lambda case: case.without(case.statement),
    "loses a call": lambda case: case.without(case.call),
    "calls another function": with_another_call,
    "changes a constant": lambda case: case.with_another_value,
    "other tabs and blanks": with_other_blanks,
}


def outcome(case: ContractCase, answer: str) -> tuple[str, str]:
    """What `-y` does with an answer, as one of OUTCOMES, and why."""
    source = make_source(case.text.encode(), case.name)
    try:
        result = result_of(run_edit(EditJob(source, case.instruction, WINDOW_TOKENS), EditRun(PerfectModel(answer))))
        check_unreviewed(source, result.warnings)
    except SpecchatError as error:
        return "refused", str(error)
    return _written(case, answer, result)


def _written(case: ContractCase, answer: str, result: EditResult) -> tuple[str, str]:
    why = "; ".join(map(str, result.warnings.put_back))
    if result.text != case.right:
        return "WRONG WRITTEN", why or result.text
    return ("put back" if answer != case.right and case.right not in answer else "right"), why


def outcomes(share: int = 0, shares: int = 1) -> Iterator[tuple[ContractCase, str, str, str]]:
    """Each case with each model, or with every so many of them: what becomes of it, and why."""
    for number, case in enumerate(CASES):
        for place, (model, answer) in enumerate(MODELS.items()):
            if (number + place) % shares == share and (text := answer(case)):
                yield case, model, *outcome(case, text)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--reasons", is_flag=True, help="say why, for each answer that is not right")
def main(*, reasons: bool) -> None:
    """Print a table with a row for each model."""
    counts: dict[str, Counter[str]] = {model: Counter() for model in MODELS}
    for case, model, result, why in outcomes():
        counts[model][result] += 1
        if reasons and result != "right":
            click.echo(f"{model}: {case.name}: {case.instruction}: {result}: {why}", err=True)
    rows = [[model, str(each.total()), *(str(each[name]) for name in OUTCOMES)] for model, each in counts.items()]
    click.echo(markdown_table(["model", "edits", *OUTCOMES], rows))


if __name__ == "__main__":
    main()
