"""What is tuned: one kernel at one shape, what its file declares about configurations, and the candidates of a search."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from mage import kernels, operations, paths
from mage.errors import RequestError
from mage.evidence import schema_search
from mage.kernels import configurations, cuda_stages

Config = dict[str, "int | str | None"]

GPU, CPU = "gpu", "cpu"
PLACES = {"triton": GPU, "cutile": GPU, "cuda": GPU, "python": CPU}
"""Where each implementation is timed. ``python``: kernels/python/<operation>.py, whose ``launch`` is plain Python."""


@dataclass(frozen=True)
class Subject:
    """One kernel at one shape; plain data, as a worker is told of it. ``stage`` is for ``cuda`` alone."""

    operation: str
    implementation: str
    stage: str | None
    dims: tuple[int, ...]
    source: str

    @classmethod
    def of(
        cls,
        operation: str,
        implementation: str,
        stage: str | None = None,
        dims: Sequence[int] | None = None,
        source: str | Path | None = None,
    ) -> Subject:
        """The subject of these names; RequestError for a name that is not there. ``source`` replaces the kernel file."""
        known = operations.get(operation)
        if implementation not in PLACES:
            raise RequestError(f"{implementation!r} has no configurations to tune: give one of {', '.join(PLACES)}")
        if implementation == "cuda":
            if stage is None:
                able = ", ".join(_stages(operation))
                raise RequestError(
                    f"which stage of cuda {operation}? give {operation}/cuda:STAGE, one of {able}"
                    if able
                    else f"no cuda stage of {operation} has parameters to tune; Stage.space in mage/kernels/cuda_stages.py declares them"
                )
            cuda_stages.get(operation, stage)
        elif stage is not None:
            raise RequestError(f"{implementation} has no stages: leave {stage!r} out")
        suffix = ".cu" if implementation == "cuda" else ".py"
        file = kernels.path(Path(source) if source else paths.KERNELS / implementation / f"{operation}{suffix}")
        return cls(operation, implementation, stage, known.check_dims(dims), str(file))

    @property
    def name(self) -> str:
        """``matmul/triton`` or ``matmul/cuda:pipeline``."""
        return schema_search.name(self.operation, self.implementation, self.stage)

    @property
    def place(self) -> str:
        """``gpu`` or ``cpu``."""
        return PLACES[self.implementation]

    def as_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def parse(cls, fields: Mapping) -> Subject:
        return cls(**{**fields, "dims": tuple(fields["dims"])})

    # -- what the kernel file declares

    @cached_property
    def file(self) -> Declared:
        """What the kernel file declares; it is read once."""
        return _Stage(self) if self.implementation == "cuda" else _Module(self)

    @cached_property
    def sha256(self) -> str:
        """Hash of the kernel file alone; ``text_key`` covers the header of CUDA C++ too."""
        return hashlib.sha256(Path(self.source).read_bytes()).hexdigest()

    @cached_property
    def text_key(self) -> str:
        """Hash of everything that a candidate's code is made of beside its configuration."""
        if self.implementation != "cuda":
            return self.sha256
        from mage import cuda

        whole = cuda.whole_text(kernels.source(Path(self.source)), f"{self.operation}.cu")
        return hashlib.sha256(whole.encode()).hexdigest()


def _stages(operation: str) -> list[str]:
    return [name for name, stage in cuda_stages.STAGES[operation].items() if stage.space]


class Declared:
    """``fixed`` and ``space`` of a kernel file, and its own answers about a configuration."""

    fixed: Config
    space: dict[str, tuple]

    def whole(self, given: Mapping) -> Config:
        """``given`` over the fixed configuration; RequestError for a key that is not known."""
        raise NotImplementedError

    def grid(self, dims, config: Config) -> tuple[int, ...]:
        raise NotImplementedError

    def threads(self, config: Config) -> int | None:
        """Threads a block, where the configuration says so."""
        raise NotImplementedError

    def static(self, dims, config: Config) -> str | None:
        """The file's own rules."""
        return None

    def shared_bytes(self, dims, config: Config) -> int:
        """Shared memory that a block takes at least."""
        return 0

    def registers(self, dims, config: Config) -> int:
        """32-bit values that all threads of a block together have to hold at least."""
        return 0


