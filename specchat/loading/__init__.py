"""From a profile to an engine: first a plan, then the loading. The only place that sees every package of the engine.

load_plan.py     resolves every folder, device, dtype and weight format into one `LoadPlan`, without torch; leaves out
                 drafters that do not fit the target
engine_memory.py what a profile will hold, and what its device has left for it
load_engine.py   loads the plan into an `Engine`, which creates sessions
"""
