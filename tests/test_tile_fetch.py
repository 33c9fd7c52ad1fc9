"""Who fetches a tile: read from kernels that are compiled, hints and all, as they are launched."""

import json

import pytest

from mage import paths, tables
from mage.census import tile_fetch, tile_limits
from mage.kernels import tuned


@pytest.fixture
def ct():
    pytest.importorskip("triton", reason="no cuobjdump: not checked on this machine")
    return pytest.importorskip("cuda.tile", reason="cuda-tile is not installed: not checked on this machine")


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """chosen(operation, config): what a search is said to have chosen; nothing before that."""
    monkeypatch.setattr(paths, "RETAINED", tmp_path)

    def choose(operation, config):
        file = tuned.path(tile_fetch.DEVICE)
        file.parent.mkdir(parents=True, exist_ok=True)
        entry = {"config": config, "dims": [4096, 768], "kernel_sha256": "0" * 64, "when": "2026-11-30T12:00:00Z"}
        file.write_text(json.dumps({"schema": tuned.SCHEMA, "configurations": {f"{operation}/cutile": entry}}))

    return choose


def test_tma_and_a_full_multiprocessor_go_together_and_the_search_left_both(chosen, ct):
    chosen("layernorm", {"kernel": "rows", "TILE_R": 2})
    fixed, found = tile_fetch.rows(["layernorm"])
    assert fixed["bulk copies"] > 0 and fixed["registers"] == 255 and fixed["blocks per SM"] == 1
    assert found["bulk copies"] == 0 and found["blocks per SM"] > 4
    assert tile_fetch.summary([fixed, found]) == (
        "TMA copies are in the code of 1 of 1 published configuration (layernorm). One block fills a multiprocessor in 1 of them. "
        "TMA copies are in the code of none of 1 configuration that a search chose on an NVIDIA H200."
    )
    first, second = tables.who_fetches([fixed, found]).frame.to_dict("records")
    assert (first["Configuration"], second["As"]) == ("published", "rows, TILE_R=2")
    assert first["TMA copies"] == fixed["bulk copies"] and second["Loads"] == found["global loads"] + found["cp.async"] > 0


def test_hints_are_compiled_in(ct):
    config = {"kernel": "direct", "TILE_M": 64, "TILE_N": 128, "TILE_K": 4, "num_worker_warps": 8}
    plain, hinted = (tile_fetch.describe.row(tile_fetch.compiled("matmul", {**config, **more})) for more in ({}, {"occupancy": 2}))
    assert hinted["threads"] == plain["threads"] == 256
    assert hinted["registers"] <= 128 < plain["registers"]


def test_without_a_search_the_published_configuration_stands_alone(chosen, ct):
    assert [row["which"] for row in tile_fetch.rows(["gelu"])] == [tile_fetch.FIXED]


def test_without_cutile_the_table_says_why(monkeypatch):
    monkeypatch.setattr(tile_limits, "why_not", lambda: "cuda-tile is not installed")
    assert tile_fetch.rows() == []
    assert "cuda-tile is not installed" in tables.who_fetches([]).html
    assert "cuda-tile is not installed" in tile_fetch.summary([])


def test_the_summary_counts_and_names_what_has_copies():
    def row(operation, which, copies, blocks):
        return {"operation": operation, "which": which, "bulk copies": copies, "blocks per SM": blocks}

    fixed = [row("matmul", tile_fetch.FIXED, 21, 1), row("gelu", tile_fetch.FIXED, 0, 1), row("layernorm", tile_fetch.FIXED, 16, 2)]
    said = "TMA copies are in the code of 2 of 3 published configurations (matmul and layernorm). One block fills a multiprocessor in"
    assert tile_fetch.summary(fixed) == f"{said} 1 of them."
    chosen = [row("matmul", tile_fetch.CHOSEN, 0, 1), row("gelu", tile_fetch.CHOSEN, 3, 1)]
    assert tile_fetch.summary([*fixed, *chosen]).endswith(" in the code of 1 of 2 configurations that a search chose on an NVIDIA H200.")
    assert tile_fetch.summary([fixed[1]]) == "TMA copies are in the code of none of 1 published configuration."


def test_without_the_tool_that_reads_code_nothing_is_compiled_and_the_reason_is_that(monkeypatch):
    monkeypatch.setattr(tile_limits, "why_not", lambda: None)
    monkeypatch.setattr(tile_fetch.importlib.util, "find_spec", lambda name: None)
    assert tile_fetch.rows() == [] and "cuobjdump reads the code, is not installed" in tile_fetch.summary([])


def test_a_selection_leaves_operations_out():
    row = {"operation": "gelu", "which": "published", "config": {}, "compiler": "cuTile 9"} | dict.fromkeys(
        ("bulk copies", "global loads", "cp.async", "threads", "registers", "static shared", "stack", "blocks per SM"), 1
    )
    assert len(tables.who_fetches([row], operations=["gelu"]).frame) == 1
    assert "matches the selection" in tables.who_fetches([row], operations=["matmul"]).html
