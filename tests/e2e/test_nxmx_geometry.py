"""`konkordia analyse` on NXmx files of other programs: the detector lies where the transformations say."""

import h5py
import numpy as np
import pytest
from test_analyse import DIALS, analyse, found, synthetic

DETECTOR = "/entry/instrument/detector"
STEPS = f"{DETECTOR}/transformations"
PIXEL_M = 75e-6


def step(file, path, value, kind, units, vector, depends_on, **attributes):
    """One NXtransformations axis."""
    data = file.create_dataset(path, data=value)
    data.attrs.update({"transformation_type": kind, "units": units, "vector": np.array(vector, float), **attributes})
    if depends_on is not None:
        data.attrs["depends_on"] = depends_on


def nxmx_file(path, stack, steps, base, module_offset=((0.0, "translation", "m", (0, 0, 1)), {}), **facts):
    """A file as the NXmx standard has it; `steps` are the transformations, `base` is what the module depends on."""
    with h5py.File(path, "w") as file:
        entry = file.create_group("entry")
        entry.attrs["NX_class"] = "NXentry"
        entry["definition"] = "NXmx"
        for name, kind in [("data", "NXdata"), ("instrument", "NXinstrument"), ("instrument/detector", "NXdetector"), ("instrument/beam", "NXbeam")]:
            entry.create_group(name).attrs["NX_class"] = kind
        file.create_dataset("/entry/data/data", data=stack, chunks=(1, *stack.shape[1:]))
        file["/entry/instrument/beam/incident_wavelength"] = 1.0
        file["/entry/instrument/beam/incident_wavelength"].attrs["units"] = "angstrom"
        for name, value in facts.items():
            file[f"{DETECTOR}/{name}"] = value
        file[f"{DETECTOR}/depends_on"] = base
        file.create_group(STEPS).attrs["NX_class"] = "NXtransformations"
        for name, (value, kind, units, vector, depends_on, *more) in steps.items():
            step(file, f"{STEPS}/{name}", value, kind, units, vector, depends_on, **(more[0] if more else {}))
        module = file.create_group(f"{DETECTOR}/module")
        module.attrs["NX_class"] = "NXdetector_module"
        module["data_origin"], module["data_size"] = np.array([0, 0]), np.array(stack.shape[1:])
        (value, kind, units, vector), more = module_offset
        step(file, f"{DETECTOR}/module/module_offset", value, kind, units, vector, base, **more)
        for name, vector in [("fast_pixel_direction", (-1, 0, 0)), ("slow_pixel_direction", (0, -1, 0))]:
            offset = {"offset": np.zeros(3), "offset_units": "m"}
            step(file, f"{DETECTOR}/module/{name}", PIXEL_M, "translation", "m", vector, f"{DETECTOR}/module/module_offset", **offset)
    return path


# A goniometer of a detector: an arm, on it a carriage and two tilts; and a module that is turned in its frame.
ARM = {
    "two_theta": (20.0, "rotation", "deg", (1, 0, 0), "."),
    "det_z": ([150.0], "translation", "mm", (0, 0, 1), f"{STEPS}/two_theta"),
    # A path relative to the group, and a rotation with an offset.
    "tilt": (0.1, "rotation", "rad", (0, 2, 0), "det_z", {"offset": np.array([1.5, -2.0, 0.5]), "offset_units": "mm"}),
    "roll": (-3.0, "rotation", "deg", (0.6, 0, 0.8), f"{STEPS}/tilt"),
}
OFFSET = ((1.0, "translation", "mm", (3.5, 2.75, 0.0)), {"offset": np.array([0.0, 0.0, 0.25]), "offset_units": "mm"})


def spacings(chain, places):
    """The d of places in pixels (from the corner of the first one), by the matrices of the program nxmx (dials)."""
    import nxmx

    matrix = nxmx.get_cumulative_transformation(chain)[0]
    at = np.column_stack([-places[:, 0] * PIXEL_M * 1e3, -places[:, 1] * PIXEL_M * 1e3, np.zeros(len(places)), np.ones(len(places))])
    x, y, z, _ = matrix @ at.T
    return 1.0 / (2 * np.sin(np.arctan2(np.hypot(x, y), z) / 2))


