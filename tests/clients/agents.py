"""Clients of `specchat acp`: each answers a question, and edits a file if it can."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tests.clients.neovim import Neovim
from tests.clients.snippets import PROGRAM, snippet
from tests.clients.world import AREA, RENAME, NotAvailable, Screen, Step, World

PAGE = "docs/editors.md"
QUESTION = "What is a generator in Python?"
ANSWERED = "yield"  # what any answer to it says
ACP = "specchat acp"
DENIED = 5  # acpx's exit code when nothing was allowed
# Debian's LuaJIT calls the main thread a coroutine, as Lua 5.2 does; CodeCompanion then waits where it cannot.
ONLY_COROUTINES = """
local running = coroutine.running
coroutine.running = function()
  local thread, is_main = running()
  if not is_main then return thread end
end
"""
SAY = """
chat = chat or require("codecompanion").last_chat()
chat:add_buf_message({ role = "user", content = _A })
vim.schedule(function() chat:submit() end)
"""
CHAT = "table.concat(vim.api.nvim_buf_get_lines(chat.bufnr, 0, -1, false), '\\n')"
BUFFER = "table.concat(vim.api.nvim_buf_get_lines(file, 0, -1, false))"
ACCEPT = """
local key = require("codecompanion.interactions.chat.tools.labels").keymaps().accept
vim.api.nvim_set_current_buf(chat.bufnr)
vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes(key, true, false, true), "m", false)
"""
ACP_EL = """
(require 'acp)
(require 'json)
(defvar said "")
(defvar errors nil)
(defvar end nil)
(defun done (answer) (setq end (or (map-elt answer 'stopReason) (format "%S" answer))))
(defun failed (error &rest _) (done error))
(let* ((client (acp-make-client :command "specchat" :command-params '("acp")))
       (ask (lambda (opened)
              (acp-send-request
               :client client :on-success #'done :on-failure #'failed
               :request (acp-make-session-prompt-request
                         :session-id (map-elt opened 'sessionId)
                         :prompt (vector `((type . "text") (text . ,QUESTION))))))))
  (acp-subscribe-to-errors :client client :on-error (lambda (error) (push (format "%S" error) errors)))
  (acp-subscribe-to-notifications
   :client client
   :on-notification
   (lambda (told)
     (let ((update (map-nested-elt told '(params update))))
       (when (equal (map-elt update 'sessionUpdate) "agent_message_chunk")
         (setq said (concat said (map-nested-elt update '(content text))))))))
  (acp-send-request
   :client client :on-failure #'failed
   :request (acp-make-initialize-request :protocol-version 1)
   :on-success (lambda (_)
                 (acp-send-request
                  :client client :on-failure #'failed :on-success ask
                  :request (acp-make-session-new-request :cwd default-directory))))
  (with-timeout (60) (while (not end) (accept-process-output nil 0.1)))
  (acp-shutdown :client client))
(princ (json-encode `((said . ,said) (end . ,end) (errors . ,(vconcat errors)))))
"""


def acpx(world: World) -> Iterator[Step]:
    """A client for the command line."""
    program = world.program("acpx")
    begin = [program, "--agent", ACP, "--cwd", world.project, "--format", "json"]
    yield Step("version", world.version(program))

    heard = _messages(world.run(*begin, "exec", QUESTION))
    assert "end_turn" == _stop_reason(heard), heard[-1]
    yield Step(f"`acpx exec {QUESTION!r}`", f"an answer of {len(_said(heard))} characters, `end_turn`")

    file = world.fresh_file()
    heard = _messages(world.run(*begin, "--approve-all", "exec", f"/edit area.py {RENAME}"))
    assert any(message.get("method") == "session/request_permission" for message in heard)
    assert any(message.get("method") == "fs/write_text_file" for message in heard)
    assert "breadth" in file.read_text()
    yield Step("`acpx --approve-all exec '/edit area.py …'`", "acpx gave permission and wrote the file")

    file = world.fresh_file()
    world.run(*begin, "--approve-all", "--no-fs", "exec", f"/edit area.py {RENAME}")
    assert "breadth" in file.read_text()
    yield Step("the same with `--no-fs`", "specchat wrote the file")

    file = world.fresh_file()
    world.run(*begin, "--deny-all", "exec", f"/edit area.py {RENAME}", code=DENIED)
    assert AREA == file.read_text()
    yield Step("the same with `--deny-all`", f"exit code {DENIED}, the file is unchanged")

    new = world.project / "new.py"
    world.run(*begin, "--approve-all", "exec", "/edit new.py Write a function that adds two numbers.", code=None)
    made = new.exists()
    yield Step("`/edit new.py …`, a missing file", "created" if made else "the embedded model wrote no file")

    world.run(*begin, "sessions", "new")
    world.run(*begin, "prompt", QUESTION)
    heard = _messages(world.run(*begin, "prompt", "/show"))
    assert QUESTION in _said(heard) or "generator" in _said(heard), heard[-3:]
    world.run(*begin, "sessions", "close")
    yield Step("`acpx sessions new`, two prompts, `sessions close`", "the second answer used the first prompt")


def code_companion(world: World) -> Iterator[Step]:
    """Neovim with CodeCompanion, by the documented settings."""
    program = world.program("nvim")
    packages = [world.package("plenary.nvim"), world.package("codecompanion.nvim")]
    release = re.search(r"\d+\.\d+\.\d+", (packages[1] / "version.txt").read_text())
    yield Step(
        "version", f"{release[0] if release else 'of unknown version'} in {world.new_enough(program, 'NVIM', 0, 11)}"
    )

    paths = "".join(f"vim.opt.rtp:prepend({json.dumps(str(path))})\n" for path in packages)
    init = world.note("companion.lua", paths + snippet(PAGE, "**Neovim with CodeCompanion**", "lua"))
    file = world.fresh_file()
    with Neovim(world, init, file) as neovim:
        neovim.do(ONLY_COROUTINES)
        neovim.do("file = vim.api.nvim_get_current_buf()")
        neovim.do("vim.cmd('CodeCompanionChat')")
        neovim.do(SAY, QUESTION)
        neovim.until(f"chat.current_request == nil and {CHAT}:find('{ANSWERED}') ~= nil", "no answer came")
        done = f"a question in the chat: {QUESTION!r} (with `coroutine.running` of Lua 5.1; Debian's version fails)"
        yield Step(done, "the answer in the buffer of the chat")

        neovim.do(SAY, f"/edit area.py {RENAME}")
        neovim.until(f"{CHAT}:find('Proposed edits') ~= nil", "no diff was shown")
        neovim.do(ACCEPT)
        neovim.until(f"chat.current_request == nil and {BUFFER}:find('breadth') ~= nil", "nothing was rewritten")
        assert "breadth" in file.read_text()
    yield Step("`/edit area.py …`, and its key for *accept*", "a diff in the chat, the new text in the buffer")


def acp_el(world: World) -> Iterator[Step]:
    """The client below agent-shell, in Emacs."""
    program, package = world.program("emacs"), world.package("acp.el")
    release = re.search(r";; Version: (\S+)", (package / "acp.el").read_text())
    yield Step("version", f"{release[1] if release else 'of unknown version'} in {world.version(program, 'Emacs')}")

    script = world.note("ask.el", f"(defconst QUESTION {json.dumps(QUESTION)})\n{ACP_EL}")
    said = world.run(program, "-Q", "--batch", "-L", package, "-l", script)
    seen = json.loads(said[said.index("{") :])
    assert ("end_turn", []) == (seen["end"], list(seen["errors"] or [])), seen
    assert seen["said"], seen
    yield Step(
        f"a question: {QUESTION!r}", f"an answer of {len(seen['said'])} characters, `end_turn`, nothing on stderr"
    )


def toad(world: World) -> Iterator[Step]:
    """An interface for agents in a terminal."""
    program = world.program("toad")
    yield Step("version", world.version(program))

    command = snippet(PAGE, "**Toad**", "sh").strip().removeprefix("toad ")
    with Screen(world, "sh", "-c", f"cd '{world.project}' && exec '{program}' {command}") as screen:
        screen.until_shown("Edit")
        screen.type(QUESTION)
        screen.until_shown(QUESTION)
        screen.press("Enter")
        screen.until_shown(ANSWERED)
        yield Step(f"`toad {command}`, a question", "the answer on its screen")

        file = world.fresh_file()
        screen.type("/edit")
        screen.until_shown("/command")
        screen.press("Enter")
        screen.until_shown("FILE[:FIRST-LAST]")
        screen.type(f"area.py {RENAME}")
        screen.until_shown("breadth")
        screen.press("Enter")
        screen.until_shown("Approval request")
        screen.press("a")
        screen.until_shown("written.")
    assert "breadth" in file.read_text()
    yield Step("`/edit area.py …` from its menu of commands, and `a`", "the diff on its page; the file is written")


def agent_shell(world: World) -> Iterator[Step]:
    """The conversations of Emacs, on acp.el; only its settings are loaded."""
    program = world.program("emacs")
    packages = [world.package(name) for name in ("agent-shell", "acp.el", "shell-maker")]
    yield Step("version", world.version(program, "Emacs"))
    settings = world.note("shell.el", snippet(PAGE, "`agent-shell`, which", "elisp"))
    paths = [part for package in packages for part in ("-L", package)]
    said = world.run(program, "-Q", "--batch", *paths, "-l", "agent-shell", "-l", settings,
                     "--eval", "(princ (length agent-shell-agent-configs))")  # fmt: skip
    assert said.strip().endswith("1"), said
    yield Step("its settings", "one agent")


def zed(world: World) -> Iterator[Step]:
    """Needs a graphical display: only the command of its settings is started, as Zed would."""
    yield from _started_by(world, "Zed", snippet(PAGE, "**Zed**", "json"))


def jetbrains(world: World) -> Iterator[Step]:
    """The same for `~/.jetbrains/acp.json`."""
    yield from _started_by(world, "a JetBrains IDE", snippet(PAGE, "**JetBrains IDEs**", "json"))


def _started_by(world: World, editor: str, settings: str) -> Iterator[Step]:
    server = json.loads(settings)["agent_servers"]["specchat"]
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    command = [server["command"].replace(PROGRAM, world.program("specchat")), *server["args"]]
    said = world.run(*command, stdin=json.dumps(hello) + "\n")
    assert 1 == json.loads(said)["result"]["protocolVersion"], said
    yield Step("the command of its settings, started directly", "an answer to `initialize`")
    raise NotAvailable(f"{editor} needs a graphical display")


def _messages(lines: str) -> list[dict[str, object]]:
    """The messages that acpx passed on."""
    found = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return [message for message in found if isinstance(message, dict)]


def _stop_reason(messages: list[dict[str, object]]) -> object:
    reasons = [result.get("stopReason") for message in messages if isinstance(result := message.get("result"), dict)]
    return next((reason for reason in reversed(reasons) if reason), None)


def _said(messages: list[dict[str, object]]) -> str:
    """The text of all answers."""
    said = list[str]()
    for message in messages:
        params = message.get("params")
        update = params.get("update") if isinstance(params, dict) else None
        if isinstance(update, dict) and update.get("sessionUpdate") == "agent_message_chunk":
            said.append(str(update["content"]["text"]))
    return "".join(said)
