"""Debian root file systems from packages that are fetched once, locked, and kept in the cache.

Two steps, so that the same packages give the same bytes. apt fetches into the cache, verified by the archive's
signatures. Then mmdebstrap, itself such a package, builds from a flat archive of exactly those files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from gangplank.disk import rename
from lab.build.cache import Say, run_shown, sha256_file
from lab.build.versions import Root, load_pins
from lab.errors import PartError, explain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.build.lock import Packages
    from lab.build.versions import Tool

BOUND = ["setpriv", "--pdeathsig=KILL"]  # apt-get would continue without this process, and hold its locks
ALONE = "alone"  # the variant of a package without those that it depends on
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Unused in a container: a third of the files, and nearly half of the trainer's root.
EXCLUDED = (
    *("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*"),
    *("/usr/share/groff/*", "/usr/include/*", "/usr/lib/*.a", "/usr/lib/*/cmake/*", "/usr/lib/*/pkgconfig/*"),
    *("/usr/lib/libtorch-test/*", "/usr/lib/python3/dist-packages/torch/bin/test_*"),
    # torch depends on MPI, MPI on UCX, and UCX on a plugin for AMD's GPUs, which alone needs a compiler of 140 MB.
    *("/usr/lib/*/libLLVM*", "/usr/lib/llvm-*", "/usr/lib/*/libamd_comgr*", "/usr/lib/*/libamdhip64*"),
    *("/usr/lib/*/libhsa-runtime64*", "/usr/lib/*/ucx/*_rocm*"),
    "/usr/lib/python3/dist-packages/botocore/data/*/*",  # four hundred services of AWS
)
INCLUDED = tuple(f"/usr/lib/python3/dist-packages/botocore/data/{name}/*" for name in ("s3", "sso", "sso-oidc", "sts"))
DEVELOPMENT = ("/usr/include/*", "/usr/lib/*.a")  # excluded too, unless the root is for a compiler
# What differs between builds or names this machine: logs, caches, the archive's address, the host's files.
# Python files are removed only here: packages compile them when they are configured, and fail if one is missing.
# These are test suites (torch.testing and numpy.testing are not, and stay), awscli, which s3fs requires but does not
# use, and extensions for the next version of Python.
CLEAN = """
cd "$1"
rm -rf etc/apt/sources.list* var/log/* var/cache/* var/lib/apt var/lib/dpkg/*-old etc/hostname etc/resolv.conf
echo 127.0.0.1 localhost > etc/hosts
if [ -e usr/bin/python3 ]; then
  tag=$(readlink usr/bin/python3 | tr -dc 0-9)
  find usr/lib -name '*.cpython-3*.so' ! -name "*.cpython-$tag-*" -delete
  find usr/lib/python3/dist-packages -type d -name tests -prune -exec rm -rf {} +
  rm -rf usr/lib/python3/dist-packages/awscli usr/lib/python3.*/test
fi
"""
# The whole environment of the packages' scripts. Without PYTHONDONTWRITEBYTECODE, Python would compile six of the
# modules that it imports, with other bytes than py3compile, which leaves existing files as they are.
BUILD_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "SOURCE_DATE_EPOCH": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "HOME": "/root",
}
ROOT_RECIPE = (EXCLUDED, INCLUDED, CLEAN, BUILD_ENVIRONMENT)  # with the packages, all that decides the bytes of a root


def _env() -> dict[str, str]:
    return dict(os.environ) | BUILD_ENVIRONMENT | {"HOME": str(Path.home())}


def _output(command: list[str], where: str) -> str:
    try:
        done = subprocess.run(command, env=_env(), capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        fix = "run the lab on a Debian machine, with apt and dpkg"
        raise PartError(f"{command[0]} is missing", where, fix) from error
    if done.returncode:
        raise explain(done.stdout + done.stderr, where)
    return done.stdout


def _mirror() -> str:
    """The archive that this machine's own apt uses for Debian."""
    sites = _output(["apt-get", "indextargets", "--format", "$(SITE) $(ORIGIN) $(CREATED_BY)"], "apt")
    for line in sites.splitlines():
        site, *rest = line.split()
        if rest[:1] == ["Debian"] and "security" not in site:
            return site
    for folder in ("/etc/apt/sources.list", "/etc/apt/sources.list.d"):
        for path in [Path(folder), *sorted(Path(folder).glob("*"))]:
            text = path.read_text() if path.is_file() else ""
            match = re.search(r"^(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(\S+/debian/?)(?:\s|$)", text, re.MULTILINE)
            if match:
                return match.group(1).rstrip("/")
    raise PartError("no Debian archive in apt's sources", "/etc/apt", "add one, then run `apt-get update`")


