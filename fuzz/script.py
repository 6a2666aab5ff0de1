"""A case as a stand-alone Python file: what one sends to a compiler's authors, who need nothing of ours to run it.

The file imports torch and the compiler only. It builds the inputs' storages and the views on them, twice; runs the program
in eager on one copy and compiled on the other; prints what differs; and exits with 1 if anything does, else 0.
"""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from corpus.case import Case
from executor import printing, targets
from executor.program import Backward, Inputs
from executor.schema import changes_metadata
from fuzz.script_parts import (
    ALIASES,
    ARGUMENTS,
    BUILD,
    BUILD_WITH_GRADIENTS,
    IDENTITIES,
    KIND,
    MAIN,
    OBSERVE,
    gradients,
    same,
    state,
)
from fuzz.subjects import mixed_storages, partly_written

_OURS = ("aliasfuzz", "corpus", "executor", "fuzz", "strategies")
_ROOT = str(Path(__file__).resolve().parents[1])
Outcome = Literal["differs", "equal", "crash", "timeout", "broken"]
_MOST_OUTPUT = 1 << 20  # bytes of a script's output that are kept


def script(case: Case) -> str:
    """The file's text. Raises `TargetError` if the case's target cannot be used from a script, or is not installed.

    Compared are results (dtype, shape, strides, values, where NaN equals NaN), the inputs' storages as a whole, and
    exceptions; who shares memory with whom if that is the case's symptom. Without `case.exact`, floating-point values may
    differ by what `torch.testing.assert_close` allows for their dtype; the case itself is judged more strictly.
    """
    calls = (case.program.entry, *case.calls)
    symptom = case.signature.symptom.partition(" ")[0] if case.signature else ""
    builders = [_builder(case, inputs, k) for k, inputs in enumerate(calls, 1)]
    changed = {call.operands[0] for call in case.program.calls if changes_metadata(call.op)} & {*case.program.inputs}
    plan = (case.program.backward or Backward()) if case.program.leaves or case.program.rooted else None
    observe = OBSERVE.replace(BUILD, BUILD if plan is None else BUILD_WITH_GRADIENTS) + ARGUMENTS * bool(changed)
    observe += ALIASES * (symptom in {"", "alias"}) + IDENTITIES * (symptom in {"", "identity"})
    observe += gradients(plan, none=targets.get(case.target).limits.none_gradients) if plan is not None else ""
    compiler = "\n".join(line for line in targets.get(case.target).script() if line != "import torch")
    parts = [
        _header(case) + "\n\nimport torch", printing.function(case.program), *builders,
        *([state(plan)] if plan is not None else []), f"{observe}    return seen",
        *([KIND] if case.program.raises else []), same(exact=case.exact, raises=bool(case.program.raises)), compiler,
        MAIN.format(builders=", ".join(f"inputs_{k}" for k in range(1, len(calls) + 1))),
    ]  # fmt: skip
    return "\n\n\n".join(part.rstrip() for part in parts) + "\n"


class ScriptRun(NamedTuple):
    """What a script did: "differs" and "equal" as it said itself, "crash" of the process, "timeout", or "broken".

    `code` is its exit status, negative for a signal, None after a timeout; `output` what it printed.
    """

    outcome: Outcome
    code: int | None
    output: str

    @property
    def reproduces(self) -> bool:
        """Whether the compiler did not do what eager does. A slow compiler's timeout looks like a hanging one's."""
        return self.outcome in {"differs", "crash", "timeout"}


def check_script(text: str, timeout: float = 60) -> ScriptRun:
    """Runs a script once in a clean process: an empty folder, no environment of Python's, none of our packages.

    Only a script that itself imports `aliasfuzz`, as one for our own compiler does, finds it. After `timeout` seconds
    the process and all that it started are killed.
    """
    with tempfile.TemporaryDirectory(prefix="aliasfuzz-") as folder:
        path = Path(folder, "script.py")
        path.write_text(text, encoding="utf-8")
        with Path(folder, "output").open("w+b") as output:
            code = _run([sys.executable, "-I", "-c", _launcher(text), str(path)], folder, output.fileno(), timeout)
            output.seek(0)
            said = output.read(_MOST_OUTPUT).decode(errors="replace")
    return ScriptRun(_outcome(code, said), code, said)


def _header(case: Case) -> str:
    signature = f": {case.signature.symptom}" if case.signature else ""
    differs = "does not do" if case.state in {"open", "changed"} else "must do"
    versions = ", ".join(f"{name} {number}" for name, number in sorted(case.versions.items())) or "unknown versions"
    lines = [f"{case.target} {differs} what eager PyTorch does{signature}. Case {case.digest}.", ""]
    lines += [*case.note.splitlines(), ""] if case.note else []
    lines += [f"Seen with {versions}.", "Exits with 1 and prints what differs, or with 0 if nothing does."]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""'


def _builder(case: Case, inputs: Inputs, number: int) -> str:
    """A function that makes one call's arguments, and the storages that they lie on."""
    names = printing.input_names(case.program)
    lines = printing.inputs(inputs, [names[i] for i in case.program.inputs])
    arguments = ", ".join(printing.source(param.value, names) for param in case.program.params)
    # Storages come first in the lines, each under one name.
    storages = list(dict.fromkeys(line.partition(" = ")[0] for line in lines))[: len(inputs.storages)]
    as_bytes = mixed_storages(case.program, inputs)
    seen = [f"{name}.view(torch.uint8)" if i in as_bytes else name for i, name in enumerate(storages)]
    returned = f"return [{arguments}], [{', '.join([] if partly_written(case.program) else seen)}]"
    wanted = printing.leaves(inputs, [names[i] for i in case.program.inputs])
    lines.append(returned + (f", dict({', '.join(f'{name}={name}' for name in wanted)})" if wanted else ""))
    return f"def inputs_{number}():\n" + "\n".join(f"    {line}" for line in lines)


def _launcher(text: str) -> str:
    """Python that runs the file which is its argument, with our packages out of reach, or the checkout in reach."""
    imports = {alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names}
    imports |= {node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    ours = any(name.partition(".")[0] == "aliasfuzz" for name in imports)
    reach = f"sys.path.append({_ROOT!r})" if ours else f"sys.modules.update(dict.fromkeys({_OURS!r}))"
    return f"import runpy, sys; {reach}; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


def _run(command: Sequence[str], folder: str, output: int, timeout: float) -> int | None:
    """The exit code; None if the time was up, when the whole process group is killed."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(folder: str) -> dict[str, str]:
    """This process's environment without Python's own settings; caches go to the folder that is thrown away."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    return kept | {"TORCHINDUCTOR_CACHE_DIR": folder, "TMPDIR": folder}


def _outcome(code: int | None, said: str) -> Outcome:
    last = said.rstrip().rpartition("\n")[2]
    if code is None:
        return "timeout"
    if code == 1 and last.startswith("DIFFERS"):
        return "differs"
    if code == 0 and last == "equal to eager":
        return "equal"
    return "crash" if code < 0 or code > 1 else "broken"
