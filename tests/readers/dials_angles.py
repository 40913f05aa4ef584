"""Slow lane, run by test_dials.py with Debian's Python: angles, modules and counts of sample runs in dxtbx."""

import os
import shutil
import sys
import tempfile

import dxtbx
import h5py
import numpy as np
from scitbx import matrix

samples = sys.argv[1]
# From the frame of McStas to that of imgCIF.
FLIP = np.diag([-1, 1, -1])


def load(run):
    return dxtbx.load(os.path.join(samples, f"{run}_master.h5"))


def rotation(axis, degrees):
    return np.array(matrix.col(axis).axis_and_angle_as_r3_rotation_matrix(degrees, deg=True)).reshape(3, 3)


sweep = load("sweep")
scan = sweep.get_scan()
assert np.allclose(scan.get_oscillation(), (90, 0.1)) and scan.get_image_range() == (1, 15), scan
assert np.allclose(sweep.get_goniometer().get_rotation_axis(), (1, 0, 0))
assert sweep.get_num_images() == 15
print("sweep: oscillation", tuple(np.round(scan.get_oscillation(), 9)), "images", scan.get_image_range())

kappa = load("kappa")
goniometer, scan = kappa.get_goniometer(), kappa.get_scan()
assert list(goniometer.get_names()) == ["phi", "kappa", "omega"] and goniometer.get_scan_axis() == 0
assert np.allclose(list(goniometer.get_angles()), (-10, 45, 30)) and np.allclose(scan.get_oscillation(), (-10, 0.5))
assert np.allclose(FLIP @ np.array(list(goniometer.get_axes())).T, np.array([[-1, 0, 0], [0, 0.6, -0.8], [-1, 0, 0]]).T)
print("kappa: axes", list(goniometer.get_names()), "oscillation", scan.get_oscillation())

# Two modules are two panels. Their pixels are the two parts of the image, and lie where those of a single module would.
swung = load("swung")
# A backward sweep is a forward sweep about the opposite axis.
assert np.allclose(swung.get_scan().get_oscillation(), (-5, 0.25)) and np.allclose(swung.get_goniometer().get_rotation_axis(), (-1, 0, 0))
panels, turn = swung.get_detector(), rotation((-1, 0, 0), 20)
tilt = rotation((0, -1, 0), -2) @ rotation((-1, 0, 0), 1)
assert len(panels) == 2
whole = [load("int32").get_raw_data(n) for n in range(10)]
whole = [(image[0] if isinstance(image, tuple) else image).as_numpy_array() for image in whole]
for n in range(10):
    parts = [part.as_numpy_array() for part in swung.get_raw_data(n)]
    assert (np.concatenate(parts) == whole[n]).all(), n
for panel, row in zip(panels, (0, 32)):
    at = np.array([100.5 * 0.075, (30.25 - row) * 0.075, 0])
    wanted = FLIP @ turn @ (tilt @ at + [0, 0, 150])
    assert np.allclose(panel.get_origin(), wanted), (panel.get_origin(), wanted)
    assert np.allclose(panel.get_fast_axis(), FLIP @ turn @ tilt @ [-1, 0, 0])
    assert np.allclose(panel.get_slow_axis(), FLIP @ turn @ tilt @ [0, -1, 0])
    assert panel.get_image_size() == (200, 32)
assert sum((~mask.as_numpy_array()).sum() for mask in swung.get_static_mask()) == 2
print("swung: 2 panels, every pixel of 10 images in its place")

# The two highest 16-bit numbers are counts in 32-bit pixels.
with tempfile.TemporaryDirectory() as folder:
    for name in os.listdir(samples):
        if name.startswith(("int32_", "float32_")) and name.endswith(".h5"):
            shutil.copy(os.path.join(samples, name), folder)
    for run in ("int32", "float32"):
        with h5py.File(os.path.join(folder, f"{run}_data_000001.h5"), "r+") as file:
            data = file["/entry/data/data"]
            image = data[1]
            image[0, :2] = 65535, 65534
            # Uncompressed bytes; filter_mask = 1 says that the filter was skipped for this chunk.
            data.id.write_direct_chunk((1, 0, 0), image.tobytes(), filter_mask=1)
        pixels = dxtbx.load(os.path.join(folder, f"{run}_master.h5")).get_raw_data(1)
        pixels = (pixels[0] if isinstance(pixels, tuple) else pixels).as_numpy_array()
        assert list(pixels[0, :2]) == [65535, 65534], (run, pixels[0, :2])
print("int32, float32: 65535 and 65534 are counts")
