"""Makes a JobSpec of a mapping: converts once, and reports all errors together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gangplank.backends import BACKENDS, DEFAULT, code_pieces, pod_template, wiring
from gangplank.backends.device_claims import resource_problem
from gangplank.errors import Problem, SpecError, shown
from gangplank.jobs import requirements, rules
from gangplank.k8s import names
from gangplank.k8s.nodes import EFFECTS
from gangplank.reading.fields import Fields, Problems, nearest, plain, unwritable
from gangplank.spec import Amount, Elastic, JobSpec, Json, Resources, Script, Volume

SCRIPT_LIMIT = code_pieces.ONE_MAP  # bytes of a script alone
TOO_LONG = (f"at most {SCRIPT_LIMIT} bytes, a ConfigMap's limit",
            "put it into an image (lab/images/example shows how), or onto a volume, and give its absolute path")
INSIDE = re.compile(r"(?!/)(?!(.*/)?\.\.(/|$)).+")  # a relative path that does not leave its folder
BESIDE = re.compile(rf"(\.\./)*({INSIDE.pattern}|\.\./?)")  # one that may begin above the current folder

# name: (kind, least, most); what the trainer's flags of the same name mean
HYPERPARAMETERS: dict[str, tuple[type, float, float]] = {
    "epochs": (int, 1, 10**6),
    "batch_size": (int, 1, 10**6),  # per process
    "test_batch_size": (int, 1, 10**6),
    "learning_rate": (float, 0, 1e6),
    "sgd_momentum": (float, 0, 1),
    "seed": (int, 0, 2**31 - 1),
    "log_interval": (int, 0, 10**6),  # steps between two lines; 0: none
}
# The kinds of metrics of an autoscaler (autoscaling/v2): the field that each has, what that has to name, and the values
# of which its target has one
METRICS = {
    "Resource": ("resource", ("name",), ("averageUtilization", "averageValue")),
    "ContainerResource": ("containerResource", ("name", "container"), ("averageUtilization", "averageValue")),
    "Pods": ("pods", ("metric",), ("averageValue",)),
    "Object": ("object", ("metric", "describedObject"), ("value", "averageValue")),
    "External": ("external", ("metric",), ("value", "averageValue")),
}
SECONDS_END = 2**63  # of tolerationSeconds
UTILIZATION = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}"
# Fields that have a part of another one's value, and those whose default follows from another one
PARTS = {"code": ("script", "requirements"), "requirements": ("script",), "resources": ("master_resources",)}
OF_GPUS = ("collective", "processes_per_node", "shm_size")
DEFAULTS = {"team": ("namespace", "queue"), "resources": OF_GPUS, "master_resources": OF_GPUS}
PLACES = ("dir",)  # the other hyperparameter: where the trainer writes TensorBoard's event files


def parse_job(value: object, source: str = "job", scripts: Mapping[str, str] | None = None) -> JobSpec:
    """The job that a mapping describes, or a SpecError with all problems.

    `scripts` holds the text of files that jobs name by a relative path; this function does not read files.

    >>> parse_job({"training_job": {"name": "digits", "image": "img", "script": "/a.py"}}).world_size
    3
    """
    problems: Problems = []
    try:
        mapping = job_mapping(plain(value), problems)
    except RecursionError:
        raise SpecError([Problem("job", "a value nested in itself", "a mapping of fields")], source) from None
    if mapping is None:
        raise SpecError(problems, source)
    problems += unwritable(mapping, "training_job")
    fields = Fields(mapping, "training_job", problems)
    spec = read_job(fields, scripts or {})
    fields.done()
    unknown = refused(fields, spec.backend)
    if unknown is not None:
        rules.check(spec, written(fields), problems, unknown)
    if problems:
        raise SpecError(problems, source)
    return spec


def written(fields: Fields) -> list[str]:
    """The fields that have a value."""
    return [name for name, item in fields.map.items() if item is not None]


def refused(fields: Fields, backend: str) -> set[str] | None:
    """The fields of the job that are not what its file says, as they were refused; None if it may be any of them.

    >>> fields = Fields({"team": 1, "queue": "a"}, "training_job", [])
    >>> fields.text("team"), sorted(refused(fields, DEFAULT))
    ('', ['namespace', 'team'])
    """
    names = set[str]()
    for problem in fields.problems:
        head, _, path = problem.path.partition(".")
        name = re.split(r"\W", path)[0]
        name = name if name in fields.known else nearest(name, fields.known)  # misspelt
        if head != "training_job" or not name or name == "backend":
            return None
        if name not in BACKENDS or name == backend:  # and not a block that is superfluous
            names |= {"block" if name in BACKENDS else name, *PARTS.get(name, ())}
            names |= {*DEFAULTS.get(name, ())} - {*written(fields)}
    return names


def job_mapping(value: Any, problems: Problems) -> Any:
    """The job itself: the value of training_job, or the whole mapping if it has no such key; None if it has no fields.

    A value that is not a mapping is one problem. To report the required fields as missing too would hide it.
    """
    if not isinstance(value, Mapping) or not value:
        fix = "begin with `training_job:` and indent the fields below it, as in jobs/digits.yml"
        problems.append(Problem("job", shown(value or None), "a mapping with the key training_job", fix))
        return None
    if "training_job" not in value:
        return value
    for key in value:
        if not str(key).startswith("training_job"):
            expected = "only training_job, and variables of the role that start with training_job_"
            problems.append(Problem(str(key), "a key of its own", expected, "indent it under training_job"))
    if not isinstance(value["training_job"], Mapping):
        fix = "indent the fields below it, as in jobs/digits.yml"
        problems.append(Problem("training_job", shown(value["training_job"]), "a mapping of fields", fix))
        return None
    return value["training_job"]


def read_job(fields: Fields, scripts: Mapping[str, str]) -> JobSpec:
    """All fields of a job, each converted and checked on its own."""
    name = fields.text("name", "job", need=True, what=names.DNS1035_RULE, ok=names.DNS1035)
    team = fields.text("team", what="the team's name: a-z, 0-9 and -", ok=names.DNS1123)
    resources = read_resources(fields.inner("resources"), Resources())
    own = fields.map.get("master_resources") is not None
    masters = read_resources(fields.inner("master_resources"), resources)
    gpus = max(resources.gpus, masters.gpus)
    return JobSpec(
        name=name,
        image=fields.text("image", need=True, what="an image's name, e.g. gangplank.dev/trainer:0.1.0", ok=names.IMAGE),
        namespace=fields.text("namespace", what="a namespace: a-z, 0-9 and -", ok=names.DNS1123) or team or "default",
        team=team,
        backend=(backend := fields.choice("backend", DEFAULT, tuple(BACKENDS))),
        image_pull_policy=fields.choice("image_pull_policy", "IfNotPresent", ("IfNotPresent", "Always", "Never")),
        script=read_script(fields, scripts),
        code=code if isinstance(code := fields.map.get("code"), str) else "",
        requirements=locked if isinstance(locked := fields.map.get("requirements"), str) else "",
        command=fields.words("command"),
        args=fields.words("args"),
        observe=fields.flag("observe", default=True),
        collective=fields.choice("collective", "nccl" if gpus else "gloo", ("gloo", "nccl")),
        collective_fallback=fields.choice("collective_fallback", "", ("", "gloo")),
        masters=fields.integer("masters", 1, 0, 1),
        workers=fields.integer("workers", 2, 0, 100_000),
        processes_per_node=fields.integer("processes_per_node", max(gpus, 1), 1, 1024),
        port=fields.integer("port", 23456, 1024, 65535),
        resources=resources,
        master_resources=masters if own else None,
        volumes=read_volumes(fields),
        min_available=fields.maybe("min_available", 1),
        queue=fields.text("queue", team, what="a queue's name", ok=names.SUBDOMAIN),
        priority=fields.text("priority", what="a PriorityClass's name", ok=names.SUBDOMAIN),
        max_retries=fields.integer("max_retries", 3, 0, 1000),
        deadline_s=fields.maybe("deadline_s", 1),
        ttl_s=fields.maybe("ttl_s", 0),
        elastic=read_elastic(fields),
        env=fields.pairs("env", env_problem),
        pull_secrets=read_secrets(fields, "pull_secrets"),
        secrets=read_secrets(fields, "secrets"),
        annotations=fields.pairs("annotations", annotation_problem),
        labels=fields.pairs("labels", label_problem),
        tolerations=read_tolerations(fields, "tolerations"),
        gpu_tolerations=read_tolerations(fields, "gpu_tolerations"),
        node_selector=fields.pairs("node_selector", label_problem),
        shm_size=fields.quantity("shm_size", "1Gi" if gpus else ""),
        hyperparameters=read_hyperparameters(fields.inner("hyperparameters")),
        output=fields.text("output", what=names.PLACE_RULE, ok=names.PLACE),
        block=read_blocks(fields)[backend],
    )


def read_blocks(fields: Fields) -> dict[str, object]:
    """The blocks of the job, one for each back-end."""
    blocks = {}
    for name, backend in BACKENDS.items():
        inner = fields.inner(name)
        blocks[name] = backend.read_block(inner)
        inner.done()
    return blocks


def read_amount(fields: Fields, name: str, default: Amount) -> Amount:
    """A resource: a quantity alone is the request; a mapping has request and limit."""
    if not isinstance(fields.map.get(name), Mapping):
        return Amount(fields.quantity(name, default.request), default.limit)
    inner = fields.inner(name)
    amount = Amount(inner.quantity("request", default.request), inner.quantity("limit", default.limit))
    inner.done()
    return amount


def read_resources(fields: Fields, default: Resources) -> Resources:
    """What one replica asks for; GPUs are whole, and request and limit are the same number."""
    gpus = fields.map.get("gpus")
    if isinstance(gpus, Mapping):
        inner = fields.inner("gpus")
        request, limit = inner.maybe("request", 0), inner.maybe("limit", 0)
        inner.done()
        if None not in {request, limit} and request != limit:
            expected = f"the limit, {limit} (GPUs cannot be overcommitted)"
            inner.bad("request", request, expected, "give one number")
        count = next((number for number in (limit, request) if number is not None), default.gpus)
    else:
        count = fields.integer("gpus", default.gpus, 0, 1024)
    resources = Resources(
        cpu=read_amount(fields, "cpu", default.cpu),
        memory=read_amount(fields, "memory", default.memory),
        gpus=count,
        gpu_resource=fields.text(
            "gpu_resource", default.gpu_resource, what="a resource's name, e.g. nvidia.com/gpu", ok=names.RESOURCE
        ),
    )
    if "gpu_resource" in fields.map and (expected := resource_problem(resources.gpu_resource)):
        fields.bad("gpu_resource", resources.gpu_resource, expected)
    fields.done()
    return resources


def read_script(fields: Fields, scripts: Mapping[str, str]) -> Script | None:
    """The job's script: an absolute path is in the image, a relative path is a file that travels in a ConfigMap."""
    path = fields.text("script", what="a path: absolute in the image, or relative to a file that is to be carried")
    what = "a relative path of a folder that travels with the script, e.g. ./project or ../project"
    code = fields.text("code", what=what, ok=BESIDE)
    locked = fields.text("requirements", what="a file of `code`, e.g. requirements.txt", ok=INSIDE)
    if fields.map.get("code") and not code:
        return None  # and nothing more about a script or requirements that are in it
    if locked and not code:
        fields.bad("requirements", locked, "a `code` that the file is in", "name its folder in `code`")
    if code and not path.endswith(".py"):
        fields.bad("script", path or None, "a file of `code` that ends in .py", "name it by its path in that folder")
        return None
    if code:
        return read_folder(fields, code, path, scripts, locked.removeprefix("./"))
    if not path:
        return None
    if not path.endswith(".py"):
        fields.bad("script", path, "a path that ends in .py", "start other programs with command and args")
        return None
    if path.startswith("/"):
        return Script(path)
    text = scripts.get(path)
    if text is None:
        fix = "check the path; for a script of the image, give its absolute path"
        fields.bad("script", path, "a file that can be read", fix)
        return None
    size = len(text.encode("utf-8", "surrogateescape"))
    if size > SCRIPT_LIMIT:
        fields.bad("script", f"{path} of {size} bytes", *TOO_LONG)
        return None
    base = path.rsplit("/", 1)[-1]
    if not re.fullmatch(r"[-\w.]{1,253}", base, re.ASCII):
        fields.bad("script", path, "a file name of letters, digits, - _ and . alone, as a ConfigMap's key must be")
        return None
    return Script(f"{pod_template.SCRIPT_FOLDER}/{base}", text, path)


