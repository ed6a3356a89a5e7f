"""fetch: the program that runs in the pod is started here for real; the pods themselves are tests/cluster's."""

from __future__ import annotations

import base64
import dataclasses
import fcntl
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import LOST_NODE
from gangplank.cluster import fetch, in_pod, landing, reader, starting
from gangplank.cluster.landing import PARTS, RECORD, File, Landing
from gangplank.errors import GangplankError, KubeError, Unreadable
from gangplank.jobs.parse import parse_job
from gangplank.k8s.nodes import UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Json = dict[str, Any]
KUBE: Any = None  # no cluster is asked: `Pods` takes its place
VOLUMES = [{"claim": "data", "mount": "/data", "on": "master"}]
ODD = "a $(HOME) $$ \n ü.bin"


def job(folder: str = "/data/out", **more: Any) -> Json:
    """A job whose output is a folder of a claim."""
    fields = {"name": "digits", "image": "img", "script": "/a.py", "output": folder, "volumes": VOLUMES, **more}
    return BACKENDS["volcano"].manifests(parse_job(fields))[-1]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A job's output."""
    folder = tmp_path / "out"
    (folder / "checkpoints/step-1").mkdir(parents=True)
    (folder / "model.bin").write_bytes(random.Random(1).randbytes(3 * 10**5))
    (folder / "checkpoints/step-1/state.json").write_text("{}")
    (folder / "checkpoints/step-1/same.json").write_text("{}")
    (folder / "empty").write_text("")
    (folder / ODD).write_text("odd")
    return folder


class Pods:
    """Runs each container's program as a process here, with the claim's folder where it really is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.commands, self.fails_at = folder, list[list[str]](), -1

    def outputs(self, _kube: object, _job: Json, commands: Sequence[Sequence[str]]) -> Iterator[tuple[list[Json], str]]:
        for command in commands:
            *_, text, what, place, argument = (word.replace("$$", "$") for word in command)
            assert place == "/data/out"
            self.commands.append([what, argument])
            if len(self.commands) == self.fails_at:
                raise fetch.IncompleteError("the pod is gone")
            line = [sys.executable, "-ISc", text, what, str(self.folder), argument]
            done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
            lines = list(map(json.loads, done.stdout.splitlines()))
            if "got" in lines[-1]:
                raise GangplankError(f"{lines[-1]['got']}, {lines[-1]['expected']}")
            yield lines, "pod"


@pytest.fixture
def pods(source: Path, monkeypatch: pytest.MonkeyPatch) -> Pods:
    """The pods of the module's functions."""
    pods = Pods(source)
    monkeypatch.setattr(fetch, "outputs", pods.outputs)
    monkeypatch.setattr(fetch, "check", lambda *_: None)
    monkeypatch.setattr(fetch, "remove_ended", lambda *_: None)
    monkeypatch.setattr(fetch, "PIECE", 10**5)
    return pods


def fetched(folder: Path, below: str = "", *replace: str, owner: str = "team/job") -> fetch.Fetched:
    """Fetch into a folder."""
    with Landing(folder, owner) as target:
        return fetch.fetch(KUBE, job(), below, target, lambda *_: None, replace)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without the record of what was brought."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parts[-2:] != (PARTS, RECORD)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_every_file_arrives_as_it_is_and_what_is_there_is_not_sent_again(
        source: Path, pods: Pods, tmp_path: Path) -> None:
    result = fetched(tmp_path / "here")
    assert contents(tmp_path / "here") == contents(source)
    assert len(result.new) == len(result.files) == 5
    assert [what for what, _ in pods.commands] == ["list", *["send"] * 4], "pieces are bounded"
    (source / "empty").write_text("no more")
    (tmp_path / "here/model.bin").unlink()
    assert {file.name for file in fetched(tmp_path / "here").new} == {"empty", "model.bin"}
    assert contents(tmp_path / "here") == contents(source), "what the command itself has brought is replaced"


