"""Questions about a piece of code whose answers are in the code."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from random import Random

from recipes.dialogues import Dialogue, Turn, fenced, random_system_prompt
from recipes.quoting import shortened
from recipes.snippets import Snippet, docstrings_of, last_line


def about_code(snippet: Snippet, rng: Random) -> Dialogue | None:
    """A question whose answer stands in the code."""
    makers = [what_it_does, what_is_defined, show_function, what_it_returns, what_is_the_default, what_is_imported]
    rng.shuffle(makers)
    for maker in makers:
        turn = maker(snippet, rng)
        if turn is not None:
            question = f"{turn.question}\n\n{fenced(snippet.text)}"
            return Dialogue((Turn(question, turn.answer),), random_system_prompt(rng))
    return None


def what_it_does(snippet: Snippet, rng: Random) -> Turn | None:
    found = docstrings_of(snippet)
    if not found:
        return None
    chosen = rng.choice(found)
    words = shortened(chosen.words, sentences=1)
    if len(words) < 15:
        return None
    forms = (
        "What does `{}` do?",
        "What does {} do?",
        "Explain `{}`.",
        "what does {} do",
        "What is `{}` for?",
        "Explain this code: {}",
    )
    return Turn(rng.choice(forms).format(chosen.name), words if words.endswith((".", "!", "?")) else words + ".")


def listed(names: Sequence[str]) -> str:
    marked = [f"`{name}`" for name in names]
    return marked[0] if len(marked) == 1 else f"{', '.join(marked[:-1])} and {marked[-1]}"


def what_is_defined(snippet: Snippet, rng: Random) -> Turn | None:
    names = [function.name for function in snippet.functions]
    if not 1 <= len(names) <= 8 or len(set(names)) < len(names):
        return None
    forms = (
        "Which functions are defined here?",
        "List the functions.",
        "What functions does this file have?",
        "which functions are there?",
    )
    return Turn(rng.choice(forms), f"It defines {listed(names)}.")


def show_function(snippet: Snippet, rng: Random) -> Turn | None:
    body = [node for node in snippet.functions if last_line(node) - node.lineno < 15 and not node.decorator_list]
    if len(snippet.functions) < 2 or not body:
        return None
    function = rng.choice(body)
    if snippet.text.count(f"def {function.name}(") != 1:
        return None
    lines = snippet.lines[function.lineno - 1 : function.end_lineno]
    forms = (
        "Show me `{}`.",
        "Show the function {}.",
        "show me {}",
        "Quote the definition of `{}`.",
        "Print the code of {}",
    )
    return Turn(rng.choice(forms).format(function.name), fenced("".join(lines)))


def what_it_returns(snippet: Snippet, rng: Random) -> Turn | None:
    for function in snippet.functions:
        values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
        if len(values) == 1 and values[0].lineno == values[0].end_lineno:
            value = ast.get_source_segment(snippet.text, values[0])
            if value and len(value) < 80 and "`" not in value:
                forms = ("What does `{}` return?", "what does {} return", "What is the result of `{}`?")
                return Turn(rng.choice(forms).format(function.name), f"It returns `{value}`.")
    return None


def what_is_the_default(snippet: Snippet, rng: Random) -> Turn | None:
    pairs: list[tuple[str, str, ast.expr]] = []
    for function in snippet.functions:
        arguments = function.args.args[len(function.args.args) - len(function.args.defaults) :]
        pairs += [(function.name, a.arg, d) for a, d in zip(arguments, function.args.defaults, strict=False)]
    if not pairs:
        return None
    name, parameter, default = rng.choice(pairs)
    value = ast.get_source_segment(snippet.text, default)
    if not value or len(value) > 40 or "`" in value:
        return None
    forms = (
        "What is the default of `{0}`?",
        "What is the default value of {0} in {1}?",
        "which default does {0} have?",
    )
    return Turn(rng.choice(forms).format(parameter, name), f"The default of `{parameter}` is `{value}`.")


def what_is_imported(snippet: Snippet, rng: Random) -> Turn | None:
    names = [alias.name for node in snippet.tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in snippet.tree.body if isinstance(node, ast.ImportFrom) and node.module]
    names = list(dict.fromkeys(names))
    if not 1 <= len(names) <= 8:
        return None
    return Turn(
        rng.choice(("Which modules are imported?", "What does this file import?", "List the imports.")),
        f"It imports {listed(names)}.",
    )