def read_folder(fields: Fields, code: str, path: str, scripts: Mapping[str, str], locked: str) -> Script | None:
    """A script that travels with its folder."""
    start = code.rstrip("/") + "/"
    folder = {name.removeprefix(start): text for name, text in scripts.items() if name.startswith(start)}
    path = path.removeprefix("./")
    if not folder:
        fields.bad("code", code, "a folder with files that can be read", "check the path, which is as that of a script")
    elif path not in folder:
        example = min((name for name in folder if name.endswith(".py")), default=min(folder))
        fix = f"name one of its files by its path in that folder, e.g. {example}"
        fields.bad("script", path, f"a file of {code}", fix)
    elif problem := locked and requirements.problem(locked, folder, fields.map):
        fields.bad("requirements", *problem)
    else:
        place = f"{pod_template.SCRIPT_FOLDER}/{path}"
        return Script(place, folder[path], start + path, dict(sorted(folder.items())), locked)
    return None


def read_volumes(fields: Fields) -> tuple[Volume, ...]:
    """The volume claims that a job mounts."""
    volumes = []
    for inner in fields.each("volumes"):
        volume = Volume(
            claim=inner.text("claim", "claim", need=True, what="a PersistentVolumeClaim's name", ok=names.SUBDOMAIN),
            mount=inner.text("mount", "/", need=True, what="an absolute path without a colon", ok=names.ABSOLUTE),
            on=inner.choice("on", "all", ("all", "master")),
            read_only=inner.flag("read_only", default=False),
            access=inner.choice("access", "", names.ACCESS_MODES),
        )
        inner.done()
        volumes.append(volume)
    return tuple(volumes)


