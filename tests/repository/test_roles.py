"""Every role states its inputs twice, alike; its README has them; its tasks read like a table of contents."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from gangplank.backends.pod_template import LOST_NODE, LOST_NODE_S
from gangplank.k8s.nodes import UNREACHABLE
from gangplank.site import gpu_devices
from gangplank.teams.inventory import ROLE_INPUTS
from tools import write_role_readmes as readme

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROLES = readme.roles()
LAB_CLUSTER = ROOT / "roles/lab_cluster/vars/main.yml"
LEAVE_S = {UNREACHABLE: 10}  # that programs may stay on a node that Kubernetes has just taken for lost
each_role = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
BLOCKS = ("block", "rescue", "always")
INCLUDE = "ansible.builtin.include_role"
# A step, then what is done, as an order: "Install | Ensure the CRDs exist".
TITLE = re.compile(r"[A-Z][A-Za-z]+ \| (?P<verb>[A-Z][a-z]+) [^ ].*")
NO_ORDER = re.compile(r"(?!(?:Pass|Process|Press|Address|Bring|Need|Feed|Focus)$).*(?:ing|ed|s)")


def mapping(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def tasks(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in entries:
        yield task
        for block in BLOCKS:
            yield from tasks(task.get(block) or [])


def all_tasks(role: Path) -> list[dict[str, Any]]:
    files = sorted([*role.glob("tasks/**/*.yml"), *role.glob("handlers/*.yml")])
    return [task for file in files for task in tasks(yaml.safe_load(file.read_text()) or [])]


def written(role: Path) -> str:
    """All that a role does with its inputs."""
    kept = ("tasks", "handlers", "vars", "templates")
    files = [path for path in role.rglob("*") if path.is_file() and path.relative_to(role).parts[0] in kept]
    return "\n".join(path.read_text() for path in files)


def untyped(option: dict[str, Any], path: str) -> Iterator[str]:
    """Yield what lacks a type, a description, or the form of its elements."""
    if not {"type", "description"} <= option.keys() or "default" in option:
        yield path
    if option.get("type") == "list" and "elements" not in option:
        yield f"{path}[]"
    if option.get("elements") == "dict" and not option.get("options"):
        yield f"{path}[]"
    for name, inner in option.get("options", {}).items():
        yield from untyped(inner, f"{path}.{name}")


def test_there_are_roles() -> None:
    assert {"lab_parts", "lab_cluster", "volcano", "storage", "training_job"} <= {role.name for role in ROLES}


@each_role
def test_every_default_is_in_the_spec(role: Path) -> None:
    assert readme.defaults(role).keys() - readme.options(role).keys() == set()


@each_role
def test_every_option_has_a_default_or_is_required(role: Path) -> None:
    required = {name for name, option in readme.options(role).items() if option.get("required")}
    assert readme.options(role).keys() - readme.defaults(role).keys() == required


@each_role
def test_every_option_has_a_type_and_a_description_and_leaves_defaults_to_the_defaults(role: Path) -> None:
    assert [gap for name, option in readme.options(role).items() for gap in untyped(option, name)] == []


@each_role
def test_the_defaults_satisfy_the_spec(role: Path) -> None:
    plain = {name: value for name, value in readme.defaults(role).items() if "{{" not in str(value)}
    spec = {name: readme.options(role)[name] for name in plain}
    keys = ("type", "elements", "choices", "required", "options")
    spec = {name: {key: option[key] for key in keys if key in option} for name, option in spec.items()}
    assert ArgumentSpecValidator(spec).validate(plain).error_messages == []


@each_role
def test_every_input_has_a_comment_above_it(role: Path) -> None:
    lines = (role / "defaults/main.yml").read_text().splitlines()
    bare = []
    for number, line in enumerate(lines):
        name = re.match(r"(\w+):", line)
        above = next((before for before in reversed(lines[:number]) if not re.match(r"\w+:", before)), "")
        if name and not above.startswith("#"):
            bare.append(name.group(1))
    assert bare == []


@each_role
def test_every_input_has_the_prefix_of_its_role(role: Path) -> None:
    strange = [name for name in readme.options(role) if name != role.name and not name.startswith(f"{role.name}_")]
    assert strange == []


@each_role
def test_every_input_is_used(role: Path) -> None:
    text = written(role)
    assert [name for name in readme.options(role) if not re.search(rf"(?<!\w){name}(?!\w)", text)] == []


@each_role
def test_no_input_is_set_by_the_role_itself(role: Path) -> None:
    inputs = set(readme.options(role))
    facts = {name for task in all_tasks(role) for name in task.get("ansible.builtin.set_fact") or {}}
    assert (facts | mapping(role / "vars/main.yml").keys()) & inputs == set()


@each_role
def test_internals_start_with_two_underscores_and_the_role(role: Path) -> None:
    role_tasks = all_tasks(role)
    names = set(mapping(role / "vars/main.yml")) | {task["register"] for task in role_tasks if "register" in task}
    names |= {name for task in role_tasks if INCLUDE not in task for name in task.get("vars") or {}}
    names |= {name for task in role_tasks for name in task.get("ansible.builtin.set_fact") or {}}
    # What a role exports has its prefix, and is named in the description of its spec.
    description = str(mapping(role / "meta/argument_specs.yml")["argument_specs"]["main"])
    documented = set(re.findall(r"C\((\w+)\)", description))
    internal = (f"__{role.name}_", f"__{role.name}")
    assert {name for name in names - documented if not (name.startswith(internal[0]) or name == internal[1])} == set()
    assert {name for name in names & documented if not name.startswith(f"{role.name}_")} == set()


@each_role
def test_another_role_is_given_its_own_inputs(role: Path) -> None:
    inputs = {other.name: set(readme.options(other)) for other in ROLES}
    calls = [(task[INCLUDE]["name"], set(task.get("vars") or {})) for task in all_tasks(role) if INCLUDE in task]
    assert [(name, arguments - inputs[name]) for name, arguments in calls if arguments - inputs[name]] == []


@each_role
def test_no_role_reads_the_internals_of_another(role: Path) -> None:
    others = sorted((other.name for other in ROLES if other != role), key=len, reverse=True)
    mine = re.compile(rf"__{role.name}\w*")
    names = {name for name in re.findall(r"(?<!\w)__[a-z]\w*", written(role)) if not mine.fullmatch(name)}
    assert {name for name in names if name.startswith(tuple(f"__{other}" for other in others))} == set()


@each_role
def test_every_task_names_its_step_and_gives_an_order(role: Path) -> None:
    bad = []
    for task in all_tasks(role):
        title = TITLE.fullmatch(task.get("name", ""))
        if not title or NO_ORDER.fullmatch(title["verb"]):
            bad.append(task.get("name") or str(task)[:80])
    assert bad == []


@each_role
def test_flags_and_numbers_of_the_command_line_are_converted(role: Path) -> None:
    """`-e x=true` and `-e n=3` arrive as text: "false" is true, and "3" + 1 an error."""
    text = re.sub(r"#.*", "", written(role))
    bare = []
    for name, option in readme.options(role).items():
        # Neither a module of the same name nor advice to a reader ("-e name=true") is a use.
        uses = re.findall(rf"(?<!\w)(?<!-e ){name}\b(?!:)([^\n]*)", text)
        if option["type"] == "bool":
            bare += [f"{name}{after}" for after in uses if not re.match(r"\s*\|\s*bool", after)]
        if option["type"] in ("int", "float"):
            arithmetic = re.compile(r"\s*(//|[-+*/%<>]|==|!=)")
            bare += [f"{name}{after}" for after in uses if arithmetic.match(after)]
    assert bare == []


@each_role
def test_the_readme_has_the_inputs_as_they_are(role: Path) -> None:
    assert not readme.stale(role), "python tools/write_role_readmes.py --write"


@each_role
def test_the_role_says_what_it_is(role: Path) -> None:
    meta = mapping(role / "meta/main.yml")
    assert meta["dependencies"] == []
    assert {"author", "description", "license", "min_ansible_version"} <= meta["galaxy_info"].keys()


@each_role
def test_the_first_task_refuses_a_variable_that_the_role_does_not_know(role: Path) -> None:
    # The plan of teams judges the variables of all of them together, the unknown ones too.
    action = "team_plan" if role.name == "team" else "role_inputs"
    assert f"gangplank.gangplank.{action}" in yaml.safe_load((role / "tasks/main.yml").read_text())[0]


def test_what_the_teams_know_as_inputs_of_their_role_are_its_inputs() -> None:
    (role,) = (role for role in ROLES if role.name == "team")
    assert readme.options(role).keys() == ROLE_INPUTS


def test_the_namespace_of_storage_admits_pods_that_mount_a_folder_of_the_node() -> None:
    installs = {"name": "helm_release"}
    calls = [task["vars"] for task in all_tasks(ROOT / "roles/storage") if task.get(INCLUDE) == installs]
    labels = {str(call.get("helm_release_namespace_labels")) for call in calls}
    assert labels == {"{'pod-security.kubernetes.io/enforce': 'privileged'}"}


# A driver's pods need no RuntimeClass and load no library, and its chart has no value that leaves out its DaemonSet.
# A node that is not ready has its cause outside of the roles: unit tests give it as the API server shows it.
@pytest.mark.parametrize(
    ("scenarios", "others"),
    [
        (("gpu", "nvml"), {"no devices", "node not ready"}),
        (("dra",), {"no plugin", "wrong runtime class", "no driver", "GPU lost", "allocatable 0", "node not ready"}),
    ],
)
def test_each_cause_that_a_gpu_role_can_name_is_made_to_happen(scenarios: tuple[str, ...], others: set[str]) -> None:
    functions = [
        node for node in ast.parse(Path(gpu_devices.__file__).read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    returned = [
        node.value.elts[0]
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 3
    ]
    causes = {element.value for element in returned if isinstance(element, ast.Constant)}
    assert len(causes) >= 10
    texts = [path.read_text() for name in scenarios for path in (ROOT / "molecule" / name).rglob("*.yml")]
    happen = {match for text in texts for match in re.findall(r"\bname: ([^,{}\n]+)", text)}
    assert causes - others <= happen
    assert not others & happen


def test_the_job_of_a_device_plugin_is_that_of_claims() -> None:
    """It says `gpus: 2` either way: only its name, namespace and image differ between scenarios."""
    own = {name: mapping(ROOT / f"molecule/{name}/vars/main.yml") for name in ("gpu", "nvml", "dra")}

    def same(job: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in job.items() if key not in ("name", "namespace", "image")}

    assert same(own["nvml"]["nvml_job"]) == same(own["dra"]["dra_job"])
    assert same(own["gpu"]["gpu_job"]) == same(own["dra"]["dra_training"])
    assert own["dra"]["dra_job"]["resources"]["gpus"] == 2


@pytest.mark.parametrize(("role", "variable", "program"), [
    ("volcano", "__volcano_own_values", "custom.default_tolerations"),
    ("training_operator", "__training_operator_values", "tolerations"),
    ("trainer_v2", "__trainer_v2_own_values", "manager.tolerations"),
    ("trainer_v2", "__trainer_v2_own_values", "jobset.controller.tolerations"),
    ("storage", "__storage_lost_node", ""),
])  # fmt: skip
def test_programs_leave_a_lost_node_before_the_pods_of_jobs_do(role: str, variable: str, program: str) -> None:
    """Without Volcano's webhook, no pod of a gang is created; without DNS, no rank finds the master."""
    value = mapping(ROOT / f"roles/{role}/vars/main.yml")[variable]
    for name in filter(None, program.split(".")):
        value = value[name]
    assert value == [{**one, "tolerationSeconds": LEAVE_S.get(one["key"], LOST_NODE_S)} for one in LOST_NODE]
    (api_server,) = re.findall(r"--default-unreachable-toleration-seconds=(\d+)", LAB_CLUSTER.read_text())
    assert int(api_server) == LEAVE_S[UNREACHABLE], "other pods of the lab, such as CoreDNS"
