"""Sorts the imports of a Python text and removes those that nothing uses, by Ruff's own rules.

Ruff reads the settings of the project. What it does is taken where no name gets another meaning by the order of the
imports: an import that a doctest or a parameter of the same name may need is not unused.
"""

import ast
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from specchat.edit.operations import Remove
from specchat.refactoring.project_mentions import PYTHON_SUFFIXES, files_with
from specchat.refactoring.python_dangers import DOCTEST, TYPE_COMMENT
from specchat.refactoring.python_text import byte_position, check_parses, is_saved, one_of, python_lines
from specchat.refactoring.splices import Area, RefusedError, Splice, Step, count_of, splice_text

IMPORTS = (ast.Import, ast.ImportFrom)
ACTING_MODULES = ("readline", "rlcompleter", "antigravity", "this")
TIMEOUT_SECONDS = 20.0
DYNAMIC_NAMES = re.compile(r"(?<![.\w])(?:globals|locals|vars|eval|exec)\s*\(")


def sort_imports(text: str, file_name: str, area: Area) -> Step:
    """The sorted imports as changes of the text. RefusedError says why they cannot be sorted with certainty."""
    check_parses(text)
    names = Counter(name for _module, name in _bindings(ast.parse(text).body))
    if repeated := [name for name, count in names.items() if count > 1 or (name == "*" and len(names) > 1)]:
        raise RefusedError(f"`{repeated[0]}` may be imported twice, and the last import counts")
    fixes, raw = ruff_fixes(text, file_name, "I", area), text.encode()
    splices = [each for each in fixes if each.new.strip() != raw[each.start : each.end].decode().strip()]
    return Step(f"sort the imports: {count_of(splices, 'group')}", tuple(splices))


def remove_unused_imports(text: str, file_name: str, remove: Remove, area: Area) -> Step:
    """The removal as changes of the text; the scope of the operation may be the name of one import."""
    check_parses(text)
    if Path(file_name).name in ("__init__.py", "conftest.py"):
        raise RefusedError("other files use what this one imports")
    if found := DYNAMIC_NAMES.search(text):
        raise RefusedError(f"`{found[0].strip('( ')}` may use any name")
    if re.search(r"^__all__\b(?!\s*\+?=\s*[\[(][^\])]*[\])]\s*$)", text, re.MULTILINE):
        raise RefusedError("`__all__` is computed")
    fixes = ruff_fixes(text, file_name, "F401", area)
    possible = ((each, _removed(text, each)) for each in (fixes, *((fix,) for fix in fixes)))
    splices, names = next((each for each in possible if not remove.scope or each[1] == [remove.scope]), ((), []))
    if remove.scope and not splices:
        raise RefusedError(f"`{remove.scope}` is no unused import that stands alone")
    if remove.is_single and len(names) != 1:
        raise RefusedError(f"there are {count_of(names, 'unused import')}")
    for name in names:
        _check_unused(splice_text(text, splices), file_name, name)
    return Step(f"remove {count_of(names, 'unused import')}", splices)


def _removed(text: str, splices: Sequence[Splice]) -> list[str]:
    """The names that are no longer imported after these changes."""
    before, after = (Counter(_bindings(ast.walk(ast.parse(each)))) for each in (text, splice_text(text, splices)))
    return [name for _module, name in (before - after).elements()]


def _check_unused(new_text: str, file_name: str, name: str) -> None:
    """RefusedError when a name that is no longer imported is still there, or when others import it from here."""
    tree, mention = ast.parse(new_text), one_of([name])
    for node in ast.walk(tree):
        named = [getattr(node, "id", ""), getattr(node, "arg", "")]
        if isinstance(node, IMPORTS):
            named += [each for _module, each in _bindings([node])]
            named += [alias.name.partition(".")[0] for alias in node.names if isinstance(node, ast.Import)]
        if name in named:
            raise RefusedError(f"`{name}` in line {getattr(node, 'lineno', 0)} may need the import")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_named = node.value == name or any(mention.search(each["code"]) for each in DOCTEST.finditer(node.value))
            if is_named:
                raise RefusedError(f"a string in line {node.lineno} names `{name}`")
    if any(mention.search(each["type"]) for each in TYPE_COMMENT.finditer(new_text)):
        raise RefusedError(f"a type comment names `{name}`")
    path = Path(file_name).absolute()
    stem = re.escape(path.stem)
    if name in ACTING_MODULES:
        raise RefusedError(f"the import of `{name}` does something by itself")
    use = re.compile(rf"\b{stem}\s+import\s+\*|\b{stem}\s+import\b[^\n]*(?:\([^)]*)?\b{name}\b|[.\"']{name}\b")
    for other, text in files_with(path, PYTHON_SUFFIXES, name):
        if one_of([path.stem]).search(text) and use.search(text):
            raise RefusedError(f"{other.name} may use `{name}` of {path.name}")


def _bindings(statements: Iterable[ast.AST]) -> list[tuple[str, str]]:
    """What imports bind: the module with the name in it, and the name here."""
    found: list[tuple[str, str]] = []
    for node in statements:
        if isinstance(node, ast.Import):
            found += [(each.name, each.asname or each.name) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [(f"{module}:{each.name}", each.asname or each.name) for each in node.names]
    return found


def ruff_fixes(text: str, file_name: str, rule: str, area: Area) -> tuple[Splice, ...]:
    """What Ruff would change for a rule, as far as it is safe and lies in the area."""
    path = Path(file_name).absolute()
    isolated = () if is_saved(path, text) or path.is_file() else ("--isolated",)
    found: list[dict[str, Any]] = json.loads(_run_ruff(text, path, rule, isolated))
    lines, splices = python_lines(text), set[Splice]()
    for each in found:
        fix = each["fix"]
        if fix is None or fix["applicability"] != "safe":
            continue
        for edit in fix["edits"]:
            places = (edit[key] for key in ("location", "end_location"))
            start, end = (byte_position(lines, place["row"], place["column"] - 1) for place in places)
            if area.holds(start, end):
                splices.add(Splice(start, end, edit["content"]))
    return tuple(sorted(splices, key=lambda splice: splice.start))


def _run_ruff(text: str, path: Path, rule: str, options: Sequence[str]) -> str:
    from ruff import find_ruff_bin

    command = [find_ruff_bin(), "check", "--no-cache", "--quiet", "--exit-zero", "--select", rule, *options]
    command += ["--output-format", "json", "--stdin-filename", str(path), "-"]
    folder = path.parent if path.parent.is_dir() else None
    try:
        done = subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=TIMEOUT_SECONDS, check=True, cwd=folder
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RefusedError("Ruff cannot read the file or its settings") from error
    return done.stdout.decode()