class _Module(Declared):
    """A Python kernel file."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.module = kernels.load(Path(subject.source))
        call = "arguments" if subject.implementation == "cutile" else "launch"
        if missing := [name for name in ("FIXED", call) if not hasattr(self.module, name)]:
            raise RequestError(f"{paths.shown(Path(subject.source))}: exports no {missing[0]}, so it cannot be tuned")
        self.fixed = canonical(self.module.FIXED)
        self.space = {name: tuple(values) for name, values in getattr(self.module, "SPACE", {}).items()}

    def whole(self, given):
        return canonical(configurations.whole(self.module, given))

    def grid(self, dims, config):
        grid = getattr(self.module, "grid", None)
        return tuple(grid(dims, config)) if grid else (1,)

    def threads(self, config):
        return 32 * config["num_warps"] if "num_warps" in config else None

    def static(self, dims, config):
        for rule in (lambda: getattr(self.module, "supports", lambda dims: None)(dims), lambda: self._own("static", dims, config)):
            if reason := rule():
                return reason
        return None

    def shared_bytes(self, dims, config):
        return self._own("shared_bytes", dims, config) or 0

    def registers(self, dims, config):
        return self._own("registers", dims, config) or 0

    def _own(self, name, dims, config):
        function = getattr(self.module, name, None)
        return function(dims, config) if function else None


class _Stage(Declared):
    """A stage of a CUDA C++ kernel file."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.stage = cuda_stages.get(subject.operation, subject.stage)
        self.fixed, self.space = canonical(self.stage.parameters), dict(self.stage.space)

    def whole(self, given):
        return canonical(self.stage.configured(given).parameters)

    def grid(self, dims, config):
        return self.stage.configured(config).grid(dims)

    def threads(self, config):
        return self.stage.configured(config).threads

    def static(self, dims, config):
        return self.stage.configured(config).refuses(dims) or self.stage.static(dims, config)

    def shared_bytes(self, dims, config):
        stage = self.stage.configured(config)
        return stage.shared + stage.dynamic


def declared(subject: Subject, space: Mapping[str, Sequence] | None = None) -> dict[str, tuple]:
    """The space to search: ``space``, or the one that the kernel file declares. RequestError where there is none."""
    chosen = subject.file.space if space is None else {name: tuple(values) for name, values in space.items()}
    if not chosen or not all(chosen.values()):
        shown = paths.shown(Path(subject.source))
        raise RequestError(f"{subject.name}: {shown} declares no space to search; give configurations with --sweep, or write SPACE")
    return chosen


# -- configurations ------------------------------------------------------------------------------------


def canonical(config: Mapping) -> Config:
    """One way to write a configuration: what is None is what a file does without, so it is left out."""
    return {name: value for name, value in config.items() if value is not None}


def same(config: Mapping) -> str:
    """Text that is equal for equal configurations."""
    return json.dumps(canonical(config), sort_keys=True)


def candidates(file: Declared, space: Mapping[str, Sequence]) -> list[Config]:
    """Every combination of ``space`` over the fixed configuration: the fixed one first, the rest in a mixed order.

    Mixed, and always in the same way, so that a search that its budget ends has looked everywhere. (A plain
    product, not ``triton.Config``: that fixes which keys are options of the compiler, and knows neither a kernel's
    name nor the hints of cuTile.)
    """
    names = list(space)
    made = [file.whole(dict(zip(names, values, strict=True))) for values in itertools.product(*space.values())]
    random.Random(0).shuffle(made)
    return distinct([file.fixed, *made])


def distinct(configs: Sequence[Config]) -> list[Config]:
    """Without repeats, in order."""
    return list({same(config): config for config in configs}.values())


def given(file: Declared, text: str) -> Config:
    """A configuration as it is typed: ``64x64x32`` for the tile's sides, or ``BLOCK_M=64,num_warps=8``."""
    if "=" in text:
        pairs = [part.partition("=") for part in text.split(",")]
        return file.whole({name.strip(): _value(value.strip()) for name, _, value in pairs})
    sides = [name for name in file.fixed if name.startswith(("BLOCK", "TILE", "B"))]
    values = text.lower().replace("×", "x").split("x")
    if len(values) > len(sides) or not all(value.isdecimal() for value in values):
        raise RequestError(f"no tile {text!r}: give up to {len(sides)} sides ({' x '.join(sides)}) as in 64x64x32, or NAME=VALUE,…")
    return file.whole(dict(zip(sides, map(int, values), strict=False)))


def _value(text: str) -> int | str | None:
    if text.lstrip("-").isdecimal():
        return int(text)
    return None if text in ("None", "none", "") else text
