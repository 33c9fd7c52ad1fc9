"""The operations: what they draw, what they compute, and what they count."""

import hashlib
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mage import operations
from mage.errors import RequestError

# Inputs of the default shapes: the same numbers on every machine, or no two runs can be compared.
DEFAULT_SHA256 = {
    "matmul": {"A": "cdaaa9dcca", "B": "019ed44296"},
    "gelu": {"X": "b9bc204af3", "bias": "1c8b209af1"},
    "layernorm": {"X": "b9bc204af3", "gamma": "1c8b209af1", "beta": "2bd77c456c"},
    "triangle": {"A": "6d8b236cc6", "B": "30aac1926c"},
    "neighbor": {"X": "338913a1b2", "weights": "7155944cd9", "row_ptr": "a26ab9072d", "src": "99c2604200"},
}

SMALL = {"matmul": (17, 19, 23), "gelu": (3, 57), "layernorm": (3, 57), "triangle": (9, 3), "neighbor": (11, 5, 30)}

each_operation = pytest.mark.parametrize("name", operations.names())


def by_hand(name, inputs):
    """The formulas of the contract, in FP64 and in plain NumPy loops where that says more than a library call."""
    arrays = {key: tensor.numpy() for key, tensor in inputs.items()}
    wide = {key: array.astype(np.float64) if array.dtype == np.float32 else array for key, array in arrays.items()}
    if name == "matmul":
        return np.array([[math.fsum(row * column) for column in wide["B"].T] for row in wide["A"]])
    if name == "gelu":
        z = wide["X"] + wide["bias"]
        return z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    if name == "layernorm":
        rows = []
        for x in wide["X"]:
            mean = math.fsum(x) / len(x)
            variance = math.fsum((x - mean) ** 2) / len(x)
            rows.append(wide["gamma"] * (x - mean) / math.sqrt(variance + 1e-5) + wide["beta"])
        return np.array(rows)
    if name == "triangle":
        N, _, C = wide["A"].shape
        out = np.zeros((N, N, C))
        for i in range(N):
            for j in range(N):
                for c in range(C):
                    out[i, j, c] = sum(wide["A"][i, k, c] * wide["B"][j, k, c] for k in range(N))
        return out
    out = np.zeros_like(wide["X"])
    for i in range(len(out)):
        for e in range(wide["row_ptr"][i], wide["row_ptr"][i + 1]):
            out[i] += wide["weights"][e] * wide["X"][wide["src"][e]]
    return out


