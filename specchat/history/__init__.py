"""Stored conversations, in one SQLite file. Knows no model and no screen.

history_schema  the tables, and which files have them
history_reader  conversations, turns and versions, also as texts to copy
history_writer  what the host writes down while it answers
step_encoding   the steps of an answer as bytes
"""
