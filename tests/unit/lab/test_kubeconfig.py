"""D8: the user's kubeconfig keeps every byte but the lab's own entries."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangplank.processes import process
from lab.host import kubeconfig
from lab.host.kubeconfig import KubeconfigError, ensure
from lab.host.kubeconfig_text import edit

ROOT = Path(__file__).resolve().parents[3]
MINE = """\
# my clusters
apiVersion: v1
clusters: # two of them
- cluster:
    server: https://a.example   # the old one
    insecure-skip-tls-verify: yes
  name: a
# between
- name: 'b'
  cluster: {server: "https://b.example"}
# below
contexts:
  - context: {cluster: a, user: u}
    name: a

current-context: a
kind: Config
preferences: {}
users:
- name: u
  user:
    auth-provider: {name: oidc, config: {expiry: 2026-11-20T10:00:00Z, count: 010, on: no}}
    token: |
      two
      lines
# end"""
JSON = '{"apiVersion": "v1", "clusters": [{"name": "a", "cluster": {"server": "s"}}], "users": null, "kind": "Config"}'
FILES = {
    "comments, timestamps and 010": MINE,
    "a last line": MINE + "\n",
    "json": JSON,
    "empty lists": "clusters: []  # none\ncontexts:\nusers: null\ncurrent-context: ''\n",
    "no lists": "kind: Config\nextensions:\n- name: x\n  extension: 0x10",
    "windows": MINE.replace("\n", "\r\n") + "\r\n",
    "nothing": "",
    "preferences": "kind: Config\npreferences: {colors: true}\n",
    "comments alone": "# nothing yet\n",
    "an empty document": "---\n",
    "a frame": kubeconfig.EMPTY,
    "no keys": "{}\n",
    "a comment on a line": f"{kubeconfig.EMPTY}# mine\n",
}
# What stays where the lab's entries came and went; the other files are as they were, to the byte.
AFTER = {
    "json": JSON.replace("null", "[]")[:-1] + ', "contexts": [], "current-context": ""}',
    "empty lists": 'clusters: []  # none\ncontexts: []\nusers: []\ncurrent-context: ""\n',
    "no lists": f"{FILES['no lists']}\n",
    "no keys": '{"clusters": [], "users": [], "contexts": [], "current-context": ""}\n',
}


@pytest.fixture
def admin(tmp_path: Path) -> Path:
    """An administrator's kubeconfig of a lab."""
    (tmp_path / "lab/pki").mkdir(parents=True)
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(name * 90)
    (tmp_path / "lab/pki/ca.crt").write_text((tmp_path / "ca").read_text())
    user = {"client-certificate": str(tmp_path / "crt"), "client-key": str(tmp_path / "key")}
    cluster = {"server": "https://192.0.2.1:6443", "certificate-authority": str(tmp_path / "ca")}
    config = {"clusters": [{"name": "x", "cluster": cluster}], "users": [{"name": "x", "user": user}]}
    (tmp_path / "admin").write_text(yaml.safe_dump(config))
    return tmp_path / "admin"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """The folder of a lab, with its notes."""
    (tmp_path / "lab").mkdir(exist_ok=True)
    return tmp_path / "lab"


