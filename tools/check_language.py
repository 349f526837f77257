"""Check that names, comments and texts use the field's terms: `python -m tools.check_language [FOLDER …]`.

Three rules. No identifier contains a word that docs/glossary.md replaces. No text (docstring, comment, help, error)
contains one of the phrases that a reader outside the project cannot understand. No two files of `specchat/` have the
same name, unless SAME_NAME lists the name with a reason. Exit code 1 when something is found.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "specchat",
    "tools",
    "recipes",
    "plugins/specchat-train/specchat_train",
    "plugins/specchat-fleet/specchat_fleet",
    "plugins/specchat-apply/specchat_apply",
    "plugins/specchat-completions/specchat_completions",
    "plugins/specchat-hybrids/specchat_hybrids",
    "plugins/specchat-mcp/specchat_mcp",
    "plugins/specchat-bench/specchat_bench",
    "plugins/specchat-web/specchat_web",
)

# The word in an identifier -> what to write instead.
IDENTIFIER_WORDS = {
    "guess": "draft", "guesses": "draft_tokens", "guessed": "drafted", "guesser": "drafter", "guessers": "drafters",
    "guessing": "drafting", "dice": "gumbel_noise", "pick": "sample", "picks": "sampled_tokens", "verdict": "verify",
    "voice": "loaded_models", "wish": "request", "desk": "ui", "partner": "worker", "errand": "request",
    "errands": "requests", "shrunk": "quantized", "widened": "dequantized", "mixing": "attention", "mixed": "attention",
    "sharpness": "mscale", "laid": "batch", "company": "batch", "companies": "batches", "steady": "batch_invariant",
    "hearsay": "unconfirmed", "doubt": "drift", "doubted": "drifted", "asleep": "idle", "awake": "active",
    "heard": "received", "hear": "on_event", "hearing": "handler", "told": "response", "tell": "emit",
    "said": "output", "spelled": "token_bytes", "spelling": "token_bytes", "card": "gpu", "cards": "gpus",
    "somebody": "a noun", "nobody": "a noun", "whoever": "a noun",
}  # fmt: skip
# Identifiers that use such a word in its ordinary sense.
ALLOWED_IDENTIFIERS = {
    "model_card": "the README of a model on a hub",
    "write_model_card": "writes a model card",
    "card_data": "the model card in huggingface_hub",
}
# Phrases in docstrings, comments and strings -> what to write instead.
PHRASES = {
    r"guess(es|ed|er|ers|ing)?": "draft (token), drafter",
    r"who(ever)? guess\w*": "drafter",
    r"nobody|somebody|whoever": "name the component or say 'the user'",
    r"hearsay|sure tokens?|dice": "see docs/glossary.md",
    r"a card|the card|cards": "GPU",
    r"voice": "loaded models",
    r"errands?": "request",
    r"widened|shrunk": "dequantized, quantized",
}  # fmt: skip
ALLOWED_IN_TEXT = re.compile(
    r"model cards?|agent cards?|guess the (?:language|encoding)|mimetypes\.guess_type", re.IGNORECASE
)
# Files that name old words on purpose, and why.
ALLOWED_FILES = {
    "tools/check_language.py": "lists the words",
}
# File names that stand more than once in specchat/, and why.
SAME_NAME = {
    "__init__.py": "packages",
    "__main__.py": "packages that can be run",
    "server.py": "each protocol has a server",
}
COMMANDS = "specchat/cli"  # a file there has the name of its command

PHRASE = re.compile(r"\b(?:" + "|".join(PHRASES) + r")\b", re.IGNORECASE)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Finding(NamedTuple):
    """A place and what to change there."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def check_source(path: str, source: str) -> Iterator[Finding]:
    """What is wrong in one Python file."""
    seen = set[tuple[int, str]]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.NAME and (line, token.string) not in seen:
            seen.add((line, token.string))
            yield from _check_identifier(path, line, token.string)
        elif token.type == tokenize.COMMENT:
            yield from _check_text(path, line, token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _check_text(path, node.lineno, node.value)


def check_file_names(paths: Iterable[str]) -> Iterator[Finding]:
    """Files of the package that have the name of another one."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        folder, _, name = path.rpartition("/")
        if path.startswith("specchat/") and name not in SAME_NAME and folder != COMMANDS:
            by_name[name].append(path)
    for same in by_name.values():
        for path in same[1:]:
            yield Finding(path, 1, f"has the name of {same[0]}; rename one, or list the name with a reason")


def _check_identifier(path: str, line: int, name: str) -> Iterator[Finding]:
    if name in ALLOWED_IDENTIFIERS:
        return
    for word in WORD.findall(name):
        if instead := IDENTIFIER_WORDS.get(word.lower()):
            yield Finding(path, line, f"identifier {name!r}: write {instead!r} for {word!r}")


def _check_text(path: str, line: int, text: str) -> Iterator[Finding]:
    for match in PHRASE.finditer(ALLOWED_IN_TEXT.sub("", text)):
        instead = next(new for old, new in PHRASES.items() if re.fullmatch(old, match[0], re.IGNORECASE))
        yield Finding(path, line, f"text {match[0]!r}: write {instead}")


def main(folders: list[str]) -> int:
    paths = sorted(path for folder in folders or FOLDERS for path in (ROOT / folder).rglob("*.py"))
    names = [path.relative_to(ROOT).as_posix() for path in paths if path.parent.name != "tests"]
    findings = list(check_file_names(names))
    for name in names:
        if name not in ALLOWED_FILES:
            findings += check_source(name, (ROOT / name).read_text(encoding="utf-8"))
    for finding in findings:
        print(finding)
    print(f"{len(names)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
