"""The CUDA C++ kernels without a GPU: they build for two architectures, ask for what the contract says,
run the instructions they claim to run, and are kept and rebuilt by content."""

import dataclasses
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import broken_kernels
import numpy as np
import pytest
import torch

from mage import cuda, implementations, kernels, operations, paths
from mage.census import sass
from mage.cuda import cubins, hostcuda
from mage.errors import MageError, RequestError
from mage.gate import defects
from mage.kernels import cuda_stages

ARCHES = ("sm_89", "sm_90")

# From the contract: blocks, threads a block, static shared bytes, at the default dims.
CONTRACT = {
    ("matmul", "tiled"): (4096, 256, 2048),
    ("matmul", "registers"): (256, 256, 16384),
    ("matmul", "quads"): (256, 256, 33792),
    ("matmul", "pipeline"): (256, 256, 33792),
    ("layernorm", "block"): (4096, 256, 1024),
    ("layernorm", "warp"): (512, 256, 0),
    ("layernorm", "pair"): (1024, 256, 64),
    ("layernorm", "row"): (4096, 128, 32),
    ("gelu", "elementwise"): (12288, 256, 0),
    ("triangle", "elementwise"): (2048, 256, 0),
    ("neighbor", "feature"): (1024, 256, 0),
}

ADDED_UP_AT_THE_END = {
    *(("matmul", name) for name in ("groups", "spread", "banks", *cuda_stages.FORMS["matmul"])),
    ("triangle", "shared"), ("triangle", "tiles"),
    *(("neighbor", name) for name in ("warp", "balanced", "lean", "hubs")),
}  # fmt: skip
"""Stages whose threads share the sum of an output: its parts are added once, after the last multiply-add."""

