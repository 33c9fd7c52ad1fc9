"""Searches that can be trusted: real workers, and candidates that crash, hang, lie and stop halfway.

Without a GPU the candidates are plain Python, run by the very engine that runs kernels; the builds are real ones.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import textwrap

import pytest

from mage import operations, paths, tune
from mage.errors import BusyError, MageError, RequestError
from mage.evidence.schema_search import CRASHED, HUNG, REFUSED, TIMED, UNCOMPILED, UNFINISHED, WRONG, Candidate, Measured
from mage.notebook import locks
from mage.tune import command, ledger, process, rules, subject
from mage.tune.engine import CONFIRM_SEED, Engine, Limits
from mage.tune.process import Worker
from mage.tune.subject import Subject

DIMS = (8, 16)

# A candidate of plain Python: `do` says what it does, `rest` how long it rests beside that.
KERNEL = """\
import ctypes, os, subprocess, sys, time
import torch
from mage import operations

FIXED = {"do": "right", "rest": 8}
SPACE = {"do": ("right", "wrong"), "rest": (1, 8)}
LOG = os.environ.get("MAGE_TEST_LOG")


def of_seed(X, seed):
    R, D = X.shape
    return torch.equal(X, operations.get("gelu").make_inputs((R, D), seed=seed)["X"])


def static(dims, config):
    return "own rule: too long a rest" if config["rest"] > 100 else None


def build(dims, config):
    if LOG:
        with open(LOG, "a") as log:
            log.write(f"{config['rest']}\\n")
    if config["do"] == "build aborts":
        os.abort()
    if config["do"] == "build hangs":
        time.sleep(3600)
    if config["do"] == "build fails":
        raise SyntaxError("no such instruction")


def launch(X, bias, Y, config=FIXED):
    do = config["do"]
    if do == "abort":
        print("a last word", file=sys.stderr, flush=True)
        os.abort()
    if do == "raise":
        raise ValueError("no such launch")
    if do == "hang":
        subprocess.run([sys.executable, "-c", "import time; time.sleep(3600)", __file__])
    if do == "outside":
        # past the end of Y
        ctypes.memset(Y.data_ptr() + 4 * Y.numel(), 0, 8)
    if do == "wrong":
        Y.zero_()
        return
    other = do in ("overfit", "lucky") and of_seed(X, CONFIRM)
    if do == "overfit" and other:
        Y.zero_()
        return
    if do.endswith("aborts on other inputs") and of_seed(X, CONFIRM):
        os.abort()
    time.sleep((30 if do == "lucky" and other else config["rest"]) / 1000)
    torch.ops.aten.gelu.out(X + bias, approximate="tanh", out=Y)
    if do == "changes its input":
        X.zero_()
""".replace("CONFIRM)", f"{CONFIRM_SEED})")


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """The file above, and outputs of this test's own."""
    monkeypatch.setattr(paths, "OUTPUTS", tmp_path / "outputs")
    file = tmp_path / "gelu.py"
    file.write_text(KERNEL)
    return file


@pytest.fixture(scope="module")
def engine():
    """One engine with one builder, for all of this module's searches, as one command has for all of its kernels."""
    with Engine("cpu", builders=1) as one:
        yield one


@pytest.fixture
def searched(engine, kernel):
    """searched({"do": …}, …): a search of these candidates and the fixed one."""

    def search(*configs, limits=None, **options):
        what = Subject.of("gelu", "python", None, DIMS, kernel)
        engine.limits = limits or Limits(screen_s=30, build_s=30)
        return engine.run(what, [what.file.whole(config) for config in configs], **options)

    return search


def row(run, **config):
    return next(one for one in run.candidates if all(one.config[name] == value for name, value in config.items()))


# --- what goes wrong is a row, and the search goes on ----------------------------------------------------------------


