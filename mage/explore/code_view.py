"""A kernel's source beside what a compiler made of it, as a cell of a notebook shows them."""

from __future__ import annotations

import hashlib
import html
from pathlib import Path

from mage import paths

_CELL = "overflow:auto;max-height:34rem;margin:0;padding:.5rem;border:1px solid;font-size:.8rem;line-height:1.35"


class CodeView:
    """``source`` and ``text`` are plain text; ``form`` says what ``text`` is ("sass" or "ptx"), ``gpu`` for which GPU."""

    def __init__(self, *, kernel: str, file: Path, source: str, text: str, form: str, gpu: str, compiler: str):
        self.kernel, self.file, self.source, self.text = kernel, file, source, text
        self.form, self.gpu, self.compiler = form, gpu, compiler

    def __repr__(self) -> str:
        lines = len(self.text.splitlines())
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:12]
        return f"CodeView {self.kernel}: {lines} lines of {self.form.upper()} for {self.gpu}, source {digest}"

    def __str__(self) -> str:
        return f"{self.source}\n\n{self.form.upper()} for {self.gpu}, {self.compiler}\n\n{self.text}"

    def _repr_html_(self) -> str:
        made = f"{self.form.upper()} for {self.gpu}, {self.compiler}"
        panes = ((f"{paths.shown(self.file)}: {self.kernel}", self.source), (made, self.text))
        shown = "".join(
            f'<div style="min-width:0"><p><strong>{html.escape(head)}</strong></p>'
            f'<pre tabindex="0" aria-label="{html.escape(head)}" style="{_CELL}">{html.escape(text)}</pre></div>'
            for head, text in panes
        )
        return f'<div class="mage-code" style="display:grid;grid-template-columns:1fr 1fr;gap:1rem">{shown}</div>'
