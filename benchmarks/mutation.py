"""Mutation score of the alias handling: which small faults its unit tests notice, and which a short campaign must find.

    pip install cosmic-ray
    python -m benchmarks.mutation [--mutants 200] [--seed 1] [--seconds 20] [FILE]...

Cosmic Ray's operators make the mutants, in an order drawn from the seed. Each runs in a copy of the checkout: the unit
tests of its file, and if these pass, `--seconds` of random programs on the target `pipeline`. A mutant that hangs counts
as killed. Prints each survivor when it is found, and a table at the end.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest
import torch  # noqa: F401 (loaded once, before processes are forked)

ROOT = Path(__file__).parents[1]
PASSES = "boxes coalesce functional hoist index_maps passes patch counts pipeline"
# For each file the test modules that notice its faults, the quickest to do so first.
TESTS = {
    "executor/geometry.py": "geometry memory_ssa partition verify",
    "executor/memory_ssa.py": "memory_ssa partition passes verify counts regions",
    "executor/partition.py": "partition regions verify counts",
    "executor/regions.py": "regions counts traces weak_memory",
    "executor/verify.py": "verify early partition weak_memory",
    "executor/early.py": "early elements verify",
    "executor/elements.py": "elements early verify",
    **{f"executor/passes/{path.name}": PASSES for path in sorted((ROOT / "executor/passes").glob("[!_]*.py"))},
}


def mutants(files: Sequence[str], seed: int) -> Iterator[tuple[str, str]]:
    """Files and what they are changed to, all different in meaning, in an order drawn from the seed."""
    operators, syntax = import_module("cosmic_ray.plugins"), import_module("cosmic_ray.ast")
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    nodes = {file: list(syntax.ast_nodes(syntax.get_ast(source))) for file, source in sources.items()}
    names = set(operators.operator_names()) - {"core/ExceptionReplacer"}  # which fails on `except (A, B)`
    kinds = [kind for name in sorted(names) if not (kind := operators.get_operator(name)).arguments()]
    places = [
        (file, kind, number)
        for file in files
        for kind in kinds
        for number in range(sum(len(list(kind().mutation_positions(node))) for node in nodes[file]))
    ]
    random.Random(seed).shuffle(places)
    seen = {(file, meaning) for file in files for meaning in ("", _meaning(sources[file]))}
    for file, kind, number in places:
        code = import_module("cosmic_ray.mutating").mutate_code(sources[file], kind(), number)
        if (key := (file, _meaning(code))) not in seen:
            seen.add(key)
            yield file, code


def _meaning(code: str) -> str:
    """The syntax tree without annotations, which nobody evaluates; "" for what is no Python."""
    with suppress(SyntaxError):
        for node in ast.walk(tree := ast.parse(code)):
            vars(node).update(annotation=None, returns=None)
        return ast.dump(tree)
    return ""


def fails(work: Callable[[], int]) -> bool:
    """Whether `work`, in a process of its own, does anything but return 0."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] != 0
    try:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        for limit, most in ((resource.RLIMIT_CPU, 60), (resource.RLIMIT_DATA, 8 << 30)):  # seconds and bytes
            resource.setrlimit(limit, (most, most))
        os._exit(work())
    finally:
        os._exit(1)


def tests(file: str) -> int:
    """0 if the unit tests of this file pass."""
    paths = [f"tests/test_{name}.py" for name in TESTS[file].split()]
    timed = "less_than_a_second or milliseconds"  # they fail on a busy machine, which says nothing about faults
    return int(pytest.main(["-xq", "-p", "no:cacheprovider", "-m", "not slow", "-k", f"not ({timed})", *paths]))


def campaign(seconds: float) -> int:
    """0 if random programs on `pipeline` show nothing for so long. What it imports is the mutant's."""
    targets, batches, campaigns = map(import_module, ("executor.targets", "fuzz.batch", "fuzz.campaign"))
    target, end = targets.get("pipeline"), time.monotonic() + seconds
    number = failures = 0
    while not failures and time.monotonic() < end:
        seed = campaigns.batch_seed(0, target.name, 0, number)
        batch = batches.Batch(campaigns.judge(target, seed), end, 0.0)
        batch.run(import_module("strategies.programs").programs(target.limits), seed)
        number, failures = number + 1, batch.failures
    return int(failures > 0)


def outcome(file: str, code: str, seconds: float) -> str:
    """What kills the mutant: "tests" or "campaign"; or "survived", with a print of what it changes."""
    original = Path(file).read_text(encoding="utf-8")
    Path(file).write_text(code, encoding="utf-8")
    found = "tests" if fails(partial(tests, file)) else "campaign" if fails(partial(campaign, seconds)) else "survived"
    Path(file).write_text(original, encoding="utf-8")
    if found == "survived":
        changed = difflib.unified_diff(original.splitlines(), code.splitlines(), n=0, lineterm="")
        print(file, *islice(changed, 2, None), sep="\n", flush=True)
    return found


def main() -> None:
    """Prints the survivors and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=list(TESTS), metavar="FILE")
    for name, default in (("--mutants", 200), ("--seed", 1), ("--seconds", 20)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"), dirs_exist_ok=True)
        os.chdir(copy)
        sys.path[:0], sys.dont_write_bytecode = [copy], True
        os.environ["CI"] = "1"  # Hypothesis draws the same examples each time
        if broken := [file for file in options.files if fails(partial(tests, file))]:
            parser.error(f"the tests of these files fail before they are changed: {', '.join(broken)}")
        sample = islice(mutants(options.files, options.seed), options.mutants)
        counts = Counter((file, outcome(file, code, options.seconds)) for file, code in sample)
    print(f"{'file':<36}{'mutants':>9}{'tests':>10}{'campaign':>10}{'survived':>10}")
    for file in options.files:
        row = [counts[file, what] for what in ("tests", "campaign", "survived")]
        print(f"{file:<36}{sum(row):>9}" + "".join(f"{number:>10}" for number in row))


if __name__ == "__main__":
    main()
