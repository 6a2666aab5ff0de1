"""`benchmarks/throughput.py --torchfuzz`: what is counted of a peer's programs, and what it says where the peer does not run."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks import throughput

# Three functions under the names that PyTorch's torchfuzz has, of which each third program fails in eager.
PEER = {
    "ops_fuzzer": """
        from types import SimpleNamespace as Some

        def fuzz_spec(template):
            return template

        def fuzz_operation_graph(spec, max_depth, seed, template):
            names = ["arg_0", "constant", "torch.add", "torch.argsort", "arg"]
            return Some(nodes={name: Some(op_name=name) for name in names}, seed=seed)
    """,
    "codegen": """
        def convert_graph_to_python_code(graph, seed, template):
            assert graph.seed == seed
            return "\\n".join([
                "import torch",
                "torch.set_default_device('cuda')",
                f"assert {seed} % 3 < 2",
                "print((torch.ones(2) + 1).argsort())",
                "compiled_program = torch.compile(None)",
                "raise SystemExit('what comes after eager is cut off')",
            ])
    """,
}


def peer(folder: Path, **changed: str) -> Path:
    package = folder / "torchfuzz"
    package.mkdir()
    for name, text in (PEER | changed).items():
        (package / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def test_torchfuzz_is_measured_in_a_process_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--seconds", "0.2", "--only", "torchfuzz", "--torchfuzz", str(peer(tmp_path)))
    row = throughput.elsewhere(sys.executable, *options)
    assert row.name == "torchfuzz"
    assert set(row.lengths) == {2}  # neither arguments nor constants
    assert row.seconds >= 0.2
    failed = int(capfd.readouterr().err.split()[1])
    assert failed in (len(row.lengths) // 2, len(row.lengths) // 2 - 1, len(row.lengths) // 2 + 1)


def test_another_version_of_torchfuzz_is_said_to_be_what_does_not_run(tmp_path: Path) -> None:
    folder = peer(tmp_path, ops_fuzzer="def fuzz_spec(): ...")
    with pytest.raises(RuntimeError, match=r"none of 100 programs of torchfuzz ran.*fuzz_operation_graph"):
        throughput.elsewhere(sys.executable, "--seconds", "0.1", "--only", "torchfuzz", "--torchfuzz", str(folder))


def test_a_folder_without_torchfuzz_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, throughput.__file__, "--torchfuzz", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "tools/experimental of a checkout of PyTorch" in done.stderr
