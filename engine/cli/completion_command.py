"""The command ``quarry completion``: a script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping

__all__ = ["SHELLS", "completion_script"]

_BASH = """\
_quarry() {
  local words=
  COMPREPLY=()
  case $COMP_CWORD:${COMP_WORDS[1]} in
CASES
  esac
  if [[ $COMP_CWORD = 1 || $2 = -* ]]; then COMPREPLY=($(compgen -W "$words" -- "$2")); fi
}
complete -o default -F _quarry quarry"""
_ZSH = """\
#compdef quarry
_quarry() {
  local words_of=
  case $((CURRENT - 1)):$words[2] in
CASES
  esac
  if [[ $CURRENT = 2 || $PREFIX = -* ]]; then compadd -- ${=words_of}; else _files; fi
}
compdef _quarry quarry"""
SHELLS = ("bash", "zsh", "fish")


def completion_script(shell: str, parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return a script of a shell, for the commands of these names; files are completed as usual.

    Args:
        shell: one of `SHELLS`.
        parsers: the parsers of the commands by their names.
    """
    # argparse has no public way to the options of a parser
    options = {name: each._option_string_actions for name, each in parsers.items()}
    if shell == "fish":
        return "\n".join(_fish_lines(parsers, options))
    variable = "words" if shell == "bash" else "words_of"
    cases = {"1:*": parsers, **{f"*:{name}": words for name, words in options.items()}}
    lines = "\n".join(f"  {case}) {variable}='{' '.join(words)}' ;;" for case, words in cases.items())
    return (_BASH if shell == "bash" else _ZSH).replace("CASES", lines)


def _fish_lines(
    parsers: Mapping[str, argparse.ArgumentParser], options: Mapping[str, Mapping[str, argparse.Action]]
) -> list[str]:
    lines = []
    for name, parser in parsers.items():
        summary = shlex.quote(parser.description or "")
        lines.append(f"complete -c quarry -n __fish_use_subcommand -f -a {name} -d {summary}")
        for word, action in options[name].items():
            kind = "-l" if word.startswith("--") else "-s"
            takes = "" if action.nargs == 0 else " -r"
            text = shlex.quote(" ".join((action.help or "").replace("%%", "%").split()))
            condition = shlex.quote(f"__fish_seen_subcommand_from {name}")
            lines.append(f"complete -c quarry -n {condition} {kind} {word.lstrip('-')}{takes} -d {text}")
    return lines
