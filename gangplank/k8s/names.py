"""What Kubernetes allows as a name.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import posixpath
import re

LABEL_MAX = 63
DNS1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)  # a Service's name, hence a job's
DNS1035_RULE = "a-z, 0-9 and -, beginning with a letter, at most 63 characters"
DNS1123 = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)  # a namespace, a pod's hostname
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,252}", re.ASCII)
_HOST = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"  # and below, what a reference to an image consists of
_PART = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_DIGEST = r"sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}"
IMAGE = re.compile(  # https://pkg.go.dev/github.com/distribution/reference
    rf"(?=.{{1,511}}$)(({_HOST}(\.{_HOST})*|\[[a-fA-F0-9:]+\])(:[0-9]+)?/)?{_PART}(/{_PART})*(:\w[\w.-]{{0,127}})?(@({_DIGEST}))?",
    re.ASCII,
)
ABSOLUTE = re.compile(r"/[^\x00:]{0,4095}")
# A folder of the container, or one of a bucket.
PLACE = re.compile(r"/[^\x00:]{0,4095}|(s3|gs)://[a-z0-9][-a-z0-9.]{1,61}[a-z0-9](/[^\x00\s]{0,1023})?")
PLACE_RULE = "an absolute path in the container, s3://bucket/path or gs://bucket/path"
RESOURCE = re.compile(  # an extended one, e.g. nvidia.com/gpu
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")  # of a volume claim
ACCESS_MODE = ACCESS_MODES[0]  # of a volume claim that names none
_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


def is_key(text: str) -> bool:
    """Whether a label or annotation may have this key.

    >>> is_key("example.com/team"), is_key("a/b/c"), is_key("")
    (True, False, False)
    """
    prefix, slash, name = text.rpartition("/")
    return bool(_KEY.fullmatch(name)) and (not slash or bool(SUBDOMAIN.fullmatch(prefix)))


def is_value(text: str) -> bool:
    """Whether a label may have this value.

    >>> is_value(""), is_value("vision"), is_value("two words")
    (True, True, False)
    """
    return bool(_VALUE.fullmatch(text))


def normal_path(path: str) -> str:
    """A path as the kernel takes it, without links.

    >>> normal_path("//a/../b/"), normal_path("/")
    ('/b', '/')
    """
    return posixpath.normpath(f"/{path.lstrip('/')}")