def test_a_file_of_the_user_s_is_replaced_only_if_it_is_named(source: Path, pods: Pods, tmp_path: Path) -> None:
    here = tmp_path / "here"
    fetched(here)
    (here / "empty").write_text("edited here")
    (here / "model.bin").write_bytes(b"")
    (source / "new.txt").write_text("new")
    (here / "new.txt").write_text("mine")
    before = contents(here)
    pods.commands.clear()
    with pytest.raises(GangplankError, match=r"here: got 3 files that this command did not write, or that changed "
                       r"since: empty, model\.bin, new\.txt, expected none .*--replace"):
        fetched(here)
    assert (contents(here), [what for what, _ in pods.commands]) == (before, ["list"]), "nothing was sent"
    with pytest.raises(GangplankError, match=r"got 1 file that .*: empty, expected"):
        fetched(here, "", "model.bin", "new.txt")
    with pytest.raises(GangplankError, match=r"got 1 file that .*: empty, expected"):
        fetched(here, "empty", "model.bin")
    fetched(here, "", "model.bin", "new.txt", "empty")
    assert contents(here) == contents(source)
    (here / "checkpoints/step-1/state.json").write_text("mine")
    fetched(here, "checkpoints", "checkpoints/")
    assert contents(here) == contents(source)


def test_what_was_brought_for_another_job_is_not_replaced(source: Path, pods: Pods, tmp_path: Path) -> None:
    here = tmp_path / "here"
    fetched(here)
    (source / "empty").write_text("of the other job")
    with pytest.raises(GangplankError, match=r"got 1 file that .*: empty, expected"):
        fetched(here, owner="team/other")
    assert pods.commands
    assert [file.name for file in fetched(here).new] == ["empty"]


def test_what_is_written_here_while_a_file_is_sent_stays(source: Path, pods: Pods, tmp_path: Path) -> None:
    here = tmp_path / "here"
    fetched(here)
    for name in ("empty", "model.bin"):
        (source / name).write_text(f"new {name}")
    (source / "new.txt").write_text("new")

    def write(phase: str, *_: object) -> None:
        if phase == "fetches":
            (here / "model.bin").write_text("mine")
            (here / "new.txt").write_text("mine")
            (here / "empty").unlink(missing_ok=True)

    with Landing(here, "team/job") as target:
        result = fetch.fetch(KUBE, job(), "", target, write)
    assert set(result.left) == {"model.bin", "new.txt"}
    assert "was written here meanwhile, and stays" in result.left["new.txt"]
    assert [(here / name).read_text() for name in ("model.bin", "new.txt", "empty")] == ["mine", "mine", "new empty"]
    assert pods.commands


