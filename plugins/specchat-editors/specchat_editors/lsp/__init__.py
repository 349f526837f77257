"""Language Server Protocol: inline completions, and edits as code actions.

process_lsp.py             the process: stdin to exit code, bytes -> messages
request_guard.py           every request gets a valid response
server.py                  the methods of the protocol
editor_window.py           what the editor can do, and messages to its user
model_watch.py             what the user hears of the models while they load
initialization_options.py  options of the client
text_documents.py          open documents; positions <-> offsets
cursor_context.py          the text around the cursor -> fill-in-the-middle request; what of its completion to show
syntax_trim.py             where a completion that was cut may end
inline_completion.py       debounce, request, timeout; the last suggestion
code_actions.py            the code actions for a selection
rewrite_edits.py           a rewrite as text edits, an explanation as a Markdown page
work_done_progress.py      the editor's progress bar
"""
