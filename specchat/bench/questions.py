"""A few questions of each kind, of our own: what is measured when nobody brings prompts."""

from __future__ import annotations

from collections.abc import Mapping

from specchat.chat.request import Attachment, Request

CODE = '''class Basket:
    """Things to be bought."""

    def __init__(self, owner):
        self.owner = owner
        self.prices = {}

    def add(self, name, price):
        if price < 0:
            raise ValueError("a price must not be negative")
        self.prices[name] = price

    def total(self):
        return sum(self.prices.values())

    def remove(self, name):
        if name in self.prices:
            del self.prices[name]
'''
LETTER = (
    "The bridge over the Lenne was closed Monday because two of its bolts had rusted through. Engineers will look at "
    "the others until Friday. Buses take the road through the valley meanwhile, which adds nine minutes to the way."
)
QUESTIONS: Mapping[str, tuple[Request, ...]] = {
    "edit": (
        Request("Rename `prices` to `costs`.", (Attachment("basket.py", CODE),), task="edit"),
        Request("Rename `Basket` to `Cart`.", (Attachment("basket.py", CODE),), task="edit"),
        Request("Rename `owner` to `buyer`.", (Attachment("basket.py", CODE),), task="edit"),
    ),
    "files": (
        Request("Quote the sentence about the buses.", (Attachment("news.txt", LETTER),)),
        Request("Copy the text exactly.", (Attachment("news.txt", LETTER),)),
        Request("What does the method `total` do?", (Attachment("basket.py", CODE),)),
    ),
    "code": (
        Request("Write a Python function that reverses a list."),
        Request("Write a Python function that counts the words of a text."),
        Request("Write a class for a stack."),
    ),
    "chat": (
        Request("What is a generator in Python?"),
        Request("Why is the sky blue?"),
        Request("How do I learn to cook?"),
    ),
}
