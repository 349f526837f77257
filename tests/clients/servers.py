"""Clients of `specchat lsp`: ghost text where they show it, else the completion list; code actions; the command."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

from tests.clients.neovim import Neovim
from tests.clients.snippets import snippet
from tests.clients.world import AREA, RENAME, Screen, Step, World, until

PAGE = "docs/editors-lsp.md"
PAUSE_SECONDS = 1.5  # in typing, after which a suggestion comes
READ = "import json\n\n\ndef read(path):\n    with open(path) as file:\n        return json.\n"
TITLE = re.compile(r"specchat: [a-z ]+?(?=\s{2}|$)", re.MULTILINE)
GHOST = """
local found = {}
for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, -1, 0, -1, { details = true })) do
  for _, part in ipairs(mark[4].virt_text or {}) do table.insert(found, part[1]) end
end
return table.concat(found)
"""
ACTIONS = """
local client = vim.lsp.get_clients({ name = "specchat" })[1]
local range = vim.lsp.util.make_given_range_params({ 1, 0 }, { 5, 0 }, 0, client.offset_encoding)
range.context = { diagnostics = {} }
local answer = client:request_sync("textDocument/codeAction", range, 10000, 0)
return vim.tbl_map(function(action) return action.title end, answer.result)
"""
EXPLAIN = """
text = vim.api.nvim_get_current_buf()
vim.lsp.buf.code_action({ range = { start = { 1, 0 }, ["end"] = { 5, 0 } }, apply = true,
  filter = function(action) return action.title == "specchat: explain" end })
"""
BACK = "vim.cmd('silent! only') vim.api.nvim_set_current_buf(text)"
ASK_FOR_EDIT = """
vim.ui.input = function(_, answered) answered(_A) end
"""
EGLOT = """
(require 'eglot)
(find-file "area.py")
(setq eglot-sync-connect 60)
(apply #'eglot (eglot--guess-contact))
(let* ((server (eglot-current-server))
       (actions (eglot--request server :textDocument/codeAction
                                (list :textDocument (eglot--TextDocumentIdentifier)
                                      :range (list :start (eglot--pos-to-lsp-position (point-min))
                                                   :end (eglot--pos-to-lsp-position (point-max)))
                                      :context '(:diagnostics [])))))
  (princ (format "ACTIONS %s\\n" (mapcar (lambda (each) (plist-get each :title)) actions)))
  (eglot-execute
   server
   (list :title "rename" :command "specchat.edit"
         :arguments (vector (list :uri (plist-get (eglot--TextDocumentIdentifier) :uri)
                                  :version nil :first 1 :last 5 :instruction RENAME))))
  (with-timeout (60) (while (not (string-match "breadth" (buffer-string))) (accept-process-output nil 0.1)))
  (save-buffer)
  (erase-buffer)
  (insert READ)
  (goto-char (1- (point-max)))
  (let ((found nil))
    (with-timeout (60)
      (while (not found) (setq found (all-completions "" (nth 2 (eglot-completion-at-point))))))
    (princ (format "LIST %S\\n" found)))
  (eglot-shutdown server))
"""


def neovim(world: World) -> Iterator[Step]:
    """Stock Neovim 0.12, by the documented settings."""
    program = world.program("nvim")
    yield Step("version", world.new_enough(program, "NVIM", 0, 12))
    init = world.note("server.lua", snippet(PAGE, "shows ghost text by itself", "lua"))
    file = world.fresh_file()

    file.write_text(READ)
    with Neovim(world, init, file) as editor:
        editor.until("vim.lsp.get_clients({ name = 'specchat' })[1] ~= nil", "no server was started")
        editor.press("6GA")
        ghost = str(_ghost_of(editor))
        yield Step("the cursor after `return json.`", f"ghost text: `{ghost.strip()}`")
        editor.press("<Tab>")
        editor.until(f"vim.fn.getline(6):find({json.dumps(ghost)}, 1, true) ~= nil", "<Tab> took nothing")
        yield Step("`<Tab>`, as mapped on that page", f"the line is `{editor.lines_of()[5].strip()}`")

    file = world.fresh_file()
    with Neovim(world, init, file) as editor:
        editor.until("vim.lsp.get_clients({ name = 'specchat' })[1] ~= nil", "no server was started")
        titles = editor.do(ACTIONS)
        assert isinstance(titles, list)
        yield Step("code actions of the function", ", ".join(f"`{title}`" for title in titles))
        editor.do(EXPLAIN)
        editor.until("vim.fn.bufnr('explained.md') > 0", "nothing was explained")
        yield Step("the action `specchat: explain`", "a page with the explanation")
        editor.do(BACK)
        editor.do(ASK_FOR_EDIT, RENAME)
        editor.press("ggVG\\\\e")
        editor.until("vim.fn.getline(1):find('breadth') ~= nil", "the edit did not come")
        yield Step("`<leader>e` on all lines, as mapped there", "rewritten in the buffer")


def _ghost_of(editor: Neovim) -> object:
    """The ghost text; types again until the model is loaded."""

    def is_shown() -> bool:
        editor.press("<BS>.")
        time.sleep(PAUSE_SECONDS)
        return editor.do(GHOST) != ""

    until(is_shown, "no ghost text: {}".format, editor.messages)
    return editor.do(GHOST)


def eglot(world: World) -> Iterator[Step]:
    """Emacs' own client, by the documented settings."""
    program = world.program("emacs")
    settings = snippet(PAGE, "## Emacs (eglot)", "elisp").replace("text-mode", "python-mode")
    yield Step("version", world.new_enough(program, "Emacs", 29))
    file = world.fresh_file()
    steps = world.note(
        "eglot.el", f"(defconst RENAME {json.dumps(RENAME)})\n(defconst READ {json.dumps(READ)})\n{settings}\n{EGLOT}"
    )
    said = world.run(program, "-Q", "--batch", "-l", steps)
    titles = re.findall(r"^ACTIONS \((.*)\)$", said, re.MULTILINE)
    assert titles, said
    yield Step("code actions of the text, by eglot's own request", f"`{titles[0]}`")
    assert "breadth" in file.read_text(), said
    yield Step("`eglot-execute` of `specchat.edit`", "applied in the buffer")
    entries = re.findall(r"^LIST (.*)$", said, re.MULTILINE)
    assert entries and entries[0] != "nil", said
    yield Step("`completion-at-point` after `return json.`", "an entry of specchat in the list")


def helix(world: World) -> Iterator[Step]:
    """Helix on a terminal, by the documented settings."""
    program = world.program("hx")
    yield Step("version", world.version(program))
    settings = snippet(PAGE, "## Helix", "toml").replace('"pylsp", ', "")
    world.note("home/.config/helix/languages.toml", settings)
    file = world.fresh_file()
    with Screen(world, program, str(file)) as screen:
        screen.until_shown("def area")
        screen.press("%")
        until(lambda: _lists_actions(screen), "no code actions:\n{}".format, lambda: screen.shown)
        titles = sorted(set(TITLE.findall(screen.shown)))
        yield Step("`space a` on the whole text", ", ".join(f"`{title.strip()}`" for title in titles))
        screen.press("Up", "Up")  # the last but one
        screen.press("Enter")
        screen.until_shown("[+]")
        assert AREA.splitlines()[0] not in screen.shown, screen.shown
        yield Step("the last but one of these actions", "rewritten in the buffer")


def _lists_actions(screen: Screen) -> bool:
    """Repeat the key until the server runs."""
    for key in ("Escape", "Space", "a"):
        screen.press(key)
        time.sleep(PAUSE_SECONDS)  # an Escape and what follows at once are another key
    return "specchat:" in screen.shown