ALL = [(operation, stage) for operation, stages in cuda_stages.STAGES.items() for stage in stages]


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """A cache of this module's own, so that a build is a build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def built(own_cache):
    return {arch: cuda.build_all(arch) for arch in ARCHES}


@pytest.fixture(scope="module")
def code(built):
    """(architecture, kernel) -> its SASS."""
    found = {}
    for arch in ARCHES:
        for binary in built[arch].values():
            parsed = sass.parse(cubins.cuobjdump("-sass", binary.cubin))
            found.update({(arch, kernel): instructions for kernel, instructions in parsed.items()})
    return found


# -- resources -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation, stage", CONTRACT)
@pytest.mark.parametrize("arch", ARCHES)
def test_a_stage_asks_for_what_the_contract_says(built, arch, operation, stage):
    launcher = cuda_stages.get(operation, stage)
    grid = launcher.grid(operations.get(operation).default_dims)
    resources = cuda.resources(operation, stage, arch)
    assert (int(np.prod(grid)), launcher.threads, resources.shared) == CONTRACT[operation, stage]
    published = launcher.published
    assert (published.blocks, published.threads, published.shared) == CONTRACT[operation, stage]


@pytest.mark.parametrize("operation, stage", ALL)
@pytest.mark.parametrize("arch", ARCHES)
def test_a_stage_fits_and_does_not_spill(built, arch, operation, stage):
    launcher = cuda_stages.get(operation, stage)
    cubin, resources = built[arch][operation].cubin, cuda.resources(operation, stage, arch)
    assert cubin[:4] == b"\x7fELF"
    assert resources.shared == launcher.shared
    assert (resources.stack, resources.local) == (0, 0)
    assert 0 < resources.registers * launcher.threads <= 65536


def test_shared_grids_that_need_folding_stay_in_the_limits():
    rows = 2**31 - 1
    x, y, z = cuda_stages.get("matmul", "tiled").grid((rows, 1, 1))
    assert x == 1 and y <= 65535 and z <= 65535
    assert y * z * 16 >= rows


# -- instructions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    "stage, words, instructions",
    [
        ("tiled", 2.0, 2.0),
        ("registers", 0.5, 0.5),
        ("narrow", 0.75, 0.75),
        ("quads", 0.5, 0.125),
        ("pipeline", 0.5, 0.125),
        ("registers_merged", 0.5, 0.125),  # what the compiler makes of plain reads
    ],
)
def test_shared_reads_of_a_multiply_add(code, arch, stage, words, instructions):
    body = code[arch, f"matmul_{stage}"].hottest_loop().body
    assert sass.reads_per_multiply_add(body) == (words, instructions)


@pytest.mark.parametrize("arch", ARCHES)
def test_strict_fp32_and_nothing_else(code, arch):
    for operation, stage in ALL:
        instructions = code[arch, f"{operation}_{stage}"].instructions
        assert not sass.tensor_core(instructions), (operation, stage)
        if operation in ("matmul", "triangle", "neighbor"):
            bases = {i.base for i in instructions}
            apart = set() if (operation, stage) in ADDED_UP_AT_THE_END else {"FADD"}
            assert "FFMA" in bases and not ({"FMUL", "LDL", "STL"} | apart) & bases, (operation, stage)


@pytest.mark.parametrize("arch", ARCHES)
def test_what_the_stages_say_about_themselves(code, arch):
    def opcodes(kernel, base):
        return [i for i in code[arch, kernel].instructions if i.base == base]

    copies = opcodes("matmul_pipeline", "LDGSTS")
    assert {i.width for i in copies} == {32, 128} and not opcodes("matmul_quads", "LDGSTS")
    for stage in ("registers", "narrow", "registers_merged", "quads"):
        assert {i.width for i in opcodes(f"matmul_{stage}", "LDG")} == {128}, stage
    for stage in ("warp", "pair", "row"):
        assert {i.width for i in opcodes(f"layernorm_{stage}", "LDG")} == {128}, stage
    assert len(opcodes("layernorm_row", "LDG")) == 6  # x, gamma and beta, two quads each: the row is read once
    barriers = {stage: len(opcodes(f"layernorm_{stage}", "BAR")) for stage in cuda_stages.STAGES["layernorm"]}
    assert barriers == {"block": 19, "warp": 0, "pair": 1, "row": 1, "team": 2 * 8, "registers": 0, "scalars": 0}  # team: 2 a width
    assert len(opcodes("neighbor_feature", "FFMA")) == 1  # one edge at a time, not unrolled


# -- kernel files and launchers agree ------------------------------------------------------------------

_KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\((\d+)(?:, \d+)?\)\s+(\w+)\(([^)]*)\)')


@pytest.mark.parametrize("operation", cuda_stages.STAGES)
def test_the_kernel_file_holds_the_stages_and_takes_the_arguments_that_are_passed(operation):
    text = kernels.source(f"cuda/{operation}")
    assert "asm" not in re.sub(r"//.*", "", text)
    spec = operations.get(operation)
    found = {name: (int(bound), parameters) for bound, name, parameters in _KERNEL.findall(text)}
    stages = cuda_stages.STAGES[operation]
    forms = cuda_stages.FORMS.get(operation, {})
    assert list(found) == [stage.kernel for stage in (*stages.values(), *forms.values())]
    for stage in (*stages.values(), *forms.values()):
        bound, parameters = found[stage.kernel]
        assert bound == stage.threads
        names = [re.search(r"\w+$", p)[0] for p in parameters.split(",")]
        assert names[: len(spec.input_shapes(spec.default_dims))] == list(spec.input_shapes(spec.default_dims))
        assert tuple(names[-len(spec.dims_names) :]) == spec.dims_names
        kinds = ["*" in p for p in parameters.split(",")]
        assert kinds == [True] * (len(names) - len(spec.dims_names)) + [False] * len(spec.dims_names)


# -- shapes and fallbacks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation, dims, expected",
    [
        ("matmul", (17, 19, 23), dict.fromkeys(cuda_stages.STAGES["matmul"], "tiled")),
        ("matmul", (1024, 1024, 1024), {}),
        ("matmul", (1, 1, 1), dict.fromkeys(cuda_stages.STAGES["matmul"], "tiled")),
        ("matmul", (64, 64, 32), {**dict.fromkeys(("quads", "groups", "spread"), "tiled"), "banks": "edge"}),
        (
            "matmul", (32, 96, 64),
            {**dict.fromkeys(("registers", "registers_merged", "quads", "pipeline", "groups", "spread"), "tiled"), "banks": "edge"},
        ),
        ("matmul", (512, 512, 512), {"banks": "quarter"}),
        ("matmul", (64, 4096, 4096), {"banks": "quarter"}),
        ("matmul", (512, 1024, 512), {"banks": "quarter"}),
        ("matmul", (256, 512, 1024), {"banks": "split"}),
        ("matmul", (512, 512, 544), {"quads": "tiled", "banks": "split"}),
        ("matmul", (1024, 1088, 1024), {**dict.fromkeys(("groups", "spread"), "tiled"), "banks": "quarter"}),
        ("matmul", (256, 256, 1024), {"banks": "split"}),
        ("matmul", (1536, 1536, 1536), {"banks": "broad"}),
        ("matmul", (2048, 2048, 2048), {"banks": "wide"}),
        ("matmul", (1024, 768, 1536), {"banks": "third"}),
        ("layernorm", (3, 257), {**dict.fromkeys(cuda_stages.STAGES["layernorm"], "block"), "scalars": "scalars"}),
        ("layernorm", (4, 1), {**dict.fromkeys(cuda_stages.STAGES["layernorm"], "block"), "scalars": "scalars"}),
        ("layernorm", (4, 4), {}),
        ("layernorm", (4, 128), {}),
        ("layernorm", (4, 252), {}),
        ("layernorm", (4, 768), {}),
        ("layernorm", (4, 1024), {"registers": "team"}),
        ("layernorm", (4, 2048), {"row": "pair", "registers": "team", "scalars": "team"}),
        ("layernorm", (4, 4096), {"row": "pair", "registers": "team", "scalars": "team"}),
        ("layernorm", (4, 8192), {"row": "pair", "team": "warp", "registers": "warp", "scalars": "warp"}),
        ("layernorm", (4, 1025), dict.fromkeys(cuda_stages.STAGES["layernorm"], "block")),
        ("gelu", (1, 1), {"quads": "elementwise", "cached": "elementwise"}),
        ("gelu", (4096, 768), {}),
        ("gelu", (4, 1024), {"cached": "by_row"}),
        ("gelu", (16384, 768), {}),
        ("gelu", (4, 4), {}),
        ("gelu", (4, 3072), {}),
        ("gelu", (4, 6144), {"cached": "by_row"}),
        ("gelu", (200000, 256), {}),
        ("gelu", (200000, 1024), {"cached": "quads"}),
        ("triangle", (1, 1), {"shared": "elementwise", "tiles": "elementwise"}),
        ("triangle", (130, 32), {"shared": "elementwise", "tiles": "elementwise"}),
        ("triangle", (64, 32), {"tiles": "shared"}),
        ("triangle", (128, 32), {"tiles": "shared"}),
        ("triangle", (256, 32), {}),
        ("triangle", (128, 128), {}),
        ("neighbor", (5, 4, 0), {}),
        ("neighbor", (5, 6, 20), dict.fromkeys(("quad", "warp", "balanced", "lean", "hubs"), "feature")),
    ],
)
def test_every_shape_finds_a_stage(operation, dims, expected):
    for name in cuda_stages.STAGES[operation]:
        choice = cuda_stages.choose(operation, name, dims)
        assert choice.stage.name == expected.get(name, name)
        assert choice.stage.supports(dims) is None
        assert np.prod(choice.stage.block_at(dims)) == choice.stage.threads
        form = cuda_stages.get(operation, name).form(dims) if not choice.reasons else None
        assert bool(choice.reasons) == (choice.stage.name not in (name, form))


def test_a_tensor_off_the_quads_goes_to_a_stage_that_reads_scalars():
    aligned, shifted = torch.zeros(8), torch.zeros(9)[1:]
    for inputs, out in (({"X": aligned, "gamma": shifted}, aligned), ({"X": aligned}, shifted)):
        choice = cuda_stages.choose("layernorm", "row", (1, 8), inputs, out)
        assert choice.stage.name == "block"
        assert [reason.split(":")[0] for reason in choice.reasons] == ["row", "pair"]
    assert "out does not start" in choice.reasons[0]


def test_a_graph_without_long_rows_goes_to_the_stage_that_is_faster_there():
    def graph(*degrees):
        return {"row_ptr": torch.tensor([0, *degrees]).cumsum(0)}

    even, skewed = graph(16, 64, 0), graph(1, 65, 0)
    for name, without in (("balanced", "warp"), ("hubs", "lean")):
        choice = cuda_stages.choose("neighbor", name, (3, 8, 80), even)
        assert choice.stage.name == without
        assert "no row has more than 64 edges" in choice.reasons[0]
        assert cuda_stages.choose("neighbor", name, (3, 8, 66), skewed).stage.name == name
    assert f"LONG_ROW = {cuda_stages.LONG_ROW};" in kernels.source("cuda/neighbor")


def test_a_stage_that_needs_more_shared_memory_than_the_device_has_gives_way():
    asked = cuda_stages.get("triangle", "shared")
    choice = cuda_stages.choose("triangle", "shared", (128, 32), shared_limit=101376)
    assert choice.stage.name == "elementwise"
    assert f"{asked.dynamic} bytes of shared memory, this device has 101376" in choice.reasons[0]
    assert cuda_stages.choose("triangle", "shared", (128, 32), shared_limit=232448).stage is asked


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match="did you mean 'pipeline'"):
        cuda_stages.get("matmul", "pipelined")
    with pytest.raises(RequestError, match="did you mean 'matmul'"):
        cuda_stages.get("matmult", "tiled")


def test_tensors_on_the_cpu_are_refused():
    with pytest.raises(RequestError, match="on cpu; move them to a GPU"):
        cuda.prepare("gelu", cuda_stages.get("gelu", "elementwise"), (1, 4), (torch.zeros(1, 4), torch.zeros(4), torch.zeros(1, 4)))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_stage_is_chosen_once_for_each_call_that_is_prepared(monkeypatch, device):
    if device == "cpu" and hostcuda.compiler() is None:
        pytest.skip("no C++ compiler to run kernels on the host")
    asked, chosen = cuda_stages.get("neighbor", "balanced"), []

    def declines(inputs):  # it reads all of row_ptr, which on a GPU waits for the device
        chosen.append(asked.declines(inputs))
        return chosen[-1]

    monkeypatch.setitem(cuda_stages.STAGES["neighbor"], "balanced", dataclasses.replace(asked, declines=declines))
    inputs = {name: tensor.to(device) for name, tensor in operations.get("neighbor").make_inputs((8, 8, 64)).items()}
    call = implementations.prepare("neighbor", "cuda", "balanced", inputs)
    assert len(chosen) == 1
    assert call.which == ("neighbor_warp" if chosen[0] else "neighbor_balanced")


@pytest.mark.skipif(hostcuda.compiler() is None, reason="no C++ compiler to run kernels on the host")
@pytest.mark.parametrize("stage", ["pair", "row"])
def test_the_one_pass_variance_holds_up_to_its_limit_and_not_far_past_it(stage):
    launcher, spec, dims = cuda_stages.get("layernorm", stage), operations.get("layernorm"), (64, 768)

    def share_of_tolerance(ratio):
        inputs = spec.make_inputs(dims, mean=ratio * operations.STD)
        got = np.full(dims, np.nan, np.float32)
        arguments = [*(t.numpy() for t in inputs.values()), got, *dims]
        hostcuda.launch(paths.KERNELS / "cuda" / "layernorm.cu", launcher.kernel, launcher.grid(dims), launcher.block_at(dims), arguments)
        reference = spec.reference64(inputs).numpy()
        return float(np.max(np.abs(got - reference) / (spec.atol + spec.rtol * np.abs(reference))))

    assert share_of_tolerance(launcher.mean_over_std_limit) < 1
    assert share_of_tolerance(400) > 10  # mean 100


# -- the cache -----------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Kernel files that may be edited, with an empty cache."""
    shutil.copytree(paths.KERNELS / "cuda", tmp_path / "kernels" / "cuda")
    monkeypatch.setattr(paths, "KERNELS", tmp_path / "kernels")
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_a_second_build_comes_from_the_cache(tree):
    first = cuda.build("gelu", "sm_90")
    second = cuda.build("gelu", "sm_90")
    assert (first.from_cache, second.from_cache) == (False, True)
    assert (second.cubin, second.key) == (first.cubin, first.key)
    assert not cuda.build("gelu", "sm_89").from_cache  # another architecture is another entry


