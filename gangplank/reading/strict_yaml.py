"""Reads YAML as its author meant it: what YAML 1.1 would silently turn into something else is refused with its line.

Ansible, Helm and this library read the same job file, each with rules of its own for bare words such as no, 12:30 or
1_000. Refusing them is the one reading on which all agree.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from gangplank.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gangplank.reading.fields import Problems

TRUE_FALSE = ("true", "false")  # the two booleans that every YAML knows
LIMIT = 4 * 2**20  # bytes of a file; a job is never larger
DEPTH = 100  # nesting; more is an attack or an accident
NODES = 1_000_000  # values of a file, every alias written out

# What a bare word becomes: (pattern, what it is read as)
TRAPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[yY]|[nN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|True|TRUE|False|FALSE"), "a boolean"),
    (re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"), "a number in base 60"),
    (re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?"), "a number without its underscores"),
    (re.compile(r"[-+]?0[0-9_]+"), "an octal number"),
    (re.compile(r"[-+]?0[bxo][0-9a-fA-F_]+"), "a number of another base"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*"), "a date"),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), "a number that is not finite"),
)


MERGE = "tag:yaml.org,2002:merge"


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader that refuses duplicate keys, and makes text of dates and of =."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node; PyYAML checks no value against a tag that the text names, as in !!bool 3."""
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, TypeError) as error:
            what = f"a value that its tag {node.tag.rpartition(':')[2]} does not have"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from error


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":value"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def mapping(loader: Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    """A mapping whose own keys are all different; what `<<` merges into it gives way to them."""
    own = [pair for pair in node.value if pair[0].tag != MERGE]
    loader.flatten_mapping(node)  # puts what is merged first, and of that what counts last
    merged = {str(pair[0].value): pair for pair in node.value[: len(node.value) - len(own)]}
    names = {str(key.value) for key, _ in own}
    node.value = [*(pair for name, pair in merged.items() if name not in names), *own]
    pairs: dict[Hashable, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key is True and key_node.value == "on":
            key = "on"  # the name of a field, which is clear once it is text
        if not isinstance(key, str | int | float | bool | None):
            raise yaml.constructor.ConstructorError(None, None, "a key that is not a plain word", key_node.start_mark)
        if key in pairs:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} twice", key_node.start_mark)
        pairs[key] = loader.construct_object(value_node, deep=True)
    return pairs


def binary(_: Loader, node: yaml.Node) -> Any:
    """Bytes, which no field of a job or a team takes."""
    raise yaml.constructor.ConstructorError(None, None, "the tag !!binary", node.start_mark)


Loader.add_constructor("tag:yaml.org,2002:map", mapping)
Loader.add_constructor("tag:yaml.org,2002:binary", binary)


def documents(text: str, source: str, *, strict: bool) -> list[Any]:
    r"""All documents of a text; strict refuses the words on which YAML's readers disagree.

    >>> documents("a: 1\n---\nb: [x]", "f.yml", strict=True)
    [{'a': 1}, {'b': ['x']}]
    """
    if len(text) > LIMIT:
        raise SpecError([Problem("file", f"{len(text)} characters", f"at most {LIMIT}")], source)
    problems: Problems = []
    values = []
    try:
        loader = Loader(text)
        while loader.check_node():
            node = loader.get_node()
            _walk(node, problems, strict=strict)
            if not problems and _weight(node, {}) > NODES:
                problems.append(Problem("file", "aliases that stand for each other", f"at most {NODES} values"))
            if not problems:
                values.append(loader.construct_document(node))
    except yaml.MarkedYAMLError as error:
        problems.append(_problem_of(error))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        fix = "save it as UTF-8 text" if "unacceptable" in str(error) or "character" in str(error) else ""
        problems.append(Problem("file", str(error).splitlines()[0] or "what YAML cannot hold", "YAML", fix))
    if problems:
        raise SpecError(problems, source)
    return [item for item in values if item is not None]


def _problem_of(error: yaml.MarkedYAMLError) -> Problem:
    """PyYAML's error, with its line."""
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "file"
    what = error.problem or error.context or "something"
    if "twice" in what:
        return Problem(where, what, "each key once (a later value would silently win)", "remove one of them")
    if " tag " in what:
        return Problem(where, what, "YAML without tags", "remove the word that begins with !")
    if "\\t" in what:
        return Problem(where, what, "YAML, in which tabs do not indent", "indent with spaces")
    return Problem(where, f"text that is not YAML ({what})", "YAML", "look for a missing quote, bracket or colon")


def _walk(root: yaml.Node | None, problems: Problems, *, strict: bool) -> None:
    """Look at every scalar once; no recursion, so that no nesting can exhaust the stack."""
    stack = [(root, 0)] if root is not None else []
    visited: set[int] = set()
    while stack:
        node, depth = stack.pop()
        if id(node) in visited:
            if not isinstance(node, yaml.ScalarNode) and strict:
                expected = "each value written out (anchors hide what a job is)"
                problems.append(Problem(_line(node), "an alias", expected, "replace the alias with the value"))
                return
            continue
        visited.add(id(node))
        if depth > DEPTH or len(visited) > NODES:
            problems.append(Problem(_line(node), "too much nesting", f"at most {DEPTH} levels"))
            return
        if isinstance(node, yaml.MappingNode):
            for key, item in reversed(node.value):
                stack.append((item, depth + 1))
                if not isinstance(key, yaml.ScalarNode) or key.value != "on":
                    stack.append((key, depth + 1))
        elif isinstance(node, yaml.SequenceNode):
            stack += [(part, depth + 1) for part in reversed(node.value)]
        elif strict and isinstance(node, yaml.ScalarNode):
            _scalar(node, problems)


def _weight(node: yaml.Node | None, weights: dict[int, int]) -> int:
    """Values of a node with every alias written out; a node within itself weighs too much. Depth is checked before."""
    if node is None or isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in weights:
        weights[id(node)] = NODES + 1  # while it is being weighed: met again, it holds itself
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        weights[id(node)] = 1 + sum(_weight(part, weights) for part in parts)
    return weights[id(node)]


def _scalar(node: yaml.ScalarNode, problems: Problems) -> None:
    """Refuse a bare word that means different things to different readers."""
    if node.style is not None or node.value in TRUE_FALSE:
        return
    for pattern, kind in TRAPS:
        if pattern.fullmatch(node.value):
            fix = f'write "{node.value}" for the text, or the plain number or true or false that you mean'
            problems.append(
                Problem(_line(node), f"the bare word {node.value}", f"a word that YAML does not read as {kind}", fix)
            )
            return


def _line(node: yaml.Node) -> str:
    """Where a node begins."""
    return f"line {node.start_mark.line + 1}"
