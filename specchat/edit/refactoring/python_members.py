"""The attributes of the classes in a Python text: which class an expression belongs to, as far as the text shows it.

`ClassIndex.type_of` follows `self`, constructors, annotations and single assignments. Where it is not certain it says
None, and a renaming that depends on it is refused. Knows no instruction and no edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from tree_sitter import Node

from specchat.edit.refactoring.python_names import (
    BUILTIN_NAMES,
    COMPREHENSIONS,
    AttributeUse,
    Binding,
    BoundBy,
    PythonNames,
    Scope,
    ScopeKind,
    quoted_expression,
)
from specchat.syntax.parse import node_text

MAX_DEPTH = 8  # of expressions and assignments that are followed
SCALAR_LITERALS = frozenset(
    ("string", "concatenated_string", "integer", "float", "true", "false", "none", "comparison_operator",
     "not_operator")
)  # fmt: skip
CONTAINER_LITERALS = frozenset(("list", "dictionary", "set", "tuple", "lambda", *COMPREHENSIONS))
SCALAR_BUILTINS = frozenset(
    ("str", "int", "float", "bool", "bytes", "bytearray", "complex", "len", "repr", "ascii", "format", "hash", "id",
     "ord", "chr", "hex", "oct", "bin", "input", "isinstance", "issubclass", "callable", "hasattr", "any", "all", "abs",
     "round", "divmod", "None")
)  # fmt: skip
OTHER_BUILTINS = frozenset(
    ("list", "dict", "set", "frozenset", "tuple", "open", "range", "sorted", "enumerate", "zip", "map", "filter",
     "reversed", "memoryview", "slice", "print", "dir")
)  # fmt: skip
PLAIN_METHODS = frozenset(("classmethod", "staticmethod", "abstractmethod", "override", "final"))
WRAPPER_TYPES = frozenset(("Optional", "ClassVar", "Final", "Annotated", "Type", "type", "Required", "ReadOnly"))
UNKNOWN_TYPES = frozenset(("Any", "object", "TypeVar", "Protocol", "Generic", "Union", "Literal", "T"))


class Foreign(StrEnum):
    """Values that are certainly of no class in this text."""

    IMPORTED = "imported"
    SCALAR = "scalar"
    OTHER = "other"


@dataclass(eq=False)
class PythonClass:
    """A class of the text. `stored` are the attributes that its methods assign by `self.x = …`."""

    scope: Scope
    binding: Binding
    bases: list[PythonClass] = field(default_factory=list)
    subclasses: list[PythonClass] = field(default_factory=list)
    has_unknown_base: bool = False
    stored: dict[str, list[Node]] = field(default_factory=dict)  # name -> the values

    def defines(self, name: str) -> bool:
        return name in self.scope.bindings or name in self.stored

    def ancestors(self) -> list[PythonClass]:
        """This class and all above it."""
        return _closure(self, lambda each: each.bases)

    def descendants(self) -> list[PythonClass]:
        """This class and all below it."""
        return _closure(self, lambda each: each.subclasses)


Type = PythonClass | Foreign | None  # None: unknown


class ClassIndex:
    """The classes of a text, and the type of its expressions."""

    def __init__(self, names: PythonNames) -> None:
        self.names = names
        self.classes = self._find_classes()
        self._link_bases()
        self._find_stored_attributes()

    def defining(self, name: str) -> list[PythonClass]:
        return [each for each in self.classes.values() if each.defines(name)]

    def groups(self, name: str) -> list[list[PythonClass]]:
        """The classes that define an attribute, those together whose definitions override each other."""
        groups: list[list[PythonClass]] = []
        for each in self.defining(name):
            related = {other for below in each.descendants() for other in below.ancestors()}
            linked = [group for group in groups if related & set(group)]
            groups = [group for group in groups if group not in linked]
            groups.append([*(other for group in linked for other in group), each])
        return groups

    def is_member(self, use: AttributeUse, group: Sequence[PythonClass]) -> bool | None:
        """Whether an attribute in the text is that of the group; None when it is not certain."""
        name = node_text(use.node)
        owner = self._super_class(use.receiver, use.scope)
        if owner is None:
            return self.belongs_to(self.type_of(use.receiver, use.scope), name, group)
        belonging = {each in group for each in owner.ancestors()[1:] if each.defines(name)}
        return belonging.pop() if len(belonging) == 1 else None

    def belongs_to(self, found: Type, name: str, group: Sequence[PythonClass]) -> bool | None:
        """Whether the attribute `name` of a value of this type is that of the group; None when it is not certain."""
        if not isinstance(found, PythonClass):
            return False if found is not None else None
        above = [each for each in found.ancestors() if each.defines(name)]
        below = above or [each for each in found.descendants() if each.defines(name)]
        belonging = {each in group for each in below}
        return None if len(belonging) > 1 else True in belonging

    def class_of(self, binding: Binding | None) -> PythonClass | None:
        """The class that a name always means."""
        if binding is None or len(binding.bound_by) != 1 or binding.is_ambiguous:
            return None
        kind, node = binding.bound_by[0]
        return self._by_node.get(node.parent.id) if kind is BoundBy.CLASS and node.parent else None

    def method_class(self, function: Scope) -> PythonClass | None:
        """The class in whose body a function is defined."""
        if function.kind is not ScopeKind.FUNCTION or function.node.type == "lambda":
            return None
        outer = function.parent
        while outer is not None and outer.kind is ScopeKind.TYPE_PARAMETERS and outer.node == function.node:
            outer = outer.parent
        return self.classes.get(outer) if outer is not None else None

    def type_of(self, node: Node | None, scope: Scope, depth: int = 0) -> Type:
        """The class that the value of an expression, or the expression itself, is."""
        if node is None or depth > MAX_DEPTH:
            return None
        match node.type:
            case "identifier":
                return self._type_of_name(node, depth)
            case "attribute":
                return self._type_of_attribute(node, scope, depth)
            case "call":
                return self._type_of_call(node, scope, depth)
        return self._type_of_operation(node, scope, depth)

    def annotated_type(self, node: Node | None, scope: Scope) -> Type:
        """The class that an annotation names: `C`, `"C"`, `C | None`, `Optional[C]`."""
        if node is None:
            return None
        match node.type:
            case "type" | "parenthesized_expression" if node.named_children:
                return self.annotated_type(node.named_children[0], scope)
            case "string":
                return self._quoted_type(node, scope)
            case "none":
                return Foreign.SCALAR
            case "identifier":
                return self._named_type(self.names.binding_at(node), node_text(node), scope)
            case "attribute":
                receiver = self.type_of(node.child_by_field_name("object"), scope)
                return None if node_text(node).rpartition(".")[2] in UNKNOWN_TYPES else receiver and Foreign.OTHER
            case "binary_operator":
                sides = (node.child_by_field_name("left"), node.child_by_field_name("right"))
                found = {self.annotated_type(each, scope) for each in sides if each and each.type != "none"}
                return found.pop() if len(found) == 1 else None
            case "generic_type" | "subscript" if len(node.named_children) > 1:
                return self._generic_type(node, scope)
        return None

    # How classes and attributes are found

    @cached_property
    def _by_node(self) -> Mapping[int, PythonClass]:
        return {each.scope.node.id: each for each in self.classes.values()}

    @cached_property
    def _functions(self) -> Mapping[int, Scope]:
        return {each.node.id: each for each in self.names.scopes if each.kind is ScopeKind.FUNCTION}

    def _find_classes(self) -> dict[Scope, PythonClass]:
        found: dict[Scope, PythonClass] = {}
        for scope in self.names.scopes:
            binding = self.names.binding_at(scope.node.child_by_field_name("name"))
            if scope.kind is ScopeKind.CLASS and binding is not None:
                found[scope] = PythonClass(scope, binding)
        return found

    def _link_bases(self) -> None:
        for each in self.classes.values():
            named = each.scope.node.child_by_field_name("superclasses")
            for node in named.named_children if named else []:
                if node.type in ("keyword_argument", "comment"):
                    continue
                plain = node.named_children[0] if node.type == "subscript" else node
                base = self.class_of(self.names.binding_at(plain))
                if base is not None and base is not each:
                    each.bases.append(base)
                    base.subclasses.append(each)
                elif node_text(plain) not in ("object", "Exception", "ABC", "Generic", "Protocol"):
                    each.has_unknown_base = True

    def _find_stored_attributes(self) -> None:
        for use in self.names.attributes:
            owner = self._self_class(self.names.binding_at(use.receiver)) if use.is_stored else None
            if owner is not None:
                values = owner.stored.setdefault(node_text(use.node), [])
                target = use.node.parent
                statement = target.parent if target else None
                is_plain = statement is not None and statement.type == "assignment"
                value = statement.child_by_field_name("right") if statement and is_plain else None
                annotation = statement.child_by_field_name("type") if statement and is_plain else None
                values.append(annotation or value or use.node)

    def _self_class(self, binding: Binding | None) -> PythonClass | None:
        """The class of `self` or `cls`: the first parameter of a method that no other statement changes."""
        if binding is None or binding.scope is None or len(binding.bound_by) != 1:
            return None
        kind, node = binding.bound_by[0]
        owner = self.method_class(binding.scope)
        if kind is not BoundBy.PARAMETER or owner is None:
            return None
        parameters = binding.scope.node.child_by_field_name("parameters")
        first = parameters.named_children[0] if parameters and parameters.named_children else None
        is_first = first is not None and first.start_byte == node.start_byte
        return owner if is_first and "staticmethod" not in decorator_names(binding.scope.node) else None

    # The types of expressions

    def _type_of_operation(self, node: Node, scope: Scope, depth: int) -> Type:
        if node.type in SCALAR_LITERALS:
            return Foreign.SCALAR
        if node.type in CONTAINER_LITERALS:
            return Foreign.OTHER
        match node.type:
            case "parenthesized_expression" if len(node.named_children) == 1:
                return self.type_of(node.named_children[0], scope, depth + 1)
            case "conditional_expression" if len(node.named_children) == 3:
                return self._common((node.named_children[0], node.named_children[2]), scope, depth)
            case "boolean_operator" | "binary_operator":
                sides = (node.child_by_field_name("left"), node.child_by_field_name("right"))
                found = self._common(sides, scope, depth)
                return found if node.type == "boolean_operator" or found is Foreign.SCALAR else None
            case "subscript":
                base = node.child_by_field_name("value")
                if generic := self.class_of(self.names.binding_at(base)):
                    return generic  # `C[int]`
                value = self.type_of(base, scope, depth + 1)
                return value if value in (Foreign.SCALAR, Foreign.IMPORTED) else None
        return None

    def _type_of_name(self, node: Node, depth: int) -> Type:
        binding = self.names.binding_at(node)
        if binding is None or binding.is_ambiguous:
            return None
        if binding.scope is None:
            is_known = binding.name in BUILTIN_NAMES and not self.names.has_star_import
            return Foreign.OTHER if is_known else None
        found = {self._type_of_binding(binding, kind, bound, depth) for kind, bound in binding.bound_by}
        return found.pop() if len(found) == 1 else None

    def _type_of_binding(self, binding: Binding, kind: BoundBy, node: Node, depth: int) -> Type:
        assert binding.scope is not None
        match kind:
            case BoundBy.CLASS:
                return self.class_of(binding)
            case BoundBy.IMPORT:
                return Foreign.IMPORTED
            case BoundBy.FUNCTION:
                return Foreign.OTHER
            case BoundBy.PARAMETER:
                return self._self_class(binding) or self._type_of_parameter(node, binding.scope)
            case BoundBy.VARIABLE:
                return self._type_of_variable(node, binding.scope, depth)
        return None

    def _type_of_parameter(self, node: Node, scope: Scope) -> Type:
        parameter = node.parent
        if parameter is None or parameter.type not in ("typed_parameter", "typed_default_parameter"):
            is_splat = parameter is not None and parameter.type in ("list_splat_pattern", "dictionary_splat_pattern")
            return Foreign.OTHER if is_splat else None
        return self.annotated_type(parameter.child_by_field_name("type"), scope)

    def _type_of_variable(self, node: Node, scope: Scope, depth: int) -> Type:
        statement = node.parent
        if statement is None or statement.type not in ("assignment", "named_expression"):
            return self._type_of_caught(node)
        if annotation := statement.child_by_field_name("type"):
            return self.annotated_type(annotation, scope)
        is_target = statement.child_by_field_name("left") == node or statement.type == "named_expression"
        value = statement.child_by_field_name("right") or statement.child_by_field_name("value")
        return self.type_of(value, scope, depth + 1) if is_target else None

    def _type_of_caught(self, node: Node) -> Type:
        """`with open(…) as f`: a file; anything else that `as` names is unknown."""
        pattern = node.parent.parent if node.parent else None
        value = pattern.named_children[0] if pattern and pattern.type == "as_pattern" else None
        called = value.child_by_field_name("function") if value and value.type == "call" else None
        return Foreign.OTHER if called is not None and node_text(called) == "open" else None

    def _type_of_attribute(self, node: Node, scope: Scope, depth: int) -> Type:
        name = node.child_by_field_name("attribute")
        receiver = self.type_of(node.child_by_field_name("object"), scope, depth + 1)
        if not isinstance(receiver, PythonClass) or name is None:
            return receiver if receiver is Foreign.IMPORTED else None
        if node_text(name) == "__class__":
            return receiver
        return self._type_of_member(receiver, node_text(name), depth)

    def _type_of_member(self, owner: PythonClass, name: str, depth: int) -> Type:
        found: set[Type] = set()
        for each in {*owner.ancestors(), *owner.descendants()}:
            for value in each.stored.get(name, []):
                method = self._scope_at(value) or each.scope
                is_annotation = value.type == "type"
                found.add(
                    self.annotated_type(value, method) if is_annotation else self.type_of(value, method, depth + 1)
                )
            for kind, node in each.scope.bindings[name].bound_by if name in each.scope.bindings else []:
                found.add(self._type_of_class_member(each, kind, node, depth))
        return found.pop() if len(found) == 1 else None

    def _type_of_class_member(self, owner: PythonClass, kind: BoundBy, node: Node, depth: int) -> Type:
        if kind is BoundBy.VARIABLE:
            return self._type_of_variable(node, owner.scope, depth)
        function = node.parent
        is_property = function is not None and {"property", "cached_property"} & decorator_names(function)
        returned = function.child_by_field_name("return_type") if function and is_property else None
        return self.annotated_type(returned, owner.scope)

    def _scope_at(self, node: Node) -> Scope | None:
        """The innermost function around a node."""
        outer = node.parent
        while outer is not None and outer.id not in self._functions:
            outer = outer.parent
        return self._functions[outer.id] if outer is not None else None

    def _type_of_call(self, node: Node, scope: Scope, depth: int) -> Type:
        called = node.child_by_field_name("function")
        if called is None:
            return None
        binding = self.names.binding_at(called)
        if binding is not None and binding.scope is None:
            return self._type_of_builtin_call(node, node_text(called), scope, depth)
        if binding is not None and binding.is_only(BoundBy.FUNCTION) and len(binding.bound_by) == 1:
            function = binding.bound_by[0][1].parent
            is_plain = function is not None and not decorator_names(function) and not is_async(function)
            returned = function.child_by_field_name("return_type") if function and is_plain else None
            return self.annotated_type(returned, scope)
        found = self.type_of(called, scope, depth + 1)
        if isinstance(found, PythonClass) and (called.type != "attribute" or node_text(called).endswith("__class__")):
            return found
        if method_type := self._returned_by_method(called, scope, depth):
            return method_type
        if found is Foreign.IMPORTED and self._has_only_foreign_arguments(node, scope, depth):
            return Foreign.OTHER
        receiver = called.child_by_field_name("object")
        return Foreign.SCALAR if self.type_of(receiver, scope, depth + 1) is Foreign.SCALAR else None

    def _returned_by_method(self, called: Node, scope: Scope, depth: int) -> Type:
        """What a method of a class in the text returns, by its annotation."""
        receiver, name = called.child_by_field_name("object"), called.child_by_field_name("attribute")
        owner = self.type_of(receiver, scope, depth + 1) if name else None
        if not isinstance(owner, PythonClass) or name is None:
            return None
        found: set[Type] = set()
        for each in {*owner.ancestors(), *owner.descendants()}:
            binding = each.scope.bindings.get(node_text(name))
            for kind, node in binding.bound_by if binding else []:
                function = node.parent if kind is BoundBy.FUNCTION else None
                is_plain = function and decorator_names(function) <= PLAIN_METHODS and not is_async(function)
                returned = function.child_by_field_name("return_type") if function and is_plain else None
                found.add(self.annotated_type(returned, each.scope))
        return found.pop() if len(found) == 1 else None

    def _type_of_builtin_call(self, node: Node, name: str, scope: Scope, depth: int) -> Type:
        arguments = _arguments(node)
        if name == "type" and len(arguments) == 1:
            return self.type_of(arguments[0], scope, depth + 1)
        if self.names.has_star_import:
            return None
        return Foreign.SCALAR if name in SCALAR_BUILTINS else Foreign.OTHER if name in OTHER_BUILTINS else None

    def _has_only_foreign_arguments(self, node: Node, scope: Scope, depth: int) -> bool:
        values = [each.child_by_field_name("value") or each for each in _arguments(node)]
        return all(isinstance(self.type_of(each, scope, depth + 1), Foreign) for each in values)

    def _common(self, nodes: Iterable[Node | None], scope: Scope, depth: int) -> Type:
        found = {self.type_of(each, scope, depth + 1) for each in nodes}
        return found.pop() if len(found) == 1 else None

    # The types of annotations

    def _named_type(self, binding: Binding | None, name: str, scope: Scope) -> Type:
        if found := self.class_of(binding):
            return found
        if name == "Self":
            return self.enclosing_class(scope)
        if binding is None or name in UNKNOWN_TYPES:
            return None
        if binding.scope is None:
            return Foreign.SCALAR if name in SCALAR_BUILTINS else Foreign.OTHER if name in OTHER_BUILTINS else None
        return Foreign.OTHER if binding.is_only(BoundBy.IMPORT) else None

    def _quoted_type(self, node: Node, scope: Scope) -> Type:
        content = quoted_expression(node)
        found = self.names.by_start.get(content.start_byte) if content else None
        is_whole = content is not None and found is not None and found.end == content.end_byte
        return self._named_type(found.binding, found.binding.name, scope) if found and is_whole else None

    def _generic_type(self, node: Node, scope: Scope) -> Type:
        base, *arguments = node.named_children
        if node.type == "generic_type":
            arguments = [child for each in arguments for child in each.named_children]
        name = node_text(base).rpartition(".")[2]
        if name in WRAPPER_TYPES:
            return self.annotated_type(arguments[0], scope) if arguments else None
        return self.annotated_type(base, scope)

    def enclosing_class(self, scope: Scope | None) -> PythonClass | None:
        """The innermost class around a scope."""
        while scope is not None and scope.kind is not ScopeKind.CLASS:
            scope = scope.parent
        return self.classes.get(scope) if scope is not None else None

    def _super_class(self, node: Node, scope: Scope) -> PythonClass | None:
        """The class in which `super()` stands, for a call of `super`."""
        called = node.child_by_field_name("function") if node.type == "call" else None
        is_super = called is not None and node_text(called) == "super"
        return self.enclosing_class(scope) if is_super else None


def decorator_names(definition: Node) -> set[str]:
    """The last names of the decorators: {"setter"} for `@size.setter`, {"route"} for `@app.route("/")`."""
    outer = definition.parent
    if outer is None or outer.type != "decorated_definition":
        return set()
    found: set[str] = set()
    for decorator in outer.named_children:
        if decorator.type == "decorator" and decorator.named_children:
            expression = decorator.named_children[0]
            called = expression.child_by_field_name("function") if expression.type == "call" else expression
            found.add(node_text(called).rpartition(".")[2] if called else "")
    return found


def is_async(function: Node) -> bool:
    return bool(function.children) and function.children[0].type == "async"


def _arguments(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    if listed is None:
        return []
    return listed.named_children if listed.type == "argument_list" else [listed]


def _closure(start: PythonClass, neighbours: Callable[[PythonClass], list[PythonClass]]) -> list[PythonClass]:
    found = [start]
    for each in found:
        found += [other for other in neighbours(each) if other not in found]
    return found
