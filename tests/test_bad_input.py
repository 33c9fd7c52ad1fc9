"""Bad input is refused when a call is prepared: the error names the thing, the place and the mend."""

import pytest
import torch

from mage import implementations, operations
from mage.errors import RequestError
from mage.operations import LARGEST

DIMS = {"matmul": (5, 6, 7), "gelu": (5, 6), "layernorm": (5, 6), "triangle": (4, 3), "neighbor": (5, 3, 8)}


def refused(name, inputs, out=None, implementation="pytorch"):
    with pytest.raises(RequestError) as caught:
        implementations.prepare(name, implementation, None, inputs, out)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def inputs_of(name):
    return operations.get(name).make_inputs(DIMS[name])


# -- dims


@pytest.mark.parametrize("value", [0, -3, 2.0, "4", True, None])
def test_a_dimension_that_is_no_positive_int(value):
    with pytest.raises(RequestError, match=r"matmul: dimension N is .*give a positive int"):
        operations.get("matmul").make_inputs((4, value, 4))


def test_no_edges_are_legal_and_fewer_are_not():
    assert operations.get("neighbor").check_dims((3, 2, 0)) == (3, 2, 0)
    with pytest.raises(RequestError, match="dimension E is -1; give an int from 0"):
        operations.get("neighbor").check_dims((3, 2, -1))


@pytest.mark.parametrize("dims", [(4, 4), (4, 4, 4, 4), 4])
def test_another_number_of_dims(dims):
    with pytest.raises(RequestError, match=r"matmul: dims .*give .*M, N, K"):
        operations.get("matmul").check_dims(dims)


@pytest.mark.parametrize(
    ("name", "dims", "what"),
    [
        ("matmul", (2**16, 2**15, 4), "the output"),
        ("matmul", (4, 2**16, 2**15), "B"),
        ("gelu", (2**16, 2**15), "X"),
        ("layernorm", (LARGEST, 2), "X"),
        ("triangle", (2**15, 2), "A"),
        ("neighbor", (2**20, 2**11, 1), "X"),
        ("neighbor", (LARGEST, 1, 1), "row_ptr"),
    ],
)
def test_a_product_of_dimensions_past_the_largest_index(name, dims, what):
    # Refused from the numbers: nothing of this size is ever made.
    with pytest.raises(RequestError, match=rf"{name}: {what} has .* elements, past 2147483647"):
        operations.get(name).make_inputs(dims)


def test_the_largest_index_itself_is_legal():
    assert operations.get("gelu").check_dims((1, LARGEST)) == (1, LARGEST)


# -- tensors


@pytest.mark.parametrize("name", operations.names())
def test_every_input_is_checked_for_type_dtype_layout_shape_and_strides(name):
    for key, tensor in inputs_of(name).items():
        spread_out = torch.stack([tensor, tensor], -1)[..., 0]  # the same values, every other element
        for bad, says in [
            (tensor.double(), rf"{name}: input {key} is torch.float64; give torch"),
            (tensor.tolist(), rf"{name}: input {key} is a list; give a torch.Tensor"),
            (tensor[None], rf"{name}: input {key} has shape .*; give {tensor.ndim} dimensions"),
            (tensor.to_sparse(), rf"{name}: input {key} has layout torch.sparse_coo; give a dense"),
            (spread_out, rf"{name}: input {key} has strides .*contiguous"),
        ]:
            with pytest.raises(RequestError, match=says):
                implementations.prepare(name, "pytorch", None, {**inputs_of(name), key: bad})


def test_a_transposed_matrix_is_refused_not_read_as_if_it_were_not():
    inputs = inputs_of("matmul")
    assert "input A has strides [1, 5]; give it row-major, e.g. A.contiguous()" in refused(
        "matmul", {**inputs, "A": inputs["A"].T.contiguous().T}
    )


def test_inputs_that_do_not_fit_together():
    inputs = inputs_of("matmul")
    assert "input A has shape [5, 6]; it has to be [5, 7]" in refused("matmul", {**inputs, "A": torch.zeros(5, 6)})
    assert "input bias has shape [7]; it has to be [6]" in refused("gelu", {**inputs_of("gelu"), "bias": torch.zeros(7)})
    assert "input B has shape [4, 4, 2]" in refused("triangle", {**inputs_of("triangle"), "B": torch.zeros(4, 4, 2)})


def test_missing_and_misplaced_inputs():
    inputs = inputs_of("layernorm")
    gamma = inputs.pop("gamma")
    assert "give ['X', 'gamma', 'beta'], in this order" in refused("layernorm", inputs)
    assert "in this order" in refused("layernorm", {**inputs, "gamma": gamma})


