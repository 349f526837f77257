-- Rewrite a range with specchat, in the background.
--
--   :'<,'>Specchat add type hints
--   :Specchat rename `width` to `breadth`      the whole buffer
--   :SpecchatStop                              end it, the text stays as it is
if vim.g.loaded_specchat then
  return
end
vim.g.loaded_specchat = true

vim.api.nvim_create_user_command("Specchat", function(call)
  require("specchat").edit(call.line1, call.line2, call.args)
end, { range = "%", nargs = "+", desc = "Rewrite the range with an instruction" })

vim.api.nvim_create_user_command("SpecchatStop", function()
  require("specchat").stop()
end, { desc = "End the running rewrite of this buffer" })
