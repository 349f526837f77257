-- Rewrite a range with specchat: the text goes through `specchat edit -`, and no more.
--
--   :'<,'>Specchat add type hints
--   :Specchat rename `width` to `breadth`      the whole buffer
--
-- A filter that fails gives the text back, so the buffer never loses it; `u` takes an edit back.
if vim.g.loaded_specchat then
  return
end
vim.g.loaded_specchat = true

vim.api.nvim_create_user_command("Specchat", function(given)
  require("specchat").edit(given.line1, given.line2, given.args)
end, { range = "%", nargs = "+", desc = "Rewrite the range as asked" })
