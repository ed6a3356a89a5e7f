"""Job descriptions of every shape that is accepted, for property tests and for comparison with live controllers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gangplank.backends import BACKENDS

Json = dict[str, Any]

names = st.from_regex(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)
keys = st.from_regex(r"[a-z][a-z0-9]{0,8}(\.example\.com/[a-z]{1,8})?", fullmatch=True)
values = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?)?", fullmatch=True)
variables = st.from_regex(r"(MY|APP)_[A-Z0-9_]{1,12}", fullmatch=True)
words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=30)
cpus = st.sampled_from(["250m", "500m", "1", "1.5", 2, "4"])
memories = st.sampled_from(["256Mi", "1Gi", "1.5Gi", "1G", "2000000Ki"])


@st.composite
def resources(draw: st.DrawFn, gpus: int) -> Json:
    """What a replica asks for, with and without limits."""
    cpu, memory = draw(cpus), draw(memories)
    amounts: Json = {
        "cpu": draw(st.sampled_from([cpu, {"request": cpu, "limit": "8"}])),
        "memory": draw(st.sampled_from([memory, {"request": memory, "limit": "8Gi"}])),
    }
    if gpus:
        amounts["gpus"] = draw(st.sampled_from([gpus, {"limit": gpus}]))
    return amounts


@st.composite
def volumes(draw: st.DrawFn, *, one_template: bool) -> list[Json]:
    """Claims at places of their own, on all replicas or on the master."""
    mounts = []
    for index in range(draw(st.integers(0, 3))):
        volume: Json = {"claim": draw(names), "mount": f"/mnt/v{index}"}
        if one_template or draw(st.booleans()):
            volume["access"] = draw(st.sampled_from(["ReadWriteMany", "ReadOnlyMany"]))
        else:
            volume["on"] = "master"
        mounts.append({**volume, "read_only": draw(st.booleans())})
    return mounts


# What only one back-end has.
BLOCKS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "volcano": {
        "plugins": st.sampled_from([{}, {"env": []}, {"pytorch": ["--wait-master-enabled"]}, {"ssh": []}]),
        "restart_policy": st.sampled_from(["Never", "OnFailure"]),
    },
    "pytorchjob": {
        "restart_policy": st.sampled_from(["OnFailure", "Never", "Always", "ExitCode"]),
        "nproc": st.just("auto"),
    },
}


def optional(draw: st.DrawFn, strategies: dict[str, st.SearchStrategy[Any]]) -> Json:
    """Some of the fields."""
    return {name: draw(strategy) for name, strategy in strategies.items() if draw(st.booleans())}


@st.composite
def jobs(draw: st.DrawFn, backend: str | None = None, most: int = 6) -> Json:
    """A whole job file that the library accepts."""
    backend = backend or draw(st.sampled_from(tuple(BACKENDS)))
    gpus = draw(st.sampled_from([0, 0, 1, 2]))
    workers = draw(st.integers(0, most))
    job: Json = {
        "name": draw(names),
        "image": draw(st.sampled_from(["img", "example.com/a/b:1.0", "img@sha256:" + "0" * 64])),
        "backend": backend,
        "workers": workers,
        "resources": draw(resources(gpus)),
        "volumes": draw(volumes(one_template=BACKENDS[backend].one_template)),
    }
    job |= optional(
        draw,
        {
            "namespace": names,
            "team": names,
            "env": st.dictionaries(variables, words, max_size=3),
            "labels": st.dictionaries(keys, values, max_size=3),
            "annotations": st.dictionaries(keys, words, max_size=3),
            "node_selector": st.dictionaries(keys, values, max_size=2),
            "tolerations": st.just([{"key": "a", "operator": "Exists"}]),
            "pull_secrets": st.lists(names, max_size=2, unique=True),
            "shm_size": memories,
            "args": st.lists(words, max_size=3),
        },
    )
    if draw(st.booleans()):
        job["script"] = "/opt/a.py"
        job["hyperparameters"] = draw(st.fixed_dictionaries({}, optional={"epochs": st.integers(1, 9)}))
        job["processes_per_node"] = draw(st.integers(1, gpus or 4))
    else:
        job["command"] = ["python3", "a.py"]
        job["processes_per_node"] = 1
    portable = {
        "queue": names,
        "priority": names,
        "min_available": st.integers(1, workers + 1),
        "deadline_s": st.integers(1, 99),
        "ttl_s": st.integers(0, 99),
        "max_retries": st.integers(0, 9),
        "port": st.integers(1024, 65535),
        "secrets": st.lists(names, min_size=1, max_size=2, unique=True),
    }
    job |= optional(draw, {name: some for name, some in portable.items() if name not in BACKENDS[backend].refuses})
    if backend in BLOCKS:
        job[backend] = optional(draw, BLOCKS[backend])
    return {"training_job": job}
