"""The client of the API server. Of the kubernetes package it uses kubeconfig, credentials and connections only."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gangplank.backends import BACKENDS, backend_of, device_claims
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import answers, queues
from gangplank.cluster.kubeconfig import load
from gangplank.cluster.lab_route import leaves
from gangplank.cluster.members import controller_of, default_container, may_own, pod_label, rank_of
from gangplank.cluster.patience import OUTAGE_S, Patience, silent
from gangplank.errors import KubeError, Problem
from gangplank.k8s.diff import differences
from gangplank.k8s.names import SUBDOMAIN
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gangplank.spec import Json

__all__ = ["Kube", "KubeError", "group_path", "path"]

# The plural in the API's paths, by apiVersion and kind; the back-ends name those of jobs
PLURALS = {
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Service"): "services",
    ("v1", "Pod"): "pods",
    ("v1", "Event"): "events",
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("batch/v1", "CronJob"): "cronjobs",
    (device_claims.API_VERSION, device_claims.TEMPLATE): "resourceclaimtemplates",
    **{kind[:2]: kind.plural for kind in (QUEUE_SYSTEM.queue, QUEUE_SYSTEM.pod_group, QUEUE_SYSTEM.command)},
}
T = TypeVar("T")
REVIEW = ("authorization.k8s.io/v1", "SelfSubjectAccessReview")  # everybody may ask for their own rights
REVIEWS = 8  # of rights, at once
WRITER = "gangplank"  # owner of the fields that we write, for server-side apply
POLL_S = 0.5
OWNERS = 4  # levels from a pod to its job: a TrainJob has a JobSet, which has Jobs
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 401, 403, 404, 409
HOME = "~/.kube/config"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # of the pod that this runs in
JSON = "application/json, */*"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"  # of a list, without spec and status
CONNECT_S = 5  # to connect
TIMEOUT_S = 30  # without a byte of an answer
MOST_BYTES = 1 << 18  # of a log's end; of longer lines, fewer are read
COUNTED_S = 10  # until the quota counts an object, while others are counted too


def group_path(api_version: str) -> str:
    """The path of an API version.

    >>> group_path("v1"), group_path("batch/v1")
    ('/api/v1', '/apis/batch/v1')
    """
    return f"/{'apis' if '/' in api_version else 'api'}/{api_version}"


def path(api_version: str, kind: str, namespace: str, name: str = "") -> str:
    """The path of an object, or of all objects of a kind; without a namespace, in the whole cluster.

    >>> path("kubeflow.org/v1", "PyTorchJob", "default", "digits")
    '/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/digits'
    """
    backend = backend_of({"apiVersion": api_version, "kind": kind})
    plural = BACKENDS[backend].plural if backend else PLURALS[api_version, kind]
    collection = f"{group_path(api_version)}/{f'namespaces/{namespace}/' if namespace else ''}{plural}"
    return f"{collection}/{name}" if name else collection


def is_ours(manifest: Json) -> bool:
    """Whether it is of a kind whose path we know without discovery."""
    return bool(backend_of(manifest)) or (manifest["apiVersion"], manifest["kind"]) in PLURALS


def unknown_kind(kind: str, api_version: str, fix: str) -> KubeError:
    """The error for a kind that the cluster does not have."""
    return KubeError(str(Problem(f"{kind} of {api_version}", "no such kind", "one that the cluster has", fix)), 404)


def identity(settings: Any) -> tuple[Any, ...]:
    """As whom a client asks; certificates by their content, as a renewed one may have the file of the old one."""
    files = [Path(name).read_bytes() for name in (settings.cert_file, settings.key_file) if name]
    return (files, settings.username, settings.password, dict(settings.api_key))


class Kube:
    """One cluster, chosen by a kubeconfig."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        from kubernetes import client, config
        from yaml import YAMLError

        files = kubeconfig or config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION or HOME
        settings = client.Configuration()
        settings.retries = False  # `patience` decides what is asked again, and for how long
        # kubernetes 35 reads NO_PROXY and then forgets it: Configuration.__init__ sets no_proxy to None two lines later
        settings.no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        self.chosen: tuple[str, str] | None = None  # the kubeconfig and its context; none in a pod
        self.identity: tuple[Any, ...] = ()
        try:
            own = load(files, context, settings)
            self.chosen, self.identity = (files, own["name"]), identity(settings)
            self.api: Any = client.ApiClient(settings)
            self.origin = f"context {own['name']} of {files}"
            self.namespace = own["context"].get("namespace") or "default"  # of what names none, as for kubectl
        except (config.ConfigException, OSError, ValueError, TypeError, AttributeError, YAMLError) as error:
            if kubeconfig or context or not in_cluster():
                reason = " ".join(str(error).split()).rstrip(".")
                if isinstance(error, AttributeError):  # text, say, where kubectl has a mapping
                    reason = f"an entry of another form than kubectl's ({reason})"
                expected, fix = "a kubeconfig with a cluster", "pass --kubeconfig, or set KUBECONFIG"
                raise KubeError(Problem(f"kubeconfig {files}", reason, expected, fix)) from None
            config.load_incluster_config(client_configuration=settings)
            self.api = client.ApiClient(settings)
            own_space = ACCOUNT / "namespace"  # a projected volume of the user's may lack it
            self.namespace = own_space.read_text().strip() if own_space.exists() else "default"
            self.origin = "this pod's own account"
        self.owners: dict[tuple[str, str], bool] = {}  # by uid: whether a job owns an object that owns others
        self.groups: dict[str, list[Json]] = {}  # the kinds of an API group, from discovery
        self.refused: Any = client.exceptions.ApiException
        self.ahead = timedelta()  # of our clock, before that of the API server
        self.patience = Patience()  # little: at a terminal, a server that is not there is reported at once

    def patient(
        self, say: Callable[[str], None] = silent, seconds: float = OUTAGE_S, limit_s: float = math.inf
    ) -> Kube:
        """The same cluster, with patience: repeatable requests survive an outage of the API server.

        Each is repeated for `seconds` after its first failure, but not beyond `limit_s` from now.
        """
        other = copy.copy(self)
        other.patience = Patience(seconds, time.monotonic() + limit_s, say)
        return other

    def _renewed(self) -> bool:
        """Whether the kubeconfig has other credentials by now, which are taken: as a rule they last for hours."""
        if not self.chosen:
            return False
        try:
            new = Kube(*self.chosen)
        except KubeError:  # it is being written
            return False
        if new.identity == self.identity:
            return False
        self.api, self.identity = new.api, new.identity
        return True

    def namespace_of(self, namespace: str | None = None) -> str:
        """The namespace of what may name one: this one, else that of the kubeconfig's context, else `default`."""
        return namespace or self.namespace

    def __str__(self) -> str:
        return f"{self.api.configuration.host} ({self.origin})"

    def open(self, method: str, where: str, body: object = None, query: Mapping[str, str] | None = None) -> Any:
        """One request; the open answer, to be read as a stream."""
        return self._ask(lambda: self._send(method, where, body, query), method, query)

    def read(
        self,
        method: str,
        where: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        *,
        repeat: bool = False,
    ) -> bytes:
        """One request; the whole answer. `repeat` allows a write to be sent twice."""
        return self._ask(lambda: self._whole(method, where, body, query), method, query, repeat=repeat)

    def _whole(
        self,
        method: str,
        where: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
    ) -> bytes:
        """One request, sent once."""
        answer = self._send(method, where, body, query, accept)
        with self._kube_errors():
            text: bytes = answer.data
        return text

    def _ask(
        self, request: Callable[[], T], method: str, query: Mapping[str, str] | None, *, repeat: bool = False
    ) -> T:
        """Repeat requests that do nothing more when they are carried out twice, and those that no quota has counted."""
        twice = repeat or method in {"GET", "PATCH"} or "dryRun" in (query or {})
        return self._counted((lambda: self.patience.ask(request)) if twice else request)

    @staticmethod
    def _counted(request: Callable[[], T]) -> T:
        """Send a request again that a quota could not count at that moment: it did nothing."""
        refusal = KubeError("")
        for _ in polls(COUNTED_S, POLL_S):
            try:
                return request()
            except KubeError as error:
                if not uncounted(error):
                    raise
                refusal = error
        raise refusal

    def _send(
        self, method: str, where: str, body: object, query: Mapping[str, str] | None, accept: str = JSON
    ) -> Any:
        if leaves(self.api.configuration.host):
            fix = "start the lab (make lab), or choose another cluster (--kubeconfig, --context)"
            got = "an address of the lab, and no lab on this machine"
            raise KubeError(Problem(str(self), got, "a lab that runs", fix))
        apply = "fieldManager" in (query or {})  # server-side apply has a writer, a merge patch none
        kinds = {"PATCH": "application/apply-patch+yaml" if apply else "application/merge-patch+json"}
        headers = {"Accept": accept, "Content-Type": kinds.get(method, "application/json")}
        request = {"query_params": list((query or {}).items()), "header_params": headers, "body": body}
        try:
            answer = self._sent(where, method, request)
        except KubeError as error:
            if error.status != UNAUTHORIZED:
                raise
            if not self._renewed():
                fix = "renew them or choose another kubeconfig, then run it again; a job that was submitted continues"
                expected = "credentials that are valid (they may have expired)"
                raise KubeError(Problem(str(self), str(error), expected, fix), error.status) from None
            answer = self._sent(where, method, request)
        with contextlib.suppress(TypeError, ValueError):  # a proxy may leave the time out
            self.ahead = datetime.now(UTC) - parsedate_to_datetime(answer.headers.get("Date"))
        return answer

    def _sent(self, where: str, method: str, request: Mapping[str, Any]) -> Any:
        limits = {"_preload_content": False, "_request_timeout": (CONNECT_S, TIMEOUT_S)}
        with self._kube_errors():
            return self.api.call_api(where, method, auth_settings=["BearerToken"], **limits, **request)[0]

    def now(self) -> datetime:
        """The time by the API server's clock, of its last answer: times in objects are by that one, not by ours."""
        return datetime.now(UTC) - self.ahead

    @contextlib.contextmanager
    def _kube_errors(self) -> Iterator[None]:
        """Turn what the client's libraries raise into KubeError."""
        from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError

        try:
            yield
        except self.refused as error:
            if error.status:
                raise KubeError(message_of(error.body, error.reason), error.status) from None
            raise self._untrusted(error) from None
        except (HTTPError, OSError) as error:
            reason = error.reason if isinstance(error, MaxRetryError) else error
            raise self._unanswered(error, listens=isinstance(reason, ProtocolError)) from None
        except ValueError as error:  # from http.client, of a header; UnicodeEncodeError too
            fix = "correct the token, without a line break at its end (`token: |` keeps one)"
            got = f"credentials that no request can carry ({type(error).__name__})"
            raise KubeError(Problem(str(self), got, "a token of letters, digits and - . _ ~ + / =", fix)) from None

    def _untrusted(self, error: BaseException) -> KubeError:
        """The error of a TLS connection: of a server that goes away meanwhile, or that is not to be trusted."""
        if "CERTIFICATE_VERIFY_FAILED" not in str(error):
            return self._unanswered(error, listens=True)
        fix = "correct certificate-authority, server or tls-server-name, or choose another cluster (--context)"
        expected = "one that the kubeconfig's authority has signed, for this host"
        return KubeError(Problem(self.api.configuration.host, f"a certificate with {cause(error)}", expected, fix))

    def _unanswered(self, error: BaseException, *, listens: bool = False) -> KubeError:
        host, why = self.api.configuration.host, cause(error)
        fix = "start the cluster (the lab: make lab), or choose another one (--kubeconfig, --context)"
        problem = Problem(host, f"no answer ({why})", "one from the API server", fix)
        return KubeError(problem, silence=why, listens=listens)

    def call(
        self,
        method: str,
        where: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        *,
        repeat: bool = False,
        accept: str = JSON,
    ) -> Json:
        """One request; the answer as JSON. `repeat` as for `read`."""
        return self._ask(lambda: self._object(method, where, body, query, accept), method, query, repeat=repeat)

    def _object(
        self,
        method: str,
        where: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
    ) -> Json:
        """One request, sent once; the object in its answer."""
        return answers.read(self._whole(method, where, body, query, accept), self.api.configuration.host + where)

    def post(self, where: str, manifest: Json, query: Mapping[str, str] | None = None, *, unique: bool = False) -> Json:
        """Create an object in the collection at a path; the object.

        A request without an answer is repeated, and may find the object that it has created: one as the manifest says,
        or any of a `unique` name, which is used only here.
        """
        lost = False

        def sent() -> Json:
            nonlocal lost
            body = copy.deepcopy(manifest)
            try:
                answer = self._object("POST", where, body, query)
            except KubeError as error:
                exists = error.status == CONFLICT and not uncounted(error)
                if lost and exists and "dryRun" not in (query or {}):
                    live = self._object("GET", f"{where}/{manifest['metadata']['name']}")
                    if unique or not [*differences(manifest, live)]:
                        return live
                lost = lost or error.outage
                raise
            return answer

        return self._counted(lambda: self.patience.ask(sent))

    def get(self, where: str, query: Mapping[str, str] | None = None, *, accept: str = JSON) -> Json | None:
        """The object or list at a path; None if the cluster has no such object or kind."""
        try:
            return self.call("GET", where, query=query, accept=accept)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    def create(self, manifest: Json, *, dry_run: bool = False, unique: bool = False, strict: bool = False) -> str:
        """Submit a manifest, and return what was done: jobs are created and never changed, other objects are applied.

        `unique` as for `post`. With `strict`, a field that the server would drop is an error.
        """
        meta, where = manifest["metadata"], self.collection(manifest)
        if "/namespaces/" not in where:  # a kind of the whole cluster
            manifest = {**manifest, "metadata": {key: value for key, value in meta.items() if key != "namespace"}}
        if manifest["kind"] in {"ConfigMap", "Service", device_claims.TEMPLATE} or not is_ours(manifest):
            self._apply(f"{where}/{meta['name']}", manifest, dry_run=dry_run)
            return "applied"
        query = {"dryRun": "All"} if dry_run else {}
        query |= {"fieldValidation": "Strict"} if strict else {}
        self.post(where, manifest, {**query, "fieldManager": WRITER}, unique=unique)
        return "created"

    def collection(self, manifest: Json) -> str:
        """Where objects of its kind are, asking the cluster only about a kind that is not ours."""
        if is_ours(manifest):
            return path(manifest["apiVersion"], manifest["kind"], manifest["metadata"]["namespace"])
        return self.where(manifest).rpartition("/")[0]

    def where(self, manifest: Json) -> str:
        """An object's path, for any kind: the plural comes from discovery."""
        resource, kind, meta = self.resource(manifest), manifest["kind"], manifest["metadata"]
        if resource["namespaced"] and not meta.get("namespace"):
            fix = f"set metadata.namespace, which every {kind} needs"
            raise KubeError(str(Problem(f"{kind} {meta['name']}", "no namespace", "a namespace", fix)))
        scope = f"namespaces/{meta['namespace']}/" if resource["namespaced"] else ""
        return f"{group_path(manifest['apiVersion'])}/{scope}{resource['name']}/{meta['name']}"

    def resource(self, manifest: Json) -> Json:
        """What discovery says of an object's kind."""
        api_version, kind = manifest["apiVersion"], manifest["kind"]
        group = group_path(api_version)
        if group not in self.groups and (answer := self.get(group)):
            self.groups[group] = answer["resources"]
        for resource in self.groups.get(group, []):
            if resource["kind"] == kind and "/" not in resource["name"]:
                return resource
        self.groups.pop(group, None)  # the kind may come later
        raise unknown_kind(kind, api_version, "check the spelling, or install its CRD")

    def serves(self, manifest: Json) -> bool:
        """Whether the cluster knows an object's kind."""
        try:
            self.resource(manifest)
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True

    def apply(self, manifest: Json, *, dry_run: bool = False) -> tuple[Json | None, Json]:
        """Server-side apply that takes over fields of other writers; the object before and after."""
        where = self.where(manifest)
        return self.get(where), self._apply(where, manifest, dry_run=dry_run)

    def merge(self, manifest: Json, *, dry_run: bool = False, create: bool = True) -> tuple[Json | None, Json | None]:
        """JSON merge patch: lists are replaced, nulls remove keys, a missing object is created. Before, and now.

        Without `create`, an object that is missing by then stays so: None, and None.
        https://www.rfc-editor.org/rfc/rfc7386
        """
        where, query = self.where(manifest), {"dryRun": "All"} if dry_run else {}
        before = self.get(where)
        if before is None and create:
            collection = where.rpartition("/")[0]
            return None, self.post(collection, manifest, {**query, "fieldManager": WRITER})
        try:
            return before, self.call("PATCH", where, manifest, query) if before else None
        except KubeError as error:
            if create or error.status != NOT_FOUND:
                raise
            return None, None

    def _apply(self, where: str, manifest: Json, *, dry_run: bool) -> Json:
        query = {"dryRun": "All"} if dry_run else {}
        return self.call("PATCH", where, manifest, {**query, "fieldManager": WRITER, "force": "true"})

    def accepts(self, manifest: Json, timeout_s: float, refusal: str = "") -> str:
        """Wait until the cluster accepts an object, or refuses it with these words; its answer. Nothing is created.

        The server's dry run calls every webhook, and so checks its certificate and its answer too.
        """
        answer = ""
        for _ in polls(timeout_s, POLL_S):
            answer = self._answer(manifest)
            refused_as_expected = bool(refusal) and refusal in answer
            accepted = not answer and not refusal
            if accepted or refused_as_expected:
                return answer
        name, expected = manifest["metadata"]["name"], f'the refusal "{refusal}"' if refusal else "acceptance"
        raise KubeError(late(f"{manifest['kind']} {name}", answer or "acceptance", expected, timeout_s))

    def _answer(self, manifest: Json) -> str:
        """Why the cluster refuses an object, "" if it accepts it; one that already exists was accepted before."""
        try:
            place = self.collection(manifest)
            self.call("POST", place, manifest, {"dryRun": "All", "fieldManager": WRITER})
        except KubeError as error:
            return "" if error.status == CONFLICT and not uncounted(error) else str(error)
        return ""

    def find(self, namespace: str, name: str, kinds: list[tuple[str, str]]) -> Json | None:
        """The first job of a name among some kinds; kinds that the cluster does not know are skipped.

        Raises KubeError if this user may not read some kinds, and none of the others has such a job.
        """
        if not (SUBDOMAIN.fullmatch(name) and SUBDOMAIN.fullmatch(namespace)):
            return None  # the path of another object, or of a list
        denied: KubeError | None = None
        for api_version, kind in kinds:
            try:
                job = self.get(path(api_version, kind, namespace, name))
            except KubeError as error:
                if error.status != FORBIDDEN:
                    raise
                denied = denied or error
                continue
            if job is not None:
                return {"apiVersion": api_version, "kind": kind, **job}
        if denied:
            raise denied
        return None

    def listed(self, namespace: str, kinds: Iterable[tuple[str, str]]) -> list[Json]:
        """The objects of some kinds in a namespace, oldest first; kinds that the cluster does not know are skipped."""
        objects: list[Json] = []
        for api_version, kind in kinds:
            answer = self.get(path(api_version, kind, namespace)) or {"items": []}
            objects += [{"apiVersion": api_version, "kind": kind, **item} for item in answer["items"]]
        return sorted(objects, key=lambda item: str(item["metadata"].get("creationTimestamp", "")))

    def items(self, api_version: str, kind: str, namespace: str = "", selector: str = "") -> list[Json]:
        """All objects of a kind, or those with some labels."""
        query = {"labelSelector": selector} if selector else None
        items: list[Json] = self.call("GET", path(api_version, kind, namespace), query=query)["items"]
        return items

    def pods(self, job: Json) -> list[Json]:
        """A live job's pods in the order of their ranks; a label alone does not make a pod the job's."""
        meta, label = job["metadata"], pod_label(job)
        labels = {label: meta["name"]} if label else (job["spec"].get("selector") or {}).get("matchLabels") or {}
        pods = self.items("v1", "Pod", meta["namespace"], ",".join(f"{key}={value}" for key, value in labels.items()))
        pods = [pod for pod in pods if self._owns(job, pod)]
        return sorted(pods, key=lambda pod: (rank_of(pod) is None, rank_of(pod) or 0, pod["metadata"]["name"]))

    def _owns(self, job: Json, item: Json, levels: int = OWNERS) -> bool:
        """Whether controllers made an object for this very job: its own, or one of an object that it owns."""
        meta, uid, owner = item["metadata"], job["metadata"]["uid"], controller_of(item)
        if not may_own(job, owner) or levels == 0:
            return False
        if owner["uid"] == uid:
            return True
        if (uid, owner["uid"]) not in self.owners:
            named = {**owner, "metadata": {"name": owner["name"], "namespace": meta["namespace"]}}
            try:
                parent = self.get(self.where(named))
                same = parent is not None and parent["metadata"]["uid"] == owner["uid"]
                self.owners[uid, owner["uid"]] = same and self._owns(job, parent or {}, levels - 1)
            except KubeError as error:
                if error.status not in {FORBIDDEN, NOT_FOUND}:
                    raise
                # Members of a team may not read JobSets; a TrainJob's has the job's name.
                same = error.status == FORBIDDEN and owner["name"] == job["metadata"]["name"]
                self.owners[uid, owner["uid"]] = same
        return self.owners[uid, owner["uid"]]

    def log(
        self, pod: Json, container: str = "", last: int = 0, *,
        previous: bool = False, most: int = 0, timestamps: bool = False,
    ) -> list[str]:
        """The lines of a pod's log so far, or only the last ones, or of its run before; logs.py follows one.

        It is that of the default container, if none is named.
        Of the last ones, fewer if they are longer than `most` bytes together; of a single one that is, its beginning.
        """
        container = container or default_container(pod)
        query = {"container": container} if container else {}
        query |= {"previous": "true"} if previous else {}
        query |= {"timestamps": "true"} if timestamps else {}
        if last:
            query["tailLines"] = str(last)
        query |= {"limitBytes": str(most)} if most else {}
        where = f"{path('v1', 'Pod', pod['metadata']['namespace'], pod['metadata']['name'])}/log"
        data = self.read("GET", where, query=query)
        while most and len(data) >= most and last > 1:  # the server's limit leaves the newest lines out
            last = max(last // 10, 1)
            data = self.read("GET", where, query={**query, "tailLines": str(last)})
        text = data.decode("utf-8", "replace")
        return text.removesuffix("\n").split("\n") if text else []

    def patch(self, item: Json, change: Json) -> Json:
        """Change some fields of an object; the object afterwards."""
        meta = item["metadata"]
        return self.call("PATCH", path(item["apiVersion"], item["kind"], meta["namespace"], meta["name"]), change)

    def may(self, verb: str, resource: str) -> bool:
        """Whether this user may do something with all objects of a kind, e.g. create clusterroles.<its group>."""
        name, _, group = resource.partition(".")
        spec = {"resourceAttributes": {"verb": verb, "resource": name, "group": group}}
        where = f"{group_path(REVIEW[0])}/selfsubjectaccessreviews"
        review = {"apiVersion": REVIEW[0], "kind": REVIEW[1], "spec": spec}
        answer = self.call("POST", where, review, repeat=True)
        return bool(answer["status"]["allowed"])

    def denied(self, rights: Iterable[str]) -> list[str]:
        """Those of some rights that this user lacks; each is a verb and a resource, as for `may`."""
        asked = list(rights)
        with ThreadPoolExecutor(REVIEWS) as pool:
            allowed = list(pool.map(lambda right: self.may(*right.split(" ", 1)), asked))
        return [right for right, may in zip(asked, allowed, strict=True) if not may]

    def queues(self) -> list[Json] | None:
        """Volcano's queues; None without Volcano, or without the right to list them."""
        try:
            return self.items(*queues.KIND)
        except KubeError as error:
            if error.status in {FORBIDDEN, NOT_FOUND}:
                return None
            raise

    def delete(self, item: Json, propagation: str = "Background") -> bool:
        """Remove an object with everything that belongs to it, itself last if Foreground; false if there is none.

        The object is the live one: a repeated request must not remove a new one of the same name.
        """
        meta = item["metadata"]
        where = path(item["apiVersion"], item["kind"], meta["namespace"], meta["name"])
        live = self.get(where)
        if live is None:
            return False
        self.delete_at(where, live["metadata"]["uid"], propagation)
        return True

    def delete_at(
        self,
        where: str,
        uid: str,
        propagation: str = "Background",
        *,
        grace_s: int | None = None,
        version: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete the object with this uid; an object created under its name since then is left alone.

        With `grace_s` 0, a pod is removed without asking its node. One that has another `version` by now is left too.
        """
        # The API server ignores the query of a DELETE with a body, so `dryRun` must be in the body.
        body: Json = {"propagationPolicy": propagation, "preconditions": {"uid": uid}}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if version:
            body["preconditions"]["resourceVersion"] = version
        if dry_run:
            body["dryRun"] = ["All"]
        try:
            self.call("DELETE", where, body, repeat=True)
        except KubeError as error:
            other = error.status == CONFLICT and (version or "uid" in str(error).lower())
            if error.status != NOT_FOUND and not other:
                raise


def in_cluster() -> bool:
    """Whether this runs in a pod that has an account of its own."""
    return (ACCOUNT / "token").exists()


def uncounted(error: KubeError) -> bool:
    """Whether a quota did not count an object, since others were counted at the same time: nothing was created."""
    return error.status == CONFLICT and "cannot be fulfilled on resourcequotas" in str(error)


def message_of(body: object, reason: object) -> str:
    """The API server's message, in one line.

    >>> message_of('{"message": "not found"}', "Not Found")
    'the cluster says: not found'
    """
    try:
        text = json.loads(body)["message"] if isinstance(body, str | bytes) else str(reason)
    except (ValueError, KeyError, TypeError):
        text = str(reason)
    return f"the cluster says: {' '.join(str(text).split())}"


def cause(error: BaseException) -> str:
    """The cause of a failure: the last part of urllib3's message."""
    inner = getattr(error, "reason", None) or error
    if isinstance(inner, str):  # of the kubernetes package, for TLS: the error's name, and its text on a line
        return inner.splitlines()[-1].rsplit(": ", 1)[-1]
    inner = next((part for part in inner.args if isinstance(part, Exception)), inner)
    return str(inner).rsplit(": ", 1)[-1] or type(inner).__name__