def test_another_device():
    inputs = inputs_of("gelu")
    assert "input bias is on meta, the first input on cpu; put all on one device" in refused(
        "gelu", {**inputs, "bias": inputs["bias"].to("meta")}
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", operations.names())
def test_values_that_are_not_finite(name, value):
    for key, tensor in inputs_of(name).items():
        if tensor.dtype == torch.float32:
            bad = tensor.clone()
            bad.view(-1)[-1] = value
            last = [size - 1 for size in tensor.shape]
            assert f"{name}: input {key} is {value} at {last}; give finite values" in refused(name, {**inputs_of(name), key: bad})


# -- the output


def test_an_output_that_does_not_fit():
    inputs = inputs_of("gelu")
    assert "gelu: out has shape [5, 7]; it has to be [5, 6]" in refused("gelu", inputs, torch.empty(5, 7))
    assert "gelu: out is torch.float64; give torch.float32" in refused("gelu", inputs, torch.empty(5, 6).double())
    assert "gelu: out has strides [1, 5]" in refused("gelu", inputs, torch.empty(6, 5).T)
    assert "gelu: out is on meta" in refused("gelu", inputs, torch.empty(5, 6, device="meta"))


def test_an_output_in_the_memory_of_an_input():
    X = torch.zeros(6, 6)
    assert "gelu: out shares memory with input X" in refused("gelu", {"X": X[:5], "bias": torch.zeros(6)}, X[1:])


# -- the graph


def _with(tensor, at, value):
    return tensor.clone().index_fill_(0, torch.tensor([at]), value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda row_ptr, src: (row_ptr + 1, src), "row_ptr starts at 1; row pointers start at 0"),
        (lambda row_ptr, src: (row_ptr.clamp(max=7), src), "row_ptr ends at 7; it ends at the number of edges, 8"),
        (lambda row_ptr, src: (_with(row_ptr, 2, 9), src), "row_ptr falls from 9 to"),
        (lambda row_ptr, src: (row_ptr, _with(src, 3, 5)), "src[3] is 5; source indices lie in [0, 5)"),
        (lambda row_ptr, src: (row_ptr, _with(src, 0, -1)), "src[0] is -1"),
        (lambda row_ptr, src: (row_ptr.long(), src), "input row_ptr is torch.int64; give torch.int32"),
        (lambda row_ptr, src: (row_ptr[:-1], src), "input row_ptr has shape [5]; it has to be [6]"),
    ],
)
def test_a_graph_that_is_not_one(change, says):
    inputs = inputs_of("neighbor")
    inputs["row_ptr"], inputs["src"] = change(inputs["row_ptr"], inputs["src"])
    assert says in refused("neighbor", inputs)


# -- names


def test_unknown_names():
    inputs = inputs_of("gelu")
    assert "no implementation 'cudnn': there is pytorch, " in refused("gelu", inputs, implementation="cudnn")
    with pytest.raises(RequestError, match="cuda has no variant 'rows'; there is block, warp, pair, row"):
        implementations.prepare("layernorm", "cuda", "rows", inputs_of("layernorm"))
    with pytest.raises(RequestError, match="triton has no variant 'tunned'; there is fixed"):
        implementations.prepare("gelu", "triton", "tunned", inputs)


# -- when


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_nothing_is_checked_once_a_call_is_prepared(device):
    inputs = {key: tensor.to(device) for key, tensor in inputs_of("gelu").items()}
    out = torch.zeros(5, 6, device=device)
    call = implementations.prepare("gelu", "pytorch", None, inputs, out)
    inputs["X"].fill_(float("nan"))
    call.run()
    assert out.isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize("implementation", ["pytorch", "triton", "cuda"])
def test_a_refused_call_has_allocated_nothing_on_the_device(implementation):
    inputs = {key: tensor.cuda() for key, tensor in operations.get("gelu").make_inputs((4096, 768)).items()}
    inputs["X"][17, 5] = float("inf")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with pytest.raises(RequestError, match=r"input X is inf at \[17, 5\]"):
        implementations.prepare("gelu", implementation, None, inputs)
    assert torch.cuda.memory_allocated() == before
    # Meanwhile: the two extremes of a tensor and what their reduction needs, no tensor of this size.
    assert torch.cuda.max_memory_allocated() - before < 2**20


@pytest.mark.gpu
def test_inputs_on_two_devices():
    inputs = {key: tensor.cuda() for key, tensor in inputs_of("gelu").items()}
    assert "input bias is on cpu, the first input on cuda:0" in refused("gelu", {**inputs, "bias": inputs["bias"].cpu()})