def _older(version: str, than: str) -> bool:
    """Whether a Debian version is older than another."""
    return subprocess.run(["dpkg", "--compare-versions", version, "lt", than], check=False).returncode == 0


def deb_name(name: str, version: str) -> str:
    """The file of a package in the cache (one architecture: the machine's)."""
    return f"{name}_{version.replace(':', '%3a')}.deb"


class Debs:
    """The cache's folder of .deb files, and a private apt that fills it."""

    def __init__(self, home: Path, say: Say) -> None:
        """Nothing is fetched yet."""
        self.folder, self.apt, self.say = home / "debs", home / "apt", say
        self.folder.mkdir(parents=True, exist_ok=True)

    def _options(self, suite: str) -> list[str]:
        base = self.apt / suite
        for name in ("state/lists/partial", "cache/archives/partial"):
            (base / name).mkdir(parents=True, exist_ok=True)
        (base / "status").touch()
        mirror = re.sub("^file:", "copy:", _mirror())  # of file:, apt leaves the packages where they are
        (base / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {suite} main\n")
        settings = {
            "Dir::State": base / "state",
            "Dir::State::status": base / "status",
            "Dir::Cache": base / "cache",
            "Dir::Etc::SourceList": base / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Acquire::Check-Valid-Until": "false",  # mirrors of testing lag; signatures are still checked
        }
        return [f"-o{key}={value}" for key, value in settings.items()]

    def missing(self, locked: Packages) -> list[str]:
        """The locked packages that the cache lacks; a file with another checksum is removed."""
        return [name for name, (version, digest) in locked.items() if not self._is_cached(name, version, digest)]

    def _is_cached(self, name: str, version: str, digest: str) -> bool:
        path = self.path(name, version)
        if not path.exists():
            return False
        if sha256_file(path) == digest:
            return True
        self.say(f"{path.name}: the cached file has another checksum; removed")
        path.unlink()
        return False

    def path(self, name: str, version: str) -> Path:
        """Where the package's file is kept."""
        return self.folder / deb_name(name, version)

    def fetch(self, root: Root, locked: Packages) -> Packages:
        """Fetch and return the packages of `root`: at the locked versions that the archive has, else at the newest.

        Raises PartError if the archive has other bytes of a locked version, or only older versions.
        """
        options = self._options(root.suite)
        where = f"packages of {root.name}"
        run_shown([*BOUND, "apt-get", *options, "update"], where, self.say, cwd=self.folder, env=_env())
        self.say(f"{where}: resolving")
        offered = self._offered(options, locked) if locked else set()
        kept = [f"{name}={version}" for name, (version, _) in locked.items() if (name, version) in offered]
        required = ["?essential"] if root.variant == "essential" else []
        install = ["apt-get", *options, "install", "--yes", *required, *root.packages]
        if root.variant == ALONE:
            install = ["apt-get", *options, "download", *(() if kept else root.packages)]
        if len(kept) < len(locked):
            self.say(f"{where}: the archive no longer has {len(locked) - len(kept)} of the locked versions")
        try:
            resolved = self._resolve([*install, *kept], where)
        except PartError:  # the new versions do not go with the locked ones
            if not kept:
                raise
            kept = []
            resolved = self._resolve(install, where)
        self._check(root, locked, resolved)
        self._download([*install, *kept], where, resolved, self.apt / root.suite / "cache" / "archives")
        return resolved

    @staticmethod
    def _offered(options: list[str], names: Iterable[str]) -> set[tuple[str, str]]:
        """The (name, version) pairs of these packages in the archive."""
        rows = _output(["apt-cache", *options, "madison", *names], "apt").splitlines()
        return {(name.strip(), version.strip()) for name, version, *_ in (row.split("|") for row in rows)}

    @staticmethod
    def _resolve(install: list[str], where: str) -> Packages:
        """What apt would install, with the checksums of the archive's signed index."""
        with tempfile.TemporaryDirectory() as empty:
            options = [f"-oDir::Cache::archives={empty}", "-oAcquire::ForceHash=sha256", "--print-uris"]
            uris = _output([*install, *options], where)
        lines = re.findall(r"^'\S+' ([^_\s]+)_([^_\s]+)_\S+\.deb \d+ SHA256:([0-9a-f]{64})$", uris, re.MULTILINE)
        return {name: [unquote(version), digest] for name, version, digest in sorted(lines)}

    def _download(self, install: list[str], where: str, resolved: Packages, archives: Path) -> None:
        """Fetch the resolved packages into the cache, each compared with its checksum."""
        # apt compares only the size of a file that is already in its folder.
        for deb in archives.glob("*.deb"):
            name, version, _ = deb.name.split("_")
            if resolved.get(name) != [unquote(version), sha256_file(deb)]:
                deb.unlink()
        missing = self.missing(resolved)
        for name in resolved.keys() - missing:
            self._copy_for_apt(self.path(name, resolved[name][0]), archives)
        self.say(f"{where}: fetching {len(missing)} of {len(resolved)}")
        run_shown([*BOUND, *install, "--download-only"], where, self.say, cwd=archives, env=_env())
        for name in missing:
            version, digest = resolved[name]
            source = next(archives.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))
            if sha256_file(source) != digest:
                raise PartError(f"the download of {source.name} was damaged", where, "run it again")
            kept = self.path(name, version)
            shutil.copyfile(source, kept.with_suffix(".part"))
            rename(kept.with_suffix(".part"), kept)
        shutil.rmtree(archives.parent, ignore_errors=True)

    @staticmethod
    def _copy_for_apt(deb: Path, archives: Path) -> None:
        """Copy a cached .deb to where apt looks for it, so that it is not fetched again."""
        fields = _output(["dpkg-deb", "-f", str(deb), "Package", "Version", "Architecture"], deb.name)
        name, version, arch = (line.split(": ", 1)[1] for line in fields.splitlines())
        target = archives / f"{name}_{version.replace(':', '%3a')}_{arch}.deb"
        if not target.exists():
            shutil.copyfile(deb, target)

    @staticmethod
    def _check(root: Root, locked: Packages, resolved: Packages) -> None:
        """Refuse other bytes of a locked version, and versions older than the lock or the root's floors."""
        where = f"suite {root.suite}"
        altered = [
            f"{name} {version}: got sha256 {digest}, expected {locked[name][1]}"
            for name, (version, digest) in resolved.items()
            if name in locked and locked[name][0] == version and locked[name][1] != digest
        ]
        if altered:
            fix = "use another mirror (nothing was fetched); the hash here is right unless Debian says otherwise"
            what = "the archive has other bytes of a locked version"
            raise PartError("\n    ".join([f"{what}:", *altered]), where, fix)
        for name, (version, _) in locked.items():
            if name in resolved and _older(resolved[name][0], version):
                fix = "use another mirror, or run it again later: this one is behind"
                what = f"got {name} {resolved[name][0]}, expected at least the locked {version}"
                raise PartError(what, where, fix)
        for name, floor in root.floors.items():
            version = resolved.get(name, ["0"])[0]
            if _older(version, floor):
                fix = f"wait for the archive, or name another suite for the root {root.name} in lab/versions.yml"
                raise PartError(f"got {name} {version}, expected at least its floor {floor}", where, fix)

    def unpack(self, pin: Tool, folder: Path) -> None:
        """Unpack a pinned package, without those that it depends on, as it is used: no unpacked copy is kept.

        If the archive has dropped the version, the newest is used, with one line, and not kept.
        """
        root = Root(pin.name, pin.suite, ALONE, [pin.name])
        locked = {pin.name: [pin.version, pin.sha256]}
        packages = self.fetch(root, locked) if self.missing(locked) else locked
        version = packages[pin.name][0]
        deb = self.path(pin.name, version)
        _output(["dpkg-deb", "-x", str(deb), str(folder)], pin.name)
        if packages != locked:
            deb.unlink()
            self.say(f"{pin.name}: the archive has moved on: {pin.version} -> {version}")

    def mmdebstrap(self, folder: Path) -> Path:
        """The script of the pinned mmdebstrap, unpacked into a folder; what else it needs is next to it."""
        self.unpack(load_pins().mmdebstrap, folder)
        return folder / "usr" / "bin" / "mmdebstrap"


