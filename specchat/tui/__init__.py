"""The screen: what is said scrolls above, what is asked is written below, and one line tells how fast it goes.

It knows events, requests and the host's client; never torch, and never the engine.
"""
