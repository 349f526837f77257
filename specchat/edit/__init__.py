"""Answers in, changes of files out: read what a model wrote, hold it to the contract, write it, undo it.

source_text.py                    a file as text, and its encoding
edit_intent.py, .toml             "/edit" and plain sentences -> file, instruction
operations.py                     what a syntax tree can do, as values
parse_instruction.py, .toml       words -> operations, by a few English patterns
edit_plan.py                      the ways: the whole file, regions, search/replace blocks
edit_turn.py                      one request to the model and its events
answer_watch.py                   ends an answer that cannot become the file
answer_blocks.py                  the part of an answer that is the new text, and the talk around it
answer_patches.py                 an answer that is a diff or search/replace blocks: applied where its lines stand
sketch.py                         code with gaps for what stays: what a gap is, and the plugin that merges
answer_check.py                   refusals, omissions, prose, loops, an answer that is a part of the file
contract.py                       a new text changes what was asked for: the rest is put back, or a reason to refuse
asked_changes.py, .toml           what an instruction lets change: by its operation, else by its words
added_things.py, .toml            whether what was to be added is there
changed_statements.py             which changed statements it asks for
statement_pairs.py                which statement of the new text each old one became
postconditions.py                 what stays equal when one kind of change is asked for; tabs and blanks
syntax_check.py                   whether the new text still parses, defines what it uses, and calls what can work
check_commands.py                 --check, in a copy of the project
hunks.py                          the differences as hunks and as a unified diff
atomic_write.py                   replace files, all or none
undo_store.py                     apply and undo an edit; earlier contents by hash
"""