def by_hand(places):
    """The same from nothing but the numbers above."""

    def turn(axis, angle, v):
        a = np.array(axis, float) / np.linalg.norm(axis)
        return v * np.cos(angle) + np.cross(a, v) * np.sin(angle) + a * (v @ a)[:, None] * (1 - np.cos(angle))

    at = np.column_stack([-places[:, 0] * 0.075, -places[:, 1] * 0.075, np.zeros(len(places))])
    at = at + [3.5, 2.75, 0.25]
    at = turn((0.6, 0, 0.8), np.deg2rad(-3), at)
    at = turn((0, 1, 0), 0.1, at) + [1.5, -2.0, 0.5]
    at = at + [0, 0, 150.0]
    x, y, z = turn((1, 0, 0), np.deg2rad(20), at).T
    return 1.0 / (2 * np.sin(np.arctan2(np.hypot(x, y), z) / 2))


def test_tilts_and_arm_of_a_detector_are_used(tmp_path):
    import nxmx

    stack, _ = synthetic(images=1)
    file = nxmx_file(tmp_path / "a.h5", stack.astype("uint16"), ARM, f"{STEPS}/roll", OFFSET)
    start, [image], _ = analyse(tmp_path, [file], spots=DIALS)
    assert not any("tilted" in note for note in start["notes"]), start["notes"]
    places = found(image) + 0.5
    assert len(places) == 6
    assert image["spots"]["d_angstrom"] == pytest.approx(by_hand(places), rel=1e-9)
    # nxmx wants vectors of length 1, and the axes with their path.
    with h5py.File(file, "r+") as opened:
        opened[f"{STEPS}/tilt"].attrs["vector"] = np.array([0.0, 1, 0])
    with h5py.File(file) as opened:
        chain = nxmx.get_dependency_chain(nxmx.NXtransformationsAxis(opened[f"{DETECTOR}/module/module_offset"]))
        assert len(chain) == 5
        assert image["spots"]["d_angstrom"] == pytest.approx(spacings(chain, places), rel=1e-9)


def test_a_flat_detector_is_where_beam_centre_and_distance_say(tmp_path):
    stack, _ = synthetic(images=1)
    flat = {"det_z": (0.1, "translation", "m", (0, 0, 1), ".")}
    x0, y0 = 40.5, 30.5
    offset = ((1.0, "translation", "m", (x0 * PIXEL_M, y0 * PIXEL_M, 0)), {})
    facts = {"beam_center_x": x0, "beam_center_y": y0, "detector_distance": 0.1, "x_pixel_size": PIXEL_M, "y_pixel_size": PIXEL_M}
    both = nxmx_file(tmp_path / "both.h5", stack.astype("uint16"), flat, f"{STEPS}/det_z", offset, **facts)
    only = nxmx_file(tmp_path / "only.h5", stack.astype("uint16"), flat, f"{STEPS}/det_z", offset)
    for file in (both, only):
        start, [image], _ = analyse(tmp_path, [file], spots=DIALS)
        assert start["beam_center_px"] == pytest.approx([x0, y0]) and not any("tilted" in note for note in start["notes"])
        away = np.hypot(*(found(image) + 0.5 - [x0, y0]).T) * PIXEL_M
        assert image["spots"]["d_angstrom"] == pytest.approx(1 / (2 * np.sin(np.arctan(away / 0.1) / 2)), rel=1e-9)
    # What contradicts itself is said, and centre and distance hold.
    for wrong in ({"beam_center_x": 45.0}, {"detector_distance": 0.11}):
        file = nxmx_file(tmp_path / "wrong.h5", stack.astype("uint16"), flat, f"{STEPS}/det_z", offset, **{**facts, **wrong})
        start, _, _ = analyse(tmp_path, [file], spots=DIALS)
        assert start["beam_center_px"] == pytest.approx([wrong.get("beam_center_x", x0), y0])
        assert any("not tilted" in note and "contradict" in note for note in start["notes"]), start["notes"]
        file.unlink()


