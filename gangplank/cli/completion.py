"""Completion in bash, zsh and fish, by argcomplete: it asks the parser, and the cluster for names of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    import queue

CLUSTER_S = 1.5  # for the cluster to answer; with the start of Python, the Tab key takes at most about two seconds


def completion(args: argparse.Namespace) -> int:
    """Print the script that registers the command in a shell."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["gangplank"], shell=args.shell))
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell's request for completions, and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser, always_complete_options=False)


def files_and_jobs(prefix: str, parsed_args: argparse.Namespace, **_: object) -> dict[str, str]:
    """Files, and the jobs of the namespace with a description; no jobs if the cluster does not answer in time."""
    import queue
    import threading

    from argcomplete.completers import FilesCompleter

    answer: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
    threading.Thread(target=ask_cluster, args=(parsed_args, answer), daemon=True).start()
    files = dict.fromkeys(FilesCompleter()(prefix), "")
    try:
        return files | answer.get(timeout=CLUSTER_S)
    except queue.Empty:
        return files


def ask_cluster(args: argparse.Namespace, answer: queue.SimpleQueue[dict[str, str]]) -> None:
    """Put the jobs of the namespace, by name, into `answer`; none if the cluster cannot be asked."""
    try:
        from gangplank.cli.cluster import cluster_of
        from gangplank.cli.jobs import summaries

        kube = cluster_of(args)
        rows = summaries(kube, kube.namespace_of(args.namespace))
        answer.put({name: f"{backend}, {state}" for name, backend, state, _ in rows})
    except Exception:  # noqa: BLE001  a shell that completes a word has no place for messages
        answer.put({})
