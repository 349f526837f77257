"""The keyword arguments that a parameter or a field has in the calls of a Python text.

A call counts when its function is certainly the one meant; when it may be, the renaming is refused.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tree_sitter import Node

from specchat.edit.refactoring.python_members import Foreign, PythonClass, decorator_names
from specchat.edit.refactoring.python_names import PYTHON, Binding, BoundBy, KeywordUse, Scope
from specchat.edit.refactoring.python_symbols import MemberSymbol, PythonFile
from specchat.edit.refactoring.splices import RefusedError
from specchat.syntax.parse import find_nodes, node_text

# Decorators after which a function still takes the arguments that it declares.
PLAIN_DECORATORS = frozenset(
    ("staticmethod", "classmethod", "property", "cached_property", "setter", "getter", "deleter", "cache", "lru_cache",
     "contextmanager", "asynccontextmanager", "abstractmethod", "override", "final", "wraps", "no_type_check")
)  # fmt: skip
CONSTRUCTORS = ("__init__", "__new__")
# Functions and methods that make a changed copy of their first argument, or of the object they belong to.
COPYING = frozenset(("replace", "evolve", "_replace", "__replace__", "copy", "model_copy"))
VALUE_FREE_PARENTS = frozenset(
    ("type", "class_definition", "except_clause", "decorator", "class_pattern", "dotted_name")
)

Places = set[tuple[int, int]]  # ranges of bytes


class KeywordArguments:
    def __init__(self, file: PythonFile) -> None:
        self.file, self.names, self.index = file, file.names, file.index

    def of_parameter(self, binding: Binding) -> Places:
        """The keyword arguments for a parameter. RefusedError where a call is not certain."""
        scope, node = binding.scope, binding.bound_by[0][1]
        assert scope is not None
        if not _can_be_keyword(scope, node):
            return set()
        name = scope.name
        parametrized = _parametrized_places(scope.node, binding.name)
        unknown = decorator_names(scope.node) - PLAIN_DECORATORS - ({"parametrize"} if parametrized else set())
        if unknown:
            raise RefusedError(f"`@{min(unknown)}` may use the names of the parameters")
        if name.startswith("test"):
            if not parametrized:
                raise RefusedError(f"`{binding.name}` may be a fixture")
            return parametrized
        owner = self.index.method_class(scope)
        uses = [each for each in self.names.keywords if node_text(each.node) == binding.name]
        calls = _Constructor(self, owner) if owner and name in CONSTRUCTORS else None
        calls = calls or (_Method(self, owner, name) if owner else _Function(self, self._function_binding(scope)))
        calls.check_splats()
        return self._select(uses, calls, binding.name)

    def of_field(self, symbol: MemberSymbol) -> Places:
        """The keyword arguments of constructors for a field of a dataclass or the like."""
        owners = [each for each in symbol.group if _has_generated_constructor(each, symbol.name)]
        if not owners:
            return set()
        uses = [each for each in self.names.keywords if node_text(each.node) == symbol.name]
        places: Places = set()
        for owner in owners:
            calls = _Fields(self, owner, symbol)
            calls.check_splats()
            calls.check_strings()
            places |= self._select(uses, calls, symbol.name)
        return places

    def _select(self, uses: Sequence[KeywordUse], calls: _Calls, name: str) -> Places:
        places: Places = set()
        for use in uses:
            is_meant = calls.is_meant(use.call, use.scope)
            if is_meant is None:
                raise RefusedError(f"`{name}=` in line {use.node.start_point.row + 1} may be for another function")
            if is_meant:
                places.add((use.node.start_byte, use.node.end_byte))
        return places

    def _function_binding(self, scope: Scope) -> Binding | None:
        return self.names.binding_at(scope.node.child_by_field_name("name"))


class _Calls(ABC):
    """The calls that pass keyword arguments on to what was meant."""

    def __init__(self, keywords: KeywordArguments) -> None:
        self.names, self.index, self.file = keywords.names, keywords.index, keywords.file

    @abstractmethod
    def is_meant(self, call: Node, scope: Scope) -> bool | None:
        """Whether a call is one of what was meant; None when it is not certain."""

    @abstractmethod
    def is_argument(self, node: Node) -> bool:
        """Whether an expression may be what was meant, as a value."""

    @abstractmethod
    def escapes(self) -> bool:
        """Whether what was meant is used as a value, so that it may be called under another name."""

    def check_splats(self) -> None:
        """RefusedError for `f(**options)`: the options may hold the name as a string."""
        for node, scope in self._calls_with_splats():
            if self.is_meant(node, scope) is not False:
                raise RefusedError(f"line {node.start_point.row + 1} passes arguments by `**`")

    def _calls_with_splats(self) -> list[tuple[Node, Scope]]:
        found: list[tuple[Node, Scope]] = []
        for node, scope in self.names.splats:
            call = node.parent.parent if node.parent else None
            if call is not None and call.type == "call":
                found.append((call, scope))
        return found

    def other_call(self, called: Node, call: Node) -> bool | None:
        """A call of something else: it may still be meant if it gets what was meant as an argument."""
        arguments = call.child_by_field_name("arguments")
        if arguments is not None and any(self.is_argument(each) for each in arguments.named_children):
            return None
        binding = self.names.binding_at(called)
        if called.type == "identifier" and binding is not None:
            is_known = binding.scope is None or not binding.kinds - {BoundBy.FUNCTION, BoundBy.CLASS, BoundBy.IMPORT}
            if is_known:
                return False
        return None if self.escapes() else False


class _Function(_Calls):
    """The calls of a function, which is no method."""

    def __init__(self, keywords: KeywordArguments, binding: Binding | None) -> None:
        super().__init__(keywords)
        self.binding = binding

    def is_meant(self, call: Node, scope: Scope) -> bool | None:
        called = call.child_by_field_name("function")
        if called is None:
            return False
        if self.binding is not None and self.names.binding_at(called) is self.binding:
            return True if len(self.binding.bound_by) == 1 else None
        return self.other_call(called, call)

    def is_argument(self, node: Node) -> bool:
        return self.binding is not None and self.names.binding_at(_value(node)) is self.binding

    def escapes(self) -> bool:
        if self.binding is None:
            return True  # a lambda
        uses = (each for each in self.names.by_binding[self.binding] if each.bound_by is None)
        return any(not _is_called(each.node) for each in uses)


class _Method(_Calls):
    def __init__(self, keywords: KeywordArguments, owner: PythonClass, name: str) -> None:
        super().__init__(keywords)
        self.name = name
        self.group = next(group for group in self.index.groups(name) if owner in group)
        self.is_single = len(self.group) == 1 and len(owner.scope.bindings[name].bound_by) == 1

    def is_meant(self, call: Node, scope: Scope) -> bool | None:
        called = call.child_by_field_name("function")
        if called is None:
            return False
        name = called.child_by_field_name("attribute")
        if called.type != "attribute" or name is None or node_text(name) != self.name:
            return self.other_call(called, call)
        use = next(each for each in self.names.attributes if each.node == name)
        is_member = self.index.is_member(use, self.group)
        return is_member if self.is_single or is_member is False else None

    def is_argument(self, node: Node) -> bool:
        name = _value(node).child_by_field_name("attribute")
        return name is not None and node_text(name) == self.name

    def escapes(self) -> bool:
        uses = [each.node for each in self.names.attributes if node_text(each.node) == self.name]
        return any(each.parent is not None and not _is_called(each.parent) for each in uses)


class _Constructor(_Calls):
    """The calls of a class whose `__init__` has the parameter."""

    def __init__(self, keywords: KeywordArguments, owner: PythonClass) -> None:
        super().__init__(keywords)
        self.owner = owner
        self.constructed = [each for each in owner.descendants() if self._constructor_class(each) is owner]

    def is_meant(self, call: Node, scope: Scope) -> bool | None:
        if call.type == "class_definition":
            return False
        called = call.child_by_field_name("function")
        if called is None:
            return False
        name = called.child_by_field_name("attribute")
        if called.type == "attribute" and name is not None and node_text(name) in CONSTRUCTORS:
            return self._is_meant_by_name(called, scope)
        found = self.index.type_of(called, scope)
        is_class = called.type in ("identifier", "call", "subscript") or node_text(called).endswith("__class__")
        if isinstance(found, PythonClass) and is_class:
            return found in self.constructed
        return self.other_call(called, call)

    def is_argument(self, node: Node) -> bool:
        return self.index.class_of(self.names.binding_at(_value(node))) in self.constructed

    def escapes(self) -> bool:
        return any(_is_value(each.node) for owner in self.constructed for each in self._uses_of(owner))

    def _uses_of(self, owner: PythonClass) -> list:
        return [each for each in self.names.by_binding[owner.binding] if each.bound_by is None and not each.is_quoted]

    def _is_meant_by_name(self, called: Node, scope: Scope) -> bool | None:
        """`super().__init__(…)` and `Base.__init__(self, …)`."""
        receiver = called.child_by_field_name("object")
        if receiver is None:
            return None
        if receiver.type == "call" and node_text(receiver).startswith("super("):
            current = self.index.enclosing_class(scope)
            if current is None:
                return None
            above = [each for each in current.ancestors()[1:] if each.defines("__init__")]
            return above[0] is self.owner if above else False
        found = self.index.type_of(receiver, scope)
        return None if found is None else found is self.owner

    def _constructor_class(self, owner: PythonClass) -> PythonClass | None:
        return next((each for each in owner.ancestors() if any(each.defines(name) for name in CONSTRUCTORS)), None)


class _Fields(_Constructor):
    """The calls of a class whose constructor is made from its fields."""

    def __init__(self, keywords: KeywordArguments, owner: PythonClass, symbol: MemberSymbol) -> None:
        super().__init__(keywords, owner)
        self.symbol = symbol
        self.constructed = [each for each in owner.descendants() if self._constructor_class(each) in (None, owner)]

    def is_meant(self, call: Node, scope: Scope) -> bool | None:
        called = call.child_by_field_name("function")
        if called is not None and node_text(called).rpartition(".")[2] in COPYING:
            arguments = call.child_by_field_name("arguments")
            receiver = called.child_by_field_name("object")
            is_method = receiver is not None and self.index.type_of(receiver, scope) is not Foreign.IMPORTED
            copied = receiver if is_method else next(iter(arguments.named_children if arguments else ()), None)
            found = self.index.type_of(copied, scope)
            return None if found is None else found in self.symbol.group
        return super().is_meant(call, scope)

    def check_strings(self) -> None:
        """RefusedError when a string is the name of the field: data may come and go by it."""
        for node, _scope in self.names.strings:
            if node_text(node).strip("\"'") == self.symbol.name:
                raise RefusedError(f"the string in line {node.start_point.row + 1} may name the field")


def _can_be_keyword(scope: Scope, node: Node) -> bool:
    """Whether a caller can name the parameter: not for `*x`, `**x` and what stands before `/`."""
    parent = node.parent
    if parent is not None and parent.type in ("list_splat_pattern", "dictionary_splat_pattern"):
        return False
    parameters = scope.node.child_by_field_name("parameters")
    separators = (
        [each for each in parameters.named_children if each.type == "positional_separator"] if parameters else []
    )
    return not separators or node.start_byte > separators[0].start_byte


def _parametrized_places(function: Node, name: str) -> Places:
    """Where `@pytest.mark.parametrize("name, other", …)` names a parameter."""
    places: Places = set()
    for decorator in function.parent.named_children if function.parent else []:
        call = next(iter(decorator.named_children), None) if decorator.type == "decorator" else None
        called = call.child_by_field_name("function") if call and call.type == "call" else None
        if call is None or called is None or not node_text(called).endswith("parametrize"):
            continue
        arguments = call.child_by_field_name("arguments")
        first = next(iter(arguments.named_children), None) if arguments else None
        for content in find_nodes(first, PYTHON, ("string_content",)) if first else []:
            for match in re.finditer(rf"(?:\A|(?<=[\s,])){re.escape(name)}(?=\Z|[\s,])", node_text(content)):
                start = content.start_byte + len(node_text(content)[: match.start()].encode())
                places.add((start, start + len(name.encode())))
    return places


def _has_generated_constructor(owner: PythonClass, field: str) -> bool:
    """Whether a field of the class may be an argument of its constructor, as in dataclasses and models."""
    is_own = owner.has_unknown_base or bool(decorator_names(owner.scope.node))
    return is_own and field in owner.scope.bindings and not any(owner.defines(name) for name in CONSTRUCTORS)


def _value(node: Node) -> Node:
    """The value of an argument."""
    return node.child_by_field_name("value") or node if node.type == "keyword_argument" else node


def _is_called(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "call" and parent.child_by_field_name("function") == node


def _is_value(node: Node) -> bool:
    """Whether a class is used as a value: not called, not an annotation, a base, or what an attribute belongs to."""
    outer, inner = node.parent, node
    while outer is not None and outer.type in ("binary_operator", "subscript", "tuple", "argument_list"):
        if outer.type == "argument_list":
            call = outer.parent
            called = call.child_by_field_name("function") if call and call.type == "call" else None
            is_check = called is not None and node_text(called) in ("isinstance", "issubclass", "super", "cast")
            return call is not None and call.type == "call" and not is_check
        outer, inner = outer.parent, outer
    if outer is None or outer.type in VALUE_FREE_PARENTS or _is_called(inner):
        return False
    return outer.type not in ("attribute", "generic_type", "constrained_type", "type_parameter")


__all__ = ["KeywordArguments"]
