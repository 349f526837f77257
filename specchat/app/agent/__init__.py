"""Tools that the model calls while it answers, with the consent of the user. Front ends import it; no torch, no screen.

    agent_tool.py     the interface of a tool: what it does, its effect, its outcome, also in one line
    agent_loop.py     answer, calls, consent, results, and the next answer
    project_agent.py  what a chat asks in the place of its model
    instructions.py   what the model reads first: a few sentences and AGENTS.md
    call_consent.py   whether a call may run: rules, and the question to the user
    command_rules.py  which command lines a rule of `run` is about
    read_tools.py     read, list and search; python_search.py is the program that searches
    change_tools.py   edit, for which it asks the model for the new text, write, and run
    tool_schemas.py   our tools as a model reads them (own_tools.toml), and the check of arguments that it wrote

Further tools come from plugins (`app/tool_sources.py`), are offered beside these, and ask by the same rules.
"""
