"""A long text for a model: its beginning and its end, and how much is missing between them. Imports nothing."""


def bounded(text: str, max_characters: int, why: str = "") -> str:
    """The text, or its beginning and end with a line between them that counts the rest."""
    if len(text) <= max_characters:
        return text
    head, tail = text[: max_characters // 2], text[len(text) - (max_characters - max_characters // 2) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} characters left out{why} …]\n{tail}"
