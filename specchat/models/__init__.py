"""Weights: files on disk become things that the engine calls."""
