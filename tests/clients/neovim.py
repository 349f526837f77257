"""A headless Neovim that is sent keys and Lua through its remote commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.clients.world import World, until


class Neovim(AbstractContextManager["Neovim"]):
    """One that runs until the context is left."""

    def __init__(self, world: World, init: Path, *arguments: object) -> None:
        self._world, self._program = world, world.program("nvim")
        self._address = world.folder / "neovim.sock"
        self._address.unlink(missing_ok=True)
        command = [self._program, "--headless", "-i", "NONE", "-nu", init, "--listen", self._address, *arguments]
        self._process = subprocess.Popen(
            [str(each) for each in command], cwd=world.project, env=world.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._address.exists, "Neovim did not start{}".format)

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        self._process.wait()

    def press(self, keys: str) -> None:
        """Keys as mappings write them, such as `A<Tab>`."""
        self._remote("--remote-send", keys)

    def lua(self, expression: str, argument: object = None) -> object:
        """The value of an expression, in which `_A` is the argument."""
        given = json.dumps(json.dumps(argument))
        said = self._remote("--remote-expr", f"json_encode(luaeval({json.dumps(expression)}, json_decode({given})))")
        return json.loads(said)

    def do(self, chunk: str, argument: object = None) -> object:
        """Run a chunk of Lua, in which `_A` is the argument; what it returns."""
        return self.lua("assert(loadstring('local _A = ...; ' .. _A[1]))(_A[2])", [chunk, argument])

    def until(self, expression: str, words: str) -> object:
        """The value of an expression as soon as it is one."""
        until(lambda: self.lua(expression) not in (None, False, [], {}, ""), f"{words}: {{}}".format, self.messages)
        return self.lua(expression)

    def lines_of(self, buffer: str = "0") -> Sequence[str]:
        """The text of a buffer, of the one that is shown unless another is named."""
        found = self.lua(f"vim.api.nvim_buf_get_lines({buffer}, 0, -1, false)")
        return [str(each) for each in found] if isinstance(found, list) else []

    def messages(self) -> str:
        """All its messages."""
        return str(self.lua("vim.fn.execute('messages')"))

    def _remote(self, how: str, what: str) -> str:
        return self._world.run(self._program, "--server", self._address, how, what)
