"""Agent Client Protocol, version 1, for editors such as Zed.

editor_connection.py bytes <-> lines <-> JSON-RPC messages, in both directions
agent.py             the methods of the protocol, and the process
acp_session.py       one session: its thread and its queue of prompts
client_requests.py   requests and updates to the editor, and the values of the protocol
prompt_handler.py    one prompt: a question, a slash command or an edit
prompt_blocks.py     content blocks -> question and attachments
turn_reporter.py     engine events -> session updates
file_edit.py         an edit: rewrite with its progress, diff, permission, write
agent_calls.py       calls of tools as updates, the permission for them, and unsaved texts as tools see them
session_config.py    commands, modes and options of a session
stored_sessions.py   list, replay and delete stored conversations and their edits
stored_calls.py      calls of tools for the replay
session_log.py       what was shown and is not in the history, in files

The SDK (`acp`) takes most of a second to import, so only the command imports this package, inside a function.
"""
