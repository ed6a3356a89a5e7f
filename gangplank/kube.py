"""A job's objects in a live cluster: made, read, removed. The kubernetes package is used for its kubeconfig alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gangplank import wiring
from gangplank.podspec import JOB_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangplank.spec import Json

# apiVersion and kind: the plural in the API's paths
PLURALS = {
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Service"): "services",
    ("v1", "Pod"): "pods",
    ("v1", "Event"): "events",
    ("batch/v1", "Job"): "jobs",
    ("batch.volcano.sh/v1alpha1", "Job"): "jobs",
    ("kubeflow.org/v1", "PyTorchJob"): "pytorchjobs",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "trainjobs",
}
WRITER = "gangplank"  # who wrote a field, for server-side apply
TIMEOUT_S = 30  # of one request, logs that are followed excepted


class KubeError(RuntimeError):
    """The cluster cannot be asked, or says no; the message says which and what to do."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def path(api_version: str, kind: str, namespace: str, name: str = "") -> str:
    """Where an object or all of a kind are.

    >>> path("kubeflow.org/v1", "PyTorchJob", "default", "digits")
    '/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/digits'
    """
    group = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    found = f"{group}/namespaces/{namespace}/{PLURALS[api_version, kind]}"
    return f"{found}/{name}" if name else found


class Kube:
    """One cluster, as a kubeconfig names it."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        from kubernetes import client, config

        try:
            self.api: Any = config.new_client_from_config(config_file=kubeconfig, context=context)
        except (config.ConfigException, OSError, ValueError) as error:
            raise KubeError(f"{error}; give --kubeconfig, or set KUBECONFIG") from None
        self.refused: Any = client.exceptions.ApiException

    def open(self, method: str, where: str, body: object = None, query: Mapping[str, str] | None = None) -> Any:
        """One request; the open answer."""
        from urllib3.exceptions import HTTPError

        kinds = {"PATCH": "application/apply-patch+yaml"}
        headers = {"Accept": "application/json, */*", "Content-Type": kinds.get(method, "application/json")}
        follow = (query or {}).get("follow") == "true"
        try:
            return self.api.call_api(
                where,
                method,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=None if follow else TIMEOUT_S,
            )[0]
        except self.refused as error:
            raise KubeError(told(error.body, error.reason), error.status or 0) from None
        except (HTTPError, OSError) as error:
            host = self.api.configuration.host
            raise KubeError(f"{host} does not answer: {cause(error)}; is the cluster up? (make lab)") from None

    def call(self, method: str, where: str, body: object = None, query: Mapping[str, str] | None = None) -> Json:
        """One request; the answer as JSON."""
        found: Json = json.loads(self.open(method, where, body, query).data)
        return found

    def create(self, manifest: Json, *, dry_run: bool = False) -> str:
        """Submit a manifest: jobs are created and never changed, what they need beside is applied. What was done."""
        meta = manifest["metadata"]
        query = {"dryRun": "All"} if dry_run else {}
        if manifest["kind"] in {"ConfigMap", "Service"}:
            where = path(manifest["apiVersion"], manifest["kind"], meta["namespace"], meta["name"])
            self.call("PATCH", where, manifest, {**query, "fieldManager": WRITER, "force": "true"})
            return "applied"
        where = path(manifest["apiVersion"], manifest["kind"], meta["namespace"])
        self.call("POST", where, manifest, {**query, "fieldManager": WRITER})
        return "created"

    def find(self, namespace: str, name: str, kinds: list[tuple[str, str]]) -> Json | None:
        """The first job of a name among some kinds; kinds that the cluster does not know are passed over."""
        for api_version, kind in kinds:
            try:
                found = self.call("GET", path(api_version, kind, namespace, name))
            except KubeError as error:
                if error.status != 404:
                    raise
                continue
            return {"apiVersion": api_version, "kind": kind, **found}
        return None

    def pods(self, namespace: str, name: str) -> list[Json]:
        """A job's pods in the order of their ranks."""
        query = {"labelSelector": f"{JOB_LABEL}={name}"}
        found: list[Json] = self.call("GET", path("v1", "Pod", namespace), query=query)["items"]
        return sorted(found, key=lambda pod: (rank_of(pod) is None, rank_of(pod) or 0, pod["metadata"]["name"]))

    def log(self, namespace: str, pod: str, *, follow: bool) -> Iterator[str]:
        """The lines of a pod's log, as they come when it is followed."""
        answer = self.open("GET", f"{path('v1', 'Pod', namespace, pod)}/log", query={"follow": str(follow).lower()})
        rest = b""
        for part in answer.stream(decode_content=True):
            *lines, rest = (rest + part).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
        if rest:
            yield rest.decode("utf-8", "replace")

    def delete(self, item: Json) -> bool:
        """Remove an object with all that belongs to it; false when there is none."""
        meta = item["metadata"]
        where = path(item["apiVersion"], item["kind"], meta["namespace"], meta["name"])
        try:
            self.call("DELETE", where, {"propagationPolicy": "Background"})
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        return True


def rank_of(pod: Json) -> int | None:
    """The rank of a pod's node, None when its environment does not tell."""
    text = wiring.seen(pod)["rank"]
    return int(text) if text.isdigit() else None


def told(body: object, reason: object) -> str:
    """What the API server says, in one line.

    >>> told('{"message": "not found"}', "Not Found")
    'the cluster says: not found'
    """
    try:
        text = json.loads(body)["message"] if isinstance(body, str | bytes) else str(reason)
    except (ValueError, KeyError, TypeError):
        text = str(reason)
    return f"the cluster says: {' '.join(str(text).split())}"


def cause(error: BaseException) -> str:
    """The last part of what urllib3 tells of a failure, which names it."""
    inner = getattr(error, "reason", None) or error
    return str(inner).rsplit(": ", 1)[-1]
