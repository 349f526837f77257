"""Files in, patches out: rewrite files with the model, check and review the result, write it atomically, undo it.

source_text.py       a file as text, and how to encode it again     encoding.py         bytes <-> text, without loss
edit_intent.py       "/edit" and plain sentences -> file, instruction
workspace_roots.py   the folders that an editor session may touch
edit_plan.py         the whole file, or regions that fit the window
edit_regions.py      which lines an instruction is about
edit_task.py         prompts, retries, checks: EditJob -> EditResult   multi_file.py       several files in one
conversation
edit_turn.py         one request to the model and its events
rewrite_alignment.py position of the streamed text in the original     progress_line.py    the same as a status line
answer_check.py      refusals, omissions, prose, loops, lost comments
syntax_check.py      does the new text still parse                     check_commands.py   --check, in a copy of the
project
hunks.py, patch.py   the differences as hunks and as a unified diff
review_state.py      decisions about hunks, with undo                  hunk_prompt.py      the keys y n a d e s c u q
hunk_review.py       review until the accepted text passes the checks  terminal_review.py  colours, prompt, $EDITOR
edit_target.py       the file of an edit, for editors and scripts
atomic_write.py      replace files, all or none                        git_commit.py       commit exactly these files
undo_edits.py        apply an edit and undo it                         undo_store.py       earlier contents by hash
json_report.py       the result of an edit as JSON
"""
