"""The text of the kernels for GPUs, compiled by NVRTC itself. That needs no GPU; it says nothing of what the kernels compute.

NVRTC is in the wheel `nvidia-cuda-nvrtc-cu12` (217 MB, licence of NVIDIA), which no set-up installs. KONKORDIA_NVRTC names the
folder of `pip install --no-deps --target FOLDER nvidia-cuda-nvrtc-cu12==12.9.86`.
"""

import ctypes
import os
import pathlib
import re

import pytest
from lanes import slow_lane

pytestmark = slow_lane

CRATE = pathlib.Path(__file__).resolve().parents[2] / "crates/gpu"
PROGRAM = (CRATE / "src/program.rs").read_text()
FILES = re.findall(r'include_str!\("\.\./(kernels/\w+\.cu)"\)', PROGRAM)
OPTIONS = re.findall(r'"(--[^"]+)"', PROGRAM.split("NVRTC_OPTIONS", 1)[1].split("];", 1)[0])
ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "sm_121"]


@pytest.fixture(scope="module")
def nvrtc() -> ctypes.CDLL:
    folder = pathlib.Path(os.environ.get("KONKORDIA_NVRTC", "/nonexistent"))
    found = sorted(folder.glob("**/libnvrtc.so.*"))
    if not found:
        pytest.skip(f"no libnvrtc in {folder}; KONKORDIA_NVRTC names a folder with the wheel nvidia-cuda-nvrtc-cu12")
    return ctypes.CDLL(str(found[0]))


def compiled(nvrtc: ctypes.CDLL, text: str, options: list[str]) -> tuple[int, str, bytes]:
    """Result (0 = compiled), log and machine code."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    result = int(nvrtc.nvrtcCompileProgram(program, len(options), given))
    assert nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetProgramLog(program, log) == 0
    code = b""
    if result == 0:
        assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
        cubin = ctypes.create_string_buffer(size.value)
        assert nvrtc.nvrtcGetCUBIN(program, cubin) == 0
        code = cubin.raw
    assert nvrtc.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    return result, log.value.decode(), code


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_kernels_compile_without_a_warning(nvrtc: ctypes.CDLL, architecture: str) -> None:
    assert len(FILES) == len(list((CRATE / "kernels").glob("*.cu"))) and OPTIONS, (FILES, OPTIONS)
    text = "".join((CRATE / name).read_text() for name in FILES)
    result, log, code = compiled(nvrtc, text, [*OPTIONS, f"--gpu-architecture={architecture}"])
    assert (result, log) == (0, ""), log
    for name in re.findall(r"__global__ void (\w+)\(", text):
        assert name.encode() in code, name
    typed = ("convert_float32", "convert_tracking_int16", "count_above_uint32", "convert_series_uint16", "gather_counts_int32")
    for name in (*typed, "share_out_float32", "stats_within_int16", "group_spots_float32", "integrate_split_uint32"):
        assert name.encode() in code, name


def test_no_kernel_has_a_fused_multiply_add(nvrtc: ctypes.CDLL) -> None:
    text = "".join((CRATE / name).read_text() for name in FILES)
    assert "--fmad=false" in OPTIONS
    for options, is_fused in ((OPTIONS, False), ([option for option in OPTIONS if "fmad" not in option], True)):
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
        all_options = [*options, "--gpu-architecture=compute_80"]
        given = (ctypes.c_char_p * len(all_options))(*(option.encode() for option in all_options))
        assert nvrtc.nvrtcCompileProgram(program, len(all_options), given) == 0
        assert nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
        ptx = ctypes.create_string_buffer(size.value)
        assert nvrtc.nvrtcGetPTX(program, ptx) == 0
        assert (b"fma.rn.f32" in ptx.raw, b"fma.rn.f64" in ptx.raw) == (is_fused, is_fused), options


def test_an_error_is_found(nvrtc: ctypes.CDLL) -> None:
    result, log, _ = compiled(nvrtc, 'extern "C" __global__ void broken(float *out) { *out = nothing; }', ["--gpu-architecture=sm_80"])
    assert result != 0 and "nothing" in log
