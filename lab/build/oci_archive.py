"""OCI image archives with stable digests, written with the standard library (image-spec v1.1, layout 1.0.0)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.build.cache import sha256_file
from lab.errors import PartError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LAYER = "application/vnd.oci.image.layer.v1.tar"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PLATFORM = ("architecture", "os", "variant")  # of an image


@dataclass(frozen=True)
class Layer:
    """One layer: `size` bytes at `offset` of the file, their sha256 in hex, and that of the unpacked tar archive."""

    path: Path
    digest: str
    size: int
    diff: str
    offset: int = 0
    media_type: str = LAYER

    @classmethod
    def of(cls, path: Path) -> Layer:
        """An uncompressed tar archive, as it is."""
        digest = sha256_file(path)
        return cls(path, digest, path.stat().st_size, digest)


def _entry(name: str, size: int, mode: int, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode, entry.type, entry.linkname = size, mode, kind, link
    return entry  # owner root, time 0: the same bytes in every build


def write_layer(
    target: Path, files: dict[str, Path], links: dict[str, str] | None = None, scripts: Collection[str] = ()
) -> Layer:
    """Write a layer of path in the image -> file here (executable bits kept) and path -> symlink target.

    Of the paths in `scripts`, those with an interpreter can be executed: a shared folder may give all files the bit.
    """
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        folders = {str(parent) for path in files for parent in Path(path).parents} - {"/", "."}
        for folder in sorted(folders):
            archive.addfile(_entry(folder, 0, 0o755, tarfile.DIRTYPE))
        for path, source in sorted(files.items()):
            with source.open("rb") as content:
                runs = content.peek(2)[:2] == b"#!" if path in scripts else source.stat().st_mode & 0o100
                mode = 0o755 if runs else 0o644
                archive.addfile(_entry(path, source.stat().st_size, mode), content)
        for path, link in sorted((links or {}).items()):
            archive.addfile(_entry(path, 0, 0o777, tarfile.SYMTYPE, link))
    return Layer.of(target)


def read_image(archive: Path) -> tuple[list[Layer], dict[str, Any], dict[str, str]]:
    """The layers, the config and the platform of the image in an OCI archive; every blob's digest is verified."""
    try:
        with tarfile.open(archive, "r:") as content:
            members = {member.name.removeprefix("./"): member for member in content if member.isreg()}

            def blob(about: dict[str, Any]) -> tarfile.TarInfo:
                digest = about["digest"].removeprefix("sha256:")
                member = members[f"blobs/sha256/{digest}"]
                stream = content.extractfile(member)
                if stream is None or hashlib.file_digest(stream, "sha256").hexdigest() != digest:  # type: ignore[arg-type]  # a reader of bytes is enough
                    raise PartError(f"blob {digest} is damaged", str(archive), "make the archive again")
                return member

            def document(member: tarfile.TarInfo) -> dict[str, Any]:
                stream = content.extractfile(member)
                return dict(json.load(stream)) if stream else {}

            manifest = document(blob(document(members["index.json"])["manifests"][0]))
            image = document(blob(manifest["config"]))
            layers = [
                Layer(archive, about["digest"].removeprefix("sha256:"), about["size"], diff.removeprefix("sha256:"),
                      blob(about).offset_data, about["mediaType"])
                for about, diff in zip(manifest["layers"], image["rootfs"]["diff_ids"], strict=True)
            ]  # fmt: skip
            return layers, dict(image["config"]), {key: image[key] for key in PLATFORM if key in image}
    except (OSError, LookupError, TypeError, AttributeError, ValueError, tarfile.TarError) as error:
        fix = "name the OCI archive of one image, as `skopeo copy` or lab.build.parts write it"
        raise PartError(f"got {error!r}, expected an OCI archive", str(archive), fix) from error


def manifest_digest(archive: Path) -> str:
    """The digest of the manifest in an OCI archive, sha256:…, once every blob is verified."""
    read_image(archive)
    with tarfile.open(archive, "r:") as content:
        name = next(name for name in content.getnames() if name.removeprefix("./") == "index.json")
        index = content.extractfile(name)
        return str(json.load(index)["manifests"][0]["digest"]) if index else ""


def write_image(
    target: Path, name: str, layers: list[Layer], config: dict[str, Any], platform: Mapping[str, str] | None = None
) -> str:
    """Write an OCI layout archive holding one image called `name`; return its manifest digest, sha256:…

    Without a platform, the image is for machines such as this one.
    """
    machine = os.uname().machine
    platform = platform or {"architecture": ARCHITECTURES.get(machine, machine), "os": "linux"}
    blobs: dict[str, bytes] = {}

    def blob(content: Any) -> dict[str, Any]:
        data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    rootfs = {"type": "layers", "diff_ids": [f"sha256:{layer.diff}" for layer in layers]}
    settings = {**platform, "config": config, "rootfs": rootfs}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(settings) | {"mediaType": "application/vnd.oci.image.config.v1+json"},
        "layers": [
            {"mediaType": layer.media_type, "digest": f"sha256:{layer.digest}", "size": layer.size} for layer in layers
        ],
    }
    head = blob(manifest) | {"mediaType": manifest["mediaType"], "platform": dict(platform)}
    named = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1]}
    index = {"schemaVersion": 2, "manifests": [head | {"annotations": named}]}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        small = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
        small |= {f"blobs/sha256/{digest}": data for digest, data in blobs.items()}
        for path, data in sorted(small.items()):
            archive.addfile(_entry(path, len(data), 0o644), io.BytesIO(data))
        for digest, layer in {layer.digest: layer for layer in layers}.items():
            with layer.path.open("rb") as content:
                content.seek(layer.offset)
                archive.addfile(_entry(f"blobs/sha256/{digest}", layer.size, 0o644), content)
    return str(head["digest"])
