"""What Python finds in images is what the command line finds, number by number; and what cannot be asked."""

import json

import konkordia
import numpy as np
import pytest
from test_analyse import analyse, found, others_file, synthetic, thaumatin
from test_analyse import needs_thaumatin as has_thaumatin

PF8 = {"method": "peakfinder8", "threshold": 10.0, "snr_min": 5.0}
POWDER = {"axis": "two_theta", "bins": 60, "polarization": 0.99}
BOX = {"name": "left", "shape": "box", "corners_px": [0, 0, 9, 9]}


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "uint32", "float32"])
@pytest.mark.parametrize("spots", [PF8, {"method": "dispersion"}])
def test_all_that_the_command_line_finds(tmp_path, dtype, spots):
    stack, _ = synthetic(images=4)
    path = others_file(tmp_path / "file.h5", stack.astype(dtype))
    start, by_program, _ = analyse(tmp_path, [path], spots=spots, azimuthal=POWDER, region=[BOX], above={"level": 50})
    images = konkordia.open(path)
    analyser = images.analyser({"spots": spots, "azimuthal": POWDER, "region": [BOX], "above": {"level": 50}})
    assert analyser.left_out == []
    for number, theirs in enumerate(by_program):
        ours = analyser.analyse(images[number], images.valid_range)
        assert ours.spots.dtype == konkordia.SPOT and len(ours.spots) > 3
        assert np.array_equal(np.column_stack([ours.spots["x_px"], ours.spots["y_px"]]), found(theirs))
        assert np.array_equal(ours.spots["intensity"], theirs["spots"]["intensity"])
        assert ours.is_hit == theirs["spots"]["is_hit"] and ours.above == theirs["above_level"]
        assert np.array_equal(ours.profile.intensity, np.array(theirs["profile"]["intensity"], float), equal_nan=True)
        assert np.allclose(ours.profile.radial, start["profile_axis"], rtol=1e-12)
        assert (ours.regions[0].name, ours.regions[0].pixels) == ("left", 100)
        assert ours.regions[0].sum == stack[number, :10, :10].sum()
    by_method = images.find_spots(2, **spots)
    assert np.array_equal(by_method["snr"], analyser.analyse(images[2], images.valid_range).spots["snr"])
    one = {name: value for name, value in spots.items() if name != "method"}
    alone = konkordia.find_spots(images[2], geometry=images.geometry, mask=images.mask, valid_range=images.valid_range, method=spots["method"], **one)
    assert np.array_equal(alone, by_method)
    profile = konkordia.azint(images[2], images.geometry, bins=60, unit="two_theta", polarization=0.99, valid_range=images.valid_range)
    assert np.array_equal(profile.intensity, images.azint(2, **{"unit": "two_theta", "bins": 60, "polarization": 0.99}).intensity, equal_nan=True)


@has_thaumatin
def test_the_spots_of_a_real_image_are_those_of_the_command_line(tmp_path):
    path = thaumatin(tmp_path, 8)
    _, [theirs], _ = analyse(tmp_path, [path], spots={"method": "dispersion"})
    ours = konkordia.open(path).find_spots(0)
    assert len(ours) > 1000 and np.array_equal(np.column_stack([ours["x_px"], ours["y_px"]]), found(theirs))


def test_a_mask_and_limits_leave_pixels_out():
    image = np.ones((64, 64), np.uint16)
    image[30:32, 40:42], image[10:12, 20:22] = 500, 500
    image[50, 50] = 65535
    assert len(konkordia.find_spots(image)) == 2, "a missing pixel is no spot"
    mask = np.zeros(image.shape, bool)
    mask[0:20] = True
    assert konkordia.find_spots(image, mask=mask)["y_px"].tolist() == [30.5]
    assert len(konkordia.find_spots(image, valid_range=(0, 400))) == 0
    for wrong in (mask[:, :3], mask[:32].repeat(2, axis=1)):
        with pytest.raises(ValueError, match="the mask must be a boolean array of shape \\(64, 64\\)"):
            konkordia.find_spots(image, mask=wrong)


def test_a_cake_has_rows_of_azimuths_and_variances_are_asked_for():
    geometry = konkordia.Geometry((64, 80), distance_mm=50.0, beam_center_px=(40.0, 32.0), pixel_size_um=(75.0, 75.0), energy_kev=12.4)
    image = np.random.default_rng(3).poisson(9, (64, 80)).astype("uint16")
    cake = konkordia.azint(image, geometry, bins=12, azimuth_bins=8, variance=True)
    assert cake.intensity.shape == cake.sigma.shape == cake.pixels.shape == (8, 12)
    assert len(cake.radial) == 12 and len(cake.azimuth_deg) == 8
    assert cake.sum.sum() == image.sum()
    assert konkordia.azint(image, geometry, bins=12).sigma is None


