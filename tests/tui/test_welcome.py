"""What an empty conversation shows: model, folder, branch and a question for this folder, with nothing over it."""

from __future__ import annotations

from pathlib import Path

from textual.widgets._toast import Toast

from specchat import __version__
from specchat.app.welcome import EXAMPLE_WITHOUT_FILES, example_question, git_branch, welcome_text
from tests.each_row import each_row


@each_row(
    "files, question",
    [
        ((), EXAMPLE_WITHOUT_FILES),
        (("data.json", ".hidden.py", "__init__.py", "a b.py"), EXAMPLE_WITHOUT_FILES),
        (("README.md", "data.json"), "Summarize @README.md"),
        (("README.md", "zoo.py", "shop.go"), "What does @shop.go do?"),
    ],
)
def test_the_example_is_about_a_file_of_this_folder(files, question, tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    for name in files:
        (folder / name).write_text("text")
    (folder / "large.py").write_text("x" * 4_500)
    (folder / "empty.py").touch()

    assert question == example_question(folder)


def test_a_folder_that_cannot_be_read_has_an_example_too(tmp_path):
    assert EXAMPLE_WITHOUT_FILES == example_question(tmp_path / "gone")


def test_the_branch_is_read_without_git(tmp_path):
    (tmp_path / "own" / "below").mkdir(parents=True)
    assert "" == git_branch(tmp_path / "own")

    git = tmp_path / "own" / ".git"
    git.mkdir()
    assert "" == git_branch(tmp_path / "own")
    (git / "HEAD").write_text("ref: refs/heads/fix/login\n")
    assert "fix/login" == git_branch(tmp_path / "own" / "below")
    (git / "HEAD").write_text("0123456789abcdef\n")
    assert "0123456" == git_branch(tmp_path / "own")

    worktree = tmp_path / "other"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: ../own/.git\n")
    assert "0123456" == git_branch(worktree)


def test_the_text_names_version_model_and_folder(tmp_path):
    text = welcome_text(tmp_path, "starter", "one hint")

    assert text.startswith(f"specchat {__version__}\n\none hint\n\nmodel    starter\nfolder   {tmp_path}\n")
    assert "model    …" in welcome_text(Path("/"), "")


def test_no_toast_is_over_the_welcome_and_the_model_is_in_it(run_on_screen):
    async def scenario(driver):
        await driver.wait_for_text("model    embedded")
        await driver.press("f9")
        await driver.wait_until(lambda: [each for each in driver.chat.query(Toast) if each.region.height])

        welcome = driver.chat.query_one("#welcome")
        assert not any(each.region.overlaps(welcome.region) for each in driver.chat.query(Toast))
        assert not any(each.region.overlaps(driver.prompt.region) for each in driver.chat.query(Toast))

    run_on_screen(scenario, size=(80, 24))
