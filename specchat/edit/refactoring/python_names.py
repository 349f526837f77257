"""Every name in a Python text and what it refers to: the scopes of the language, over the syntax tree.

`analyse_names` resolves each identifier as Python does: functions, classes, lambdas, comprehensions and type parameters
have scopes of their own, `global` and `nonlocal` redirect a name, and a class body is not visible from its methods.
Annotations in quotes are read, too. Attributes and keyword arguments are listed, but which object they belong to is
decided by `python_members.py`. Knows no instruction and no edit.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from tree_sitter import Node, Parser, Range

from specchat.syntax.languages import load_grammar
from specchat.syntax.parse import node_text, syntax_tree

PYTHON = "python"
BUILTIN_NAMES = frozenset(dir(builtins))
# statements of Python 2, which the grammar still accepts
OUTDATED_STATEMENTS = frozenset(("print_statement", "exec_statement"))
COMPREHENSIONS = (
    "list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression",
)  # fmt: skip
# Functions and types whose arguments in quotes are annotations.
ANNOTATION_FUNCTIONS = frozenset(("cast", "TypeVar", "NewType", "ForwardRef"))
ANNOTATION_TYPES = frozenset(
    ("Optional", "Union", "List", "Dict", "Set", "FrozenSet", "Tuple", "Type", "Callable", "Sequence", "Iterable",
     "Iterator", "Mapping", "MutableMapping", "Generator", "AsyncIterator", "AsyncGenerator", "Awaitable", "Coroutine",
     "ClassVar", "Final", "Deque", "DefaultDict", "Collection", "Generic", "Annotated")
)  # fmt: skip


class ScopeKind(StrEnum):
    MODULE = "module"
    FUNCTION = "function"
    CLASS = "class"
    COMPREHENSION = "comprehension"
    TYPE_PARAMETERS = "type parameters"


class BoundBy(StrEnum):
    """How a name gets its value."""

    PARAMETER = "parameter"
    FUNCTION = "function"
    CLASS = "class"
    IMPORT = "import"
    VARIABLE = "variable"
    TYPE_PARAMETER = "type parameter"


@dataclass(eq=False)
class Scope:
    """A part of the text with names of its own. `node` is its function, class, lambda, comprehension or module."""

    kind: ScopeKind
    node: Node
    parent: Scope | None = None
    bindings: dict[str, Binding] = field(default_factory=dict)
    redirected: dict[str, str] = field(default_factory=dict)  # name -> "global" or "nonlocal"

    @property
    def name(self) -> str:
        """The name of the function or class; "" for other scopes."""
        named = self.node.child_by_field_name("name")
        return node_text(named) if named else ""

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass(eq=False)
class Binding:
    """A name in the scope that it belongs to. Without a scope it is bound nowhere in this text: a builtin, mostly."""

    name: str
    scope: Scope | None = None
    bound_by: list[tuple[BoundBy, Node]] = field(default_factory=list)
    is_ambiguous: bool = False  # a place may mean this binding or another one, depending on what ran before

    @property
    def kinds(self) -> frozenset[BoundBy]:
        return frozenset(kind for kind, _node in self.bound_by)

    def is_only(self, kind: BoundBy) -> bool:
        """Whether the name gets its value in this way and in no other."""
        return bool(self.bound_by) and all(each is kind for each, _node in self.bound_by)


@dataclass(frozen=True)
class Occurrence:
    """One place of a name. `bound_by` tells how it binds the name there, None where it is only used."""

    start: int  # in bytes, as all positions here
    end: int
    binding: Binding
    scope: Scope
    node: Node
    bound_by: BoundBy | None = None
    is_quoted: bool = False  # in an annotation in quotes


@dataclass(frozen=True)
class AttributeUse:
    """`node` is the name after the dot, or the keyword in a class pattern; `receiver` is what stands before it."""

    node: Node
    receiver: Node
    scope: Scope
    is_stored: bool = False


@dataclass(frozen=True)
class KeywordUse:
    """The name of a keyword argument, and its call or class definition."""

    node: Node
    call: Node
    scope: Scope


@dataclass
class PythonNames:
    root: Node
    module: Scope
    scopes: list[Scope] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)  # in the order of the text
    attributes: list[AttributeUse] = field(default_factory=list)
    keywords: list[KeywordUse] = field(default_factory=list)
    splats: list[tuple[Node, Scope]] = field(default_factory=list)  # `**x` in calls
    strings: list[tuple[Node, Scope]] = field(default_factory=list)
    has_star_import: bool = False

    @cached_property
    def by_start(self) -> Mapping[int, Occurrence]:
        return {each.start: each for each in self.occurrences}

    @cached_property
    def by_binding(self) -> Mapping[Binding, list[Occurrence]]:
        places: dict[Binding, list[Occurrence]] = {}
        for each in self.occurrences:
            places.setdefault(each.binding, []).append(each)
        return places

    def binding_at(self, node: Node | None) -> Binding | None:
        """What an identifier refers to; None for any other expression."""
        found = self.by_start.get(node.start_byte) if node is not None and node.type == "identifier" else None
        return found.binding if found else None

    def bindings_named(self, name: str) -> list[Binding]:
        """The bindings of a name in all scopes, outer before inner."""
        return [scope.bindings[name] for scope in self.scopes if name in scope.bindings]


def analyse_names(text: str) -> PythonNames | None:
    """The names of a Python text; None when it does not parse."""
    root = syntax_tree(text, PYTHON)
    return None if root is None or root.has_error else _Analysis(text, root).run()


def resolve(scope: Scope, name: str) -> Binding | None:
    """The binding that a name refers to in a scope; None when the text does not bind it."""
    current: Scope | None = scope
    is_class_visible = True
    while current is not None:
        if current.kind is not ScopeKind.CLASS or is_class_visible:
            if current.redirected.get(name) == "global":
                return current.module.bindings.get(name)
            if name in current.bindings:
                return current.bindings[name]
        is_class_visible = is_class_visible and current.kind is ScopeKind.TYPE_PARAMETERS
        current = current.parent
    return None


@dataclass(frozen=True)
class _Mention:
    node: Node
    scope: Scope
    bound_by: BoundBy | None
    is_quoted: bool


_Visit = Callable[["_Analysis", Node, Scope], None]


class _Analysis:
    """Walks the tree once and collects every mention of a name with its scope, then resolves all of them.

    It keeps a stack of its own, because expressions may be nested more deeply than Python's stack allows.
    """

    def __init__(self, text: str, root: Node) -> None:
        self.raw, self.root = text.encode(), root
        self.names = PythonNames(root, self._open(ScopeKind.MODULE, root, None))
        self.names.scopes.append(self.names.module)
        self.mentions: list[_Mention] = []
        self.todo: list[tuple[_Visit, Node, Scope]] = []
        self.is_outdated = self.is_quoted = False

    def run(self) -> PythonNames | None:
        self._walk(self.root, self.names.module)
        if self.is_outdated:
            return None
        self.names.scopes.sort(key=lambda scope: (scope.node.start_byte, -scope.node.end_byte))
        binding = [mention for mention in self.mentions if mention.bound_by]
        # what `nonlocal` means is known once the scopes around it have their names
        for mention in sorted(binding, key=lambda each: each.scope.redirected.get(node_text(each.node)) == "nonlocal"):
            self._bind(mention)
        unbound: dict[str, Binding] = {}
        for mention in self.mentions:
            name = node_text(mention.node)
            binding = resolve(mention.scope, name) or unbound.setdefault(name, Binding(name))
            self.names.occurrences.append(
                Occurrence(
                    mention.node.start_byte, mention.node.end_byte, binding, mention.scope, mention.node,
                    mention.bound_by, mention.is_quoted,
                )
            )  # fmt: skip
        self.names.occurrences.sort(key=lambda each: each.start)
        self._mark_ambiguous()
        return self.names

    def _walk(self, node: Node, scope: Scope) -> None:
        done = len(self.todo)
        self.todo.append((_Analysis.load, node, scope))
        while len(self.todo) > done:
            visit, each, where = self.todo.pop()
            visit(self, each, where)

    def _open(self, kind: ScopeKind, node: Node, parent: Scope | None) -> Scope:
        scope = Scope(kind, node, parent)
        if parent is not None:
            self.names.scopes.append(scope)
        return scope

    def _bind(self, mention: _Mention) -> None:
        name, scope = node_text(mention.node), mention.scope
        redirected = scope.redirected.get(name)
        if redirected == "global":
            scope = scope.module
        elif redirected == "nonlocal":
            found = resolve(scope.parent, name) if scope.parent else None
            scope = found.scope if found and found.scope else scope.module
        binding = scope.bindings.setdefault(name, Binding(name, scope))
        assert mention.bound_by is not None
        binding.bound_by.append((mention.bound_by, mention.node))

    def _mark_ambiguous(self) -> None:
        """`x = x` in a class reads the outer x first; a builtin that a module replaces may be meant before that."""
        for binding in self.names.module.bindings.values():
            is_defined = binding.kinds & {BoundBy.FUNCTION, BoundBy.CLASS}
            binding.is_ambiguous = binding.name in BUILTIN_NAMES and not is_defined
        for each in self.names.occurrences:
            scope = each.scope
            if scope.kind is ScopeKind.CLASS and each.bound_by is None and each.binding.scope is scope and scope.parent:
                outer = resolve(scope.parent, each.binding.name)
                if outer is not None or each.binding.name in BUILTIN_NAMES:
                    each.binding.is_ambiguous = True
                    if outer is not None:
                        outer.is_ambiguous = True

    def _mention(self, node: Node, scope: Scope, bound_by: BoundBy | None = None) -> None:
        self.mentions.append(_Mention(node, scope, bound_by, self.is_quoted))

    def _later(self, visit: _Visit, node: Node | None, scope: Scope) -> None:
        if node is not None:
            self.todo.append((visit, node, scope))

    def _later_children(self, visit: _Visit, node: Node, scope: Scope) -> None:
        self.todo.extend((visit, child, scope) for child in node.named_children)

    # What stands where a value is computed

    def load(self, node: Node, scope: Scope) -> None:
        visit = LOADS.get(node.type)
        if visit:
            visit(self, node, scope)
        elif node.type in OUTDATED_STATEMENTS:
            self.is_outdated = True
        else:
            self._later_children(_Analysis.load, node, scope)

    def load_identifier(self, node: Node, scope: Scope) -> None:
        self._mention(node, scope)

    def load_attribute(self, node: Node, scope: Scope) -> None:
        self._attribute(node, scope, is_stored=False)

    def _attribute(self, node: Node, scope: Scope, *, is_stored: bool) -> None:
        receiver, name = node.child_by_field_name("object"), node.child_by_field_name("attribute")
        assert receiver is not None
        assert name is not None
        self.names.attributes.append(AttributeUse(name, receiver, scope, is_stored))
        self._later(_Analysis.load, receiver, scope)

    def load_keyword(self, node: Node, scope: Scope) -> None:
        name, call = node.child_by_field_name("name"), node.parent
        while call is not None and call.type not in ("call", "class_definition"):
            call = call.parent
        if name is not None and call is not None:
            self.names.keywords.append(KeywordUse(name, call, scope))
        is_bound = name is not None and node_text(name) == "bound"
        self._later(_Analysis.annotation if is_bound else _Analysis.load, node.child_by_field_name("value"), scope)

    def load_splat(self, node: Node, scope: Scope) -> None:
        self.names.splats.append((node, scope))
        self._later_children(_Analysis.load, node, scope)

    def load_string(self, node: Node, scope: Scope) -> None:
        self.names.strings.append((node, scope))
        for child in node.named_children:
            if child.type == "interpolation":
                self._later(_Analysis.load, child, scope)

    def load_call(self, node: Node, scope: Scope) -> None:
        called, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        self._later(_Analysis.load, called, scope)
        if arguments is None:
            return
        is_typed = called is not None and _last_name(called) in ANNOTATION_FUNCTIONS
        if not is_typed or arguments.type != "argument_list":
            self._later(_Analysis.load, arguments, scope)
            return
        is_cast = called is not None and _last_name(called) == "cast"
        for index, child in enumerate(arguments.named_children):
            is_annotation = index == 0 if is_cast else index > 0
            self._later(_Analysis.annotation if is_annotation else _Analysis.load, child, scope)

    def load_subscript(self, node: Node, scope: Scope) -> None:
        value = node.child_by_field_name("value")
        is_type = value is not None and _last_name(value) in ANNOTATION_TYPES
        self._later_children(_Analysis.annotation if is_type else _Analysis.load, node, scope)

    # Annotations, where a string is an expression

    def annotation(self, node: Node, scope: Scope) -> None:
        if node.type == "string":
            self._quoted(node, scope)
        elif node.type in ("generic_type", "subscript") and node.named_children:
            base, *arguments = node.named_children
            self._later(_Analysis.load, base, scope)
            if node.type == "generic_type":  # its arguments stand in a node of their own
                arguments = [child for each in arguments for child in each.named_children]
            quoted = {"Literal": 0, "Annotated": 1}.get(_last_name(base), len(arguments))
            for index, each in enumerate(arguments):
                self._later(_Analysis.annotation if index < quoted else _Analysis.literal_type, each, scope)
        elif node.type in ("identifier", "attribute", "call", "lambda", "keyword_argument", *COMPREHENSIONS):
            self.load(node, scope)
        else:
            self._later_children(_Analysis.annotation, node, scope)

    def literal_type(self, node: Node, scope: Scope) -> None:
        """An argument of `Literal` or `Annotated`, where a string is only a string."""
        if node.type == "type":
            self._later_children(_Analysis.literal_type, node, scope)
        else:
            self.load(node, scope)

    def _quoted(self, node: Node, scope: Scope) -> None:
        self.names.strings.append((node, scope))
        content = quoted_expression(node)
        grammar = load_grammar(PYTHON)
        if content is None or grammar is None:
            return
        area = Range(content.start_point, content.end_point, content.start_byte, content.end_byte)
        root = Parser(grammar, included_ranges=[area]).parse(self.raw).root_node
        if root.has_error or len(root.named_children) != 1 or root.named_children[0].type != "expression_statement":
            return
        was_quoted, self.is_quoted = self.is_quoted, True
        done = len(self.todo)
        self._later_children(_Analysis.annotation, root.named_children[0], scope)
        while len(self.todo) > done:
            visit, each, where = self.todo.pop()
            visit(self, each, where)
        self.is_quoted = was_quoted

    # Definitions

    def define_function(self, node: Node, scope: Scope) -> None:
        self._bind_name(node, scope, BoundBy.FUNCTION)
        outer, parameters = self._type_parameters(node, scope), node.child_by_field_name("parameters")
        self._later(_Analysis.annotation, node.child_by_field_name("return_type"), outer)
        inner = self._open(ScopeKind.FUNCTION, node, outer)
        if parameters is not None:
            self._parameters(parameters, inner, outer, scope)
        self._later(_Analysis.load, node.child_by_field_name("body"), inner)

    def define_lambda(self, node: Node, scope: Scope) -> None:
        inner, parameters = self._open(ScopeKind.FUNCTION, node, scope), node.child_by_field_name("parameters")
        if parameters is not None:
            self._parameters(parameters, inner, scope, scope)
        self._later(_Analysis.load, node.child_by_field_name("body"), inner)

    def define_class(self, node: Node, scope: Scope) -> None:
        self._bind_name(node, scope, BoundBy.CLASS)
        outer = self._type_parameters(node, scope)
        self._later(_Analysis.load, node.child_by_field_name("superclasses"), outer)
        inner = self._open(ScopeKind.CLASS, node, outer)
        self._later(_Analysis.load, node.child_by_field_name("body"), inner)

    def define_type(self, node: Node, scope: Scope) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        name = left.named_children[0] if left is not None and left.named_children else left
        inner = scope
        if name is not None and name.type == "generic_type":
            inner = self._open(ScopeKind.TYPE_PARAMETERS, node, scope)
            self._declare_type_parameters(name.named_children[1:], inner)
            name = name.named_children[0]
        if name is not None and name.type == "identifier":
            self._mention(name, scope, BoundBy.VARIABLE)
        self._later(_Analysis.annotation, right, inner)

    def _bind_name(self, node: Node, scope: Scope, bound_by: BoundBy) -> None:
        name = node.child_by_field_name("name")
        assert name is not None
        self._mention(name, scope, bound_by)

    def _type_parameters(self, node: Node, scope: Scope) -> Scope:
        """The scope of the type parameters of a function or class, or the scope around it."""
        declared = node.child_by_field_name("type_parameters")
        if declared is None:
            return scope
        inner = self._open(ScopeKind.TYPE_PARAMETERS, node, scope)
        self._declare_type_parameters([declared], inner)
        return inner

    def _declare_type_parameters(self, nodes: list[Node], scope: Scope) -> None:
        for node in (child for each in nodes for child in each.named_children):
            inner = node.named_children[0] if node.named_children else node
            first, *bounds = inner.named_children if inner.type in ("constrained_type", "splat_type") else [inner]
            while first.named_children:
                first = first.named_children[0]
            if first.type == "identifier":
                self._mention(first, scope, BoundBy.TYPE_PARAMETER)
            for bound in bounds:
                self._later(_Analysis.annotation, bound, scope)

    def _parameters(self, parameters: Node, inner: Scope, annotations: Scope, defaults: Scope) -> None:
        for node in parameters.named_children:
            self._later(_Analysis.annotation, node.child_by_field_name("type"), annotations)
            self._later(_Analysis.load, node.child_by_field_name("value"), defaults)
            if name := parameter_name(node):
                self._mention(name, inner, BoundBy.PARAMETER)

    def comprehension(self, node: Node, scope: Scope) -> None:
        """The first iterable is computed outside, everything else in a scope of its own."""
        inner, is_first = self._open(ScopeKind.COMPREHENSION, node, scope), True
        for child in node.named_children:
            if child.type != "for_in_clause":
                self._later(_Analysis.load, child, inner)
                continue
            self._later(_Analysis.store, child.child_by_field_name("left"), inner)
            for right in child.children_by_field_name("right"):
                self._later(_Analysis.load, right, scope if is_first else inner)
            is_first = False

    # What gives a name its value

    def store(self, node: Node, scope: Scope) -> None:
        match node.type:
            case "identifier":
                self._mention(node, scope, BoundBy.VARIABLE)
            case "attribute":
                self._attribute(node, scope, is_stored=True)
            case "subscript":
                self.load(node, scope)
            case _:
                self._later_children(_Analysis.store, node, scope)

    def assign(self, node: Node, scope: Scope) -> None:
        self._later(_Analysis.store, node.child_by_field_name("left"), scope)
        annotation, right = node.child_by_field_name("type"), node.child_by_field_name("right")
        self._later(_Analysis.annotation, annotation, scope)
        is_type = annotation is not None and node_text(annotation).rpartition(".")[2] == "TypeAlias"
        self._later(_Analysis.annotation if is_type else _Analysis.load, right, scope)

    def walrus(self, node: Node, scope: Scope) -> None:
        outer = scope
        while outer.kind is ScopeKind.COMPREHENSION and outer.parent is not None:
            outer = outer.parent
        self._later(_Analysis.store, node.child_by_field_name("name"), outer)
        self._later(_Analysis.load, node.child_by_field_name("value"), scope)

    def for_loop(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            is_target = child == node.child_by_field_name("left")
            self._later(_Analysis.store if is_target else _Analysis.load, child, scope)

    def as_pattern(self, node: Node, scope: Scope) -> None:
        """`with x as y` and `except x as y`."""
        for child in node.named_children:
            is_target = child.type == "as_pattern_target"
            self._later(_Analysis.store if is_target else _Analysis.load, child, scope)

    def delete(self, node: Node, scope: Scope) -> None:
        self._later_children(_Analysis.store, node, scope)

    def import_names(self, node: Node, scope: Scope) -> None:
        """`import a.b` binds a, `import a.b as c` binds c, `from m import x` binds x."""
        module = node.child_by_field_name("module_name")
        for child in node.named_children:
            if child.type == "wildcard_import":
                self.names.has_star_import = True
            if child == module or child.type == "wildcard_import":
                continue
            alias = child.child_by_field_name("alias")
            bound = alias or (child.named_children[0] if child.type == "dotted_name" else None)
            if bound is not None:
                self._mention(bound, scope, BoundBy.IMPORT)

    def redirect(self, node: Node, scope: Scope) -> None:
        keyword = node.type.removesuffix("_statement")
        for name in node.named_children:
            if scope.kind is not ScopeKind.MODULE:
                scope.redirected[node_text(name)] = keyword
            self._mention(name, scope)

    # Patterns of `case`

    def case(self, node: Node, scope: Scope) -> None:
        for child in node.named_children:
            self._later(_Analysis.pattern if child.type == "case_pattern" else _Analysis.load, child, scope)

    def pattern(self, node: Node, scope: Scope) -> None:
        match node.type:
            case "dotted_name" if len(node.named_children) == 1:
                self._capture(node.named_children[0], scope)
            case "dotted_name":
                self._dotted(node, scope)
            case "class_pattern":
                self._class_pattern(node, scope)
            case "identifier":  # `as name` and `*name`
                self._capture(node, scope)
            case "dict_pattern":
                keys = node.children_by_field_name("key")
                for child in node.named_children:
                    self._later(_Analysis.load if child in keys else _Analysis.pattern, child, scope)
            case "string" | "concatenated_string":
                self.load(node, scope)
            case _:
                self._later_children(_Analysis.pattern, node, scope)

    def _capture(self, node: Node, scope: Scope) -> None:
        if node_text(node) != "_":
            self._mention(node, scope, BoundBy.VARIABLE)

    def _dotted(self, node: Node, scope: Scope) -> None:
        first, *rest = node.named_children
        self._mention(first, scope)
        receiver = first
        for name in rest:
            self.names.attributes.append(AttributeUse(name, receiver, scope))
            receiver = node  # more than one dot: not a plain name

    def _class_pattern(self, node: Node, scope: Scope) -> None:
        named, *arguments = node.named_children
        self._dotted(named, scope)
        receiver = named.named_children[0] if len(named.named_children) == 1 else named
        for argument in arguments:
            keyword = next((each for each in argument.named_children if each.type == "keyword_pattern"), None)
            if keyword is None:
                self._later(_Analysis.pattern, argument, scope)
                continue
            name, *values = keyword.named_children
            self.names.attributes.append(AttributeUse(name, receiver, scope))
            for value in values:
                self._later(_Analysis.pattern, value, scope)


LOADS: Mapping[str, _Visit] = {
    "identifier": _Analysis.load_identifier,
    "attribute": _Analysis.load_attribute,
    "keyword_argument": _Analysis.load_keyword,
    "dictionary_splat": _Analysis.load_splat,
    "string": _Analysis.load_string,
    "call": _Analysis.load_call,
    "subscript": _Analysis.load_subscript,
    "type": _Analysis.annotation,
    "function_definition": _Analysis.define_function,
    "lambda": _Analysis.define_lambda,
    "class_definition": _Analysis.define_class,
    "type_alias_statement": _Analysis.define_type,
    **dict.fromkeys(COMPREHENSIONS, _Analysis.comprehension),
    "assignment": _Analysis.assign,
    "augmented_assignment": _Analysis.assign,
    "named_expression": _Analysis.walrus,
    "for_statement": _Analysis.for_loop,
    "as_pattern": _Analysis.as_pattern,
    "delete_statement": _Analysis.delete,
    "import_statement": _Analysis.import_names,
    "import_from_statement": _Analysis.import_names,
    "future_import_statement": _Analysis.import_names,
    "global_statement": _Analysis.redirect,
    "nonlocal_statement": _Analysis.redirect,
    "case_clause": _Analysis.case,
}


def parameter_name(node: Node) -> Node | None:
    """The identifier of a parameter: `x`, `x=1`, `x: int`, `*x` or `**x: int`."""
    while node.type != "identifier":
        inner = node.child_by_field_name("name") or next(iter(node.named_children), None)
        if inner is None:  # a lone `*` or `/`
            return None
        node = inner
    return node


def quoted_expression(node: Node) -> Node | None:
    """The content of a plain string on one line without escapes."""
    if len(node.children) != 3 or node_text(node.children[0]) not in ('"', "'"):
        return None
    content = node.children[1]
    is_plain = content.type == "string_content" and not content.children
    return content if is_plain and b"\\" not in (content.text or b"") else None


def _last_name(node: Node) -> str:
    """`x` of `x`, `a.x` and `a.b.x`; "" for any other expression."""
    if node.type == "attribute":
        name = node.child_by_field_name("attribute")
        return node_text(name) if name else ""
    return node_text(node) if node.type == "identifier" else ""
