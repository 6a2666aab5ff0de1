"""The parts of a stand-alone script that are the same for every case: plain Python that imports nothing but torch."""

from __future__ import annotations

from executor.program import Backward

OBSERVE = '''\
def parts(tree, name):
    """A result's leaves, and the types of the tuples, lists and dicts that hold them, each with its place."""
    if not isinstance(tree, (dict, list, tuple)):
        yield name, tree
        return
    yield name, type(tree).__name__
    for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from parts(item, f"{name}[{key!r}]")


def observe(function, build):
    """What a caller can see of one call: what it returns or raises, and the memory of its arguments afterwards."""
    arguments, storages = build()
    seen = {f"storage {i}": storage for i, storage in enumerate(storages)}
    try:
        result = function(*arguments)
    except Exception as error:
        return {**seen, "exception": error}
    leaves = list(parts(result, "result"))
    for name, leaf in leaves:
        seen[name] = leaf
        if isinstance(leaf, torch.Tensor):
            seen[name + ".dtype"], seen[name + ".shape"] = leaf.dtype, tuple(leaf.shape)
            # The stride of a dimension of size 1 means nothing.
            seen[name + ".stride()"] = [step for n, step in zip(leaf.shape, leaf.stride()) if n > 1 and leaf.numel()]
'''

ALIASES = """\
    homes = {storage.untyped_storage().data_ptr(): f"storage {i}" for i, storage in enumerate(storages)}
    starts = {storage.untyped_storage().data_ptr(): storage.data_ptr() for storage in storages}
    for name, leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            memory = leaf.untyped_storage().data_ptr()
            start = starts.setdefault(memory, leaf.data_ptr())
            home = homes.setdefault(memory, f"the memory of {name}")
            seen[name + " lies in"] = f"{home}, at byte {leaf.data_ptr() - start}"
"""

BUILD = "    arguments, storages = build()\n"
BUILD_WITH_GRADIENTS = """\
    arguments, storages, wanted = build()
    inputs = [leaf for _, leaf in parts(arguments, "argument") if isinstance(leaf, torch.Tensor)]
    versions = [tensor._version for tensor in inputs]
"""

# For programs that change what their arguments are.
ARGUMENTS = """\
    for name, leaf in parts(arguments, "argument"):
        if isinstance(leaf, torch.Tensor):
            leaves.append((name, leaf))
            seen[name], seen[name + ".shape"] = leaf, tuple(leaf.shape)
            seen[name + ".stride()"] = [step for n, step in zip(leaf.shape, leaf.stride()) if n > 1 and leaf.numel()]
"""

IDENTITIES = """\
    objects = {}
    for name, leaf in [*parts(arguments, "arguments"), *leaves]:
        if isinstance(leaf, torch.Tensor):
            seen[name + " is the object"] = objects.setdefault(id(leaf), name)
"""

# For programs whose inputs require grad: `wanted` are the tensors whose gradients are looked at, by name.
STATE = '''\
def state(tensor):
    """What a tensor is to autograd."""
    if not tensor.requires_grad:
        return "no gradient"
    try:
        graph = tensor.grad_fn is not None
    except RuntimeError:
        graph = False
    return "part of the graph" if graph else "a view" if tensor._is_view() else "a leaf that requires grad"


def cotangent(position, tensor):
    flat = (torch.arange(tensor.numel()) * 3 + position + {seed}) % 5 - 2
    return flat.reshape(tensor.shape).to(tensor.dtype)
'''

