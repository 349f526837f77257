"""A few questions of each kind: the prompts of a bench without a prompt file, and questions to warm up with."""

from collections.abc import Mapping

from specchat.chat.request import Attachment, Request

EXAMPLE_CODE = '''class Basket:
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
EXAMPLE_TEXT = (
    "The bridge over the Lenne was closed Monday because two of its bolts had rusted through. Engineers will look at "
    "the others until Friday. Buses take the road through the valley meanwhile, which adds nine minutes to the way."
)
BUILTIN_REQUESTS: Mapping[str, tuple[Request, ...]] = {
    "edit": (
        Request("Rename `prices` to `costs`.", (Attachment("basket.py", EXAMPLE_CODE),), task="edit"),
        Request("Rename `Basket` to `Cart`.", (Attachment("basket.py", EXAMPLE_CODE),), task="edit"),
        Request("Rename `owner` to `buyer`.", (Attachment("basket.py", EXAMPLE_CODE),), task="edit"),
    ),
    "files": (
        Request("Quote the sentence about the buses.", (Attachment("news.txt", EXAMPLE_TEXT),)),
        Request("Copy the text exactly.", (Attachment("news.txt", EXAMPLE_TEXT),)),
        Request("What does the method `total` do?", (Attachment("basket.py", EXAMPLE_CODE),)),
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
    "structured": (
        Request("Return a JSON object with the keys name, age and city for a person of your choice."),
        Request("Give me a JSON array of five colours."),
        Request("List three fruits as a JSON array of objects with name and price."),
        Request("Write the months of the year as a JSON array of strings."),
        Request("Answer in JSON with the keys title, author and year: your favourite book."),
        Request("Return valid JSON that describes a bicycle: brand, gears, weight."),
        Request("Make a JSON object that maps three countries to their capitals."),
        Request("Write a YAML file with the settings of a web server: port, host and log level."),
        Request("Give the days of the week as YAML."),
        Request("Return a CSV table of three animals with the columns name, legs and sound."),
        Request("Write a JSON schema for a user with a name and an e-mail address."),
        Request("Answer only with JSON: is the sky blue? Use the keys answer and reason."),
        Request("Write an XML document with two books, each with a title and a price."),
        Request("Return a markdown table of three planets with their moons."),
    ),
}
# One of each kind that the router knows, and none of those above: what a conversation began with.
WARM_UP_REQUESTS: Mapping[str, Request] = {
    "edit": Request("Rename `remove` to `discard`.", (Attachment("basket.py", EXAMPLE_CODE),), task="edit"),
    "files": Request("What does the text say about the bolts?", (Attachment("news.txt", EXAMPLE_TEXT),)),
    "code": Request("Write a Python function that returns the largest of three numbers."),
    "chat": Request("Why do leaves change their colour in autumn?"),
    "structured": Request("Return a JSON object with the keys title and pages for a book of your choice."),
    "creative": Request("Write a poem about the sea."),
    "short": Request("What is the capital of Norway?"),
}
