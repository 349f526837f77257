"""The retrieved context: whole files while they are small, and else the matching passages."""

import pytest

from specchat.chat.attachments import with_attachments
from specchat.chat.request import Attachment
from specchat.context.retrieve import ContextBudget, gather_context
from specchat.errors import ContextError, InputError
from tests.each_row import each_row

WIDE = ContextBudget.of_window(8192)
NARROW = ContextBudget(total_characters=1400, passage_characters=600)
FENCE = "def fence(text):\n    return max(run_of_backticks(text), 3)\n"


def filler(number):
    return "".join(f"def other_{number}_{n}(x):\n    return x + {n}\n\n\n" for n in range(30))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that exceeds the narrow budget; one passage of it is about fences."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for number in range(5):
        (tmp_path / "src" / f"m{number}.py").write_text(filler(number))
    (tmp_path / "src" / "m2.py").write_text(filler(2) + FENCE + "\n\n" + filler(7))
    return tmp_path


def test_no_names_give_no_context():
    assert gather_context([], "why?", WIDE) == gather_context((), "how?", NARROW)
    assert () == gather_context([], "why?", WIDE).files


def test_small_files_are_attached_whole_in_the_order_of_their_names(folder):
    found = gather_context(["src", "src/m1.py"], "anything", WIDE)

    assert ["src/m1.py", "src/m0.py", "src/m2.py", "src/m3.py", "src/m4.py"] == [file.name for file in found.files]
    assert found.notice == "attached: src/m1.py, src/m0.py, src/m2.py and 2 more files (about 2,321 tokens)"
    assert () == found.sources


def test_named_files_that_fit_need_no_matching_word(folder):
    attached = gather_context(["src/m1.py", "./src/m1.py"], "anything", WIDE)
    assert attached.notice == "attached: src/m1.py (about 384 tokens)"


def test_the_matching_passages_of_a_long_folder_are_attached(folder):
    found = gather_context(["src/"], "How long is a fence of backticks?", NARROW)

    assert any(FENCE in file.text for file in found.files)
    assert all(file.name.startswith("src/m2.py lines ") for file in found.files)
    assert sum(len(file.text) for file in found.files) <= NARROW.passage_characters
    assert found.notice == (
        "attached: 1 passage of 1 file (about 132 tokens), out of 5 files; "
        "the rest does not fit or does not match the question"
    )


def test_a_passage_consists_of_lines_of_its_file(folder):
    [passage] = gather_context(["src/m2.py"], "How long is a fence of backticks?", NARROW).files
    first, last = map(int, passage.name.rpartition(" ")[2].split("-"))

    lines = (folder / "src" / "m2.py").read_text().splitlines(keepends=True)
    assert passage.text == "".join(lines[first - 1 : last])


def test_the_citation_is_the_file_and_its_lines(folder):
    found = gather_context(["src/"], "fence", NARROW)

    assert [file.name.replace(" lines ", ":") for file in found.files] == list(found.sources)


def test_identifiers_are_found_by_their_parts(folder):
    (folder / "src" / "camel.js").write_text("function closeOpenGates(x) {\n  return x\n}\n")

    for question in ("which gate is closed and open?", "close_open_gates", "GATE"):
        assert "src/camel.js:1-3" in gather_context(["src/"], question, NARROW).sources


@each_row(
    "said, written",
    [("verified", "verify"), ("committed", "commit"), ("queries", "query"), ("classes", "class"), ("caching", "cache")],
)
def test_forms_of_a_word_match(folder, said, written):
    (folder / "src" / "found.py").write_text(f"x = my_{written}(1)\n")

    assert ("src/found.py:1-1",) == gather_context(["src/"], f"what is {said}?", NARROW).sources


def test_a_file_can_be_found_by_its_name(folder):
    (folder / "src" / "parachute.py").write_text("x = 1\n")

    assert ("src/parachute.py:1-1",) == gather_context(["src/"], "what is in the parachute?", NARROW).sources


def test_passages_are_in_the_order_of_the_files_and_neighbours_are_joined(folder):
    for name in ("a.py", "b.py"):
        (folder / "src" / name).write_text(
            "".join(f"def {name[0]}{n}():\n    fence({n})\n" + "    x = 1\n" * 30 for n in range(2))
        )
    found = gather_context(["src/"], "fence", ContextBudget(total_characters=4000, passage_characters=2500))

    assert ("src/a.py:1-64", "src/b.py:1-64") == found.sources[:2]
    assert "src/m2.py" in found.sources[2]


def test_the_same_question_finds_the_same_passages(folder):
    assert gather_context(["src/"], "fence of other", NARROW) == gather_context(["src/"], "fence of other", NARROW)


def test_the_shortest_named_files_are_attached_whole_when_not_all_fit(folder):
    (folder / "note.txt").write_text("a note\n")

    found = gather_context(["src/m2.py", "note.txt"], "fence", NARROW)

    assert "note.txt" == found.files[0].name
    assert "a note\n" == found.files[0].text
    assert all("src/m2.py lines" in file.name for file in found.files[1:])


def test_the_prompt_has_the_lines_with_the_name(folder):
    found = gather_context(["src/"], "fence", NARROW)

    lines = found.sources[0].partition(":")[2]
    assert f"File `src/m2.py` lines {lines}:\n```python\n" in with_attachments("fence?", found.files)


def test_without_a_matching_word_a_map_is_attached(folder):
    found = gather_context(["src/"], "elephants?", NARROW)

    assert ["map of the definitions"] == [file.name for file in found.files]
    assert found.notice.startswith("attached: a map of the definitions (about 43 tokens), out of 5 files")


def test_without_a_match_and_without_definitions_is_an_error(folder):
    (folder / "long.txt").write_text("one two three\n" * 200)

    with pytest.raises(InputError, match=r"\*\.txt: too long to be attached whole, and without a word") as caught:
        gather_context(["*.txt"], "elephants?", NARROW)
    assert 2 == caught.value.exit_code


@each_row(
    "text, question",
    [
        ("one two three\n" * 200, "elephants?"),
        ("one two three\n" * 200, "Summarize long.txt"),
        ("one two three\n" * 200, "Worum geht es? Bitte fasse alles von one bis three zusammen"),
        ("fence " * 1000, "fence"),  # a single line
    ],
)
def test_a_named_file_that_no_passage_answers_for_is_kept_whole_to_be_read_in_parts(folder, text, question):
    (folder / "long.txt").write_text(text)

    found = gather_context(["long.txt"], question, NARROW)

    assert [Attachment("long.txt", text)] == list(found.files)
    assert "too long for the context window, so read in parts and summarized: long.txt" in found.notice


def test_a_line_that_exceeds_the_budget_is_an_error(folder):
    (folder / "long.txt").write_text("fence " * 1000)

    with pytest.raises(ContextError, match=r"long\.txt:1-1 has 6000 characters, and only 600 fit") as caught:
        gather_context(["*.txt"], "fence", NARROW)
    assert 6 == caught.value.exit_code


def test_crlf_and_a_byte_order_mark_are_handled(folder):
    (folder / "crlf.py").write_bytes(b"\xef\xbb\xbf" + b"x = 1\r\n" * 400 + b"fence = 2\r\n")

    found = gather_context(["crlf.py"], "fence", NARROW)

    assert found.files[0].text.endswith("fence = 2\n")
    assert found.sources[0].endswith("-401")


@each_row("tokens", [16, 8192, 2**24])
def test_the_budget_leaves_space_for_the_answer(tokens):
    room = ContextBudget.of_window(tokens)

    assert room.passage_characters < room.total_characters < 3 * tokens
    assert 2 * room.total_characters < 32 * 2**20