@pytest.mark.parametrize("file, number", [("gelu.cu", "0.044715f"), ("mage.cuh", "2.8853900817779268f")])
def test_an_edited_file_is_what_the_next_build_holds(tree, file, number):
    edited = tree / "kernels" / "cuda" / file
    text = edited.read_text()
    assert number in text
    first = cuda.build("gelu", "sm_90")
    edited.write_text(text.replace(number, "0.5f"))
    second = cuda.build("gelu", "sm_90")
    assert not second.from_cache and second.cubin != first.cubin
    edited.write_text(text)
    third = cuda.build("gelu", "sm_90")
    assert third.from_cache and third.cubin == first.cubin


def test_another_compiler_or_option_is_another_entry(tree, monkeypatch):
    cuda.build("gelu", "sm_90")
    with monkeypatch.context() as patch:
        patch.setattr(cuda, "compiler_version", lambda: "another")
        assert not cuda.build("gelu", "sm_90").from_cache
    monkeypatch.setattr(cuda, "OPTIONS", {**cuda.OPTIONS, "fma": False})
    assert not cuda.build("gelu", "sm_90").from_cache


@pytest.mark.parametrize("damage", [lambda b: b[:1000], lambda b: b"", lambda b: b[:5000] + b"?" + b[5001:], lambda b: b + b"x"])
def test_a_damaged_entry_is_built_again(tree, damage):
    first = cuda.build("gelu", "sm_90")
    (entry,) = (tree / "cache" / "cubin").iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    again = cuda.build("gelu", "sm_90")
    assert not again.from_cache and again.cubin == first.cubin
    assert entry.read_bytes() == whole
    assert cuda.build("gelu", "sm_90").from_cache


