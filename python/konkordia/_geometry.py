"""Where the pixels lie."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _native


class Geometry:
    """A flat detector and the beam.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns.
    distance_mm : float
        From the sample to the detector, along the beam.
    beam_center_px : (float, float)
        x (column) and y (row) at which the beam meets the detector, from the corner of the first pixel.
    pixel_size_um : float or (float, float)
        Width and height of a pixel.
    energy_kev : float, optional
        Without it there are angles, but neither q nor d.
    tilt_fast_deg, tilt_slow_deg : float
        Tilts about the beam centre: first about the rows, then about the columns.

    Examples
    --------
    >>> import konkordia
    >>> geometry = konkordia.Geometry(
    ...     (512, 1024), distance_mm=100.0, beam_center_px=(512.0, 256.0), pixel_size_um=75.0, energy_kev=12.4
    ... )
    >>> geometry.d_angstrom().shape
    (512, 1024)
    >>> round(float(geometry.two_theta_deg()[256, 1023]), 3)
    20.988
    """

    __slots__ = ("_native",)

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        distance_mm: float,
        beam_center_px: tuple[float, float],
        pixel_size_um: float | tuple[float, float],
        energy_kev: float | None = None,
        tilt_fast_deg: float = 0.0,
        tilt_slow_deg: float = 0.0,
    ) -> None:
        size = (pixel_size_um, pixel_size_um) if isinstance(pixel_size_um, (int, float)) else pixel_size_um
        self._native = _native.Geometry.of_detector(
            tuple(shape), distance_mm, tuple(beam_center_px), tuple(size), energy_kev, tilt_fast_deg, tilt_slow_deg
        )

    @classmethod
    def _of(cls, native: _native.Geometry) -> Geometry:
        made = cls.__new__(cls)
        made._native = native
        return made

    @classmethod
    def from_poni(cls, path: str | os.PathLike[str], shape: tuple[int, int]) -> Geometry:
        """The geometry of a ``.poni`` file of pyFAI, for images of this shape.

        Raises
        ------
        KonkordiaError
            The file cannot be read or is not one for such images.
        """
        return cls._of(_native.Geometry.of_poni(os.fspath(path), tuple(shape)))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._native.shape

    @property
    def distance_mm(self) -> float:
        """From the sample to the plane of the detector, at a right angle."""
        return self._native.distance_mm

    @property
    def beam_center_px(self) -> tuple[float, float] | None:
        """x and y at which the beam meets the detector; None if it does not."""
        return self._native.beam_center_px

    @property
    def pixel_size_um(self) -> tuple[float, float]:
        """Width and height of a pixel."""
        return self._native.pixel_size_um

    @property
    def wavelength_angstrom(self) -> float | None:
        """Wavelength of the beam; None if it is not known."""
        return self._native.wavelength_angstrom

    def two_theta_deg(self) -> NDArray[np.float64]:
        """Scattering angle of each pixel, degrees: rows x columns."""
        return self._native.two_theta_deg()

    def q_per_angstrom(self) -> NDArray[np.float64]:
        """q = 4 pi sin(theta) / wavelength of each pixel, 1/angstrom: rows x columns."""
        return self._native.q_per_angstrom()

    def d_angstrom(self) -> NDArray[np.float64]:
        """d = 2 pi / q of each pixel, angstrom: rows x columns."""
        return self._native.d_angstrom()

    def _state(self) -> tuple[Any, ...]:
        own = self._native
        return (own.shape, own.origin_mm, own.fast_mm, own.slow_mm, own.wavelength_angstrom)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_again, self._state())

    def __eq__(self, other: object) -> bool:
        return self._state() == other._state() if isinstance(other, Geometry) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._state())

    def __repr__(self) -> str:
        rows, columns = self.shape
        centre = "beside the detector" if self.beam_center_px is None else "({:.2f}, {:.2f}) px".format(*self.beam_center_px)
        length = "unknown" if self.wavelength_angstrom is None else f"{self.wavelength_angstrom:.5f} angstrom"
        return f"<konkordia.Geometry {rows} x {columns}, distance {self.distance_mm:.3f} mm, beam at {centre}, wavelength {length}>"


def _again(*state: Any) -> Geometry:
    return Geometry._of(_native.Geometry(*state))
