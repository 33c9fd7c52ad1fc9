"""Which rows of evidence a reader asked for, in one order, the same in every table and figure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mage.errors import RequestError
from mage.evidence.schema import Evidence, Result
from mage.evidence.schema_search import SearchRun
from mage.notes import vocabulary
from mage.views import palette

Chosen = Iterable[str] | str | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A result with the evidence it stands in; ``elsewhere`` if that is not the first one that was given."""

    result: Result
    evidence: Evidence
    elsewhere: bool

    @property
    def name(self) -> str:
        """Name beside the row's mark."""
        return palette.label(self.result.implementation, self.result.variant)

    @property
    def colour(self) -> str:
        return palette.colour(self.result.implementation)


def words(parameter: str, chosen: Chosen) -> tuple[str, ...]:
    """``chosen`` as words of ``parameter`` (``operations`` or ``implementations``) in the vocabulary's order.

    None and "all" are all of them. RequestError for a word that Mage does not know, with the nearest one it does.
    """
    known = vocabulary.KNOWN[parameter]
    if chosen is None or chosen == "all":
        return known
    given = [chosen] if isinstance(chosen, str) else list(chosen)
    for word in given:
        if word not in known:
            near = difflib.get_close_matches(str(word), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(known)}"
            raise RequestError(f"{parameter}: {word!r} is unknown: {hint}")
    return tuple(word for word in known if word in given)


def as_list(evidence: Evidence | Sequence[Evidence]) -> list[Evidence]:
    """One record or several, as a list."""
    return [evidence] if isinstance(evidence, Evidence) else list(evidence)


def rows(
    evidence: Evidence | Sequence[Evidence], operations: Chosen = None, implementations: Chosen = None, *, shapes: bool = False
) -> list[Row]:
    """The chosen results, by operation and then from the library to the hand-written kernel.

    Those at the operations' own shapes; with ``shapes`` those beside them too.
    Of several records the first one leads. A later one adds only the implementations that none before it
    has for an operation: its rows come from another session, so they stand beside the others, marked.
    Published means fill no gap of a measured session: they know no median, and another device took them.
    """
    wanted = words("operations", operations), words("implementations", implementations)
    found: dict[tuple[str, str], list[Row]] = {}
    records = as_list(evidence)
    if records and records[0].origin != "published":
        records = [record for record in records if record.origin != "published"]
    for place, record in enumerate(records):
        own: dict[tuple[str, str], list[Row]] = {}
        for result in record.results:
            if (shapes or result.at is None) and result.operation in wanted[0] and result.implementation in wanted[1]:
                row = Row(result=result, evidence=record, elsewhere=place > 0)
                own.setdefault((result.operation, result.implementation), []).append(row)
        found = {**own, **found}
    order = vocabulary.OPERATIONS.index
    every = [row for group in found.values() for row in group]
    return sorted(every, key=lambda row: (order(row.result.operation), palette.position(row.result.implementation)))


def searches(evidence: Evidence, operations: Chosen = None, implementations: Chosen = None) -> list[SearchRun]:
    """The chosen searches and sweeps of a measured session, in the order of ``rows``."""
    wanted = words("operations", operations), words("implementations", implementations)
    found = [run for run in evidence.searches if run.operation in wanted[0] and run.implementation in wanted[1]]
    return sorted(found, key=lambda run: (vocabulary.OPERATIONS.index(run.operation), palette.position(run.implementation)))


def by_shape(chosen: Iterable[Row]) -> dict[tuple[str, tuple[int, ...]], list[Row]]:
    """Rows by operation and dims, in the order they come."""
    groups: dict[tuple[str, tuple[int, ...]], list[Row]] = {}
    for row in chosen:
        groups.setdefault((row.result.operation, row.result.dims), []).append(row)
    return groups


def shape(dims: Sequence[int]) -> str:
    """``1024³`` or ``4096 × 768``: dims as a reader writes them."""
    if len(dims) == 3 and len(set(dims)) == 1:
        return f"{dims[0]}³"
    return " × ".join(map(str, dims))


def source(evidence: Evidence | Sequence[Evidence]) -> str:
    """Whose numbers these are, in one line: experiments, device, origin."""
    records = as_list(evidence)
    names = ", ".join(dict.fromkeys(record.experiment for record in records))
    devices = ", ".join(dict.fromkeys(record.device.name.removeprefix("NVIDIA ") for record in records))
    said = {"published": "published", "retained": "measured and retained", "here": "measured here"}
    return f"{names} · {devices} · {', '.join(dict.fromkeys(said[record.origin] for record in records))}"
