"""Automatic choice of the drafter and of the number of draft tokens: the fastest on this machine, or plain decoding.

chooser.py      the drafter `auto`: delegates each step to the drafter with the most expected tokens for its time
state.py        what is learned about drafters, and what trials may still cost
acceptance.py   expected accepted tokens of a draft tree, from the acceptance statistics of a drafter
costs.py        measured seconds of target passes and of drafts, calibrated and updated
learned_file.py costs and acceptance on disk, with which the next process starts
curve.py        seconds by the number of rows or by the depth of a draft, and when they no longer hold
"""