def test_builders_at_the_same_time_leave_one_whole_entry(tree):
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: cuda.build("gelu", "sm_90"), range(8)))
    assert len({r.cubin for r in results}) == 1
    assert len(list((tree / "cache" / "cubin").iterdir())) == 1  # no temporary file is left
    assert cuda.build("gelu", "sm_90").from_cache


def test_a_cache_that_cannot_be_written_is_no_error(tree, monkeypatch):
    (tree / "file").write_text("not a folder")
    monkeypatch.setenv("MAGE_CACHE", str(tree / "file"))
    assert cuda.build("gelu", "sm_90").cubin == cuda.build("gelu", "sm_90").cubin


def test_where_the_cache_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MAGE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cuda.cache_dir() == tmp_path / ".cache" / "mage"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cuda.cache_dir() == tmp_path / "xdg" / "mage"
    monkeypatch.setenv("MAGE_CACHE", str(tmp_path / "own"))
    assert cuda.cache_dir() == tmp_path / "own"


@pytest.mark.parametrize("file", ["gelu.cu", "mage.cuh"])
def test_a_compile_error_names_file_and_line(tree, file):
    edited = tree / "kernels" / "cuda" / file
    text = edited.read_text()
    edited.write_text(text.rstrip() + "\nint wrong = ;\n")
    line = edited.read_text().count("\n")
    with pytest.raises(cuda.CompileError, match=re.escape(f"{file}({line}): error")):
        cuda.build("gelu", "sm_90")


