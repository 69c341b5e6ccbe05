"""Checks the proofs, and compares what follows from them with what is committed.

::

    python3 run.py prove            checks, prints what each theorem rests on at most,
                                    compares
    python3 run.py prove --write    renews proofs/assumptions.txt and
                                    tests/support/checked_ledger.py
    python3 run.py prove --recheck  also checks what was compiled, and Coq's library, by
                                    Coq's small checker; with a release

Needs Coq. Everything is built in a temporary folder.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from to_python import to_python

PROOFS = Path(__file__).resolve().parent
ASSUMPTIONS = PROOFS / "assumptions.txt"
ORACLE = PROOFS.parent / "tests" / "support" / "checked_ledger.py"

_GENEROUS = {"OCAMLRUNPARAM": "s=8M,o=1000"}
"""Coq's garbage collector: a process lives for a second, so it need not tidy up."""

MISSING = "The proofs need Coq; on Debian or Ubuntu: sudo apt install --no-install-recommends coq"

STATEMENTS = ("Statements", "FurtherStatements")
_THEOREM = re.compile(
    r"^\s*(?:Theorem|Lemma|Corollary|Proposition|Fact|Remark)\s+(\w+)", re.MULTILINE
)
_REFUSED = re.compile(
    # what leaves a proof open
    r"\b(?:Axioms?|Parameters?|Conjectures?|Admitted|give_up)\b|\b[Aa]dmit\s*[.;]"
    # what weakens the check, or exchanges an extracted function for another
    r"|\bUnset\b|\bbypass_check\b|\bAdmit Obligations\b"
    r"|\bExtract\s+(?:Inlined\s+)?(?:Constant|Inductive)\b"
)


def main(arguments: list[str]) -> int:
    """Check everything.

    Returns:
        0; 1 if a proof fails or something committed differs; 2 if Coq is missing.
    """
    if not all(shutil.which(program) for program in ("coqc", "coqdep")):
        print(MISSING, file=sys.stderr)
        return 2
    refused = refusals(PROOFS)
    if refused:
        print("\n".join(refused), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            texts = _checked(folder)
            if "--recheck" in arguments:
                print(_run(folder, "coqchk", "-silent", "-o", *STATEMENTS))
        except subprocess.CalledProcessError as error:
            print(f"{' '.join(error.cmd)} failed; see above.", file=sys.stderr)
            return 1
    print(texts[ASSUMPTIONS], end="")
    print(_size())
    if "--write" in arguments:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        return 0
    return _compare(texts)


def refusals(folder: Path) -> list[str]:
    """The lines of proofs that assume something, or weaken the check; comments, too."""
    found = []
    for path in sorted(folder.glob("*.v")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            word = _REFUSED.search(line)
            if word is not None:
                found.append(f"{path.name}:{number}: {word.group()} is refused")
    return found


def _checked(folder: Path) -> dict[Path, str]:
    """Build in a folder; what has to be committed, by path."""
    for path in PROOFS.glob("*.v"):
        shutil.copy(path, folder)
    for name in _run(folder, "coqdep", "-sort", *_names(folder)).split():
        _run(folder, "coqc", "-q", "-noglob", name)
    extraction = json.loads((folder / "checked_ledger.json").read_text("utf-8"))
    return {ASSUMPTIONS: _assumptions(folder), ORACLE: to_python(extraction)}


def _assumptions(folder: Path) -> str:
    """What each theorem rests on, at most, one line each.

    Coq takes seconds for each question about real numbers. So it is asked once for all
    theorems with one committed answer, and about one theorem only where this differs.
    """
    texts = [(folder / f"{name}.v").read_text("utf-8") for name in STATEMENTS]
    theorems = _THEOREM.findall("".join(texts))
    groups: dict[str, list[str]] = {}
    committed = _committed()
    for name in theorems:
        groups.setdefault(committed.get(name, name), []).append(name)
    answers = _answers(folder, groups)
    found = {
        name: answer
        for answer, names in groups.items()
        for name in names
        if answers[answer] == answer
    }
    left = [name for name in theorems if name not in found]
    if left:
        found |= _answers(folder, {name: [name] for name in left})
    return "".join(f"{name}: {found[name]}\n" for name in theorems)


def _committed() -> dict[str, str]:
    """The committed answers, by theorem."""
    if not ASSUMPTIONS.exists():
        return {}
    lines = ASSUMPTIONS.read_text("utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def _answers(folder: Path, groups: dict[str, list[str]]) -> dict[str, str]:
    """What the theorems of each group rest on together."""
    questions = [f"Require Import {' '.join(STATEMENTS)}."]
    for number, names in enumerate(groups.values()):
        together = ", ".join(f"@{name}" for name in names)
        questions.append(f"Definition group_{number} := ({together}).")
        questions.append(f'Redirect "{number}" Print Assumptions group_{number}.')
    (folder / "Questions.v").write_text("\n".join(questions), encoding="utf-8")
    _run(folder, "coqc", "-q", "Questions.v")
    answers = {}
    for number, group in enumerate(groups):
        answer = (folder / f"{number}.out").read_text("utf-8")
        answers[group] = ", ".join(_axioms(answer)) or "nothing"
    return answers


def _axioms(answer: str) -> list[str]:
    """The names in an answer of ``Print Assumptions``; their types are indented."""
    if answer.strip() == "Closed under the global context":
        return []
    lines = [line for line in answer.splitlines() if line and not line[0].isspace()]
    return sorted(line.split()[0] for line in lines if line != "Axioms:")


def _compare(texts: dict[Path, str]) -> int:
    different = [
        path.relative_to(PROOFS.parent).as_posix()
        for path, text in texts.items()
        if not path.exists() or path.read_bytes() != text.encode("utf-8")
    ]
    if not different:
        return 0
    version = _run(PROOFS, "coqc", "--print-version").split()[0]
    print(
        f"Not what Coq {version} gives: {', '.join(different)}. If the change is meant: "
        "python3 run.py prove --write",
        file=sys.stderr,
    )
    return 1


def _size() -> str:
    lines = sum(
        len(path.read_text("utf-8").splitlines()) for path in PROOFS.glob("*.v")
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    return f"{lines} lines of proofs, checked in {seconds:.0f} s of CPU"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.v"))


def _run(folder: Path, *command: str) -> str:
    """What a program prints. Its complaints go to the terminal."""
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **_GENEROUS},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
