"""EIGER: captured packets of a real module, and synthetic ones of every bit depth."""

import numpy as np
import pytest
from driving import EIGER, MISSING, Master, balanced, needs_eiger, program, simulate

PORTS = [EIGER / f"{port}.dat" for port in range(50020, 50024)]
FRAMES, ROWS, COLUMNS = 5, 256, 512
# Header rows 0 and 1 of the capture: data row 0 of both halves lies at the middle of the module (docs/formats.md).
TILES = [
    {"row": 0, "column": 0, "flip_rows": True},
    {"row": 0, "column": 514, "flip_rows": True},
    {"row": 258, "column": 0},
    {"row": 258, "column": 514},
]


def decode():
    """The images (5, 514, 1026), decoded as the protocol says, with 0 in the gaps."""
    images = np.zeros((FRAMES, 514, 1026), np.int64)
    for path, tile in zip(PORTS, TILES):
        record = np.fromfile(path, np.dtype([("length", "<u8"), ("header", "V48"), ("pixels", "<u4", 1024)]))
        assert (record["length"] == 4144).all() and len(record) == FRAMES * 128
        port = record["pixels"].reshape(FRAMES, ROWS, COLUMNS)
        port = port[:, ::-1] if tile.get("flip_rows") else port
        images[:, tile["row"] : tile["row"] + ROWS, tile["column"] : tile["column"] + COLUMNS] = port
    return images


@needs_eiger
def test_the_captured_module_is_assembled_as_the_protocol_says(bench):
    detector = {"type": "eiger", "bits": 32, "detector_distance_mm": 100.0, "energy_kev": 12.4, "tile": TILES}
    receiver = bench.receive(bench.config(streams=4, detector=detector, run={"images": FRAMES, "first_frame": 29512}))
    sent = simulate("eiger", "--to", bench.to, "--rate", 10, "--raw", *PORTS)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["total"]["placed"] == sent["packets_sent"] == 4 * FRAMES * 128

    master, expected = Master(bench.master), decode()
    inside = np.zeros((514, 1026), bool)
    for tile in TILES:
        inside[tile["row"] : tile["row"] + ROWS, tile["column"] : tile["column"] + COLUMNS] = True
    assert master.images.shape == expected.shape and master.images.dtype == np.uint32
    assert (master.images[:, inside] == expected[:, inside]).all() and expected.max() > 1_000_000
    assert (master.images[:, ~inside] == 2**32 - 2).all() and (master.mask[~inside] == 1).all() and (master.mask[inside] == 0).all()
    assert list(master.columns["frame_number"]) == list(range(29512, 29517))
    assert list(master.columns["exposure"]) == [376 * (n + 1) for n in range(FRAMES)]
    program("check", bench.master, check=0)


@needs_eiger
def test_the_first_frame_may_be_any(bench):
    detector = {"type": "eiger", "bits": 32, "geometry": "eiger-500k", "detector_distance_mm": 100.0, "energy_kev": 12.4}
    receiver = bench.receive(bench.config(streams=4, detector=detector, run={"images": 12, "first_frame": "auto"}))
    # The recording is repeated, with frame numbers that count on.
    simulate("eiger", "--to", bench.to, "--rate", 20, "--images", 12, "--first-frame", 1000, "--raw", *PORTS)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["first_frame"] == 1000
    master = Master(bench.master)
    expected = decode()
    # The image has gaps of two pixels between the chips.
    assert (master.images[11, 0:256, 0:256] == expected[1, 0:256, 0:256]).all()
    assert (master.images[11, 258:514, 774:1030] == expected[1, 258:514, 770:1026]).all()


@pytest.mark.parametrize("bits", [4, 8, 12, 16, 32])
def test_every_depth_of_the_synthetic_detector(bench, bits):
    detector = {"type": "eiger", "bits": bits, "detector_distance_mm": 100.0, "energy_kev": 12.4}
    receiver = bench.receive(bench.config(streams=4, detector=detector, run={"images": 5}))
    sent = simulate("eiger", "--to", bench.to, "--bits", bits, "--rate", 20, "--images", 5, "--loss", 0.02, "--seed", bits)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 1 and sent["packets_expected"] == 5 * 16 * bits
    master = Master(bench.master)
    dtype = str(master.images.dtype)
    assert dtype == ("uint32" if bits == 32 else "uint16")
    measured = master.images[master.images < 60000 if bits != 32 else master.images < 2**31]
    assert measured.max() <= 2**bits - 1 and 0.5 < np.minimum(measured, 100).mean() < 10
    assert (master.images == MISSING[dtype]).any()
