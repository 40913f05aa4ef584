"""What is looked for in images."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._geometry import Geometry

SPOT = np.dtype(
    [
        ("x_px", "f8"),
        ("y_px", "f8"),
        ("intensity", "f8"),
        ("maximum", "f8"),
        ("background", "f8"),
        ("snr", "f8"),
        ("pixels", "u4"),
        ("d_angstrom", "f8"),
        ("is_ice", "?"),
    ]
)
"""Fields of a spot: position (the centre of a pixel is a whole number), sum of its pixels, highest pixel, background of a
pixel, signal over noise, number of pixels, spacing (NaN without a geometry), and whether it lies on a ring of ice."""


PLAIN_RESULTS = (
    "spots_found",
    "is_hit",
    "shows_ice",
    "shows_salt",
    "resolution_angstrom",
    "background",
    "above",
    "beam_shift_px",
)


@dataclass(frozen=True)
class Profile:
    """A powder profile, or a cake of azimuths x bins.

    Attributes
    ----------
    radial : ndarray
        Centres of the bins: 1/angstrom for q, degrees for two_theta, angstrom for d.
    azimuth_deg : ndarray
        Centres of the azimuths of a cake.
    intensity : ndarray
        Mean of a pixel: ``sum / normalization``, NaN where no pixel is valid.
    sum, normalization, pixels : ndarray
        Sum of the pixels, of the corrections of their solid angles and polarisation, and their number.
    sigma : ndarray or None
        Standard deviation of the intensity, if ``variance=True`` was asked for.
    """

    radial: NDArray[np.float64]
    azimuth_deg: NDArray[np.float64]
    intensity: NDArray[np.float64]
    sum: NDArray[np.float64]
    normalization: NDArray[np.float64]
    pixels: NDArray[np.float64]
    sigma: NDArray[np.float64] | None


@dataclass(frozen=True)
class Region:
    """A region in an image: its name, pixels that count, their sum and maximum, and their centre of mass in pixels."""

    name: str
    pixels: int
    sum: float
    maximum: float | None
    center_px: tuple[float, float] | None


@dataclass(frozen=True)
class Results:
    """Results of an image; None is what was not asked for or is not known."""

    spots: NDArray[Any] | None
    spots_found: int | None
    is_hit: bool | None
    shows_ice: bool | None
    shows_salt: bool | None
    resolution_angstrom: float | None
    background: float | None
    profile: Profile | None
    regions: tuple[Region, ...]
    above: int | None
    beam_shift_px: tuple[float, float] | None


class Analyser:
    """Analyses images of one size by a recipe, as ``konkordia analyse`` does. Make it once for many images.

    Parameters
    ----------
    recipe : str or mapping
        Text of a recipe (TOML), or its tables: ``{"spots": {"method": "dispersion"}, "azimuthal": {"bins": 500}}``.
    shape : (int, int)
        Rows and columns of the images.
    geometry : Geometry, optional
        Profiles, and spots by peakfinder8, need one; without it they are left out (`left_out`).
    mask : ndarray of bool, optional
        True where a pixel is not to be used.

    Raises
    ------
    KonkordiaError
        The recipe has errors; it names all of them.
    ValueError
        Shape, mask or settings make no sense.

    Examples
    --------
    >>> import konkordia, numpy as np
    >>> image = np.ones((64, 64), np.uint16)
    >>> image[30:32, 40:42] = 500
    >>> analyser = konkordia.Analyser({"spots": {"method": "dispersion"}}, image.shape)
    >>> analyser.analyse(image).spots["x_px"]
    array([40.5])
    """

    def __init__(
        self,
        recipe: str | Mapping[str, Any],
        shape: tuple[int, int],
        geometry: Geometry | None = None,
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        text = recipe if isinstance(recipe, str) else _toml(recipe)
        bytes_of_mask = None if mask is None else np.ascontiguousarray(mask, np.bool_).view(np.uint8)
        native = None if geometry is None else geometry._native
        self._native = _native.Analyser(text, "the recipe", tuple(shape), native, bytes_of_mask)
        self._shape = tuple(shape)

    @property
    def left_out(self) -> list[str]:
        """What is left out for want of a geometry, in words."""
        return self._native.left_out

    def analyse(self, image: NDArray[Any], valid_range: tuple[float, float] | None = None) -> Results:
        """The results of an image.

        Parameters
        ----------
        image : ndarray
            int8 to uint32 or float32, C-contiguous, rows x columns.
        valid_range : (float, float), optional
            Lowest and highest number that is a measurement. If it is not given, it is that of images of Konkordia:
            without the special values of the dtype (missing, masked, invalid, saturated).
        """
        low, high = _native.valid_range(str(image.dtype)) if valid_range is None else valid_range
        found = self._native.analyse(image, low, high)
        spots = None
        if columns := found.get("spots"):
            spots = np.empty(len(columns["x_px"]), SPOT)
            for name in SPOT.names or ():
                spots[name] = columns[name]
        profile = None
        if columns := found.get("profile"):
            columns = dict(columns)
            if len(columns["sigma"]) == 0:
                columns["sigma"] = None
            if len(columns["azimuth_deg"]) > 1:
                of_cake = (len(columns["azimuth_deg"]), len(columns["radial"]))
                for name in ("intensity", "sum", "normalization", "pixels", "sigma"):
                    columns[name] = None if columns[name] is None else columns[name].reshape(of_cake)
            profile = Profile(**columns)
        return Results(
            spots=spots,
            profile=profile,
            regions=tuple(Region(*region) for region in found["regions"]),
            **{name: found.get(name) for name in PLAIN_RESULTS},
        )

    def __repr__(self) -> str:
        rows, columns = self._shape
        return f"<konkordia.Analyser of images of {rows} x {columns} pixels>"


def find_spots(
    image: NDArray[Any],
    *,
    geometry: Geometry | None = None,
    mask: NDArray[np.bool_] | None = None,
    valid_range: tuple[float, float] | None = None,
    method: str = "dispersion",
    **settings: Any,
) -> NDArray[Any]:
    """Bragg spots of an image, as a structured array of dtype `SPOT`.

    Parameters
    ----------
    image, valid_range
        As in `Analyser.analyse`.
    geometry, mask
        As in `Analyser`.
    method : {"dispersion", "peakfinder8"}
        As DIALS, or as CrystFEL finds them; peakfinder8 needs a geometry.
    **settings
        Keys of ``[spots]`` in a recipe, for example ``snr_min=5``, ``threshold=10``, ``pixels_min=2``.

    Examples
    --------
    >>> import konkordia, numpy as np
    >>> image = np.ones((64, 64), np.uint16)
    >>> image[30:32, 40:42] = 500
    >>> konkordia.find_spots(image)["intensity"]
    array([2000.])
    """
    if geometry is None and method == "peakfinder8":
        raise ValueError("peakfinder8 needs the beam centre: give a geometry")
    analyser = Analyser({"spots": {"method": method, **settings}}, image.shape, geometry, mask)
    spots = analyser.analyse(image, valid_range).spots
    assert spots is not None
    return spots


def azint(
    image: NDArray[Any],
    geometry: Geometry,
    *,
    bins: int = 1000,
    unit: str = "q",
    mask: NDArray[np.bool_] | None = None,
    valid_range: tuple[float, float] | None = None,
    **settings: Any,
) -> Profile:
    """The powder profile of an image, as pyFAI makes it.

    Parameters
    ----------
    image, valid_range
        As in `Analyser.analyse`.
    geometry : Geometry
        Of the image.
    bins : int
        Radial bins.
    unit : {"q", "two_theta", "d"}
        Of the bins: 1/angstrom, degrees, angstrom.
    mask
        As in `Analyser`.
    **settings
        Other keys of ``[azimuthal]`` in a recipe, for example ``range=[0.5, 4.0]``, ``polarization=0.99``,
        ``azimuth_bins=360``.

    Examples
    --------
    >>> import konkordia, numpy as np
    >>> geometry = konkordia.Geometry(
    ...     (64, 64), distance_mm=50.0, beam_center_px=(32.0, 32.0), pixel_size_um=75.0, energy_kev=12.4
    ... )
    >>> profile = konkordia.azint(np.full((64, 64), 7, np.uint16), geometry, bins=10, solid_angle=False)
    >>> profile.intensity.tolist() == [7.0] * 10
    True
    """
    analyser = Analyser({"azimuthal": {"axis": unit, "bins": bins, **settings}}, image.shape, geometry, mask)
    profile = analyser.analyse(image, valid_range).profile
    assert profile is not None
    return profile


def _toml(tables: Mapping[str, Any]) -> str:
    """The text of a recipe with these tables."""
    lines = []
    for name, table in tables.items():
        for head, one in [(f"[[{name}]]", one) for one in table] if isinstance(table, (list, tuple)) else [(f"[{name}]", table)]:
            if not isinstance(one, Mapping):
                raise TypeError(f"recipe: {name} must be a mapping of keys and values, not {one!r}")
            lines += [head, *(f"{key} = {_toml_value(key, value)}" for key, value in one.items())]
    return "\n".join(lines) + "\n"


def _toml_value(key: str, value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, (bool, int, float, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (Sequence, np.ndarray)):
        return "[" + ", ".join(_toml_value(key, one) for one in value) + "]"
    raise TypeError(f"{key} = {value!r}: numbers, texts and lists of them can be given")
