"""Tables, figures and quotes of the census: what they show is what was counted."""

import pytest
from test_figures import faults, words

import mage
from mage import figures, paths, tables
from mage.census import counting, offline, tile_census
from mage.errors import ClaimError, RequestError
from mage.kernels import cuda_stages

WAYS = (offline.NO_ALIGNMENT, offline.AS_LAUNCHED)


@pytest.fixture(scope="module")
def norm():
    return mage.count_code("layernorm", ["triton", "cuda"], specializations=WAYS)


@pytest.fixture(scope="module")
def matmul():
    return mage.count_code("matmul")


@pytest.fixture(scope="module")
def tiles():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGE_TILEIRAS", str(paths.ROOT / "no such folder"))
        return tile_census.census()


# --- tables -------------------------------------------------------------------------------------------------------


def test_the_norm_census_shows_both_ways_and_the_pair(norm):
    frame = tables.norm_census(norm).frame.set_index(["Kernel", "GPU", "Compiled"])
    assert len(frame) == 6
    for gpu in counting.ARCHS:
        alone, launched = frame.loc["Triton", gpu, "told nothing of alignment"], frame.loc["Triton", gpu, "as launched"]
        assert (alone["Loads in PTX"], alone["Stores in PTX"]) == ("24\u00a0×\u00a032", "8\u00a0×\u00a032")
        assert (launched["Loads"], launched["Stores"]) == ("6\u00a0×\u00a0128", "2\u00a0×\u00a0128")
        assert list(alone[["Grid", "Block", "Shared", "Passes over x"]]) == ["4096", 128, 16, 1]
        pair = frame.loc["CUDA C++, pair", gpu, ""]
        assert list(pair[["Grid", "Block", "Shared", "Passes over x", "Barriers"]]) == ["1024", 256, 64, 2, 1]
        assert pair["Loads"].endswith("×\u00a0128") and "+" not in pair["Loads"]


def test_the_other_tables_hold_every_kernel_and_the_chosen_operations(norm, matmul):
    for table in (tables.code_census, tables.access_census):
        assert len(table(matmul).frame) == len(matmul)
        assert set(table(norm, operations=["layernorm"]).frame["Operation"]) == {"LayerNorm"}
        assert table(norm, operations=["gelu"]).frame.empty
    rows = tables.code_census(matmul).frame.set_index(["Kernel", "GPU"])
    assert rows.loc[("CUDA C++, quads", "sm_90"), "Shared"] == 33792
    counted = dict(zip(zip(matmul.variant, matmul.implementation, matmul.gpu, strict=True), matmul["stack"], strict=True))
    assert rows.loc[("cuTile", "sm_90"), "Stack"] == counted["fixed", "cutile", "sm_90"]
    access = tables.access_census(matmul).frame.set_index(["Kernel", "GPU"])
    assert list(access.loc[("CUDA C++, quads", "sm_89"), ["Words", "Reads"]]) == [0.5, 0.125]
    assert access["In PTX"].isna().sum() == 2 and access["In PTX"].isna()["cuTile"].all()
    assert "cuTile shows no PTX" in tables.access_census(matmul).note


def test_a_kernel_that_does_not_compile_is_said_below(norm):
    row = {"operation": "gelu", "implementation": "triton", "variant": "fixed", "gpu": "sm_90", "compiled": "as launched"}
    frame = mage.count_code("gelu", "cuda")
    frame = type(frame)([*frame.to_dict("records"), {**row, "refused": "the compiler crashed: signal SIGSEGV"}])
    view = tables.code_census(frame)
    assert len(view.frame) == 2 * len(cuda_stages.STAGES["gelu"])
    assert "Triton of Bias\u00a0+\u00a0GELU for sm_90: the compiler crashed" in view.note


def test_the_tile_census_shows_releases_and_where_its_rows_are_from(tiles):
    view = tables.tile_census(tiles, gpus=["sm_89"], tiles=["32x128x32"])
    frame = view.frame.set_index(["Product", "Release"])
    assert frame.loc[("ct.mma", "13.3.36"), "Fused"] == "no" and frame.loc[("ct.mma", "13.5.37"), "Fused"] == "yes"
    assert set(frame.loc["rank-1", "Fused"]) == {"yes"} and set(frame["Counted"]) == {"retained"}
    assert "retained" in view.note and "make tile-compilers" in view.note
    assert len(tables.tile_census(tiles).frame) == len(tiles)
    computed = tiles.assign(origin="computed here")
    assert "make tile-compilers" not in tables.tile_census(computed).note
    older = computed.assign(origin=computed.origin.where(computed.release != "13.3.36", "retained"), stale=True)
    assert "but for 13.3.36" in tables.tile_census(older).note and "another text" in tables.tile_census(older).note


