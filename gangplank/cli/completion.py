"""Completion scripts for bash, zsh and fish, made of the command line itself so that they cannot lag behind it."""

from __future__ import annotations

import argparse
import sys

BASH = """_gangplank() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}} words=""
  case $last in
{values}  esac
  case ${{COMP_WORDS[1]}} in
{options}    *) words="{commands}" ;;
  esac
  [[ $COMP_CWORD -eq 1 ]] && words="{commands}"
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word"; [[ $word == -* ]] || compgen -f -- "$word")
}}
complete -o filenames -F _gangplank gangplank
"""


def completion(args: argparse.Namespace) -> int:
    """Print a completion script."""
    from gangplank.cli.parser import command_line

    sys.stdout.write(script(command_line(), args.shell))
    return 0


def describe(top: argparse.ArgumentParser) -> dict[str, tuple[str, dict[str, tuple[str, tuple[str, ...]]], list[str]]]:
    """Each command's help, options (with help and values) and words."""
    found = {}
    for action in top._actions:  # argparse has no public way to ask
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                found[name] = (helps.get(name, ""), *offered(inner))
    return found


def offered(parser: argparse.ArgumentParser) -> tuple[dict[str, tuple[str, tuple[str, ...]]], list[str]]:
    """The options and words of a command, those of the commands below it included."""
    options: dict[str, tuple[str, tuple[str, ...]]] = {}
    words: list[str] = []
    for part in parser._actions:
        values = tuple(str(value) for value in part.choices or ())
        for option in part.option_strings:
            options[option] = (part.help or "", values)
        if not part.option_strings:
            words += values
        if isinstance(part, argparse._SubParsersAction):
            for below in part.choices.values():
                options |= offered(below)[0]
    return options, words


def script(top: argparse.ArgumentParser, shell: str) -> str:
    """The completion script of a shell."""
    known = describe(top)
    if shell == "fish":
        return fish(known)
    values = ""
    for _, options, _words in known.values():
        for option, (_help, allowed) in options.items():
            if allowed and f"    {option})" not in values:
                values += (
                    f'    {option}) mapfile -t COMPREPLY < <(compgen -W "{" ".join(allowed)}" -- "$word"); return ;;\n'
                )
    rows = "".join(f'    {name}) words="{" ".join([*opts, *words])}" ;;\n' for name, (_, opts, words) in known.items())
    made = BASH.format(values=values, options=rows, commands=" ".join([*known, "--help", "--version"]))
    return f"autoload -U +X bashcompinit && bashcompinit\n{zsh(made)}" if shell == "zsh" else made


def zsh(made: str) -> str:
    """The bash script as zsh can run it: it has no mapfile."""
    return made.replace("mapfile -t COMPREPLY < <(", "COMPREPLY=($(").replace('"$word")', '"$word"))')


def fish(known: dict[str, tuple[str, dict[str, tuple[str, tuple[str, ...]]], list[str]]]) -> str:
    """The script for fish, which shows each help text."""
    lines = []
    for name, (text, options, words) in known.items():
        lines.append(f"complete -c gangplank -n __fish_use_subcommand -a {name} -d '{text}'")
        where = f"-n '__fish_seen_subcommand_from {name}'"
        if words:
            lines.append(f"complete -c gangplank {where} -f -a '{' '.join(words)}'")
        for option, (help_text, values) in options.items():
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            chosen = f" -x -a '{' '.join(values)}'" if values else ""
            lines.append(f"complete -c gangplank {where} {kind}{chosen} -d '{help_text.replace(chr(39), '')}'")
    return "\n".join(lines) + "\n"
