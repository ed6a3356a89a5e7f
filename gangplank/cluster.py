"""Read a job's live objects: itself, its pods, their logs as they are written, its events. Changes nothing."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from gangplank.podspec import JOB_LABEL
from gangplank.watch import Phase, Progress, events, first_failure, phase, waiting_reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

POLL_S = 1.0


class ClusterError(Exception):
    """The cluster cannot be asked; the message says which and why."""


class JobWatch:
    """One job, followed: call `poll` until its phase is an end. Every container's log is followed by a thread."""

    def __init__(self, manifest: Mapping[str, Any], kubeconfig: str | None = None) -> None:
        """Take the submitted manifest; connect by `kubeconfig`, else $KUBECONFIG, ~/.kube/config or the pod's own."""
        self.kind, (self.group, _, self.version) = manifest["kind"], manifest["apiVersion"].partition("/")
        self.name, self.namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        try:
            api = config.new_client_from_config(config_file=kubeconfig) if kubeconfig else _default_client()
        except (config.ConfigException, OSError) as error:
            raise ClusterError(f"kubeconfig {kubeconfig or '(default)'}: {error}") from error
        self.core, self.custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self.job: dict[str, Any] = {}
        self.pods: list[dict[str, Any]] = []
        self.failure: tuple[str, str] | None = None
        self.logs: dict[str, list[str]] = {}  # pod uid/restart -> lines
        self.names: dict[str, str] = {}
        self._serialize = api.sanitize_for_serialization
        self._threads: dict[str, threading.Thread] = {}

    @property
    def job_uid(self) -> str:
        """What a Volcano job's evidence is stamped with, its group's name <job>-<uid>; '' for other kinds."""
        uid = str(self.job.get("metadata", {}).get("uid", ""))
        return f"{self.name}-{uid}" if uid and self.group == "batch.volcano.sh" else ""

    def poll(self) -> Phase:
        """Read the job and its pods once, and begin to follow containers that have started; raises ClusterError."""
        plural = self.kind.lower() + "s"
        try:
            self.job = self.custom.get_namespaced_custom_object(
                self.group, self.version, self.namespace, plural, self.name
            )
            selector = f"{JOB_LABEL}={self.name}"
            found = self.core.list_namespaced_pod(self.namespace, label_selector=selector)
        except ApiException as error:
            if error.status == 404:
                return Phase("Failed", f"{self.kind} {self.namespace}/{self.name} is not there (deleted?)")
            raise ClusterError(f"{self.kind} {self.namespace}/{self.name}: {error.status} {error.reason}") from error
        except (HTTPError, OSError) as error:
            raise ClusterError(f"the API server does not answer: {error}") from error
        self.pods = [self._serialize(pod) for pod in found.items]
        self.failure = self.failure or first_failure(self.pods)  # kept: the pod itself may be gone at the end
        for pod in self.pods:
            for container in (pod.get("status") or {}).get("containerStatuses") or []:
                state = container.get("state") or {}
                if "running" in state or "terminated" in state:
                    self._follow(pod, container)
        return phase(self.job)

    def _follow(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> None:
        key = f"{pod['metadata']['uid']}/{container['name']}/{container.get('restartCount', 0)}"
        if key in self.logs:
            return
        self.logs[key], self.names[key] = [], pod["metadata"]["name"]
        given = (key, pod["metadata"]["name"], container["name"])
        self._threads[key] = threading.Thread(target=self._read, args=given, daemon=True)
        self._threads[key].start()

    def _read(self, key: str, pod: str, container: str) -> None:
        try:
            stream = self.core.read_namespaced_pod_log(
                pod, self.namespace, container=container, follow=True, _preload_content=False
            )
            rest = ""
            for chunk in stream.stream(decode_content=True):
                *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
                self.logs[key] += lines
            self.logs[key] += [rest] if rest else []
        except (ApiException, HTTPError, OSError) as error:
            if not self.logs[key]:
                self.logs[key].append(f"(the log of {pod} cannot be read: {error})")

    def finish(self, deadline_s: float = 10.0) -> None:
        """Wait until the followed logs have ended."""
        end = time.monotonic() + deadline_s
        for thread in self._threads.values():
            thread.join(max(0.0, end - time.monotonic()))

    def text(self) -> str:
        """All lines of all containers that were followed."""
        return "\n".join(line for lines in self.logs.values() for line in lines)

    def progress(self) -> Progress:
        """What the trainer's events add up to."""
        found = Progress()
        for lines in list(self.logs.values()):
            for event in events("\n".join(lines)):
                found.take(event)
        return found

    def running(self) -> int:
        """How many pods have all their containers ready."""
        conditions = [(pod.get("status") or {}).get("conditions") or [] for pod in self.pods]
        return sum(any(c.get("type") == "Ready" and c.get("status") == "True" for c in own) for own in conditions)

    def trouble(self) -> str:
        """Everything that helps to see why a job does not run: conditions, events, the first failure's last lines."""
        parts = waiting_reasons(self.pods)
        if self.failure:
            pod, how = self.failure
            lines = next((self.logs[key] for key, name in self.names.items() if name == pod), [])
            parts += [f"{pod} failed first ({how}); its last lines:", *(f"  {line[:300]}" for line in lines[-15:])]
        parts += self._events()
        return "\n".join(parts)

    def _events(self) -> list[str]:
        mine = {self.name, *(pod["metadata"]["name"] for pod in self.pods)}
        try:
            found = self.core.list_namespaced_event(self.namespace).items
        except (ApiException, HTTPError, OSError):
            return []
        warnings = [event for event in found if event.involved_object.name in mine and event.type == "Warning"]
        return [f"event {e.involved_object.name}: {e.reason}: {(e.message or '').strip()[:300]}" for e in warnings[-8:]]


def _default_client() -> client.ApiClient:
    try:
        return config.new_client_from_config()
    except config.ConfigException:
        config.load_incluster_config()
        return client.ApiClient()


def follow(watch: JobWatch, say: Callable[[str], None], timeout_s: float) -> Phase | None:
    """Poll until the job ends, saying what changed; return its last phase, None when time is up."""
    started, shown = time.monotonic(), ""
    while True:
        now = watch.poll()
        line = f"{now.name}, {watch.running()}/{len(watch.pods)} pods ready"
        training = watch.progress().text()
        reasons = [] if training else waiting_reasons(watch.pods)
        line += f", {training}" if training else (f" ({reasons[0]})" if reasons else "")
        if line != shown:
            say(f"{time.monotonic() - started:4.0f} s  {watch.name}: {line}")
            shown = line
        if now.succeeded or now.failed:
            watch.finish()
            return now
        if time.monotonic() - started > timeout_s:
            return None
        time.sleep(POLL_S)
