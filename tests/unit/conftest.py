"""A small API server that keeps objects in memory, for whatever talks to a cluster."""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json = dict[str, Any]
TERM = re.compile(r"(!?)([\w./-]+) *(==|=|!=|in|notin|) *(.*)")  # of a label selector


class Api:
    """The objects of a cluster by their path, the requests that came, and what to say instead of an answer."""

    def __init__(self) -> None:
        self.kubeconfig = ""  # the file that names it
        self.objects: dict[str, Json] = {}
        self.groups: dict[str, list[Json]] = {}  # the kinds of an API group, by its path
        self.versions: dict[str, int] = {}  # how often an object was written, by its path
        self.conflicts = 0  # how many patches are refused since the object has changed
        self.logs: dict[str, bytes] = {}
        self.seen: list[str] = []
        self.bodies: list[Json] = []
        self.says: tuple[int, str] | None = None
        self.clock_s = 0.0  # by how much its clock is ahead of ours
        self.uncounted = 0  # how many new objects the quota could not count, since others were counted at that moment
        self.refuses = ""  # what a webhook says of every job
        self.forbidden: set[str] = set()  # kinds of which this person may make none
        self.unreadable: set[str] = set()  # paths that this person may not read

    def set_namespace(self, namespace: str) -> None:
        """Give the kubeconfig's context a namespace."""
        place = Path(self.kubeconfig)
        config = json.loads(place.read_text())
        config["contexts"][0]["context"]["namespace"] = namespace
        place.write_text(json.dumps(config))

    def listed(self, where: str, selector: str = "") -> bytes:
        """The objects with some labels below a path that is a collection, an API group's kinds, or the version."""
        if where in self.groups:
            return json.dumps({"resources": self.groups[where]}).encode()
        if where == "/apis" and self.groups:
            return json.dumps({"groups": groups_of(self.groups)}).encode()
        if where in self.objects:
            return b""
        below = [item for key, item in self.objects.items() if key.startswith(f"{where}/")]
        if "/namespaces/" not in where:  # those of all namespaces
            below += [item for key, item in self.objects.items()
                      if "/namespaces/" in key and not key.startswith(f"{where}/")
                      and re.sub(r"/namespaces/[^/]+(?=/.)", "", key).startswith(f"{where}/")]
        if below or where.endswith(("/pods", "/configmaps")):
            return json.dumps({"items": [item for item in below if selected(item, selector)]}).encode()
        return b'{"gitVersion": "v1.35.4"}' if where == "/version" else b""

    def refusal(self) -> tuple[int, bytes] | None:
        """Why nothing new is accepted now."""
        if self.uncounted:
            self.uncounted -= 1
            text = 'Operation cannot be fulfilled on resourcequotas "gangplank-team": the object has been modified'
            return 409, json.dumps({"message": text}).encode()
        return (403, json.dumps({"message": self.refuses}).encode()) if self.refuses else None

    def answer(self, method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        """What the API server would say."""
        self.seen.append(f"{method} {where}{'?' + query if query else ''}")
        self.bodies.append(body)
        if self.says:
            return self.says[0], json.dumps({"message": self.says[1]}).encode()
        if where in self.unreadable:
            return 403, b'{"message": "forbidden"}'
        if method == "GET" and (listed := self.listed(where, dict(parse_qsl(query)).get("labelSelector", ""))):
            return 200, listed
        if where.endswith("/selfsubjectaccessreviews"):
            kind = body["spec"]["resourceAttributes"]["resource"]
            return 201, json.dumps({"status": {"allowed": kind not in self.forbidden}}).encode()
        if where.endswith("/log"):
            return self.log(where, dict(parse_qsl(query)))
        if method == "POST" and (refusal := self.refusal()):
            return refusal
        meta = body["metadata"] if method == "POST" else {}
        key = f"{where}/{meta.get('name') or meta['generateName'] + str(len(self.seen))}" if meta else where
        if method == "PATCH" and "fieldManager" not in query:  # a merge patch
            return self.merged(key, body, dry_run="dryRun=All" in query)
        if method in {"POST", "PATCH"}:
            if method == "POST" and key in self.objects:
                return 409, json.dumps({"message": "already exists"}).encode()
            old = self.objects.get(key, {})
            if old.get("immutable") and old.get("data") != body.get("data"):
                return 422, json.dumps({"message": "data: Forbidden: field is immutable"}).encode()
            if "dryRun=All" not in query:
                self.write(key, body)
            return 201, json.dumps(body).encode()
        return self.read(method, key, body)

    def read(self, method: str, key: str, body: Json) -> tuple[int, bytes]:
        """The answer to a request for an object, or for its removal."""
        if key not in self.objects:
            return 404, json.dumps({"message": f"{key} not found"}).encode()
        item = self.objects[key]
        if method == "DELETE" and self.outdated(key, body.get("preconditions") or {}):
            return 409, json.dumps({"message": "the object has been modified"}).encode()
        if method == "DELETE" and "dryRun" not in body:
            del self.objects[key]
        return 200, json.dumps(with_uid(item, key, self.versions.get(key))).encode()

    def write(self, key: str, item: Json) -> None:
        """Store an object in a new version."""
        self.objects[key], self.versions[key] = item, self.versions.get(key, 0) + 1

    def outdated(self, key: str, wanted: Json) -> bool:
        """Whether a request is for another version of an object."""
        version = self.objects[key].get("metadata", {}).get("resourceVersion", str(self.versions.get(key)))
        return bool(wanted.get("resourceVersion", version) != version)

    def log(self, where: str, options: dict[str, str]) -> tuple[int, bytes]:
        """The log at a path: its last lines, and of these the first bytes."""
        pod = self.objects.get(where.removesuffix("/log"), {})
        names = [one["name"] for one in pod.get("spec", {}).get("containers", ())]
        if len(names) > 1 and "container" not in options:
            return 400, json.dumps({"message": f"a container name must be specified, choose one of: {names}"}).encode()
        starts = [one["name"] for one in pod.get("spec", {}).get("initContainers", ())]
        where += f"?{options['container']}" if options.get("container") in [*starts, *names[1:]] else ""
        where += "?previous" if options.get("previous") == "true" else ""
        if where not in self.logs:
            return 404, b"{}"
        lines = self.logs[where].splitlines(keepends=True)[-int(options.get("tailLines", 10**9)) :]
        return 200, b"".join(lines)[: int(options.get("limitBytes", 10**9))]

    def merged(self, key: str, patch: Json, *, dry_run: bool) -> tuple[int, bytes]:
        """The answer to a JSON merge patch."""
        if key not in self.objects:
            return 404, json.dumps({"message": f"{key} not found"}).encode()
        if self.conflicts or self.outdated(key, patch.get("metadata") or {}):
            self.conflicts = max(self.conflicts - 1, 0)
            return 409, json.dumps({"message": "the object has been modified"}).encode()

        def change(value: Any, by: Any) -> Any:
            if not isinstance(by, dict):
                return by
            old = value if isinstance(value, dict) else {}
            new = {**old, **{name: change(old.get(name), part) for name, part in by.items()}}
            return {name: part for name, part in new.items() if part is not None}

        item = change(self.objects[key], patch)
        if "resourceVersion" not in self.objects[key].get("metadata", {}):  # the test chose none
            item.get("metadata", {}).pop("resourceVersion", None)
        if not dry_run:
            self.write(key, item)
        return 200, json.dumps(item).encode()


def groups_of(paths: Iterable[str]) -> list[Json]:
    """API groups as discovery lists them, from the paths of their versions, the preferred one first.

    >>> groups_of(["/api/v1", "/apis/a/v2", "/apis/a/v1"])[0]["preferredVersion"]
    {'groupVersion': 'a/v2'}
    """
    groups: dict[str, list[Json]] = {}
    for path in paths:
        if version := path.removeprefix("/apis/") if path.startswith("/apis/") else "":
            groups.setdefault(version.partition("/")[0], []).append({"groupVersion": version})
    return [{"name": name, "versions": own, "preferredVersion": own[0]} for name, own in groups.items()]


def selected(item: Json, selector: str) -> bool:
    """Whether an object's labels are as a selector wants them; a comma in brackets separates values.

    >>> item = {"metadata": {"labels": {"a": "1"}}}
    >>> [selected(item, one) for one in ("", "a", "!b", "a=1", "a==1,b!=2", "a in (1, 2)", "b notin (1)")]
    [True, True, True, True, True, True, True]
    >>> [selected(item, one) for one in ("b", "!a", "a=2", "a=1,b=2", "a!=1", "a in (2,3)", "a notin (1)", "b in (1)")]
    [False, False, False, False, False, False, False, False]
    """
    labels = item.get("metadata", {}).get("labels") or {}
    for term in filter(None, map(str.strip, re.split(r",(?![^(]*\))", selector))):
        negative, key, operator, text = TERM.fullmatch(term).groups()  # type: ignore[union-attr]  # else the test's fault
        values = {value.strip() for value in text.strip("()").split(",")}
        fits = labels.get(key) in values if operator else key in labels
        if fits is bool(negative or operator in {"!=", "notin"}):
            return False
    return True


def with_uid(item: Json, where: str, version: int | None = None) -> Json:
    """An object as a server has it: with a version, and a uid, here its path if the test chose none."""
    own = {"uid": where} | ({"resourceVersion": str(version)} if version else {})
    return {**item, "metadata": {**own, **item["metadata"]}} if "metadata" in item else item


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    state = Api()

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            where, _, query = self.path.partition("?")
            code, data = state.answer(self.command, where, query, body)
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815  the names that http.server calls

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string((timestamp or time.time()) + state.clock_s)

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    config = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {"token": "t"}}]
    config.write_text(
        json.dumps({"current-context": "x", "clusters": [cluster], "contexts": [context], "users": users})
    )
    state.kubeconfig = str(config)
    monkeypatch.setenv("KUBECONFIG", str(config))
    for name in ("K8S_AUTH_KUBECONFIG", "K8S_AUTH_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
    yield state
    server.shutdown()
    server.server_close()
