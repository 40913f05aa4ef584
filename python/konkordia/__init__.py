"""Images of X-ray pixel detectors: files, analysis and compression, by the code of the Konkordia data acquisition.

Functions
---------
open        images and raw frames of files, lazily, as numpy arrays
convert     photons of raw frames of a JUNGFRAU
pedestal    pedestals, noise and mask of dark frames
find_spots  Bragg spots of an image
azint       powder profile of an image
compress    an image as one chunk of an HDF5 file or a stream
decompress  the image of a chunk

Other classes
-------------
Calibration, Converter, Geometry, NXmxWriter

Classes for a running service
-----------------------------
Client, AsyncClient

Streams
-------
stream      the images of a stream, as they come
Streamer    makes a stream of the frames of a detector's SDK
joined      what `konkordia join` sends: for each trigger the images of several detectors, and numbers

On a cluster
------------
cluster     the program over many files, or one big run in parts, by Dask, Slurm or MPI

Units are in the names: ``_mm``, ``_um``, ``_px`` (pixels), ``_deg``, ``_kev``, ``_angstrom``, ``_per_angstrom``. The
centre of a pixel is a whole number in places of spots; places of the beam are counted from the corner of the first
pixel, whose centre is (0.5, 0.5).
"""

from ._analysis import SPOT, Analyser, Profile, Results, azint, find_spots
from ._calibration import Calibration, Converter, convert
from ._calls import Image, ServiceError
from ._client import AsyncClient, Client, Run
from ._codec import compress, decompress
from ._errors import KonkordiaError
from ._geometry import Geometry
from ._images import Images
from ._joined import Joined, JoinedStream, joined
from ._native import __version__
from ._open import open
from ._pedestal import Pedestals, StagePedestal, pedestal
from ._raw import FrameHeader, RawFrames
from ._writer import NXmxWriter
from ._stream import Frame, SeriesStart, Stream, Times, stream
from ._streamer import Streamer

__all__ = [
    "Analyser",
    "AsyncClient",
    "Calibration",
    "Client",
    "Converter",
    "Frame",
    "FrameHeader",
    "Geometry",
    "Image",
    "Images",
    "Joined",
    "JoinedStream",
    "KonkordiaError",
    "NXmxWriter",
    "Pedestals",
    "Profile",
    "RawFrames",
    "Results",
    "Run",
    "SPOT",
    "SeriesStart",
    "ServiceError",
    "StagePedestal",
    "Stream",
    "Streamer",
    "Times",
    "__version__",
    "azint",
    "compress",
    "convert",
    "decompress",
    "find_spots",
    "joined",
    "open",
    "pedestal",
    "stream",
]
