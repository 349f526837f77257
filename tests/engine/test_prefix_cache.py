"""Texts are found by their tokens, in any conversation: what is prefilled is counted, and never timed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tests.each_row import each_row


@dataclass(frozen=True)
class Owner:
    name: str
    is_private: bool = False


A, B, PRIVATE, OTHER_PRIVATE = Owner("a"), Owner("b"), Owner("p", is_private=True), Owner("q", is_private=True)
FILE = list(range(1, 61))
QUESTION, OTHER_QUESTION, LONG_ANSWER = [70, 71], [80, 81, 82], list(range(61, 95))


class Files:
    """Rows on disk, by name."""

    def __init__(self):
        self.stored = {}

    def store(self, name, rows, budget_bytes):
        self.stored[name] = rows

    def longest_prefix(self, tokens, known=0):
        found = (rows for rows in self.stored.values() if rows.tokens == tokens[: len(rows.tokens)])
        return max(found, key=lambda rows: len(rows.tokens), default=None)


class Text:
    def __init__(self, target):
        from specchat.engine.decode import Generation

        self.generation = Generation(target)

    def memory_bytes(self):
        return {"kv_cache": self.generation.cache.length}

    def close(self):
        self.generation.close()


def cache_of(shape="dense-llama", files=None):
    from specchat.engine.prefix_cache import PrefixCache
    from tests.tiny import target

    model = target(shape)
    return PrefixCache(lambda _form: Text(model), files)


def answered(cache, tokens, owner=A, new_tokens=2):
    """An answer, and how many tokens of its prompt were not computed again."""
    from specchat.engine.decode import GenerationConfig
    from specchat.engine.drafter import Drafter
    from specchat.engine.sampling import Sampler

    with cache.use(list(tokens), owner) as text:
        cached = text.generation.replace_tokens(list(tokens))
        text.generation.generate(GenerationConfig(Drafter(), Sampler(0.0, vocab_size=96), 0, new_tokens))
        return text.generation.tokens[len(tokens) :], cached


def alone(tokens, shape="dense-llama", new_tokens=2):
    return answered(cache_of(shape), tokens, new_tokens=new_tokens)[0]


def test_another_conversation_with_the_same_beginning_computes_only_what_differs():
    cache = cache_of()
    first, _cached = answered(cache, FILE + QUESTION, A, new_tokens=30)
    second, cached = answered(cache, FILE + OTHER_QUESTION, B)

    assert cached == len(FILE) - 1
    assert second == alone(FILE + OTHER_QUESTION)
    _third, cached = answered(cache, FILE + QUESTION + first + OTHER_QUESTION, A)  # its own text is still there
    assert cached == len(FILE + QUESTION + first) - 1


def test_a_conversation_goes_on_in_its_own_text():
    cache = cache_of()
    said, _cached = answered(cache, FILE + QUESTION)
    [text] = cache
    _said, cached = answered(cache, FILE + QUESTION + said + OTHER_QUESTION)

    assert cached == len(FILE + QUESTION + said) - 1
    assert [text] == list(cache)
    answered(cache, FILE + QUESTION + said + OTHER_QUESTION, B)  # the whole text of another one is continued, too
    assert [text] == list(cache)


def test_a_conversation_goes_on_when_its_template_drops_a_thought_that_was_longer_than_the_prompt():
    cache = cache_of()
    answered(cache, QUESTION + FILE[:38], new_tokens=60)
    [text] = cache
    _said, cached = answered(cache, QUESTION + FILE[:38] + OTHER_QUESTION)

    assert ([text], cached) == (list(cache), 39)


@each_row("count", [1, 0])
def test_with_states_a_copy_begins_at_a_checkpoint_and_says_the_same(count):
    long = (FILE * 10)[: 256 + 60 * count]
    cache = cache_of("dense-qwen3_5")
    answered(cache, long + QUESTION, A, new_tokens=40)
    said, cached = answered(cache, long + OTHER_QUESTION, B)

    assert cached == 256 * count
    assert said == alone(long + OTHER_QUESTION, "dense-qwen3_5")


def test_a_text_that_another_answer_extends_is_copied_meanwhile():
    cache = cache_of()
    with cache.use(FILE + QUESTION, A) as text:
        text.generation.replace_tokens(FILE + QUESTION)
        with text.generation.target.pool.acquire_slot(text.generation.cache, 400):
            list(text.generation.prefill())
            said, cached = answered(cache, FILE + OTHER_QUESTION, B)

    assert (said, cached) == (alone(FILE + OTHER_QUESTION), len(FILE) - 1)


def test_a_private_text_is_offered_to_nobody_else_and_never_stored():
    files = Files()
    cache = cache_of(files=files)
    answered(cache, FILE + QUESTION, PRIVATE)

    assert [answered(cache, FILE + QUESTION, owner)[1] for owner in (OTHER_PRIVATE, A)] == [0, 0]
    assert answered(cache, FILE + QUESTION, PRIVATE)[1] == len(FILE + QUESTION) - 1
    cache.close()
    assert list(files.stored) == ["a"]


def test_a_private_conversation_copies_from_others_and_takes_nothing_from_them():
    cache = cache_of()
    answered(cache, FILE, A)

    assert answered(cache, FILE + QUESTION, PRIVATE)[1] == len(FILE) - 1
    assert answered(cache, FILE + OTHER_QUESTION, A)[1] == len(FILE) - 1
    assert len(list(cache)) == 2


def test_what_is_forgotten_serves_nobody_and_is_not_stored():
    files = Files()
    cache = cache_of(files=files)
    answered(cache, FILE + QUESTION, A)
    cache.forget("a")

    assert answered(cache, FILE + QUESTION, B)[1] == 0
    cache.drop_forgotten()
    assert len(list(cache)) == 1
    cache.close()
    assert list(files.stored) == ["b"]


def test_the_text_that_was_used_longest_ago_goes_to_its_file_and_comes_back(monkeypatch):
    from specchat.engine import prefix_cache

    monkeypatch.setattr(prefix_cache, "MAX_TEXTS", 2)
    files = Files()
    cache = cache_of(files=files)
    texts = {owner: [number + 90] * 5 + FILE for number, owner in enumerate((A, B, Owner("c")))}
    known = {owner: tokens + answered(cache, tokens, owner)[0] for owner, tokens in texts.items()}[A]

    assert list(files.stored) == ["a"]
    said, cached = answered(cache, known + QUESTION, A)
    assert (said, cached) == (alone(known + QUESTION), len(known) - 1)


def test_idle_texts_are_dropped_by_bytes_and_one_is_always_kept(monkeypatch):
    from specchat.engine import prefix_cache

    monkeypatch.setattr(prefix_cache, "MAX_IDLE_BYTES", 100)
    cache = cache_of()
    for owner, first in ((A, 90), (B, 91)):
        answered(cache, [first, *FILE], owner)
        answered(cache, [first, *FILE, *FILE], owner)

    assert answered(cache, [91, *FILE, *FILE], B)[1] == 2 * len(FILE)
    assert len(list(cache)) == 1


@each_row("error", ["ModelError", "MemoryError"])
def test_an_answer_that_breaks_a_text_loses_it_and_another_error_does_not(error):
    from specchat import errors

    cache = cache_of()
    answered(cache, FILE + QUESTION)
    with suppress(errors.ContextError), cache.use(FILE, A):
        raise errors.ContextError("too long")
    assert len(list(cache)) == 1
    broken = getattr(errors, error, None) or MemoryError
    with suppress(broken), cache.use(FILE + QUESTION, A):
        raise broken("it is broken")

    assert list(cache) == []