def build_root(root: Root, packages: Packages, debs: Debs, target: Path, say: Say) -> None:
    """Write the root file system of exactly the locked packages to the archive `target`, and to tree/ next to it."""
    flat = target.parent / "flat"
    flat.mkdir()
    index = []
    for name, (version, digest) in packages.items():
        deb = debs.path(name, version)
        os.link(deb, flat / deb.name)
        control = _output(["dpkg-deb", "-f", str(deb)], deb.name).strip()
        index.append(f"{control}\nFilename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n")
    listing = "\n".join(index).encode()
    (flat / "Packages").write_bytes(listing)
    # mmdebstrap finds the essential packages by the suite's name, so the flat archive states it.
    (flat / "Release").write_text(
        f"Suite: {root.suite}\nCodename: {root.suite}\nArchitectures: amd64 arm64 all\n"
        f"SHA256:\n {hashlib.sha256(listing).hexdigest()} {len(listing)} Packages\n"
    )
    script = debs.mmdebstrap(target.parent / "mmdebstrap")
    # mmtarfilter is in the same folder.
    env = BUILD_ENVIRONMENT | {"PATH": f"{script.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    work = target.parent / "work"
    work.mkdir()
    work.chmod(0o755)  # whatever the umask: packages' scripts change users
    # A build that is killed leaves no process, no mount, and no file outside of the draft.
    alone = [*BOUND, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    here = f'mount --bind {shlex.quote(str(work))} /mnt && exec "$@"'
    env |= {"TMPDIR": "/mnt"}
    command = [*alone, "sh", "-c", here, "sh", "perl", str(script)]
    command += ["--mode=root", f"--variant={root.variant}", "--format=tar"]
    command += [f"--dpkgopt=path-exclude={path}" for path in EXCLUDED]
    command += [f"--dpkgopt=path-include={path}" for path in (*INCLUDED, *(DEVELOPMENT if root.headers else ()))]
    last = "extract" if root.variant == "extract" else "customize"  # the last step that the variant has
    command += [f"--{last}-hook=set -eu{CLEAN}", '--aptopt=Acquire::Languages "none"']
    source = f"deb [trusted=yes] copy:{quote(str(flat))} ./"
    command += [f"--include={','.join(root.packages)}", root.suite, str(target), source]
    run_shown(command, f"root file system of {root.name}", say, cwd=target.parent, env=env)
    shutil.rmtree(flat)
    shutil.rmtree(target.parent / "mmdebstrap")
    work.rmdir()
    if root.tree:
        tree = target.parent / "tree"
        tree.mkdir()
        _output(["tar", "-C", str(tree), "--numeric-owner", "-xpf", str(target)], root.name)
