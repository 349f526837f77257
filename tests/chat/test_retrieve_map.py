"""The map of a repository: what the rest of it uses most stands there first."""

import pytest

from specchat.chat.repomap import build_repo_map, rank_definitions

SHOP = [
    ("cart.py", "class ShoppingCart:\n    def add_item(self, item):\n        self.items.append(item)\n"),
    ("price.py", "def net_price(x):\n    return x\n\n\ndef _unused_rounding(x):\n    return round(x)\n"),
    ("shop.py", "cart = ShoppingCart()\ncart.add_item(net_price(1))\n"),
    ("till.py", "# a ShoppingCart, and nothing of the price\ncart = ShoppingCart()\n"),
]


def test_what_is_used_most_comes_first():
    assert ["ShoppingCart", "add_item", "net_price", "_unused_rounding"] == [
        each.name for each in rank_definitions(SHOP)
    ]


def test_the_voice_of_a_file_that_is_used_counts_more():
    files = [
        ("a.py", "def from_hub():\n    pass\n"),
        ("b.py", "def from_leaf():\n    pass\n"),
        ("hub.py", "def hub_function():\n    from_hub()\n"),
        ("leaf.py", "def leaf_function():\n    from_leaf()\n"),
        *((f"user{n}.py", "hub_function()\n") for n in range(3)),
    ]
    names = [each.name for each in rank_definitions(files)]

    assert names.index("from_hub") < names.index("from_leaf")


def test_a_map_names_lines_under_their_files():
    assert (
        "cart.py\n  1: class ShoppingCart:\n  2: def add_item(self, item):\n"
        "price.py\n  1: def net_price(x):\n  5: def _unused_rounding(x):\n"
    ) == build_repo_map(SHOP, 1000)


@pytest.mark.parametrize("most", range(0, 160, 7))
def test_a_map_stays_within_its_room(most):
    assert len(build_repo_map(SHOP, most)) <= most


def test_the_best_definition_is_kept_in_a_small_room():
    assert "cart.py\n  1: class ShoppingCart:\n" == build_repo_map(SHOP, 40)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("async def read_all():", "read_all"),
        ("export default function openGate(x) {", "openGate"),
        ("pub(crate) fn parse_line<'a>(s: &'a str) {", "parse_line"),
        ("func (s *Server) Listen(port int) error {", "Listen"),
        ("public static final class Builder {", "Builder"),
        ("export interface Shape {", "Shape"),
        ("function* numbers() {", "numbers"),
    ],
)
def test_definitions_are_known_in_many_languages(line, name):
    assert [name] == [each.name for each in rank_definitions([("x", f"\n{line}\n")])]


def test_names_that_everybody_defines_and_mere_words_of_methods_say_nothing():
    definitions = "class Own{0}:\n    def copy(self):\n        pass\n\n\ndef run_it():\n    pass\n"
    files = [(f"{n}.py", definitions.format(n)) for n in range(9)]
    users = [(f"user{n}.py", "copy(), run_it()\n") for n in range(5)]

    assert "Own3" == rank_definitions([*files, *users, ("last.py", "Own3()\n")])[0].name


def test_no_files_and_no_definitions_are_no_map():
    assert "" == build_repo_map([], 100) == build_repo_map([("a.txt", "some prose")], 100)
