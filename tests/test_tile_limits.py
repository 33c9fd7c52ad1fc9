"""Limits of the tile model: each outcome comes from compiling the kernel that lies there now."""

import shutil

import pytest

from mage import kernels, paths, tables
from mage.census import tile_limits
from mage.census.tile_limits import AS_CLAIMED, COMPILES, LIMITS, REFUSED, Limit

NAMES = [limit.name for limit in LIMITS]


@pytest.fixture
def ct():
    return pytest.importorskip("cuda.tile", reason="cuda-tile is not installed: not checked on this machine")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The kernels in a place of their own, to be edited."""
    shutil.copytree(paths.KERNELS, tmp_path / "kernels")
    monkeypatch.setattr(paths, "KERNELS", tmp_path / "kernels")
    return tmp_path / "kernels" / "cutile" / "limits"


def outcome(name):
    (found,) = tile_limits.outcomes([limit for limit in LIMITS if limit.name == name])
    return found


def edit(folder, name, old, new):
    file = folder / f"{name}.py"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_every_limit_has_a_kernel_and_every_kernel_is_a_limit():
    files = {file.stem for file in (paths.KERNELS / "cutile" / "limits").glob("*.py")}
    assert files == set(NAMES)
    assert sum(limit.published for limit in LIMITS) == 6


def test_what_is_refused_is_said_in_the_compilers_words(ct):
    found = outcome("power_of_two")
    assert (found.word, found.instead) == (REFUSED, "compiles")
    assert "768" in found.said and "power of two" in found.said
    assert outcome("run_time_shape").word == REFUSED
    assert str(paths.ROOT) not in found.said
    assert found.compiler.startswith("cuTile ")


def test_a_legal_kernel_in_its_place_changes_the_row(folder, ct):
    edit(folder, "power_of_two", "(1, 768)", "(1, 1024)")
    assert outcome("power_of_two").word == COMPILES
    row = tables.tile_limits([outcome("power_of_two")]).frame.iloc[0]
    assert (row["Today"], row["What the compiler says"]) == (COMPILES, "compiles")


@pytest.mark.parametrize("name", ["expression", "unsigned", "comparison", "pointer"])
def test_what_can_be_written_today_compiles_and_a_refused_kernel_would_show(name, folder, ct):
    assert outcome(name).word == COMPILES
    file = folder / f"{name}.py"
    file.write_text(file.read_text().replace("KERNEL = kernel", "@ct.kernel\ndef refused(*arrays):\n    pass\n\n\nKERNEL = refused"))
    assert outcome(name).word == REFUSED


def test_an_index_that_stands_still_would_be_seen(folder, ct):
    assert outcome("loop_index").word == COMPILES
    edit(folder, "loop_index", "ct.load(X, (n,), (64,)", "ct.load(X, (0,), (64,)")
    found = outcome("loop_index")
    assert found.word == AS_CLAIMED and found.said.startswith("0 loads")


def test_the_way_around_is_tried_as_well(folder, ct):
    edit(folder, "power_of_two", "(1, 1024)", "(1, 1000)")
    assert "power of two" in outcome("power_of_two").instead


def test_where_a_message_points_to_is_left_out():
    error = ValueError('Dimension #1 is not a power of two\n    "/somewhere/kernel.py", line 9, in kernel:\n')
    assert tile_limits.words(error) == "Dimension #1 is not a power of two"
    assert tile_limits.words(ValueError("asks for 13.5 Unknown location")) == "asks for 13.5"
    assert tile_limits.words(ValueError()) == "ValueError"


def test_without_cutile_the_table_and_the_sentence_say_so(monkeypatch):
    monkeypatch.setattr(tile_limits, "why_not", lambda: "cuda-tile is not installed")
    tried = tile_limits.outcomes()
    assert tried == []
    assert "cuda-tile is not installed" in tables.tile_limits(tried).html
    assert "cuda-tile is not installed" in tile_limits.summary(tried)
    assert set(tile_limits.by_name(tried).values()) == {"not tried here"}


def test_the_sentence_counts_what_was_found():
    made = [
        tile_limits.Outcome(limit=Limit(name=name, claim=name, published=published), word=word, said="", compiler="cuTile 9, tileiras 9")
        for name, word, published in (("a", REFUSED, True), ("b", COMPILES, True), ("c", AS_CLAIMED, True), ("d", REFUSED, False))
    ]
    assert tile_limits.summary(made) == "Of the 3 published limits, 1 are no longer true in cuTile 9 and 2 still stand."


def test_the_kernels_are_noted_as_used(ct):
    from mage import provenance

    outcome("pointer")
    kept = provenance.classify(provenance.used)["kernels"]
    assert any(str(path).endswith("cutile/limits/pointer.py") for path in kept)


@pytest.mark.gpu
def test_a_load_that_follows_the_loop_variable_reads_every_tile(ct):
    import torch

    X = torch.arange(300, dtype=torch.float32, device="cuda")
    Y = torch.full((64,), float("nan"), device="cuda")
    module = kernels.load("cutile/limits/loop_index")
    ct.launch(torch.cuda.current_stream(), (1, 1, 1), module.KERNEL, (X, Y))
    expected = torch.nn.functional.pad(X, (0, 20)).reshape(5, 64).sum(0)
    torch.testing.assert_close(Y, expected)
