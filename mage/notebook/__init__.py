"""One note's run: check params, lock, execute, verify, publish. ``runner`` is the way in.

    runner            runs one note, or all that were asked for
    execute           executes a note through papermill
    kernel_launcher   starts the note's kernel so that it ends with the run
    verify            is an executed notebook whole?
    publication       puts a finished report in place: all of its files or none
    stale             which reports no longer say what a run would say today, and why
    locks             one run at a time for an output and for a device
    stop              a signal, or the note's time is over: a run ends in order
    progress          how far a run is, on a terminal or in a log
    series            the notes as a series: what an early note knew, which stand beside it
"""