GRADIENTS = """\
    # As they are now: going backward may change them.
    seen |= {{name: value.detach().clone() for name, value in seen.items() if isinstance(value, torch.Tensor)}}
    results = [leaf for _, leaf in leaves if isinstance(leaf, torch.Tensor)]
    written = [len(results) + k for k, tensor in enumerate(inputs) if tensor._version != versions[k]]
    tensors = list(enumerate([*results, *inputs]))
    for k, tensor in tensors:
        name = f"result {{k}}" if k < len(results) else f"argument {{k - len(results)}}"
        seen[name + " is"] = f"{{state(tensor)}}{{', written' if k in written else ''}}"
    roots = [(k, tensor) for k, tensor in tensors if k not in {left_out} and (k < len(results) or k in written)]
    roots = [(k, tensor) for k, tensor in roots if state(tensor) == "part of the graph"]
    try:{written}
        for number, group in enumerate({groups}, 1):
            ends, given = [tensor for _, tensor in group], [cotangent(k, tensor) for k, tensor in group]
            {backward}
    except Exception as error:
        return {{**seen, "exception of backward": error}}
    for name, leaf in wanted.items():
        seen[f"{{name}}.grad"] = {gradient}
    seen |= {{f"storage {{i}} after going backward": storage for i, storage in enumerate(storages)}}
"""
_BACKWARD = "torch.autograd.backward(ends, given, retain_graph={retained})"
_GRAD = """\
found = torch.autograd.grad(ends, list(wanted.values()), given, retain_graph={retained}, allow_unused=True)
            for name, leaf, gradient in zip(wanted, wanted.values(), found):
                seen[f"gradient of {{name}} in pass {{number}}"] = {gradient}"""
_WRITTEN = """
        with torch.no_grad():
            tensors[{position} % len(tensors)][1].add_(1)"""


def state(plan: Backward) -> str:
    """The functions that programs with gradients need."""
    return STATE.format(seed=plan.seed)


def gradients(plan: Backward, *, none: bool) -> str:
    """The end of `observe` that goes backward as the plan says. Without `none`, a gradient that is None counts as zeros."""
    retained = plan.passes > 1 or plan.apart
    zeros = "torch.zeros_like(leaf) if {0} is None else {0}"
    backward = _GRAD if plan.functional else _BACKWARD
    return GRADIENTS.format(
        left_out=list(plan.left_out),
        written="" if plan.written is None else _WRITTEN.format(position=plan.written),
        groups=("[[root] for root in roots]" if plan.apart else "[roots] * bool(roots)")
        + f" * {plan.passes}" * (plan.passes > 1),
        backward=backward.format(retained=retained, gradient="gradient" if none else zeros.format("gradient")),
        gradient="leaf.grad" if none else zeros.format("leaf.grad"),
    )


KIND = '''\
def kinds(error):
    """The types of an exception and of those that it wraps: a compiler may wrap eager's."""
    while error is not None:
        yield from type(error).__mro__
        error = error.__cause__ or getattr(error, "inner_exception", None)
'''

_SAME = '''\
def same(expected, actual):
    """Whether two observations are equal{how}."""
    if isinstance(expected, Exception) and isinstance(actual, Exception):
        return {kind}
    if not (isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor)):
        return type(expected) is type(actual) and expected == actual
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return False
{tensors}'''

_EQUAL = "    return bool(((expected == actual) | ((expected != expected) & (actual != actual))).all())"

_CLOSE = """\
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=False)
    except AssertionError:
        return False
    return True"""

MAIN = """\
MISSING = "nothing"


def main():
    differ = 0
    for number, build in enumerate([{builders}], 1):
        expected, actual = observe(program, build), observe(compiled, build)
        names = [name for name in expected | actual if not same(expected.get(name, MISSING), actual.get(name, MISSING))]
        if "exception" in names:
            names = ["exception"]
        for name in names:
            print(f"call {{number}}, {{name}}:\\n  expected {{show(expected, name)}}\\n  actual   {{show(actual, name)}}")
        differ += len(names)
    print(f"DIFFERS from eager: {{differ}} observations" if differ else "equal to eager")
    return 1 if differ else 0


def show(seen, name):
    value = seen.get(name, "no exception" if name == "exception" else MISSING)
    text = f"{{type(value).__name__}}: {{value}}" if isinstance(value, Exception) else str(value)
    return text.replace("\\n", "\\n           ")


if __name__ == "__main__":
    raise SystemExit(main())"""


def same(*, exact: bool, raises: bool) -> str:
    """The function that compares two observations; `raises` says that eager refuses the program."""
    how = ", NaN equal to NaN" if exact else " within torch.testing's tolerance for their dtype"
    # Only a program that eager refuses has an exception on both sides, as long as eager works.
    kind = "type(expected) in kinds(actual)" if raises else "type(expected) is type(actual)"
    return _SAME.format(how=how, kind=kind, tensors=_EQUAL if exact else _CLOSE)
