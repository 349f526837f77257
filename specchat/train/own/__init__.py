"""Heads for a target of one's own, trained on this machine from what is asked on it. Nothing leaves the machine."""
