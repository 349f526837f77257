"""Python files as jedi and parso see them: the places of a name, what each refers to, and who inherits from whom.

Files that are on the disk as they are here are read where they lie, so that the rest of their project is known; others
are written into a folder for the time of the question. Knows nothing of instructions.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from specchat.context.file_listing import MAX_FILES, walk_files
from specchat.errors import InputError
from specchat.paths import cache_folder
from specchat.refactoring.splices import TOO_LONG, RefusedError
from specchat.regular_file import read_regular_file

if TYPE_CHECKING:
    import jedi
    from jedi.api.classes import Name as JediName
    from parso.python.tree import Class, ClassOrFunc, Module, Name
    from parso.tree import NodeOrLeaf

ROOT_FILES = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__", "site-packages", "build", "dist", "venv", "env"))
MAX_PARENTS, MAX_MODULE_BYTES = 12, 32 * 2**20
MAX_CHARACTERS = 2**19  # jedi takes minutes for much more
MODULE_SUFFIXES = (".py", ".pyi")
# Bases that call nothing by name, and that have no attributes of their own worth naming.
NO_RELATIVES = frozenset(("object", "ABC", "Generic", "Exception", "ValueError", "RuntimeError"))
IMPORTS = ("import_name", "import_from")
FUNCTIONS = ("funcdef", "lambdef")
SCOPES = (*FUNCTIONS, "classdef", "file_input")
COMPREHENSIONS = ("comp_for", "sync_comp_for")
Key = tuple[str, int, int]  # a file, a line from 1, a column


@dataclass(frozen=True)
class Token:
    """One place of a name, and the definitions that it may refer to; none: that is not known."""

    file: PythonText
    leaf: Name
    keys: frozenset[Key]

    @property
    def line(self) -> int:
        return self.leaf.start_pos[0]

    @property
    def is_attribute(self) -> bool:
        """Whether it stands behind a dot."""
        previous = self.leaf.get_previous_leaf()
        return previous is not None and previous.value == "." and not self.is_imported

    @property
    def is_keyword(self) -> bool:
        parent, following = self.leaf.parent, self.leaf.get_next_leaf()
        return parent is not None and parent.type == "argument" and following is not None and following.value == "="

    @property
    def is_imported(self) -> bool:
        return any(each.type in IMPORTS for each in ancestors(self.leaf))

    @property
    def is_of_import(self) -> bool:
        """Whether it is the `old` of `m.old`, or of `m.n.old`, where `m` is imported."""
        node = next((each for each in ancestors(self.leaf) if each.type in ("atom_expr", "power")), None)
        first = node.get_first_leaf() if node is not None else None
        names = self.file.tree.get_used_names().get(getattr(first, "value", ""), [])
        return any(each.type in IMPORTS for name in names for each in ancestors(name))

    @property
    def is_alias(self) -> bool:
        """Whether it is the `old` of `import m as old`."""
        previous = self.leaf.get_previous_leaf()
        return self.is_imported and previous is not None and previous.value == "as"


@dataclass(frozen=True)
class PythonText:
    """A file: `name` is how the user calls it, `path` where jedi finds it."""

    name: str
    text: str
    path: Path
    script: jedi.Script
    project: jedi.Project

    @cached_property
    def tree(self) -> Module:
        import parso

        return parso.parse(self.text)

    @cached_property
    def _lines(self) -> Sequence[str]:
        return python_lines(self.text)

    def byte_position(self, position: tuple[int, int]) -> int:
        return byte_position(self._lines, *position)

    def tokens(self, name: str) -> list[Token]:
        leaves = self.tree.get_used_names().get(name, [])
        return [Token(self, leaf, self._keys(leaf)) for leaf in sorted(leaves, key=lambda leaf: leaf.start_pos)]

    def _keys(self, leaf: Name) -> frozenset[Key]:
        found = self._goto(leaf, follow_imports=True) or self._goto(leaf, follow_imports=False)
        keys = {
            (str(each.module_path), each.line, each.column)
            for each in found
            if each.module_path and each.line is not None and each.column is not None
        }
        own = (str(self.path), *leaf.start_pos)
        previous = leaf.get_previous_leaf()
        if previous is not None and previous.value == "." and not is_of_self(leaf):
            return frozenset(keys - {own})  # `x.old = 1` finds itself, whatever x is
        if not leaf.is_definition():
            return frozenset(keys)
        return frozenset(keys | {own} if is_of_self(leaf) else keys | {own, self._scope_key(leaf)})

    def _goto(self, leaf: Name, *, follow_imports: bool) -> list[JediName]:
        try:
            return self.script.goto(*leaf.start_pos, follow_imports=follow_imports)
        except (KeyError, AttributeError, ValueError, RecursionError):  # in jedi itself
            return []

    def _scope_key(self, leaf: Name) -> Key:
        """Stands for all that gives this name a value in one scope; comprehensions are scopes, too."""
        name, definition = leaf.value, leaf.get_definition(import_name_always=True)
        if definition is not None and definition.type in COMPREHENSIONS:
            return (f"{self.path}:{name}", *definition.start_pos)
        scopes = scopes_of(leaf)
        if _is_declared(scopes[0], "global_stmt", name):
            return (f"{self.path}:{name}", *scopes[-1].start_pos)
        while _is_declared(scopes[0], "nonlocal_stmt", name):
            scopes = [each for each in scopes[1:] if each.type in FUNCTIONS]
        return (f"{self.path}:{name}", *scopes[0].start_pos)

    def leaves(self) -> Iterator[NodeOrLeaf]:
        leaf: NodeOrLeaf | None = self.tree.get_first_leaf()
        while leaf is not None:
            yield leaf
            leaf = leaf.get_next_leaf()

    def strings(self) -> list[NodeOrLeaf]:
        """All strings but docstrings; of f-strings the parts between the braces."""
        documented = {id(node) for node in self.docstrings()}
        return [
            leaf for leaf in self.leaves() if leaf.type in ("string", "fstring_string") and id(leaf) not in documented
        ]

    def docstrings(self) -> Iterator[NodeOrLeaf]:
        for scope in (self.tree, *all_scopes(self.tree)):
            if (node := scope.get_doc_node()) is not None:
                yield node

    def comments(self) -> str:
        return "\n".join(re.findall(r"#.*", "\n".join(str(getattr(leaf, "prefix", "")) for leaf in self.leaves())))


def _is_declared(scope: NodeOrLeaf, statement: str, name: str) -> bool:
    """Whether a function says `global name` or `nonlocal name`, itself and not in an inner one."""
    stack = list(getattr(scope, "children", ()))
    while stack:
        node = stack.pop()
        if node.type == statement and name in re.findall(r"\w+", code_of(node))[1:]:
            return True
        if node.type not in SCOPES:
            stack += getattr(node, "children", ())
    return False


def code_of(node: NodeOrLeaf) -> str:
    return node.get_code(include_prefix=False) or ""


def scopes_of(leaf: Name) -> list[NodeOrLeaf]:
    """The scopes that a name may count in, the innermost first: that of a function is not in it."""
    return [each for each in ancestors(leaf) if each.type in SCOPES and getattr(each, "name", None) is not leaf]


def around(leaf: NodeOrLeaf) -> list[ClassOrFunc]:
    """The classes and functions around a place, the innermost first."""
    return [cast("ClassOrFunc", each) for each in ancestors(leaf) if each.type in ("classdef", "funcdef")]


def ancestors(node: NodeOrLeaf) -> Iterator[NodeOrLeaf]:
    while node.parent is not None:
        node = node.parent
        yield node


def all_scopes(tree: NodeOrLeaf) -> Iterator[ClassOrFunc]:
    """Every class and function, also nested ones."""
    for child in getattr(tree, "children", ()):
        if child.type in ("classdef", "funcdef"):
            yield cast("ClassOrFunc", child)
        yield from all_scopes(child)


def classes(tree: NodeOrLeaf) -> list[Class]:
    return [cast("Class", each) for each in all_scopes(tree) if each.type == "classdef"]


def base_names(node: Class) -> list[str]:
    """The last parts of what a class inherits from: ["Model"] for `db.Model`, ["Generic"] for `Generic[T]`."""
    arglist = node.get_super_arglist()
    if arglist is None:
        return []
    parts = [arglist] if arglist.type != "arglist" else [each for each in arglist.children if each.type != "operator"]
    return [re.sub(r"\[.*", "", code_of(each), flags=re.DOTALL).rpartition(".")[2] for each in parts]


def is_of_protocol(leaf: Name) -> bool:
    """Whether a name stands in a class that says what others have to have: `class P(Protocol)`."""
    return any(each.type == "classdef" and "Protocol" in base_names(cast("Class", each)) for each in around(leaf))


def is_of_self(leaf: Name) -> bool:
    """Whether a name is the `x` of `self.x`."""
    dot = leaf.get_previous_leaf()
    receiver = dot.get_previous_leaf() if dot is not None and dot.value == "." else None
    before = receiver.get_previous_leaf() if receiver is not None else None
    return receiver is not None and receiver.value in ("self", "cls") and (before is None or before.value != ".")


def scope_path(leaf: Name) -> tuple[str, ...]:
    """The names of the classes and functions around a definition, the outermost first.

    The name of a class or function is not in itself, a parameter is in its function, and `self.x` in its class.
    """
    outer = around(leaf)
    if outer and outer[0].name is leaf:
        outer = outer[1:]
    if is_of_self(leaf):
        outer = list(dropwhile(lambda each: each.type != "classdef", outer))
    return tuple(each.name.value for each in reversed(outer))


def relatives(files: Sequence[PythonText]) -> Mapping[str, set[str]]:
    """The classes of files by their names, each with all that are above or below one that is above or below it."""
    groups: dict[str, set[str]] = {}
    for each in (node for file in files for node in classes(file.tree)):
        group = {each.name.value, *base_names(each)}
        for name in tuple(group - NO_RELATIVES):
            group |= groups.get(name, set())
        groups |= dict.fromkeys(group - NO_RELATIVES, group)
    return groups


@contextmanager
def open_python(texts: Mapping[str, str]) -> Generator[list[PythonText]]:
    """Files by their names, ready to be asked. RefusedError when one does not parse."""
    import jedi

    jedi.settings.cache_directory = str(cache_folder() / "jedi")  # not the user's own one
    for text in texts.values():
        check_parses(text)
    with tempfile.TemporaryDirectory() as mirror:
        paths = _paths(texts, Path(mirror))
        root = project_root(next(iter(paths.values())))
        folders = dict.fromkeys(folder for path in paths.values() for folder in path.parents if root in folder.parents)
        search = [str(root), str(root / "src"), *map(str, folders)]
        project = jedi.Project(root, sys_path=search, smart_sys_path=False)
        yield [_open(name, text, paths[name], project) for name, text in texts.items()]


def _check_modules(root: Path, files: Sequence[Path]) -> None:
    """RefusedError where jedi, which opens what is imported, could wait for a pipe or read without an end."""
    for path in (each for each in files if each.suffix in MODULE_SUFFIXES):
        with suppress(OSError):
            status = path.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_MODULE_BYTES:
                raise RefusedError(f"{path.relative_to(root)} is no regular file, or too large to be read")


def _open(name: str, text: str, path: Path, project: jedi.Project) -> PythonText:
    import jedi
    from jedi.api.environment import InterpreterEnvironment

    script = jedi.Script(text, path=path, project=project, environment=InterpreterEnvironment())
    return PythonText(name, text, path, script, project)


def _paths(texts: Mapping[str, str], mirror: Path) -> dict[str, Path]:
    """Where each file lies: on the disk as it is, else all of them in the mirror, as those of a large project do.

    There a local name can be renamed all the same.
    """
    paths = {name: Path(name).absolute() for name in texts}
    if all(is_saved(path, texts[name]) for name, path in paths.items()):
        root = project_root(next(iter(paths.values())))
        walked = [project_files(each) for each in dict.fromkeys((root, *(path.parent for path in paths.values())))]
        if None not in walked:
            _check_modules(root, [path for files in walked for path in files or ()])
            return paths
    common = Path(os.path.commonpath([path.parent for path in paths.values()]))
    mirrored = {name: mirror.resolve() / path.relative_to(common) for name, path in paths.items()}
    (mirror / "pyproject.toml").touch()
    for name, path in mirrored.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[name], encoding="utf-8")
    return mirrored


def is_saved(path: Path, text: str) -> bool:
    try:
        return path.is_file() and path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


def project_root(path: Path) -> Path:
    """The nearest folder above a file that looks like the root of a project, else the folder of the file."""
    folders = list(path.resolve().parents)[:MAX_PARENTS]
    return next((each for each in folders if any((each / name).exists() for name in ROOT_FILES)), folders[0])


def project_files(folder: Path) -> list[Path] | None:
    """The files of a project but for those of hidden and of generated folders; None for more than can be looked at."""
    names = list(walk_files(folder, [], SKIPPED_FOLDERS, has_hidden=True))
    return [folder / name for name in names] if len(names) <= MAX_FILES else None


def python_lines(text: str) -> Sequence[str]:
    """The lines as Python, jedi and Ruff count them, with their ends: a carriage return alone is one, too."""
    from parso.utils import split_lines

    return split_lines(text, keepends=True)


def byte_position(lines: Sequence[str], line: int, column: int) -> int:
    """The position of a place: its line from 1, its column in characters from 0."""
    return len("".join((*lines[: line - 1], *(each[:column] for each in lines[line - 1 : line]))).encode())


def check_parses(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise RefusedError(TOO_LONG)
    try:
        compile(text, "text", "exec", dont_inherit=True, flags=0x400)  # PyCF_ONLY_AST: nothing is run
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two of what is nested deeply
        raise RefusedError("the file does not parse") from error


def open_reader(path: Path, like: PythonText) -> PythonText | None:
    """Another file of the project of one that is open; None where it cannot be read."""
    try:
        text = read_regular_file(path, MAX_MODULE_BYTES).decode()
        check_parses(text)
    except (InputError, UnicodeDecodeError, RefusedError):
        return None
    return _open(str(path), text, path, like.project)


def one_of(names: Sequence[str]) -> re.Pattern[str]:
    """A pattern for these whole words."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)")
