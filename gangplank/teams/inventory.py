"""A site's teams as Ansible's inventory has them: each host of the group `teams` is one, its variables are its values.

Ansible decides what a variable is: precedence, templates, vault, -e. Where it is not installed, plain files are read
here, and what only Ansible can read is refused by name.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, SpecError, Unreadable, shown
from gangplank.reading.files import read as read_file
from gangplank.reading.strict_yaml import documents
from gangplank.teams.parse import TeamsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

GROUP = "teams"  # of the inventory, and of its files in group_vars
PREFIX = "team_"
# Inputs of the role `team`, which are no values of a team
ROLE_INPUTS = frozenset(
    {"team_group", "team_kubeconfig", "team_network_trial", "team_remove", "team_remove_claims", "team_timeout_s"}
)
LINE = re.compile(r"\s*(team_\w+)\s*:")
OF_HOST = re.compile(r"^(\S+) \| SUCCESS => ", re.MULTILINE)  # before what `ansible` prints of a host
ASSIGNED = re.compile(r"\b(team_\w+)=")
ENDINGS = ("", ".yml", ".yaml", ".json")  # of files of variables, as Ansible looks for them
HOSTS_ENDINGS = (".yml", ".yaml", ".json")  # of files of hosts in YAML
# Files in a folder of hosts that Ansible does not read (its INVENTORY_IGNORE_EXTS, and hidden ones)
PASSED_OVER = re.compile(r"^\.|(\.(pyc|pyo|swp|bak|rpm|md|txt|rst|orig|cfg|retry)|~)$")
INSTALL = "install Ansible, which reads it (make setup), or write the value itself"
EXAMPLE = "name one like inventories/example"

Values = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Inventory:
    """The variables of each team, and the file in which each is written."""

    values: Mapping[str, Mapping[str, Any]]  # by team: those that begin with team_, without the role's inputs
    sources: tuple[Path, ...] = ()  # inventories: files or folders
    extra: frozenset[str] = frozenset()  # variables of the command line
    group: str = GROUP
    errors: tuple[SpecError, ...] = field(default=())  # of variables that cannot be rendered

    def home(self, team: str) -> str:
        """The file of a team; where it belongs if there is none."""
        files = self.host_files(team)
        return str(files[-1] if files else (self.folders or [Path()])[-1] / "host_vars" / f"{team}.yml")

    def places(self, team: str) -> dict[str, str]:
        """The file of each variable of a team: the last in Ansible's order of precedence."""
        shared, beside = self._read_once
        places = dict.fromkeys(self.values.get(team, ()), self.home(team)) | shared
        for file, names in beside.items():  # what stands beside the host's name is stronger than a group's files
            places |= dict.fromkeys(names.get(team, ()), file)
        for path in self.host_files(team):
            places |= dict.fromkeys(names_in(path), str(path))
        return places | dict.fromkeys(self.extra, "-e")

    @functools.cached_property
    def _read_once(self) -> tuple[dict[str, str], dict[str, dict[str, list[str]]]]:
        """The file of each variable of a group; and for each file of hosts, the variables beside each host.

        Those files grow with the teams, so they are not read again for each team.
        """
        hosts = self.hosts_files
        shared = {name: str(path) for path in (*hosts, *self.group_files) for name in names_in(path)}
        return shared, {str(path): beside_hosts(path) for path in hosts}

    @property
    def hosts_files(self) -> list[Path]:
        """The files that list hosts."""
        places = [hosts_files(source) if source.is_dir() else [source] for source in self.sources]
        return [path for inside in places for path in inside if path.is_file()]

    @property
    def group_files(self) -> list[Path]:
        """The files with variables of the groups of all teams, the weakest first."""
        groups = ("all", self.group)
        return [path for name in groups for folder in self.folders for path in files_of(folder / "group_vars" / name)]

    def host_files(self, team: str) -> list[Path]:
        """The files with variables of a team alone, the weakest first."""
        return [path for folder in self.folders for path in files_of(folder / "host_vars" / team)]

    @property
    def folders(self) -> list[Path]:
        """The folders beside which group_vars and host_vars are."""
        return list(dict.fromkeys(path if path.is_dir() else path.parent for path in self.sources))


def is_value(name: str) -> bool:
    """Whether a variable is a value of a team."""
    return name.startswith(PREFIX) and name not in ROLE_INPUTS


