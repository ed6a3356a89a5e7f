"""Kinds of storage, and what is wrong with a site's storage classes. Pure.

https://kubernetes.io/docs/concepts/storage/storage-classes/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, shown
from gangplank.k8s.helm import release_of
from gangplank.k8s.names import ACCESS_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gangplank.spec import Json

    Fields = Mapping[str, Any]  # of a class in an inventory, or inputs of the role `storage`

LOCAL_PATH = "rancher.io/local-path"
UPSTREAM = "https://github.com/rancher/local-path-provisioner/archive/refs/tags"
LOOP = "loop.csi.gangplank.dev"  # lab/modules/loop-csi
DEFAULT = "storageclass.kubernetes.io/is-default-class"
SWITCHES = ("default", "expansion")
COMMON = ("name", "kind", "default", "reclaim_policy", "binding_mode")  # fields of every class


@dataclass(frozen=True, kw_only=True)
class Release:
    """A Helm release that installs the classes of one kind of storage, or of several."""

    name: str
    namespace: str
    chart: str  # the chart's folder, with {inputs} of the role `storage`
    values: Callable[[Mapping[str, Json], Fields], Json]  # from the classes by name, and the role's inputs
    problems: Callable[[Fields], Iterator[Problem]]  # what is wrong with the inputs that it needs
    pods: int  # that it adds to a cluster of one node


@dataclass(frozen=True, kw_only=True)
class StorageKind:
    """All that is asked of a kind of storage. No field has a default: mypy refuses a kind that leaves a fact out."""

    title: str  # completes "kind x is …"
    how: str  # what provides it, in Markdown
    checked_by: str  # how it was checked, in Markdown
    needs: tuple[str, ...]  # fields that a class must have besides the common ones
    takes: tuple[str, ...]  # fields that it may have; all others are refused
    access_modes: tuple[str, ...]  # that its volumes support; (): the class lists them
    binding_modes: tuple[str, ...]  # that a class may choose, its default first
    binding: str  # completes "a volume is created …"
    provisioner: str  # the provisioner of its classes; "": the class names it
    csi: bool  # whether the provisioner is a CSI driver, which the cluster lists
    release: Release
    values: Callable[[Fields], Json]  # a class, as the release's chart takes it

    def modes(self, item: Fields) -> tuple[str, ...]:
        """The access modes that volumes of a class support."""
        return self.access_modes or tuple(item.get("access_modes") or [ACCESS_MODE])


def _local_path_values(classes: Mapping[str, Json], inputs: Fields) -> Json:
    name, at, digest = inputs["helper_image"].partition("@")  # the chart adds the tag, so the digest goes with it
    helper, _, tag = name.rpartition(":")
    tag += f"{at}{digest}"
    version, digest = inputs["local_path_version"], inputs.get("local_path_digest")
    provisioner = f"v{version}" + (f"@{digest}" if digest else "")
    return {
        "image": {"repository": inputs["local_path_image"], "tag": provisioner},
        "helperImage": {"repository": helper, "tag": tag},
        "storageClass": {"provisionerName": LOCAL_PATH},
        "nodePathMap": [],  # each class has its own
        "storageClassConfigs": dict(classes),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "tolerations": inputs["tolerations"],
    }


def _local_path_problems(inputs: Fields) -> Iterator[Problem]:
    if not inputs["local_path_chart"]:
        archive = f"{UPSTREAM}/v{inputs['local_path_version']}.tar.gz"
        fix = f"unpack {archive} and name its folder deploy/chart/local-path-provisioner"
        fix = "run playbooks/lab.yml first" if inputs["source"] == "lab" else fix
        yield Problem("storage_local_path_chart", shown(""), "the folder of upstream's chart", fix)
    image = inputs["helper_image"]
    if ":" not in image.partition("@")[0].rpartition("/")[2]:  # the chart takes the tag by itself
        expected = "an image with its tag, such as docker.io/library/busybox:1.37"
        yield Problem("storage_helper_image", shown(image), expected, "add the tag, before the digest if it has one")


def _local_path_class(item: Fields, folder: Json) -> Json:
    mode = item.get("binding_mode") or KINDS[item["kind"]].binding_modes[0]
    settings = {
        "create": True,
        "defaultClass": bool(item.get("default")),
        "defaultVolumeType": "hostPath",
        "reclaimPolicy": item.get("reclaim_policy") or "Delete",
        "volumeBindingMode": mode,
    }
    return {"storageClass": settings, **folder}


def local_class(item: Fields) -> Json:
    """A class of kind local, as the chart of local-path-provisioner takes it."""
    paths = [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [item["folder"]]}]
    return _local_path_class(item, {"nodePathMap": paths})


def shared_class(item: Fields) -> Json:
    """A class of kind shared, as the chart of local-path-provisioner takes it.

    >>> shared_class({"name": "a", "kind": "shared", "folder": "/mnt/a"})["sharedFileSystemPath"]
    '/mnt/a'
    """
    return _local_path_class(item, {"sharedFileSystemPath": item["folder"]})


def csi_class(item: Fields) -> Json:
    """A class of kind csi, as charts/storage takes it.

    >>> csi_class({"name": "a", "kind": "csi", "provisioner": "a.csi", "reclaim_policy": "Retain"})
    {'name': 'a', 'provisioner': 'a.csi', 'reclaimPolicy': 'Retain'}
    """
    keys = {
        "name": "name",
        "provisioner": "provisioner",
        "parameters": "parameters",
        "mount_options": "mountOptions",
        "reclaim_policy": "reclaimPolicy",
        "binding_mode": "volumeBindingMode",
        "expansion": "expansion",
        "default": "default",
    }
    return {key: item[name] for name, key in keys.items() if item.get(name) is not None}


def loop_class(item: Fields) -> Json:
    """A class of kind loop, as charts/storage takes it.

    >>> loop_class({"name": "a", "kind": "loop", "expansion": True})["volumeBindingMode"]
    'WaitForFirstConsumer'
    """
    return csi_class({**item, "provisioner": LOOP, "binding_mode": "WaitForFirstConsumer"})


def _loop_values(classes: Mapping[str, Json], inputs: Fields) -> Json:
    loop = {"enabled": True, "folder": inputs["loop_folder"], "tolerations": inputs["tolerations"]}
    return {"classes": list(classes.values()), "loop": loop}


def _loop_problems(inputs: Fields) -> Iterator[Problem]:
    if not inputs["snapshot_crds"]:
        fix = "build the part csi-sidecars of lab/versions.yml"
        fix = "run playbooks/lab.yml first" if inputs["source"] == "lab" else fix
        yield Problem("storage_snapshot_crds", shown(""), "the folder of upstream's CRDs of snapshots", fix)


LOCAL_PATH_RELEASE = Release(
    name="local-path-provisioner",
    namespace="local-path-storage",
    chart="{local_path_chart}",
    values=_local_path_values,
    problems=_local_path_problems,
    pods=1,
)
CSI_RELEASE = Release(
    name="storage",
    namespace="local-path-storage",
    chart="{charts}/storage",
    values=lambda classes, _: {"classes": list(classes.values())},
    problems=lambda _: iter(()),
    pods=0,
)
LOOP_RELEASE = Release(
    name="loop-csi",
    namespace="local-path-storage",
    chart="{charts}/storage",
    values=_loop_values,
    problems=_loop_problems,
    pods=2,
)
KINDS: Mapping[str, StorageKind] = {
    "local": StorageKind(
        title="a folder on each node",
        how="local-path-provisioner",
        checked_by="molecule `storage`; every training in the lab writes to one",
        needs=("folder",),
        takes=(),
        # What local-path-provisioner supports: provisionFor in provisioner.go, v0.0.30.
        access_modes=("ReadWriteOnce", "ReadWriteOncePod"),
        binding_modes=("WaitForFirstConsumer",),
        binding="with its first pod, which chooses the node",
        provisioner=LOCAL_PATH,
        csi=False,
        release=LOCAL_PATH_RELEASE,
        values=local_class,
    ),
    "shared": StorageKind(
        title="a folder that all nodes have in common",
        how="local-path-provisioner, over a mount that every node has",
        checked_by="molecule `storage`: pods on two nodes write the same file; "
        "it outlives pods, a job and the provisioner",
        needs=("folder",),
        takes=(),
        access_modes=("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"),
        binding_modes=("Immediate", "WaitForFirstConsumer"),
        binding="at once",
        provisioner=LOCAL_PATH,
        csi=False,
        release=LOCAL_PATH_RELEASE,
        values=shared_class,
    ),
    "csi": StorageKind(
        title="a driver that the cluster has",
        how="NFS or any other CSI driver, installed by its own chart",
        checked_by="a class of the lab's own driver (`tests/cluster/test_csi.py`); others rendered, and accepted by an "
        "API server's dry run. NFS was **not exercised here**: the test machine's kernel has none",
        needs=("provisioner",),
        takes=("parameters", "mount_options", "access_modes", "expansion"),
        access_modes=(),
        binding_modes=("Immediate", "WaitForFirstConsumer"),
        binding="at once",
        provisioner="",
        csi=True,
        release=CSI_RELEASE,
        values=csi_class,
    ),
    "loop": StorageKind(
        title="a mounted file, for labs",
        how="our own CSI driver, with upstream's provisioner, resizer and snapshotter",
        checked_by="csi-sanity (`tests/lab/test_loop_csi.py`); in a cluster, `tests/cluster/test_csi.py`: a volume is "
        "provisioned, grows under a training, is copied by a snapshot, and restored for a second training",
        needs=(),
        takes=("expansion",),
        access_modes=("ReadWriteOnce",),
        binding_modes=("WaitForFirstConsumer",),
        binding="with its first pod, which chooses the node",
        provisioner=LOOP,
        csi=True,
        release=LOOP_RELEASE,
        values=loop_class,
    ),
}

# Name and namespace of the releases that this project installs
OWN_RELEASES = {(kind.release.name, kind.release.namespace) for kind in KINDS.values()}


def releases(classes: Sequence[Fields] = (), inputs: Fields | None = None) -> list[Json]:
    """The Helm releases of all kinds, in the order of installing; chart and values for those that have classes.

    >>> [(release["name"], release["classes"]) for release in releases()]
    [('local-path-provisioner', []), ('storage', []), ('loop-csi', [])]
    """
    result: list[Json] = []
    for release in dict.fromkeys(kind.release for kind in KINDS.values()):
        own = {item["name"]: item for item in classes if KINDS[item["kind"]].release is release}
        row: Json = {"name": release.name, "namespace": release.namespace, "classes": list(own)}
        if own and inputs is not None:
            values = {name: KINDS[item["kind"]].values(item) for name, item in own.items()}
            row |= {"chart": release.chart.format(**inputs), "values": release.values(values, inputs)}
        result.append(row)
    return result


def release_problems(classes: Sequence[Fields], inputs: Fields) -> list[Problem]:
    """What is wrong with the inputs that the releases of these classes need."""
    return [problem for release in needed(classes) for problem in release.problems(inputs)]


def needed(classes: Sequence[Fields]) -> list[Release]:
    """The Helm releases that install these classes.

    >>> [release.name for release in needed([{"kind": "csi"}, {"kind": "shared"}, {"kind": "local"}])]
    ['storage', 'local-path-provisioner']
    """
    return [*dict.fromkeys(KINDS[item["kind"]].release for item in classes if item.get("kind") in KINDS)]


def names(objects: Iterable[Json]) -> list[str]:
    """The names of objects."""
    return [item["metadata"]["name"] for item in objects]


def is_default(live: Fields) -> bool:
    """Whether a StorageClass is marked as the cluster's default."""
    return (live["metadata"].get("annotations") or {}).get(DEFAULT) == "true"


