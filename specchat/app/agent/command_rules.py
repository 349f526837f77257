"""Which command lines a rule of `run` is about.

A rule that denies looks at every command of a line, however it is spelled; where that is not certain, it says so. A
rule that allows looks at one command, word by word, and its wildcards cover no option that runs a program. No rule
knows what a program does: `python -c` and `make` run what they are told.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

from specchat.syntax.languages import language_tables
from specchat.syntax.shell_commands import UNKNOWN, shell_commands

WILDCARDS = re.compile(r"[*?\[]")
# With one of these a line is more than one program with arguments, so "pytest*" must not cover "pytest; rm -r .".
SHELL_CHARACTERS = re.compile(r"[;&|<>`$(){}\n\r%^\\]")
MAX_COMMANDS, MAX_WORDS = 1000, 200  # in a line with those that other commands start, and of one that starts others
TABLES = language_tables(__file__)
SHELLS, OTHER_RUNNERS, REDEFINING = (
    frozenset(TABLES["programs"][key].split()) for key in ("shells", "runners", "redefining")
)
RUNNERS = SHELLS | OTHER_RUNNERS
LONG_OPTIONS: Sequence[str] = TABLES["options"]["long"].split()
SHORT_OPTIONS: Mapping[str, str] = TABLES["short_options"]
GIT_OPTIONS: Mapping[str, str] = TABLES["git_options"]  # by its subcommand; before it:
GIT_GLOBAL_OPTIONS = "c"
RUNNERS_OF_INPUT, BUILTINS = ("xargs", "parallel"), ("command", "builtin")
UNCERTAIN = (UNKNOWN,)  # a command that only the shell knows
WORD_OPTIONS = re.compile(r"-(exec|ok|fprint|fls|delete|toolexec|vettool|fplugin|wrapper|specs)")  # of find, go and gcc
GIT_RUNNERS = ("foreach", "run", "filter-branch", "config")  # commands of git, or words of them


def is_denied(line: str, pattern: str) -> bool | None:
    """Whether a pattern is about a command of this line; None where that is not certain."""
    if fnmatchcase(line, pattern):
        return True
    found = {_is_about(words, pattern) for words in _all_commands(line)}
    return True if True in found else None if None in found else False


def is_allowed(line: str, pattern: str) -> bool:
    """Whether this line is one command that a pattern covers, or the very text of a pattern without wildcards."""
    if not WILDCARDS.search(pattern):
        return line == pattern
    try:
        words, expected = [] if SHELL_CHARACTERS.search(line) else shlex.split(line), pattern.split()
    except ValueError:  # a quote that is not closed
        return False
    if len(words) < len(expected) or (len(words) > len(expected) and not pattern.endswith("*")):
        return False
    program, free = words[0], words[len(expected) :]
    for word, part in zip(words, expected, strict=False):
        if not fnmatchcase(word, part):
            return False
        free += [word] if WILDCARDS.search(part) and word != program else []
    is_named = expected[0] == "*" or program == expected[0].removesuffix("*")
    return is_named and not any(_may_run_programs(words, word) or word[0] in "*?[" for word in filter(None, free))


def _all_commands(line: str) -> list[tuple[str, ...]]:
    """The commands of a line, those that they may start by their arguments, and UNCERTAIN where there may be others."""
    commands = list(dict.fromkeys(_commands_in(line)))
    for words in commands:
        if len(commands) > MAX_COMMANDS:
            return [*commands, UNCERTAIN]
        commands += [each for each in dict.fromkeys(_started_commands(words)) if each not in commands]
    return commands


def _commands_in(line: str) -> list[tuple[str, ...]]:
    if os.name != "nt":
        commands = shell_commands(line)
        return [UNCERTAIN] if commands is None else commands
    is_plain = not SHELL_CHARACTERS.search(line) and '"' not in line  # the grammar is not that of its shell
    return [tuple(line.split())] if is_plain else [UNCERTAIN]


def _started_commands(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The commands that may stand in the arguments of this one."""
    program = _program(words)
    if program not in RUNNERS:
        runs_others = any(_may_run_programs(words, word) for word in words[1:])
        runs_others |= program == "git" and any(word in GIT_RUNNERS for word in words)
        return [UNCERTAIN] if UNKNOWN in words[0] or program in REDEFINING or runs_others else []
    reads_script = program in SHELLS and not any(re.match(r"-\w*c", word) for word in words)
    if reads_script or len(words) > MAX_WORDS:
        return [UNCERTAIN]
    open_end = (UNKNOWN,) if program in RUNNERS_OF_INPUT else ()
    arguments = tuple(UNKNOWN if "{}" in word else word for word in words[1:]) + open_end
    started = [arguments[start:] for start in range(len(words) - 1) if arguments[start] != "." or program in BUILTINS]
    lines = [line for word in arguments for line in _lines_in(word)]
    return started + [each for line in lines for each in _commands_in(line)]


def _lines_in(word: str) -> Iterator[str]:
    """The word, and the value of an option in it, if they may be a line of commands."""
    values = [word, word[2:], word.partition("=")[2]] if word.startswith("-") else [word]
    return (value for value in values if re.search(r"[\s;&|]", value) and value != ";")


def _is_about(words: tuple[str, ...], pattern: str) -> bool | None:
    """Whether a pattern is about this command, with options before the words that it names or not."""
    named = [part for part in pattern.split() if part.startswith("-")]
    plain = " ".join(part for part in pattern.split() if part not in named) + ("*" if named else "")
    texts = [" ".join(words), *(" ".join((_program(words), *words[start:])) for start in _argument_starts(words))]
    has_options = all(any(fnmatchcase(word, option) for word in words) for option in named)
    whole = [text for text in texts if fnmatchcase(text, pattern) or fnmatchcase(text, f"{pattern} *")]
    if whole or (has_options and any(fnmatchcase(text, plain) for text in texts)):
        return True
    beginning = WILDCARDS.split(plain)[0]
    known = [text.partition(UNKNOWN)[0] for text in texts if UNKNOWN in text]
    return None if any(text.startswith(beginning) or beginning.startswith(text) for text in known) else False


def _argument_starts(words: Sequence[str]) -> list[int]:
    """Where the words begin that are no options of the program, with and without a value after each option."""
    starts = [1]
    for start in starts:
        if start < len(words) and words[start].startswith("-"):
            starts += [each for each in (start + 1, start + 2) if each not in starts and each <= len(words)]
    return starts


def _program(words: Sequence[str]) -> str:
    return PurePath(words[0]).name.lower().removesuffix(".exe") or words[0]


def _may_run_programs(words: Sequence[str], word: str) -> bool:
    """Whether this is an option by which a program runs another one. Long ones may be shortened."""
    name, program = word.partition("=")[0], _program(words)
    if name.startswith("--"):
        return len(name) > 2 and any(each.startswith(name[2:]) for each in LONG_OPTIONS)
    letters = SHORT_OPTIONS.get(program, "")
    if program == "git":
        letters = GIT_GLOBAL_OPTIONS if words[1].startswith("-") else GIT_OPTIONS.get(words[1], "")
    is_bundle = name.startswith("-") or (program == "tar" and name.isalpha())
    return bool(WORD_OPTIONS.match(name)) or (is_bundle and bool(set(name[1:]) & set(letters)))
