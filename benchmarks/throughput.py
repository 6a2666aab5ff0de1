"""Programs per second of this fuzzer and of its peers, of like length, in one run on one core.

    python benchmarks/throughput.py [--seconds 20] [--torchfuzz FOLDER] [--nnsmith PYTHON]

Rows: `null` (a program is drawn, and runs in eager twice), `pipeline` (drawn, run in eager, compiled afresh, run under a
hostile schedule, compared), and both again with inputs that require grad ("grad"). Then the peers that are given:

- torchfuzz, PyTorch's own, which is no package: FOLDER has it as `torchfuzz`, such as `tools/experimental` in a checkout of
  PyTorch. A graph of operators is drawn, to the depth that it draws itself (2 to 4), written as Python, and run in eager
  once, in a process of its own under this interpreter. What its programs do after that (compile, compare) is cut off, and
  they run on the CPU. Operators are what is neither an argument nor a constant; a program that fails costs its seconds, and
  counts for nothing. Not run yet: tests have a stand-in for it (`tests/test_throughput_peers.py`).
- NNSmith: a model of `--nodes` operators is drawn with its solver, made concrete, and runs in eager once. PYTHON is an
  interpreter that has it: `pip install nnsmith torch==2.13.0` in an environment of its own.

Seconds are those of the process, so that what else the machine does counts little. Prints programs, operators per program
in the median, programs and operators per second, and the ratio of operators per second to those of the last peer.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # NNSmith's interpreter runs this file too, and has none of these
    from types import ModuleType

    from executor.program import Program
    from fuzz.check import Verdict

_HOPELESS = 100  # programs of a peer that fail before any that runs: it is not the version that is known here
BATCH = 200  # of our programs that are drawn from one seed


class Row:
    """What one fuzzer did: operators of each program, and the seconds that it took for all."""

    def __init__(self, name: str, lengths: list[int], seconds: float) -> None:
        self.name, self.lengths, self.seconds = name, lengths, seconds

    @property
    def operators(self) -> float:
        """Operators per second."""
        return sum(self.lengths) / self.seconds

    def print(self, peer: float | None) -> None:
        """The row of the table, with the ratio to the peer's operators per second if there is a peer."""
        rate, median = len(self.lengths) / self.seconds, statistics.median(self.lengths)
        ratio = f"{self.operators / peer:8.1f}" if peer else f"{'-':>8}"
        print(f"{self.name:<16}{len(self.lengths):>9}{median:>10.0f}{rate:>12.1f}{self.operators:>13.0f}{ratio}")


def ours(target: str, seconds: float, *, gradients: bool = False) -> Row:
    """Our programs on a target, for so long."""
    from executor import targets
    from fuzz.batch import Batch
    from fuzz.campaign import batch_seed, judge, set_aside
    from strategies.programs import programs

    compiler, lengths, number = targets.get(target), list[int](), 0
    strategy = programs(compiler.limits, gradients=gradients)
    start = 0.0
    with set_aside():  # as a campaign does
        while number < 2 or time.process_time() - start < seconds:
            seed = batch_seed(1, target, 0, number)
            Batch(_counting(judge(compiler, seed), lengths), float("inf"), 30.0).run(strategy, seed, BATCH)
            number += 1
            if number == 1:  # everything is imported and cached now
                start = time.process_time()
                lengths.clear()
    return Row(f"{target}, grad" if gradients else target, lengths, time.process_time() - start)


def _counting(verdict: Callable[[Program], Verdict], lengths: list[int]) -> Callable[[Program], Verdict]:
    def counted(program: Program) -> Verdict:
        lengths.append(len(program.calls))
        return verdict(program)

    return counted


def nnsmith(seconds: float, nodes: int) -> Row:
    """NNSmith's models of so many operators, for so long. It must be installed in this interpreter."""
    model_type = importlib.import_module("nnsmith.materialize").Model.init("torch", "cpu")
    model_type.add_seed_setter()
    operators = importlib.import_module("nnsmith.narrow_spec").auto_opset(model_type)
    model_gen = importlib.import_module("nnsmith.graph_gen").model_gen
    lengths: list[int] = []
    start = time.process_time()
    while time.process_time() - start < seconds:
        found = model_gen(
            opset=operators, method="symbolic-cinit", seed=len(lengths), max_elem_per_tensor=1 << 16, max_nodes=nodes,
            timeout_ms=10_000,
        )  # fmt: skip
        graph = found.make_concrete()
        model = model_type.from_gir(graph)
        model.refine_weights()
        model.make_oracle()
        lengths.append(graph.n_compute_inst())
    return Row("NNSmith", lengths, time.process_time() - start)


