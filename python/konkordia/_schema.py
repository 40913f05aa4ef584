"""What the HTTP interface takes and gives. Written by scripts/python-types from docs/openapi.json."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union


class AdapterFailure(TypedDict):
    """How an adapter ended the last time."""
    time: str
    """ISO 8601 with offset."""
    reason: str
    """How it ended, and the last lines that it wrote to stderr."""


AdapterKind = Literal["server", "program"]
"""What kind of adapter it is."""


class AdapterList(TypedDict):
    """What gives other systems access."""
    adapters: list[AdapterStatus]
    """In the order of the configuration."""


AdapterState = Literal["running", "waiting"]
"""State of an adapter."""


class _AdapterStatus(TypedDict):
    name: str
    """Its name in the configuration; `streaming-receiver` for that of `service.compat`."""
    kind: AdapterKind
    """`server` or `program`."""
    role: Role
    """What it may do: `view` or `operate`."""
    state: AdapterState
    """State."""
    since: str
    """Since when it is in this state; ISO 8601 with offset."""
    restarts: int
    """How often it was started again."""


class AdapterStatus(_AdapterStatus, total=False):
    """One adapter (`[adapters.NAME]` in the configuration)."""
    detector: str | None
    """The detector that it shows; null for a program without one."""
    address: str | None
    """Where a server listens."""
    pid: int | None
    """Process id of a program that runs."""
    last_failure: AdapterFailure | None


class _AlarmStatus(TypedDict):
    name: str
    """`loss`, `no_hits`, `hit_drop`, `strong`, `saturated`, `invalid`, `ice`, `unanalysed`, `beam_shift`, `pedestal_age` or `pedestal_drift`."""
    raised: bool
    """Its cause is there, or was within the last two seconds."""


class AlarmStatus(_AlarmStatus, total=False):
    """One alarm of a detector (`[alarms]` in its configuration)."""
    message: str | None
    """What is wrong, while it is raised."""
    hint: str | None
    """What to do about it."""
    since: str | None
    """When it was raised, or ended the last time; ISO 8601."""


class ArmRequest(TypedDict, total=False):
    """What an `arm` or `start` may set for the run; everything else is as configured. Absent = as configured."""
    images: int | None
    """Images of the run; 0 = until stopped."""
    prefix: str | None
    """Start of the file names; may contain folders below the data root, never `..` or an absolute path outside of it."""
    write: bool | None
    """Whether files are written."""
    metadata: dict[str, Any]
    """Facts for the file by the names of `[detector]`, `[goniometer]`, `[experiment]` and `[output]`, for example `energy_kev` or `sample_name`."""
    append: bool
    """The file stays open behind the run: the images of the next run that is armed with `append` come behind those of this one, until `close`. For detectors that send packets."""


class _CalibrationChange(TypedDict):
    spread_adu: float
    """Half of the distance from the 16th to the 84th percentile of the shifts."""
    newly_masked: int
    """Pixels that were not masked before."""
    no_longer_masked: int
    """Pixels that were."""


class CalibrationChange(_CalibrationChange, total=False):
    """How one module differs from the previous calibration, over the pixels that are good in both."""
    median_shift_adu: float | None
    """Median shift of the pedestals."""
    median_rms_before_adu: float | None
    """Median of the noise before."""


class CalibrationProblem(TypedDict):
    """Why there is no calibration, or what is wrong with it."""
    detail: str
    """What is wrong, and why."""
    hint: str
    """What to do."""


class _CalibrationReport(TypedDict):
    kind: str
    """`konkordia`, `files` or `jungfrau_utils`, as in `[calibration] kind`."""
    files: list[str]
    """Files of the pedestals."""
    gain_files: list[str]
    """Files of gains that replace those of the calibration file."""
    modules: int
    """Modules of the detector."""
    cells: list[int]
    """Storage cells that have pedestals; empty if the pedestals are for all cells."""
    stages: list[str]
    """Gain stages of a run, in the order of the gain bits: `hg0` instead of `g0` if the detector is set to high gain."""
    created: str
    """When the file was written; empty if that is not known, as the next three."""
    hash: str
    """"sha256:" and 64 hexadecimal digits, as in the files of runs."""
    detector_serial: str
    """Serial number of the detector."""
    gain_source: str
    """Where the gains come from."""
    module_ids: list[int | None]
    """Module ids of the packet headers, by module; empty if they are not known."""
    reasons: list[MaskReason]
    """Meaning of the bits of the mask."""
    rows: list[CalibrationRow]
    """One entry for each storage cell, gain stage and module."""


class CalibrationReport(_CalibrationReport, total=False):
    """The calibration that the next run uses."""
    taken: str | None
    """When the oldest pedestals of the first stage were taken, ISO 8601; null if that is not known."""
    age_s: float | None
    """Seconds since then."""
    recommended_age_s: float | None
    """Age at which the alarm `pedestal_age` is raised; null without that alarm."""
    max_age_s: float | None
    """Age from which on runs are refused (`[calibration] max_age_hours`); null without."""
    refused: CalibrationProblem | None
    previous: PreviousCalibration | None


class _CalibrationRow(TypedDict):
    module: int
    """Module, from 0."""
    stage: str
    """`g0`, `g1`, `g2` or `hg0`."""
    frames: int
    """Dark frames; 0 if that is not known."""
    masked_pixels: int
    """Masked pixels."""
    masked: dict[str, int]
    """Masked pixels by reason."""
    good: bool
    """Nothing is unusual."""
    remarks: list[str]
    """What is unusual, in words."""


class CalibrationRow(_CalibrationRow, total=False):
    """One module in one storage cell and gain stage. Medians are of the pixels that are not masked."""
    cell: int | None
    """Storage cell; null if the pedestals are for all cells."""
    taken: str | None
    """When the dark frames were taken, ISO 8601; null if that is not known."""
    median_pedestal_adu: float | None
    """Median of the pedestals."""
    median_rms_adu: float | None
    """Median of the noise."""
    median_gain_adu_per_kev: float | None
    """Median of the gains."""
    since_previous: CalibrationChange | None


class ChannelHeader(TypedDict):
    """One channel of an image."""
    name: str
    """Its name; empty if it has none."""
    shape: list[int]
    """Dimensions, slowest first."""
    dtype: str
    """Type of a pixel as numpy writes it."""
    compression: str
    """`none`, `lz4-block`, `lz4`, `bslz4`, `bszstd`, `zstd` or `gzip`."""
    packed_bytes: int
    """Bytes as they are packed."""


class ConsumerStatistics(TypedDict):
    """One consumer of images."""
    name: str
    """Its name."""
    address: str
    """Where it gets its images."""
    service: str
    """`reliable`, `reliable-skip` or `latest`."""
    connected: bool
    """A receiver is connected."""
    delivered: int
    """Images that were handed to it."""
    skipped: int
    """Images that it did not get."""
    lag_images: int
    """Images that wait for it."""


class DarkFrames(TypedDict):
    """Dark frames of a gain stage."""
    stage: str
    """`g0`, `g1`, `g2`, `hg0`, or `auto` where each frame says its stage."""
    frames: int
    """Frames that have come."""
    expected: int
    """Frames that are to come."""


DetectorState = Literal["idle", "armed", "running", "error"]
"""State of a detector, as the arm contract has it."""


class DetectorStatistics(TypedDict):
    """Rates and counters of one detector. Each group maps documented names to numbers; names may be added."""
    detector: str
    """Name in the configuration."""
    ledger: dict[str, int]
    """Counters of the ledger of this run: packets or messages by verdict, images by state."""
    rates: dict[str, float]
    """Images and bytes per second over the last second, by stage (`received_hz`, `received_bytes_per_s`, `committed_hz`, `written_hz`, ...)."""
    queues: dict[str, float]
    """How full the queues are, 0 to 1; docs/api.md lists the names."""
    latency: dict[str, float]
    """Latency from reception to stage in microseconds (`committed_p50_us`, `committed_p99_us`, `written_p50_us`, ...), and the images that came to a stage (`committed_images`, ...)."""
    consumers: list[ConsumerStatistics]
    """Consumers of streams."""
    totals: dict[str, int]
    """Counters since the service began, that never go back (for Prometheus)."""


class _DetectorStatus(TypedDict):
    state: DetectorState
    """State."""
    draining: bool
    """Data have ended and the last images are being written."""
    detector: str
    """Name in the configuration."""
    kind: str
    """`udp` or `stream`."""
    message: str
    """What people should know."""
    severity: Severity
    """How bad that is."""
    run: int
    """Counts the runs since the service began; 0 before the first."""
    images_committed: int
    """Images in their final state."""
    images_written: int
    """Images that the file has."""
    images_lost: int
    """Images lost, whole."""
    images_partial: int
    """Images that miss packets or parts."""
    images_not_taken: int
    """Planned images that were not taken: the run was stopped, or the sender ended it. The file has no place for them."""
    images_not_received: int
    """Planned images that did not arrive: silence, a new series or an error ended the run. The file has no place for them."""
    state_age_s: float
    """Seconds since the state changed."""
    listens: list[str]
    """Where data are expected."""


class DetectorStatus(_DetectorStatus, total=False):
    """State of one detector at one moment. Numbers that are not known are absent, never invented."""
    hint: str | None
    """What to do about it, if something is to be done."""
    progress: float | None
    """Images in their final state over images expected, 0 to 1, from the ledger; absent when the number is not known."""
    images_expected: int | None
    """Images that the run is to have."""
    images_unwritten: int
    """Images that came and are missing in the file: it could not be written (a full disk), or they do not fit it."""
    images_durable: int | None
    """Images before this position are on the disk and survive a power cut (`konkordia repair` makes the file readable). Absent if no file is written, and in the MAX IV layout, which cannot promise it."""
    raw_frames_durable: int | None
    """The same for the raw frames that `keep_raw` writes beside the file; absent without."""
    spool: SpoolStatus | None
    file: str | None
    """Master file of this run, or of the last one."""
    ended: str | None
    """Why the last run ended."""
    open_file: OpenFileStatus | None
    alarms: list[AlarmStatus]
    """The alarms that are on, raised or not."""
    operator: Operator | None
    dark_frames: list[DarkFrames] | None
    """How many dark frames have come, by gain stage; absent while no pedestals are taken."""


class Detectors(TypedDict):
    """States of all detectors."""
    detectors: list[DetectorStatus]
    """In the order of the configuration."""


class Disk(TypedDict, total=False):
    """The disk of the output folder."""
    directory: str | None
    """The folder; null before the first file if the configuration names none."""
    free_bytes: int | None
    """Free space."""
    written_bytes_per_s: float | None
    """Bytes of pixels written over the last second."""
    left_s: float | None
    """Seconds until it is full at this rate; null if nothing is written."""


class DrawnRegion(TypedDict):
    """A region."""
    name: str
    """Its name; it replaces a region of the recipe that has the same."""
    shape: DrawnShape
    """Its shape."""


class DrawnShapes(TypedDict):
    """What people draw. Positions count from the outer corner of the first pixel; a pixel belongs to a shape if its centre is in it."""
    mask: list[DrawnShape]
    """Pixels in one of these are masked: rectangles, circles and polygons."""
    regions: list[DrawnRegion]
    """Regions whose pixels are summed: rectangles, circles, rings and sectors."""


class DryRun(TypedDict):
    """Whether an arm would be accepted, and what its run needs."""
    ok: bool
    """Nothing is wrong. The state of the detector, its calibration and its ports are not looked at."""
    problems: list[RequestProblem]
    """What is wrong."""
    needs: RunNeeds
    """What the run needs, as far as it is known."""


class FileChecks(TypedDict):
    """What a check found."""
    is_valid: bool
    """The file and all its images can be read, and are as they were written."""
    is_whole: bool
    """Every image of the run is there and complete."""
    notes: list[str]
    """What was found, as text."""


class _FileEntry(TypedDict):
    detector: str
    """Detector."""
    run: int
    """Run that wrote it."""
    master: str
    """Master file."""
    state: str
    """`writing`, `complete`, `incomplete`, `failed`."""
    images: int
    """Positions in the files."""
    bytes: int
    """Bytes of pixels as they are packed."""


class FileEntry(_FileEntry, total=False):
    """A finished or growing set of files."""
    unpacked_bytes: int
    """Bytes of the same pixels, unpacked."""
    images_expected: int | None
    """Images that the run was to have; absent while that is not known."""
    ended: str | None
    """Why the run ended."""
    problem: str | None
    """Why no file was made; `master` is empty then."""


class _FileInfo(TypedDict):
    master: str
    """The file, without links."""
    detector: str
    """Detector."""
    images: int
    """Images in it, lost ones included."""
    rows: int
    """Rows of an image."""
    columns: int
    """Columns of an image."""
    channels: list[str]
    """Channels of an image, by name; empty if it has only one without a name."""
    dtype: str
    """Type of a pixel as numpy writes it."""
    compression: str
    """`none`, `lz4`, `bslz4`, `bszstd`, `zstd`, `gzip` or `sz3`."""
    packed_bytes: int
    """Bytes of the images as they are stored."""
    unpacked_bytes: int
    """Bytes of their pixels."""
    disk_bytes: int
    """Length of the master and its data files."""
    results: list[str]
    """Names of the results that each of its images has, spots among them; empty if it has none."""
    problems: list[str]
    """Data files that are missing or cannot be read."""
    tree: list[TreeEntry]
    """What is in the master."""
    tree_is_cut: bool
    """There is more in the master than the tree shows."""


class FileInfo(_FileInfo, total=False):
    """What is in a file."""
    ratio: float | None
    """Pixels over what is stored of them; absent if nothing is."""
    checks: FileChecks | None
    no_results: str | None
    """Why it has none; null if it has some."""


class Files(TypedDict):
    """Files of one detector."""
    files: list[FileEntry]
    """Newest last; at most the last 1000 runs."""


class _HitRate(TypedDict):
    detector: str
    """The detector."""
    series: int
    """Number of the run, or of the series as its sender counts it."""
    bin_s: float
    """Width of a bin of time, seconds. It doubles when 600 bins do not reach any more."""
    analysed: list[int]
    """Images of each bin; the first one begins when the first image was received. Empty without analysis."""
    hits: list[int]
    """Hits among them."""
    indexed: list[int]
    """Those among the analysed ones that the indexing program indexed; empty without one (`[indexing]`)."""


class HitRate(_HitRate, total=False):
    """Hits of the newest run or series over time and over the raster, as data for plots. Only analysed images count."""
    raster: RasterHits | None


class _ImageHeader(TypedDict):
    detector: str
    """Detector."""
    image: int
    """Number, from 0."""
    status: str
    """`complete`, `partial`, `lost` or `discarded`."""
    missing_parts: int
    """Parts that are missing, one bit for each upstream or UDP port, at most 128."""
    store: bool
    """False if the sender wanted it passed on, but not stored."""
    channels: list[ChannelHeader]
    """Its channels."""
    header: dict[str, Any]
    """What else the sender says of it."""
    results: dict[str, Any]
    """What was computed from its pixels, by name; empty if nothing was."""


class ImageHeader(_ImageHeader, total=False):
    """What is known of an image, without its pixels."""
    run: int | None
    """The run that the image is of; while a new run has no image yet, an earlier one. Null for an image of a file."""
    file: str | None
    """The file that was asked for; absent for one of the last images."""
    age_ms: int | None
    """Milliseconds since it came into the ring."""
    series_start: str | None
    """When its series was armed or its first image began, ISO 8601; null if that is not known."""
    energy_kev: float | None
    """Photon energy; null if it is not known."""
    start_ns: int | None
    """Beginning of the exposure in ns since the start of the series, by the clock of the detector."""
    stop_ns: int | None
    """Its end."""
    real_ns: int | None
    """Length of the exposure in ns."""
    no_spots: str | None
    """Why the results do not say which spots the image has; null if they do."""


class Logs(TypedDict):
    """Entries of the log."""
    logs: list[ServiceEvent]
    """Oldest first; at most the last 1000 events of the service."""


class _Machine(TypedDict):
    cores: int
    """Processors that the service may use."""
    threads: list[ThreadLoad]
    """Threads of the service over the last second, the busiest first."""
    disk: Disk
    """Where the files go."""
    memory: MemoryUse
    """Memory of the service."""
    modules: list[ModulePackets]
    """Packets of the modules in this run, or in the last one; empty where they are not counted by module."""


class Machine(_Machine, total=False):
    """The machine, as far as it matters for a detector."""
    spool: SpoolRoom | None


class MaskReason(TypedDict):
    """A bit of the mask."""
    bit: int
    """Its number, from 0."""
    name: str
    """What it means."""


class MemoryUse(TypedDict, total=False):
    """Memory of this process."""
    used_bytes: int | None
    """What it holds now, in bytes."""
    limit_bytes: int | None
    """What it may hold at most: the limit of its control group, or the memory of the machine."""


class _ModuleList(TypedDict):
    detector: str
    """Name of the detector."""
    modules: list[ModulePlace]
    """The modules. What lies between them is a gap. A detector that sends whole images counts as one module."""


class ModuleList(_ModuleList, total=False):
    """The modules of a detector in the image."""
    rows: int | None
    """Rows of the image; absent if they are not known yet."""
    columns: int | None
    """Columns of the image."""


class ModulePackets(TypedDict):
    """Packets of one module in a run. They are counted where an image is committed, and by the receivers of its streams."""
    module: int
    """Its number in the configuration, from 0."""
    received_packets: int
    """Packets that came to its sockets."""
    lost_packets: int
    """Packets that its images should have and that never came into them, whatever the reason."""
    kernel_dropped_packets: int
    """Among them: the buffer of the socket was full. Datagrams that the kernel had joined count as one."""
    no_slot_packets: int
    """Among them: their place was still held by an earlier image."""
    late_packets: int
    """Among them: they came when their image was closed."""


class ModulePlace(TypedDict):
    """One module."""
    index: int
    """From 0."""
    name: str
    """For people."""
    column: int
    """First column in the image."""
    row: int
    """First row."""
    columns: int
    """Columns that it takes, with the gaps between its chips."""
    rows: int
    """Rows that it takes."""
    tiles: list[TileOfModule]
    """Its tiles, each of which one UDP port sends; none where whole images are sent."""


class _NextCalibration(TypedDict):
    detector: str
    """Detector."""


class NextCalibration(_NextCalibration, total=False):
    """The calibration that the next run uses, or why there is none."""
    calibration: CalibrationReport | None
    none: CalibrationProblem | None


class Nothing(TypedDict):
    """For commands that take no arguments: no body, or an empty object."""


class Numbers(TypedDict):
    """Images that are there."""
    detector: str
    """Detector."""
    run: int
    """Run that they are of."""
    images: list[int]
    """Numbers, oldest first."""


class OpenFileStatus(TypedDict):
    """A file that stays open behind its runs."""
    file: str
    """Master file."""
    runs: int
    """Runs that have ended and are in it."""
    images: int
    """Images that these had: the position of the first image of the next run."""


class _Operator(TypedDict):
    name: str
    """Name of the token; where none is needed, `local` and the address that the command came from."""
    since: str
    """When the command was carried out; ISO 8601 with offset."""
    action: str
    """`arm`, `start` or `pedestal`."""


class Operator(_Operator, total=False):
    """Who holds a detector."""
    age_s: float
    """Seconds since then."""


class PedestalRequest(TypedDict, total=False):
    """What a `pedestal` takes. Absent = as the verb of the command line has it."""
    stage: StageChoice
    """Gain stages. `all`: G0, G1 and G2 one after the other; the program `on_stage` of the configuration sets the gain of the detector, `on_trigger` starts it."""
    frames: int | None
    """Dark frames of each stage, all storage cells together; 1000 if absent."""
    skip: int | None
    """Frames at the beginning of each stage that are not used."""
    file: str | None
    """The calibration file, below the data root; an existing file keeps the stages that are not taken. Absent: the file of `[calibration]` in the configuration."""
    force: bool
    """Use frames that look as if there was light."""


class _PixelFacts(TypedDict):
    detector: str
    """Name of the detector."""
    column: int
    """Column in the image."""
    row: int
    """Row in the image."""
    reasons: list[str]
    """Why it is masked, in words; empty if it is not. A mask that is drawn but not in force says so."""


class PixelFacts(_PixelFacts, total=False):
    """What is known of a pixel of the image."""
    module: int | None
    """Index of its module; absent between modules, and where whole images are sent."""
    module_column: int | None
    """Column in the module as it is read, before it is turned; absent in gaps between its chips."""
    module_row: int | None
    """Row in the module."""
    chip: int | None
    """Its chip, counted row by row in the module from 0; absent if the chips are not known."""
    mask: int | None
    """Its bits in the pixel mask of the newest run, as the file has them (docs/formats.md); absent before the first."""
    user_mask: UserMaskState | None


class _PreviousCalibration(TypedDict):
    file: str
    """Its file."""


class PreviousCalibration(_PreviousCalibration, total=False):
    """The calibration that was replaced last."""
    taken: str | None
    """When the oldest of its pedestals of the first stage were taken; null if that is not known."""
    age_s: float | None
    """Seconds since then."""
    problem: CalibrationProblem | None


class _Problem(TypedDict):
    type: str
    """`urn:konkordia:problem:` and the code."""
    title: str
    """The same for all problems with this code."""
    status: int
    """Status of the answer."""
    detail: str
    """What happened here, and why."""
    code: str
    """Code for programs; docs/api.md lists all codes."""


class Problem(_Problem, total=False):
    """What was wrong with a request, or why it could not be carried out."""
    hint: str | None
    """What to do."""
    state: DetectorState | None


class RasterHits(TypedDict):
    """Hits over a raster: one entry of each list for each place of which an image came, row by row."""
    row: list[int]
    """Row of the place, from 0."""
    column: list[int]
    """Column of the place, from 0."""
    analysed: list[int]
    """Images there."""
    hits: list[int]
    """Hits among them."""
    indexed: list[int]
    """Indexed ones among them; empty without an indexing program."""
    not_counted: int
    """Images at further places, beyond the 65536 that are counted."""


class RequestProblem(TypedDict):
    """Something that is wrong with a request."""
    field: str
    """`images`, `prefix`, or `metadata.` and a name; `disk` or `memory` if there is too little of it; `request` if it is about all of it, and `configuration` if it would be wrong with any request."""
    detail: str
    """What is wrong and why."""
    hint: str
    """What to do."""


class ResultName(TypedDict):
    """A result that can be plotted."""
    name: str
    """As in the file and in the images."""
    unit: str
    """Unit of its numbers; empty if it has none."""
    meaning: str
    """What it means, in one line."""


class _ResultPlot(TypedDict):
    detector: str
    """Name of the detector."""
    series: int
    """Number of the run, or of the series as its sender counts it."""
    results: list[ResultName]
    """What can be plotted."""
    profile_axis: list[float]
    """Middle of each bin of the profiles. This and the next two lists are empty if a result is asked for."""
    regions: list[str]
    """Names of the regions, in the order in which the results of an image have them."""
    cake_azimuth_deg: list[float]
    """Middle of each sector of the cakes, degrees."""
    bin_images: int
    """Numbers of images that a bin has. It doubles when 1024 bins do not reach any more."""
    first_image: list[int]
    """Number of the first image of each bin."""
    images: list[int]
    """Images that came."""
    without: list[int]
    """Those among them that have no results: lost, or not analysed."""
    mean: list[float | None]
    """Mean of the result; null where no image has a number."""
    lowest: list[float | None]
    """Its lowest number."""
    highest: list[float | None]
    """Its highest number."""
    time_s: list[float | None]
    """When the first image with results was received, in seconds since the first of all."""


class ResultPlot(_ResultPlot, total=False):
    """One result of all images of the newest run against their number. The lists have an entry for each bin with images."""
    profile_unit: str | None
    """Unit of `profile_axis`; null if there are no profiles."""
    result: str | None
    """Name of the result of which the lists are; absent if none was asked for."""


Role = Literal["view", "operate", "configure"]
"""What somebody may do; each role may do what the ones before it may."""


class RunNeeds(TypedDict, total=False):
    """What a run needs. What is not known is null."""
    images: int | None
    """Images of the run; null: until stopped, or as many as the sender announces."""
    duration_s: float | None
    """Time from the first to the last image, by the time from image to image."""
    file: str | None
    """The file to open."""
    file_bytes: int | None
    """Bytes of its files; 0 if none are written."""
    file_bytes_from: SizeFrom | None
    disk_free_bytes: int | None
    """Free space where they go."""
    fits: bool | None
    """The files fit there."""
    memory_bytes: int | None
    """Memory of its buffers. Of a stream the most that messages on their way may take."""
    rate_hz: float | None
    """Images per second, by the time from image to image."""
    image_size: list[int] | None
    """Rows and columns of an image; null if its sender decides that."""
    dtype: str | None
    """Type of its pixels in the file, as numpy calls it; null if its sender decides that."""
    dataset: str | None
    """Path in the file of the data set that has all images; null if no file is written, if it only has links to its data files, and where the sender decides."""


class _ServiceEvent(TypedDict):
    id: int
    """Grows by one with each event of the service."""
    time: str
    """ISO 8601 with offset."""
    event: str
    """`state`, `run_started`, `setup`, `run_ended`, `file`, `pedestal`, `travel`, `spool`, `refused`, `command`, `consumer`, `adapter` or `alarm`; where there is nothing but a message, `error`, `warning` or `log` by its severity."""
    severity: Severity
    """How bad it is."""
    message: str
    """In words."""
    data: dict[str, Any]
    """More, by event; documented in docs/api.md."""


class ServiceEvent(_ServiceEvent, total=False):
    """Something that happened, for `events` and logs."""
    detector: str | None
    """Detector, if it is about one."""


Severity = Literal["success", "info", "warning", "error"]
"""How bad a message is."""


class _ShapesState(TypedDict):
    detector: str
    """Name of the detector."""
    mask: list[DrawnShape]
    """Pixels in one of these are masked."""
    regions: list[DrawnRegion]
    """Regions whose pixels are summed."""
    applies: str
    """When a change applies: `from the next run on`."""
    in_force: bool
    """True if the newest run has these shapes."""
    notes: list[str]
    """What people should know."""


class ShapesState(_ShapesState, total=False):
    """What is drawn now."""
    masked_pixels: int | None
    """Pixels of the image that the mask has; absent while the size of the images is not known."""
    kept_in: str | None
    """The file in which they are kept; absent if they are lost when the service ends."""
    changed_by: str | None
    """Who changed them last; absent if nobody has."""
    changed_at: str | None
    """When; ISO 8601."""


SizeFrom = Literal["last_run", "uncompressed"]
"""From what the size of the files is known."""


class _SpoolRoom(TypedDict):
    directory: str
    """Its folder."""
    used_bytes: int
    """Bytes in it."""
    limit_bytes: int
    """Most bytes that may lie in it."""


class SpoolRoom(_SpoolRoom, total=False):
    """The spool of a detector."""
    left_s: float | None
    """Seconds until it is full at the present rates; null if it does not fill."""


class _SpoolStatus(TypedDict):
    directory: str
    """Its folder."""
    used_bytes: int
    """Bytes in it."""
    limit_bytes: int
    """Most bytes that may lie in it. When it is full, images wait."""
    files_waiting: int
    """Files that are still to move."""


class SpoolStatus(_SpoolStatus, total=False):
    """The spool of a detector: a place in memory or on a fast disk, from which finished files move to the output folder."""
    drain_bytes_per_s: float | None
    """Bytes per second that left it with the newest file; absent before the first."""
    problem: str | None
    """Why files cannot move now; absent if they can."""


StageChoice = Literal["auto", "g0", "g1", "g2", "hg0", "all"]
"""Gain stage of dark frames."""


ThreadGroup = Literal["receive", "convert", "write", "analyse", "stream", "http", "other"]
"""What a thread does."""


class ThreadLoad(TypedDict):
    """A thread over the last second."""
    name: str
    """Its name."""
    group: ThreadGroup
    """What it does."""
    cores: float
    """Share of a core, 0 to 1."""


class TileOfModule(TypedDict):
    """A tile in the image."""
    column: int
    """First column in the image."""
    row: int
    """First row."""
    columns: int
    """Columns that it takes."""
    rows: int
    """Rows that it takes."""
    flip_rows: bool
    """Its first row is the lowest, before it is turned."""
    rotate_deg: int
    """Turn, clockwise: 0, 90, 180 or 270."""


class _TreeEntry(TypedDict):
    path: str
    """Its path."""
    kind: str
    """`group`, `dataset` or `link`."""


class TreeEntry(_TreeEntry, total=False):
    """One name in a file."""
    shape: list[int] | None
    """Dimensions of a data set, slowest first; empty for a single value."""
    dtype: str | None
    """Type of its values, as numpy writes it; `text` for texts."""
    value: Any
    """The values of a small data set."""
    units: str | None
    """Their unit."""
    target: str | None
    """Where a link leads: `FILE:PATH` into another file."""


UserMaskState = Literal["in_force", "from_next_run", "until_next_run"]
"""Since when, or until when, people have masked a pixel."""


class Version(TypedDict):
    """Versions of the program and of the interface."""
    name: str
    """`konkordia`."""
    version: str
    """Version of the program."""
    api: str
    """Version of this interface, as in its paths."""
    os: str
    """Operating system."""
    arch: str
    """Architecture."""
    instruction_set: str
    """Instruction set of the kernels."""
    uptime_s: float
    """Seconds since the service began."""


class Waited(TypedDict):
    """The result of waiting."""
    done: bool
    """True: the detector is neither armed nor running, or another run has begun. False: the time was over first, or the service is stopping."""
    status: DetectorStatus
    """Its state now."""


ArmAnswer = Union[DryRun, DetectorStatus]
"""The answer to an arm."""


class DrawnShapeRectangle(TypedDict):
    """All between two columns and two rows."""
    column: float
    """Left border."""
    row: float
    """Upper border."""
    columns: float
    """Width."""
    rows: float
    """Height."""
    form: Literal["rectangle"]


class DrawnShapeCircle(TypedDict):
    """All within a radius of a point."""
    x_px: float
    """Column of the centre."""
    y_px: float
    """Row of the centre."""
    radius_px: float
    """Radius."""
    form: Literal["circle"]


class DrawnShapePolygon(TypedDict):
    """All that a closed line encloses an odd number of times."""
    points: list[list[float]]
    """Its corners, x and y; the last is joined to the first."""
    form: Literal["polygon"]


class _DrawnShapeRing(TypedDict):
    inner_radius_px: float
    """Inner radius."""
    radius_px: float
    """Outer radius."""
    form: Literal["ring"]


class DrawnShapeRing(_DrawnShapeRing, total=False):
    """All between two radii."""
    x_px: float | None
    """Column of the centre; without it that of the beam."""
    y_px: float | None
    """Row of the centre; without it that of the beam."""


class _DrawnShapeSector(TypedDict):
    inner_radius_px: float
    """Inner radius."""
    radius_px: float
    """Outer radius."""
    from_deg: float
    """Where it begins, from the direction of increasing columns towards that of increasing rows."""
    width_deg: float
    """How far it reaches from there."""
    form: Literal["sector"]


class DrawnShapeSector(_DrawnShapeSector, total=False):
    """A part of a ring."""
    x_px: float | None
    """Column of the centre; without it that of the beam."""
    y_px: float | None
    """Row of the centre; without it that of the beam."""


DrawnShape = Union[DrawnShapeRectangle, DrawnShapeCircle, DrawnShapePolygon, DrawnShapeRing, DrawnShapeSector]
"""A shape in the image, in pixels."""