def read_secrets(fields: Fields, field: str) -> tuple[str, ...]:
    """The names of Secrets in a field."""
    secrets = fields.words(field)
    for index, name in enumerate(secrets):
        if not names.SUBDOMAIN.fullmatch(name):
            expected = "a Secret's name (its values stay in the cluster)"
            fields.bad(f"{field}[{index}]", name, expected, "name the Secret instead of giving its values")
        elif name in secrets[:index]:  # Kubernetes refuses some of these lists, and accepts others
            fields.bad(f"{field}[{index}]", name, "each Secret once", "remove the second")
    return secrets


def read_tolerations(fields: Fields, field: str) -> tuple[Json, ...]:
    """Tolerations as Kubernetes has them: some back-ends' pods are refused for one long after the submission."""
    tolerations = fields.mappings(field)
    for index, item in enumerate(tolerations):
        inner = Fields(item, fields.at(f"{field}[{index}]"), fields.problems)
        key = inner.text("key", what="a taint's key")
        if key and not names.is_key(key):
            inner.bad("key", key, "a taint's key, such as dedicated or nvidia.com/gpu")
        operator = inner.choice("operator", "Equal", ("Exists", "Equal"))
        value = inner.text("value", what="a taint's value")
        if not names.is_value(value):
            inner.bad("value", value, "letters, digits, - _ and ., at most 63")
        effect = inner.choice("effect", "", EFFECTS)
        seconds = inner.raw("tolerationSeconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | None) or abs(seconds or 0) >= SECONDS_END:
            inner.bad("tolerationSeconds", seconds, "a whole number of 64 bits")
        elif seconds is not None and effect != "NoExecute":
            inner.bad("effect", effect, "NoExecute with tolerationSeconds", "set it, or leave the seconds out")
        if operator == "Equal" and not key:
            inner.bad("operator", operator, "Exists for a toleration without a key", "name the taint's key")
        if operator == "Exists" and value:
            inner.bad("value", value, "no value with the operator Exists", "remove one of them")
        inner.done()
    return tolerations


def read_elastic(fields: Fields) -> Elastic | None:
    """The bounds of an elastic job, and the metrics of its autoscaler."""
    if fields.raw("elastic") is None:
        return None
    inner = fields.inner("elastic")
    bounds = Elastic(inner.integer("min", 1, 1), inner.integer("max", 1, 1), read_metrics(inner))
    for name in ("min", "max"):
        if name not in inner.map:
            inner.bad(name, None, "a number of workers", "give both min and max")
    if bounds.minimum > bounds.maximum and {"min", "max"} <= {*inner.map}:
        inner.bad("min", bounds.minimum, f"at most elastic.max, {bounds.maximum}")
    inner.done()
    return bounds


def read_metrics(fields: Fields) -> tuple[Json, ...]:
    """Metrics as Kubernetes has them: it checks them only when the autoscaler is made, long after the submission."""
    metrics = fields.mappings("metrics")
    for index, metric in enumerate(metrics):
        source, needed, values = METRICS.get(str(metric.get("type")), ("", (), ()))
        if not source or metric.keys() != {"type", source} or not isinstance(metric[source], Mapping):
            pairs = ", ".join(f"{kind} and {field}" for kind, (field, *_) in METRICS.items())
            expected = f"a type with the field of its name ({pairs})"
            fields.bad(f"metrics[{index}]", metric, expected, f"write it as in {UTILIZATION}")
            continue
        part, target = metric[source], metric[source].get("target")
        has = [name for name in values if isinstance(target, Mapping) and target.get(name) is not None]
        if len(has) != 1 or not target.get("type") or not all(part.get(name) for name in needed):
            expected = f"{', '.join(needed)}, and a target with its type and {' or '.join(values)}"
            fields.bad(f"metrics[{index}].{source}", part, expected, f"write it as in {UTILIZATION}")
    return metrics


def read_hyperparameters(fields: Fields) -> dict[str, int | float | str]:
    """The hyperparameters that are set, in the order of the table."""
    values: dict[str, int | float | str] = {}
    for name, (kind, least, most) in HYPERPARAMETERS.items():
        if fields.map.get(name) is not None:
            integer = kind is int
            values[name] = (
                fields.integer(name, int(least), int(least), int(most))
                if integer
                else fields.number(name, least, least, most)
            )
        elif name in fields.map:
            fields.bad(name, None, "a number", "leave the line out to get the trainer's default")
    fields.known.extend(HYPERPARAMETERS)
    for name in PLACES:
        if place := fields.text(name, what=names.PLACE_RULE, ok=names.PLACE):
            values[name] = place
    fields.done()
    return values


def env_problem(name: str, value: str) -> str:
    """What was expected of an environment variable, or "" if it is fine."""
    if not names.ENV.fullmatch(name):
        return "a name of letters, digits and _ that does not start with a digit"
    if wiring.is_reserved(name):
        return "a variable that the wiring does not own (the controller sets this one, and its value wins)"
    if name in wiring.SETTABLE and not wiring.SECONDS.fullmatch(value):
        return "seconds, such as 30 or 0.5; 0 is never"
    return "text without a zero byte" if "\x00" in value else ""


def owned_prefixes() -> list[str]:
    """The prefixes of labels that a job may not set: ours and those of the back-ends' controllers."""
    theirs = (prefix for backend in BACKENDS.values() for prefix in backend.wiring.prefixes)
    return list(dict.fromkeys([pod_template.JOB_LABEL.partition("/")[0], *theirs]))


def label_problem(key: str, value: str) -> str:
    """What was expected of a label, or "" if it is fine."""
    if not names.is_key(key):
        return "a key like team or example.com/team"
    if key.partition("/")[0] in owned_prefixes():
        return "a label of your own (this prefix belongs to gangplank or to a controller)"
    return "" if names.is_value(value) else "letters, digits, - _ and ., at most 63"


def annotation_problem(key: str, _value: str) -> str:
    """What was expected of an annotation, or "" if it is fine."""
    return "" if names.is_key(key) else "a key like note or example.com/note"