def files_of(place: Path) -> list[Path]:
    """The files of variables of a host or a group: one with its name, or all in a folder of its name."""
    paths = [place.with_name(place.name + ending) for ending in ENDINGS]
    inside = [sorted(path.rglob("*")) if path.is_dir() else [path] for path in paths]
    return [
        path
        for group in inside
        for path in group
        if path.is_file() and path.suffix in ENDINGS and not path.name.startswith(".")
    ]


def hosts_files(folder: Path) -> list[Path]:
    """The files of hosts of an inventory that is a folder: all that Ansible does not pass over."""
    return [path for path in sorted(folder.iterdir()) if path.is_file() and not PASSED_OVER.search(path.name)]


def names_in(path: Path) -> list[str]:
    """The variables of teams that begin a line of a file, even of one that only Ansible can read."""
    return [match[1] for line in text_of(path).splitlines() if (match := LINE.match(line))]


def is_plain(path: Path) -> bool:
    """Whether a file of hosts is YAML: by its ending, or by its content if it has another."""
    problems: list[SpecError] = []
    plain_values(path, problems)
    return path.suffix in HOSTS_ENDINGS or not problems


def beside_hosts(path: Path) -> dict[str, list[str]]:
    """The variables of teams that a file of hosts, YAML or INI, sets for each host alone."""
    names: dict[str, list[str]] = {}
    if is_plain(path):
        tree = plain_values(path, [])
        groups = [group for name, inner in tree.items() for group in walk(name, inner)]
        for _, inner, _ in groups:
            for host, own in inside(inner, "hosts").items():
                names.setdefault(host, []).extend(map(str, own if isinstance(own, dict) else ()))
        return names
    for line in text_of(path).splitlines():
        for host in line.split()[:1]:
            names.setdefault(host, []).extend(ASSIGNED.findall(line))
    return names


def load_inventory(place: str) -> Inventory:
    """The teams of an inventory, a folder or a file of hosts: as Ansible reads it, where it is installed."""
    source = existing(place)
    refuse_earlier_layout([source])
    program = program_of_ansible("ansible-inventory")
    if program is None:
        return plain_inventory(place)
    listed = json.loads(ansible([program, "-i", place, "--list"], place))
    hostvars = listed.get("_meta", {}).get("hostvars", {})
    teams = list(dict.fromkeys(members(listed, GROUP)))
    values = {team: {key: item for key, item in hostvars.get(team, {}).items() if is_value(key)} for team in teams}
    if any(needs_ansible(item) for own in values.values() for item in own.values()):
        of_hosts = rendered(place, GROUP)
        values = {team: of_hosts[team] for team in teams}
    return Inventory(values, (source,))


def existing(place: str) -> Path:
    """The path of an inventory; Unreadable if there is none."""
    if not place or not Path(place).exists():
        got, expected = "no such file or folder", "a site's inventory, e.g. inventories/example"
        raise Unreadable(str(Problem(place or "inventory", got if place else "nothing", expected, EXAMPLE)))
    return Path(place)


