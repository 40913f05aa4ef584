#!/usr/bin/env python3
"""Bits per pixel of bslz4 and bszstd on real frames, beside the length of TERSE and what entropy coders could reach at best
(docs/decisions/0059-no-detector-codec-of-our-own.md).

    scripts/plugin out && python3 benches/detector_codecs.py out ../shared/data

DATA holds jungfrau-lyso/photons_*.f32 (512 x 1024), thaumatin/*.cbf.bz2 and ceo2/CeO2_Pilatus1M.tif; sets that are not there are
left out. The chunks are packed by our filter plug-in, and unpacked again for comparison.
"""

import bz2
import pathlib
import sys
import tempfile

import fabio
import numpy as np

from plugin import REVERSE, call, load

# Upper ends of the classes of the sum of four neighbours.
CLASSES = [-3, -1, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 50, 64, 80, 120, 200, 400]


def sets(data):
    frames = sorted((data / "jungfrau-lyso").glob("photons_*.f32"))
    photons = [np.rint(np.fromfile(path, "<f4")).clip(-32768, 32767).astype("<i2").reshape(512, 1024) for path in frames]
    yield "JUNGFRAU, lysozyme, int16", photons
    pilatus = []
    for path in sorted((data / "thaumatin").glob("*.cbf.bz2")):
        with tempfile.NamedTemporaryFile(suffix=".cbf") as file:
            file.write(bz2.decompress(path.read_bytes()))
            file.flush()
            pilatus.append(fabio.open(file.name).data.astype("<i4"))
    yield "PILATUS 6M, thaumatin, int32", pilatus
    yield "the same, special values as 0", [np.where(frame < 0, 0, frame) for frame in pilatus]
    powder = [fabio.open(str(path)).data.astype("<i4") for path in (data / "ceo2").glob("*.tif")]
    yield "PILATUS 1M, powder, int32", powder
    yield "the same, special values as 0", [np.where(frame < 0, 0, frame) for frame in powder]


def terse(frame, block=12):
    """Bits per pixel of TERSE: each block has the bits that its largest value needs, and 1, 4, 6 or 12 bits that say so."""
    values = frame.ravel().astype("i8")
    whole = values[: len(values) // block * block].reshape(-1, block)
    signed = bool((values < 0).any())
    largest = np.where(whole < 0, -whole - 1, whole).max(1)
    bits = np.ceil(np.log2(largest + 1)).astype(int)
    if signed:
        bits = np.where((whole != 0).any(1), bits + 1, 0)
    same = np.r_[False, bits[1:] == bits[:-1]]
    heads = np.where(same, 1, np.where(bits < 7, 4, np.where(bits < 10, 6, 12)))
    rest = (len(values) - whole.size) * frame.itemsize * 8
    return (heads.sum() + bits.sum() * block + rest) / len(values)


def bits_of(counts):
    share = counts[counts > 0] / counts.sum()
    return -(share * np.log2(share)).sum()


def entropy(frame):
    return bits_of(np.unique(frame, return_counts=True)[1])


def neighbours(frame):
    """Entropy of the values given the class of the sum of the neighbours above and before, with the cost of the tables."""
    values = frame.astype("i8")
    near = np.pad(np.clip(values, -2, 300), ((1, 0), (1, 1)), mode="edge")
    classes = np.digitize(near[1:, :-2] + near[:-1, 1:-1] + near[:-1, :-2] + near[:-1, 2:], CLASSES)
    symbols = np.clip(values, -4, 250) + 4
    total = 32 * np.count_nonzero((values < -4) | (values >= 250))
    for each in np.unique(classes):
        counts = np.bincount(symbols[classes == each], minlength=256)
        total += bits_of(counts) * counts.sum() + np.count_nonzero(counts) * np.log2(max(counts.sum(), 2)) / 2
    return total / values.size


def packed(plugin, values):
    def bits(frame):
        image = frame.tobytes()
        parameters = [value(frame.itemsize) if callable(value) else value for value in values]
        _, chunk = call(plugin, 0, parameters, image)
        assert call(plugin, REVERSE, parameters, chunk)[1] == image
        return 8 * len(chunk) / frame.size

    return bits


def main():
    plugin, data = load(pathlib.Path(sys.argv[1]) / "libh5konkordia_bitshuffle.so"), pathlib.Path(sys.argv[2])
    columns = {
        "bslz4": packed(plugin, [0, 4, int, 0, 2]),
        "bszstd": packed(plugin, [0, 4, int, lambda size: 65536 // size, 3, 1]),
        "bszstd 5": packed(plugin, [0, 4, int, lambda size: 65536 // size, 3, 5]),
        "TERSE": terse,
        "entropy": entropy,
        "neighbours": neighbours,
    }
    print(f"{'frames':32}", *(f"{name:>10}" for name in columns))
    for name, frames in sets(data):
        if frames:
            means = [np.mean([bits(np.ascontiguousarray(frame)) for frame in frames]) for bits in columns.values()]
            print(f"{name:32}", *(f"{mean:10.3f}" for mean in means))


if __name__ == "__main__":
    main()
