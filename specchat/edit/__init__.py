"""Files in, patches out.

source.py encoding.py   a file as it is on disk       check.py scratch.py   does it parse, does it pass
plan.py                 the whole file, or parts      review.py asking.py   a person decides, hunk by hunk
task.py                 ask the model, at most thrice apply.py commit.py    whole files, safely replaced
progress.py             how far it is, while it comes undo.py kept.py       and taken back
vet.py                  distrust what it said         patch.py hunks.py     what differs, as a diff
"""
