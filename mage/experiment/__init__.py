"""One measurement: params in, evidence out. ``measurement`` is the way in; each other module is one part of it.

    measurement    one session from the first gate to the record
    at_hand        the evidence that a note is about: loaded, or measured first
    together       experiments that one command asks for are measured once
    plan           how many rounds of what, fixed before the first sample
    shapes         shapes beside an operation's own, as a params file lists them
    cases          the rows: each compiled, gated and then timed as the very call that was gated
    max_autotune   torch.compile's own search, its slow half moved aside
    rounds         spans: interleaved rounds over every row
    captures       kernel time: captures over interleaved rounds of every row
    counters       hardware counters through ncu, in a process of their own
    crosscheck     our times held against those of NVBench and ncu
    device         what a device says of itself: clocks, power, other load
    probe          the harness's own kernels (probe.cu): marker, control, limits of the device
    samples        what was taken and what of it may be shown, with a reason for the rest
    split          where the measurement's own time went
    record         from what a session took to evidence
    summary        a measurement in a terminal
"""