@each_operation
def test_both_references_are_the_formula(name):
    operation = operations.get(name)
    inputs = operation.make_inputs(SMALL[name])
    expected = by_hand(name, inputs)
    np.testing.assert_allclose(operation.reference64(inputs).numpy(), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(operation.reference(inputs).numpy(), expected, rtol=1e-5, atol=1e-6)


@each_operation
def test_default_inputs_are_the_same_numbers_on_every_machine(name):
    inputs = operations.get(name).make_inputs()
    found = {key: hashlib.sha256(tensor.numpy().tobytes()).hexdigest()[:10] for key, tensor in inputs.items()}
    assert found == DEFAULT_SHA256[name]


def test_inputs_do_not_depend_on_what_the_processor_can_do():
    # PyTorch draws other FP32 normals on a processor without AVX2.
    code = (
        "import hashlib; from mage import operations; inputs = operations.get('layernorm').make_inputs((30, 100));"
        "print([hashlib.sha256(t.numpy().tobytes()).hexdigest() for t in inputs.values()])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "ATEN_CPU_CAPABILITY": capability},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for capability in ("default", "avx2")
    }
    assert len(told) == 1, told


@each_operation
def test_inputs_are_fp32_normal_and_seeded(name):
    operation = operations.get(name)
    inputs, again, other = operation.make_inputs(), operation.make_inputs(), operation.make_inputs(seed=1)
    for key, tensor in inputs.items():
        assert tensor.is_contiguous()
        assert torch.equal(tensor, again[key])
        assert not torch.equal(tensor, other[key])
        if tensor.dtype == torch.float32:
            # five standard errors of a mean and of a standard deviation
            assert abs(tensor.mean()) < 5 * 0.25 / math.sqrt(tensor.numel())
            assert abs(tensor.std() - 0.25) < 5 * 0.25 / math.sqrt(2 * tensor.numel())


def test_only_the_first_input_is_shifted():
    operation = operations.get("layernorm")
    plain, shifted = operation.make_inputs((5, 40)), operation.make_inputs((5, 40), mean=100.0)
    torch.testing.assert_close(shifted["X"], plain["X"] + 100)
    assert torch.equal(shifted["gamma"], plain["gamma"])
    assert torch.equal(shifted["beta"], plain["beta"])


def test_the_random_graph():
    N, _, E = operations.get("neighbor").default_dims
    inputs = operations.get("neighbor").make_inputs()
    degree = (inputs["row_ptr"][1:] - inputs["row_ptr"][:-1]).double()
    assert degree.sum() == E
    assert degree.min() >= 0
    # destinations are uniform, so degrees are Poisson with mean 16; sources are too
    assert abs(degree.var() / (E / N) - 1) < 0.1
    assert abs(torch.bincount(inputs["src"], minlength=N).double().var() / (E / N) - 1) < 0.1


def test_edges_of_a_given_graph_are_sorted_by_destination_and_keep_their_order():
    src, dst = torch.tensor([3, 1, 4, 1, 5]), torch.tensor([2, 0, 2, 5, 0])
    row_ptr, sorted_src = operations.csr(src, dst, 6)
    assert row_ptr.tolist() == [0, 2, 2, 4, 4, 4, 5]
    assert sorted_src.tolist() == [1, 5, 3, 4, 1]
    assert operations.destinations(row_ptr).tolist() == [0, 0, 2, 2, 5]


def test_counts_at_the_default_shapes():
    flops = {name: operations.get(name).flops(operations.get(name).default_dims) for name in operations.names()}
    assert flops["matmul"] == 2 * 1024**3
    assert flops["triangle"] == 2 * 128**3 * 32
    assert flops["neighbor"] == 2 * 65536 * 64
    moved = {name: operations.get(name).bytes(operations.get(name).default_dims) for name in operations.names()}
    assert moved["matmul"] == 3 * 4 * 1024**2
    assert moved["layernorm"] == 4 * (2 * 4096 * 768 + 2 * 768)
    assert moved["neighbor"] == 4 * (2 * 4096 * 64 + 2 * 65536 + 4097)


@each_operation
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_shapes_agree_at_any_legal_dims(name, data):
    operation = operations.get(name)
    dims = tuple(data.draw(st.integers(0 if key in operation.may_be_zero else 1, 24), label=key) for key in operation.dims_names)
    inputs = operation.make_inputs(dims)
    assert {key: tuple(tensor.shape) for key, tensor in inputs.items()} == operation.input_shapes(dims)
    assert operation.dims_of(inputs) == dims
    assert operation.check(inputs) == dims
    out = operation.reference(inputs)
    assert tuple(out.shape) == operation.output_shape(dims)
    assert out.is_contiguous()
    assert operation.bytes(dims) == sum(t.nbytes for t in inputs.values()) + out.nbytes


def test_strict_fp32_holds_inside_and_is_undone():
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with operations.strict_fp32():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_misspelt_operation_is_told_the_right_name():
    with pytest.raises(RequestError, match="did you mean 'layernorm'"):
        operations.get("layer_norm")


def test_names_and_counts_need_no_torch():
    code = (
        "import sys; from mage import operations as o;"
        "[(p.formula, p.flops(p.default_dims), p.bytes(p.default_dims), p.check_dims(None)) for p in map(o.get, o.names())];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ)).returncode == 0
