"""Slow lane, run by dials_check.sh with Debian's Python: every pixel through dxtbx, and the geometry."""

import os
import sys

import dxtbx
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from content import MISSING, RUNS, image

# dxtbx turns the two highest unsigned values into -1 and -2, and shows 32-bit unsigned pixels as signed.
SHOWN = {"uint16": -1, "uint32": -1}

for run in ("int16", "int32", "uint16", "uint32", "float32", "virtual", "plain", "many"):
    dtype, images, *_ = RUNS[run]
    opened = dxtbx.load(os.path.join(sys.argv[1], f"{run}_master.h5"))
    assert type(opened).__name__ == "FormatNXmx" and opened.get_num_images() == images, run
    for number in range(images):
        pixels = opened.get_raw_data(number)
        pixels = (pixels[0] if isinstance(pixels, tuple) else pixels).as_numpy_array()
        wanted = image(run, number).astype(np.float64)
        wanted[wanted == MISSING[dtype]] = SHOWN.get(dtype, MISSING[dtype])
        assert (pixels == wanted).all(), (run, number)
    panel = opened.get_detector()[0]
    beam = panel.get_beam_centre_px(opened.get_beam().get_s0())
    assert panel.get_image_size() == (200, 64) and abs(panel.get_distance() - 150) < 1e-9, run
    assert abs(beam[0] - 100.5) < 1e-6 and abs(beam[1] - 30.25) < 1e-6, run
    assert (~opened.get_static_mask()[0].as_numpy_array()).sum() == 2, run
    print(run, "equal in dxtbx:", images, "images")

# Scale, offset and limits of the stored numbers. Older releases of dxtbx ignore the first two; all use the limits.
opened = dxtbx.load(os.path.join(sys.argv[1], "scaled_master.h5"))
panel = opened.get_detector()[0]
low, high = panel.get_trusted_range()
# Up to dxtbx 3.12 the lower limit itself is not trusted.
assert low in (-1, 0) and high == 12000, (low, high)
assert panel.get_gain() in (0, 1, 8), panel.get_gain()
print("scaled: trusted range", panel.get_trusted_range(), "gain", panel.get_gain())
