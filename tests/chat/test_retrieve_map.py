"""The map of a repository: the most used definitions come first."""

from specchat.context.repomap import build_repo_map, rank_definitions
from tests.each_row import each_row

SHOP = [
    ("cart.py", "class ShoppingCart:\n    def add_item(self, item):\n        self.items.append(item)\n"),
    ("price.py", "def net_price(x):\n    return x\n\n\ndef _unused_rounding(x):\n    return round(x)\n"),
    ("shop.py", "cart = ShoppingCart()\ncart.add_item(net_price(1))\n"),
    ("till.py", "# a ShoppingCart, and nothing of the price\ncart = ShoppingCart()\n"),
]


def test_the_most_used_definition_comes_first():
    assert ["ShoppingCart", "add_item", "net_price", "_unused_rounding"] == [
        each.name for each in rank_definitions(SHOP)
    ]


def test_links_from_used_files_count_more():
    files = [
        ("a.py", "def from_hub():\n    pass\n"),
        ("b.py", "def from_leaf():\n    pass\n"),
        ("hub.py", "def hub_function():\n    from_hub()\n"),
        ("leaf.py", "def leaf_function():\n    from_leaf()\n"),
        *((f"user{n}.py", "hub_function()\n") for n in range(3)),
    ]
    names = [each.name for each in rank_definitions(files)]

    assert names.index("from_hub") < names.index("from_leaf")


def test_a_map_has_lines_grouped_by_file():
    assert (
        "cart.py\n  1: class ShoppingCart:\n  2: def add_item(self, item):\n"
        "price.py\n  1: def net_price(x):\n  5: def _unused_rounding(x):\n"
    ) == build_repo_map(SHOP, 1000)


@each_row("most", range(0, 160, 7))
def test_a_map_stays_within_its_budget(most):
    assert len(build_repo_map(SHOP, most)) <= most


def test_the_best_definition_is_in_a_small_map():
    assert "cart.py\n  1: class ShoppingCart:\n" == build_repo_map(SHOP, 40)


@each_row(
    "line, name",
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
def test_definitions_are_found_in_many_languages(line, name):
    assert [name] == [each.name for each in rank_definitions([("x", f"\n{line}\n")])]


def test_common_names_and_lowercase_methods_are_ignored():
    definitions = "class Own{0}:\n    def copy(self):\n        pass\n\n\ndef run_it():\n    pass\n"
    files = [(f"{n}.py", definitions.format(n)) for n in range(9)]
    users = [(f"user{n}.py", "copy(), run_it()\n") for n in range(5)]

    assert "Own3" == rank_definitions([*files, *users, ("last.py", "Own3()\n")])[0].name


def test_without_files_or_definitions_the_map_is_empty():
    assert "" == build_repo_map([], 100) == build_repo_map([("a.txt", "some prose")], 100)
