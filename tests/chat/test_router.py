"""The route of a request follows from its words, files and sampling, and has a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specchat.chat.request import AnswerFormat, Attachment, Request
from specchat.chat.request_kinds import HEAD_CHARACTERS, TAIL_CHARACTERS, _any_of, matches_rule, parse_question
from specchat.chat.router import KIND_DEFAULTS, TOOL_KINDS, Route, choose_route
from specchat.chat.tools import Tool, ToolResult
from specchat.errors import ProfileError
from specchat.host.protocol import request_from_json, request_to_json
from specchat.profile.drafter_names import DRAFTER_NAMES, DRAFTERS
from specchat.profile.keys import REQUEST_KINDS as NAMES
from specchat.profile.keys import Profile, RouteRule
from specchat.profile.profile_files import load_profile
from tests.each_row import each_row
from tests.processes import modules_after
from tools.router_accuracy import as_table, confusion_matrix, main, read_requests

REQUESTS = Path(__file__).with_name("requests.jsonl")
REQUESTS_IN_LANGUAGES = Path(__file__).with_name("requests_in_languages.jsonl")
FILE = Attachment("total.py", "def total(xs):\n    return sum(xs)\n")
WITHOUT_MODELS = frozenset({"auto", "plain", "lookup"})
DRAFT = WITHOUT_MODELS | {"draft"}
ALL_DRAFTERS = frozenset(DRAFTER_NAMES)
NEVER_ORDERED = frozenset({"auto"})


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """No profiles but the shipped ones."""
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path))


def route(request: Request | str, available: frozenset[str] = DRAFT, **overrides) -> Route:
    """The route of a request with the shipped chat profile; `_` in an override stands for the dot."""
    profile = load_profile("chat").override({key.replace("_", ".", 1): value for key, value in overrides.items()})
    return choose_route(Request(request) if isinstance(request, str) else request, profile, available)


def by_rules(request: Request | str, *rules: RouteRule, available: frozenset[str] = DRAFT) -> Route:
    return choose_route(Request(request) if isinstance(request, str) else request, Profile(routes=rules), available)


def test_most_requests_get_the_right_kind():
    confusion = confusion_matrix(read_requests(REQUESTS), load_profile("chat"))

    assert confusion.total >= 200
    assert confusion.accuracy >= 0.85, as_table(confusion)
    assert all((confusion.recall_of(kind) or 0.0) >= 0.7 for kind in NAMES), as_table(confusion)


def test_a_word_is_found_beside_a_script_without_spaces():
    rule = RouteRule(kind="edit", contains=("fix", "函数"))
    matched = [
        text for text in ("请fix它", "prefix它", "改foo函数吧", "改foo数吧") if by_rules(text, rule).kind == "edit"
    ]

    assert matched == ["请fix它", "改foo函数吧"]


def test_the_words_of_the_shipped_rules_are_compiled_without_classes_of_scripts():
    """A class of 27,000 letters beside each of a thousand words took four seconds at the first question."""
    lists = [
        words for rule in load_profile("chat").routes for words in (rule.starts_with, rule.contains, rule.excludes)
    ]

    assert sum(map(len, lists)) > 500
    assert not any("\u3400" in _any_of(words).pattern for words in lists)


def test_kinds_do_not_depend_on_english():
    """German, French, Spanish, Portuguese, Italian, Russian, Chinese and Japanese."""
    rows = REQUESTS_IN_LANGUAGES.read_text(encoding="utf-8").splitlines()
    confusion = confusion_matrix(read_requests(REQUESTS_IN_LANGUAGES), load_profile("chat"))

    assert len({json.loads(row)["language"] for row in rows}) == 8
    assert confusion.accuracy >= 0.9, as_table(confusion)


@each_row(
    "kind, value, expected",
    [
        ("schema", '{"type": "object"}', "structured"),
        ("regex", "[a-z]+", "structured"),
        ("choices", ["ja", "nein"], "short"),
    ],
)
def test_the_format_of_an_answer_decides_before_any_word(kind, value, expected):
    request = Request("Ihugla zitu marelo?", answer_format=AnswerFormat.parse(kind, value))

    assert expected == route(request).kind


@each_row("mark, kind", [("?", "files"), ("？", "files"), ("", "edit"), (".", "edit")])
def test_a_question_mark_tells_a_question_about_files_from_a_change_in_any_language(mark, kind):
    assert kind == route(Request(f"Ihugla zitu marelo{mark}", (FILE,))).kind


def test_a_fence_is_code_in_any_language():
    assert "code" == route("Ihugla zitu\n```py\nx = 1\n```\nmarelo?").kind


@each_row(
    "request_, kind, first",
    [
        (Request("Anything at all", task="edit"), "edit", "lookup"),
        (Request("Rename total to add", (FILE,)), "edit", "lookup"),
        (Request("What does total return?", (FILE,)), "files", "lookup"),
        (Request("Write a Python function that reverses a list"), "code", "draft"),
        (Request("Why do cats purr, and how?"), "chat", "draft"),
        (Request("List the planets as JSON"), "structured", "lookup"),
        (Request("Write a poem on rain"), "creative", "draft"),
        (Request("What is the capital of Peru?"), "short", "plain"),
    ],
)
def test_each_kind_has_its_first_drafter(request_, kind, first):
    chosen = route(request_)

    assert (kind, "auto", first) == (chosen.kind, chosen.variant, chosen.drafter_order[0])


@each_row(
    "request_, kind",
    [
        (Request("Write a poem", tools=(Tool("a"),), tool_choice="a"), "tool_call"),
        (Request("Write a poem", tools=(Tool("a"),), tool_choice="required"), "tool_call"),
        (Request("", tools=(Tool("a"),), tool_results=(ToolResult("c1", "a", "found"),)), "tool_result"),
        (Request("Write a poem", tools=(Tool("a"),), tool_results=(ToolResult("c1", "a", "found"),)), "creative"),
        (Request("Write a poem", tools=(Tool("a"),)), "creative"),
    ],
)
def test_calls_and_what_follows_results_are_kinds_of_their_own(request_, kind):
    assert route(request_).kind == kind


def test_the_order_has_every_available_drafter_once():
    for kind in NAMES:
        for available in (WITHOUT_MODELS, DRAFT, ALL_DRAFTERS):
            order = by_rules("x", RouteRule(kind=kind), available=available).drafter_order
            assert sorted(available - NEVER_ORDERED) == sorted(order)


def test_a_head_goes_before_a_draft_model_in_a_chat():
    assert "eagle3" == route("Why do cats purr, and how?", ALL_DRAFTERS).drafter_order[0]


def test_every_kind_of_the_profiles_has_a_reason_and_an_order():
    assert {*NAMES, *TOOL_KINDS} == KIND_DEFAULTS.keys()
    assert all({*kind.drafter_order} == ALL_DRAFTERS - NEVER_ORDERED for kind in KIND_DEFAULTS.values())


def test_a_high_temperature_puts_plain_decoding_first():
    hot, warm = route("Write a poem on rain", sampling_temperature=1.3), route("Write a poem on rain")

    assert ("plain", "draft") == (hot.drafter_order[0], warm.drafter_order[0])
    assert "creative" == hot.kind
    assert "at temperature 1.3 few draft tokens are accepted, so plain decoding comes first" == hot.reason


def test_the_temperature_of_the_request_counts_more_than_that_of_the_profile():
    assert "plain" == route(Request("Write a poem on rain", temperature=2.0), sampling_temperature=0.0).drafter_order[0]


def test_the_reason_is_a_sentence_about_the_request():
    edit = route(Request("Rename total to add", (FILE,)))

    assert "an edit repeats most of its text, so lookup is assumed to draft best, then draft" == edit.reason
    assert (
        "an edit repeats most of its text, so lookup is assumed to draft best"
        == route(Request("x", task="edit"), frozenset({"plain", "lookup"})).reason
    )


def test_without_a_chooser_the_first_drafter_is_used():
    without = DRAFT - {"auto"}

    assert "lookup" == route(Request("x", task="edit"), without).variant
    assert "draft" == route("Why do cats purr, and how?", without).variant
    assert "draft" == route("What is the capital of Peru?", without).variant


@each_row("variant", ["plain", "lookup", "draft"])
def test_a_pin_always_wins(variant):
    by_request = route(Request("Write a poem on rain", variant=variant))
    by_profile = route("Write a poem on rain", speculation_variant=variant)
    against_a_rule = by_rules(Request("x", variant=variant), RouteRule(kind="edit"))

    budget = 0 if variant == "plain" else 16
    assert Route("creative", variant, budget, "pinned", (variant,)) == by_request == by_profile
    assert (variant, "pinned") == (against_a_rule.variant, against_a_rule.reason)


def test_a_request_may_override_a_pinned_profile_with_auto():
    assert "auto" == route(Request("Write a poem on rain", variant="auto"), speculation_variant="plain").variant


@each_row(
    "variant, said",
    [
        (
            "draft",
            (
                "'draft' needs a draft model; name one with --draft or under models.draft; "
                "available are auto, plain, lookup"
            ),
        ),
        ("eagle3", "variant 'eagle3' needs an EAGLE-3 head trained for this target; available are"),
        ("suffix", "variant 'suffix' cannot run with the loaded models; available are"),
        ("magic", "unknown variant 'magic'; known are auto, plain, lookup"),
    ],
)
def test_a_variant_that_cannot_run_is_refused_with_its_needs(variant, said):
    with pytest.raises(ProfileError) as by_request:
        route(Request("x", variant=variant), WITHOUT_MODELS)

    assert said in str(by_request.value)
    assert "\n" not in str(by_request.value)


def test_a_profile_that_pins_an_unavailable_variant_is_refused():
    with pytest.raises(ProfileError, match="variant 'mtp' needs a target whose checkpoint has MTP layers"):
        route("x", speculation_variant="mtp")


def test_the_first_matching_rule_decides():
    assert (
        "code"
        == by_rules(
            "a table", RouteRule(kind="code", contains=("table",)), RouteRule(kind="edit", contains=("table",))
        ).kind
    )


def test_a_request_without_a_matching_rule_is_a_chat():
    assert "chat" == by_rules("hello", RouteRule(kind="code", contains=("table",))).kind
    assert "chat" == by_rules("hello").kind


@each_row(
    "rule, fitting, other",
    [
        (RouteRule(kind="chat", contains=("tables*",)), "Three Tablespoons", "a table"),
        (
            RouteRule(kind="chat", contains=("fix ... bug",)),
            "fix that nasty old bug",
            "fix it so that nobody ever meets a bug",
        ),
        (RouteRule(kind="chat", contains=("fix ... bug",)), "Fix: bug", "bug fix"),
        (RouteRule(kind="chat", contains=("c++",)), "Is C++ hard?", "Is C hard?"),
        (RouteRule(kind="chat", contains=("go",)), "in Go, please", "a good category"),
        (RouteRule(kind="chat", contains=("über",)), "ÜBER alles", "uber"),
        (RouteRule(kind="chat", starts_with=("who",)), "  “Who goes there", "and who goes there"),
        (RouteRule(kind="chat", contains=("a",), also_contains=("b",)), "b and a", "a and c"),
        (RouteRule(kind="chat", contains=("a",), excludes=("b",)), "a and c", "a and b"),
        (RouteRule(kind="chat", min_words=3), "one two three", "one two"),
        (RouteRule(kind="chat", max_words=2), "one two", "one two three"),
        (RouteRule(kind="chat", has_text=True), 'Correct "me and him was late"', "Correct me"),
        (RouteRule(kind="chat", has_text=False), 'What does "brave" mean?', "Fix the grammar: me and him was late"),
        (RouteRule(kind="chat", has_code=True), "Why does `x` fail?", "Why does x fail?"),
        (RouteRule(kind="chat", contains=("翻译",)), "请把它翻译成英文", "请改写它"),
        (RouteRule(kind="chat", contains=("把 ... 改成",)), "请把函数名改成 b", "改成 b，把它"),
        (RouteRule(kind="chat", contains=("用 json",)), "用JSON列出", "用 XML 列出"),
        (RouteRule(kind="chat", max_words=3), "雨是什么", "雨是什么时候开始下的"),
        (RouteRule(kind="chat", is_question=True), "Quoi ?", "Quoi."),
        (RouteRule(kind="chat", contains=("[a-z]",)), "what is [a-z]?", "what is b?"),
    ],
)
def test_the_conditions_of_a_rule(rule, fitting, other):
    assert matches_rule(rule, parse_question(Request(fitting)), 0.0)
    assert not matches_rule(rule, parse_question(Request(other)), 0.0)


def test_conditions_on_files_tasks_and_temperature():
    plain, filed = parse_question(Request("x")), parse_question(Request("x", (FILE,)))

    assert [False, True] == [matches_rule(RouteRule(kind="chat", has_files=True), each, 0.0) for each in (plain, filed)]
    assert [True, False] == [
        matches_rule(RouteRule(kind="chat", has_files=False), each, 0.0) for each in (plain, filed)
    ]
    assert [False, True] == [
        matches_rule(RouteRule(kind="chat", temperature_above=1.0), plain, heat) for heat in (1.0, 1.1)
    ]
    tasked = parse_question(Request("x", task="edit"))
    assert [False, True] == [matches_rule(RouteRule(kind="chat", task="edit"), each, 0.0) for each in (plain, tasked)]


@each_row(
    "text, asked",
    [
        ("Fix the grammar: me and him was late", "Fix the grammar"),
        ("修正这些错字：昨天我去了市长", "修正这些错字"),
        ("git: how do I undo a commit?", "git: how do I undo a commit?"),
        ("Summarize: " + "word " * 40, "Summarize"),
        ("Summarise this.\n\nA tale of a table.\n\nIt had legs.", "Summarise this."),
        ("word " * 70 + "\nWho sings it?", "Who sings it?"),
        ("A tale.\n\nIt had legs.\n\nWhat had legs?", "A tale. What had legs?"),
        ("Explain this:\n```py\nx = 1\n```", "Explain this:"),
        ('Make "the dog bit the man" passive', "Make  passive"),
    ],
)
def test_the_instruction_is_separated_from_its_text(text, asked):
    assert asked == parse_question(Request(text)).instruction.strip()


def test_only_the_ends_of_a_long_text_are_read():
    question = parse_question(Request("a b " * 1_000_000 + "\n\nWho wrote it?"))

    assert len(question.instruction) <= HEAD_CHARACTERS + TAIL_CHARACTERS + 2
    assert 2_000_000 <= question.word_count <= 2_000_010
    assert question.instruction.endswith("Who wrote it?")


@each_row("text", ["?", "```", ":", '"', "\x00", "a" * 100_000, "``` " * 9_000, ": " * 9_000, "\n\n.\n\n"])
def test_odd_questions_have_a_kind_too(text):
    assert route(text).kind in KIND_DEFAULTS


def test_the_task_is_sent_to_the_engine_process():
    assert "edit" == request_from_json(request_to_json(Request("x", task="edit"))).task
    assert "" == request_from_json({"text": "x", "task": None}).task == request_from_json({"text": "x"}).task


def test_every_drafter_has_a_description_of_one_line():
    assert all(drafter.description and "\n" not in drafter.description for drafter in DRAFTERS.values())


def test_the_router_imports_nothing_slow():
    assert not {"torch", "transformers"} & modules_after("import specchat.chat.router, tools.router_accuracy")


def test_the_table_is_printed_for_a_folder_of_prompts(tmp_path, capsys):
    (tmp_path / "mbpp.jsonl").write_text('{"turns": ["Write a python function"]}\n\n', encoding="utf-8")
    (tmp_path / "editeval.jsonl").write_text('{"instruction": "x", "before": "y"}\n', encoding="utf-8")
    (tmp_path / "mine.jsonl").write_text('{"turns": ["x"]}\n', encoding="utf-8")

    assert 0 == main(["--prompts", str(tmp_path), "--wrong"])

    printed = capsys.readouterr().out
    assert "100.0% of 2 right" in printed
    assert "mine: 1 requests of no known kind, left out" in printed


@each_row("row", ["{", "[]", "{}", '{"turns": []}', '{"text": 3, "kind": "chat"}'])
def test_a_row_that_is_no_request_is_one_line(tmp_path, capsys, row):
    (tmp_path / "a.jsonl").write_text(f"{row}\n", encoding="utf-8")

    assert 2 == main(["--prompts", str(tmp_path)])
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_without_prompts_is_one_line(tmp_path, capsys):
    assert 2 == main(["--prompts", str(tmp_path)])
    assert "no *.jsonl in this folder" in capsys.readouterr().err
