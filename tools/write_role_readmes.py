"""The input table of a role's README, from its argument_specs.yml and defaults: `--write` writes it.

Without `--write` it names what is stale, and exits with 1.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- inputs: python tools/write_role_readmes.py --write -->"
END = "<!-- end of inputs -->"


def roles() -> list[Path]:
    """Return the folders of all roles that have tasks."""
    return sorted(path.parents[1] for path in ROOT.glob("roles/*/tasks/main.yml"))


def options(role: Path) -> dict[str, dict[str, Any]]:
    """Return the inputs that the role's argument spec states."""
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text())
    return dict(spec["argument_specs"]["main"]["options"])


def defaults(role: Path) -> dict[str, Any]:
    """Return the role's defaults."""
    return dict(yaml.safe_load((role / "defaults/main.yml").read_text()) or {})


def prose(text: str) -> str:
    r"""Return a description of Ansible's as Markdown for a table's cell.

    >>> print(prose("Set C(x|y) or I(z)."))
    Set `x\|y` or *z*.
    """
    return re.sub(r"\bI\(([^)]*)\)", r"*\1*", re.sub(r"\bC\(([^)]*)\)", r"`\1`", text.strip())).replace("|", "\\|")


def kind(option: Mapping[str, Any]) -> str:
    """Return the type of an option, with its elements or choices."""
    if "choices" in option and option["type"] != "list":
        return " or ".join(f"`{choice}`" for choice in option["choices"])
    return f"list of {option['elements']}" if "elements" in option else str(option["type"])


def lines(options: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield a row per option; nested ones have no default of their own."""
    for name, option in options.items():
        default = "required" if option.get("required") else ""
        if name in values:
            default = f"`{json.dumps(values[name])}`".replace("|", "\\|")
        yield f"| `{prefix}{name}` | {kind(option)} | {default} | {prose(option['description'])} |"
        path = f"{prefix}{name}" + ("[]." if option["type"] == "list" else ".")
        yield from lines(option.get("options", {}), {}, path)


def table(role: Path) -> str:
    """Return the role's table, between its two marks."""
    head = ["| input | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([BEGIN, "", *head, *lines(options(role), defaults(role)), "", END])


def updated(role: Path) -> str:
    """Return the README with the table that it should have; raises ValueError where it has no place for it."""
    readme = role / "README.md"
    text = readme.read_text() if readme.exists() else f"# {role.name}\n\n## Inputs\n\n{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{readme.relative_to(ROOT)}: expected the lines {BEGIN} and {END} where the table belongs")
    return before + table(role) + after


def stale(role: Path) -> bool:
    """Say whether the README is missing or has another table."""
    readme = role / "README.md"
    return not readme.exists() or readme.read_text() != updated(role)


def main(arguments: list[str]) -> int:
    """Name the stale READMEs, or write them."""
    stale_roles = [role for role in roles() if stale(role)]
    for role in stale_roles:
        print(f"{'written' if '--write' in arguments else 'stale'}: roles/{role.name}/README.md")
        if "--write" in arguments:
            (role / "README.md").write_text(updated(role))
    return 1 if stale_roles and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
