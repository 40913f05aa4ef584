#!/usr/bin/env python3
"""Our filter plug-in of HDF5 against that of hdf5plugin: the same chunk, the same process, in turn.

    scripts/plugin out && python3 benches/plugin.py out
    python3 benches/plugin.py out photons_*.f32 --shape 512 1024

Without files: Poisson noise. Files hold plain float32 images, which are rounded to int16. Every result is compared with the
image, and the chunks of each plug-in are decoded by the other one. Ends with 1 if decoding is not 1.7 times as fast.
"""

import argparse
import ctypes
import json
import pathlib
import sys
import time

import hdf5plugin
import numpy as np

REVERSE = 0x100
GOAL = 1.7
# What follows bitshuffle, with the parameters for elements of so many bytes.
CODINGS = {
    "bslz4": lambda size: [0, 4, size, 0, 2],
    "bszstd, 64 KiB, level 1": lambda size: [0, 4, size, 65536 // size, 3, 1],
    "bszstd, 8 KiB, level 3": lambda size: [0, 4, size, 0, 3, 3],
}


class Class(ctypes.Structure):
    """H5Z_class2_t"""

    _fields_ = [
        ("version", ctypes.c_int),
        ("id", ctypes.c_int),
        ("packs", ctypes.c_uint),
        ("unpacks", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p),
        ("filter", ctypes.c_void_p),
    ]


FILTER = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_void_p),
)
LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]


def load(path):
    library = ctypes.CDLL(str(path))
    library.H5PLget_plugin_info.restype = ctypes.POINTER(Class)
    return FILTER(library.H5PLget_plugin_info()[0].filter), library


def call(plugin, flags, values, data):
    """Seconds, and what comes out. As libhdf5 does, with a buffer of malloc that the filter replaces."""
    parameters = (ctypes.c_uint * len(values))(*values)
    room, buffer = ctypes.c_size_t(len(data)), ctypes.c_void_p(LIBC.malloc(len(data)))
    ctypes.memmove(buffer, data, len(data))
    begin = time.perf_counter()
    written = plugin[0](flags, len(values), parameters, len(data), ctypes.byref(room), ctypes.byref(buffer))
    seconds = time.perf_counter() - begin
    out = ctypes.string_at(buffer, written)
    LIBC.free(buffer)
    return seconds, out


def best(plugins, flags, values, data, check, rounds):
    """The shortest time of each plug-in, called in turn."""
    times = {name: [] for name in plugins}
    for _ in range(rounds):
        for name, plugin in plugins.items():
            seconds, out = call(plugin, flags, values, data)
            check(name, out)
            times[name].append(seconds)
    return {name: min(each) for name, each in times.items()}


def images(options):
    if options.files:
        frames = [np.fromfile(path, "<f4").reshape(options.shape) for path in options.files]
        yield "frames, int16", np.rint(np.stack(frames)).clip(-32768, 32767).astype("<i2")
        return
    numbers = np.random.default_rng(1)
    for dtype, shape, mean in (("<u2", (512, 1024), 2), ("<u2", (2048, 2048), 2), ("<u4", (2048, 2048), 1), ("u1", (1024, 1024), 1)):
        yield f"{shape[0]} x {shape[1]} {np.dtype(dtype).name}, mean {mean}", numbers.poisson(mean, (1, *shape)).astype(dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where libh5konkordia_bitshuffle.so is")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--shape", nargs=2, type=int, default=(512, 1024), metavar=("ROWS", "COLUMNS"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="figures as JSON, and 0 even if decoding is slower than the goal")
    options = parser.parse_args()
    theirs = next(pathlib.Path(hdf5plugin.PLUGIN_PATH).glob("libh5bshuf.*"))
    plugins = {"ours": load(options.folder / "libh5konkordia_bitshuffle.so"), "hdf5plugin": load(theirs)}
    slow, rows = [], []
    say = (lambda line: None) if options.json else print
    say(f"{'image':34} {'codec':26} decode, GB/s: ours, hdf5plugin, ratio   encode            bytes")
    for name, stack in images(options):
        for coding, values in ((coding, of(stack.dtype.itemsize)) for coding, of in CODINGS.items()):
            row = measure(plugins, values, [image.tobytes() for image in stack], options.rounds)
            rows.append({"image": name, "codec": coding, **row})
            say(f"{name:34} {coding:26} {line_of(row)}")
            if row["decode"]["ratio"] < GOAL:
                slow.append(f"{name}, {coding}: {row['decode']['ratio']:.2f}")
    if options.json:
        print(json.dumps({"bench": "plugin", "goal": GOAL, "rows": rows, "verified": True}))
        return 0
    if slow:
        print(f"decoding is less than {GOAL} times as fast: {'; '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


def measure(plugins, values, stack, rounds):
    decode, encode, size = (dict.fromkeys(plugins, 0) for _ in range(3))
    for image in stack:
        packed = {name: call(plugin, 0, values, image)[1] for name, plugin in plugins.items()}

        def is_image(name, out, image=image):
            assert out == image, f"{name} gave another image"

        def is_chunk(name, out, packed=packed):
            assert out == packed[name], f"{name} gave another chunk than before"

        # Each reads what the other wrote; what is measured is the chunk that hdf5plugin wrote.
        for plugin in plugins.values():
            assert call(plugin, REVERSE, values, packed["ours"])[1] == image
        for sums, times in (
            (decode, best(plugins, REVERSE, values, packed["hdf5plugin"], is_image, rounds)),
            (encode, best(plugins, 0, values, image, is_chunk, rounds)),
        ):
            for name, seconds in times.items():
                sums[name] += seconds
        for name, chunk in packed.items():
            size[name] += len(chunk)
    total = sum(map(len, stack)) / 1e9

    def both(times):
        rates = {name: total / seconds for name, seconds in times.items()}
        return {"ours_gb_per_s": rates["ours"], "hdf5plugin_gb_per_s": rates["hdf5plugin"], "ratio": rates["ours"] / rates["hdf5plugin"]}

    sizes = {"ours": size["ours"], "hdf5plugin": size["hdf5plugin"]}
    return {"decode": both(decode), "encode": both(encode), "chunk_bytes": sizes}


def line_of(row):
    def both(rates):
        return f"{rates['ours_gb_per_s']:6.2f} {rates['hdf5plugin_gb_per_s']:6.2f} {rates['ratio']:5.2f}"

    return f"{both(row['decode'])}   {both(row['encode'])}   {row['chunk_bytes']['ours']} {row['chunk_bytes']['hdf5plugin']}"


if __name__ == "__main__":
    sys.exit(main())
