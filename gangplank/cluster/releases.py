"""Helm's releases, as the API server keeps them: what a revision holds, and whether its objects are still there.

Helm compares nothing with the cluster: a release stays `deployed` when its objects are deleted or changed by hand.
Missing or changed objects are repaired by server-side apply of what Helm has noted. The same request, as a dry run,
decides whether an object has changed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import hashlib
import json
import re
import tarfile
import zlib
from typing import TYPE_CHECKING, Any

import yaml

from gangplank.backends.pod_template import MANAGED_BY
from gangplank.cluster.client import METADATA, group_path
from gangplank.cluster.helm_processes import Note, Place
from gangplank.errors import KubeError, Problem
from gangplank.k8s import helm
from gangplank.k8s.age import age_s
from gangplank.k8s.diff import unlike
from gangplank.k8s.manifest import written
from gangplank.site.preflight import DEFAULT_PLACES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

FACTS = ("name", "version", "appVersion")
CRD = "CustomResourceDefinition"
BUNDLE = "caBundle"  # of webhooks, CRDs and API services: filled in by what makes the certificate
MARK = "gangplank.dev/chart"  # annotation of a revision's Secret: which content of the chart this revision is of
NAMESPACES = "/api/v1/namespaces"
COMPLETE = {"deployed", "superseded", "uninstalling"}  # states of a revision that was complete once
OWN = {"app.kubernetes.io/managed-by": "Helm"}  # the label that Helm gives to every object
WRITERS = {"helm", "gangplank"}
NAME = re.compile(r"^metadata:\n(?:[ #].*\n|\n)*?  name: *[\"']?([\w.-]+)", re.MULTILINE)
KEPT = re.compile(r"^ +[\"']?helm\.sh/resource-policy[\"']?: *[\"']?keep", re.MULTILINE)


def unpacked(secret: Json) -> Json | None:
    """What a revision's Secret holds; None if it has another form than the known one.

    Helm's own base64, in the API's: https://github.com/helm/helm/blob/v3.18.0/pkg/storage/driver/util.go
    """
    try:
        text = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        release = json.loads(gzip.decompress(text))
        usable = isinstance(release["chart"]["metadata"], dict) and isinstance(release["manifest"], str)
    except (KeyError, TypeError, ValueError, EOFError, OSError, zlib.error, binascii.Error, RecursionError):
        return None
    return release if usable else None


def contents(chart: Path) -> dict[str, bytes]:
    """The files of a chart, subcharts too, by their names below it; {} if it is neither a folder nor its archive."""
    if chart.is_dir():
        return {str(path.relative_to(chart)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}
    with contextlib.suppress(OSError, EOFError, zlib.error, tarfile.TarError), tarfile.open(chart) as archive:
        files = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: file.read() for name, file in files.items() if file}
    return {}


def same_version(release: Json, files: Mapping[str, bytes], values: Json) -> bool:
    """Whether a release has the name and versions of a chart with these files, and these values."""
    expected, installed = yaml.safe_load(files["Chart.yaml"]), release["chart"]["metadata"]
    same = all(str(expected.get(fact) or "") == str(installed.get(fact) or "") for fact in FACTS)
    return same and (release.get("config") or {}) == values


def digest(files: Mapping[str, bytes]) -> str:
    """A hash of every file of a chart, with its name."""
    total = hashlib.sha256()
    for name in sorted(files, key=lambda name: name.split("/")):
        content = hashlib.sha256(files[name]).hexdigest()
        total.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return total.hexdigest()


def third_party(kube: Kube, name: str, namespace: str, live: Json | None) -> Problem | None:
    """What is wrong with a third-party release under a default name; None if there is none.

    Ours has a namespace that was created for it, or one with its sign. Earlier versions left only a mark on a revision,
    which Helm erases when it changes the revision's state. One under a name of the site's own choice is what the site
    means. `live` is the namespace, if it exists. Raises KubeError, also if this account may not read Helm's Secrets.
    """
    if live is None or (name, namespace) not in DEFAULT_PLACES or signed(live, name):
        return None
    where, query = f"{NAMESPACES}/{namespace}/secrets", {"labelSelector": f"owner=helm,name={name}"}
    secrets = kube.get(where, query, accept=METADATA) or {"items": None}  # as it says it of none
    metas = [item["metadata"] for item in secrets["items"] or ()]
    if not any(meta["labels"].get("status") in COMPLETE for meta in metas):
        return None
    ages_s = {meta["name"]: age_s(meta.get("creationTimestamp")) for meta in metas}
    interrupted = Note(Place(kube.api.configuration.host, namespace, name)).left(ages_s)
    if interrupted or any(MARK in (meta.get("annotations") or {}) for meta in metas):
        return None
    command = f"kubectl annotate namespace {namespace} {sign_of(name)}="
    fix = f"take its component out of site_components, or hand the release over ({command})"
    got = "a third-party one, or one that an earlier version of this project installed into a namespace of yours"
    return Problem(f"Helm's release {name} in {namespace}", got, "one with this project's sign, or none", fix)


def sign_of(name: str) -> str:
    """The annotation of a namespace by which this project's release is known."""
    return f"gangplank.dev/release-{name}"


