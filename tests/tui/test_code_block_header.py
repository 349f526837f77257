"""The header of a code block: its language and file, and the available commands."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from specchat.app.code_blocks import find_code_blocks
from specchat.drawing.glyphs import ASCII, UNICODE
from specchat.tui.code_block_header import CodeBlockHeader, header_texts
from tests.each_row import each_row

ANSWER = """Two files:

```python src/a.py
a = 1
```

1. and
   ~~~
   b
   ~~~

```sh
never closed
"""


def line(answer: str, number: int = 0, width: int = 50, *, is_newest: bool = True, glyphs=UNICODE) -> str:
    return list(header_texts(answer).values())[number].to_line(width, glyphs, is_newest=is_newest)


def test_a_header_shows_language_file_and_commands():
    assert "python src/a.py ───────────────────────── /apply 1" == line(ANSWER)
    assert "code ──────────────────────── c copy · /apply FILE" == line(ANSWER, 1)
    assert "toml pyproject.toml --- c copy - /apply" == line("```toml pyproject.toml\nx\n```", width=39, glyphs=ASCII)


def test_heads_stand_where_blocks_begin():
    assert [2, 7] == list(header_texts(ANSWER)) == [block.first_line for block in find_code_blocks(ANSWER)]


def test_only_the_newest_answer_can_be_applied():
    assert "python src/a.py " + "─" * 34 == line(ANSWER, is_newest=False)
    assert line(ANSWER, 1, is_newest=False).endswith(" c copy")


@each_row("width", range(1, 60, 7))
@each_row("glyphs", [UNICODE, ASCII])
def test_a_header_fills_its_width(width, glyphs):
    for number in (0, 1):
        shown = line(ANSWER, number, width, glyphs=glyphs)
        assert width == cell_len(shown)
        assert shown.isascii() or not glyphs.is_ascii


@each_row(
    "width, shown",
    [
        (30, "python ── c copy · /apply FILE"),
        (29, "python ─────────────── c copy"),
        (16, "python ── c copy"),
        (15, "python ────────"),
        (4, "pyth"),
    ],
)
def test_hints_that_do_not_fit_are_dropped_from_the_right(width, shown):
    assert shown == line("```python\nx\n```", width=width)


@each_row(
    "info, language",
    [
        ("python", "python"),
        ("python src/a.py", "python"),
        ("python:src/a.py", "python"),
        ("src/a.py", ""),
        ("{.python file=a.py}", "python"),
        ('title="a.py"', ""),
        ("", ""),
        ("c++", "c++"),
    ],
)
def test_the_language_is_the_first_word_that_is_no_file(info, language):
    assert language == find_code_blocks(f"```{info}\nx\n```")[0].language


def heads(driver, turn: int) -> list[str]:
    return [str(head.render()).strip() for head in driver.turns[turn].query(CodeBlockHeader)]


@pytest.mark.full
def test_every_block_of_a_finished_answer_has_a_header(run_on_screen):
    async def scenario(driver):
        await driver.submit(f"write {ANSWER}")
        await driver.wait_for_final_turn()
        await driver.wait_until(lambda: all(heads(driver, 0)))

        first, second, unclosed = heads(driver, 0)
        assert first.endswith("── /apply 1")
        assert second.endswith("── c copy · /apply FILE")
        assert unclosed.endswith("──")
        assert ["python src/a.py", "code", "sh"] == [head.partition(" ─")[0] for head in heads(driver, 0)]
        assert all(len(row) <= 60 for row in driver.shown.splitlines())

    run_on_screen(scenario, size=(60, 40))


@pytest.mark.full
def test_an_answer_that_is_no_longer_the_newest_loses_what_writes_it(run_on_screen):
    async def scenario(driver):
        await driver.submit("write ```python\nx = 1\n```")
        await driver.wait_for_final_turn()
        await driver.wait_until(lambda: heads(driver, 0)[0].endswith("c copy · /apply FILE"))
        await driver.ask("write second")
        assert heads(driver, 0)[0].endswith("── c copy")

        await driver.run_command("/back")
        await driver.wait_until(lambda: len(driver.turns) == 1 and "/apply FILE" in "".join(heads(driver, 0)))

    run_on_screen(scenario)


@pytest.mark.full
def test_a_click_on_a_header_copies_its_block(run_on_screen, monkeypatch):
    copied = list[str]()
    monkeypatch.setattr("specchat.tui.clipboard.copy_text", lambda _app, text: copied.append(text) or "terminal")

    async def scenario(driver):
        await driver.submit(f"write {ANSWER}")
        await driver.wait_for_final_turn()
        await driver.wait_until(lambda: all(heads(driver, 0)))
        for head in driver.turns[0].query(CodeBlockHeader):
            await driver.pilot.click(head)

        assert ["a = 1\n", "   b\n"] == copied

    run_on_screen(scenario, size=(80, 50))


@pytest.mark.full
def test_in_ascii_a_block_stays_as_the_model_wrote_it(run_on_screen):
    async def scenario(driver):
        await driver.submit(f"write {ANSWER}")
        await driver.wait_for_final_turn()
        await driver.wait_for_text("```python src/a.py")

        assert driver.shown.isascii()
        assert ANSWER.strip() == driver.turns[0].answer.strip()

    run_on_screen(scenario, glyphs=ASCII)