def class_problems(
    classes: Sequence[Fields], live: Iterable[Json] = (), drivers: Sequence[str] | None = None
) -> list[Problem]:
    """What is wrong with a site's classes; `live` are those that the cluster has, `drivers` its CSI drivers' names."""
    problems: list[Problem] = []
    for at, item in enumerate(classes):
        if not (item.get("name") and item.get("kind")):
            fix = "write it as inventories/example does"
            problems.append(Problem(f"storage_classes[{at}]", shown(item), "a class with a name and a kind", fix))
        for key in [key for key in SWITCHES if isinstance(item.get(key), str)]:
            fix = "write it without quotes; on a command line, as JSON: -e '{\"name\": false}'"
            got = f"the text {shown(item[key])}"
            problems.append(Problem(f"storage_classes[{at}].{key}", got, "true or false", fix))
    if problems:
        return problems
    live = list(live)
    problems += [*_foreign(classes, live), *_changed(classes, live)]
    own = [item["name"] for item in classes]
    for at, item in enumerate(classes):
        where = f"storage_classes[{at}]"
        if own.index(item["name"]) != at:
            problems.append(Problem(f"{where}.name", shown(item["name"]), "a name of its own", "remove one of the two"))
        if item["kind"] in KINDS:
            problems += _class_problems(where, item, drivers)
        else:
            expected = f"one of {', '.join(KINDS)}"
            problems.append(Problem(f"{where}.kind", shown(item["kind"]), expected, "name one of these kinds"))
    defaults = [item["name"] for item in classes if item.get("default")]
    others = [name for name in names(filter(is_default, _of_others(live))) if name not in own]
    if not defaults and not others:
        others = names(filter(is_default, _left(classes, live)))  # which then stays the default
    if classes and len(defaults + others) != 1:
        fix = "set `default: true` in one class"
        if others:
            left = f"leave `default` out of {', '.join(defaults)}, or " if defaults and len(others) == 1 else ""
            fix = f"{left}remove the annotation {DEFAULT} from {', '.join(others)}, which is not in this inventory"
        problems.append(Problem("storage_classes", shown(defaults + others), "exactly one default class", fix))
    return problems


