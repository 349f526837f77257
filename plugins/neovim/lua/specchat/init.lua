-- specchat in Neovim: a filter in the background, a language server with ghost text, an agent for CodeCompanion.
-- `jobstart` and not `vim.system`, which is missing before Neovim 0.10.
local M = { command = "specchat" }

local namespace = vim.api.nvim_create_namespace("specchat")
local running = {} -- edits by buffer

local function say(text, level)
  vim.notify("specchat: " .. text, level or vim.log.levels.WARN)
end

--- Options: `command`, the program; `filetypes`, for which `specchat lsp` starts.
function M.setup(options)
  M.command = options.command or M.command
  if options.filetypes then
    M.lsp(options.filetypes)
  end
end

local function lines_of(edit)
  local mark = vim.api.nvim_buf_get_extmark_by_id(edit.buffer, namespace, edit.mark, { details = true })
  return mark[1], mark[3].end_row
end

local function show_progress(edit)
  if running[edit.buffer] ~= edit or not vim.api.nvim_buf_is_loaded(edit.buffer) then
    return
  end
  local seconds = math.floor((vim.loop.now() - edit.begun) / 1000)
  local text = ("  specchat: %s, %d s"):format(edit.reason or edit.instruction, seconds)
  local first, last = lines_of(edit)
  vim.api.nvim_buf_set_extmark(edit.buffer, namespace, first, 0, {
    id = edit.mark, end_row = last, end_col = 0, virt_text = { { text, "Comment" } },
  })
end

local function replace(edit, new)
  local buffer, old = edit.buffer, edit.old
  local first, last = lines_of(edit)
  if not vim.deep_equal(vim.api.nvim_buf_get_lines(buffer, first, last, false), old) then
    return say("the text was changed meanwhile; nothing is replaced")
  end
  local head, tail, shorter = 0, 0, math.min(#old, #new)
  while head < shorter and old[head + 1] == new[head + 1] do
    head = head + 1
  end
  while tail < shorter - head and old[#old - tail] == new[#new - tail] do
    tail = tail + 1
  end
  vim.bo[buffer].undolevels = vim.bo[buffer].undolevels -- ends the undo step of what was typed before
  vim.api.nvim_buf_set_lines(buffer, first + head, last - tail, true, vim.list_slice(new, head + 1, #new - tail))
  say(edit.reason or (edit.instruction .. ": done"), vim.log.levels.INFO)
end

local function finish(edit, code)
  edit.timer:stop()
  edit.timer:close()
  running[edit.buffer] = nil
  if not vim.api.nvim_buf_is_loaded(edit.buffer) then
    return say("the buffer was closed meanwhile")
  end
  if code ~= 0 then
    say(("%s; the text is unchanged"):format(edit.reason or ("exit code %d"):format(code)))
  else
    if edit.out[#edit.out] == "" then
      table.remove(edit.out)
    end
    replace(edit, edit.out)
  end
  vim.api.nvim_buf_del_extmark(edit.buffer, namespace, edit.mark)
end

--- Rewrite lines `first` to `last` of the current buffer with `instruction`, in the background.
function M.edit(first, last, instruction)
  local buffer = vim.api.nvim_get_current_buf()
  if running[buffer] then
    return say("an edit of this buffer is running; :SpecchatStop ends it")
  end
  if vim.fn.executable(M.command) == 0 then
    return say(("no program %s; the text is unchanged"):format(M.command))
  end
  local command, suffix = { M.command, "edit", "-", "--stderr" }, vim.fn.expand("%:e")
  vim.list_extend(command, suffix ~= "" and { "--lang", suffix } or {})
  vim.list_extend(command, { "--", instruction })
  local edit = { buffer = buffer, instruction = instruction, begun = vim.loop.now(), out = {} }
  edit.old = vim.api.nvim_buf_get_lines(buffer, first - 1, last, true)
  edit.mark = vim.api.nvim_buf_set_extmark(buffer, namespace, first - 1, 0, { end_row = last, end_col = 0, strict = false })
  edit.job = vim.fn.jobstart(command, {
    stdout_buffered = true,
    on_stdout = function(_, lines) edit.out = lines end,
    on_stderr = function(_, lines)
      for _, line in ipairs(lines) do
        if line ~= "" and edit.reason ~= "stopped" then
          edit.reason = line:gsub("^specchat: ", "")
        end
      end
    end,
    on_exit = function(_, code) finish(edit, code) end,
  })
  running[buffer] = edit
  edit.timer = vim.loop.new_timer()
  edit.timer:start(0, 500, vim.schedule_wrap(function() show_progress(edit) end))
  vim.fn.chansend(edit.job, table.concat(edit.old, "\n") .. "\n")
  vim.fn.chanclose(edit.job, "stdin")
end

--- End the rewrite of the current buffer; its text stays as it is.
function M.stop()
  local edit = running[vim.api.nvim_get_current_buf()]
  if not edit then
    return say("no edit of this buffer is running")
  end
  edit.reason = "stopped"
  vim.fn.jobstop(edit.job)
end

--- Wait until the rewrite of the current buffer has ended; for scripts. False after `milliseconds`.
function M.wait(milliseconds)
  local buffer = vim.api.nvim_get_current_buf()
  return vim.wait(milliseconds or 600000, function() return running[buffer] == nil end, 20)
end

--- Start `specchat lsp` for these file types. Ghost text needs Neovim 0.12, code actions 0.8.
function M.lsp(filetypes)
  if vim.lsp.config then
    vim.lsp.config("specchat", { cmd = { M.command, "lsp" }, filetypes = filetypes })
    vim.lsp.enable("specchat")
  elseif vim.lsp.start then
    vim.api.nvim_create_autocmd("FileType", { pattern = filetypes, callback = function()
      vim.lsp.start({ name = "specchat", cmd = { M.command, "lsp" }, root_dir = vim.fn.getcwd() })
    end })
  else
    return say("the language server needs Neovim 0.8, ghost text 0.12; :Specchat works in this version")
  end
  if vim.lsp.inline_completion then
    vim.lsp.inline_completion.enable()
  else
    say("ghost text needs Neovim 0.12; this version has code actions and :Specchat", vim.log.levels.INFO)
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
