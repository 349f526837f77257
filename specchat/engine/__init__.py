"""Tokens in, steps out. Knows torch; knows no text, no files, no screen."""