def torchfuzz(folder: Path, seconds: float) -> Row:
    """The programs of PyTorch's torchfuzz, which lies in this folder, for so long. Raises RuntimeError if none runs."""
    import torch

    sys.path.insert(0, str(folder))
    fuzzer = importlib.import_module("torchfuzz.ops_fuzzer")
    codegen = importlib.import_module("torchfuzz.codegen")
    lengths, failed = list[int](), list[Exception]()
    start = time.process_time()
    while time.process_time() - start < seconds:
        seed = len(lengths) + len(failed)
        random.seed(seed)
        torch.manual_seed(seed)
        try:
            lengths.append(_torchfuzz_once(fuzzer, codegen, seed))
        except Exception as error:  # noqa: BLE001 - it draws some that eager refuses
            failed.append(error)
            if not lengths and len(failed) == _HOPELESS:
                break
    spent = time.process_time() - start
    if not lengths:
        raise RuntimeError(f"none of {len(failed)} programs of torchfuzz ran; the last: {failed[-1]!r}")
    if failed:
        print(f"torchfuzz: {len(failed)} programs failed, which are not counted", file=sys.stderr)
    return Row("torchfuzz", lengths, spent)


def _torchfuzz_once(fuzzer: ModuleType, codegen: ModuleType, seed: int) -> int:
    """Draws a program and runs it in eager. Returns its number of operators."""
    depth = random.randint(2, 4)
    graph = fuzzer.fuzz_operation_graph(fuzzer.fuzz_spec("default"), max_depth=depth, seed=seed, template="default")
    text = codegen.convert_graph_to_python_code(graph, seed=seed, template="default")
    eager = text.partition("\ncompiled_program")[0].replace("'cuda'", "'cpu'")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(eager, "torchfuzz", "exec"), {})  # noqa: S102 - this is how its programs run
    names = [node.op_name for node in graph.nodes.values()]
    return sum(name != "constant" and name.split("_")[0] != "arg" for name in names)


def elsewhere(python: str, *options: str) -> Row:
    """A peer's row as another process measures it. Raises RuntimeError with its last words if it fails there."""
    done = subprocess.run([python, __file__, *options], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1])
    print(done.stderr, end="", file=sys.stderr)
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--torchfuzz", metavar="FOLDER", type=Path, help="the folder that has torchfuzz")
    parser.add_argument("--nnsmith", metavar="PYTHON", help="an interpreter that has NNSmith")
    parser.add_argument("--nodes", type=int, default=7, help="operators of NNSmith's models")
    parser.add_argument("--only", choices=("nnsmith", "torchfuzz"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.torchfuzz and not (given.torchfuzz / "torchfuzz" / "ops_fuzzer.py").is_file():
        parser.error(
            f"no torchfuzz/ops_fuzzer.py in {given.torchfuzz}: name tools/experimental of a checkout of PyTorch"
        )
    if given.only:
        row = (
            nnsmith(given.seconds, given.nodes)
            if given.only == "nnsmith"
            else torchfuzz(given.torchfuzz, given.seconds)
        )
        print(json.dumps(vars(row)))
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    try:
        peers = [measure() for measure in _peers(given)]  # first, since they may not run
    except (OSError, RuntimeError) as error:
        parser.exit(1, f"a peer does not run: {error}\n")
    rows = [ours(target, given.seconds, gradients=grad) for target in ("null", "pipeline") for grad in (False, True)]
    print(f"{'':<16}{'programs':>9}{'operators':>10}{'programs/s':>12}{'operators/s':>13}{'ratio':>8}")
    for row in (*rows, *peers):
        row.print(peers[-1].operators if peers else None)


def _peers(given: argparse.Namespace) -> list[Callable[[], Row]]:
    """What measures each peer that is given."""
    seconds, found = ("--seconds", str(given.seconds)), list[Callable[[], Row]]()
    if given.torchfuzz:
        options = ("--only", "torchfuzz", "--torchfuzz", str(given.torchfuzz))
        found.append(lambda: elsewhere(sys.executable, *seconds, *options))
    if given.nnsmith:
        found.append(lambda: elsewhere(given.nnsmith, *seconds, "--only", "nnsmith", "--nodes", str(given.nodes)))
    return found


if __name__ == "__main__":
    main()
