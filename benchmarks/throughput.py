"""Programs per second of this fuzzer and of its peers, of like length, in one run on one core.

    python benchmarks/throughput.py [--seconds 20] [--nnsmith PYTHON]

Rows: `null` (a program is drawn, and runs in eager twice), `pipeline` (drawn, run in eager, compiled afresh, run under a
hostile schedule, compared), both again with inputs that require grad ("grad"), and NNSmith (a model is drawn with its
solver, made concrete, and runs in eager once), where `--nnsmith` names an interpreter that has it: `pip install nnsmith
torch==2.13.0` in an environment of its own. PyTorch's torchfuzz is no package and is left out. Seconds are those of the process, so that what else the machine does counts
little. Prints programs, operators per program in the median, programs and operators per second, and the ratio of
operators per second to NNSmith's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # NNSmith's interpreter runs this file too, and has none of these
    from executor.program import Program
    from fuzz.check import Verdict

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


def elsewhere(python: str, seconds: float, nodes: int) -> Row:
    """NNSmith's row as another interpreter measures it. Raises CalledProcessError if it fails there."""
    command = [python, __file__, "--seconds", str(seconds), "--nodes", str(nodes), "--only-nnsmith"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--nnsmith", metavar="PYTHON", help="an interpreter that has NNSmith")
    parser.add_argument("--nodes", type=int, default=7, help="operators of NNSmith's models")
    parser.add_argument("--only-nnsmith", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only_nnsmith:
        print(json.dumps(vars(nnsmith(given.seconds, given.nodes))))
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    measured: list[Callable[[], Row]] = [
        lambda: ours("null", given.seconds),
        lambda: ours("null", given.seconds, gradients=True),
        lambda: ours("pipeline", given.seconds),
        lambda: ours("pipeline", given.seconds, gradients=True),
    ]
    if given.nnsmith:
        measured.append(lambda: elsewhere(given.nnsmith, given.seconds, given.nodes))
    rows = [measure() for measure in measured]
    peer = rows[-1].operators if given.nnsmith else None
    print(f"{'':<16}{'programs':>9}{'operators':>10}{'programs/s':>12}{'operators/s':>13}{'ratio':>8}")
    for row in rows:
        row.print(peer)


if __name__ == "__main__":
    main()
