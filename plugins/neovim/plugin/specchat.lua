-- Rewrite a range with specchat, with the filter `specchat edit -`.
--
--   :'<,'>Specchat add type hints
--   :Specchat rename `width` to `breadth`      the whole buffer
--
-- When the filter fails, the buffer stays unchanged; `u` reverts an edit.
if vim.g.loaded_specchat then
  return
end
vim.g.loaded_specchat = true

vim.api.nvim_create_user_command("Specchat", function(call)
  require("specchat").edit(call.line1, call.line2, call.args)
end, { range = "%", nargs = "+", desc = "Rewrite the range with an instruction" })