def left_classes(classes: Sequence[Fields], live: Sequence[Json], claims: Sequence[Json] = ()) -> list[Json]:
    """Classes whose release installs none of the inventory's: Helm is not called for it, so that they stay.

    Each comes with a warning, and with the merge patch that takes the mark of the default class from it. There is none
    if this would leave the cluster without a default class. `live` and `claims` are those of the cluster.
    """
    rows: list[Json] = []
    left = _left(classes, live)
    another = any(item.get("default") for item in classes) or any(map(is_default, _of_others(live)))
    users_of = {item["metadata"]["name"]: _users(item, claims) for item in left}
    needed_releases = {release_of(item) for item in left if users_of[item["metadata"]["name"]]}
    for item in left:
        name, (release, namespace) = item["metadata"]["name"], release_of(item) or ("", "")
        users = users_of[name]
        got = f"a class of release {namespace}/{release}, of which storage_classes has none"
        expected = f"it removed once its volume claims are ({', '.join(users)})"
        expected = expected if users else "it removed, as no volume claim has it"
        fix = f"helm uninstall {release} --namespace {namespace}; or list the class again"
        fix = f"once no claim needs this release, {fix}" if (release, namespace) in needed_releases else fix
        row: Json = {"warning": f"warning: {Problem(f'storage class {name}', got, expected, fix)}"}
        if another and is_default(item):
            metadata = {"name": name, "annotations": {DEFAULT: None}}
            row["patch"] = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata}
        rows.append(row)
    return rows