def test_a_strange_architecture_is_refused():
    with pytest.raises(RequestError, match="sm_89"):
        cuda.build("gelu", "hopper")


# -- defects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", defects.DEFECTS)
def test_a_published_defect_is_one_place_of_the_kernel_file(name):
    whole = kernels.source("cuda/matmul")
    assert defects.source(name) != whole
    with pytest.raises(MageError, match="0 times, not once"):
        defects.DEFECTS[name].apply(defects.source(name))


@pytest.mark.parametrize("name", broken_kernels.BROKEN)
def test_a_broken_kernel_differs_from_the_whole_one(name):
    broken = broken_kernels.BROKEN[name]
    assert broken_kernels.broken(name) != kernels.source(f"cuda/{broken.operation}")
    assert cuda_stages.get(broken.operation, broken.stage).supports(broken.dims) is None


def test_every_barrier_can_be_left_out():
    counts = {"matmul": 17, "layernorm": 6, "gelu": 0, "triangle": 3, "neighbor": 3}
    for operation, expected in counts.items():
        text = kernels.source(f"cuda/{operation}")
        found = broken_kernels.barriers(text)
        assert len(found) == expected == len(re.findall(r"__syncthreads\(\);", re.sub(r"//.*", "", text)))
        for barrier in found:
            assert set(barrier.stages) <= set(cuda_stages.STAGES[operation])
            less = broken_kernels.without_barrier(text, barrier.number)
            assert less.count("\n") == text.count("\n")
            assert len(broken_kernels.barriers(less)) == expected - 1


# -- parameters of a stage -----------------------------------------------------------------------------


def test_a_stage_is_built_with_its_parameters_and_launched_as_they_ask(own_cache):
    chosen = cuda_stages.choose("matmul", "banks", (1024, 1024, 1024), config={"SLABS": 3, "SPREAD": 2}).stage
    assert chosen.defines == {"MATMUL_SLABS": 3, "MATMUL_SPREAD": 2}
    plain = cuda_stages.get("matmul", "banks")
    assert plain.defines == {} and plain.dynamic == 4 * 4 * 32 * (68 + 128)
    assert chosen.dynamic == 4 * 3 * 64 * 128  # three slabs are smaller than the sums of three groups
    text = kernels.source("cuda/matmul")
    for name, default in plain.parameters.items():
        assert f"#define MATMUL_{name} {default}\n" in text and default in plain.space[name]
    with pytest.raises(RequestError, match="cuda matmul banks has no parameter SLAB; there is: SLABS, SPREAD, SNAKE"):
        cuda_stages.choose("matmul", "banks", (1024, 1024, 1024), config={"SLAB": 3})
    assert plain.static((1024, 1024, 1024), plain.parameters) is None
    assert "goes to quarter" in plain.static((512, 512, 512), plain.parameters)