def test_places_of_pixels():
    geometry = konkordia.Geometry((40, 60), distance_mm=100.0, beam_center_px=(30.5, 20.5), pixel_size_um=75.0, energy_kev=12.398419843320026)
    two_theta = geometry.two_theta_deg()
    assert two_theta.shape == (40, 60) and two_theta[20, 30] == pytest.approx(0, abs=1e-9)
    assert two_theta[20, 40] == pytest.approx(np.degrees(np.arctan(10 * 0.075 / 100)))
    assert geometry.wavelength_angstrom == pytest.approx(1)
    q = geometry.q_per_angstrom()
    assert q[20, 40] == pytest.approx(4 * np.pi * np.sin(np.radians(two_theta[20, 40]) / 2))
    assert geometry.d_angstrom()[20, 40] == pytest.approx(2 * np.pi / q[20, 40])
    without = konkordia.Geometry((40, 60), distance_mm=100.0, beam_center_px=(1.0, 1.0), pixel_size_um=75.0)
    with pytest.raises(ValueError, match="give energy_kev"):
        without.q_per_angstrom()
    for wrong in ({"distance_mm": float("nan")}, {"distance_mm": 0.0}, {"pixel_size_um": 0.0}, {"energy_kev": -1.0}):
        with pytest.raises(ValueError, match="geometry of the detector"):
            konkordia.Geometry((40, 60), **{"distance_mm": 1.0, "beam_center_px": (1.0, 1.0), "pixel_size_um": 75.0, **wrong})


def test_a_poni_file(tmp_path):
    lines = {"Distance": 0.1, "Poni1": 20 * 75e-6, "Poni2": 30 * 75e-6, "Rot1": 0.0, "Rot2": 0.0, "Rot3": 0.0, "Wavelength": 1e-10}
    config = json.dumps({"pixel1": 75e-6, "pixel2": 75e-6, "max_shape": [40, 60], "orientation": 3})
    path = tmp_path / "it.poni"
    path.write_text(f"poni_version: 2\nDetector: Detector\nDetector_config: {config}\n" + "".join(f"{key}: {value}\n" for key, value in lines.items()))
    geometry = konkordia.Geometry.from_poni(path, (40, 60))
    assert geometry.beam_center_px == pytest.approx((30, 20)) and geometry.distance_mm == pytest.approx(100)
    for file, shape in ((path, (41, 60)), (tmp_path / "nowhere", (40, 60))):
        with pytest.raises(konkordia.KonkordiaError) as error:
            konkordia.Geometry.from_poni(file, shape)
        assert error.value.hint


def test_what_cannot_be_asked_says_why():
    image = np.zeros((8, 8), "uint16")
    with pytest.raises(konkordia.KonkordiaError, match="unknown key 'snr'") as error:
        konkordia.find_spots(image, snr=5)
    assert error.value.exit_code == 3 and "hint" in str(error.value)
    with pytest.raises(ValueError, match="give a geometry"):
        konkordia.find_spots(image, method="peakfinder8")
    with pytest.raises(konkordia.KonkordiaError, match='"foo" is not possible'):
        konkordia.find_spots(image, method="foo")
    for number in (float("nan"), float("inf"), -1.0):
        with pytest.raises((konkordia.KonkordiaError, ValueError)):
            konkordia.find_spots(image, sigma_strong=number)
    with pytest.raises(konkordia.KonkordiaError, match="asks for nothing"):
        konkordia.Analyser({}, (8, 8))
    analyser = konkordia.Analyser({"spots": {"method": "dispersion"}}, (8, 8))
    with pytest.raises(ValueError, match="shape"):
        analyser.analyse(np.zeros((8, 9), "uint16"))
    with pytest.raises(TypeError, match="float16"):
        analyser.analyse(np.zeros((8, 8), "float16"), (0, 1))
    with pytest.raises(ValueError, match="pixels of type int64 cannot be analysed"):
        analyser.analyse(np.zeros((8, 8), "int64"))
    with pytest.raises(ValueError, match="numpy.ascontiguousarray"):
        analyser.analyse(np.zeros((8, 16), "uint16")[:, ::2])
    with pytest.raises(TypeError, match="numbers, texts and lists"):
        konkordia.find_spots(image, pixels_min=object())
    profile = konkordia.Analyser({"azimuthal": {"bins": 5, "axis": "q"}}, (8, 8))
    assert "beam centre" in profile.left_out[0] and profile.analyse(image).profile is None


def test_the_text_of_a_recipe_is_taken_as_it_is():
    analyser = konkordia.Analyser('# Lines of mine\n[spots]\nmethod = "dispersion"\n[[region]]\nname = "all"\nshape = "box"\ncorners_px = [0, 0, 15, 15]\n', (16, 16))
    found = analyser.analyse(np.ones((16, 16), "uint16"))
    assert found.spots_found == 0 and (found.regions[0].name, found.regions[0].sum) == ("all", 256)
