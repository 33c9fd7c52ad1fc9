"""cuTile kernels: compiled for named GPUs on any machine and, marked gpu, gated on one."""

import io
import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mage import gate, implementations, kernels, operations
from mage.census import offline
from mage.cuda import cubins
from mage.errors import MageError
from mage.gate import FAILED, PASSED, gating
from mage.kernels import configurations

PUBLISHED_GRIDS = {
    "matmul": (32, 8, 1), "gelu": (512, 6, 1), "layernorm": (4096, 1, 1), "triangle": (4, 4, 32), "neighbor": (4096, 1, 1),
}  # fmt: skip
OTHERS = [
    ("matmul", {"kernel": "direct", "TILE_M": 64, "TILE_N": 64, "TILE_K": 8}),
    ("matmul", {"kernel": "direct", "TILE_M": 64, "TILE_N": 128, "TILE_K": 4, "num_worker_warps": 8, "occupancy": 2}),
    ("matmul", {"kernel": "rank-1", "TILE_M": 64, "TILE_N": 32, "TILE_K": 8}),
    ("gelu", {"kernel": "approx", "TILE_R": 16, "TILE_D": 128, "num_worker_warps": 8}),
    ("layernorm", {"kernel": "rows", "TILE_R": 2}),
    ("layernorm", {"kernel": "rows", "TILE_R": 2, "TILE_D": 256}),
    ("layernorm", {"kernel": "rows", "TILE_R": 8, "TILE_D": 128}),
    ("triangle", {"kernel": "channels", "TILE_I": 32, "TILE_J": 16, "TILE_K": 8, "TILE_C": 8, "num_worker_warps": 8}),
    ("triangle", {"kernel": "channels", "TILE_I": 16, "TILE_J": 16, "TILE_K": 4, "TILE_C": 16}),
    ("neighbor", {"kernel": "rows", "TILE_N": 8, "EDGES": 12, "TILE_F": 64}),
    ("neighbor", {"kernel": "rows", "TILE_N": 16, "EDGES": 8, "TILE_F": 32}),
]
"""Configurations of the kernels that a search may choose beside the published one, as (operation, config)."""
RANKS = {"matmul": (2, 2, 2), "gelu": (2, 1, 2), "layernorm": (2, 1, 1, 2), "triangle": (3, 3, 3), "neighbor": (2, 1, -1, -1, 2)}


@pytest.fixture
def ct():
    return pytest.importorskip("cuda.tile", reason="cuda-tile is not installed: not checked on this machine")


def compiled(name, config, arch="sm_90"):
    """The cubin of one configuration, compiled here for ``arch`` as it is launched at the operation's own shape."""
    from types import SimpleNamespace

    from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel

    module, operation = kernels.load(f"cutile/{name}"), operations.get(name)
    config = configurations.whole(module, config)
    shapes = [*operation.input_shapes(operation.default_dims).items(), ("out", operation.output_shape(operation.default_dims))]
    tensors = [SimpleNamespace(name=tensor, shape=shape) for tensor, shape in shapes]
    arguments = [offline._array(a) if isinstance(a, SimpleNamespace) else a for a in module.arguments(*tensors, config=config)]
    signature = KernelSignature(arguments, calling_convention=CallingConvention.cutile_python_v1())
    cubin = io.BytesIO()
    export_kernel(configurations.tile_kernel(module, config), [signature], cubin, gpu_code=arch, output_format="cubin")
    return cubin.getvalue()


def strict(cubin, arch):
    try:
        sass = cubins.cuobjdump("-sass", cubin)
    except MageError as error:
        pytest.skip(str(error))
    assert f"EF_CUDA_SM{arch[3:]}" in sass
    assert re.search(r"\b(FFMA|FMUL)\b", sass)
    assert not re.search(r"\b(HMMA|HGMMA|WGMMA)\b", sass)


@pytest.mark.parametrize("arch", ["sm_89", "sm_90"])
@pytest.mark.parametrize("name", operations.names())
def test_compiles_without_a_gpu_and_without_tensor_cores(name, arch, ct):
    strict(compiled(name, {}, arch), arch)


@pytest.mark.parametrize(("name", "config"), OTHERS)
def test_every_other_kernel_compiles_without_tensor_cores(name, config, ct):
    strict(compiled(name, config), "sm_90")


@pytest.mark.parametrize(
    ("name", "config", "most"),
    [
        ("layernorm", {"kernel": "rows", "TILE_R": 2}, 80),
        ("matmul", {"kernel": "direct", "TILE_M": 64, "TILE_N": 128, "TILE_K": 4, "num_worker_warps": 8, "occupancy": 2}, 128),
        ("triangle", {"kernel": "channels", "TILE_I": 32, "TILE_J": 16, "TILE_K": 8, "TILE_C": 8, "num_worker_warps": 8}, 200),
    ],
)
def test_without_tma_a_multiprocessor_is_not_filled_by_one_block(name, config, most, ct):
    (asked,) = cubins.usage(compiled(name, config), "sm_90").values()
    assert asked.registers <= most and not asked.stack
    if name == "layernorm":
        (fixed,) = cubins.usage(compiled(name, {}), "sm_90").values()
        assert fixed.registers == 255


