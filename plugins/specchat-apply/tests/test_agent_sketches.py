"""The agent's `edit` tool takes new text with gaps."""

from __future__ import annotations

from threading import Event as Flag

from tests.app.agent.scripted import REPOSITORY, agent_tools


def use(files, name, **arguments):
    return next(each for each in agent_tools(files) if each.tool.name == name).run(arguments, Flag())


def test_new_text_with_gaps_is_merged_or_refused_with_the_reason(files, project):
    sketch = "# ... existing code ...\ndef gross(net):\n    return round(net * (1 + TAX), 2)\n# ... existing code ...\n"
    unclear = use(files, "edit", path="shop/prices.py", new_text="# ... existing code ...\nx = 1\n")
    done = use(files, "edit", path="shop/prices.py", new_text=sketch)

    assert (True, False) == (unclear.is_error, done.is_error), done.text
    assert "show a line beside it" in unclear.text
    old = REPOSITORY["shop/prices.py"]
    assert old.replace("net * (1 + TAX)", "round(net * (1 + TAX), 2)") == (project / "shop/prices.py").read_text()


TWICE = """\
class Reader:
    def run(self):
        start()
        work()
        stop()


class Writer:
    def run(self):
        start()
        work()
        stop()
"""


def test_new_text_with_gaps_for_some_lines_is_merged_into_these_lines_alone(files, project):
    path = project / "shop/twice.py"

    def edited(sketch: str, first_line: int, last_line: int) -> tuple[bool, str]:
        path.write_text(TWICE)
        lines = {"first_line": first_line, "last_line": last_line}
        outcome = use(files, "edit", path="shop/twice.py", new_text=sketch, **lines)
        return outcome.is_error, path.read_text()

    method = "    def run(self):\n        # ... existing code ...\n        stop()\n        report()\n"
    at_the_margin = "def run(self):\n    # ... existing code ...\n    stop()\n    report()\n"
    elsewhere = "class Reader:\n    def run(self):\n        begin()\n        # ... existing code ...\n"
    right = f"{TWICE}        report()\n"

    assert (False, right) == edited(method, 9, 12)
    assert (False, right) == edited(at_the_margin, 9, 12)
    assert (False, TWICE.replace("stop()\n\n", "stop()\n        report()\n\n")) == edited(method, 2, 5)
    assert (True, TWICE) == edited(elsewhere, 8, 12)
