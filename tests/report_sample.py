"""An executed note made by hand: every kind of cell and output that a report can hold.

Tables and figures are what ``mage.views.display`` leaves in a notebook, so the page is tested without
running a kernel. Shared by test_report.py and test_browser.py.
"""

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ALT = "Step chart: the matrix multiply falls from 343.99 to 68.62 microseconds over four stages."

HASH = "3fa9c1d2e4b5a6978897a6b5c4d3e2f10f1e2d3c4b5a69788796a5b4c3d2e1f0"
RTX = {
    "kind": "gpu", "name": "NVIDIA GeForce RTX 4090", "arch": "sm_89", "driver": "581.29",
    "platform": "Linux under WSL2", "clocks_locked": False, "memory_bytes": 25757220864,
}  # fmt: skip


def table(name="stages", caption="Kernel time at each stage, one Nsight Systems capture each"):
    """A table with units, numbers of one column at one number of decimals, words, and a value that is missing."""
    import pandas as pd

    from mage.views.display import TableView

    frame = pd.DataFrame(
        {
            "Stage": ["mage-001", "PR #42", "PR #43 / #44", "PR #49 / #52"],
            "Matrix multiply": [343.99, 141.70, 80.00, 68.62],
            "Layer norm": [18.64, 11.03, 10.05, None],
            "What changed at this stage": [
                "16 × 16 tiles, one output a thread; a block a row, three passes",
                "4 × 4 outputs a thread, 64 × 64 tiles, 128-bit loads; a warp a row",
                "128-bit shared reads and a transposed A tile; two warps a row",
                "two buffers, the next tile in flight; a block a row, one pass",
            ],
        }
    )
    units = {"Matrix multiply": "µs", "Layer norm": "µs"}
    return TableView(name, frame, caption, units=units, note="The last layer norm was not captured.")


def figure(name="progression", alt=ALT, title="How each kernel reached its time"):
    """A figure with its drawing, its downloads and its plotted values in a fold."""
    from matplotlib.figure import Figure

    from mage.views.display import FigureView

    drawing = Figure(figsize=(5.6, 3.2))
    axes = drawing.subplots()
    axes.step(range(4), [343.99, 141.70, 80.00, 68.62], where="mid")
    axes.set_ylabel("kernel time, µs")
    return FigureView(name, drawing, title, alt, table(f"{name}-values", f"Plotted values of {title.lower()}"))


def prose(text):
    """Prose that a cell shows; ``text`` is Markdown."""
    from mage.views.display import Prose

    return Prose(text)


def shown(view):
    """The output of a cell that ends in ``view``, or one that holds the HTML ``view`` and nothing else."""
    if isinstance(view, str):
        return new_output("display_data", {"text/html": view, "text/plain": "…"})
    data, metadata = view._repr_mimebundle_()
    return new_output("display_data", data, metadata=metadata)


def code(source, *outputs, tags=(), name=None, count=1):
    cell = new_code_cell(source, outputs=list(outputs), execution_count=count, metadata={"tags": list(tags)})
    if name:
        cell.id = name
    return cell


def text(source, name=None):
    cell = new_markdown_cell(source)
    if name:
        cell.id = name
    return cell


def note(*cells, title="The load in flight"):
    """A notebook of ``cells`` under a title cell."""
    notebook = new_notebook(cells=[text(f"# {title}\n\nWhat is in the way?", "title"), *cells])
    notebook.metadata = nbformat.from_dict({"language_info": {"name": "python"}, "mage": {"title": title}})
    return notebook


def whole_note():
    """Every kind of cell and output on one page."""
    parameters = (
        'experiment: str = "mage-001"  # the evidence this report reads\n'
        'operations: list[str] = ["matmul", "layernorm"]  # which operations to show\n'
        'statistic: str = "mean"  # what a bar stands for\n'
    )
    return note(
        code(parameters, tags=["parameters"], name="parameters"),
        code('experiment = "mage-006"\n', tags=["injected-parameters"], name="injected"),
        text(
            "## Four stages a kernel\n\nThe product takes $2MNK$ operations, and its rate is\n\n"
            "$$\\frac{2\\,M N K}{t} \\le 8.3 \\times 10^{13}\\ \\text{s}^{-1} \\qquad "
            "\\text{reads a multiply-add} = \\frac{r + c}{r \\cdot c} \\qquad \\frac{4 + 4}{16} = 0.5$$\n\n"
            "See the [source](https://example.org/a/rather/long/address/that/must/not/push/the/page/aside) of it."
        ),
        code("# Stages of both kernels\nmage.stage_table(evidence)", shown(table())),
        code(
            "mage.progression(evidence)",
            shown(
                prose('The last stage takes **68.62 µs**.\n\n<span class="mage-disagreement">7–10 %</span> (the same session gives 7.7 %)')
            ),
            shown(figure()),
        ),
        text(
            "### The pipeline\n\n- two buffers\n- one barrier\n\n```python\nfor tile in range(tiles):  # K steps\n"
            '    wait(tile)\n    multiply(a[tile % 2], b[tile % 2], "both")\n```\n\n'
            "Table: Words of this note\n\n| Word | Value, µs |\n|---|--:|\n| span | 74.09 |\n| kernel | 68.62 |"
        ),
        code(
            "print('census')",
            new_output("stream", name="stdout", text="sm_89 " * 60 + "\n\x1b[31mred\x1b[0m <b>\n"),
            new_output("stream", name="stderr", text="a library's message\n"),
        ),
        code('import mage, numpy as np\n\nvalues = [f"{x:.2f}" for x in (1, 2.5)]\nassert values is not None'),
        code("left_out()", shown("<p>never shown</p>"), tags=["mage-hidden"]),
        text(
            "## Limits\n\nOne workstation, clocks not locked. `overhead(a_rather_long_name_of_a_function_with_"
            "no_place_to_break_it, another)`"
        ),
        code("42", new_output("execute_result", {"text/plain": "42"}, execution_count=1)),
    )


def provenance(**changes):
    """The record of a run of ``whole_note``."""
    record = {
        "schema": "mage.provenance/1",
        "note": "note-004-load-in-flight",
        "title": "The load in flight",
        "experiment": "mage-006",
        "params": {"experiment": "mage-006", "operations": ["matmul", "layernorm"], "statistic": "mean"},
        "origin": "published",
        "evidence": {
            name: {
                "origin": "published", "device": RTX, "when": when, "sha256": HASH[number:] + HASH[:number],
                "path": f"outputs/retained/{name}/evidence.json",
                "software": {"torch": "2.8.0", "triton": "3.4.0", "cuda": "12.8"},
            }
            for number, (name, when) in enumerate(
                {"mage-001": "2026-08-30T21:10:00Z", "mage-006": "2026-09-11T00:40:17Z"}.items()
            )
        },
        "hashes": {"note": HASH, "params": HASH, "library": {"mage/stats/__init__.py": HASH}, "kernels": {}},
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "versions": {"python": "3.11.2", "mage": "0.1.0", "numpy": "2.4.6", "pandas": "3.1.1", "matplotlib": "3.11.2"},
        "device": {"kind": "cpu", "name": "Two cores of this machine"},
        "started": "2026-11-30T15:07:12+00:00",
        "finished": "2026-11-30T15:07:53+00:00",
        "command": "make note-004 EXPERIMENT=mage-006",
    }  # fmt: skip
    return {**record, **changes}