@pytest.mark.parametrize("name", operations.names())
def test_a_search_has_candidates_and_says_why_it_leaves_others_out(name, ct):
    module = kernels.load(f"cutile/{name}")
    dims = operations.get(name).default_dims
    combinations = itertools.product(*module.SPACE.values())
    every = [configurations.whole(module, dict(zip(module.SPACE, values, strict=True))) for values in combinations]
    allowed = [config for config in every if module.static(dims, config) is None]
    assert 30 <= len(allowed) <= 100
    assert module.static(dims, module.FIXED) is None
    assert all(len(module.static(dims, config)) > 10 for config in every if config not in allowed)
    for config in (config for operation, config in OTHERS if operation == name):
        assert module.static(dims, configurations.whole(module, config)) is None
        assert all(value in module.SPACE[key] for key, value in config.items())
    sides = [value for config in allowed for side, value in config.items() if side.startswith("TILE") and value]
    assert all(value & (value - 1) == 0 for value in sides)


@pytest.mark.parametrize(("name", "config"), OTHERS)
def test_the_grid_covers_the_output_and_no_more(name, config, ct):
    module = kernels.load(f"cutile/{name}")
    config = configurations.whole(module, config)
    dims = {"matmul": (65, 129, 5), "gelu": (33, 129), "layernorm": (17, 768), "triangle": (33, 17), "neighbor": (17, 65, 9)}[name]
    sides = {
        "matmul": ("TILE_M", "TILE_N"), "gelu": ("TILE_R", "TILE_D"), "layernorm": ("TILE_R",),
        "triangle": ("TILE_I", "TILE_J", "TILE_C"), "neighbor": ("TILE_N", "TILE_F"),
    }[name]  # fmt: skip
    lengths = {"triangle": (dims[0], dims[0], dims[1])}.get(name, dims)
    expected = [-(-length // config[side]) for length, side in zip(lengths, sides, strict=False)]
    assert list(module.grid(dims, config)) == expected + [1] * (3 - len(expected))


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
@pytest.mark.parametrize("case", gating.CASES, ids=str)
def test_every_kernel_at_every_shape(case, ct):
    row = next(row for row in implementations.available(case.operation, "cuda") if row.implementation == "cutile")
    result = gating.check(case, row, "cuda")
    assert result.passed == PASSED, gating.line(result)


@pytest.mark.gpu
@pytest.mark.parametrize("name", operations.names())
@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_kernel_at_random_shapes(name, data):
    pytest.importorskip("cuda.tile")
    most = {"matmul": (70, 200, 70), "gelu": (20, 300), "layernorm": (4, 600), "triangle": (40, 3), "neighbor": (8, 80, 60)}[name]
    dims = tuple(data.draw(st.integers(1, high)) for high in most)
    result = gate.check(name, "cutile", "fixed", dims, "cuda")
    assert result.passed == PASSED, gating.line(result)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "config"), OTHERS)
def test_every_other_kernel_at_every_shape(name, config, ct):
    module = kernels.load(f"cutile/{name}")
    config = configurations.whole(module, config)
    cases = [case for case in gating.CASES if case.operation == name and module.static(case.dims, config) is None]
    assert len(cases) >= 3
    for case in cases:
        made = {"make_inputs": case.make_inputs} if case.make_inputs else {}
        result = gate.check(name, "cutile", "other", case.dims, "cuda", config=config, case=case.name, **made)
        assert result.passed == PASSED, gating.line(result)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "dims", "config", "text", "without"),
    [
        (
            "layernorm",
            (3, 257),
            {"kernel": "rows", "TILE_R": 2, "TILE_D": 128},
            "c = ct.where(ct.reshape(inside, (1, TILE_D)), c, 0.0)",
            "pass",
        ),
        ("neighbor", (13, 8, 40), {"kernel": "rows", "TILE_N": 8, "EDGES": 12}, "inside = edge < last", "inside = edge + 1 < last"),
    ],
)
def test_a_kernel_whose_mask_is_wrong_is_refused(name, dims, config, text, without, ct, tmp_path):
    source = kernels.source(f"cutile/{name}")
    assert source.count(text) == 1
    file = tmp_path / f"{name}.py"
    file.write_text(source.replace(text, without))
    config = configurations.whole(kernels.load(f"cutile/{name}"), config)
    assert gate.check(name, "cutile", "other", dims, "cuda", config=config, source=file).passed == FAILED


@pytest.mark.gpu
def test_padding_that_counts_is_refused(ct, tmp_path):
    source = kernels.source("cutile/layernorm")
    text = "ct.where(inside, x - mean, 0.0)"
    assert source.count(text) == 1
    file = tmp_path / "layernorm.py"
    file.write_text(source.replace(text, "x - mean"))
    assert gate.check("layernorm", "cutile", "fixed", (3, 257), "cuda", source=file).passed == FAILED
