"""The text of the kernels for GPUs, compiled by clang for GPUs of AMD, and to the bit code from which SPIR-V for those of Intel is made.

That needs no GPU and no file of ROCm: `crates/gpu/shim/hip.hpp` has what the text takes from CUDA. It says nothing of what the
kernels compute. Any clang from 17 on does; KONKORDIA_CLANG names one, otherwise clang-19 or clang is taken.
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from lanes import slow_lane

pytestmark = slow_lane

CRATE = pathlib.Path(__file__).resolve().parents[2] / "crates/gpu"
FILES = re.findall(r'include_str!\("\.\./(kernels/\w+\.cu)"\)', (CRATE / "src/program.rs").read_text())
# MI50, MI200, MI300 (64 lanes), and RDNA 3 and 4 (32 lanes).
AMD = ["gfx906", "gfx90a", "gfx942", "gfx1100", "gfx1200"]
OPTIONS = ["-x", "hip", "--offload-device-only", "-nogpulib", "-nogpuinc", "-std=c++17", "-O2", "-Wall", "-Wextra", "-I", str(CRATE / "shim")]
ONE_ROUNDING = "-ffp-contract=off"


@pytest.fixture(scope="module")
def clang() -> str:
    names = [os.environ.get("KONKORDIA_CLANG", ""), "clang-19", "clang"]
    found = next((path for path in map(shutil.which, filter(None, names)) if path), None)
    if found is None:
        pytest.skip("no clang: `apt-get install clang-19`, or KONKORDIA_CLANG")
    listed = subprocess.run([found, "-print-targets"], capture_output=True, text=True, check=True).stdout
    if "amdgcn" not in listed:
        pytest.skip(f"{found} does not compile for amdgcn")
    return found


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("hip") / "kernels.hip"
    path.write_text('#include "hip.hpp"\n' + "".join((CRATE / name).read_text() for name in FILES))
    return path


def names_of(text: pathlib.Path) -> list[str]:
    """The kernels, with the five types of those that a macro makes."""
    found = re.findall(r"__global__ void (\w+)\s*(##name)?\(", text.read_text())
    types = ["int16", "uint16", "int32", "uint32", "float32"]
    return [name + kind for name, typed in found for kind in (types if typed else [""])]


def compiled(clang: str, text: pathlib.Path, target: str, kind: list[str], more: list[str]) -> str:
    """What clang wrote; it must have no warning."""
    out = text.with_suffix(".out")
    result = subprocess.run([clang, *OPTIONS, target, *kind, *more, str(text), "-o", str(out)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr[:4000]
    return out.read_text(errors="replace")


@pytest.mark.parametrize("architecture", AMD)
def test_all_kernels_compile_for_amd_without_a_warning(clang: str, text: pathlib.Path, architecture: str) -> None:
    machine = compiled(clang, text, f"--offload-arch={architecture}", ["-S"], [ONE_ROUNDING])
    kernels = set(re.findall(r"\.amdhsa_kernel (\w+)", machine))
    names = set(names_of(text)) - {"narrow_float32"}
    assert names <= kernels and len(kernels) > 100, names - kernels
    # More shared memory than 48 KiB a block would not fit everywhere.
    assert max(map(int, re.findall(r"\.group_segment_fixed_size: *(\d+)", machine))) <= 48 * 1024


def test_all_kernels_become_the_bit_code_of_spirv(clang: str, text: pathlib.Path) -> None:
    code = compiled(clang, text, "--offload=spirv64", ["-S", "-emit-llvm"], [ONE_ROUNDING])
    kernels = set(re.findall(r"define[^@]*spir_kernel void @(\w+)\(", code))
    assert 'target triple = "spirv64' in code and len(kernels) > 100, kernels


def test_no_kernel_joins_a_multiplication_and_an_addition(clang: str, text: pathlib.Path) -> None:
    for more, is_joined in ([ONE_ROUNDING], False), ([], True):
        code = compiled(clang, text, "--offload-arch=gfx90a", ["-S", "-emit-llvm"], more)
        assert bool(re.search(r"fmuladd|\bcontract\b", code)) == is_joined, more
        # Small numbers are numbers, as on the host.
        assert "preserve-sign" not in code


def test_a_fault_in_the_text_is_found(clang: str, text: pathlib.Path, tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "broken.hip"
    broken.write_text(text.read_text() + 'extern "C" __global__ void broken(float *out) { *out = nothing; }\n')
    with pytest.raises(AssertionError, match="nothing"):
        compiled(clang, broken, "--offload-arch=gfx90a", ["-S"], [ONE_ROUNDING])
