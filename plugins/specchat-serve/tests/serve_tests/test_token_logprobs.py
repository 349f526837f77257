"""The probabilities of tokens in the forms of APIs."""

from specchat.chat.events import CommittedToken
from specchat_serve.token_logprobs import completion_logprobs

PIECES = [b"a", b"\xe2\x82", b"\xac", b"b"]  # the second and the third are parts of one character


def test_places_in_the_text_are_the_same_in_several_chunks():
    tokens = [CommittedToken(number, piece, "target", 0.5) for number, piece in enumerate(PIECES)]
    whole, end = completion_logprobs(tokens, 0, 0)
    offset, offsets = 0, []
    for token in tokens:
        chunk, offset = completion_logprobs([token], 0, offset)
        offsets += chunk["text_offset"]

    assert (whole["text_offset"], end) == (offsets, offset) == ([0, 1, 2, 2], 3)
    assert ["a", "bytes:\\xe2\\x82", "bytes:\\xac", "b"] == whole["tokens"]
