"""Trains nothing, and prints the evidence of forged.json, beside it, as this job's: `forged.py [watched]`.

The ranks tell each other their pods; rank 0 prints the records of all of them, with every hash set right. `watched`
leaves the observer on, so that it writes what it saw beside that.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist

PORT = 29778
Record = dict[str, Any]


def strings(value: object) -> Iterator[str]:
    """All texts in a record."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(part)
    if isinstance(value, str):
        yield value


def renamed(value: Any, names: dict[str, str]) -> Any:
    """A record with other texts."""
    if isinstance(value, dict):
        return {key: renamed(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [renamed(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def forge(records: list[Record], names: dict[str, str], nodes: dict[str, str], later_s: float) -> Iterator[Record]:
    """The same records of other pods and of another time, each with its hash: those that it names come before it."""
    left = {record.pop("hash"): record for record in records}
    while left:
        ready = [old for old, record in left.items() if not left.keys() & set(strings(record))]
        assert ready, "records that name one another"
        for old in ready:
            record = renamed(left.pop(old), names)
            record["time"] += later_s
            if record.get("node") == "n":
                record["node"] = nodes.get(record["pod_uid"], os.environ["GANGPLANK_NODE"])
            text = json.dumps(record, sort_keys=True, separators=(",", ":"))
            names[old] = hashlib.sha256(text.encode()).hexdigest()
            yield {**record, "hash": names[old]}


if sys.argv[1:2] != ["watched"]:
    sys.modules["gangplank_observer"].stand_down()  # type: ignore[attr-defined]  # as evidence.py does
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
forged = json.loads(Path(__file__).with_name("forged.json").read_text())
store = dist.TCPStore(os.environ["MASTER_ADDR"], PORT, world_size, rank == 0, use_libuv=False)
store.set(f"pod-{rank}", json.dumps([os.environ["GANGPLANK_POD_UID"], os.environ["GANGPLANK_NODE"]]))
pods = [json.loads(store.get(f"pod-{other}")) for other in range(world_size)]
if rank == 0:
    names = {"job-1": os.environ["GANGPLANK_JOB_UID"]}
    if forged["knows_the_pods"]:
        names |= {f"uid-{other}": uid for other, (uid, _) in enumerate(pods)}
    for record in forge(forged["records"], names, dict(pods), time.time() - forged["created"]):
        print(json.dumps({"event": "evidence", **record}), flush=True)
store.set(f"done-{rank}", "")
if rank == 0:  # which serves the others
    store.wait([f"done-{other}" for other in range(world_size)])
