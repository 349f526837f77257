"""Editors that pipe text through `specchat edit -`, with the commands in plugins/README.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.clients.neovim import Neovim
from tests.clients.snippets import ROOT, snippet
from tests.clients.world import AREA, Screen, Step, World, until

PAGE = "plugins/README.md"
INSTRUCTION = "add type hints"  # of that table
VISUAL = "'<,'>"
HINT = "->"  # what it leads to
TAIL = "\n\nprint(area(2, 3))\n"


def documented(editor: str) -> str:
    """The command for an editor in the table. LookupError for an editor that is not in it."""
    for line in (ROOT / PAGE).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) == 4 and editor in cells[1] and "specchat edit" in cells[2]:
            return re.sub(r"</?code>|`", "", cells[2]).replace("&#124;", "|").replace("\\|", "|")
    raise LookupError(f"{PAGE} has no row for {editor}")


def vim(world: World) -> Iterator[Step]:
    """The range of a visual selection through a filter."""
    program, file = world.program("vim"), world.fresh_file(TAIL)
    yield Step("version", world.version(program, "VIM"))
    typed = documented("Vim")
    steps = ["-c", "normal! 1GV5G\x1b", "-c", typed.removeprefix(":"), "-c", "wq!"]
    world.run(program, "-Nesu", "NONE", "-i", "NONE", *steps, file)
    _check(file.read_text())
    yield Step(f"`{typed}` on the first five lines", "these lines rewritten, the rest unchanged")


def neovim(world: World) -> Iterator[Step]:
    """The same in Neovim."""
    program, file = world.program("nvim"), world.fresh_file(TAIL)
    yield Step("version", world.version(program, "NVIM"))
    with Neovim(world, world.note("empty.lua", ""), file) as editor:
        typed = documented("Neovim")
        editor.press(f"ggV4j{typed.replace(VISUAL, '')}<CR>")  # which `:` puts there by itself
        editor.until("vim.fn.getline(1):find('->') ~= nil", "nothing was rewritten")
        assert "\n".join(editor.lines_of()).endswith(TAIL.rstrip("\n"))
    yield Step(f"`{typed}` on the first five lines", "these lines rewritten, the rest unchanged")


def kakoune(world: World) -> Iterator[Step]:
    """The command for its settings."""
    program, file = world.program("kak"), world.fresh_file(TAIL)
    yield Step("version", world.run(program, "-version").strip())
    settings = world.note("specchat.kak", snippet(PAGE, "## Kakoune", "kak"))
    steps = f"source {settings}; edit {file}; execute-keys 'gg4Jx'; specchat '{INSTRUCTION}'; write; quit"
    world.run(program, "-n", "-ui", "dummy", "-e", steps)
    _check(file.read_text())
    yield Step(f"`:specchat '{INSTRUCTION}'` on the first five lines", "these lines rewritten, the rest unchanged")


def helix(world: World) -> Iterator[Step]:
    """A selection through `:pipe`."""
    program, file = world.program("hx"), world.fresh_file(TAIL)
    yield Step("version", world.version(program))
    typed = documented("Helix")
    with Screen(world, program, str(file)) as screen:
        screen.until_shown("def area")
        screen.type("gg5x")
        screen.type(typed)
        screen.press("Enter")
        screen.until_shown(HINT)
        screen.type(":w")
        screen.press("Enter")
        until(lambda: HINT in file.read_text(), "it was not saved{}".format)
    _check(file.read_text())
    yield Step(f"`{typed}` on the first five lines", "these lines rewritten, the rest unchanged")


def emacs(world: World) -> Iterator[Step]:
    """A region through `shell-command-on-region`."""
    program, file = world.program("emacs"), world.fresh_file(TAIL)
    yield Step("version", world.version(program, "Emacs"))
    command = documented("Emacs").partition(" and then ")[2]
    assert command, "the table says otherwise"
    form = f"(shell-command-on-region 1 {len(AREA) + 1} {_lisp(command)} nil t)"
    world.run(program, "-Q", "--batch", file, "--eval", form, "-f", "save-buffer")
    _check(file.read_text())
    yield Step(f"`C-u M-|` with `{command}` on the first five lines", "these lines rewritten, the rest unchanged")


def _check(text: str) -> None:
    assert HINT in text, text
    assert text.endswith(TAIL), text


def _lisp(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
