"""How many rows caches and passes have. Numbers only, no torch: `hub/memory_plan.py` plans memory without it."""

MIN_BUCKET_ROWS = 1024  # committed rows
SCRATCH_ROWS = 256  # rows past the text that a pass may write: the largest tree or prefill chunk
SCALE_BYTES = 4  # of a head in a row in 8 bits
SECOND_SLOT_ROWS = MIN_BUCKET_ROWS + SCRATCH_ROWS  # beside a full context: a completion, or a short conversation
SPARE_ROWS = 64  # behind all slots of an arena: graphs are captured there, over rows of no text
ROW_STEP = 256  # slots of an arena have whole steps of rows
GRAPH_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)  # rows of CUDA graphs; the bits of a number at most
SPLIT_KEYS = 256  # for so many keys of an arena, attention on a GPU stores a partial result
# Between recurrent states that are kept: at most so many tokens are read again, a second of prefill, for a state that
# is as large as the keys and values of about a thousand tokens.
CHECKPOINT_TOKENS = 256
MAX_CHECKPOINT_BYTES = 2**29  # of the states of all texts of a model


def bucket_of(length: int) -> int:
    """The length bucket of a text: a power of two."""
    return max(MIN_BUCKET_ROWS, 1 << (length - 1).bit_length())


def slot_rows(min_rows: int) -> int:
    """The size of the smallest slot with at least `min_rows` rows: a length bucket and the scratch rows."""
    return bucket_of(max(min_rows - SCRATCH_ROWS, 1)) + SCRATCH_ROWS


def whole_steps(rows: int) -> int:
    return -(-rows // ROW_STEP) * ROW_STEP


def arena_rows(context_tokens: int) -> int:
    """The rows of an arena for one text of `context_tokens` tokens and a short one beside it, without the spare ones.

    >>> arena_rows(8192)
    9728
    """
    return whole_steps(context_tokens) + SCRATCH_ROWS + SECOND_SLOT_ROWS
