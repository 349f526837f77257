"""Mechanical edits of real Python files: how many the syntax tree does, and whether each is right by another method.

The truth never comes from the code that is measured. A renaming is right when Python compiles the new text to the same
instructions, every name of one binding changed and no other, and the name that was meant among them. A removal or a
new value is right when the new text has the syntax tree (`ast`) that the old one has after the change. Imports are
shuffled, or unused ones are added, and the genuine text has to come back.

    python -m tools.measure_refactorings --files corpus.jsonl.gz --count 300
"""

from __future__ import annotations

import ast
import dis
import gzip
import io
import json
import random
import re
import subprocess
import sys
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType

import click
from ruff import find_ruff_bin

from specchat.edit.source_text import make_source
from specchat.refactoring import RefusedError, plan_refactorings
from specchat_bench.columns import markdown_table

MAX_CHARACTERS = 60_000
MAX_SHOWN = 5  # refusals and wrong edits of each kind
RENAMED = "renamed_{}"
# Instructions that say nothing about names; how a method is called depends on where it stands in the line.
IGNORED_INSTRUCTIONS = frozenset(
    ("MAKE_CELL", "COPY_FREE_VARS", "EXTENDED_ARG", "CACHE", "RESUME", "PUSH_NULL", "PRECALL")
)  # fmt: skip
CLOSURE_INSTRUCTIONS = frozenset(("LOAD_CLOSURE",))
DIRECTIVES = re.compile(
    r"#!|#.*coding[:=]|#\s*(SPDX-|type:|noqa|pragma|pylint:|mypy:|pyright:|pyre-|ruff:|flake8:|isort:|fmt:|nosec)",
    re.IGNORECASE,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOGGERS = frozenset(("logging", "logger", "log", "_logger", "_log", "LOGGER", "LOG"))
LEVELS = frozenset(("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"))


@dataclass(frozen=True)
class Case:
    """An instruction for a text, and a check of the new text that says what is wrong with it, or ""."""

    kind: str
    text: str
    instruction: str
    problem: Callable[[str], str]


# Renaming, checked by what Python compiles


def rename_cases(text: str, tree: ast.Module, rng: random.Random) -> Iterator[Case]:
    targets = _rename_targets(tree)
    for kind, found in targets.items():
        if found:
            node, old, words = rng.choice(found)
            new = RENAMED.format(old.strip("_").lower())
            instruction = f"rename the {words.format(f'`{old}`')} to `{new}`"
            yield Case(f"rename {kind}", text, instruction, _renaming_problem(text, node, old, new, kind))


def _rename_targets(tree: ast.Module) -> dict[str, list[tuple[ast.AST, str, str]]]:
    """The names of a text by kind: the node that defines each, the name, and how an instruction names it."""
    targets: dict[str, list[tuple[ast.AST, str, str]]] = defaultdict(list)
    functions = Counter(each.name for each in ast.walk(tree) if isinstance(each, FUNCTIONS))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            targets["class"].append((node, node.name, "class {}"))
            methods = [each for each in node.body if isinstance(each, FUNCTIONS)]
            targets["method"] += [(each, each.name, f"method {{}} of `{node.name}`") for each in methods]
            fields = [each for each in ast.walk(node) if isinstance(each, ast.Attribute) and _is_own(each)]
            targets["attribute"] += [(each, each.attr, f"attribute {{}} of `{node.name}`") for each in fields]
        if isinstance(node, FUNCTIONS) and functions[node.name] == 1:
            arguments = [each for each in (*node.args.args, *node.args.kwonlyargs) if each.arg not in ("self", "cls")]
            targets["parameter"] += [(each, each.arg, f"parameter {{}} of `{node.name}`") for each in arguments]
            targets["local variable"] += [
                (each, each.id, f"variable {{}} in `{node.name}`") for each in _own_locals(node)
            ]
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            targets["function"].append((node, node.name, "function {}"))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            targets["global variable"].append((node.targets[0], node.targets[0].id, "global variable {}"))
    return {kind: [each for each in found if not each[1].startswith("__")] for kind, found in targets.items()}


def _is_own(node: ast.Attribute) -> bool:
    """Whether `self.x` is assigned there."""
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _own_locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Name]:
    """Names that a function assigns and neither takes as parameters nor shares."""
    shared = {name for each in ast.walk(function) if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    taken = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    found: list[ast.Name] = []
    for statement in function.body:
        nested = (
            ast.FunctionDef,
            ast.AsyncFunctionDef,
            ast.ClassDef,
            ast.Lambda,
            ast.ListComp,
            ast.SetComp,
            ast.DictComp,
            ast.GeneratorExp,
        )
        stack: list[ast.AST] = [statement]
        while stack:
            node = stack.pop()
            if isinstance(node, nested):
                continue
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in shared | taken:
                found.append(node)
            stack.extend(ast.iter_child_nodes(node))
    return [each for each in found if not each.id.startswith("__") and each.id != "_"]


def _renaming_problem(text: str, target: ast.AST, old: str, new: str, kind: str) -> Callable[[str], str]:
    def problem(new_text: str) -> str:
        pairs = _walk_pairs(ast.parse(text), ast.parse(new_text))
        place = (target.lineno, target.col_offset)  # type: ignore[attr-defined]
        is_target = [
            _name_of(other)
            for one, other in pairs
            if type(one) is type(target) and (one.lineno, one.col_offset) == place  # type: ignore[attr-defined]
        ]
        if is_target[:1] != [new]:
            return f"the name that was meant is {is_target}"
        if kind in ("method", "attribute"):
            return _attribute_problem(pairs, old, new)
        return compare_programs(text, new_text, old, new)

    return problem


def _walk_pairs(one: ast.AST, other: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    return list(zip(ast.walk(one), ast.walk(other), strict=True))


def _name_of(node: ast.AST) -> str:
    return next(filter(None, (getattr(node, field, "") for field in ("name", "id", "arg", "attr"))), "")


def _attribute_problem(pairs: Sequence[tuple[ast.AST, ast.AST]], old: str, new: str) -> str:
    """Only the name may differ. Which attributes are meant is not checked: Python does not know it either."""
    for one, other in pairs:
        for field in ("id", "attr", "name", "arg"):
            before, after = getattr(one, field, None), getattr(other, field, None)
            if before != after and (before, after) != (old, new):
                return f"{before} became {after}"
    return ""


def compare_programs(text: str, new_text: str, old: str, new: str) -> str:
    """What is wrong with a renaming, by the instructions that Python compiles: "" when nothing is."""
    with warnings.catch_warnings(action="ignore"):
        codes = [compile(each, "text", "exec", dont_inherit=True, optimize=0) for each in (text, new_text)]
    comparison = _Comparison(old, new)
    try:
        comparison.compare(codes[0], codes[1], (), ())
    except _DifferentError as different:
        return str(different)
    return comparison.problem()


class _DifferentError(Exception):
    """Two programs differ in more than names."""


class _Comparison:
    """The pairs of names at the same places of two programs, each with the binding that it belongs to."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new
        self.pairs: set[tuple[tuple[object, ...], tuple[object, ...]]] = set()

    def compare(
        self, one: CodeType, other: CodeType, outer: tuple[CodeType, ...], new_outer: tuple[CodeType, ...]
    ) -> None:
        left, right = (list(_instructions(each)) for each in (one, other))
        if [name for name, _value in left] != [name for name, _value in right]:
            raise _DifferentError(f"{one.co_name} has other instructions")
        for (name, before), (_name, after) in zip(left, right, strict=True):
            if isinstance(before, CodeType) and isinstance(after, CodeType):
                self.compare(before, after, (*outer, one), (*new_outer, other))
            elif name == "CLOSURE":
                self._compare_closures(before, after)
            elif _is_name_instruction(name):
                keys = _binding(one, outer, name, str(before)), _binding(other, new_outer, name, str(after))
                self.pairs.add(keys)
            elif before != after and not self._is_renamed(before, after):
                raise _DifferentError(f"{before!r} became {after!r}")
        for names in ((one.co_varnames, other.co_varnames),):
            for before, after in zip(*names, strict=True):
                self.pairs.add((("local", _place(one), before), ("local", _place(other), after)))

    def problem(self) -> str:
        forward: dict[object, object] = {}
        backward: dict[object, object] = {}
        for before, after in self.pairs:
            if forward.setdefault(before, after) != after or backward.setdefault(after, before) != before:
                return f"{before[-1]} and {after[-1]} are mixed up"
            if before[-1] != after[-1] and not self._is_renamed(before[-1], after[-1]):
                return f"{before[-1]} became {after[-1]}"
        changed = [before for before, after in self.pairs if before[-1] != after[-1] and "__" not in str(before[-1])]
        return f"{len(changed)} bindings changed" if len(changed) > 1 else ""

    def _compare_closures(self, before: object, after: object) -> None:
        """The variables that a function passes on; they are sorted by name."""
        assert isinstance(before, frozenset)
        assert isinstance(after, frozenset)
        names: list[object] = [self.new if name == self.old and self.new in after else name for name in before]
        if frozenset(names) != after:
            raise _DifferentError(f"{set(before)} became {set(after)}")

    def _is_renamed(self, before: object, after: object) -> bool:
        """Whether a constant is the same but for the name: keyword names, annotations, docstrings."""
        if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
            return all(one == other or self._is_renamed(one, other) for one, other in zip(before, after, strict=True))
        if not isinstance(before, str) or not isinstance(after, str):
            return False
        names = "|".join(map(re.escape, (self.old, self.new)))
        # a class is also a part of the names that begin with two underscores in it
        private = "|".join(re.escape(name.lstrip("_")) for name in (self.old, self.new))
        word = re.compile(rf"(?<!\w)(?:(?:{names})(?!\w)|_(?:{private})(?=__))")
        return word.sub("?", before) == word.sub("?", after)


def _instructions(code: CodeType) -> Iterator[tuple[str, object]]:
    closure: set[str] = set()
    for each in dis.get_instructions(code):
        if each.opname in IGNORED_INSTRUCTIONS:
            continue
        if each.opname in CLOSURE_INSTRUCTIONS:
            closure.add(str(each.argval))
            continue
        if closure:
            yield "CLOSURE", frozenset(closure)
            closure = set()
        is_jump = each.opcode in dis.hasjrel or each.opcode in dis.hasjabs
        yield (
            each.opname.replace("LOAD_METHOD", "LOAD_ATTR"),
            0 if is_jump or each.opname == "BUILD_TUPLE" else each.argval,
        )


def _is_name_instruction(name: str) -> bool:
    return name.endswith(("_NAME", "_GLOBAL", "_FAST", "_DEREF", "_CLASSDEREF")) and name != "IMPORT_NAME"


def _place(code: CodeType) -> tuple[object, ...]:
    return (code.co_firstlineno, code.co_qualname.count("."), code.co_flags & 3, len(code.co_code))


def _binding(code: CodeType, outer: tuple[CodeType, ...], instruction: str, name: str) -> tuple[object, ...]:
    """Which binding a name in a code object is, as Python decided when it compiled it."""
    if instruction.endswith("_FAST"):
        return ("local", _place(code), name)
    if "DEREF" in instruction:
        owner = next((each for each in (code, *reversed(outer)) if name in each.co_cellvars), code)
        return ("local", _place(owner), name)
    is_class = not code.co_flags & 2 and outer
    if is_class and instruction != "LOAD_GLOBAL" and _stores(code, name):
        return ("class", _place(code), name)
    return ("global", name)


def _stores(code: CodeType, name: str) -> bool:
    return any(each.opname == "STORE_NAME" and each.argval == name for each in dis.get_instructions(code))


# Removals and values, checked by syntax trees


class _Remover(ast.NodeTransformer):
    """The tree without some statements; an emptied body gets `pass`."""

    def __init__(self, is_removed: Callable[[ast.stmt], bool], *, is_first_only: bool = False) -> None:
        self.is_removed, self.is_first_only, self.count = is_removed, is_first_only, 0

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        has_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if (
                not isinstance(statements, list)
                or not statements
                or (self.is_first_only and not (has_docstring and field == "body"))
            ):
                continue
            kept = [
                each
                for index, each in enumerate(statements)
                if not (self.is_removed(each) and (index == 0 or not self.is_first_only))
            ]
            self.count += len(statements) - len(kept)
            is_required = not isinstance(node, ast.Module)
            setattr(node, field, kept or ([ast.Pass()] if is_required else []))
        return node


def removal_cases(text: str, tree: ast.Module, _rng: random.Random) -> Iterator[Case]:
    has_print = any(isinstance(each, ast.FunctionDef) and each.name == "print" for each in ast.walk(tree))
    rules = {"print statements": _is_print, "logging calls": _is_logging, "docstrings": _is_docstring}
    for noun, is_removed in rules.items():
        remover = _Remover(is_removed, is_first_only=noun == "docstrings")
        expected = ast.dump(remover.visit(ast.parse(text)))
        if remover.count and not (noun == "print statements" and has_print) and not _does_more(tree, is_removed):
            yield Case(f"remove {noun}", text, f"remove all {noun}", _tree_problem(expected))
    comments = [each for each in _tokens(text) if each.type == tokenize.COMMENT]
    if any(not DIRECTIVES.match(each.string) for each in comments):
        yield Case("remove comments", text, "remove all comments", _comment_problem(text))


def _does_more(tree: ast.Module, is_removed: Callable[[ast.stmt], bool]) -> bool:
    """Whether one of the calls may have another effect: those stay, and how many is not known here."""
    found = [each for each in ast.walk(tree) if isinstance(each, ast.Expr) and is_removed(each)]
    calls = [sum(isinstance(inner, ast.Call) for inner in ast.walk(each)) for each in found]
    keywords = [inner.arg for each in found for inner in ast.walk(each) if isinstance(inner, ast.keyword)]
    return max(calls, default=0) > 1 or "file" in keywords


def _is_print(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"


def _is_logging(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in LEVELS:
        return False
    receiver = call.func.value
    name = (
        receiver.attr if isinstance(receiver, ast.Attribute) else receiver.id if isinstance(receiver, ast.Name) else ""
    )
    return name in LOGGERS


def _is_docstring(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _tree_problem(expected: str) -> Callable[[str], str]:
    return lambda new: "" if ast.dump(ast.parse(new)) == expected else "another tree than expected"


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def _comment_problem(text: str) -> Callable[[str], str]:
    ignored = (tokenize.COMMENT, tokenize.NL)

    def problem(new: str) -> str:
        before, after = (
            [(each.type, each.string) for each in _tokens(of) if each.type not in ignored] for of in (text, new)
        )
        left = [
            each.string for each in _tokens(new) if each.type == tokenize.COMMENT and not DIRECTIVES.match(each.string)
        ]
        return "other tokens than expected" if before != after else f"left: {left[0]}" if left else ""

    return problem


def value_cases(text: str, tree: ast.Module, rng: random.Random) -> Iterator[Case]:
    stores = Counter(
        each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )
    constants = [
        (each.targets[0].id, each.value)
        for each in tree.body
        if isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Name)
        and isinstance(each.value, ast.Constant)
    ]
    constants = [(name, value) for name, value in constants if stores[name] == 1 and _new_value(value.value)]
    if constants:
        name, value = rng.choice(constants)
        instruction = f"change `{name}` to {_new_value(value.value)}"
        yield Case("change a constant", text, instruction, _value_problem(text, value))
    defaults = _defaults(tree)
    if defaults:
        function, name, value = rng.choice(defaults)
        instruction = f"set the default of {name} in {function} to {_new_value(value.value)}"
        yield Case("change a default", text, instruction, _value_problem(text, value))


def _defaults(tree: ast.Module) -> list[tuple[str, str, ast.Constant]]:
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    counts = Counter(each.name for each in functions)
    found: list[tuple[str, str, ast.Constant]] = []
    for each in functions:
        names = each.args.args[len(each.args.args) - len(each.args.defaults) :]
        for argument, default in zip(names, each.args.defaults, strict=False):
            if counts[each.name] == 1 and isinstance(default, ast.Constant) and _new_value(default.value):
                found.append((each.name, argument.arg, default))
    return found


def _new_value(value: object) -> str:
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(abs(value) + 7)
    return "'something_else'" if isinstance(value, str) and value.isidentifier() else ""


def _value_problem(text: str, target: ast.Constant) -> Callable[[str], str]:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and (node.lineno, node.col_offset) == (target.lineno, target.col_offset):
            node.value = ast.literal_eval(_new_value(target.value))
    return _tree_problem(ast.dump(tree))


# Imports, damaged so that the genuine text is the answer


def import_cases(text: str, tree: ast.Module, rng: random.Random) -> Iterator[Case]:
    imports = [each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    lines = text.split("\n")
    block = _plain_block(imports, lines)
    if len(block) > 2:
        first, last = block[0], block[-1]
        damaged = lines[first : last + 1]
        while damaged == lines[first : last + 1]:
            rng.shuffle(damaged)
        shuffled = "\n".join([*lines[:first], *(line for line in damaged if line), *lines[last + 1 :]])
        has_comment = first > 0 and lines[first - 1].startswith("#")  # it would belong to another import
        if not has_comment and is_sorted(text):
            yield Case("sort imports", shuffled, "sort the imports", lambda new: "" if new == text else "another order")
        extra = rng.choice([name for name in ("colorsys", "sndhdr", "zipapp", "wave") if name not in text])
        with_unused = "\n".join([*lines[: first + 1], f"import {extra}", *lines[first + 1 :]])
        if not _unused_names(tree, text):
            yield Case(
                "remove unused imports",
                with_unused,
                "remove unused imports",
                lambda new: "" if new == text else "another text",
            )


def is_sorted(text: str) -> bool:
    """Whether Ruff would leave the imports of a text as they are."""
    ruff = find_ruff_bin()
    command = [str(ruff), "check", "--isolated", "--quiet", "--select", "I", "--stdin-filename", "text.py", "-"]
    # in an empty folder: what lies in the current one would count as first-party
    with TemporaryDirectory() as folder:
        ran = subprocess.run(command, input=text, text=True, capture_output=True, check=False, cwd=folder)
    return not ran.returncode


def _plain_block(imports: Sequence[ast.stmt], lines: Sequence[str]) -> list[int]:
    """The lines of imports at the top that stand on one line each, with at most blank lines between."""
    rows: list[int] = []
    for each in imports:
        if each.lineno != each.end_lineno or "#" in lines[each.lineno - 1] or ";" in lines[each.lineno - 1]:
            return []
        row = each.lineno - 1
        if rows and any(line.strip() for line in lines[rows[-1] + 1 : row]):
            return []
        rows.append(row)
    return rows


def _unused_names(tree: ast.Module, text: str) -> list[str]:
    bound = [
        (alias.asname or alias.name).partition(".")[0]
        for each in ast.walk(tree)
        if isinstance(each, ast.Import | ast.ImportFrom)
        for alias in each.names
    ]
    return [name for name in bound if len(re.findall(rf"\b{re.escape(name)}\b", text)) < 2]


MAKERS = (rename_cases, removal_cases, value_cases, import_cases)


@dataclass
class Tally:
    asked: int = 0
    taken: int = 0
    right: int = 0


def read_texts(path: Path, count: int, seed: int) -> list[tuple[str, str]]:
    """Some Python files of a collection: a folder, or JSON lines with `path` and `text`."""
    if path.is_dir():
        found = [(str(each), each.read_text(encoding="utf-8")) for each in sorted(path.rglob("*.py"))]
    else:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        found = [(row["path"], row["text"].replace("\r\n", "\n")) for row in rows if row["path"].endswith(".py")]
    found = [each for each in found if len(each[1]) <= MAX_CHARACTERS]
    random.Random(seed).shuffle(found)
    return found[:count]


def measure(texts: Sequence[tuple[str, str]], seed: int, report: Callable[[str], None]) -> Mapping[str, Tally]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    shown: Counter[str] = Counter()
    for number, (path, text) in enumerate(texts):
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        rng = random.Random(seed + number)
        for case in (case for make in MAKERS for case in make(text, tree, rng)):
            tally, problem = tallies[case.kind], ""
            tally.asked += 1
            try:
                found = plan_refactorings([make_source(case.text.encode(), Path(path).name)], case.instruction)
                problem = "" if found else "not recognized"
            except RefusedError as refused:
                found, problem = [], f"refused: {refused}"
            if found:
                tally.taken += 1
                problem = case.problem(found[0].text)
                tally.right += not problem
                problem = problem and f"WRONG: {problem}"
            key = f"{case.kind} {problem[:5]}"
            shown[key] += 1
            if problem and (shown[key] <= MAX_SHOWN or problem.startswith("WRONG")):
                report(f"{path}: {case.instruction}: {problem}")
    return tallies


@click.command()
@click.option(
    "--files", "path", type=click.Path(exists=True, path_type=Path), required=True, help="A folder, or JSON lines."
)
@click.option("--count", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(path: Path, count: int, seed: int) -> None:
    """Measure the refactorings on real files."""
    tallies = measure(read_texts(path, count, seed), seed, lambda line: print(line, file=sys.stderr))
    rows = [
        [
            kind,
            str(each.asked),
            str(each.taken),
            str(each.right),
            str(each.asked - each.taken),
            str(each.taken - each.right),
        ]
        for kind, each in sorted(tallies.items())
    ]
    totals = [sum(int(row[column]) for row in rows) for column in range(1, 6)]
    print(markdown_table(["edit", "asked", "taken", "right", "refused", "wrong"], [*rows, ["all", *map(str, totals)]]))


if __name__ == "__main__":
    main()
