"""The full-screen interface (TUI), on Textual: transcript, prompt, status bar. A client of the host; imports no torch.

app.py                     the application: themes, keys, threads
conversation_layout.py     what a conversation looks like, and how the focus moves
chat_screen.py             the main screen: sending, stopping, deciding
prompt_sender.py           prompts to the worker, and what is not sent yet
prompt_input.py            the prompt and its history
bottom_area.py             the prompt with its completions, or picker.py or approval.py; picker_controller.py
keys_screen.py             the keys, by F1
screen_commands.py         slash commands that need a screen
job_thread.py              a thread that runs one job after another
session_worker.py          the thread that runs requests; screen_edit_ui.py for what they ask the user
open_conversation.py       the conversation of that thread
background_requests.py     a second connection, for lists and engine state
worker_messages.py         what the threads send to the screen
conversation_presenter.py  messages to widgets
transcript_view.py         turns and notes; turn_widget.py
streaming_answer.py        an answer while it is generated; folded_text.py, thoughts and calls
markdown_answer.py         a finished answer; code_block_header.py
status_bar.py              the last line; live_stats.py computes it
inspector.py               an answer by drafter; token_view.py
session_list.py            the list of conversations
preferences.py             screen.toml; clipboard.py, screen.tcss; terminal_background.py, light or dark
"""