def test_candidates_that_crash_fail_or_compute_wrongly_are_rows_with_reasons_and_another_is_chosen(searched):
    bad = ("abort", "raise", "wrong", "outside", "changes its input", "build aborts", "build fails")
    run = searched(*({"do": do, "rest": 0} for do in bad), {"do": "right", "rest": 1}, {"do": "right", "rest": 101})
    assert {one.config["do"]: (one.state, one.reason) for one in run.candidates if one.config["do"] != "right"} == {
        "abort": (CRASHED, "its process ended: signal SIGABRT: a last word"),
        "raise": (CRASHED, "ValueError: no such launch"),
        "wrong": (WRONG, row(run, do="wrong").reason),
        "outside": (WRONG, "it wrote outside its output"),
        "changes its input": (WRONG, "it changed its input X"),
        "build aborts": (UNCOMPILED, "the compiler crashed: signal SIGABRT"),
        "build fails": (UNCOMPILED, "SyntaxError: no such instruction"),
    }
    assert "all zero" in row(run, do="wrong").reason
    assert (row(run, rest=101).state, row(run, rest=101).reason) == (REFUSED, "own rule: too long a rest")
    # a wrong candidate is the fastest there could be, and has no time
    assert all((one.state == TIMED) == bool(one.samples_us) for one in run.candidates)
    assert run.chosen == {"do": "right", "rest": 1} and run.fixed == {"do": "right", "rest": 8}
    assert run.confirmation.seed == CONFIRM_SEED != run.seed
    assert run.confirmation.held and run.confirmation.winner.config == run.chosen and run.confirmation.fixed.config == run.fixed
    assert run.measured(run.chosen).median_us < run.measured(run.fixed).median_us


def test_a_candidate_or_a_compiler_that_hangs_is_ended_with_what_it_started(searched, kernel):
    run = searched({"do": "hang"}, {"do": "build hangs"}, limits=Limits(screen_s=6, build_s=6))
    assert (row(run, do="hang").state, row(run, do="hang").reason) == (HUNG, "no answer in 6 s")
    assert (row(run, do="build hangs").state, row(run, do="build hangs").reason) == (UNCOMPILED, "the compiler hung: no answer in 6 s")
    assert run.chosen == run.fixed, "what comes after a hang is measured by another process"
    assert not [pid for pid in every_process() if str(kernel).encode() in commandline(pid)], "what the candidate started is still there"


def every_process() -> set[int]:
    """Ids of all processes: what a dead process started may be anybody's child."""
    return {int(entry.name) for entry in paths.Path("/proc").iterdir() if entry.name.isdecimal()}


