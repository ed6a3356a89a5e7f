"""Debian root file systems from packages that are fetched once, locked, and kept in the cache.

Two steps, so that the same packages give the same bytes: apt fetches (verified by the archive's signatures) into the
cache; mmdebstrap, itself a package unpacked into the cache, then builds from a flat archive of exactly those files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cache import Say, building, run_shown, sha256_file
from lab.errors import PartError, explain

if TYPE_CHECKING:
    from lab.pins import Root

Lock = dict[str, list[str]]  # package -> [version, sha256 of its .deb]

# What nobody uses in a container: a third of the files, and of the trainer's root nearly half of the bytes.
EXCLUDED = (
    *("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*"),
    *("/usr/share/groff/*", "/usr/include/*", "/usr/lib/*.a", "/usr/lib/*/cmake/*", "/usr/lib/*/pkgconfig/*"),
    *("/usr/lib/libtorch-test/*", "/usr/lib/python3/dist-packages/torch/bin/test_*"),
    # torch comes with MPI, MPI with UCX, and that with a plugin for AMD's GPUs, which alone needs a compiler of 140 MB.
    *("/usr/lib/*/libLLVM*", "/usr/lib/llvm-*", "/usr/lib/*/libamd_comgr*", "/usr/lib/*/libamdhip64*"),
    *("/usr/lib/*/libhsa-runtime64*", "/usr/lib/*/ucx/*_rocm*"),
    "/usr/lib/python3/dist-packages/botocore/data/*/*",  # four hundred services of AWS
)
INCLUDED = tuple(f"/usr/lib/python3/dist-packages/botocore/data/{name}/*" for name in ("s3", "sso", "sso-oidc", "sts"))
# What differs from build to build or names this machine: logs, caches, the archive's address, the host's files.
# Python files go only here, since packages compile theirs when they are configured, and stop at one that is not there:
# test suites (torch.testing and numpy.testing are none, and stay), awscli, which the package of s3fs asks for and no
# code does, and extensions for the Python that comes next.
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
ROOT_RECIPE = (EXCLUDED, INCLUDED, CLEAN)  # whatever decides the bytes of a root beside its packages


def _env() -> dict[str, str]:
    return dict(os.environ) | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "SOURCE_DATE_EPOCH": "0"}


def _output(command: list[str], where: str) -> str:
    try:
        done = subprocess.run(command, env=_env(), capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        cure = "the lab needs a Debian machine with apt and dpkg"
        raise PartError(f"{command[0]} is missing", where, cure) from error
    if done.returncode:
        raise explain(done.stdout + done.stderr, where)
    return done.stdout


def _mirror() -> str:
    """Return the archive that this machine's own apt uses for Debian."""
    sites = _output(["apt-get", "indextargets", "--format", "$(SITE) $(ORIGIN) $(CREATED_BY)"], "apt")
    for line in sites.splitlines():
        site, *rest = line.split()
        if rest[:1] == ["Debian"] and "security" not in site:
            return site
    for folder in ("/etc/apt/sources.list", "/etc/apt/sources.list.d"):
        for path in [Path(folder), *sorted(Path(folder).glob("*"))]:
            text = path.read_text() if path.is_file() else ""
            found = re.search(r"^(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(\S+/debian/?)(?:\s|$)", text, re.MULTILINE)
            if found:
                return found.group(1).rstrip("/")
    raise PartError("no Debian archive in apt's sources", "/etc/apt", "add one, then run `apt-get update`")


