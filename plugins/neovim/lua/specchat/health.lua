-- `:checkhealth specchat`: the program, the engine process, and what this version of Neovim can show.
local M = {}

local health = vim.health or require("health")
local start, ok = health.start or health.report_start, health.ok or health.report_ok
local warn, fail = health.warn or health.report_warn, health.error or health.report_error

local function output_of(...)
  local lines = vim.fn.systemlist({ require("specchat").command, ... })
  return vim.v.shell_error == 0 and lines[1] or nil
end

function M.check()
  start("specchat")
  local command = require("specchat").command
  if vim.fn.executable(command) == 0 then
    return fail(("no program %s on the PATH"):format(command), {
      "install it: pip install specchat",
      'or name it: require("specchat").setup({ command = "/path/to/specchat" })',
    })
  end
  local version = output_of("--version")
  if not version then
    return fail(("%s --version failed"):format(command), { "run it in a terminal to see why" })
  end
  ok(("%s (%s)"):format(version, vim.fn.exepath(command)))
  local engine = output_of("host", "status")
  if engine then
    ok("engine: " .. engine)
  else
    ok("no engine process runs; the first request starts it")
  end
  if vim.lsp.inline_completion then
    ok("ghost text and code actions: :lua require('specchat').lsp({ 'python' })")
  elseif vim.lsp.start then
    warn("ghost text needs Neovim 0.12; code actions and :Specchat work")
  else
    warn("the language server needs Neovim 0.8, ghost text 0.12; :Specchat works")
  end
end

return M
