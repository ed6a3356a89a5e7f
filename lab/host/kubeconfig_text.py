"""The text of a kubeconfig: only the lines change in which its content does. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Collection

LISTS = ("clusters", "users", "contexts")


def edit(text: str, content: dict[str, Any], after: dict[str, Any]) -> str:
    """The text with only the lines changed in which `after` differs from its `content`."""
    for part in LISTS:
        old, new = content.get(part) or [], after.get(part) or []
        for position in reversed([number for number, entry in enumerate(old) if entry not in new]):
            text = _without_item(text, part, position)
        for entry in [entry for entry in new if entry not in old]:
            text = _with_item(text, part, entry)
    context = after.get("current-context") or ""
    if context != (content.get("current-context") or ""):
        text = _with_context(text, context)
    for key in [key for key in content if key not in after]:
        text = _without_key(text, key)
    return text


def keys(text: str) -> list[str]:
    """The keys of a text that is YAML."""
    node = yaml.compose(text, yaml.BaseLoader) if text.strip() else None
    return [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []


def _root(text: str) -> yaml.MappingNode:
    node = yaml.compose(text, yaml.BaseLoader)
    if not isinstance(node, yaml.MappingNode):
        raise yaml.YAMLError("not a mapping")
    return node


def _line_end(text: str, node: yaml.Node) -> int:
    """Where the line after the node's last character begins; comments below the node are not its own."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    end: int = node.end_mark.index
    if end and text[end - 1] == "\n":
        return end
    newline = text.find("\n", end)
    return len(text) if newline < 0 else newline + 1


def _without_item(text: str, part: str, position: int) -> str:
    node, colon = _place(text, part)
    items = node.value
    start, end = items[position].start_mark.index, items[position].end_mark.index
    if node.flow_style:
        if position:
            start = items[position - 1].end_mark.index
        elif len(items) > 1:
            end = items[1].start_mark.index
        return text[:start] + text[end:]
    start = text.rindex("\n", 0, text.rindex("-", 0, start + 1)) + 1
    shorter = text[:start] + text[_line_end(text, items[position]) :]
    return shorter if len(items) > 1 else f"{shorter[:colon]} []{shorter[colon:]}"


def _without_key(text: str, key: str) -> str:
    for name, value in _root(text).value:
        if name.value == key:
            return text[: name.start_mark.index] + text[_line_end(text, value) :]
    return text


def _with_item(text: str, part: str, entry: dict[str, Any]) -> str:
    root = _root(text)
    node, colon = _place(text, part)
    listed = isinstance(node, yaml.SequenceNode) and bool(node.value)
    if root.flow_style or (listed and node.flow_style):
        return _with_json(text, root, part, node, entry)
    indent = " " * node.start_mark.column if listed else ""
    lines = yaml.safe_dump([entry], sort_keys=False, width=10**6).splitlines()
    block = "".join(f"{indent}{line}\n" for line in lines)
    if node is None:
        return f"{ended(text)}{part}:\n{block}"
    if listed:
        end = _line_end(text, node)
        return ended(text[:end]) + block + text[end:]
    end = max(node.end_mark.index, colon) if node.start_mark.index != node.end_mark.index else colon
    newline = text.find("\n", end)
    newline = len(text) if newline < 0 else newline
    return f"{text[:colon]}{text[end:newline]}\n{block}{text[newline + 1 :]}"


def _with_json(text: str, root: yaml.MappingNode, part: str, node: yaml.Node | None, entry: dict[str, Any]) -> str:
    line = json.dumps(entry)
    if node is None:
        end = root.end_mark.index - 1
        return f'{text[:end]}{", " if root.value else ""}{json.dumps(part)}: [{line}]{text[end:]}'
    if node.value and isinstance(node, yaml.SequenceNode):
        end = node.value[-1].end_mark.index
        return f"{text[:end]}, {line}{text[end:]}"
    return f"{text[: node.start_mark.index]}[{line}]{text[node.end_mark.index :]}"


def _with_context(text: str, name: str) -> str:
    root = _root(text)
    node, colon = _place(text, "current-context")
    plain = yaml.safe_dump(name, width=10**6).partition("\n")[0] == name  # else it would be read as a number, say
    value = name if plain and not root.flow_style else json.dumps(name)
    if node is not None:
        start, end = (node.start_mark.index, node.end_mark.index) if node.end_mark.index > colon else (colon, colon)
        blank = " " if start == colon else ""
        return f"{text[:start]}{blank}{value}{text[end:]}"
    if root.flow_style:
        end = root.end_mark.index - 1
        return f'{text[:end]}{", " if root.value else ""}"current-context": {value}{text[end:]}'
    return f"{ended(text)}current-context: {value}\n"


def _place(text: str, name: str) -> tuple[Any, int]:
    """The node of a key's value, or None, and the place right after the key's colon."""
    for key, value in _root(text).value:
        if key.value == name:
            return value, text.index(":", key.end_mark.index) + 1
    return None, 0


def ended(text: str) -> str:
    """A text with an end of its last line."""
    return text if not text or text.endswith("\n") else text + "\n"


def less(text: str, after: dict[str, Any], added: Collection[str]) -> dict[str, Any]:
    """A content without the keys that were added and are empty now; one line of JSON, or one with a comment, stays."""
    root = _root(text)
    if root.flow_style:
        return after
    lines = {key.value: text[key.start_mark.index :].partition("\n")[0] for key, _ in root.value}
    ours = {key for key in added if "#" not in lines.get(key, "")}
    left = {key: value for key, value in after.items() if key not in ours or value}
    return left if left.keys() - ({"apiVersion", "kind"} & ours) else {}
