"""Fill-in-the-middle with the embedded model; drafts do not change the text."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from itertools import count
from threading import Event as Flag

import pytest

from specchat.chat.events import Event, Finished, PrefillProgress, PromptTokens, StepDone, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.chat.request import AnswerFormat, Request, TokenBias
from specchat.chooser.chooser import ChooserState
from specchat.chooser.costs import Costs
from specchat.chooser.curve import Curve
from specchat.engine import pass_clock
from specchat.engine.drafter import Drafter
from specchat.errors import ContextError, UsageError
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.keys import Profile, Sampling
from specchat_completions.fim_completer import NO_FIM_TOKENS, FimCompleter
from specchat_completions.fim_tokens import raw_prompt
from tests.each_row import each_row
from tests.tiny import speaking

BEFORE = "class Point:\n    def __init__(self, x, y):\n        self.x = x\n"
AFTER = "\n    def move(self, x, y):\n        self.x += x\n        self.y += y\n"

REPEATING = "total = total + price\n" * 12


@lru_cache
def engine() -> Engine:
    return load_engine(Profile().override({"models.draft": "", "models.heads": []}))


def completer_of(engine: Engine, variant: str = "auto") -> FimCompleter:
    models = replace(engine.models, profile=engine.models.profile.override({"speculation.variant": variant}))
    return FimCompleter(models, engine.create_completion_drafters())


class FixedCosts(Costs):
    """A pass takes so many seconds to the power of its rows, whatever is measured."""

    def __init__(self, row_power: int) -> None:
        curve = Curve()
        for rows in (1, 2, 4, 8, 16):
            curve.set_point(rows, float(rows**row_power))
        super().__init__({0: curve})

    def learn_pass(self, text_length: int, rows: int, seconds: float) -> bool:
        return False


@pytest.fixture
def completer():
    completer = completer_of(engine())
    yield completer
    completer.close()


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.dear
@pytest.mark.parametrize("before", [BEFORE, BEFORE + "        self", BEFORE[:40], ""])
def test_drafts_do_not_change_the_text(completer, before):
    drafted = list(completer.complete(FimRequest(before, AFTER, 24), Flag()))
    plain = completer_of(engine())
    plain.drafter = Drafter()
    expected = list(plain.complete(FimRequest(before, AFTER, 24), Flag()))
    plain.close()

    assert text_of(drafted) == text_of(expected)
    assert drafted[-1].finish_reason == expected[-1].finish_reason
    assert drafted[-1].totals.steps <= expected[-1].totals.steps


@each_row("row_power, is_drafting", [(0, True), (6, False)])
def test_draft_tokens_are_verified_only_where_that_pays(row_power, is_drafting, monkeypatch):
    monkeypatch.setattr(pass_clock, "perf_counter", count(step=0.001).__next__)  # also on a busy machine
    models = replace(engine().models, costs=FixedCosts(row_power), chooser_state=ChooserState(), learned_file=None)
    completer = FimCompleter(models, {"suffix": engine().create_completion_drafters()["suffix"]})

    finished = list(completer.complete(FimRequest(REPEATING, "", 24), Flag()))[-1]
    completer.close()

    assert (finished.totals.draft_tokens > 0) == is_drafting


@pytest.mark.full
def test_the_heads_of_the_model_draft_completions():
    with_heads = load_engine(Profile().override({"models.draft": ""}))
    names = {"eagle3", "mtp"} & with_heads.create_completion_drafters().keys()
    completer = completer_of(with_heads, variant=min(names))

    finished = list(completer.complete(FimRequest(BEFORE, AFTER, 24), Flag()))[-1]
    completer.close()

    assert finished.totals.draft_tokens
    assert {min(names)} >= finished.totals.accepted_by_drafter.keys()


def test_a_profile_that_drafts_nothing_completes_without_drafts():
    completer = completer_of(engine(), variant="plain")

    finished = list(completer.complete(FimRequest(REPEATING, "", 24), Flag()))[-1]
    completer.close()

    assert not finished.totals.draft_tokens


def test_the_prefix_of_the_last_completion_is_not_prefilled_again(completer):
    before = "import math\n\n" * 20 + BEFORE
    list(completer.complete(FimRequest(before, AFTER, 4), Flag()))

    finished = list(completer.complete(FimRequest(before + "        self.", AFTER, 4), Flag()))[-1]

    assert finished.totals.cached_tokens >= finished.totals.prompt_tokens - 5


def test_it_ends_on_cancel_and_on_timeout(completer):
    stopped = Flag()
    stopped.set()

    assert list(completer.complete(FimRequest(BEFORE), stopped))[-1].finish_reason == "cancelled"
    assert list(completer.complete(FimRequest(BEFORE, timeout_seconds=1e-9), Flag()))[-1].finish_reason == "timeout"


@pytest.mark.full
def test_it_ends_after_max_lines(completer):
    loop = "    for price in prices:\n        total += price\n"
    completer.drafter = Drafter()  # one token per step, so that no step has two lines

    lines = text_of(
        list(completer.complete(FimRequest(f"def total(prices):\n    total = 0\n{loop}", "", 64, max_lines=1), Flag()))
    )

    assert lines.lstrip("\n").count("\n") <= 1


def test_a_cancelled_prefill_leaves_a_valid_cache(completer):
    request, stopped = FimRequest("x = 1\n" * 60 + BEFORE, AFTER, 16), Flag()
    for event in completer.complete(request, stopped):
        if isinstance(event, PrefillProgress):
            stopped.set()
    again = text_of(list(completer.complete(request, Flag())))
    fresh = completer_of(engine())
    expected = text_of(list(fresh.complete(request, Flag())))
    fresh.close()

    assert again == expected


@pytest.fixture
def continuing():
    """A completer with a model that has no fill-in-the-middle tokens."""
    completer = completer_of(load_engine(Profile().override({"models.target": str(speaking()), "models.draft": ""})))
    yield completer
    completer.close()


def test_a_model_without_fim_tokens_continues_the_text_and_says_so(continuing):
    *events, finished = continuing.complete(FimRequest("x = ", "\ny = 2\n", 12), Flag())
    without_suffix = list(continuing.complete(FimRequest("x = ", "", 12), Flag()))

    assert text_of(events)
    assert text_of(events) == text_of(without_suffix)
    assert finished.explanation == NO_FIM_TOKENS
    assert finished.totals.prompt_tokens == len("x = ")


@pytest.mark.parametrize(("suffix", "reason"), [(" + 1\n", "inside_line"), (")\n", "length"), ('"):\n', "length")])
def test_it_continues_at_line_ends_only(continuing, suffix, reason):
    finished = list(continuing.complete(FimRequest("x = (", suffix, 3), Flag()))[-1]

    assert finished.finish_reason == reason


def test_without_a_text_before_the_gap_there_is_nothing_to_continue(continuing):
    (finished,) = continuing.complete(FimRequest("", "\nx = 1\n"), Flag())

    assert finished == Finished("stop", Totals(), NO_FIM_TOKENS)


def test_a_model_with_fim_tokens_needs_no_explanation(completer):
    assert list(completer.complete(FimRequest(BEFORE, "", 2), Flag()))[-1].explanation == ""


@pytest.mark.full
@each_row("before", [BEFORE, REPEATING])
@each_row("stop", [("self", "price"), ("l", "ot", "al"), ("\n",), ("never there",)])
def test_a_completion_ends_before_the_first_stop_text_with_any_drafter(before, stop):
    texts = list[tuple[str, str, int]]()
    for drafter in (Drafter(), None):
        completer = completer_of(engine())
        whole = text_of(list(completer.complete(FimRequest(before, AFTER, 24), Flag())))
        completer.drafter = drafter or completer.drafter
        events = list(completer.complete(FimRequest(before, AFTER, 24, stop=stop), Flag()))
        completer.close()
        texts.append((text_of(events), events[-1].finish_reason, events[-1].totals.completion_tokens))
        found = [at for each in stop if (at := whole.find(each)) >= 0]
        assert texts[-1][0] == whole[: min(found, default=len(whole))]

    assert texts[0] == texts[1]


def raw_text(prompt: str, variant: str = "auto", **more: object) -> str:
    completer = completer_of(engine(), variant)
    try:
        return text_of(list(completer.complete(FimRequest(prompt, max_tokens=40, is_raw=True, **more), Flag())))
    finally:
        completer.close()


def test_a_raw_prompt_is_the_text_of_a_caller_who_knows_the_template():
    question = "Write a function\nthat adds two numbers."  # of two lines: no passages of the reference stand before it
    rendered = engine().models.tokenizer.chat.render([{"role": "user", "content": question}])
    with engine().create_session(profile=engine().models.profile.override({"prompt.system": ""})) as session:
        asked = text_of(list(session.ask(Request(question, max_tokens=40))))

    assert asked and raw_text(rendered) == asked


def test_the_words_of_a_control_token_in_a_gap_stay_text(completer):
    fim, rendered = completer.fim_tokens, engine().models.tokenizer.chat.render([{"role": "user", "content": "x"}])

    gap = fim.build_prompt(FimRequest(rendered + "\n", is_raw=False), 500).token_ids
    raw = raw_prompt(fim.tokenizer, FimRequest(rendered, is_raw=True), 500).token_ids

    specials = fim.tokenizer.special_token_ids
    assert 3 == len(specials & {*gap}) and len(specials & {*raw}) > 0 and len(raw) < len(gap)


def test_a_raw_prompt_is_sampled_as_it_says_and_drafts_do_not_change_it():
    prompt, sampling = "def add(a, b):\n    ", Sampling(temperature=1.0, seed=7)
    texts = {raw_text(prompt, variant, sampling=sampling) for variant in ("auto", "lookup", "plain")}

    assert 1 == len(texts) and texts != {raw_text(prompt, "plain", sampling=replace(sampling, seed=8))}


def test_a_raw_prompt_goes_on_behind_its_block_and_keeps_its_end():
    long = "word " * 30_000

    kept = raw_prompt(engine().models.tokenizer, FimRequest(long + "last", is_raw=True), 100).token_ids
    assert 100 == len(kept) and engine().models.tokenizer.encode("last")[-1] == kept[-1]
    assert FimRequest("x", max_tokens=5000, is_raw=True).max_tokens == 5000


def echoed(**fields: object) -> PromptTokens:
    completer = completer_of(engine())
    try:
        events = list(completer.complete(FimRequest(max_tokens=0, is_raw=True, echoes=True, **fields), Flag()))
    finally:
        completer.close()
    return next(event for event in events if isinstance(event, PromptTokens))


def test_an_echo_has_the_tokens_of_a_prompt_and_the_prompt_of_tokens():
    tokenizer = engine().models.tokenizer
    rendered = tokenizer.chat.render([{"role": "user", "content": "x = 1"}])

    parsed, plain = echoed(prefix=rendered), echoed(prefix=rendered, parses_special=False)

    ids = [token.token_id for token in parsed.tokens]
    assert tokenizer.encode(rendered, parse_special=True) == ids != [token.token_id for token in plain.tokens]
    assert rendered == parsed.text == plain.text == echoed(prefix="", prompt_ids=tuple(ids)).text
    assert ("", ()) == (echoed(prefix="").text, echoed(prefix="").tokens)


def test_the_probabilities_of_an_echo_are_those_of_the_completion():
    """A greedy completion, and then the same text as a prompt: what was sampled is likeliest there, too."""
    completer, prompt = completer_of(engine()), "def add(a, b):\n    "
    request = FimRequest(prompt, max_tokens=80, is_raw=True, wants_probabilities=True)
    written = [
        token
        for event in completer.complete(request, Flag())
        if isinstance(event, StepDone)
        for token in event.committed_tokens
    ]
    completer.close()
    ids = (*engine().models.tokenizer.encode(prompt), *(token.token_id for token in written))

    scored = echoed(prefix="", prompt_ids=ids, wants_probabilities=True).tokens

    assert scored[0].probability is None and len(scored) == len(ids) and len(written) > 20
    for token, known in zip(scored[-len(written) :], written, strict=True):
        assert token.likeliest[0].token_bytes == known.token_bytes
        assert token.probability == pytest.approx(known.probability, abs=1e-3)


def test_an_echo_of_the_ends_has_the_tokens_that_end_a_completion():
    ends = {token.token_id for token in echoed(prefix="x", echoes_ends=True).tokens}

    assert engine().models.tokenizer.stop_token_ids <= ends
    assert len(ends) == len(echoed(prefix="", echoes_ends=True).tokens)


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("schema", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, r'\{"a": ?-?\d+\}'),
        ("choices", ["left", "right"], "left|right"),
    ],
)
def test_a_raw_completion_has_the_form_that_is_asked_for_with_every_drafter(kind, value, fits):
    form = AnswerFormat.parse(kind, value)
    texts = {raw_text("The answer is ", variant, answer_format=form) for variant in ("auto", "plain")}

    assert 1 == len(texts) and re.fullmatch(fits, texts.pop())


def test_a_form_that_cannot_be_is_an_error_of_the_user():
    with pytest.raises(UsageError, match="cannot be used"):
        raw_text("x", "plain", answer_format=AnswerFormat.parse("regex", "("))


def test_an_echo_refuses_unknown_tokens_and_what_is_too_long():
    with pytest.raises(UsageError, match="there is no token 99999999"):
        echoed(prefix="", prompt_ids=(1, 99_999_999))
    with pytest.raises(ContextError, match="the prompt has"):
        echoed(prefix="x " * 50_000, wants_probabilities=True)
    with pytest.raises(UsageError, match="max_tokens"):
        FimRequest("x", max_tokens=0)


def test_a_biased_completion_is_the_same_with_every_drafter():
    prompt, vocabulary = "def add(a, b):\n    ", engine().models.tokenizer.encode(" return a")
    bias = tuple(TokenBias(token, 5.0) for token in vocabulary)
    texts = {raw_text(prompt, variant, logit_bias=bias) for variant in ("auto", "lookup", "plain")}

    assert 1 == len(texts) and texts != {raw_text(prompt, "plain")}


def test_a_control_token_is_one_in_a_raw_prompt_and_text_in_a_message_of_its_template():
    tokenizer = engine().models.tokenizer
    special = tokenizer.special_token_ids
    word = tokenizer.token_bytes(next(iter(tokenizer.stop_token_ids))).decode()

    def rendered(text: str) -> str:
        with engine().create_session() as session:
            events = list(session.ask(Request(text, only_renders=True)))
        assert not session.turns and events[-1].totals.completion_tokens == 0
        return text_of(events)

    def control_tokens(prompt: str) -> list[int]:
        return [token.token_id for token in echoed(prefix=prompt).tokens if token.token_id in special]

    assert control_tokens(rendered(f"one {word} two")) == control_tokens(rendered("one two")) != []
    assert control_tokens(f"one {word} two") == [*tokenizer.encode(word, parse_special=True)]
    assert [] == [t for t in echoed(prefix=f"one {word}", parses_special=False).tokens if t.token_id in special]
