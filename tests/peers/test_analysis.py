"""`konkordia analyse` beside pyFAI, on the same powder image and geometries."""

import json

import numpy as np
import pytest
from programs import PYTHON, needs, python

from driving import program
from test_analyse import CEO2, needs_ceo2, others_file, recipe

pytestmark = [pytest.mark.peer("pyFAI"), needs(PYTHON, "the environment of the peers"), needs_ceo2]

PYFAI = """
import sys, numpy, pyFAI
image, poni, split, unit, polarization, out = sys.argv[1:]
data = numpy.load(image)
integrator = pyFAI.load(poni)
integrator.detector.shape = data.shape
result = integrator.integrate1d_ng(
    data, 1000, unit=unit, mask=data < 0, method=(split, "csr", "cython"), correctSolidAngle=True,
    polarization_factor=float(polarization) if polarization else None, variance=numpy.maximum(data, 0).astype(float),
)
numpy.save(out, numpy.array([result.radial, result.intensity, result.sigma, result.count]))
"""
GEOMETRIES = {
    "as it is": {},
    "flat": {"Rot1": 0, "Rot2": 0, "Rot3": 0},
    "tilted": {"Rot1": 0.25, "Rot2": -0.12, "Rot3": 0.4, "Poni1": 0.02},
}


@pytest.fixture(scope="module")
def powder(tmp_path_factory):
    import fabio

    folder = tmp_path_factory.mktemp("powder")
    image = fabio.open(CEO2 / "CeO2_Pilatus1M.tif").data.astype(np.int32)
    np.save(folder / "image.npy", image)
    return folder, others_file(folder / "image.h5", image[None], pixel_mask=(image < 0).astype(np.uint32))


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("polarization", [None, 0.95])
@pytest.mark.parametrize("axis", ["q", "two_theta"])
@pytest.mark.parametrize("splitting", ["none", "full"])
def test_profiles_are_those_of_pyfai(powder, tmp_path, geometry, polarization, axis, splitting):
    """Intensity and sigma of every bin, with and without splitting of pixels, flat and tilted."""
    folder, file = powder
    poni = tmp_path / "geometry.poni"
    # Later lines hold.
    lines = [f"{key}: {value}\n" for key, value in GEOMETRIES[geometry].items()]
    poni.write_text((CEO2 / "CeO2_Pilatus1M.poni").read_text() + "".join(lines))
    unit = {"q": "q_A^-1", "two_theta": "2th_deg"}[axis]
    split = {"none": "no", "full": "full"}[splitting]
    out = tmp_path / "pyfai.npy"
    python(PYFAI, folder / "image.npy", poni, split, unit, "" if polarization is None else polarization, out)
    radial, intensity, sigma, count = np.load(out)
    keys = {"axis": axis, "bins": 1000, "splitting": splitting, "variance": True}
    if polarization is not None:
        keys["polarization"] = polarization
    step = radial[1] - radial[0]
    done = program("analyse", file, "--poni", poni, "--recipe", recipe(tmp_path, azimuthal=keys), "--json", check=0)
    start, image, _ = [json.loads(line) for line in done.stdout.splitlines()]
    ours = {key: np.array(image["profile"][key], float) for key in ("intensity", "sigma")}
    assert np.allclose(start["profile_axis"], radial, rtol=0, atol=1e-4 * step)
    good = (count > 0) & (intensity > 0)
    good[:2] = False
    assert good.sum() > 900
    relative = {
        "intensity": np.abs(ours["intensity"][good] / intensity[good] - 1),
        "sigma": np.abs(ours["sigma"][good] / sigma[good] - 1),
    }
    for what, difference in relative.items():
        if splitting == "none":
            assert np.quantile(difference, 0.99) < 1e-5, (what, difference.max())
        else:
            # pyFAI holds areas and corners in single precision here; in double precision it differs by 1e-5 at most.
            assert np.median(difference) < 1e-5 and np.quantile(difference, 0.99) < 2e-4, (what, difference.max())


CAKE = """
import sys, numpy, pyFAI
image, poni, split, out = sys.argv[1:]
data = numpy.load(image)
integrator = pyFAI.load(poni)
integrator.detector.shape = data.shape
result = integrator.integrate2d_ng(
    data, 200, 24, unit="q_A^-1", mask=data < 0, method=(split, "csr", "cython"), correctSolidAngle=True,
    radial_range=(0.5, 6), azimuth_range=(-180, 180),
)
numpy.savez(out, radial=result.radial, azimuthal=result.azimuthal, intensity=result.intensity, count=result.count)
"""


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("splitting", ["none", "full"])
def test_cakes_are_those_of_pyfai(powder, tmp_path, geometry, splitting):
    """Intensity by radius and azimuth, with and without splitting of pixels, flat and tilted."""
    folder, file = powder
    poni, out = tmp_path / "geometry.poni", tmp_path / "pyfai.npz"
    lines = [f"{key}: {value}\n" for key, value in GEOMETRIES[geometry].items()]
    poni.write_text((CEO2 / "CeO2_Pilatus1M.poni").read_text() + "".join(lines))
    python(CAKE, folder / "image.npy", poni, {"none": "no", "full": "full"}[splitting], out)
    theirs = np.load(out)
    keys = {"axis": "q", "bins": 200, "range": [0.5, 6.0], "azimuth_bins": 24, "azimuth_deg": [-180.0, 180.0], "splitting": splitting}
    done = program("analyse", file, "--poni", poni, "--recipe", recipe(tmp_path, azimuthal=keys), "--json", check=0)
    start, image, _ = [json.loads(line) for line in done.stdout.splitlines()]
    intensity = np.array(image["cake"]["intensity"], float)
    assert image["profile"] is None and intensity.shape == theirs["intensity"].shape == (24, 200)
    assert np.allclose(start["profile_axis"], theirs["radial"], atol=1e-4) and np.allclose(start["cake_azimuth_deg"], theirs["azimuthal"], atol=1e-3)
    # pyFAI gives all of a split pixel that crosses 180 degrees to one side, so the first and the last sector differ.
    good = (theirs["count"] > 3) & (theirs["intensity"] > 0)
    if splitting == "full":
        good[[0, -1]] = False
    assert good.sum() > 1000
    pixels = np.array(image["cake"]["pixels"])
    ours, others = intensity[good] / theirs["intensity"][good] - 1, pixels[good] / theirs["count"][good] - 1
    if splitting == "none":
        assert np.quantile(np.abs(ours), 0.99) < 1e-5 and np.quantile(np.abs(others), 0.99) == 0
    else:
        # pyFAI holds corners in single precision here.
        assert np.median(np.abs(others)) < 1e-5 and np.quantile(np.abs(others), 0.98) < 5e-4
        assert np.median(np.abs(ours)) < 1e-4 and np.quantile(np.abs(ours), 0.95) < 2e-3