def signed(live: Json, name: str) -> bool:
    """Whether a namespace was created for this project's releases, or has the sign of one."""
    return bool((live["metadata"].get("labels") or {}).items() >= MANAGED_BY.items() or has_sign(live, name))


def has_sign(live: Json, name: str) -> bool:
    """Whether a namespace has a release's sign."""
    return sign_of(name) in (live["metadata"].get("annotations") or {})


def sign(kube: Kube, name: str, live: Json) -> None:
    """Ensure the sign of a release under a default name in its namespace, if that was not created for it."""
    namespace = live["metadata"]["name"]
    if (name, namespace) in DEFAULT_PLACES and not signed(live, name):
        kube.merge(namespace_with(namespace, {sign_of(name): ""}), create=False)


def unsign(kube: Kube, name: str, namespace: str) -> None:
    """Remove the sign of a release that is gone."""
    live = kube.get(f"{NAMESPACES}/{namespace}")
    if live and has_sign(live, name):
        kube.merge(namespace_with(namespace, {sign_of(name): None}), create=False)


def namespace_with(name: str, annotations: Mapping[str, str | None]) -> Json:
    """A patch of a namespace's annotations."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": dict(annotations)}}


def documents(manifest: str) -> Iterator[tuple[str, str]]:
    r"""The documents of a manifest, each with its kind; the text is parsed only where it is used.

    >>> [kind for kind, _ in documents("---\nkind: A\n---\n# nothing\n---\nkind: B\n")]
    ['A', 'B']
    """
    for text in re.split(r"^---.*$", manifest, flags=re.MULTILINE):
        if kind := re.search(r"^kind: *[\"']?(\w+)", text, re.MULTILINE):
            yield kind.group(1), text


class Release:
    """The objects of one deployed revision."""

    def __init__(self, kube: Kube, name: str, namespace: str, manifest: str) -> None:
        self.kube, self.name, self.namespace, self.manifest = kube, name, namespace, manifest
        self.lists: dict[str, dict[str, Json]] = {}  # live objects by the path of their list, then by name

    def repair(self, *, dry_run: bool) -> list[tuple[Json | None, Json]]:
        """Apply what is missing or changed; the objects before and after, without those that are as noted."""
        changes = []
        for definition in self.suspects():
            place = "/".join(filter(None, (definition["metadata"].get("namespace"), definition["metadata"]["name"])))
            title = f"{definition['kind']} {place} of the release {self.name}"
            try:
                live, applied = self.kube.apply(definition, dry_run=True)
                before, after = written(live) if live else None, written(applied)
                if before != after:
                    changes.append((before, after))
                    if not dry_run:
                        self.kube.apply(definition)
            except KubeError as error:
                if error.status != 422:  # only an immutable field is refused so
                    raise KubeError(f"{title}: {error}", error.status) from None
                fix = "delete it, then run it again"
                raise KubeError(str(Problem(title, str(error), "what Helm has noted", fix)), 422) from None
        return changes

    def unkept(self) -> list[Json]:
        """The CRDs that Helm would remove with the revision, each as a patch by which an upgrade leaves it.

        An upgrade heeds the annotation of a live object, a removal only that of its own manifest
        (https://github.com/helm/helm/blob/v3.18.0/pkg/kube/client.go and pkg/action/resource_policy.go).
        """
        crds = [text for kind, text in documents(self.manifest) if kind == CRD and not KEPT.search(text)]
        matches = [(NAME.search(text), text) for text in crds]
        names = [match[1] if match else yaml.safe_load(text)["metadata"]["name"] for match, text in matches]
        return [
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": CRD,
                "metadata": {"name": name, "annotations": {helm.POLICY: "keep"}},
            }
            for name in names
        ]

    def suspects(self) -> Iterator[Json]:
        """The objects that are not obviously as noted, each with what Helm adds to it."""
        for kind, text in documents(self.manifest):
            if kind == CRD and self.is_untouched(text):
                continue
            for definition in map(self.labelled, expanded(yaml.safe_load(text))):
                live = self.listed(definition).get(definition["metadata"]["name"])
                if live is None:
                    yield definition
                elif kind != "Secret":  # its certificates and passwords are written, and renewed, by controllers
                    ours = without_bundles(definition)
                    if next(unlike(ours, live), None):
                        yield ours

    def is_untouched(self, text: str) -> bool:
        """Whether a CRD exists and nobody but Helm wrote its spec: to parse and compare ten of them takes seconds."""
        version = re.search(r"^apiVersion: *[\"']?([\w./]+)", text, re.MULTILINE)
        name = NAME.search(text)
        if not (version and name):
            return False
        crds = self.items(f"{group_path(version.group(1))}/customresourcedefinitions", METADATA)
        if name.group(1) not in crds:
            return False
        entries = crds[name.group(1)]["metadata"].get("managedFields", [])
        others = [entry for entry in entries if entry["manager"] not in WRITERS]
        return not any("f:spec" in (entry.get("fieldsV1") or {}) for entry in others)

    def labelled(self, definition: Json) -> Json:
        """A definition with its namespace and what Helm adds."""
        meta = dict(definition["metadata"])
        if self.kube.resource(definition)["namespaced"]:
            meta.setdefault("namespace", self.namespace)
        release = {helm.RELEASE: self.name, helm.NAMESPACE: self.namespace}
        meta["labels"] = {**(meta.get("labels") or {}), **OWN}
        meta["annotations"] = {**(meta.get("annotations") or {}), **release}
        return {**definition, "metadata": meta}

    def listed(self, definition: Json) -> dict[str, Json]:
        """The live objects of a definition's kind and namespace that have Helm's label, by name."""
        where = self.kube.where(definition).rpartition("/")[0]
        kind = {"apiVersion": definition["apiVersion"], "kind": definition["kind"]}
        return {name: {**item, **kind} for name, item in self.items(where).items()}

    def items(self, where: str, accept: str = "") -> dict[str, Json]:
        """The live objects of a list that have Helm's label, by name; one request for each list."""
        if where not in self.lists:
            selector = {"labelSelector": ",".join(f"{key}={value}" for key, value in OWN.items())}
            more: dict[str, Any] = {"accept": accept} if accept else {}
            answer = self.kube.call("GET", where, query=selector, **more)
            items = answer["items"] or ()  # null in METADATA of none
            self.lists[where] = {item["metadata"]["name"]: item for item in items}
        return self.lists[where]


def without_bundles(value: Any) -> Any:
    """A definition without the certificates that a controller writes into it.

    >>> without_bundles({"webhooks": [{"name": "a", "clientConfig": {"caBundle": "Cg==", "url": "u"}}]})
    {'webhooks': [{'name': 'a', 'clientConfig': {'url': 'u'}}]}
    """
    if isinstance(value, list):
        return [without_bundles(item) for item in value]
    if isinstance(value, dict):
        return {key: without_bundles(item) for key, item in value.items() if key != BUNDLE}
    return value


def expanded(document: Any) -> Iterable[Json]:
    """The objects of a document: one, those of a List, or none."""
    if not isinstance(document, dict):
        return []
    return document["items"] if document.get("kind") == "List" else [document]