def test_a_folder_of_before_the_record_is_taken_over_where_it_is_as_the_output(
    source: Path, pods: Pods, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    shutil.copytree(source, here)
    assert not fetched(here).new
    (source / "empty").write_text("more")
    assert [file.name for file in fetched(here).new] == ["empty"]
    assert pods.commands


def test_a_file_is_read_once_however_often_it_was_brought(
    source: Path, pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    for turn in range(6):
        (source / "empty").write_text(str(turn))
        fetched(here, "empty")
    assert len((here / PARTS / RECORD).read_text().splitlines()) == 1
    reads, digest = list[object](), hashlib.file_digest

    def counted(opened: Any, name: str) -> Any:
        reads.append(opened)
        return digest(opened, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    with Landing(here, "team/job") as target:
        assert target.others(["empty"]) == []
    assert len(reads) == 1
    assert pods.commands


def test_the_record_of_what_was_brought_outlives_a_line_that_was_cut(pods: Pods, tmp_path: Path, source: Path) -> None:
    here = tmp_path / "here"
    fetched(here, "model.bin")
    with (here / PARTS / RECORD).open("a") as record:
        record.write('\n[["a"], 1, "b", {}]\n["a", "b", "c", "d"]\n["emp')
    fetched(here, "empty")
    (source / "empty").write_text("a")
    (source / "model.bin").write_text("b")
    assert {file.name for file in fetched(here).new} >= {"empty", "model.bin"}
    assert pods.commands


@pytest.mark.parametrize(("path", "names"), [
    ("model.bin", ["model.bin"]), ("checkpoints", ["checkpoints/step-1/same.json", "checkpoints/step-1/state.json"])])
def test_a_path_selects_a_file_or_a_folder(pods: Pods, tmp_path: Path, path: str, names: list[str]) -> None:
    assert sorted(file.name for file in fetched(tmp_path / "here", path).files) == names
    assert sorted(contents(tmp_path / "here")) == names
    assert pods.commands


@pytest.mark.parametrize("path", ["..", "../secret", "/etc/passwd", "out-link/passwd"])
def test_a_path_out_of_the_output_is_refused(source: Path, pods: Pods, tmp_path: Path, path: str) -> None:
    (source / "out-link").symlink_to("/etc")
    with pytest.raises(GangplankError, match="leads out of the output"):
        fetched(tmp_path / "here", path)
    assert (contents(tmp_path / "here"), len(pods.commands)) == ({}, 1)


def test_a_fetch_that_was_interrupted_continues(source: Path, pods: Pods, tmp_path: Path) -> None:
    def killed(_phase: str, done: int, _total: int) -> None:
        if done == 2 * 10**5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Landing(tmp_path / "here") as target:
        fetch.fetch(KUBE, job(), "model.bin", target, killed)
    assert not (tmp_path / "here/model.bin").exists(), "a part is not taken for the file"
    pods.commands.clear()
    fetched(tmp_path / "here", "model.bin")
    assert [json.loads(text) for what, text in pods.commands if what == "send"] == [[["model.bin", 2 * 10**5, 10**5]]]
    assert contents(tmp_path / "here") == {"model.bin": (source / "model.bin").read_bytes()}


@pytest.mark.parametrize("age_s", [60, 2 * 24 * 3600])
def test_what_another_command_has_begun_stays_for_a_day(pods: Pods, tmp_path: Path, age_s: float) -> None:
    """A fetch of one file threw away what had arrived of all others."""
    with Landing(tmp_path / "here", "team/other") as target:
        large = File("large.bin", 10**6, "f" * 64)
        target.write(large, 0, b"a" * 10**5)
    part = tmp_path / "here" / PARTS / large.part
    os.utime(part, (time.time() - age_s,) * 2)
    fetched(tmp_path / "here", "empty")
    assert part.exists() == (age_s < 24 * 3600)
    assert pods.commands


def test_a_lost_pod_is_replaced_and_one_that_is_lost_each_time_is_not(pods: Pods, tmp_path: Path) -> None:
    pods.fails_at = 3
    assert len(fetched(tmp_path / "here").new) == 5

    def lost(*_: object) -> Iterator[tuple[list[Json], str]]:
        pods.commands.append([])
        raise fetch.IncompleteError("the pod is gone")

    listing = fetch.read_list(KUBE, job(), "model.bin")
    with pytest.MonkeyPatch.context() as patch, Landing(tmp_path / "there") as target:
        patch.setattr(fetch, "read_list", lambda *_: listing)
        patch.setattr(fetch, "outputs", lost)
        pods.commands.clear()
        with pytest.raises(fetch.IncompleteError):
            fetch.fetch(KUBE, job(), "", target, lambda *_: None)
    assert len(pods.commands) == fetch.TRIES


@pytest.mark.parametrize(
    ("state", "expected"), [("running", "a: got no end, expected its end"), ("waiting", "does not answer .*its start")])
def test_a_pod_on_a_node_that_is_lost_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, state: str, expected: str
) -> None:
    """The API server shows it as it was, for as long as the node does not answer."""

    def waits(*_: float) -> Iterator[float]:
        yield from (0.0, 1.0)
        pytest.fail("it waits without end")

    for module, name in ((fetch, "START_S"), (starting, "START_S"), (starting, "LOOK_S")):
        monkeypatch.setattr(module, name, 0)
    monkeypatch.setattr(fetch, "DEADLINE_S", 0.5)
    monkeypatch.setattr(fetch, "polls", waits)
    status = {"phase": "Running", "containerStatuses": [{"name": "reader", "state": {state: {}}}]}
    spec = {"nodeName": "node-1", "containers": [{"image": "img"}], "taints": [{"key": UNREACHABLE}]}
    pod = {"metadata": {"namespace": "default", "name": "a", "uid": "u"}, "spec": spec, "status": status}
    kube: Any = SimpleNamespace(get=lambda _: pod, call=lambda *_, **__: {"items": []})
    with pytest.raises(KubeError, match=expected):
        fetch.ended(kube, pod, "reader")


def test_a_file_that_changes_while_it_is_read_is_not_kept(
        pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def old(*arguments: Any) -> fetch.Fetched:
        listing = read_list(*arguments)
        listing.files = [dataclasses.replace(file, sha256=64 * "0") if file.name == "model.bin" else file
                         for file in listing.files]
        return listing

    read_list = fetch.read_list
    monkeypatch.setattr(fetch, "read_list", old)
    result = fetched(tmp_path / "here")
    assert "changed while it was read" in result.left["model.bin"]
    assert "model.bin" not in contents(tmp_path / "here")
    assert len(result.new) == 4
    assert pods.commands
    assert [*(tmp_path / "here" / PARTS).iterdir()] == [tmp_path / "here" / PARTS / RECORD]


def test_links_are_neither_followed_nor_made(source: Path, pods: Pods, tmp_path: Path) -> None:
    (source / "latest").symlink_to("checkpoints/step-1")
    (source / "passwd").symlink_to("/etc/passwd")
    (source / "etc").symlink_to("/etc")
    (source / "nothing").symlink_to("nowhere")
    os.mkfifo(source / "pipe")
    result = fetched(tmp_path / "here")
    assert result.links == ["latest"]
    assert result.left == {
        "passwd": "link out of it", "etc": "link out of it", "nothing": "link to nothing", "pipe": "not a file"}
    assert len(contents(tmp_path / "here")) == 5
    assert pods.commands


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a//b", "", ".", f"{PARTS}/a", "a\0b", "a" * 256])
def test_a_name_that_is_not_safe_here_is_not_written(
        pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    line = {"file": name, "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    monkeypatch.setattr(fetch, "outputs", lambda *_: iter([([line, {"end": 1}], "pod")]))
    result = fetched(tmp_path / "here")
    assert (result.files, list(result.left)) == ([], [name])
    assert landing.problem(name)
    assert [*tmp_path.rglob("*")] == [tmp_path / "here", tmp_path / "out", *(tmp_path / "out").rglob("*")]
    assert not pods.commands


def test_a_link_in_the_target_is_replaced_or_refused_but_not_followed(pods: Pods, tmp_path: Path) -> None:
    outside, here = tmp_path / "outside", tmp_path / "here"
    outside.mkdir()
    here.mkdir()
    (outside / "model.bin").write_text("precious")
    (here / "model.bin").symlink_to(outside / "model.bin")
    with pytest.raises(GangplankError, match=r"did not write.*: model\.bin"):
        fetched(here, "model.bin")
    assert (here / "model.bin").is_symlink()
    fetched(here, "model.bin", "model.bin")
    assert (outside / "model.bin").read_text() == "precious"
    assert not (here / "model.bin").is_symlink()
    (here / "checkpoints").symlink_to(outside)
    with pytest.raises(Unreadable, match=r"here/checkpoints/step-1/same\.json: got .*, expected a place that"):
        fetched(here, "checkpoints")
    assert [*outside.rglob("*")] == [outside / "model.bin"]
    assert pods.commands


def test_one_command_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    with Landing(tmp_path / "a"), pytest.raises(GangplankError, match="got another `gangplank fetch`"), \
            Landing(tmp_path / "a"):
        pass
    with Landing(tmp_path / "a"):
        pass
    assert [*tmp_path.rglob("*")] == [tmp_path / "a"]


def test_a_command_that_begins_as_another_ends_writes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opened the folder of parts, which the other one then removed."""
    first, lock = Landing(tmp_path).__enter__(), fcntl.flock

    def late(*words: Any) -> None:
        monkeypatch.undo()
        first.__exit__()
        lock(*words)

    monkeypatch.setattr(fcntl, "flock", late)
    file = File("a", 4, hashlib.sha256(b"data").hexdigest())
    with Landing(tmp_path) as target:
        target.write(file, 0, b"data")
        assert target.finish(file)
        with pytest.raises(GangplankError, match="got another `gangplank fetch`"), Landing(tmp_path):
            pass
    assert contents(tmp_path) == {"a": b"data"}
    assert not (tmp_path / PARTS).exists()


def test_what_does_not_fit_is_refused_before_a_byte_is_sent(
        pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Landing, "free", lambda _: 10)
    with pytest.raises(GangplankError, match="got 10 bytes of free space, expected 300007 bytes for the files"):
        fetched(tmp_path / "here")
    assert [what for what, _ in pods.commands] == ["list"]


@pytest.mark.parametrize("line", [
    {"file": "a", "size": "1", "sha256": 64 * "0"}, {"file": "a", "size": -1, "sha256": 64 * "0"},
    {"file": "a", "size": 1, "sha256": "../b"}, {"file": 7, "size": 1, "sha256": 64 * "0"}, {"left": 1}, {"x": {}}])
def test_a_line_that_the_program_does_not_print_is_no_file(
        monkeypatch: pytest.MonkeyPatch, line: Json) -> None:
    lines = [line, {"end": 1 if "file" in line else 0}]
    monkeypatch.setattr(fetch, "outputs", lambda *_: iter([(lines, "pod")]))
    result = fetch.read_list(KUBE, job(), "")
    assert (result.files, result.left) == ([], {})


def test_a_list_that_is_cut_is_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "outputs", lambda *_: iter([([{"end": 1}], "pod")]))
    with pytest.raises(fetch.IncompleteError):
        fetch.read_list(KUBE, job(), "")


def test_a_list_too_long_for_a_log_is_refused(
        source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(in_pod, "MOST", 300)
    assert in_pod.main("list", str(source), "") == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["got"].startswith("more than ")


def test_many_small_files_travel_in_bounded_commands() -> None:
    files = [(File(f"{number:050}", 1, ""), 0) for number in range(2000)]
    batch = fetch.pieces(files)
    assert sum(map(len, batch)) == 2000
    assert max(len(json.dumps([[file.name, 0, 1] for file, _, _ in piece])) for piece in batch) <= fetch.COMMAND


@pytest.mark.parametrize(("change", "place"), [
    ({}, "claim data, /data/out"), ({"output": "/data"}, "claim data, /data"),
    ({"output": ""}, None), ({"volumes": []}, None), ({"output": "s3://runs/a", "volumes": []}, "s3://runs/a")])
def test_where_the_output_is(change: Json, place: str | None) -> None:
    output = reader.output_of(job(**change))
    assert (str(output) if output else None) == place


def test_the_nearest_of_two_mounts_has_the_output() -> None:
    volumes = [{**VOLUMES[0], "claim": "all"}, {**VOLUMES[0], "claim": "out", "mount": "/data/out"}]
    output = reader.output_of(job("/data/out/a", volumes=volumes))
    assert output
    assert output.claim == "out"


def test_the_pod_of_a_team_s_job_reads_only_and_ends_by_itself() -> None:
    manifest = job(team="vision", secrets=["keys"])
    pod = reader.reader(manifest, "fetch", "-abcdef", [["a"], ["b"], ["c"]])
    assert pod
    spec = pod["spec"]
    assert [item["command"] for item in [*spec["initContainers"], *spec["containers"]]] == [["a"], ["b"], ["c"]]
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert [mount["readOnly"] for mount in container["volumeMounts"]] == [True]
        assert "envFrom" not in container, "it needs no secret to read a claim"
        assert container["resources"]["limits"] == reader.READER_LIMITS
    assert spec["activeDeadlineSeconds"] == reader.DEADLINE_S
    assert spec["schedulerName"] == "volcano"
    assert spec["tolerations"] == [*LOST_NODE]
    assert "ownerReferences" not in pod["metadata"], "the teams' admission refuses a member's"
    assert pod["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "gangplank"}


def test_the_pod_that_reads_a_bucket_gets_what_reaches_it_and_nothing_else() -> None:
    env = {"AWS_ENDPOINT_URL": "http://s3", "MY_TOKEN": "x"}
    pod = reader.reader(job("s3://runs/a", volumes=[], secrets=["keys"], env=env), "fetch", "", [["a"]])
    assert pod
    (container,) = pod["spec"]["containers"]
    assert [item["name"] for item in container["env"]] == ["NVIDIA_VISIBLE_DEVICES", "AWS_ENDPOINT_URL"]
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert "volumes" not in pod["spec"]


def test_the_pod_that_reads_a_bucket_of_a_team_s_gpu_job_keeps_off_the_gpu_nodes() -> None:
    others = [{"key": "a", "operator": "Exists"}]
    more = {"resources": {"gpus": 1}, "node_selector": {"gpu": "yes"}, "tolerations": others, "team": "vision"}
    gpus = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    pod = reader.reader(job("s3://runs/a", volumes=[], gpu_tolerations=gpus, **more), "fetch", "", [["a"]])
    assert pod
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == reader.BUCKET_MEMORY
    assert [item["key"] for item in pod["spec"]["tolerations"]] == ["a", *(item["key"] for item in LOST_NODE)], \
        "the admission lets only the small pod of a claim tolerate nvidia.com/gpu"
    assert "nodeSelector" not in pod["spec"]


@pytest.mark.parametrize(("claim", "error", "message"), [
    ("", GangplankError, "job digits: got no output that outlives its pods, expected an `output` on a volume claim"),
    ("/data/out", KubeError, "claim default/data: got nothing, expected the claim of this job's output")])
def test_a_job_without_an_output_or_whose_claim_is_gone_is_refused(
        claim: str, error: type[GangplankError], message: str) -> None:
    empty: Any = SimpleNamespace(get=lambda _: None)
    with pytest.raises(error, match=message):
        fetch.check(empty, job(claim))


READS: Json = {"containers": [{"name": reader.READER}]}


def test_a_reader_whose_command_was_killed_goes_with_its_job_and_no_other_pod_does() -> None:
    names = {"digits-fetch-abcdef": READS, "digits-evidence-abcdef": READS, "digits-other-fetch-abcdef": READS,
             "digits-worker-abcdef": {"containers": [{"name": "worker"}]}}
    pods = [{"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec,
             "status": {"phase": "Running"}} for name, spec in names.items()]
    kube: Any = SimpleNamespace(items=lambda *_: pods, delete_at=Mock())
    job = {"metadata": {"name": "digits", "namespace": "default"}}
    reader.remove_ended(kube, job)
    assert not kube.delete_at.called, "it may be a command that reads"
    reader.remove_ended(kube, job, also_running=True)
    assert [call.args[1] for call in kube.delete_at.call_args_list] == ["digits-fetch-abcdef", "digits-evidence-abcdef"]


def test_who_may_not_remove_an_earlier_command_s_pod_is_not_stopped_by_it() -> None:
    meta = {"name": "digits-fetch-abcdef", "namespace": "default", "uid": "u"}
    pod = {"metadata": meta, "spec": READS, "status": {"phase": "Succeeded"}}
    kube: Any = SimpleNamespace(
        items=lambda *_: [pod], delete_at=Mock(side_effect=[
            KubeError("cannot delete", 403), KubeError("no answer", 500)]))
    reader.remove_ended(kube, {"metadata": {"name": "digits", "namespace": "default"}}, "fetch")
    with pytest.raises(KubeError, match="no answer"):
        reader.remove_ended(kube, {"metadata": {"name": "digits", "namespace": "default"}}, "fetch")
    assert kube.delete_at.call_count == 2


def test_checkpoints_that_the_job_removes_meanwhile_are_left_out(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
        for name in ("evidence.jsonl", "state.json"):
            (tmp_path / f"step-{step}" / name).write_bytes(b"x" * 9)
    described = in_pod.described

    def rotated(source: Any, name: str) -> dict[str, Any]:
        line = described(source, name)
        if name == "step-1/evidence.jsonl":
            shutil.rmtree(tmp_path / "step-1")
        return line

    monkeypatch.setattr(in_pod, "described", rotated)
    assert in_pod.main("list", str(tmp_path), "") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("file") or line.get("left") or line["end"] for line in lines] == [
        "step-1/evidence.jsonl", "step-1/state.json", "step-2/evidence.jsonl", "step-2/state.json", 3]  # fmt: skip
    (tmp_path / "step-2/state.json").write_bytes(b"x")
    wanted = [["step-1/evidence.jsonl", 0, 9], ["step-2/state.json", 0, 9], ["step-2/evidence.jsonl", 0, 9]]
    assert in_pod.main("send", str(tmp_path), json.dumps(wanted)) == 0
    *lines, _ = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    data = b"".join(base64.b64decode(line["data"]) for line in lines)
    assert data == bytes(9) + b"x" + bytes(8) + b"x" * 9, "as long as it was: its hash is another"
