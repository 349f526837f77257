"""Headless Neovim as a client."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from lsp_tests.driver import SERVED

PLAIN_LUA = """
local out = {}
local id = vim.lsp.start_client({ name = 'specchat', cmd = { %(command)s }, root_dir = '/' })
vim.lsp.buf_attach_client(0, id)
local client
vim.wait(20000, function() client = vim.lsp.get_client_by_id(id) return client and client.initialized end, 20)
out.encoding = client.offset_encoding
local place = { textDocument = vim.lsp.util.make_text_document_params(), position = { line = 1, character = 3 } }
local inline = vim.tbl_extend('force', place, { context = { triggerKind = 1 } })
vim.wait(20000, function()
  local answer = client.request_sync('textDocument/inlineCompletion', inline, 5000, 0)
  out.items = answer and answer.result and answer.result.items or {}
  return #out.items > 0
end, 50)
local command = { command = 'specchat.edit', arguments = { { uri = place.textDocument.uri,
  version = vim.lsp.util.buf_versions[0] or vim.lsp.util.buf_versions[vim.api.nvim_get_current_buf()],
  first = 2, last = 2, instruction = 'replace abc xyz' } } }
local done = client.request_sync('workspace/executeCommand', command, 20000, 0)
out.failed = done and done.err
vim.wait(5000, function() return vim.api.nvim_buf_get_lines(0, 1, 2, false)[1] == 'xyz' end, 20)
out.lines = vim.api.nvim_buf_get_lines(0, 0, -1, false)
vim.lsp.stop_client(id)
out.stopped = vim.wait(5000, function() return vim.lsp.get_client_by_id(id) == nil end, 20)
vim.fn.writefile({ vim.fn.json_encode(out) }, '%(out)s')
vim.cmd('qa!')
"""


def version() -> tuple[int, ...]:
    if shutil.which("nvim") is None:
        return (0,)
    said = subprocess.run(["nvim", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.search(r"v(\d+)\.(\d+)", said).groups()))


@pytest.mark.skipif(version() < (0, 7), reason="no Neovim of version 0.7 or later is installed")
@pytest.mark.skipif(version() >= (0, 11), reason="its Lua names are those of Neovim 0.7 to 0.10")
def test_neovim_attaches_completes_and_applies_an_edit(tmp_path, world):
    out, script, file = tmp_path / "out", tmp_path / "run.lua", tmp_path / "a.py"
    file.write_text("# fill: def\nabc\n")
    script.write_text(PLAIN_LUA % {"command": ", ".join(map(repr, SERVED)), "out": out})

    subprocess.run(
        ["nvim", "--headless", "-u", "NONE", "-n", str(file), "-c", f"luafile {script}"], timeout=180, check=True,
        capture_output=True, env={**os.environ, "SPECCHAT_RUNTIME": str(world)},
    )  # fmt: skip

    said = json.loads(out.read_text())
    assert said["encoding"] == "utf-16"
    assert [item["insertText"] for item in said["items"]] == ["abcdef"]
    assert said["lines"] == ["# fill: def", "xyz"]
    assert said["stopped"]
