"""A CUDA C++ file as a unit of C++17: the few constructs that no macro can express are rewritten.

Every line keeps its number, so that an error of the compiler or a report of a sanitizer names the line
of the kernel file.
"""

from __future__ import annotations

import re

from mage.errors import RequestError

_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_SHARED = re.compile(r"(?P<extern>\bextern\s+)?(?P<volatile>\bvolatile\s+)?\b__shared__\b(?P<declaration>[^;{}=]*);")
_KERNEL = re.compile(r"\b__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?(?:void\s+)?(?P<name>\w+)\s*\(")


def translate(text: str, name: str = "kernel.cu") -> str:
    """CUDA C++ ``text`` as C++17 for behind cuda_builtins.h, with the list of its kernels after the last line.

    A declaration ``__shared__ float a[64];`` becomes a reference into the shared memory of the running
    block, where every array has poisoned bytes on both sides. Comments become blanks.
    """
    text = _NOT_CODE.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
    names = dict.fromkeys(m["name"] for m in _KERNEL.finditer(text))
    if not names:
        raise RequestError(f'{name} holds no kernel: expected extern "C" __global__ void name(...)')
    text = _SHARED.sub(_shared_declaration, text)
    listed = " ".join(f"MAGE_KERNEL({kernel})" for kernel in names)
    return f"{text}\nconst mage_host::Kernel mage_kernels[] = {{{listed} {{nullptr, nullptr, nullptr}}}};\n"


def _shared_declaration(match: re.Match) -> str:
    # A local struct repeats the declaration, so that the compiler and not this function reads its types:
    #   struct S { float a[2][N], b; };  static SharedArray a_site{...};  auto& a = *(decltype(S::a)*)place;
    declaration = match["declaration"]
    line_breaks = "\n" * match[0].count("\n")
    declaration = ("volatile " if match["volatile"] else "") + " ".join(declaration.split())
    struct = f"mage_shared_{match.start()}"
    pieces = _split_declarators(declaration)
    if match["extern"]:
        variable = re.search(r"(\w+)\s*\[\s*\]\s*$", declaration)
        if not variable:
            raise RequestError(f"extern __shared__ {declaration}: expected an array of unknown size, as in float a[]")
        members = declaration[: variable.start()] + variable[1] + "[1]"
        element = f"std::remove_extent_t<decltype({struct}::{variable[1]})>*"
        return f"struct {struct} {{ {members}; }}; auto {variable[1]} = ({element})mage_dynamic_shared();{line_breaks}"
    parts = [f"struct {struct} {{ {declaration}; }};"]
    for piece in pieces:
        variable = re.search(r"(\w+)\s*(?:\[.*)?$", piece)[1]
        site, member = f"{struct}_{variable}", f"{struct}::{variable}"
        parts.append(
            f'static mage_host::SharedArray {site}{{"{variable}", __LINE__, sizeof({member}), alignof({struct}), 0}}; '
            f"auto& {variable} = *(decltype({member})*)mage_shared_array(&{site});"
        )
    return " ".join(parts) + line_breaks


def _split_declarators(declaration: str) -> list[str]:
    pieces, depth = [""], 0
    for letter in declaration:
        depth += (letter in "([<") - (letter in ")]>")
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]