@pytest.mark.parametrize("gap_px", [0.0, 1.0])
def test_modules_of_one_plane_are_one_detector(tmp_path, gap_px):
    """The second module begins at column 50; it may lie where its pixels are, or further away."""
    stack, _ = synthetic(images=1)
    facts = {"beam_center_x": 40.5, "beam_center_y": 30.5, "detector_distance": 0.1, "x_pixel_size": PIXEL_M, "y_pixel_size": PIXEL_M}
    file = nxmx_file(tmp_path / "a.h5", stack.astype("uint16"), ARM, f"{STEPS}/roll", OFFSET, **facts)
    with h5py.File(file, "r+") as opened:
        detector = opened[DETECTOR]
        detector.copy("module", "module_2")
        second = detector["module_2"]
        second["data_origin"][...] = [0, 50]
        for name in ("fast_pixel_direction", "slow_pixel_direction"):
            second[name].attrs["depends_on"] = f"{DETECTOR}/module_2/module_offset"
        second["module_offset"].attrs["offset"] = np.array([-(50 + gap_px) * 0.075, 0, 0.25])
    start, [image], _ = analyse(tmp_path, [file], spots=DIALS)
    if gap_px == 0:
        assert image["spots"]["d_angstrom"] == pytest.approx(by_hand(found(image) + 0.5), rel=1e-9)
    assert any("2 modules do not lie in one plane" in note for note in start["notes"]) == (gap_px > 0), start["notes"]


def test_a_detector_that_moves_is_at_its_first_place(tmp_path):
    stack, _ = synthetic(images=2)
    moving = {**ARM, "two_theta": ([20.0, 25.0], "rotation", "deg", (1, 0, 0), ".")}
    file = nxmx_file(tmp_path / "a.h5", stack.astype("uint16"), moving, f"{STEPS}/roll", OFFSET)
    start, images, _ = analyse(tmp_path, [file], spots=DIALS)
    assert any("moves" in note for note in start["notes"])
    for image in images:
        assert image["spots"]["d_angstrom"] == pytest.approx(by_hand(found(image) + 0.5), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"two_theta": (20.0, "rotation", "deg", (1, 0, 0), None)}, "does not say on what it depends"),
        ({"two_theta": (20.0, "rotation", "deg", (1, 0, 0), f"{STEPS}/base")}, "base is not there"),
        ({"two_theta": (20.0, "rotation", "deg", (1, 0, 0), "roll")}, "does not end"),
        ({"two_theta": (20.0, "rotation", "furlong", (1, 0, 0), ".")}, "furlong"),
        ({"two_theta": (20.0, "general", "deg", (1, 0, 0), ".")}, "neither a rotation nor a translation"),
        ({"two_theta": (20.0, "rotation", "deg", (0, 0, 0), ".")}, "no vector"),
        ({"two_theta": (np.nan, "rotation", "deg", (1, 0, 0), ".")}, "no value"),
        ({"det_z": (np.zeros(0), "translation", "mm", (0, 0, 1), ".")}, "no value"),
    ],
)
def test_a_chain_that_is_not_complete_is_not_used(tmp_path, change, says):
    stack, _ = synthetic(images=1)
    facts = {"beam_center_x": 40.5, "beam_center_y": 30.5, "detector_distance": 0.1, "x_pixel_size": PIXEL_M, "y_pixel_size": PIXEL_M}
    file = nxmx_file(tmp_path / "a.h5", stack.astype("uint16"), {**ARM, **change}, f"{STEPS}/roll", OFFSET, **facts)
    start, [image], _ = analyse(tmp_path, [file], spots=DIALS)
    assert start["beam_center_px"] == [40.5, 30.5]
    assert any("not tilted" in note and says in note for note in start["notes"]), start["notes"]
    assert len(image["spots"]["d_angstrom"]) == 6
