"""What `make bundle` carries: whatever the mirror's values name, and nothing that only tests need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from gangplank.site.components import COMPONENTS
from lab.build.oci_archive import Layer, write_image
from tools.bundle import ONLY_TESTS, PARTS, images, release

ROOT = Path(__file__).resolve().parents[3]
VALUES = ROOT / "roles/mirror/templates/values.yml.j2"
VERSIONS: dict[str, Any] = yaml.safe_load((ROOT / "lab/versions.yml").read_text())["parts"]
DIGEST = "sha256:" + "0" * 64


def carried(component: str) -> set[str]:
    """The images of a bundle for one component, as bundle.json names them."""
    named = [image["name"].rpartition(":")[0] for part in [*PARTS[component], "trainer"]
             for image in VERSIONS[part].get("images", ())]  # fmt: skip
    return {name.partition("/")[2] for name in named if name not in ONLY_TESTS}


def archives(component: str) -> set[str]:
    """The charts of a bundle for one component, by their last name."""
    return {name.rpartition("/")[2] for part in PARTS[component] for name in VERSIONS[part].get("charts", ())}


@pytest.mark.parametrize("charts", ["folder", "registry"])
@pytest.mark.parametrize("component", PARTS)
def test_the_values_of_a_component_name_what_its_bundle_has_alone(component: str, charts: str) -> None:
    paths = carried(component)
    variables = {
        "mirror_registry": "registry.example.org",
        "mirror_bundle": "/bundle",
        "mirror_charts": charts,
        "__mirror_address": "oci://registry.example.org/charts",
        "__mirror_archives": {name: {"version": "1.2.3", "sha256": "0" * 64} for name in archives(component)},
        "__mirror_manifest": {"components": [component]},
        "__mirror_digests": dict.fromkeys(paths, DIGEST),
        "__mirror_tagged": {path: f"{path}:1" for path in paths},
    }
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701  YAML, as Ansible
    values = yaml.safe_load(environment.from_string(VALUES.read_text()).render(variables))
    named = {str(text) for key, text in values.items() if re.search("_image(_|$)", key)}
    assert any("registry.example.org" in text for text in named)
    assert DIGEST in str(values)
    assert ("/bundle/" in str(values)) == (charts == "folder")
    assert ("oci://" in str(values)) == (charts == "registry")
    readme = (ROOT / f"roles/{component}/README.md").read_text()
    assert all(f"`{name}`" in readme for name in values), "a variable that the role does not have"


def test_the_images_of_tests_stay_at_home(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    layer.write_bytes(b"\0" * 1024)
    built: list[dict[str, str]] = []
    for name in ("nvcr.io/nvidia/k8s-device-plugin:v0", "gangplank.dev/simulated-driver:0"):
        archive = tmp_path / f"{len(built)}.tar"
        digest = write_image(archive, name, [Layer.of(layer)], {})
        built.append({"name": name, "archive": str(archive), "digest": digest})
    (listed,) = images(built, tmp_path / "out")
    assert (listed["path"], listed["tag"]) == ("nvidia/k8s-device-plugin", "v0")
    assert (tmp_path / "out" / listed["layout"] / "index.json").exists()
    assert {path.name for path in (tmp_path / "out/images").iterdir()} == {"nvidia-k8s-device-plugin"}


def test_every_component_of_a_site_can_be_bundled() -> None:
    assert PARTS.keys() == COMPONENTS.keys()


@pytest.mark.parametrize(("own", "options"), [("0.0.0-dev", ["--version", "0.4.0"]), ("0.0.30", []), ("1.15.1", [])])
def test_a_chart_without_a_version_of_its_own_gets_that_of_the_release(
    tmp_path: Path, own: str, options: list[str]
) -> None:
    (tmp_path / "Chart.yaml").write_text(f"name: a\nversion: {own}\n")
    assert release(tmp_path, "v0.4.0") == options
