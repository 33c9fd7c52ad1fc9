"""Resident blocks against cases worked out by hand from the limits."""

import pytest

from mage.census import occupancy
from mage.errors import RequestError


@pytest.mark.parametrize(
    "arch, threads, registers, shared, blocks, limited_by",
    [
        ("sm_89", 256, 32, 0, 6, "threads"),  # 1536 / 256
        ("sm_89", 256, 96, 33792, 2, "registers"),  # 65536 / (96 * 256) = 2.67, and 102400 / 34816 = 2.9
        ("sm_90", 256, 96, 33792, 2, "registers"),
        ("sm_90", 256, 56, 33792, 4, "registers"),  # 56 * 32 = 1792 a warp: 36 warps, 4 blocks of 8
        ("sm_90", 128, 32, 16, 16, "threads"),  # 2048 / 128; 32 registers fill 65536 exactly
        ("sm_90", 32, 16, 0, 32, "blocks"),
        ("sm_90", 256, 32, 100 * 1024, 2, "shared memory"),  # 233472 / 103424
        ("sm_90", 128, 255, 33880, 2, "registers"),  # 8192 a warp: 8 warps
        ("sm_89", 128, 64, 100 * 1024, 0, "shared memory"),  # more than one block may have
    ],
)
def test_resident_blocks(arch, threads, registers, shared, blocks, limited_by):
    got = occupancy.resident(arch, threads, registers, shared)
    assert (got.blocks, got.limited_by) == (blocks, limited_by)


def test_occupancy_is_a_share_of_the_threads():
    assert occupancy.resident("sm_89", 256, 32, 0).occupancy == 1.0
    assert occupancy.resident("sm_90", 256, 96, 33792).occupancy == 0.25


def test_an_unknown_gpu_names_the_known_ones():
    with pytest.raises(RequestError, match="sm_90"):
        occupancy.limits("sm_42")