def program_of_ansible(name: str) -> str | None:
    """A program of Ansible's: beside this Python, or on PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def ansible(command: Sequence[str], place: str) -> str:
    """What a program of Ansible's prints."""
    settings = {
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_STDOUT_CALLBACK": "minimal",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | settings, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        fix = f"look at: ansible-inventory -i {place} --list"
        raise Unreadable(str(Problem(place, f"an inventory that Ansible refuses ({reason})", "one that it reads", fix)))
    return done.stdout


def rendered(place: str, hosts: str, pattern: str = f"^{PREFIX}") -> Values:
    """The variables of some hosts with their templates rendered and their secrets decrypted, by one run for all."""
    program = program_of_ansible("ansible") or "ansible"
    names = f"query('varnames', '{pattern}')"
    shown_values = f"msg={{{{ dict({names} | zip(query('vars', *{names}))) }}}}"
    words = ["-m", "ansible.builtin.debug", "-a", shown_values, "-e", "ansible_connection=local"]
    text = ansible([program, hosts, "-i", place, *words], place)
    answers = {match[1]: json.JSONDecoder().raw_decode(text, match.end())[0]["msg"] for match in OF_HOST.finditer(text)}
    return {
        host: {key: item for key, item in values.items() if pattern != f"^{PREFIX}" or is_value(key)}
        for host, values in answers.items()
    }


def load_variables(place: str, names: Sequence[str]) -> dict[str, Any]:
    """Variables of all hosts of an inventory, those of these names that it has."""
    source = existing(place)
    if program_of_ansible("ansible"):
        return rendered(place, "localhost", f"^({'|'.join(names)})$")["localhost"]
    errors: list[SpecError] = []
    values: dict[str, Any] = {}
    for folder in Inventory({}, (source,)).folders:
        for path in files_of(folder / "group_vars/all"):
            own = {name: item for name, item in plain_values(path, errors).items() if name in names}
            unread = [name for name in own if needs_ansible(own[name])]
            problems = [Problem(name, f"a template ({shown(own[name])})", "a plain value", INSTALL) for name in unread]
            errors += [SpecError(problems, str(path))] if problems else []
            values |= own
    if errors:
        raise TeamsError(errors)
    return values


def members(listed: Mapping[str, Any], group: str) -> Iterator[str]:
    """The hosts of a group and of its children, as ansible-inventory lists them."""
    inner = listed.get(group, {})
    yield from inner.get("hosts", ())
    for child in inner.get("children", ()):
        yield from members(listed, child)


def needs_ansible(value: object) -> bool:
    """Whether a value holds a template or a secret.

    >>> needs_ansible([{"a": "{{ b }}"}]), needs_ansible({"a": "{b}"})
    (True, False)
    """
    if isinstance(value, Mapping):
        return "__ansible_vault" in value or any(map(needs_ansible, value.values()))
    if isinstance(value, list):
        return any(map(needs_ansible, value))
    return isinstance(value, str) and ("{{" in value or "{%" in value)


# The key of a file of earlier versions, with fields below it; below a group of an inventory there are other keys.
EARLIER = re.compile(
    r"^(team|site):(?!(?:\s|\{|#.*\n)*(hosts|children|vars):)[ \t]*(\{|(#.*)?\n([ \t]*(#.*)?\n)*[ \t]+[^\s#])",
    re.MULTILINE,
)


def refuse_earlier_layout(sources: Iterable[Path]) -> None:
    """Refuse a folder of team files as earlier versions read them, with the way to move them."""
    for source in sources:
        folder = source if source.is_dir() else source.parent
        for old in (folder, folder / "teams"):
            files = [path for path in sorted(old.glob("*.y*ml")) if EARLIER.search(text_of(path))]
            if files:
                fix = (
                    "list each team as a host of the group teams, move its file to host_vars/TEAM.yml and write team_ "
                    "before each key below team. The last section of docs/teams.md has the details"
                )
                got = f"files of teams as earlier versions read them ({', '.join(path.name for path in files)})"
                raise Unreadable(str(Problem(str(old), got, "teams that are hosts of the inventory", fix)))


def text_of(path: Path) -> str:
    """The text of a file; nothing if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def is_encrypted(text: str) -> bool:
    """Whether ansible-vault has encrypted a file or a value in it."""
    return text.startswith("$ANSIBLE_VAULT") or "!vault" in text


def strict_errors(inventory: Inventory) -> list[SpecError]:
    """Words of the teams' own files on which YAML's readers disagree, and keys that stand twice."""
    folders = [folder for folder in inventory.folders if inventory.values]
    files = [path for folder in folders for path in files_of(folder / "group_vars" / inventory.group)]
    files += [path for folder in folders for team in inventory.values for path in files_of(folder / "host_vars" / team)]
    errors = []
    for path in dict.fromkeys(files):
        text = read_file(str(path), fix="make it readable")
        if is_encrypted(text):
            continue
        try:
            documents(text, str(path), strict=True)
        except SpecError as error:
            errors.append(error)
    return errors


def plain_inventory(place: str) -> Inventory:
    """The teams of an inventory whose files hold plain values, read without Ansible."""
    source = Path(place)
    files = Inventory({}, (source,)).hosts_files
    errors: list[SpecError] = []
    for path in files:
        if not is_plain(path):
            problem = Problem("file", "hosts that only Ansible can read", "a YAML file of hosts", INSTALL)
            errors.append(SpecError([problem], str(path)))
    trees = [(path, tree) for path in filter(is_plain, files) for tree in [plain_values(path, errors)] if tree]
    for path, tree in [*trees]:
        # Ansible passes over other values, as those of a file that lists no hosts.
        shaped = {name: inner for name, inner in tree.items() if isinstance(inner, Mapping) or name in ("all", GROUP)}
        if problems := [problem for name, inner in shaped.items() for problem in misshapen(name, inner)]:
            errors.append(SpecError(problems, str(path)))
            trees.remove((path, tree))
    groups = [(path, *group) for path, tree in trees for name, inner in tree.items() for group in walk(name, inner)]
    teams = list(
        dict.fromkeys(
            host for _, name, inner, above in groups if GROUP in (*above, name) for host in inside(inner, "hosts")
        )
    )
    values: Values = {team: {} for team in teams}
    inventory = Inventory(values, (source,))
    shared: list[Mapping[str, Any]] = [inside(inner, "vars") for _, name, inner, _ in groups if name == "all"]
    shared += [inside(inner, "vars") for _, name, inner, _ in groups if name == GROUP]
    shared += [plain_values(path, errors) for path in inventory.group_files if teams]
    for team in teams:
        parts = [*shared, *(inside(inner, "hosts").get(team) or {} for _, _, inner, _ in groups)]
        parts += [plain_values(path, errors) for path in inventory.host_files(team)]
        values[team] = {str(key): item for part in parts for key, item in part.items() if is_value(str(key))}
        for path, name, inner, _ in groups:
            if team in inside(inner, "hosts") and name not in ("all", GROUP):
                got = f"a team in the group {name}"
                expected = f"a team in the group {GROUP} alone, where Ansible is not installed"
                errors.append(SpecError([Problem(team, got, expected, INSTALL)], str(path)))
        for name, item in values[team].items():
            if needs_ansible(item):
                problem = Problem(name, f"a template ({shown(item)})", "a plain value", INSTALL)
                errors.append(SpecError([problem], inventory.places(team)[name]))
    if errors:
        raise TeamsError(list({str(error): error for error in errors}.values()))
    return inventory


def plain_values(path: Path, errors: list[SpecError]) -> dict[str, Any]:
    """The mapping in a file; what hinders it is added to the errors."""
    text = read_file(str(path), fix="make it readable")
    if is_encrypted(text):
        problem = Problem("file", "values that ansible-vault has encrypted", "plain values", INSTALL)
        errors.append(SpecError([problem], str(path)))
        return {}
    try:
        (value,) = documents(text, str(path), strict=False) or [{}]
    except SpecError as error:
        errors.append(error)
        return {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        errors.append(SpecError([Problem("file", "no mapping", "YAML with a mapping", INSTALL)], str(path)))
        return {}
    return value


def inside(group: Mapping[str, Any], key: str) -> Mapping[Any, Any]:
    """The hosts, children or variables of a group in YAML; a word alone is one of them, as Ansible has it."""
    value = group.get(key)
    return {value: None} if isinstance(value, str) else value if isinstance(value, Mapping) else {}


def misshapen(name: object, group: object) -> Iterator[Problem]:
    """What Ansible could not read of a group of a YAML inventory, and of those below it."""
    if not isinstance(name, str):
        yield Problem(str(name), f"the name {shown(name)}", "a name that is text", "quote it")
    if not isinstance(group, Mapping | None):
        yield Problem(str(name), shown(group), "a group with hosts, children or vars", "indent them below its name")
    if not isinstance(group, Mapping):
        return
    for key in ("hosts", "children", "vars"):
        if not isinstance(group.get(key), Mapping | str | None):
            fix = "write a line for each, the name followed by a colon"
            yield Problem(f"{name}.{key}", shown(group[key]), "a mapping", fix)
    for host, own in inside(group, "hosts").items():
        if not isinstance(host, str):
            yield Problem(f"{name}.hosts", f"the name {shown(host)}", "a name that is text", "quote it")
        if own and not isinstance(own, Mapping):
            yield Problem(f"{name}.hosts.{host}", shown(own), "variables of the host, or nothing")
    for child, content in inside(group, "children").items():
        yield from misshapen(child, content)


Group = tuple[str, dict[str, Any], tuple[str, ...]]


def walk(name: str, group: object, above: tuple[str, ...] = ()) -> Iterator[Group]:
    """A group of a YAML inventory and all groups below it: name, content and the names above it."""
    inner = group if isinstance(group, dict) else {}
    yield name, inner, above
    for child, content in inside(inner, "children").items():
        yield from walk(child, content, (*above, name))
