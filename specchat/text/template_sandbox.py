"""The Jinja environment of chat templates: what they may call, and what each call is charged.

Templates are untrusted code. Jinja's sandbox keeps them from Python's insides; here every operator, filter, method and
loop is charged to a budget (template_budget.py), and what has no charge is missing: filters and methods are lists of
what may be used. The tree of a template gets a guard wherever Jinja calls nothing of ours: loops, outputs, slices,
comparisons, joined texts and literals.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from string import Formatter
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from specchat.own_tables import own_tables
from specchat.text.template_budget import (
    CALL,
    STEP,
    TemplateLimitError,
    check_power,
    counted,
    elements,
    measured,
    size,
    spend,
    spend_on_pairs,
    spend_on_pieces,
    spend_on_reading,
    spend_on_repetition,
)

MAX_FIELD_WIDTH = 999
PERCENT_KEY = re.compile(r"%\([^()]*\)")
WIDE_PERCENT = re.compile(r"%\(|%[#0\- +]*(?:\d*\.)?(?:\*|\d{4,})")  # a key with parentheses is refused with the wide
WIDE_FIELD = re.compile(r"\d{4,}|\{")  # of a format specification: a width, or one that is computed
SCOPES = ("_loop_vars", "_block_vars")  # jinja hands them to its macros with the arguments of a call

Function = Callable[..., Any]


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag])
        rules = {"tojson": _charge_nothing, **FILTERS}
        functions = {**self.filters, "tojson": _to_json}
        self.filters = {name: _charged(functions[name], rule) for name, rule in rules.items()}
        self.filters |= GUARDS
        self.filters["join"] = _with_elements(self.filters["join"])
        self.tests = {name: _charged(test, TESTS.get(name, _charge_nothing)) for name, test in self.tests.items()}
        del self.globals["lipsum"]

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Guards().visit(super()._parse(source, name, filename))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            spend_on_repetition(left, right)
        elif operator == "**":
            check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            _charge_percent_format(left, right)
        return measured(self.binop_table[operator](left, right))

    def call(self, context: Context, function: Any, /, *arguments: Any, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        owner = getattr(function, "__self__", None)
        if isinstance(function, BuiltinMethodType | MethodType) and not isinstance(owner, type):
            named = (value for name, value in options.items() if name not in SCOPES)
            _charge_method(owner, function.__name__, (*arguments, *named))
        if isinstance(function, LoopContext):  # a recursive loop over other items
            arguments = (counted(arguments[0]), *arguments[1:])
        spend(CALL)
        return measured(super().call(context, function, *arguments, **options))

    def wrap_str_format(self, value: Any) -> Function | None:
        """`str.format` is handed out in a wrapper of the sandbox; this one looks at the fields first."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def charged(*arguments: Any, **options: Any) -> Any:
            _charge_format(value.__self__, arguments, options)
            return wrapped(*arguments, **options)

        return charged


class GenerationTag(Extension):
    """`{% generation %}` marks answers for training; here its content is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - jinja reads it from the class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Guards(NodeTransformer):
    """Puts guards, which are filters with names that no template can write, around what calls nothing of ours."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja finds it by the name of the node
        self.generic_visit(node)
        node.iter = _guarded(node.iter, "counted loop")
        return node

    def visit_Output(self, node: nodes.Output | nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_guarded(each, "read value") for each in node.nodes]
        return node

    visit_Concat = visit_Output  # noqa: N815

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        holders: list[nodes.Compare | nodes.Operand] = [node, *node.ops]
        for holder in holders:
            if not isinstance(holder.expr, nodes.Const):
                is_searched = isinstance(holder, nodes.Operand) and holder.op in ("in", "notin")
                holder.expr = _guarded(holder.expr, "searched value" if is_searched else "read value")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _guarded(node, "measured value") if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List | nodes.Dict | nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        is_target = isinstance(node, nodes.Tuple) and node.ctx != "load"
        return node if is_target else _guarded(node, "measured value")

    visit_Tuple = visit_Dict = visit_List  # noqa: N815


