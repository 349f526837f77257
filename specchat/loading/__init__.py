"""From a profile to an engine: first a plan, then the loading. The only place that sees every package of the engine.

load_plan.py     resolves every folder, device, dtype and weight format into one `LoadPlan`, without torch
drafter_fit.py   whether a draft model or a head fits a target, by their configs and tokenizers, without torch
engine_memory.py what a profile will hold, and what its device has left for it
load_engine.py   loads the plan into an `Engine`, which creates sessions
"""
