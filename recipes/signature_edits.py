"""Edits of the signature of a function: type hints are removed and must be restored, or a parameter is added."""

from __future__ import annotations

import ast
import re
import textwrap
from random import Random

from recipes.edit_example import Edit
from recipes.phrasing import instruction_phrase, new_name
from recipes.snippets import Snippet


def add_type_hints(snippet: Snippet, rng: Random) -> Edit | None:
    """Real hints of a one-line signature, taken out; asked for by name, or (half the time) just asked for."""
    functions = [f for f in snippet.functions if hinted(f) and snippet.text.count(f"def {f.name}(") == 1]
    if len(functions) != 1:
        return None
    function = functions[0]
    line_number = function.lineno
    line = snippet.lines[line_number - 1]
    if not line.rstrip().endswith(":") or line.count("def ") != 1:
        return None
    bare = ast.parse(textwrap.dedent(line.strip()) + " pass").body[0]
    if not isinstance(bare, ast.FunctionDef):
        return None
    hints = [f"`{arg.arg}` as `{ast.unparse(arg.annotation)}`" for arg in all_arguments(bare) if arg.annotation]
    if bare.returns is not None:
        hints.append(f"the result as `{ast.unparse(bare.returns)}`")
    for arg in all_arguments(bare):
        arg.annotation = None
    bare.returns = None
    indent = line[: len(line) - len(line.lstrip())]
    lines = snippet.lines
    lines[line_number - 1] = indent + ast.unparse(bare).split("\n")[0] + "\n"
    is_explicit = rng.random() < 0.5
    kind = "type_hints_told" if is_explicit else "type_hints"
    listed = ", ".join(hints[:-1]) + " and " + hints[-1] if len(hints) > 1 else hints[0]
    return Edit(kind, instruction_phrase(kind, rng, name=function.name, hints=listed), "".join(lines), snippet.text)


def hinted(function: ast.FunctionDef) -> bool:
    is_one_line = function.body[0].lineno > function.lineno and not function.decorator_list
    return is_one_line and (function.returns is not None or any(arg.annotation for arg in all_arguments(function)))


def all_arguments(function: ast.FunctionDef) -> list[ast.arg]:
    arguments = function.args
    extra = [arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def add_parameter(snippet: Snippet, rng: Random) -> Edit | None:
    functions = [f for f in snippet.functions if snippet.text.count(f"def {f.name}(") == 1]
    if not functions:
        return None
    function = rng.choice(functions)
    if function.args.vararg or function.args.kwarg or function.args.kwonlyargs:
        return None
    lines = snippet.lines
    line = lines[function.lineno - 1]
    ending = re.search(r"\)( ->[^:]*)?:\s*$", line)
    if ending is None or line.count("def ") != 1:
        return None
    name = new_name("flag", snippet.names, rng)
    value = rng.choice(["None", "None", "False", "True", "0", "1", '""', str(rng.randint(2, 100))])
    joint = "" if line[ending.start() - 1] == "(" else ", "
    lines[function.lineno - 1] = line[: ending.start()] + f"{joint}{name}={value}" + line[ending.start() :]
    instruction = instruction_phrase("add_parameter", rng, name=name, value=value, function=function.name)
    return Edit("add_parameter", instruction, snippet.text, "".join(lines))
