"""`related`: checks a program, its rewriting by a metamorphic relation, and that a compiler does the same to both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from corpus.case import Case
from executor import targets
from executor.program import Program
from executor.targets import Target
from fuzz.check import NO_BOUNDS, Elsewhere, Verdict, check
from fuzz.relations import rewritten
from fuzz.relations.pair import compared


def related(program: Program, target: str | Target, relation: str, *, exact: bool = True) -> Verdict:
    """The verdict of `check` on the program if it fails, else that on its rewriting, else whether the two agree.

    A rewriting that fails is the verdict's program. With `exact` each side that equals eager's equals the other, so
    that nothing is left to compare. Raises `RelationError` if there is no such relation, and what `check` raises.
    """
    compiler = targets.get(target) if isinstance(target, str) else targets.adapt(target)
    first = check(program, target=compiler, exact=exact)
    other = rewritten(program, relation, compiler.limits)
    if other is None or not tells(first):
        return first
    second = check(other, target=compiler, exact=exact)
    if not second.ok:
        return second
    return agreed(first, compiler, relation) if tells(second) else first


def tells(verdict: Verdict) -> bool:
    """Whether a target gave results for a program and they are right, so that a rewriting's are comparable."""
    return verdict.ok and (verdict.refused, verdict.unstable, verdict.raised) == (None, None, None)


def agreed(first: Verdict, compiler: Target, relation: str) -> Verdict:
    """The verdict on a program that is right, as its rewriting is, unless the two differ by more than either may err."""
    program = first.program
    if program is None or first.exact:
        return first
    if isinstance(compiler, Elsewhere):
        found = compiler.compare(program, relation)
    else:
        found = compared(program, relation, compiler)
    return replace(first, mismatches=found, relation=relation) if found else first


def rerun(case: Case, compiler: Target, *, bounds: Mapping[str, int] = NO_BOUNDS) -> Verdict:
    """The verdict on a case, judged as it was when it was found. Raises what `check` and `related` raise."""
    if case.relation:
        return related(case.program, compiler, case.relation, exact=case.exact)
    return check(case.program, target=compiler, exact=case.exact, calls=case.calls, bounds=bounds)