def _users(item: Json, claims: Iterable[Json]) -> list[str]:
    """The volume claims of a class, as namespace/name."""
    name = item["metadata"]["name"]
    users = (claim["metadata"] for claim in claims if claim["spec"].get("storageClassName") == name)
    return [f"{meta['namespace']}/{meta['name']}" for meta in users]


def _left(classes: Sequence[Fields], live: Iterable[Json]) -> list[Json]:
    """The classes of this project's releases that none of these classes needs."""
    used = {(release.name, release.namespace) for release in needed(classes)}
    return [item for item in live if release_of(item) in OWN_RELEASES - used]


def _of_others(live: Iterable[Json]) -> list[Json]:
    """The classes that this project has not installed."""
    return [item for item in live if release_of(item) not in OWN_RELEASES]


def _foreign(classes: Sequence[Fields], live: Iterable[Json]) -> Iterator[Problem]:
    """Classes of others that Helm would refuse to install over, and classes whose provisioner would answer ours too."""
    places = {item["name"]: f"storage_classes[{at}]" for at, item in enumerate(classes)}
    kinds = dict.fromkeys(item["kind"] for item in classes if item["kind"] in KINDS)
    provisioners = {KINDS[name].provisioner: name for name in kinds if KINDS[name].provisioner}
    for item in _of_others(live):
        name, kind = item["metadata"]["name"], provisioners.get(item.get("provisioner", ""))
        if kind:
            fix = f"take the classes of kind {kind} out, and use the cluster's own; or remove that provisioner"
            got = f"another provisioner of them (class {name})"
            yield Problem(f"storage_classes of kind {kind}", got, "none beside that of this site", fix)
        elif name in places:
            fix = "give it another name, or take it out and use the cluster's own"
            got = f"{shown(name)}, a class of the cluster that this site did not install"
            yield Problem(f"{places[name]}.name", got, "a name that is free", fix)


