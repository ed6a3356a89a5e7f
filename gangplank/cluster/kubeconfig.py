"""Reads kubeconfigs as kubectl does, where the kubernetes package reads them otherwise.

That package takes the current context of the last of several files, and wants one even if a context is named. It
ignores `proxy-url`, and reads a token file once, with its newline.
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.cluster.lab_route import of_lab
from gangplank.errors import KubeError, Problem

if TYPE_CHECKING:
    from gangplank.spec import Json

AS_ANOTHER = ("as", "as-uid", "as-groups", "as-user-extra")  # fields of a user that impersonate another one


def load(files: str, context: str | None, settings: Any) -> Json:
    """Fill the client's settings from these files, separated as in KUBECONFIG; the context that is used."""
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    merged = KubeConfigMerger(files)
    if merged.config is None:
        raise ConfigException("no such file")
    currents = (content.get("current-context") for content in merged.config_files.values())
    name = context or next(filter(None, currents), None)
    loader = KubeConfigLoader(merged.config, name, config_base_path=None, config_persister=merged.save_changes)
    loader.load_and_set(settings)
    own: Json = loader.current_context
    cluster = merged.config["clusters"].get_with_name(own["context"]["cluster"]).value["cluster"]
    if proxy := cluster.get("proxy-url"):
        settings.proxy, settings.no_proxy = proxy, None  # NO_PROXY is about the environment's
    elif of_lab(settings.host):
        settings.proxy = None  # the environment's cannot reach this machine's own lab
    user = merged.config["users"].get_with_name(own["context"].get("user"), safe=True)
    if user and any((user.value.get("user") or {}).get(key) for key in AS_ANOTHER):
        got, fix = "a user that acts as another one (`as`)", "name another user or context"
        raise KubeError(Problem(f"kubeconfig {files}", got, "one that acts itself, as nothing else is supported", fix))
    if user and (token_file := (user.value.get("user") or {}).get("tokenFile")):
        settings.refresh_api_key_hook = partial(read_token, Path(user.path).absolute().parent / token_file)
    return own


def read_token(place: Path, settings: Any) -> None:
    """Take the token that a file has now: short-lived tokens are replaced there."""
    settings.api_key["authorization"] = f"Bearer {place.read_text().strip()}"
