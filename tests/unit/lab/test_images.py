"""OCI archives: valid, the same bytes every time, your own layer on top; and the images of a node's store."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lab.build.checkouts import note, used_by_others
from lab.build.image_store import (
    image_names,
    import_image,
    make_store,
    missing_images,
    names_in,
    place_store,
    record_images,
    store_folder,
)
from lab.build.oci_archive import Layer, read_image, write_image, write_layer
from lab.build.own_image import main, own_files, write_own_image
from lab.build.parts import Workshop, sweep_images
from lab.errors import LabError, PartError

EXAMPLE = Path(__file__).resolve().parents[3] / "lab/images/example"
CONFIG = {"Entrypoint": ["/pause"], "Env": ["PATH=/bin"], "User": "1000:1000"}


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "pause"
    path.write_bytes(b"\x7fELF" * 1000)
    path.chmod(0o700)
    return path


def archive(folder: Path, binary: Path, name: str = "example.org/a:1") -> tuple[Path, str]:
    folder.mkdir(exist_ok=True)
    layer = write_layer(folder / "layer.tar", {"/usr/bin/pause": binary})
    other = write_layer(folder / "other.tar", {"/other": binary}, {"/bin": "usr/bin"})
    return folder / "image.tar", write_image(folder / "image.tar", name, [layer, other], CONFIG)


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as content:
        return {member.name: stream.read() for member in content if (stream := content.extractfile(member))}


def check_layout(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verify the layout, every blob's name, size and diff id; return manifest and config."""
    files = contents(path)
    assert json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files.pop("index.json"))
    for name, data in files.items():
        assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"

    def blob(about: dict[str, Any]) -> bytes:
        data = files[f"blobs/sha256/{about['digest'].removeprefix('sha256:')}"]
        assert len(data) == about["size"]
        return data

    manifest = json.loads(blob(index["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    layers = [f"sha256:{hashlib.sha256(blob(layer)).hexdigest()}" for layer in manifest["layers"]]
    assert config["rootfs"] == {"type": "layers", "diff_ids": layers}
    assert len(files) == 2 + len(set(layers))
    return index, config


def test_an_archive_is_a_valid_layout(tmp_path: Path, binary: Path) -> None:
    path, digest = archive(tmp_path / "a", binary)
    index, config = check_layout(path)
    (head,) = index["manifests"]
    assert head["digest"] == digest
    assert head["annotations"]["io.containerd.image.name"] == "example.org/a:1"
    assert config["config"] == CONFIG
    assert config["architecture"] in ("amd64", "arm64")


def test_the_same_files_give_the_same_bytes_whatever_their_times(tmp_path: Path, binary: Path) -> None:
    first, digest = archive(tmp_path / "a", binary)
    os.utime(binary, (1, 1))
    second, again = archive(tmp_path / "b", binary)
    assert digest == again
    assert first.read_bytes() == second.read_bytes()
    binary.write_bytes(b"other")
    assert archive(tmp_path / "c", binary)[1] != digest


def test_a_layer_keeps_executable_bits_and_links_and_nothing_of_this_machine(tmp_path: Path, binary: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    plain.chmod(0o600)
    write_layer(tmp_path / "l.tar", {"/opt/a/run": binary, "/opt/a/plain": plain}, {"/usr/bin/sh": "busybox"})
    with tarfile.open(tmp_path / "l.tar") as layer:
        members = {member.name: member for member in layer}
    modes = {name: oct(member.mode) for name, member in members.items()}
    folders = {"opt": "0o755", "opt/a": "0o755"}
    assert modes == folders | {"opt/a/run": "0o755", "opt/a/plain": "0o644", "usr/bin/sh": "0o777"}
    assert members["usr/bin/sh"].issym()
    assert members["usr/bin/sh"].linkname == "busybox"
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members.values()} == {(0, 0, "", "", 0)}


def test_a_layer_used_twice_is_stored_once(tmp_path: Path, binary: Path) -> None:
    layer = write_layer(tmp_path / "l.tar", {"/a": binary})
    write_image(tmp_path / "i.tar", "example.org/a:1", [layer, layer], CONFIG)
    check_layout(tmp_path / "i.tar")


def test_your_own_image_is_the_base_and_a_layer(tmp_path: Path, binary: Path) -> None:
    base, _ = archive(tmp_path / "base", binary)
    digests = [write_own_image("example.org/mine:1", base, EXAMPLE / "mine", tmp_path / out) for out in ("1", "2")]
    assert digests[0] == digests[1]
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    index, config = check_layout(tmp_path / "1")
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == "example.org/mine:1"
    assert config["config"] == CONFIG | {"WorkingDir": "/opt/mine"}
    (*below, own), *_ = read_image(tmp_path / "1")
    assert [layer.digest for layer in below] == [layer.digest for layer in read_image(base)[0]]
    with (tmp_path / "1").open("rb") as stream:
        stream.seek(own.offset)
        with tarfile.open(fileobj=stream, mode="r|") as layer:
            script = next(m for m in layer if m.isreg())
            assert script.name == "opt/mine/train_mine.py"
            content = layer.extractfile(script)
            assert content
            assert content.read() == (EXAMPLE / "mine/train_mine.py").read_bytes()


def test_a_base_of_packed_layers_keeps_them(tmp_path: Path, binary: Path) -> None:
    packed = Layer(
        binary, hashlib.sha256(binary.read_bytes()).hexdigest(), binary.stat().st_size, "f" * 64, 0, "x+gzip"
    )
    write_image(tmp_path / "base.tar", "example.org/a:1", [packed], CONFIG)
    write_own_image("example.org/mine:1", tmp_path / "base.tar", EXAMPLE / "mine", tmp_path / "out.tar")
    first = read_image(tmp_path / "out.tar")[0][0]
    assert (first.digest, first.diff, first.media_type) == (packed.digest, "f" * 64, "x+gzip")


def test_hidden_files_and_caches_stay_out(tmp_path: Path) -> None:
    for name in ("a.py", "lib/b.py", ".git/config", "__pycache__/a.pyc", ".env"):
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert sorted(own_files(tmp_path / "mine")) == ["/opt/mine/a.py", "/opt/mine/lib/b.py"]
    assert sorted(own_files(tmp_path / "mine", "/usr/")) == ["/usr/a.py", "/usr/lib/b.py"]


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    """It was left out, and the job failed for want of it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/a.py").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "mine/linked").symlink_to("../other")
    with pytest.raises(PartError, match="got a link to a folder"):
        own_files(tmp_path / "mine")


def test_your_own_image_is_for_the_machines_that_its_base_is_for(tmp_path: Path, binary: Path) -> None:
    layer = write_layer(tmp_path / "l.tar", {"/a": binary})
    platform = {"architecture": "arm", "os": "linux", "variant": "v7"}
    write_image(tmp_path / "base.tar", "example.org/a:1", [layer], CONFIG, platform)
    write_own_image("example.org/mine:1", tmp_path / "base.tar", EXAMPLE / "mine", tmp_path / "out.tar")
    index, config = check_layout(tmp_path / "out.tar")
    assert index["manifests"][0]["platform"] == platform
    assert {key: config[key] for key in platform} == platform


def test_an_image_with_another_place_starts_where_its_base_does(tmp_path: Path, binary: Path) -> None:
    base, _ = archive(tmp_path / "base", binary)
    write_own_image("example.org/mine:1", base, EXAMPLE / "mine", tmp_path / "out", "/usr/local")
    assert check_layout(tmp_path / "out")[1]["config"] == CONFIG


@pytest.mark.parametrize("place", ["usr", "/usr/../etc"])
def test_a_place_that_is_not_one_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(PartError, match="expected an absolute path in the image"):
        own_files(tmp_path, place)


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (lambda base, _: base.write_text("no tar"), "expected an OCI archive"),
        (lambda base, _: base.write_bytes(base.read_bytes()[:3000]), "OCI archive"),
        (lambda base, _: base.write_bytes(base.read_bytes().replace(b"ELF", b"XXX", 1)), "is damaged"),
        (lambda base, _: base.unlink(), "got no such archive, nor a part"),
        (lambda _, folder: (folder / "a.py").unlink(), "got an empty folder"),
        (lambda _, folder: ((folder / "a.py").unlink(), folder.rmdir()), "got no such folder"),
    ],
    ids=["no tar", "cut off", "a changed bit", "no file", "empty folder", "no folder"],
)
def test_what_cannot_become_an_image_is_one_message(
    tmp_path: Path, binary: Path, capsys: pytest.CaptureFixture[str], break_it: Any, problem: str
) -> None:
    base, _ = archive(tmp_path / "base", binary)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a.py").write_text("x")
    break_it(base, folder)
    out = tmp_path / "out.tar"
    assert main(["example.org/mine:1", str(base), str(folder), str(out)]) == 1
    output = capsys.readouterr().err
    assert output.startswith("error: ")
    assert problem in output
    assert "Fix: " in output
    assert not list(tmp_path.glob("*out.tar*"))


def test_wrong_arguments_show_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one"]) == 2
    assert "usage: python -m lab.build.own_image NAME BASE FOLDER OUT.tar" in capsys.readouterr().err


@pytest.mark.parametrize("place", [[], ["/usr/local"]], ids=["", "at another place"])
def test_an_image_has_the_entry_point_that_is_asked_for(tmp_path: Path, binary: Path, place: list[str]) -> None:
    layer = write_layer(tmp_path / "layer.tar", {"/usr/bin/pause": binary})
    write_image(tmp_path / "base.tar", "example.org/a:1", [layer], CONFIG | {"Cmd": ["forever"]})
    words = ["example.org/mine:1", str(tmp_path / "base.tar"), str(EXAMPLE / "mine"), str(tmp_path / "out.tar"), *place]
    assert main([*words, "--entrypoint", "python3 -c 'print(1, 2)'"]) == 0
    config = check_layout(tmp_path / "out.tar")[1]["config"]
    assert (config["Entrypoint"], "Cmd" in config) == (["python3", "-c", "print(1, 2)"], False)
    assert config["User"] == CONFIG["User"]
    assert main(words) == 0
    config = check_layout(tmp_path / "out.tar")[1]["config"]
    assert (config["Entrypoint"], config["Cmd"]) == (["/pause"], ["forever"])


@pytest.mark.parametrize(("more", "code", "message"), [
    (["--entrypoint"], 2, "usage: "), (["--entrypoint", "a", "/usr"], 2, "usage: "), (["--entry", "a"], 2, "usage: "),
    (["--entrypoint", "python3 'a"], 1, "No closing quotation, expected a command"),
])  # fmt: skip
def test_an_entry_point_that_is_not_one_is_refused(
    tmp_path: Path, binary: Path, capsys: pytest.CaptureFixture[str], more: list[str], code: int, message: str
) -> None:
    base, _ = archive(tmp_path / "base", binary)
    words = ["example.org/mine:1", str(base), str(EXAMPLE / "mine"), str(tmp_path / "out.tar"), *more]
    assert main(words) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.tar").exists()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, binary: Path) -> None:
    base, _ = archive(tmp_path / "base", binary)
    with pytest.raises(PartError, match="No such file"):
        write_own_image("example.org/mine:1", base, EXAMPLE / "mine", tmp_path / "nowhere" / "out.tar")


IMAGES = [{"name": f"{name}:1", "archive": f"{name}.tar", "digest": f"sha256:{at}"} for at, name in enumerate("ab", 1)]


def store(folder: Path) -> Path:
    for name, content in (
        ("io.containerd.metadata.v1.bolt/meta.db", "database"),
        ("io.containerd.snapshotter.v1.overlayfs/metadata.db", "snapshots"),
        (f"{LAYERS}/1/fs/bin/sh", "shell"),
        (f"{BLOBS}/one", "blob"),
    ):
        path = folder / "root" / name
        path.parent.mkdir(parents=True)
        path.write_text(content)
    (folder / "images.json").write_text(json.dumps({"a:1": "sha256:1"}))
    return folder


LAYERS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
BLOBS = "io.containerd.content.v1.content/blobs/sha256"


def test_a_node_gets_links_to_blobs_and_layers_and_databases_of_its_own(tmp_path: Path) -> None:
    source, node = store(tmp_path / "stores/0"), tmp_path / "node" / "containerd"
    assert place_store(source, node, f"{tmp_path}/stores")
    assert (node / BLOBS / "one").samefile(source / "root" / BLOBS / "one")
    assert (node / LAYERS / "1/fs/bin/sh").read_text() == "shell"
    (node / "io.containerd.metadata.v1.bolt/meta.db").write_text("changed by the node")
    assert (source / "root/io.containerd.metadata.v1.bolt/meta.db").read_text() == "database"
    assert not place_store(source, node, f"{tmp_path}/stores")
    assert (node / "io.containerd.metadata.v1.bolt/meta.db").read_text() == "changed by the node"


def test_files_that_a_node_removes_stay_in_the_store(tmp_path: Path) -> None:
    source, node = store(tmp_path / "stores/0"), tmp_path / "node"
    place_store(source, node, f"{tmp_path}/stores")
    shutil.rmtree(node)
    assert (source / "root" / LAYERS / "1/fs/bin/sh").exists()


def test_a_half_placed_store_is_placed_again(tmp_path: Path) -> None:
    node = tmp_path / "node"
    (node / "left").mkdir(parents=True)
    assert place_store(store(tmp_path / "stores/0"), node, f"{tmp_path}/stores")
    assert not (node / "left").exists()


def test_a_node_on_another_file_system_gets_a_complete_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    source, node = store(tmp_path / "stores/0"), tmp_path / "node"
    assert place_store(source, node, "/nowhere")
    assert (node / LAYERS / "1/fs/bin/sh").read_text() == "shell"


def test_a_store_stays_while_a_node_has_its_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.build.image_store._containerd", lambda *_: contextlib.nullcontext([]))
    stores, node = tmp_path / "stores", tmp_path / "node"
    place_store(store(stores / "0"), node, str(stores))
    make_store(stores / "1", IMAGES[:1], tmp_path, print)
    assert (node / LAYERS / "1/fs/bin/sh").exists()
    shutil.rmtree(node)
    make_store(stores / "2", IMAGES[:1], tmp_path, print)
    assert [path.name for path in stores.iterdir()] == ["2"]
    make_store(stores / "3", IMAGES[:1], tmp_path, print, {stores / "2"})  # another checkout uses that one
    assert sorted(path.name for path in stores.iterdir()) == ["2", "3"]


def test_a_node_is_given_what_it_lacks_or_has_in_another_version(tmp_path: Path) -> None:
    assert missing_images(tmp_path, IMAGES) == IMAGES
    record_images(tmp_path, IMAGES[:1])
    assert missing_images(tmp_path, IMAGES) == IMAGES[1:]
    record_images(tmp_path, IMAGES[1:])
    assert missing_images(tmp_path, IMAGES) == []
    assert missing_images(tmp_path, IMAGES, {IMAGES[1]["name"]}) == IMAGES[:1], "it was removed from containerd"
    assert missing_images(tmp_path, IMAGES, {image["name"] for image in IMAGES}) == []
    own = {"name": "/srv/mine.tar", "archive": "/srv/mine.tar", "digest": "sha256:7"}
    record_images(tmp_path, [own])
    assert missing_images(tmp_path, [own], set()) == [], "containerd has it under the name in the archive"
    newer = [{"name": "a:1", "digest": "sha256:9"}]
    assert missing_images(tmp_path, newer) == newer
    assert [path.name for path in tmp_path.iterdir()] == ["images.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00\x00"])
def test_d2_a_record_that_cannot_be_read_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "images.json").write_text(text)
    assert missing_images(tmp_path, IMAGES) == IMAGES
    record_images(tmp_path, IMAGES)
    assert missing_images(tmp_path, IMAGES) == []
    (store(tmp_path / "stores/0") / "images.json").write_text(text)
    assert store_folder(IMAGES, tmp_path) != tmp_path / "stores/0"


def test_d2_a_prepared_store_whose_record_is_torn_is_made_again_unless_a_node_runs_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.build.image_store._containerd", lambda *_: contextlib.nullcontext([]))
    monkeypatch.setattr("lab.build.image_store.import_image", lambda *_: None)
    monkeypatch.setattr(Workshop, "_step", lambda *_: None)
    parts = Workshop.__new__(Workshop)
    parts.home, parts.say = tmp_path, print
    folder = store_folder(IMAGES, tmp_path)
    store(tmp_path / "stores/0")
    assert parts.store(IMAGES, tmp_path) == folder
    record = folder / "images.json"
    whole = record.read_text()
    record.write_text(whole[:9])
    parts.store(IMAGES, tmp_path)
    assert record.read_text() == whole
    record.write_text("")
    (tmp_path / "node").hardlink_to(record)
    parts.store(IMAGES, tmp_path)
    assert not record.read_text(), "its layers stay where they are"


def test_outdated_archives_are_removed_and_those_of_other_parts_stay(tmp_path: Path) -> None:
    today, yesterday, other = (tmp_path / "images" / f"{name}-{key * 16}" for name, key in
                               (("trainer", "a"), ("trainer", "b"), ("trainer-mine", "c")))  # fmt: skip
    for folder in (today, yesterday, other):
        folder.mkdir(parents=True)
    sweep_images(tmp_path, ["trainer"], [{"archive": str(today / "image.tar")}])
    assert sorted((tmp_path / "images").iterdir()) == sorted([today, other])


def test_what_another_checkout_uses_stays_until_it_uses_something_else_or_is_gone(tmp_path: Path) -> None:
    mine, other, lonely = (tmp_path / name for name in ("mine", "other", "lonely"))
    for checkout in (mine, other, lonely):
        (checkout / "lab").mkdir(parents=True)
        (checkout / "lab/versions.yml").touch()
    folders = {key: tmp_path / "images" / f"trainer-{key * 16}" for key in "abcd"}
    for folder in folders.values():
        folder.mkdir(parents=True)

    def use(checkout: Path, key: str, **more: str) -> None:
        note(tmp_path, {"images": [{"archive": str(folders[key] / "image.tar")}], **more}, checkout)

    def sweep() -> str:
        archive = str(folders["a"] / "image.tar")
        sweep_images(tmp_path, ["trainer"], [{"archive": archive}])
        return "".join(key for key, folder in folders.items() if folder.exists())

    use(mine, "d")  # this is another checkout than the one that runs here
    use(other, "b", store=str(tmp_path / "stores/1"))
    use(lonely, "c")
    assert sweep() == "abcd"
    assert used_by_others(tmp_path, mine) == {folders["b"], folders["c"], tmp_path / "stores/1"}
    use(mine, "a")
    shutil.rmtree(lonely)
    assert sweep() == "ab"
    note(tmp_path, {"images": []}, other)  # a build of other parts
    assert sweep() == "ab"
    assert not note(tmp_path, {"images": []}, other), "it says the same"
    (tmp_path / "checkouts/half.json").write_text("{")
    use(other, "a")
    assert sweep() == "a"
    assert tmp_path / "stores/1" in used_by_others(tmp_path, mine)


def test_d15_each_image_of_a_part_stays_while_another_checkout_uses_it(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "lab").mkdir(parents=True)
    (other / "lab/versions.yml").touch()
    folders = [tmp_path / "images" / f"volcano-{key * 16}" for key in "abc"]
    for folder in folders:
        folder.mkdir(parents=True)
    images = [{"archive": str(folder / "image.tar")} for folder in folders]
    assert note(tmp_path, {"images": images[:2]}, other)
    assert not note(tmp_path, {"images": images[1::-1]}, other)
    sweep_images(tmp_path, ["volcano"], [])
    assert [folder.exists() for folder in folders] == [True, True, False]
    note(tmp_path, {"images": images[:1]}, other)
    sweep_images(tmp_path, ["volcano"], [])
    assert [folder.exists() for folder in folders] == [True, False, False]


def test_d6_two_runs_of_a_checkout_that_note_at_once_both_succeed(tmp_path: Path) -> None:
    def run(number: int) -> bool:
        return note(tmp_path, {"images": [{"archive": str(tmp_path / f"images/part-{number}/image.tar")}]})

    with ThreadPoolExecutor(8) as pool:
        assert any(pool.map(run, range(400)))


def loaded(archive: Path, **files: object) -> dict[str, str]:
    """What lab-load is given: an archive with these files."""
    with tarfile.open(archive, "w") as content:
        for name, value in files.items():
            data = json.dumps(value).encode()
            about = tarfile.TarInfo(f"{name}.json")
            about.size = len(data)
            content.addfile(about, io.BytesIO(data))
    return {"name": str(archive), "archive": str(archive), "digest": archive.name}


@pytest.mark.parametrize("files", [
    {"index": {"manifests": [{"annotations": {"io.containerd.image.name": "example.org/mine:1"}}]}},
    {"manifest": [{"RepoTags": ["mine:1"]}, {"RepoTags": None}]},
], ids=["oci", "docker"])  # fmt: skip
def test_an_archive_is_loaded_again_after_another_with_an_image_of_the_same_name(
    tmp_path: Path, files: dict[str, object]
) -> None:
    """Otherwise the nodes would keep the image of the second, without a word."""
    node = tmp_path / "node"
    node.mkdir()
    first, second = (loaded(tmp_path / name, **files) for name in ("first.tar", "second.tar"))
    other = loaded(tmp_path / "other.tar", manifest=[{"RepoTags": ["other:1"]}])
    for image in (first, second, other):
        assert missing_images(node, [image]) == [image]
        record_images(node, [image])
    assert missing_images(node, [second, other]) == []
    assert missing_images(node, [first]) == [first]
    record_images(node, [first])
    assert missing_images(node, [first, other]) == []
    assert missing_images(node, [second]) == [second]


def test_an_archive_of_another_form_is_left_to_containerd(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"no archive")
    loaded(tmp_path / "list.tar", index=[1])
    loaded(tmp_path / "empty.tar")
    assert {names_in(tmp_path / name) for name in ("none", "bytes", "list.tar", "empty.tar")} == {()}


def test_c6_a_layer_is_on_the_disk_before_containerd_takes_it_for_unpacked(tmp_path: Path) -> None:
    """Of a layer that it has, containerd unpacks nothing: a file that a power cut emptied would stay empty."""
    (tmp_path / "a.tar").write_text("archive")
    script = f"import sys; open({str(tmp_path / 'words')!r}, 'w').write(' '.join(sys.argv[1:]) + sys.stdin.read())"
    import_image([sys.executable, "-c", script], tmp_path / "a.tar")
    assert (tmp_path / "words").read_text() == "images import --local --sync-fs -archive"


def test_a_containerd_that_does_not_answer_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("LIST_S", "IMPORT_S"):
        monkeypatch.setattr(f"lab.build.image_store.{limit}", 0.2)
    (tmp_path / "a.tar").write_text("archive")
    ctr = [sys.executable, "-c", "import time; time.sleep(20)"]
    with pytest.raises(LabError, match=r"containerd: got `.* images ls .*, expected its end within 0 s\. Fix: "):
        image_names(ctr)
    with pytest.raises(LabError, match=r"a\.tar: got `.* images import .*, expected its end within 0 s\. Fix: "):
        import_image(ctr, tmp_path / "a.tar")