def _changed(classes: Sequence[Fields], live: Iterable[Json]) -> Iterator[Problem]:
    """What a class would change of one that this site has installed, and the API server keeps as it is."""
    installed = {item["metadata"]["name"]: item for item in live if release_of(item) in OWN_RELEASES}
    for at, item in enumerate(classes):
        kind, old = KINDS.get(item["kind"]), installed.get(item["name"])
        if kind is None or old is None:
            continue
        release = (kind.release.name, kind.release.namespace)
        new: Json = {
            "reclaim_policy": item.get("reclaim_policy") or "Delete",
            "binding_mode": item.get("binding_mode") or kind.binding_modes[0],
        }
        before: Json = {"reclaim_policy": old.get("reclaimPolicy"), "binding_mode": old.get("volumeBindingMode")}
        if release_of(old) != release or kind.provisioner not in ("", old.get("provisioner")):
            new, before = {"kind": item["kind"]}, {"kind": f"another, of {old.get('provisioner')}"}
        elif not kind.provisioner:
            new |= {"provisioner": item.get("provisioner"), "parameters": item.get("parameters") or {}}
            before |= {"provisioner": old.get("provisioner"), "parameters": old.get("parameters") or {}}
        for field, value in new.items():
            if before[field] not in (None, value):
                fix = "give the class another name; or remove the old one, which keeps its claims and volumes"
                expected = f"{shown(before[field])}, as it is installed: Kubernetes changes it in no class"
                yield Problem(f"storage_classes[{at}].{field}", shown(value), expected, fix)


def _class_problems(where: str, item: Fields, drivers: Sequence[str] | None) -> Iterator[Problem]:
    """What is wrong with one class, whose kind exists."""
    name, kind = item["kind"], KINDS[item["kind"]]
    for field in kind.needs:
        if not item.get(field):
            got = shown(item.get(field) or None)
            yield Problem(f"{where}.{field}", got, f"a {field} for kind {name}", f"add {field}")
    for field, value in item.items():
        if value and field not in (*COMMON, *kind.needs, *kind.takes):
            fix = f"remove it: kind {name} takes {', '.join((*kind.needs, *kind.takes))}"
            yield Problem(f"{where}.{field}", shown(value), f"no {field} for kind {name}", fix)
    provisioner = kind.provisioner or item.get("provisioner")
    installed = bool(kind.provisioner)  # with its class; other drivers have charts of their own
    if kind.csi and not installed and drivers is not None and provisioner and provisioner not in drivers:
        expected = f"a CSI driver of the cluster, which has {', '.join(drivers) or 'none'}"
        fix = "install the driver first, with its own chart"
        yield Problem(f"{where}.provisioner", shown(provisioner), expected, fix)
    if item.get("binding_mode") and item["binding_mode"] not in kind.binding_modes:
        expected = f"{' or '.join(kind.binding_modes)}: a volume of kind {name} is created {kind.binding}"
        yield Problem(f"{where}.binding_mode", shown(item["binding_mode"]), expected, "remove it")