def commandline(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return paths.Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_one_that_is_right_only_on_the_inputs_it_was_chosen_on_is_not_chosen(searched):
    run = searched({"do": "overfit", "rest": 0}, {"do": "right", "rest": 1})
    assert row(run, do="overfit").state == WRONG and "in the confirmation, on other inputs: " in row(run, do="overfit").reason
    assert run.chosen == {"do": "right", "rest": 1}


@pytest.mark.parametrize(
    ("fixed", "winner", "chosen", "why"),
    [
        ("it aborts on other inputs", "right", "right", "the fixed configuration could not be timed"),
        ("right", "it aborts on other inputs", "right", "no candidate was faster than the fixed configuration"),
        ("this aborts on other inputs", "that aborts on other inputs", None, "no candidate could be timed and confirmed"),
    ],
)
def test_the_one_that_brings_the_confirmation_down_is_the_one_that_is_blamed(searched, kernel, fixed, winner, chosen, why):
    kernel.write_text(KERNEL.replace('FIXED = {"do": "right"', f'FIXED = {{"do": "{fixed}"'))
    run = searched({"do": winner, "rest": 1})
    for one in run.candidates:
        crashed = (CRASHED, "in the confirmation, on other inputs: its process ended: signal SIGABRT")
        assert (one.state, one.reason) == (crashed if "aborts" in one.config["do"] else (TIMED, None)), one.config
    assert (run.chosen and run.chosen["do"]) == chosen and why in run.why


def test_a_winner_that_is_not_faster_in_another_process_on_other_inputs_gives_way_to_the_fixed_one(searched):
    run = searched({"do": "lucky", "rest": 0})
    assert run.confirmation.winner.config == {"do": "lucky", "rest": 0} and not run.confirmation.held
    assert run.chosen == run.fixed and "was not faster than the fixed configuration in another process" in run.why
    # both numbers are kept
    assert run.measured({"do": "lucky", "rest": 0}).median_us < run.measured(run.fixed).median_us
    assert run.confirmation.winner.median_us > run.confirmation.fixed.median_us


def test_every_search_is_confirmed_in_a_fresh_process(engine, searched):
    used = []
    for rest in (1, 2):
        before = engine._confirmer
        searched({"do": "right", "rest": rest})
        assert before.process is None and engine._confirmer is not before
        used.append(before)
    assert used[0] is not used[1]


def test_without_a_fixed_configuration_that_works_the_best_right_one_is_chosen_and_the_record_says_so(searched, kernel):
    kernel.write_text(KERNEL.replace('FIXED = {"do": "right"', 'FIXED = {"do": "wrong"'))
    run = searched({"do": "right", "rest": 1})
    assert run.chosen == {"do": "right", "rest": 1} and "the fixed configuration could not be timed" in run.why
    kernel.write_text(KERNEL.replace('FIXED = {"do": "right"', 'FIXED = {"do": "raise"'))
    run = searched({"do": "wrong"})
    assert run.chosen is None and run.why == "no candidate could be timed and confirmed"


def test_a_spent_budget_leaves_rows_that_say_so(searched):
    # at 30 ms a call a candidate takes a third of a second and more, so that the budget ends the search among them
    run = searched(*({"rest": 30 + n} for n in range(20)), budget_s=4)
    assert {one.state for one in run.candidates} == {TIMED, UNFINISHED} and run.candidates[0].state == TIMED
    assert {one.reason for one in run.candidates if one.state == UNFINISHED} == {"the budget of 4 s was spent"}
    assert run.budget_s == 4 and len(run.candidates) == 21 and run.chosen is not None


@pytest.fixture
def own_device(monkeypatch):
    """A device of this test's own, which no other run on this machine asks for."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"tune-{os.getpid()}")


@pytest.mark.parametrize("call", ["search", "sweep"])
def test_the_public_calls_take_the_device_and_start_nothing_while_another_run_has_it(kernel, own_device, monkeypatch, call):
    options = [["rest=3"]] if call == "sweep" else []
    with locks.device(), monkeypatch.context() as nothing:
        nothing.setattr(process.Worker, "start", lambda worker: pytest.fail("a worker was started"))
        with pytest.raises(BusyError, match=f"is busy: held by process {os.getpid()}"):
            getattr(tune, call)("gelu", "python", *options, source=kernel, dims=DIMS)


def test_the_public_calls_search_a_declared_space_and_sweep_given_configurations(kernel, own_device):
    run = tune.search("gelu", "python", source=kernel, dims=DIMS)
    assert run.kind == "search" and run.space == {"do": ("right", "wrong"), "rest": (1, 8)} and len(run.candidates) == 4
    assert run.candidates[0].config == run.fixed and run.count(WRONG) == 2
    swept = tune.sweep("gelu", "python", ["rest=3,do=right", {"rest": 4}], source=kernel, dims=DIMS)
    assert swept.kind == "sweep" and [one.config["rest"] for one in swept.candidates] == [8, 3, 4]
    # the fixed configuration had been measured by the search, on the same inputs
    assert swept.resumed == 1 and swept.candidates[0] == run.candidates[0]


# --- a search that is killed goes on ---------------------------------------------------------------------------------


@pytest.fixture
def tree(tiny_tree):
    """A tree whose only kernel is the file above."""
    (tiny_tree.root / "kernels" / "python").mkdir()
    (tiny_tree.root / "kernels" / "python" / "gelu.py").write_text(KERNEL)
    return tiny_tree


def test_a_killed_search_leaves_no_process_and_goes_on_without_repeating_a_candidate(tree, start_mage, run_mage, eventually, tmp_path):
    log = tmp_path / "built"
    options = {"root": tree.root, "env": {"MAGE_TEST_LOG": str(log), "CUDA_VISIBLE_DEVICES": f"tune-{os.getpid()}"}}
    sweep = ("tune", "gelu/python", "--sweep", *(f"rest={number}" for number in (3, 4, 5, 6)), "do=hang")
    first = start_mage(*sweep, **options)

    def lines():
        return [line for file in tree.root.glob("outputs/tune/*/gelu-python.jsonl") for line in file.read_bytes().splitlines()]

    # the last candidate hangs, so nothing is finished behind the others' backs
    eventually(lambda: len(lines()) == 5 or first.process.poll() is not None, what="five finished candidates")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(10)
    assert first.gone(10), "workers of a killed search are still there"
    (file,) = tree.root.glob("outputs/tune/*/gelu-python.jsonl")
    finished = log.read_text().splitlines()
    with file.open("ab") as end:
        end.write(b'{"key": "half a li')

    again = run_mage(*sweep[:-1], **options)
    assert again.rc == 0, again.said
    assert "5 of 5 candidates were finished by an earlier run" in again.stdout
    assert log.read_text().splitlines() == finished, "a finished candidate was built again"
    assert all(json.loads(line)["state"] == TIMED for line in lines()) and len(lines()) == 5

    # an edited kernel is another kernel: nothing of the old one's ledger counts
    kernel = tree.root / "kernels" / "python" / "gelu.py"
    kernel.write_text(kernel.read_text() + "\n# edited\n")
    edited = run_mage(*sweep[:-1], **options)
    assert edited.rc == 0 and "finished by an earlier run" not in edited.stdout and len(lines()) == 10


def test_an_interrupted_search_says_how_to_go_on_and_while_it_runs_the_device_is_busy(tree, start_mage, run_mage, eventually):
    options = {"root": tree.root, "env": {"CUDA_VISIBLE_DEVICES": f"tune-{os.getpid()}"}}
    started = start_mage("tune", "gelu/python", "--sweep", "do=hang", **options)
    eventually(lambda: any(tree.root.glob("outputs/tune/*/*.jsonl")), what="a ledger")
    second = run_mage("tune", "gelu/python", **options)
    assert second.rc == 3 and f"held by process {started.process.pid}" in second.message
    started.process.send_signal(signal.SIGTERM)
    result = started.wait()
    assert result.rc == 143 and result.message == "mage: terminated; finished candidates are kept, the same command goes on from there"
    assert not result.left


def test_the_command_prints_every_candidate_a_table_and_where_the_record_is(tree, run_mage):
    result = run_mage("tune", "gelu/python", root=tree.root, env={"CUDA_VISIBLE_DEVICES": f"tune-{os.getpid()}"})
    assert result.rc == 0, result.said
    told = result.stdout.splitlines()
    assert sum(line.startswith("gelu/python: ") and " of 4, " in line for line in told) == 4
    (line,) = [line for line in told if line.startswith("gelu/python  ")]
    assert "2 timed, 2 wrong" in line and line.endswith("do=right rest=1")
    (record,) = tree.root.glob("outputs/tune/*/gelu-python.json")
    assert f"{record.relative_to(tree.root)}: every candidate of gelu/python" in told
    assert [one["state"] for one in json.loads(record.read_bytes())["candidates"]].count("wrong") == 2


def test_a_terminal_shows_a_bar_with_what_is_done_and_the_best_so_far(tree, mage_on_terminal):
    env = {"CUDA_VISIBLE_DEVICES": f"tune-{os.getpid()}"}
    result, text = mage_on_terminal("tune", "gelu/python", "--sweep", "rest=1", columns=120, root=tree.root, env=env)
    assert result.rc == 0
    assert re.search(r"\rgelu/python: 1/2 \|[^\r]*best [\d.]+ µs at do=right rest=", text), text
    assert "of 2, " not in text, "a bar that moves, not a log"


def test_a_search_where_nothing_works_is_no_success(tree, run_mage):
    kernel = tree.root / "kernels" / "python" / "gelu.py"
    kernel.write_text(KERNEL.replace('FIXED = {"do": "right"', 'FIXED = {"do": "raise"'))
    result = run_mage("tune", "gelu/python", "--sweep", "do=wrong", root=tree.root, env={"CUDA_VISIBLE_DEVICES": f"tune-{os.getpid()}"})
    assert result.rc == 1 and "gelu/python: no candidate could be timed and confirmed" in result.message


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["matmull"], "no operation 'matmull': did you mean 'matmul'?"),
        (["matmul/tritn"], "'tritn' has no configurations to tune: give one of triton, cutile, cuda, python"),
        (["matmul/cuda"], "which stage of cuda matmul?"),
        (["matmul/triton:best"], "triton has no stages"),
        (["matmul/triton", "--budget", "0"], "--budget is 0: give seconds above 0"),
        (["matmul", "--sweep", "64x64x32"], "--sweep needs one kernel: give matmul/triton"),
        (["matmul/triton", "--sweep", "64x64x32x8"], "no tile '64x64x32x8': give up to 3 sides (BLOCK_M x BLOCK_N x BLOCK_K)"),
        (["matmul/triton", "--sweep", "BLOK_M=64"], "no parameter 'BLOK_M'"),
        (["gelu/python"], "no kernel file"),
        (["matmul/triton"], "configurations are tuned on a GPU, and this machine has none"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_in_one_line_before_anything_starts(arguments, said, capsys, monkeypatch):
    from mage import __main__

    monkeypatch.setattr(command, "_has_gpu", lambda: False)
    monkeypatch.setattr(process, "Worker", None)
    assert __main__.main(["tune", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_refusal_imports_neither_torch_nor_papermill(start):
    script = textwrap.dedent(
        """
        import sys
        from mage import __main__
        from mage.tune import command
        command._has_gpu = lambda: False
        codes = [__main__.main(["tune", *one.split()]) for one in ("matmul/triton", "matmul/triton --sweep 1x2x3x4", "nothing")]
        print(codes, sorted({"torch", "papermill"} & set(sys.modules)))
        """
    )
    assert start(sys.executable, "-c", script).wait().stdout.strip() == "[2, 2, 2] []"


def test_a_worker_that_does_not_start_ends_the_search_and_blames_no_candidate(kernel, monkeypatch):
    what = Subject.of("gelu", "python", None, DIMS, kernel)
    with Engine("cpu", builders=1) as engine:
        engine.device()
        for worker in engine._builders:
            worker.end()
        monkeypatch.setattr(sys, "executable", shutil.which("false"))
        with pytest.raises(MageError, match="a compile worker does not start: exit code 1"):
            engine.run(what, [])
    (file,) = paths.OUTPUTS.glob("tune/*/gelu-python.jsonl")
    assert file.read_bytes() == b""


# --- static rules ----------------------------------------------------------------------------------------------------

RULES = [
    ("matmul", None, {"num_warps": 3}, "whole warps: num_warps is 3"),
    ("matmul", None, {"BLOCK_M": 48}, "tile sides: BLOCK_M is 48"),
    ("matmul", None, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, "unrolled steps: 8192 multiply-adds a thread"),
    ("matmul", None, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 16, "num_stages": 3}, "shared memory: at least 262144"),
    ("matmul", (64, 32 * 65536, 64), {}, "grid: axis 1 would have 65536 blocks"),
    ("matmul", None, {"num_warps": 64}, "threads: 2048 a block"),
    ("layernorm", None, {"ROWS": 8, "num_warps": 1}, "registers: at least 8192 values a block, 32 threads have 255 each"),
    ("layernorm", (64, 16385), {}, "one program holds a whole row"),
    ("gelu", None, {"BLOCK": 128, "num_warps": 8}, "idle threads: 256 threads share 128 elements"),
    ("neighbor", (64, 16, 64), {}, "empty blocks: a block of 64 features for 16"),
]


@pytest.mark.parametrize(("operation", "dims", "config", "rule"), RULES, ids=[rule.partition(":")[0] for *_, rule in RULES])
def test_a_static_rule_refuses_and_is_named(operation, dims, config, rule):
    what = Subject.of(operation, "triton", None, dims)
    assert rule in rules.refusal(what, what.file.whole(config), "sm_90")
    assert rules.refusal(Subject.of(operation, "triton"), what.file.fixed, "sm_90") is None


def test_the_budget_of_shared_memory_is_that_of_the_named_gpu():
    what = Subject.of("matmul", "triton")
    config = what.file.whole({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3})
    assert "sm_89 has 101376" in rules.refusal(what, config, "sm_89")
    assert rules.refusal(what, config, "sm_90") is None
    assert rules.refusal(what, config, "sm_999") is None, "a GPU whose limits are not known has no budget"


def test_a_kernel_file_that_raises_when_it_is_asked_refuses_the_candidate(kernel):
    what = Subject.of("gelu", "python", None, DIMS, kernel)
    assert rules.refusal(what, {"do": "right"}) == "the kernel file: KeyError: 'rest'"


KNOWN_GOOD = {
    "matmul": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3},
    "gelu": {"BLOCK": 1024, "num_warps": 4},
    "layernorm": {"num_warps": 4},
    "triangle": {"BLOCK_I": 64, "BLOCK_J": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3},
    "neighbor": {"BLOCK_E": 16, "BLOCK_F": 64, "num_warps": 1},
}


@pytest.mark.parametrize("operation", operations.names())
def test_a_declared_space_holds_what_is_known_to_be_good_and_starts_with_the_fixed_one(operation):
    what = Subject.of(operation, "triton")
    made = subject.candidates(what.file, what.file.space)
    assert made[0] == what.file.fixed and KNOWN_GOOD[operation] in made
    assert rules.refusal(what, KNOWN_GOOD[operation], "sm_90") is None
    assert len({subject.same(one) for one in made}) == len(made) <= 162
    assert made == subject.candidates(what.file, what.file.space), "the order is the same every time"


# --- builds, without a device ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def builder():
    worker = Worker("compile", "gpu")
    yield lambda what, config, arch="sm_90": _build(worker, what, config, arch)
    worker.end()


def _build(worker, what, config, arch):
    worker.ask({"do": "build", "subject": what.as_dict(), "config": what.file.whole(config), "arch": arch}, 200)
    ((_, _, answer),) = process.wait([worker])
    return answer


def test_a_triton_candidate_is_built_as_its_launch_would_build_it(builder):
    what = Subject.of("matmul", "triton")
    small, large = builder(what, {}), builder(what, KNOWN_GOOD["matmul"])
    assert small["state"] == large["state"] == "built" and large["registers"] > small["registers"] > 32
    assert (small["shared_bytes"], large["shared_bytes"]) == (16384, 32768)
    rows = builder(Subject.of("layernorm", "triton"), {"ROWS": 4})
    assert rows["state"] == "built" and rows["shared_bytes"] > builder(Subject.of("layernorm", "triton"), {})["shared_bytes"]


def test_a_build_that_fails_or_asks_for_more_than_the_gpu_has_is_not_timed(builder, tmp_path):
    text = (paths.KERNELS / "triton" / "matmul.py").read_text()
    unaware = tmp_path / "matmul.py"
    unaware.write_text(text.replace("def shared_bytes", "def not_asked"))
    what = Subject.of("matmul", "triton", None, None, unaware)
    config = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4}
    assert rules.refusal(what, what.file.whole(config), "sm_89") is None
    answer = builder(what, config, "sm_89")
    assert answer["state"] == REFUSED and answer["reason"] == "shared memory: its code takes 147456 bytes a block, sm_89 has 101376"
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace("total = tl.zeros(", "total = tl.zeroes("))
    answer = builder(Subject.of("matmul", "triton", None, None, broken), {})
    assert answer["state"] == UNCOMPILED and "zeroes" in answer["reason"]


def test_a_cutile_candidate_is_built_with_its_hints(builder):
    if not shutil.which("tileiras") and builder(Subject.of("gelu", "cutile"), {})["state"] != "built":
        pytest.skip("no tile compiler")
    what = Subject.of("gelu", "cutile")
    plain, hinted = builder(what, {}), builder(what, {"occupancy": 16})
    assert plain["state"] == hinted["state"] == "built"
    assert hinted["registers"] <= 32, "an occupancy of 16 blocks of 128 threads leaves 32 registers a thread"


# --- the ledger ------------------------------------------------------------------------------------------------------


def test_a_ledger_reads_past_a_half_written_line_and_appends_behind_whole_ones(tmp_path):
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(b'{"key": "a", "state": "timed"}\nnot json\n[1]\n{"key": "b", "state": "wrong"}\n{"key": "c", "sta')
    kept = ledger.Ledger(file)
    assert {key: one["state"] for key, one in kept.rows.items()} == {"a": "timed", "b": "wrong"}
    kept.add("d", {"state": "hung"})
    kept.close()
    assert file.read_bytes().endswith(b'"state": "wrong"}\n{"key": "d", "state": "hung"}\n')
    assert set(ledger.Ledger(file).rows) == {"a", "b", "d"}


def test_a_ledger_that_cannot_be_written_is_an_error_of_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MageError, match="cannot be written"):
        ledger.Ledger(tmp_path / "file" / "ledger.jsonl")


def test_a_finished_candidate_counts_for_the_same_text_shape_device_and_versions_only(kernel):
    facts = {"device": "one", "versions": {"triton": "3.6.0"}}
    one, config = Subject.of("gelu", "python", None, DIMS, kernel), {"do": "right", "rest": 2}
    key = ledger.key(one, config, facts)
    assert key == ledger.key(one, {"rest": 2, "do": "right", "hint": None}, facts)
    others = [
        ledger.key(one, {**config, "rest": 3}, facts),
        ledger.key(one, config, {**facts, "device": "another"}),
        ledger.key(one, config, {**facts, "versions": {"triton": "3.7.1"}}),
        ledger.key(Subject.of("gelu", "python", None, (8, 32), kernel), config, facts),
    ]
    kernel.write_text(KERNEL + "\n")
    others.append(ledger.key(Subject.of("gelu", "python", None, DIMS, kernel), config, facts))
    assert len({key, *others}) == 6


# --- the record ------------------------------------------------------------------------------------------------------


def test_a_row_is_timed_or_says_why_not():
    assert Candidate(config={}, state=TIMED, samples_us=[3.0, 1.0, 2.0]).median_us == 2.0
    for bad in ({"state": TIMED}, {"state": WRONG}, {"state": WRONG, "reason": "r", "samples_us": [1.0]}):
        with pytest.raises(ValueError, match="is timed, or has a reason"):
            Candidate(config={"a": 1}, **bad)
    assert Measured(config={}, rounds_us=[[1.0, 9.0], [2.0]]).median_us == 2.0


def test_typed_configurations():
    matmul, gelu = Subject.of("matmul", "triton").file, Subject.of("gelu", "triton").file
    assert subject.given(matmul, "64x128x32") == {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}
    assert subject.given(matmul, "64×64") == subject.given(matmul, "BLOCK_M=64, BLOCK_N=64")
    assert subject.given(gelu, "1024") == {"BLOCK": 1024, "num_warps": 4}
    with pytest.raises(RequestError, match="no tile 'large'"):
        subject.given(gelu, "large")


# --- on a GPU --------------------------------------------------------------------------------------------------------

GPU_KERNEL = """\
import os
import triton
import triton.language as tl

FIXED = {"BLOCK": 256, "DO": 0, "num_warps": 4}


@triton.jit
def gelu_kernel(X, bias, Y, count, D, BLOCK: tl.constexpr, DO: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    lanes = tl.arange(0, BLOCK)
    inside = lanes < count - start
    x = tl.load(X + start + lanes, mask=inside, other=0.0)
    z = x + tl.load(bias + (start + lanes) % D, mask=inside, other=0.0)
    u = 1.5957691216057308 * (z + 0.044715 * z * z * z)
    y = z / (1.0 + tl.exp(-u))
    if DO == 1:  # for ever
        turns = 0
        while tl.load(bias, volatile=True) < 1e30:
            turns += 1
        y += turns
    if DO == 2:  # an illegal address
        tl.store(Y + (lanes.to(tl.int64) + (1 << 42)), y)
    if DO == 3:  # wrong and fast
        y = y * 0.0
    tl.store(Y + start + lanes, y, mask=inside)


KERNEL = gelu_kernel


def grid(dims, config):
    R, D = dims
    return (triton.cdiv(R * D, config["BLOCK"]),)


def launch(X, bias, Y, config=FIXED):
    R, D = X.shape
    if config["DO"] == 4 and X.is_cuda:
        os.abort()
    gelu_kernel[grid((R, D), config)](X, bias, Y, R * D, D, **config, enable_fp_fusion=True)
"""


@pytest.mark.gpu
def test_on_a_gpu_kernels_that_loop_for_ever_crash_or_lie_are_named_and_another_is_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "OUTPUTS", tmp_path / "outputs")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    file = tmp_path / "gelu.py"
    file.write_text(GPU_KERNEL)
    what = Subject.of("gelu", "triton", None, None, file)
    good = [{"BLOCK": 1024}, {"BLOCK": 512}]
    with Engine("gpu", builders=2, limits=Limits(screen_s=8)) as engine:
        bad = [{"DO": do} for do in (3, 2, 1, 4)]
        run = engine.run(what, [what.file.whole(config) for config in (*bad, *good, {"BLOCK": 384}, {"BLOCK": 2**20})])
    assert {one.config["DO"]: one.state for one in run.candidates if one.config["DO"]} == {1: HUNG, 2: CRASHED, 3: WRONG, 4: CRASHED}
    assert "illegal memory access" in row(run, DO=2).reason and row(run, DO=4).reason.startswith("its process ended: signal SIGABRT")
    assert row(run, BLOCK=384).state == REFUSED
    assert all(row(run, **config).state == TIMED for config in good)
    assert run.chosen["DO"] == 0 and run.chosen["BLOCK"] > 256 and run.confirmation.held
    assert "CUPTI" in run.final_metric and "CUPTI" in run.confirmation.metric
    # what was built aside is what was run: the process with the device compiled nothing again
    code = [folder for folder in (tmp_path / "triton").iterdir() if any(folder.glob("*.cubin"))]
    assert len(code) == sum(one.registers is not None for one in run.candidates)
