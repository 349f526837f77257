"""Files in, patches out.

source.py encoding.py      a file as it is on disk         check.py scratch.py      does it parse, does it pass
plan.py                    the whole file, or parts        review.py asking.py      a person decides, hunk by hunk
task.py together.py        ask the model, at most thrice   deciding.py terminal.py  until it can be written
progress.py following.py   how far it is, while it comes   apply.py commit.py       whole files, safely replaced
vet.py                     distrust what it said           undo.py kept.py          and taken back
patch.py hunks.py          what differs, as a diff         turn.py                  one question to the model, heard
"""
