"""A call that heats the device has rounds of its own, and what happens in them says nothing of the other rows."""

from types import SimpleNamespace

from mage.experiment.rounds import put, turns
from mage.experiment.samples import Key, Taken, accept

KEY = Key("matmul/cuda:banks", "kernel_us", "awaited", "warm")
LONG = Key("matmul/cuda:banks@4096x4096x4096", "kernel_us", "awaited", "warm")


def case(name: str, long: bool = False) -> SimpleNamespace:
    return SimpleNamespace(key=name, long=long)


def test_long_calls_come_in_rounds_behind_the_others():
    short, long = [case(name) for name in "abc"], [case("x", long=True)]
    found = list(turns([*short, *long], 4))
    assert [number for number, _ in found] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert all({one.key for one in cases} == set("abc") for _, cases in found[:4])
    assert all([one.key for one in cases] == ["x"] for _, cases in found[4:])
    assert len({tuple(one.key for one in cases) for _, cases in found[:4]}) > 1  # the order rotates


def test_without_long_calls_there_are_no_more_rounds():
    assert [number for number, _ in turns([case("a")], 3)] == [0, 1, 2]


def test_long_calls_alone_have_rounds_from_0():
    assert [number for number, _ in turns([case("x", long=True)], 3)] == [0, 1, 2]


def test_a_throttled_round_of_long_calls_voids_these_alone():
    taken = {KEY: [], LONG: []}
    for number in range(4):
        put(taken[KEY], number, Taken(((5.0, 5.0),)))
    for number in range(4, 8):
        put(taken[LONG], number, Taken(((2600.0,),)))
    assert taken[LONG][:4] == [None] * 4
    throttled = dict.fromkeys((4, 5, 6), "throttled: software power cap")
    accepted, voids = accept(taken, throttled, 3)
    assert accepted[KEY].rounds == (0, 1, 2, 3) and LONG not in accepted
    assert [void.reason for void in voids] == ["1 of 4 rounds were accepted, 3 are needed: throttled: software power cap"]
    accepted, voids = accept(taken, {4: "throttled: software power cap"}, 3)
    assert accepted[LONG].rounds == (5, 6, 7) and not voids


def test_each_kind_of_round_has_a_band_of_its_own():
    from mage.evidence.schema import Round
    from mage.experiment.samples import marked

    def rounds(controls, long, first=0):
        return [Round(part="kernels", number=first + place, control_us=(one,) * 3, long=long) for place, one in enumerate(controls)]

    short, hot = rounds([10.0] * 12, False), rounds([10.8] * 11 + [12.0], True, 12)
    found = marked([*short, *hot], unsteady=True)
    assert [one.number for one in found if one.loaded] == [23]
    assert "+11.1 % of its session median 10.80" in found[23].loaded
