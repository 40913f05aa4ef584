"""Images as arrays of xarray, which is imported only when somebody asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._images import Images


def lazy(images: Images) -> Any:
    """A DataArray that reads the images of which it needs the pixels."""
    try:
        import xarray  # type: ignore[import-not-found,unused-ignore]
        from xarray.backends import BackendArray  # type: ignore[import-not-found,unused-ignore]
        from xarray.core import indexing  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError("to_xarray needs xarray: pip install xarray") from error

    class Stack(BackendArray):  # type: ignore[misc,unused-ignore]
        shape, dtype = images.shape, images.dtype

        def __getitem__(self, key: Any) -> Any:
            return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, images.__getitem__)

    low, high = images.valid_range
    attributes: dict[str, Any] = {"valid_min": low, "valid_max": high}
    if images.geometry is not None:
        attributes["distance_mm"] = images.geometry.distance_mm
        attributes["beam_center_px"] = images.geometry.beam_center_px
        attributes["wavelength_angstrom"] = images.geometry.wavelength_angstrom
    variable = xarray.Variable(("image", "y", "x"), indexing.LazilyIndexedArray(Stack()), attributes)
    return xarray.DataArray(variable, name="images")
