"""A plugin that adds `specchat peers`: our engine against transformers and llama.cpp, on the same weights and prompts.

command.py             the command line
compared_engines.py    ours, theirs, theirs, ours on each prompt; transformers and its own drafts
llama_cpp.py           llama.cpp by its library; llama_gguf.py writes our weights as it reads them
gguf_peers.py          `--gguf`: chats, code, edits, prefill and wider passes beside llama.cpp on one file
gguf_peers_table.py    its table, and what stands below it

Every process of specchat imports this file, so it only declares the extension.
"""

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    return [Extension("peers", "Measure against transformers and llama.cpp.", "specchat_peers.command:peers")]
