-- specchat in Neovim: a filter, a language server with ghost text, and an agent for CodeCompanion.
local M = { command = "specchat" }

--- Rewrite lines `first` to `last` of the current buffer with `instruction`.
function M.edit(first, last, instruction)
  local command = { M.command, "edit", "-" }
  local suffix = vim.fn.expand("%:e")
  if suffix ~= "" then
    vim.list_extend(command, { "--lang", suffix })
  end
  vim.list_extend(command, { "--", instruction })
  local lines = vim.api.nvim_buf_get_lines(0, first - 1, last, true)
  local new = vim.fn.systemlist(command, table.concat(lines, "\n") .. "\n", 1)
  if vim.v.shell_error ~= 0 then
    local reason = ("specchat: no edit (exit code %d); the text is unchanged"):format(vim.v.shell_error)
    vim.notify(reason, vim.log.levels.WARN)
    return
  end
  if new[#new] == "" then
    table.remove(new)
  end
  vim.api.nvim_buf_set_lines(0, first - 1, last, true, new)
end

--- Start `specchat lsp` for these file types. Ghost text needs Neovim 0.12, code actions 0.11.
function M.lsp(filetypes)
  vim.lsp.config("specchat", { cmd = { M.command, "lsp" }, filetypes = filetypes })
  vim.lsp.enable("specchat")
  if vim.lsp.inline_completion then
    vim.lsp.inline_completion.enable()
  end
end

--- The adapter for CodeCompanion: `adapters = { acp = { specchat = require("specchat").codecompanion } }`.
function M.codecompanion()
  return require("codecompanion.adapters").extend("opencode", {
    name = "specchat",
    formatted_name = "specchat",
    commands = { default = { M.command, "acp" } },
  })
end

return M
