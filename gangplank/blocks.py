"""Reads the blocks of a job that one back-end alone understands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank import names
from gangplank.spec import IndexedBlock, PyTorchJobBlock, TrainJobBlock, VolcanoBlock

if TYPE_CHECKING:
    from gangplank.fields import Fields

ROLES = ("master", "worker")
VOLCANO_PLUGINS = ("env", "pytorch", "ssh", "svc")
NOT_YET = ("tensorflow", "mpi", "ray", "hcclrank")  # other frameworks' plugins: they would be wired by nobody here


def read(fields: Fields) -> dict[str, Any]:
    """All blocks, by the name of their field in a JobSpec."""
    readers = {"volcano": volcano, "pytorchjob": pytorchjob, "trainjob": trainjob, "indexed": indexed}
    found = {}
    for name, reader in readers.items():
        inner = fields.inner(name)
        found[name] = reader(inner)
        inner.done()
    return found


def volcano(fields: Fields) -> VolcanoBlock:
    """Volcano's own fields."""
    plugins = fields.inner("plugins")
    arguments = {}
    for name in plugins.map:
        if name in NOT_YET:
            plugins.bad(name, plugins.map[name], "a plugin for PyTorch", f"{name} is not supported yet")
        elif name not in VOLCANO_PLUGINS:
            plugins.bad(name, plugins.map[name], f"one of {', '.join(VOLCANO_PLUGINS)}")
        else:
            arguments[name] = plugins.words(name)
    members = fields.inner("min_task_member")
    depends = fields.inner("depends_on")
    block = VolcanoBlock(
        plugins=arguments,
        policies=fields.mappings("policies") if fields.map.get("policies") is not None else None,
        depends_on={role: depends.words(role) for role in ROLES if depends.map.get(role) is not None},
        min_task_member={role: members.integer(role, 0) for role in ROLES if members.map.get(role) is not None},
        network_topology=topology(fields.inner("network_topology")),
        volumes=fields.mappings("volumes"),
        restart_policy=fields.choice("restart_policy", "OnFailure", ("OnFailure", "Never")),
    )
    fields.raw("policies")
    for inner in (members, depends):
        inner.known.extend(ROLES)
        inner.done()
    return block


def topology(fields: Fields) -> dict[str, Any] | None:
    """Where Volcano may place the gang: within how many tiers of the network."""
    if not fields.map:
        return None
    found: dict[str, Any] = {"mode": fields.choice("mode", "hard", ("hard", "soft"))}
    tier, name = fields.maybe("highest_tier_allowed", 0), fields.text("highest_tier_name")
    if tier is not None and name:
        fields.bad("highest_tier_name", name, "one of highest_tier_allowed and highest_tier_name")
    if tier is not None:
        found["highestTierAllowed"] = tier
    if name:
        found["highestTierName"] = name
    fields.done()
    return found


def pytorchjob(fields: Fields) -> PyTorchJobBlock:
    """The training operator's own fields."""
    return PyTorchJobBlock(
        restart_policy=fields.choice("restart_policy", "OnFailure", ("OnFailure", "Never", "Always", "ExitCode")),
        clean_pod_policy=fields.choice("clean_pod_policy", "Running", ("Running", "None", "All")),
        nproc=fields.choice("nproc", "", ("", "auto", "cpu", "gpu")),
        gang=fields.flag("gang", default=True),
        suspend=fields.flag("suspend", default=False),
    )


def trainjob(fields: Fields) -> TrainJobBlock:
    """Kubeflow Trainer's own fields."""
    kinds = ("ClusterTrainingRuntime", "TrainingRuntime")
    return TrainJobBlock(
        runtime=fields.text("runtime", "torch-distributed", what="a runtime's name", ok=names.SUBDOMAIN),
        runtime_kind=fields.choice("runtime_kind", kinds[0], kinds),
        patches=fields.mappings("patches"),
    )


def indexed(fields: Fields) -> IndexedBlock:
    """The plain Indexed Job's own fields."""
    return IndexedBlock(backoff=fields.maybe("backoff", 0))
