"""What every front end offers: the verbs as generators of typed events, slash commands, tools that the model calls.

Knows no screen and no protocol, and imports no torch. Plugins import this package. A front end parses what its user
said into an order, renders the events, and sends a decision for each proposal.

    ask.py               the verb: a question with its files in, events out, the sum of all answers last
    question.py          what a person asks, and the one reading of the files that are named
    edit.py              the verb: files and an instruction in, events out, all files written or none
    edit_task.py         prompts, ways, retries, or the syntax tree: EditJob -> EditResult
    named_operation.py   the model names the operation that an instruction is, and the syntax tree carries it out
    model_ability.py     what a model is asked for in an edit, by its size
    edit_events.py       its order, its events, and the one class of an accepted edit
    hunk_review.py       decisions about hunks, with their keys, and the callbacks of a front end for a person
    edit_renderer.py     the events of an edit and the review of its hunks, by these callbacks
    edit_progress.py     the position of the streamed text in the original, also as a status line
    edit_call.py         the edit of one file as protocols show it: diff, permission, end
    updates.py           what editors and programs are shown of an answer, as JSON of the Agent Client Protocol
    edit_commit.py       a git commit of what one edit changed, and nothing else
    edit_session.py      the conversation that rewrites files, and the profile that it has
    consent.py           what a person decides about a change, and when one must be asked

    chat_state.py        the state of a conversation in a front end, notices about answers, and the result of a command
    command_registry.py  the table of slash commands, and what each does
    completion.py        what the end of a line that is being typed may become
    chat_settings.py     /model, /system, /temperature and the other keys of a profile that a chat may change
    part_reader.py       files that do not fit the context window: read in parts, which notes replace
    compact.py           /compact: continue in a copy that begins with a summary
    export.py            /export: Markdown and JSON
    model_loading.py     /profile: the models that a change would load, as a question
    inspect_text.py      /inspect: the tokens of an answer by drafter, as text, in the colours of the TUI
    welcome.py           what an empty conversation shows
    code_blocks.py       the code blocks of an answer
    edited_files.py      where the text of an edit comes from and goes
    project_files.py     the files of a project, read without surprises and written once, or by the editor
    file_edits.py        /edit, /apply and /undo
    take_back.py         what `specchat undo` and /undo say and do
    tool_sources.py      tools, prompts and texts that plugins bring, such as those of MCP servers
    agent/               the agent: tools that the model calls while it answers
"""