class Debs:
    """The cache's folder of .deb files, and a private apt that fills it."""

    def __init__(self, home: Path, say: Say) -> None:
        """Keep the folders; nothing is fetched yet."""
        self.folder, self.apt, self.say = home / "debs", home / "apt", say
        self.folder.mkdir(parents=True, exist_ok=True)

    def _options(self, suite: str) -> list[str]:
        base = self.apt / suite
        for name in ("state/lists/partial", "cache/archives/partial"):
            (base / name).mkdir(parents=True, exist_ok=True)
        (base / "status").touch()
        keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
        (base / "sources.list").write_text(f"deb [signed-by={keyring}] {_mirror()} {suite} main\n")
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
            "Acquire::Check-Valid-Until": "false",  # mirrors of testing lag behind; signatures are still checked
        }
        return [f"-o{key}={value}" for key, value in settings.items()]

    def missing(self, lock: Lock) -> list[str]:
        """Return the locked packages whose .deb is not in the cache with the locked checksum."""
        return [name for name, (version, digest) in lock.items() if not self._have(name, version, digest)]

    def _have(self, name: str, version: str, digest: str) -> bool:
        path = self.path(name, version)
        return path.exists() and sha256_file(path) == digest

    def path(self, name: str, version: str) -> Path:
        """Return where the package's file is kept (one architecture: the machine's)."""
        return self.folder / f"{name}_{version.replace(':', '%3a')}.deb"

    def fetch(self, root: Root, lock: Lock) -> Lock:
        """Fetch what `root` needs, at the locked versions where the archive still has them all; return what it is."""
        options = self._options(root.suite)
        where = f"packages of {root.name}"
        run_shown(["apt-get", *options, "update"], where, self.say, cwd=self.folder, env=_env())
        archives = self.apt / root.suite / "cache" / "archives"
        for name, (version, _) in lock.items():
            if self.path(name, version).exists():
                self._lend(self.path(name, version), archives)
        wanted = ["?essential"] if root.variant == "essential" else []
        install = ["apt-get", *options, "install", "--yes", "--download-only", *wanted]
        locked = [f"{name}={version}" for name, (version, _) in lock.items()]
        for exact in ([locked] if locked else []) + [[]]:
            try:
                moved = "" if exact or not locked else " (the lock has moved on)"
                self.say(f"{where}: resolving and fetching{moved}")
                run_shown([*install, *root.packages, *exact], where, self.say, cwd=self.folder, env=_env())
                break
            except PartError:
                if not exact:
                    raise
        listed = _output([*install, *root.packages, *exact, "--simulate"], where)
        found: Lock = {}
        for name, version in re.findall(r"^Inst (\S+) \((\S+) ", listed, re.MULTILINE):
            source = next(archives.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))
            kept = self.path(name, version)
            if not kept.exists():
                shutil.copyfile(source, kept.with_suffix(".part"))
                kept.with_suffix(".part").rename(kept)
            found[name] = [version, sha256_file(kept)]
        shutil.rmtree(self.apt / root.suite / "cache", ignore_errors=True)
        self._check_floors(root, found)
        return dict(sorted(found.items()))

    @staticmethod
    def _lend(deb: Path, archives: Path) -> None:
        """Put a cached .deb where apt looks for it, so that it is not fetched again."""
        fields = _output(["dpkg-deb", "-f", str(deb), "Package", "Version", "Architecture"], deb.name)
        name, version, arch = (line.split(": ", 1)[1] for line in fields.splitlines())
        target = archives / f"{name}_{version.replace(':', '%3a')}_{arch}.deb"
        if not target.exists():
            shutil.copyfile(deb, target)

    @staticmethod
    def _check_floors(root: Root, found: Lock) -> None:
        for name, floor in root.floors.items():
            version = found.get(name, ["0"])[0]
            if subprocess.run(["dpkg", "--compare-versions", version, "ge", floor], check=False).returncode:
                cure = f"wait for the archive, or name another suite for the root {root.name} in lab/versions.yml"
                raise PartError(f"{name} {version} is below the floor {floor}", f"suite {root.suite}", cure)

    def mmdebstrap(self) -> Path:
        """Return the mmdebstrap script, unpacked from the machine's own Debian release into the cache."""
        target = self.apt / "mmdebstrap"
        if not target.exists():
            with building(target) as draft:
                env = _env() | {"APT_CONFIG": os.environ.get("APT_CONFIG", "")}
                command = ["apt-get", "-oAPT::Sandbox::User=root", "download", "mmdebstrap"]
                try:
                    run_shown(command, "mmdebstrap", self.say, cwd=draft, env=env)
                except PartError:  # a machine whose package lists were never fetched
                    run_shown(["apt-get", "update"], "mmdebstrap", self.say, cwd=draft, env=env)
                    run_shown(command, "mmdebstrap", self.say, cwd=draft, env=env)
                _output(["dpkg-deb", "-x", str(next(draft.glob("*.deb"))), str(draft)], "mmdebstrap")
        return target / "usr" / "bin" / "mmdebstrap"


def build_root(root: Root, lock: Lock, debs: Debs, target: Path, say: Say) -> None:
    """Write the root file system of exactly the locked packages to the tar archive `target`, and to tree/ beside it."""
    flat = target.parent / "flat"
    flat.mkdir()
    index = []
    for name, (version, digest) in lock.items():
        deb = debs.path(name, version)
        os.link(deb, flat / deb.name)
        control = _output(["dpkg-deb", "-f", str(deb)], deb.name).strip()
        index.append(f"{control}\nFilename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n")
    packages = "\n".join(index).encode()
    (flat / "Packages").write_bytes(packages)
    # mmdebstrap finds the essential packages by the suite's name, so the flat archive states it.
    (flat / "Release").write_text(
        f"Suite: {root.suite}\nCodename: {root.suite}\nArchitectures: amd64 arm64 all\n"
        f"SHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
    )
    script = debs.mmdebstrap()
    # Its mmtarfilter lies beside it.
    env = _env() | {"PATH": f"{script.parent}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    command = ["perl", str(script), "--mode=root", f"--variant={root.variant}", "--format=tar"]
    command += [f"--dpkgopt=path-exclude={path}" for path in EXCLUDED]
    command += [f"--dpkgopt=path-include={path}" for path in INCLUDED]
    last = "extract" if root.variant == "extract" else "customize"  # the last step that the variant has
    command += [f"--{last}-hook=set -eu{CLEAN}", '--aptopt=Acquire::Languages "none"']
    command += [f"--include={','.join(root.packages)}", root.suite, str(target), f"deb [trusted=yes] copy:{flat} ./"]
    run_shown(command, f"root file system of {root.name}", say, cwd=target.parent, env=env)
    shutil.rmtree(flat)
    if root.tree:
        tree = target.parent / "tree"
        tree.mkdir()
        _output(["tar", "-C", str(tree), "--numeric-owner", "-xpf", str(target)], root.name)
