"""Objects that the garbage collector does not look through. In a process of its own: this one has a million objects."""

import subprocess
import sys
from textwrap import dedent

from tests.each_row import each_row

SETUP = """
import gc
from specchat.process_memory import collect_all, permanent_objects

class Cycle:
    freed = 0

    def __init__(self):
        self.itself = self

    def __del__(self):
        Cycle.freed += 1
"""
KEPT = """
with permanent_objects():
    assert not gc.isenabled()
    kept = Cycle()
del kept
gc.collect()
assert gc.isenabled()
assert Cycle.freed == 0
collect_all()
assert Cycle.freed == 1
assert gc.get_freeze_count() > 0
"""
FAILED = """
try:
    with permanent_objects():
        raise RuntimeError
except RuntimeError:
    pass
assert gc.isenabled()
"""


@each_row("script", [KEPT, FAILED])
def test_collections_of_permanent_objects(script):
    ran = subprocess.run([sys.executable, "-c", dedent(SETUP + script)], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")
