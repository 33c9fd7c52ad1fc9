"""``python -m mage``: runs notes and says what is known about them.

Exit codes: 0 done; 1 a note or a gate failed, or a report is stale; 2 the request is wrong; 3 the output or the device
is busy; 129, 130, 143 hung up, interrupted, terminated.
"""

from __future__ import annotations

import argparse
import os
import sys

from mage.errors import MageError, RequestError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise RequestError(f"{message}; see python -m mage --help")


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for; returns the exit code."""
    try:
        options = _parser().parse_args(arguments)
        return options.do(options)
    except MageError as error:
        return _said(str(error), error.exit_code, error)
    except KeyboardInterrupt as error:
        return _said("interrupted", 130, error)
    except BrokenPipeError:
        # The reader of the output went away; what is left of it goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        said = " ".join(str(error).split())
        return _said(f"an error of mage's own, {type(error).__name__}: {said}; MAGE_DEBUG=1 shows where", 1, error)


def _said(line: str, code: int, error: BaseException) -> int:
    if os.environ.get("MAGE_DEBUG"):
        import traceback

        traceback.print_exception(error)
    print(f"mage: {line}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m mage", description="A lab notebook for GPU kernels.", allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    run = commands.add_parser("run", help="execute a note and publish its reports", allow_abbrev=False)
    run.add_argument("note", help="note-004 for every notebook of that number, or one notebook's full name")
    run.add_argument("-e", "--experiment", help="only this experiment, a file of params/ (default: all of the note)")
    run.add_argument("-p", "--param", action="append", default=[], metavar="NAME=VALUE", help="set a parameter for this run (YAML)")
    run.set_defaults(do=_run)

    measure = commands.add_parser("measure", help="measure on this machine and keep the evidence", allow_abbrev=False)
    measure.add_argument("experiments", nargs="+", metavar="EXPERIMENT", help="files of params/; several share one session")
    measure.add_argument("--no-counters", action="store_true", help="leave the hardware counters out")
    measure.set_defaults(do=_measure)

    agree = commands.add_parser("agree", help="hold two measured sessions beside each other, row by row", allow_abbrev=False)
    agree.add_argument("evidence", nargs=2, metavar="EVIDENCE", help="an experiment, or the path of an evidence file")
    agree.set_defaults(do=_agree)

    tune = commands.add_parser("tune", help="search for the fastest configurations on this machine's GPU", allow_abbrev=False)
    named = "matmul, matmul/triton, matmul/cuda:STAGE (default: all)"
    tune.add_argument("kernels", nargs="*", metavar="OPERATION[/IMPLEMENTATION]", help=named)
    tune.add_argument("--budget", type=float, metavar="SECONDS", help="longest that the candidates of one kernel may take")
    tune.add_argument("--sweep", nargs="+", default=[], metavar="TILE", help="these only: 64x64x32, or BLOCK_M=64,num_warps=8")
    tune.add_argument("--retain", action="store_true", help="keep what was chosen for this GPU, and every candidate")
    tune.add_argument("--again", action="store_true", help="measure candidates anew that an earlier run has finished")
    tune.set_defaults(do=_tune)

    params = commands.add_parser("params", help="list a note's parameters", allow_abbrev=False)
    params.add_argument("note", help="note-004, or one notebook's full name")
    params.set_defaults(do=_params)

    check = commands.add_parser("check", help="list the reports that are stale, and why", allow_abbrev=False)
    check.set_defaults(do=_check)

    census = commands.add_parser("census", help="count what the compilers made of every kernel; needs no GPU", allow_abbrev=False)
    census.add_argument("operations", nargs="*", metavar="OPERATION", help="only these operations (default: all)")
    census.add_argument("--gpu", nargs="+", metavar="ARCH", default=[], help="GPUs to compile for (default: sm_89 sm_90)")
    census.add_argument("--json", metavar="FILE", help="write the rows there too")
    census.add_argument("--renew", action="store_true", help="write the baseline that the tests compare with anew")
    census.set_defaults(do=_census)

    compilers = commands.add_parser("tile-compilers", help="install other releases of tileiras apart", allow_abbrev=False)
    compilers.add_argument("--retain", action="store_true", help="write the retained census anew")
    compilers.set_defaults(do=_tile_compilers)

    listed = commands.add_parser("notes", help="list the notes with their titles and experiments", allow_abbrev=False)
    listed.set_defaults(do=_notes)

    new = commands.add_parser("new-note", help="start a note of your own", allow_abbrev=False)
    new.add_argument("slug", help="lower-case words joined by hyphens, such as my-idea")
    new.set_defaults(do=_new_note)

    index = commands.add_parser("index", help="write outputs/index.html anew", allow_abbrev=False)
    index.set_defaults(do=_index)
    return parser


def _run(options: argparse.Namespace) -> int:
    from mage.notebook.stop import Interrupted, Stop
    from mage.notes import params

    requests = params.requests(options.note, options.experiment, options.param)
    from mage.notebook import runner

    stop = Stop()
    try:
        with stop.on_signals():
            return runner.run_all(requests, stop)
    except Interrupted as reason:
        return _said(str(reason), reason.exit_code, reason)


def _measure(options: argparse.Namespace) -> int:
    from mage.experiment import measurement

    asked = measurement.asked(options.experiments)
    from mage import evidence
    from mage.experiment import summary
    from mage.notebook import locks

    with locks.device():
        records = measurement.measure(asked, counters=not options.no_counters)
    for one, record in zip(asked, records, strict=True):
        evidence.save(record, one.file)
        print(f"{one.experiment}: {one.file} ({one.file.stat().st_size / 1000:.0f} kB)")
    print(summary.text(records))
    return 0


def _agree(options: argparse.Namespace) -> int:
    from mage.stats import agreement

    found = agreement.rows(*map(agreement.named, options.evidence))
    print(agreement.text(found))
    return int(any(one.word == agreement.DISAGREES for one in found))


def _tune(options: argparse.Namespace) -> int:
    from mage.notebook.stop import Interrupted, Stop
    from mage.tune import command

    request = command.request(
        options.kernels, swept=options.sweep, budget_s=options.budget, retain=options.retain, again=options.again
    )
    try:
        with Stop().on_signals():
            return command.tune(request)
    except Interrupted as reason:
        said = str(reason).partition(";")[0]
        return _said(f"{said}; finished candidates are kept, the same command goes on from there", reason.exit_code, reason)


def _census(options: argparse.Namespace) -> int:
    from mage.census import command

    return command.census(options.operations, options.gpu, options.json, options.renew)


def _tile_compilers(options: argparse.Namespace) -> int:
    from mage.census import command

    return command.tile_compilers(options.retain)


def _params(options: argparse.Namespace) -> int:
    from mage import notes
    from mage.notes import vocabulary

    for path in notes.find(options.note):
        note = notes.read(path)
        print(f"{note.stem}: {note.title}")
        rows = [("name", "type", "default", "meaning")]
        for one in note.parameters.values():
            rows.append((one.name, one.type, _literal(one.default), one.meaning))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for row in rows:
            print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)) + f"  {row[3]}")
        for name in note.parameters:
            if name in vocabulary.KNOWN:
                print(f"  {name}: {', '.join(vocabulary.KNOWN[name])}")
    return 0


def _literal(value: object) -> str:
    """A value as a params file holds it."""
    if isinstance(value, list):
        return f"[{', '.join(_literal(item) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(options: argparse.Namespace) -> int:
    from mage.notebook import stale

    code = 0
    for status in stale.statuses():
        where = f"{status.experiment} ({status.note or 'no note'})"
        if status.state == "none":
            print(f"{where}: no report yet; {status.command}")
        elif status.state == "fresh":
            print(f"{where}: fresh")
        else:
            code = 1
            print(f"{where}: {status.state}: {'; '.join(status.few_reasons)}; run: {status.command}")
    return code


def _notes(options: argparse.Namespace) -> int:
    from mage import notes

    experiments: dict[str, list[str]] = {}
    for file in notes.params_files():
        experiments.setdefault(notes.named_note(file) or "", []).append(file.stem)
    for path in notes.all_paths():
        listed = ", ".join(experiments.get(path.stem, ["no experiment"]))
        print(f"{path.stem[:8]}  {notes.title_of(path)}  ({path.stem}: {listed})")
    return 0


def _new_note(options: argparse.Namespace) -> int:
    from mage import paths
    from mage.notes import new_note

    note, experiment = new_note.create(options.slug)
    print(f"{paths.shown(note)}\n{paths.shown(experiment)}")
    print(f"Next: make {note.stem[:8]}, then open outputs/{experiment.stem}/report.html")
    return 0


def _index(options: argparse.Namespace) -> int:
    from mage.notebook import stale

    print(stale.write_index())
    return 0


if __name__ == "__main__":
    sys.exit(main())
