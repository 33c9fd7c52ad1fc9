"""cuTile kernels: compiled for named GPUs on any machine and, marked gpu, gated on one."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mage import cubins, gate, gate_cases, implementations, kernels, operations
from mage.errors import MageError
from mage.gate import FAILED, PASSED

PUBLISHED_GRIDS = {
    "matmul": (32, 8, 1), "gelu": (512, 6, 1), "layernorm": (4096, 1, 1), "triangle": (4, 4, 32), "neighbor": (4096, 1, 1),
}  # fmt: skip
RANKS = {"matmul": (2, 2, 2), "gelu": (2, 1, 2), "layernorm": (2, 1, 1, 2), "triangle": (3, 3, 3), "neighbor": (2, 1, -1, -1, 2)}


@pytest.fixture
def ct():
    return pytest.importorskip("cuda.tile", reason="cuda-tile is not installed: not checked on this machine")


@pytest.mark.parametrize("arch", ["sm_89", "sm_90"])
@pytest.mark.parametrize("name", operations.names())
def test_compiles_without_a_gpu_and_without_tensor_cores(name, arch, ct):
    from cuda.tile.compilation import ArrayConstraint, CallingConvention, KernelSignature, export_kernel

    def array(rank):
        ndim = abs(rank)
        return ArrayConstraint(
            dtype=ct.int32 if rank < 0 else ct.float32, ndim=ndim, index_dtype=ct.int32, stride_lower_bound_incl=0,
            alias_groups=(), may_alias_internally=False, stride_constant=(None,) * (ndim - 1) + (1,),
            stride_divisible_by=(4,) * (ndim - 1) + (1,), base_addr_divisible_by=16,
        )  # fmt: skip

    module = kernels.load(f"cutile/{name}")
    constants = [768, 1024] if name == "layernorm" else list(module.FIXED.values())
    signature = KernelSignature([*map(array, RANKS[name]), *constants], calling_convention=CallingConvention.cutile_python_v1())
    cubin = io.BytesIO()
    export_kernel(module.KERNEL, [signature], cubin, gpu_code=arch, output_format="cubin")
    try:
        sass = cubins.cuobjdump("-sass", cubin.getvalue())
    except MageError as error:
        pytest.skip(str(error))
    assert f"EF_CUDA_SM{arch[3:]}" in sass
    assert re.search(r"\b(FFMA|FMUL)\b", sass)
    assert not re.search(r"\b(HMMA|HGMMA|WGMMA)\b", sass)


@pytest.mark.parametrize("name", operations.names())
def test_the_fixed_configuration_has_the_grid_of_the_published_runs(name, ct):
    module = kernels.load(f"cutile/{name}")
    assert module.grid(operations.get(name).default_dims, module.FIXED) == PUBLISHED_GRIDS[name]


def test_every_tile_is_a_power_of_two(ct):
    for name in operations.names():
        assert all(size & (size - 1) == 0 for size in kernels.load(f"cutile/{name}").FIXED.values())
    X = operations.get("layernorm").make_inputs((2, 768))
    assert kernels.load("cutile/layernorm").arguments(*X.values(), None)[-2:] == (768, 1024)
    X = operations.get("layernorm").make_inputs((2, 1))
    assert kernels.load("cutile/layernorm").arguments(*X.values(), None)[-2:] == (1, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("case", gate_cases.CASES, ids=str)
def test_every_kernel_at_every_shape(case, ct):
    row = next(row for row in implementations.available(case.operation, "cuda") if row.implementation == "cutile")
    result = gate_cases.check(case, row, "cuda")
    assert result.passed == PASSED, gate_cases.line(result)


@pytest.mark.gpu
@pytest.mark.parametrize("name", operations.names())
@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_kernel_at_random_shapes(name, data):
    pytest.importorskip("cuda.tile")
    most = {"matmul": (70, 200, 70), "gelu": (20, 300), "layernorm": (4, 600), "triangle": (40, 3), "neighbor": (8, 80, 60)}[name]
    dims = tuple(data.draw(st.integers(1, high)) for high in most)
    result = gate.check(name, "cutile", "fixed", dims, "cuda")
    assert result.passed == PASSED, gate_cases.line(result)


@pytest.mark.gpu
@pytest.mark.parametrize("dims", [(17, 19, 23), (64, 128, 96), (256, 256, 256)])
def test_rank_1_updates_are_the_same_product(dims, ct, tmp_path):
    source = kernels.source("cutile/matmul")
    assert source.count("KERNEL = matmul_kernel") == 1
    file = tmp_path / "matmul.py"
    file.write_text(source.replace("KERNEL = matmul_kernel", "KERNEL = matmul_rank1_kernel"))
    config = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 8}
    result = gate.check("matmul", "cutile", "fixed", dims, "cuda", config=config, source=file)
    assert result.passed == PASSED, gate_cases.line(result)


@pytest.mark.gpu
def test_padding_that_counts_is_refused(ct, tmp_path):
    source = kernels.source("cutile/layernorm")
    text = "ct.where(inside, x - mean, 0.0)"
    assert source.count(text) == 1
    file = tmp_path / "layernorm.py"
    file.write_text(source.replace(text, "x - mean"))
    assert gate.check("layernorm", "cutile", "fixed", (3, 257), "cuda", source=file).passed == FAILED
