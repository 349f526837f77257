"""Where the languages other than Python bind names, as data: what declares a name, and in which part of a text.

Each rule names nodes of the language's tree-sitter grammar. What the rules do not know is refused by the code that uses
them (`identifier_rename.py`), so a gap in a table costs a renaming and never makes a wrong one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specchat.edit.refactoring.operations import NameKind

Context = tuple[str, str]  # the type of the node around a name, and the field in which the name stands; "" for none
ANY_FIELD = "*"


@dataclass(frozen=True)
class Declares:
    """What a node declares. `is_outer`: the name counts around the node, as that of a function does."""

    kind: NameKind
    is_outer: bool = False


@dataclass(frozen=True)
class LanguageRules:
    """`wrappers` stand between a name and its declaration; `foreign` names are no variables, `refused` ones may be.

    `shorthands` are nodes that are a key and a name at once: `{x}` becomes `{x: y}`. `ordered`: a local name counts
    from its declaration on, and not in all of its scope.
    """

    name_types: frozenset[str]
    scopes: frozenset[str]
    declarations: Mapping[Context, Declares]
    wrappers: frozenset[Context] = frozenset()
    foreign: frozenset[Context] = frozenset()
    refused: frozenset[Context] = frozenset()
    shorthands: frozenset[str] = frozenset()
    function_scopes: frozenset[str] = frozenset()  # in which `var` counts
    member_scopes: frozenset[str] = frozenset()  # what these declare is an attribute of something
    repeatable: frozenset[NameKind] = frozenset()  # what may be declared several times in one scope
    renamed_kinds: frozenset[NameKind] = field(default_factory=lambda: frozenset(NameKind))
    unsafe_text: str = ""  # a regular expression for texts in which no name is certain
    ordered: bool = False


VARIABLE, PARAMETER = Declares(NameKind.VARIABLE), Declares(NameKind.PARAMETER)
FUNCTION, CLASS = Declares(NameKind.FUNCTION, is_outer=True), Declares(NameKind.CLASS, is_outer=True)
TYPE, CONSTANT = Declares(NameKind.TYPE, is_outer=True), Declares(NameKind.CONSTANT, is_outer=True)
IMPORT = Declares(NameKind.IMPORT)
LOCALS = frozenset((NameKind.VARIABLE, NameKind.PARAMETER))

JAVASCRIPT_FUNCTIONS = frozenset(
    ("program", "function_declaration", "function_expression", "arrow_function", "method_definition",
     "generator_function", "generator_function_declaration", "class_static_block")
)  # fmt: skip
JAVASCRIPT = LanguageRules(
    name_types=frozenset(("identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern")),
    scopes=JAVASCRIPT_FUNCTIONS
    | {"statement_block", "for_statement", "for_in_statement", "catch_clause", "switch_body", "class"},
    function_scopes=JAVASCRIPT_FUNCTIONS,
    declarations={
        ("variable_declarator", "name"): VARIABLE,
        ("function_declaration", "name"): FUNCTION,
        ("generator_function_declaration", "name"): FUNCTION,
        ("function_expression", "name"): Declares(NameKind.FUNCTION),
        ("class_declaration", "name"): CLASS,
        ("class", "name"): Declares(NameKind.CLASS),
        ("formal_parameters", ""): PARAMETER,
        ("arrow_function", "parameter"): PARAMETER,
        ("catch_clause", "parameter"): VARIABLE,
        ("for_in_statement", "left"): VARIABLE,
        ("import_clause", ""): IMPORT,
        ("namespace_import", ""): IMPORT,
        ("import_specifier", "alias"): IMPORT,
    },
    wrappers=frozenset(
        (("object_pattern", ""), ("pair_pattern", "value"), ("array_pattern", ""), ("rest_pattern", ""),
         ("assignment_pattern", "left"), ("object_assignment_pattern", "left"))
    ),
    refused=frozenset((("import_specifier", "name"), ("export_specifier", "alias"))),
    shorthands=frozenset(("shorthand_property_identifier", "shorthand_property_identifier_pattern")),
    unsafe_text=r"\beval\s*\(|\bwith\s*\(|\bnew\s+Function\b",
)  # fmt: skip
TYPESCRIPT = replace(
    JAVASCRIPT,
    name_types=JAVASCRIPT.name_types | {"type_identifier"},
    scopes=JAVASCRIPT.scopes
    | {"function_type", "constructor_type", "call_signature", "construct_signature", "method_signature",
       "abstract_method_signature", "function_signature"},
    declarations={
        **JAVASCRIPT.declarations,
        ("required_parameter", "pattern"): PARAMETER,
        ("optional_parameter", "pattern"): PARAMETER,
        ("abstract_class_declaration", "name"): CLASS,
        ("interface_declaration", "name"): TYPE,
        ("type_alias_declaration", "name"): TYPE,
        ("enum_declaration", "name"): TYPE,
    },
    refused=JAVASCRIPT.refused
    | {("function_signature", "name"), ("index_signature", "name"), ("type_parameter", "name"), ("module", "name"),
       ("internal_module", "name"), ("infer_type", ""), ("mapped_type_clause", "name")},
    unsafe_text=JAVASCRIPT.unsafe_text
    + r"|\b(?:namespace|declare)\s+\w|(?:private|public|protected|readonly)\s+\w+\s*[?:,=)]",
)  # fmt: skip
C = LanguageRules(
    name_types=frozenset(("identifier",)),
    scopes=frozenset(
        ("translation_unit", "function_definition", "compound_statement", "for_statement", "parameter_list")
    ),
    declarations={
        ("declaration", "declarator"): VARIABLE,
        ("parameter_declaration", "declarator"): PARAMETER,
        ("function_definition", "declarator"): FUNCTION,
        ("enumerator", "name"): Declares(NameKind.CONSTANT),
        ("preproc_def", "name"): CONSTANT,
        ("preproc_function_def", "name"): CONSTANT,
    },
    wrappers=frozenset(
        (("pointer_declarator", "declarator"), ("array_declarator", "declarator"), ("init_declarator", "declarator"),
         ("function_declarator", "declarator"), ("parenthesized_declarator", ""), ("attributed_declarator", ""))
    ),
    refused=frozenset((("preproc_params", ""), ("attribute", "name"), ("macro_type_specifier", "name"))),
    repeatable=frozenset((NameKind.FUNCTION,)),
    ordered=True,
)  # fmt: skip
CPP = replace(
    C,
    scopes=C.scopes | {"lambda_expression", "for_range_loop", "catch_clause", "class_specifier", "if_statement"},
    declarations={
        **C.declarations,
        ("optional_parameter_declaration", "declarator"): PARAMETER,
        ("for_range_loop", "declarator"): VARIABLE,
    },
    wrappers=C.wrappers | {("reference_declarator", "")},
    refused=C.refused
    | {("qualified_identifier", "name"), ("qualified_identifier", "scope"), ("template_function", "name"),
       ("structured_binding_declarator", ""), ("lambda_capture_initializer", ""), ("variadic_declarator", ""),
       ("field_initializer", ""), ("using_declaration", "")},
    renamed_kinds=LOCALS,
)  # fmt: skip
GO = LanguageRules(
    name_types=frozenset(("identifier", "type_identifier")),
    scopes=frozenset(
        ("source_file", "function_declaration", "method_declaration", "func_literal", "block", "if_statement",
         "for_statement", "expression_switch_statement", "type_switch_statement", "select_statement",
         "communication_case", "expression_case", "type_case", "default_case", "function_type", "method_elem")
    ),
    declarations={
        ("short_var_declaration", "left"): VARIABLE,
        ("range_clause", "left"): VARIABLE,
        ("receive_statement", "left"): VARIABLE,
        ("type_switch_statement", "alias"): VARIABLE,
        ("var_spec", "name"): VARIABLE,
        ("const_spec", "name"): Declares(NameKind.CONSTANT),
        ("parameter_declaration", "name"): PARAMETER,
        ("variadic_parameter_declaration", "name"): PARAMETER,
        ("function_declaration", "name"): FUNCTION,
        ("type_spec", "name"): TYPE,
        ("type_alias", "name"): TYPE,
    },
    wrappers=frozenset((("expression_list", ""),)),
    foreign=frozenset((("qualified_type", "name"),)),
    refused=frozenset((("literal_element", ""), ("field_declaration", "type"), ("type_parameter_declaration", "name"))),
    member_scopes=frozenset(("source_file",)),  # a package is several files, which need no imports
    repeatable=frozenset((NameKind.VARIABLE,)),  # `x, err := …` assigns to an err that is there
    ordered=True,
)  # fmt: skip
RUST = LanguageRules(
    name_types=frozenset(("identifier", "type_identifier", "shorthand_field_identifier")),
    scopes=frozenset(
        ("source_file", "function_item", "function_signature_item", "closure_expression", "block", "match_arm",
         "for_expression", "if_expression", "while_expression", "impl_item", "trait_item", "mod_item")
    ),
    declarations={
        ("let_declaration", "pattern"): VARIABLE,
        ("let_condition", "pattern"): VARIABLE,
        ("for_expression", "pattern"): VARIABLE,
        ("match_arm", "pattern"): VARIABLE,
        ("parameter", "pattern"): PARAMETER,
        ("closure_parameters", ""): PARAMETER,
        ("function_item", "name"): FUNCTION,
        ("const_item", "name"): CONSTANT,
        ("static_item", "name"): CONSTANT,
        ("struct_item", "name"): TYPE,
        ("enum_item", "name"): TYPE,
        ("type_item", "name"): TYPE,
    },
    wrappers=frozenset(
        (("tuple_pattern", ""), ("reference_pattern", ""), ("ref_pattern", ""), ("mut_pattern", ""),
         ("tuple_struct_pattern", ""), ("struct_pattern", ""), ("field_pattern", "pattern"), ("field_pattern", "name"),
         ("slice_pattern", ""), ("match_pattern", ""))
    ),
    foreign=frozenset((("macro_invocation", "macro"),)),
    refused=frozenset(
        (("scoped_identifier", "name"), ("scoped_type_identifier", "name"), ("use_declaration", ANY_FIELD),
         ("use_list", ANY_FIELD), ("use_as_clause", ANY_FIELD), ("scoped_use_list", ANY_FIELD),
         ("use_wildcard", ANY_FIELD), ("captured_pattern", ""), ("or_pattern", ""), ("macro_rule", ANY_FIELD),
         ("type_parameter", "name"), ("attribute", ANY_FIELD), ("function_signature_item", "name"))
    ),
    shorthands=frozenset(("shorthand_field_identifier",)),
    member_scopes=frozenset(("impl_item", "trait_item")),
    unsafe_text=r"\b(?:stringify|concat_idents|paste)!",
    ordered=True,
)  # fmt: skip
JAVA = LanguageRules(
    name_types=frozenset(("identifier",)),
    scopes=frozenset(
        ("program", "class_body", "interface_body", "enum_body", "annotation_type_body", "record_declaration",
         "method_declaration", "constructor_declaration", "block", "constructor_body", "for_statement",
         "enhanced_for_statement", "catch_clause", "try_with_resources_statement", "lambda_expression",
         "switch_block_statement_group", "switch_rule", "static_initializer", "compact_constructor_declaration")
    ),
    declarations={
        ("variable_declarator", "name"): VARIABLE,
        ("formal_parameter", "name"): PARAMETER,
        ("catch_formal_parameter", "name"): VARIABLE,
        ("enhanced_for_statement", "name"): VARIABLE,
        ("resource", "name"): VARIABLE,
        ("inferred_parameters", ""): PARAMETER,
        ("lambda_expression", "parameters"): PARAMETER,
    },
    foreign=frozenset(
        (("method_invocation", "name"), ("field_access", "field"), ("method_declaration", "name"),
         ("class_declaration", "name"), ("interface_declaration", "name"), ("enum_declaration", "name"),
         ("constructor_declaration", "name"), ("labeled_statement", ""), ("break_statement", ""),
         ("continue_statement", ""), ("element_value_pair", "key"), ("annotation", "name"),
         ("marker_annotation", "name"), ("scoped_identifier", ANY_FIELD), ("package_declaration", ""),
         ("import_declaration", ""), ("enum_constant", "name"))
    ),
    refused=frozenset(
        (("instanceof_expression", "name"), ("record_pattern_component", ANY_FIELD), ("type_pattern", ANY_FIELD),
         ("switch_label", ANY_FIELD), ("record_declaration", ANY_FIELD), ("method_reference", ""))
    ),
    renamed_kinds=LOCALS,
    member_scopes=frozenset(
        ("class_body", "interface_body", "enum_body", "enum_body_declarations", "annotation_type_body",
         "record_declaration")
    ),
    ordered=True,
)  # fmt: skip
RULES: Mapping[str, LanguageRules] = {
    "javascript": JAVASCRIPT, "typescript": TYPESCRIPT, "tsx": TYPESCRIPT, "c": C, "cpp": CPP, "go": GO, "rust": RUST,
    "java": JAVA,
}  # fmt: skip