@pytest.mark.parametrize("form", FILES)
def test_d8_every_other_byte_stays(tmp_path: Path, admin: Path, lab: Path, form: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(FILES[form].encode())
    old = kubeconfig.parse(FILES[form], path)
    assert ensure(path, "lab", admin, lab=lab, dry=True)
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    text = path.read_bytes().decode()
    new = kubeconfig.parse(text, path)
    for part in ("clusters", "users", "contexts"):
        assert new[part][:-1] == (old.get(part) or [])
        assert new[part][-1]["name"] == "lab"
    assert new["current-context"] == (old.get("current-context") or "lab")
    assert kept(FILES[form]) <= kept(text)
    assert not ensure(path, "lab", admin, lab=lab, dry=False)
    (tmp_path / "ca").write_text("another")
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    assert ensure(path, "lab", None, lab=lab, dry=False)
    assert path.read_bytes().decode() == AFTER.get(form, FILES[form])
    assert kubeconfig.noted(lab) == {}
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.parametrize("form", ["nothing", "comments alone", "a frame", "preferences"])
def test_d8_what_the_user_adds_to_a_file_without_entries_stays(
    tmp_path: Path, admin: Path, lab: Path, form: str
) -> None:
    path = tmp_path / "config"
    path.write_text(FILES[form])
    ensure(path, "lab", admin, lab=lab, dry=False)
    text = path.read_text()
    mine = {"name": "mine", "cluster": {"server": "https://a.example"}}
    path.write_text(edit(text, content := kubeconfig.parse(text, path),
                                    {**content, "clusters": [*content["clusters"], mine]}))  # fmt: skip
    assert ensure(path, "lab", None, lab=lab, dry=False)
    assert kubeconfig.parse(path.read_text(), path)["clusters"] == [mine]


def test_d8_only_a_file_that_was_not_there_is_removed(tmp_path: Path, admin: Path, lab: Path) -> None:
    path, own = tmp_path / "config", tmp_path / "own"
    own.touch()
    for one in (path, own):
        assert ensure(one, "lab", admin, lab=lab, dry=False)
    assert {*kubeconfig.noted(lab)} == {path, own}
    (tmp_path / "link").symlink_to(tmp_path)
    for one in (tmp_path / "x" / ".." / "config", tmp_path / "link/own"):
        assert ensure(one, "lab", None, lab=lab, dry=False)
    assert (path.exists(), own.read_text()) == (False, "")
    assert kubeconfig.noted(lab) == {}


def test_d8_a_file_that_the_user_made_again_is_the_users(tmp_path: Path, admin: Path, lab: Path) -> None:
    path = tmp_path / "config"
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    path.unlink()
    path.write_text(kubeconfig.EMPTY)
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    assert ensure(path, "lab", None, lab=lab, dry=False)
    assert path.read_text() == kubeconfig.EMPTY


def test_d8_a_file_that_an_earlier_version_changed_loses_the_context_and_stays(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    (lab / kubeconfig.NOTES).unlink()
    assert not ensure(path, "lab", admin, lab=lab, dry=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other"))
    assert kubeconfig.remove("lab", lab, dry=False)
    assert not kubeconfig.parse(path.read_text(), path)["contexts"]


OTHERS = {
    "a cluster": "clusters: [{name: lab, cluster: {server: https://a.example}}]\n",
    "a user": "users: [{name: lab, user: {token: mine}}]\n",
    "a context": "contexts: [{name: lab, context: {cluster: a, user: u}}]\n",
}


@pytest.mark.parametrize("form", OTHERS)
def test_d8_what_the_user_has_under_the_labs_name_stays(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    path = tmp_path / "config"
    path.write_text(OTHERS[form])
    monkeypatch.setenv("KUBECONFIG", str(path))
    for dry in (True, False):
        with pytest.raises(KubeconfigError, match=r"called lab that is not the lab's.*Fix: set lab_cluster_context"):
            ensure(path, "lab", admin, lab=lab, dry=dry)
    assert not kubeconfig.remove("lab", lab, dry=False)
    assert (path.read_text(), kubeconfig.noted(lab)) == (OTHERS[form], {})


def test_d8_a_note_of_one_name_is_none_of_another(tmp_path: Path, admin: Path, lab: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHERS["a cluster"].replace("name: lab", "name: prod"))
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    before = path.read_text()
    with pytest.raises(KubeconfigError, match="called prod that is not the lab's"):
        ensure(path, "prod", admin, lab=lab, dry=False)
    assert path.read_text() == before


@pytest.mark.parametrize("noted", [True, False])
def test_d8_the_context_of_a_lab_on_another_machine_stays_when_this_one_goes(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch, *, noted: bool
) -> None:
    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    before = path.read_text()
    if not noted:
        (lab / kubeconfig.NOTES).unlink()
    (lab / "pki/ca.crt").write_text("the authority of this machine's")
    assert not kubeconfig.remove("lab", lab, dry=False)
    assert path.read_text() == before


@pytest.mark.parametrize("name", ["123", "true", "1.0", "null", "a: b", "it's"])
def test_d8_kubectl_reads_the_name_of_any_context(tmp_path: Path, admin: Path, lab: Path, name: str) -> None:
    path = tmp_path / "config"
    path.write_text("kind: Config\n")
    assert ensure(path, name, admin, lab=lab, dry=False)
    assert yaml.safe_load(path.read_text())["current-context"] == name


def test_d1_what_an_interrupted_run_was_writing_is_removed(tmp_path: Path, admin: Path, lab: Path) -> None:
    path, draft = tmp_path / "config", tmp_path / ".config.gangplank"
    path.write_text(MINE)
    draft.write_text("the user's credentials, and half of the lab's")
    kubeconfig.ensure(path, "lab", None, lab=lab, dry=False)
    assert (path.read_text(), draft.exists(), admin.exists()) == (MINE, False, True)


def test_d8_a_comment_on_a_line_that_was_added_stays(tmp_path: Path, admin: Path, lab: Path) -> None:
    path = tmp_path / "config"
    path.touch()
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    path.write_text(path.read_text().replace("preferences: {}", "preferences: {}  # mine"))
    assert ensure(path, "lab", None, lab=lab, dry=False)
    assert path.read_text() == "apiVersion: v1\nkind: Config\npreferences: {}  # mine\n"


def test_d8_every_file_that_has_the_context_loses_it_whatever_the_environment_is(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(MINE)
    for one in (first, second):
        monkeypatch.setenv("KUBECONFIG", str(one))
        assert ensure(kubeconfig.user_file(), "lab", admin, lab=lab, dry=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "third"))
    assert kubeconfig.remove("lab", lab, dry=True)
    assert second.exists()
    assert kubeconfig.remove("lab", lab, dry=False)
    assert (first.read_text(), second.exists(), kubeconfig.noted(lab)) == (MINE, False, {})
    assert not kubeconfig.remove("lab", lab, dry=False)


def test_d8_a_file_that_cannot_be_read_keeps_the_context_in_no_other(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, folder, whole = (tmp_path / name for name in ("broken", "folder", "whole"))
    whole.write_text(MINE)
    for one in (broken, folder, whole):
        assert ensure(one, "lab", admin, lab=lab, dry=False)
    broken.write_text("a: [")
    folder.unlink()
    folder.mkdir()
    unread = tmp_path / "unread"  # the user's own, which never had the context
    unread.write_text("a: [")
    monkeypatch.setenv("KUBECONFIG", str(unread))
    with pytest.raises(KubeconfigError) as refusal:
        kubeconfig.remove("lab", lab, dry=False)
    lines = str(refusal.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [str(broken), str(folder)]
    assert all(line.endswith("Fix: correct or move the file, then run it again") for line in lines)
    assert whole.read_text() == MINE
    broken.unlink()
    folder.rmdir()
    assert not kubeconfig.remove("lab", lab, dry=False)
    assert kubeconfig.noted(lab) == {}


def test_d8_a_context_that_cannot_be_removed_is_said_also_of_a_file_without_a_note(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    authority = base64.b64encode((admin.parent / "ca").read_bytes()).decode()
    row = f"- name: lab\n  cluster: {{certificate-authority-data: {authority}}}"
    path.write_text(f"x: &a\n{row}\nclusters: *a\nkind: Config\n")
    before = path.read_bytes()
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(KubeconfigError, match="got YAML with anchors"):
        kubeconfig.remove("lab", lab, dry=False)
    assert path.read_bytes() == before


def test_d8_the_labs_own_file_stays_until_the_lab_goes(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = lab / "admin.kubeconfig"
    own.write_text(MINE.replace("name: a\n", "name: lab\n"))
    before = own.read_text()
    monkeypatch.setenv("KUBECONFIG", str(own))
    assert not kubeconfig.remove("lab", lab, dry=False)
    assert own.read_text() == before


@pytest.mark.parametrize("torn", ["", "[1]", "null", '{"a', '{"PATH": 5, "": null, "a": ["kind"]}'])
def test_d8_torn_notes_are_none(tmp_path: Path, admin: Path, lab: Path, torn: str) -> None:
    path = tmp_path / "config"
    (lab / kubeconfig.NOTES).write_text(torn.replace("PATH", str(path)))
    assert kubeconfig.noted(lab) == {}
    path.write_text(MINE)
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    assert ensure(path, "lab", None, lab=lab, dry=False)
    assert path.read_text() == MINE


def kept(text: str) -> set[str]:
    """The lines of a block without empty values, blanks at their end, and the context that was none."""
    lines = re.sub(r"\[\]|''|null", "", text).splitlines()
    same = [re.sub(r"(?<=:) +", " ", line).rstrip() for line in lines if not line.startswith("current-context: ''")]
    return set() if text.startswith("{") else set(same) - {"current-context:"}


def test_d8_a_link_stays_a_link_with_its_owner_and_mode(tmp_path: Path, admin: Path, lab: Path) -> None:
    real, path = tmp_path / "real", tmp_path / "config"
    real.write_text(MINE)
    real.chmod(0o640)
    path.symlink_to("real")
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    assert path.is_symlink()
    assert "name: lab" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert ensure(path, "lab", None, lab=lab, dry=False)
    assert real.read_text() == MINE


def test_d8_kubectls_lock_is_waited_for(tmp_path: Path, admin: Path, lab: Path) -> None:
    path, held = tmp_path / "config", tmp_path / "config.lock"
    path.write_text(MINE)
    dead = json.dumps(process(os.getpid()) | {"started": 1})  # of a run that was killed; its number was reused
    held.touch(mode=0)
    with pytest.raises(KubeconfigError, match=f"config: got config.lock of another program.*or remove {held}"), (
        kubeconfig.locked(path, 0.2)
    ):
        pass
    held.unlink()
    held.write_text(dead)
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    assert not held.exists()
    held.write_text(dead)  # of one that was killed when it had changed the file: kubectl would refuse to
    assert not ensure(path, "lab", admin, lab=lab, dry=False)
    assert not held.exists()


KILLED = """
import itertools, os, signal, sys
from pathlib import Path
from lab.host import kubeconfig

path = Path(sys.argv[1])

def run(limit):
    lines = itertools.count(1)
    def trace(frame, event, _):
        if frame.f_code.co_filename == kubeconfig.__file__ and event == "line" and next(lines) == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    with kubeconfig.locked(path):
        pass
    os._exit(0)

for limit in itertools.count(1):
    child = os.fork() or run(limit)
    killed = os.waitpid(child, 0)[1]
    kubeconfig.ensure(path, "lab", None, lab=path.parent, dry=False)
    with kubeconfig.locked(path, 1):
        pass
    if not killed:
        break
print(limit > 10)
"""


def test_d1_the_lock_of_a_run_that_was_killed_at_any_line_holds_nobody(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "config")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert not list(tmp_path.iterdir())


def test_d1_the_lock_of_an_earlier_version_holds_while_its_process_lives(
    tmp_path: Path, admin: Path, lab: Path
) -> None:
    path, held = tmp_path / "config", tmp_path / "config.lock"
    held.write_text("999999999")
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    held.write_text(str(os.getpid()))
    with pytest.raises(KubeconfigError, match="of another program"), kubeconfig.locked(path, 0.2):
        pass


def test_d8_a_shared_folder_without_hard_links_has_the_lock_too(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "config"
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    with (
        kubeconfig.locked(path),
        pytest.raises(KubeconfigError, match="of another program"),
        kubeconfig.locked(path, 0.2),
    ):
        pass
    assert [one.name for one in tmp_path.iterdir() if "lock" in one.name] == []


def test_d2_a_lock_that_a_power_cut_left_is_removed(tmp_path: Path, admin: Path, lab: Path) -> None:
    path, held = tmp_path / "config", tmp_path / "config.lock"
    held.touch()
    os.utime(held, (0, 0))
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    assert not held.exists()


def test_d8_a_form_that_cannot_be_edited_is_left_alone(tmp_path: Path, admin: Path, lab: Path) -> None:
    path = tmp_path / "config"
    text = "x: &a\n- name: a\n  cluster: {}\nclusters: *a\nkind: Config\n"
    path.write_text(text)
    try:
        ensure(path, "lab", admin, lab=lab, dry=False)
    except KubeconfigError as error:
        assert str(error).startswith(f"{path}: got YAML with anchors")
        assert path.read_text() == text
    else:
        assert "name: lab" in path.read_text()
    assert not (tmp_path / "config.lock").exists()


def test_a_new_file_belongs_to_the_owner_of_the_home(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo -E make lab` keeps HOME: the user's own kubectl could not read a file of root's."""
    owners: dict[str, tuple[int, int]] = {}

    def give(place: Path | int, uid: int, gid: int) -> None:
        name = Path(f"/proc/self/fd/{place}").readlink().name if isinstance(place, int) else place.name
        assert not (tmp_path / ".kube/config").exists(), "with root as its owner, a killed run would leave it so"
        owners[name] = (uid, gid)

    monkeypatch.setattr("lab.host.kubeconfig.os.geteuid", lambda: 0)
    monkeypatch.setattr("lab.host.kubeconfig.os.chown", give)
    monkeypatch.setattr("lab.host.files.os.fchown", give)
    assert ensure(tmp_path / ".kube/config", "lab", admin, lab=lab, dry=False)
    home = tmp_path.stat()
    assert owners == dict.fromkeys(("..kube.gangplank", ".config.gangplank"), (home.st_uid, home.st_gid))
    assert sorted(path.name for path in (tmp_path / ".kube").iterdir()) == ["config"]


def test_a_file_that_is_not_utf_8_is_left_alone(tmp_path: Path, admin: Path, lab: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(MINE.encode("utf-16"))
    with pytest.raises(KubeconfigError, match=r"config: got other bytes than UTF-8, expected a kubeconfig\. Fix: "):
        ensure(path, "lab", admin, lab=lab, dry=False)
    assert path.read_bytes() == MINE.encode("utf-16")


@pytest.mark.parametrize("first", [None, "apiVersion: v1\nkind: Config\n"])
def test_d8_the_current_cluster_of_another_file_stays(
    tmp_path: Path, admin: Path, lab: Path, monkeypatch: pytest.MonkeyPatch, first: str | None
) -> None:
    """Of several files, kubectl takes the current context from the first that sets one."""
    path, mine = tmp_path / "lab.yml", tmp_path / "mine.yml"
    mine.write_text(MINE)
    if first:
        path.write_text(first)
    monkeypatch.setenv("KUBECONFIG", f"{path}:{tmp_path / 'none.yml'}:{mine}")
    assert kubeconfig.user_file() == path
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    assert not yaml.safe_load(path.read_text()).get("current-context")
    assert not ensure(path, "lab", admin, lab=lab, dry=False)
    mine.write_text(MINE.replace("current-context: a", "current-context:"))
    assert ensure(path, "lab", admin, lab=lab, dry=False)
    assert yaml.safe_load(path.read_text())["current-context"] == "lab"


def test_the_labs_own_file_stays_as_it_is_where_the_environment_names_it(
    tmp_path: Path, admin: Path, lab: Path
) -> None:
    (tmp_path / "link").symlink_to(admin)
    before = admin.read_bytes()
    assert not ensure(tmp_path / "link", "gangplank-lab", admin, lab=lab, dry=False)
    assert admin.read_bytes() == before
