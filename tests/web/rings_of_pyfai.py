"""Prints as JSON where rings lie on a tilted detector, as pyFAI has it: rings_of_pyfai.json is what it printed.

usage: PYTHON_WITH_PYFAI rings_of_pyfai.py
"""

import json
import math

# As the configuration has it (docs/configuration.md).
DETECTOR = {
    "energy_kev": 12.4,
    "detector_distance_mm": 120.0,
    "beam_center_x_px": 400.25,
    "beam_center_y_px": 200.5,
    "pixel_size_um": 75.0,
    "tilt_fast_deg": 14.0,
    "tilt_slow_deg": -21.0,
}
COLUMNS, ROWS = 1024, 512
SPACINGS_ANGSTROM = [15, 8, 5, 3.5]
AZIMUTHS = 11


def integrator():
    """pyFAI's Rot1 and Rot2 from the directions of rows and columns, whose parts along the beam are -sin(slow tilt) and
    sin(fast tilt) cos(slow tilt): the first tilt is about the rows, the second about the columns before it."""
    import pyFAI.geometry

    distance_m, pixel_m = DETECTOR["detector_distance_mm"] / 1e3, DETECTOR["pixel_size_um"] / 1e6
    fast_tilt, slow_tilt = (math.radians(DETECTOR[f"tilt_{axis}_deg"]) for axis in ("fast", "slow"))
    rows_along, columns_along = -math.sin(slow_tilt), math.sin(fast_tilt) * math.cos(slow_tilt)
    second = math.asin(columns_along)
    made = pyFAI.geometry.Geometry(
        dist=distance_m * math.cos(fast_tilt) * math.cos(slow_tilt),
        poni1=DETECTOR["beam_center_y_px"] * pixel_m - distance_m * columns_along,
        poni2=DETECTOR["beam_center_x_px"] * pixel_m - distance_m * rows_along,
        rot1=math.asin(-rows_along / math.cos(second)),
        rot2=second,
        pixel1=pixel_m,
        pixel2=pixel_m,
        wavelength=12.398419843320026e-10 / DETECTOR["energy_kev"],
    )
    beam = made.getFit2D()
    assert abs(beam["directDist"] - DETECTOR["detector_distance_mm"]) < 1e-6, beam
    assert abs(beam["centerX"] - DETECTOR["beam_center_x_px"]) < 1e-6 and abs(beam["centerY"] - DETECTOR["beam_center_y_px"]) < 1e-6, beam
    return made


def ring(geometry, spacing_angstrom):
    """Points of a ring in the image, from the outer corner of the first pixel; pyFAI counts from the centre of a pixel."""
    import numpy as np

    two_theta = 2 * math.asin(geometry.wavelength * 1e10 / (2 * spacing_angstrom))
    centre = np.array([DETECTOR["beam_center_x_px"], DETECTOR["beam_center_y_px"]])
    points = []
    for n in range(AZIMUTHS):
        along = np.array([math.cos(2 * math.pi * n / AZIMUTHS), math.sin(2 * math.pi * n / AZIMUTHS)])
        near, far = 0.0, 2000.0
        for _ in range(60):
            middle = (near + far) / 2
            x, y = centre + middle * along
            is_inside = float(geometry.tth(np.array([y - 0.5]), np.array([x - 0.5]))[0]) < two_theta
            near, far = (middle, far) if is_inside else (near, middle)
        x, y = centre + near * along
        if 0 < x < COLUMNS and 0 < y < ROWS:
            points.append([round(float(x), 4), round(float(y), 4)])
    return points


def main():
    import pyFAI

    geometry = integrator()
    rings = {str(spacing): ring(geometry, spacing) for spacing in SPACINGS_ANGSTROM}
    print(json.dumps({"pyFAI": pyFAI.version, "rings": rings}))


if __name__ == "__main__":
    main()
