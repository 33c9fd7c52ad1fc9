"""Graphs as ``neighbor`` takes them: edges sorted by destination, and where a drawn graph's edges end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

RANK_EXPONENT = 2 / 3
"""``power-law``: the k-th busiest node is the end of an edge with probability ∝ k^(−2/3), so that the share of nodes
with d edges falls as d^(−5/2), as 1 + 1/exponent does (Newman, Power laws, Pareto distributions and Zipf's law, 2005)."""


def csr(src: torch.Tensor, dst: torch.Tensor, nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row pointers and source indices, int32, of the edges src[e] -> dst[e], sorted by destination."""
    import torch

    order = torch.argsort(dst, stable=True)
    row_ptr = torch.zeros(nodes + 1, dtype=torch.int32)
    row_ptr[1:] = torch.bincount(dst, minlength=nodes).cumsum(0)
    return row_ptr, src[order].int()


def destinations(row_ptr: torch.Tensor) -> torch.Tensor:
    """The row that each edge belongs to, int64, from CSR row pointers."""
    import torch

    rows = torch.arange(len(row_ptr) - 1, device=row_ptr.device)
    return torch.repeat_interleave(rows, (row_ptr[1:] - row_ptr[:-1]).long())


def uniform(nodes: int, edges: int, generator: torch.Generator) -> torch.Tensor:
    """Destination of every edge, each node as likely as another: degrees are Poisson with mean edges/nodes."""
    import torch

    return torch.randint(nodes, (edges,), generator=generator)


def power_law(nodes: int, edges: int, generator: torch.Generator) -> torch.Tensor:
    """Destination of every edge, few nodes the end of many: see ``RANK_EXPONENT``.

    Which nodes are busy is drawn too, so they lie scattered. 4096 nodes with 65536 edges: the busiest row has some
    1400 edges, the median row 9, where uniform ends give 16 on average and 30 at most.
    """
    import torch

    shares = torch.arange(1, nodes + 1, dtype=torch.float64) ** -RANK_EXPONENT
    bounds = shares.cumsum(0)
    draws = torch.rand(edges, dtype=torch.float64, generator=generator) * bounds[-1]
    ranks = torch.searchsorted(bounds, draws, right=True).clamp_(max=nodes - 1)
    return torch.randperm(nodes, generator=generator)[ranks]