@pytest.mark.parametrize("name", ["norm_census", "code_census", "access_census"])
def test_an_empty_selection_is_a_sentence(name, norm, tiles):
    for view in (getattr(tables, name)(norm, operations=[]), tables.tile_census(tiles, operations=["gelu"])):
        assert view.frame.empty and "Nothing in the census matches the selection." in view.html
    with pytest.raises(RequestError, match="did you mean 'matmul'"):
        getattr(tables, name)(norm, operations=["matmull"])


# --- figures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", counting.ARCHS)
def test_the_figures_can_be_read_and_describe_themselves(gpu, matmul, tiles):
    for view in (figures.shared_reads(matmul, gpu=gpu), figures.tile_product(tiles, gpu=gpu)):
        assert faults(view.figure) == []
        assert gpu in view.alt and len(view.alt) > 60 and view.table.id == f"{view.id}-values" and not view.table.frame.empty
        assert "compiled, not run" in words(view) and len(view.svg) < 48_000 and len(view.png) < 50_000
        assert all(min(panel.get_xlim()) <= 0 for panel in view.figure.axes)


def test_shared_reads_are_those_of_the_stages(matmul):
    view = figures.shared_reads(matmul)
    frame = view.table.frame.set_index("Kernel")
    expected = {"tiled": (2, 2), "registers": (0.5, 0.5), "narrow": (0.75, 0.75), "quads": (0.125, 0.5), "pipeline": (0.125, 0.5)}
    assert {stage: tuple(frame.loc[f"CUDA C++, {stage}", ["Instructions", "Words"]]) for stage in expected} == expected
    assert {"Triton", "cuTile"} < set(frame.index) and "CUDA C++, quads 0.125 instructions, 0.5 words" in view.alt
    bars = [patch.get_width() for patch in view.figure.axes[0].patches]
    assert bars[:2] == [2, 2] and bars[8:10] == [0.125, 0.5]


def test_the_tile_product_shows_instructions_and_stacks(tiles):
    view = figures.tile_product(tiles)
    shown = words(view)
    assert "2.03" in shown and "1.03" in shown and "ct.mma 13.3.36" in shown
    stacks = tiles[(tiles.gpu == "sm_89") & (tiles["stack"] > 0)]["stack"]
    assert all(str(stack) in shown for stack in stacks) and shown.count("FFMA") == 4
    lengths = [patch.get_width() for patch in view.figure.axes[0].patches][:3]
    assert lengths == pytest.approx([0, 1, 1056 / 1024])


def test_a_figure_without_matmul_is_a_sentence(matmul, tiles):
    for view in (figures.shared_reads(matmul, operations=["gelu"]), figures.tile_product(tiles, operations=["gelu"])):
        assert view.figure is None and view.table.frame.empty and view.html.count("mage-notice") == 2


# --- quotes -------------------------------------------------------------------------------------------------------


def test_a_count_is_printed_when_the_code_has_it_and_stops_the_note_when_not(norm):
    counts = mage.Counts(norm)
    pair = counts.row(implementation="cuda", variant="pair", gpu="sm_89")
    assert pair("barriers", "1") == "1" and pair("static shared", "64 bytes") == "64\u00a0bytes"
    assert pair("registers") == str(norm[(norm.variant == "pair") & (norm.gpu == "sm_89")].registers.item())
    assert pair.total("static shared, dynamic shared", "64") == "64"
    with pytest.raises(ClaimError, match="claim 2: the census has 1 for barriers of implementation cuda, variant pair, gpu sm_89"):
        pair("barriers", "2")
    with pytest.raises(ClaimError, match="has no 'warps'"):
        pair("warps")
    with pytest.raises(ClaimError, match="2 rows of the census match"):
        counts.row(implementation="triton", gpu="sm_89")
    with pytest.raises(ClaimError, match="no column 'grids'"):
        counts.row(grids="1")


def test_what_is_said_of_several_rows_must_be_true_of_each(tiles):
    counts = mage.Counts(tiles)
    assert counts.every("FADD", "0", product="rank-1") == "0"
    with pytest.raises(ClaimError, match="the census has 108 for FADD of product ct.mma, tile 16x16x8, release 13.3.36, gpu sm_89"):
        counts.every("FADD", "0", product="ct.mma")
    with pytest.raises(ClaimError, match=r"no row of the census is that"):
        counts.every("FADD", "0", product="ct.mul")
    assert counts.having("stack", "0", product="rank-1", gpu="sm_89") == "0"
    with pytest.raises(ClaimError, match="claim 3: the census has 0 for number of product rank-1, gpu sm_89 with stack"):
        counts.having("stack", "3", product="rank-1", gpu="sm_89")
    assert counts.most("registers", "255", product="rank-1") == "255"
    with pytest.raises(ClaimError, match="largest registers"):
        counts.most("registers", "254", product="rank-1")
    row = counts.row(product="ct.mma", tile="32x128x32", gpu="sm_89", release="13.3.36")
    assert row.ratio("FFMA, FMUL, FADD", "multiply-adds", "2.03") == "2.03"
    with pytest.raises(ClaimError):
        row.ratio("FADD", "FMUL", "1.04")