def _guarded(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


# A filter that reads the context is not computed when a template is compiled.
@pass_context
def _counted_loop(_context: Context, items: Iterable[Any]) -> Iterator[Any]:
    return counted(items)


@pass_context
def _read_value(_context: Context, value: Any) -> Any:
    spend(STEP)
    spend_on_reading(value)
    return value


@pass_context
def _searched_value(context: Context, value: Any) -> Any:
    return value if isinstance(value, Mapping) else _read_value(context, value)


@pass_context
def _measured_value(_context: Context, value: Any) -> Any:
    return measured(value)


GUARDS: Mapping[str, Function] = {
    "counted loop": _counted_loop, "read value": _read_value, "searched value": _searched_value,
    "measured value": _measured_value,
}  # fmt: skip


def _charged(function: Function, charge: Function) -> Function:
    """A filter or a test whose arguments are charged before it runs, and its result afterwards."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def charged(*arguments: Any, **options: Any) -> Any:
        charge(*arguments[first:], **options)
        return measured(function(*arguments, **options))

    return charged


def _with_elements(join: Function) -> Function:
    """The filter `join` reads a list: an iterator can be read only once, and its charge reads it."""

    @wraps(join)
    def joined(context: Any, value: Any, *arguments: Any, **options: Any) -> Any:
        return join(context, elements(value), *arguments, **options)

    return joined


def _charge_nothing(*_arguments: Any, **_options: Any) -> None:
    """It is charged by its result, or reads one element."""


def _charge_reading(*arguments: Any, **options: Any) -> None:
    spend_on_reading(*arguments, *options.values())


def _charge_pairs(*arguments: Any, **options: Any) -> None:
    spend_on_pairs(*arguments, *options.values())


def _charge_search(*arguments: Any) -> None:
    """A position from which is searched makes nothing long."""
    spend_on_pairs(*(each for each in arguments if not isinstance(each, int)))


def _charge_elements(value: Any, *_arguments: Any, **_options: Any) -> None:
    spend(STEP * len(value) if isinstance(value, str) else size(value))


def _charge_sum(iterable: Any, attribute: Any = None, start: Any = 0) -> None:  # noqa: ARG001 - as jinja names them
    if not isinstance(start, int | float):
        raise TemplateLimitError("the filter 'sum' adds numbers only")
    _charge_elements(iterable)


def _charge_percent_format(text: Any, *arguments: Any, **options: Any) -> None:
    form = PERCENT_KEY.sub("%", str(text))
    if WIDE_PERCENT.search(form.replace("%%", "")):
        raise TemplateLimitError(f"a format has a width above {MAX_FIELD_WIDTH}, or one that is computed")
    for _field in range(form.count("%") + 1):
        _charge_reading(*arguments, **options)
        spend(MAX_FIELD_WIDTH)
    spend(len(form))


def _charge_format(text: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    for literal, _name, specification, _conversion in Formatter().parse(text):
        if specification and WIDE_FIELD.search(specification):
            raise TemplateLimitError(f"a format has a width above {MAX_FIELD_WIDTH}, or one that is computed")
        spend(len(literal) + MAX_FIELD_WIDTH)
        _charge_reading(*arguments, **options)


def _charge_method(owner: Any, name: str, arguments: tuple[Any, ...]) -> None:
    """Charge a method of a plain value; those of Jinja's own objects read one element."""
    for kind, methods in METHODS.items():
        if isinstance(owner, kind):
            if name not in methods:
                raise TemplateLimitError(f"the method '{name}' of a {kind.__name__} cannot be called")
            methods[name](owner, *arguments)
            return
    if not type(owner).__module__.startswith("jinja2."):
        raise TemplateLimitError(f"the method '{name}' of a {type(owner).__name__} cannot be called")
    spend_on_reading(*arguments)


def _charge_text_join(separator: str, items: Any = ()) -> None:
    if isinstance(items, Iterator):
        raise TemplateLimitError("'join' of a text reads a list; write '| list' before it")
    spend_on_pairs(separator, items)


RULES: Mapping[str, Function] = {
    "nothing": _charge_nothing, "reading": _charge_reading, "pairs": _charge_pairs, "search": _charge_search,
    "elements": _charge_elements, "sum": _charge_sum, "percent_format": _charge_percent_format,
    "pieces": spend_on_pieces, "text_join": _charge_text_join,
}  # fmt: skip


def _charges(names_by_rule: Mapping[str, Iterable[str]]) -> dict[str, Function]:
    return {name: RULES[rule] for rule, names in names_by_rule.items() for name in names}


PERMITTED = own_tables(__file__)
FILTERS, TESTS = _charges(PERMITTED["filters"]), _charges(PERMITTED["tests"])  # and `tojson`, which charges itself
METHODS = {kind: _charges(PERMITTED["methods"][kind.__name__]) for kind in (str, list, tuple, dict)}


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """As transformers writes JSON; Jinja's own filter escapes HTML characters."""
    spend_on_pairs("", value, indent, *(separators or ()))
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None:
        return encoder.encode(value)
    pieces = list[str]()
    for piece in encoder.iterencode(value):
        spend(STEP + len(piece))
        pieces.append(piece)
    return "".join(pieces)
