//! `konkordia bench stream`: a generator in a process of its own sends whole images over ZeroMQ on loopback. They pass
//! through the stream path into a file or into nothing. Sizes and settings follow the paper on the streaming-receiver
//! of MAX IV (figures 5 to 8): images per second against image size, then against upstreams ("workers") and I/O threads
//! of ZeroMQ. Each rate is compared with that of a plain loop that only receives, measured in the same run.

use super::args::BenchStreamArgs;
use super::frames::in_folder;
use super::output::Output;
use crate::console;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::ServiceLevel;
use konkordia_core::ports::{Message, MessageSource, SinkError};
use konkordia_core::series::SeriesEnd;
use konkordia_core::text;
use konkordia_engine::deliver::{self, Reports};
use konkordia_engine::output_queue::{ImageSelection, OutputQueueSpec, OutputQueues, PreviewBuffer};
use konkordia_engine::plane::PixelPlane;
use konkordia_engine::series::{self, Notice, Protocol, SeriesSpec, Upstream};
use konkordia_engine::whole_image::{self, WholeImageConsumer, WholeImageSpec, WholeImages};
use konkordia_picture::{Axis, Series as Line};
use konkordia_sinks::hdf5::{FileSink, FileSpec, Overwrite, Reader, SeriesFileSpec};
use konkordia_sources::zmq::{ZmqSource, ZmqSourceSpec, context};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Images per second of the MAX IV streaming-receiver, on a machine like that of this project's figures (2 cores AMD
/// EPYC): bytes of an image, rate into a file on tmpfs, rate without a file.
const PEER: [(u64, f64, f64); 4] =
    [(20_000, 1793.0, 25_200.0), (200_000, 1531.0, 8800.0), (2_000_000, 532.0, 1214.0), (20_000_000, 84.0, 135.0)];
/// Memory of the images that wait in a listening socket.
const QUEUE_BYTES: u64 = 64 << 20;
/// Nothing takes longer than this, and this for each image, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
const SLOWEST_IMAGE: Duration = Duration::from_micros(200);

/// `konkordia bench stream`
pub fn command(args: &BenchStreamArgs) -> Result<Exit, Failure> {
    if let Some(png) = &args.png {
        konkordia_picture::png_path(png)?;
    }
    let output = Output::open(&args.output, "stream")?;
    konkordia_sources::zmq::keep_memory_of_messages();
    in_folder(args.dir.as_deref(), |folder| {
        let mut rows = Vec::new();
        for &size in &args.sizes {
            for sink in [Sink::File, Sink::Nothing].into_iter().chain(args.whole_images.then_some(Sink::WholeImages)) {
                rows.push(Row::measure(args, folder, Setting { size, sink, upstreams: 1, io_threads: 1 })?);
            }
        }
        for (&upstreams, &io_threads) in args.workers.iter().flat_map(|w| args.io_threads.iter().map(move |t| (w, t))) {
            if (upstreams, io_threads) != (1, 1) {
                for &size in &args.matrix_sizes {
                    rows.push(Row::measure(args, folder, Setting { size, sink: Sink::Nothing, upstreams, io_threads })?);
                }
            }
        }
        let verified = rows.iter().all(|row| row.verified);
        if let Some(png) = &args.png {
            draw(&rows).write(png)?;
        }
        let lines: Vec<Value> = rows.iter().map(Row::to_json).collect();
        let report = json!({ "machine": machine::facts(), "repeats": args.repeats, "rows": lines, "verified": verified });
        output.print(report, &to_text(&rows, args.repeats));
        Ok(if verified { Exit::Complete } else { Exit::Bug })
    })
}

/// Where images go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// To a file.
    File,
    /// Counted and thrown away.
    Nothing,
    /// A consumer of whole images, which reads all pixels of those for which it has time.
    WholeImages,
}

impl Sink {
    /// Name in tables.
    const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Nothing => "nothing",
            Self::WholeImages => "whole images",
        }
    }
}

/// A series and its way.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Bytes of an image.
    pub size: u64,
    /// Where the images go.
    pub sink: Sink,
    /// Connections.
    pub upstreams: usize,
    /// Threads of ZeroMQ.
    pub io_threads: usize,
}

impl Setting {
    /// Number of images: about the same amount of data for each size, but not so many small images that it takes long.
    fn images(&self, args: &BenchStreamArgs) -> u64 {
        ((args.mib << 20) / self.size).clamp(50, args.images_max)
    }

    fn name(&self) -> String {
        format!(
            "{} bytes{}, {} x {}",
            self.size,
            if self.sink == Sink::Nothing { String::new() } else { format!(" to {}", self.sink.name()) },
            self.upstreams,
            self.io_threads
        )
    }
}

struct Row {
    setting: Setting,
    images: u64,
    /// Images per second: mean and standard error of the repeats.
    rate_hz: (f64, f64),
    /// The same for the loop that only receives.
    plain_hz: (f64, f64),
    /// The same for a loop that only writes images of this size to one file; only where there is a file.
    write_hz: Option<(f64, f64)>,
    /// Images that a consumer of whole images has seen in the last repeat.
    seen: u64,
    verified: bool,
}

impl Row {
    fn measure(args: &BenchStreamArgs, folder: &Path, setting: Setting) -> Result<Self, Failure> {
        let images = setting.images(args);
        let (mut rates, mut plain, mut written, mut seen, mut verified) = (Vec::new(), Vec::new(), Vec::new(), 0, true);
        for repeat in 0..args.repeats.max(1) {
            console::Progress::new(args.output.json).update(|| format!("{}, repeat {}", setting.name(), repeat + 1));
            let received = receive(folder, setting, images)?;
            rates.push(received.rate_hz);
            seen = received.seen;
            verified &= received.is_right;
            plain.push(receive_only(setting, images)?);
            if setting.sink == Sink::File {
                written.push(write_only(folder, setting, images)?);
            }
        }
        let write_hz = (!written.is_empty()).then(|| mean_and_error(&written));
        Ok(Self { setting, images, rate_hz: mean_and_error(&rates), plain_hz: mean_and_error(&plain), write_hz, seen, verified })
    }

    /// The rate, of that of the slower one of plain receiving and plain writing.
    fn over_slower(&self) -> f64 {
        self.rate_hz.0 / self.write_hz.map_or(self.plain_hz.0, |write_hz| write_hz.0.min(self.plain_hz.0))
    }

    fn gigabytes_per_second(&self) -> f64 {
        self.rate_hz.0 * self.setting.size as f64 / 1e9
    }

    /// Images per second of the MAX IV streaming-receiver at this size.
    fn peer_hz(&self) -> Option<f64> {
        let peer = PEER
            .iter()
            .find(|peer| peer.0 == self.setting.size && (self.setting.upstreams, self.setting.io_threads) == (1, 1))?;
        match self.setting.sink {
            Sink::File => Some(peer.1),
            Sink::Nothing => Some(peer.2),
            Sink::WholeImages => None,
        }
    }

    fn to_json(&self) -> Value {
        let Setting { size, sink, upstreams, io_threads } = self.setting;
        json!({
            "name": self.setting.name(), "image_bytes": size, "file": sink == Sink::File, "upstreams": upstreams, "io_threads": io_threads,
            "images": self.images, "rate_hz": self.rate_hz.0, "rate_error_hz": self.rate_hz.1,
            "gigabytes_per_second": self.gigabytes_per_second(), "plain_receive_hz": self.plain_hz.0,
            "over_plain_receive": self.rate_hz.0 / self.plain_hz.0, "over_peer": self.peer_hz().map(|peer| self.rate_hz.0 / peer),
            "plain_write_hz": self.write_hz.map(|write_hz| write_hz.0), "over_slower": self.over_slower(),
            "seen": (sink == Sink::WholeImages).then_some(self.seen), "verified": self.verified,
        })
    }
}

/// Mean and standard error.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 })
}

fn failed(what: &str, why: impl ToString) -> Failure {
    Failure::new(Exit::Io, what, why.to_string(), "look at the lines above; another program may use the machine")
}

/// Listening sockets, one per upstream, on free ports.
fn listen(setting: Setting) -> Result<Vec<ZmqSource>, Failure> {
    let context = context(setting.io_threads).map_err(|why| failed("no context for ZeroMQ", why))?;
    let queue_messages = (QUEUE_BYTES / setting.size).clamp(2, 1000) as i32;
    let spec = ZmqSourceSpec { bind: true, queue_messages, ..ZmqSourceSpec::pull("tcp://127.0.0.1:*") };
    let open = |_| ZmqSource::open(&context, &spec).map_err(|why| failed("cannot listen", why));
    (0..setting.upstreams).map(open).collect()
}

/// The generator, in a process of its own.
struct Generator(Child);

impl Generator {
    fn start(setting: Setting, images: u64, to: &[String]) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|why| failed("the path of this program is unknown", why))?;
        let mut command = Command::new(program);
        command.args(["stream", "--protocol", "stins", "--rate", "0", "--compression", "none", "--quiet", "--json", "--connect"]);
        command.args(["--size", &setting.size.to_string(), "--images", &images.to_string(), "--filename", "bench"]);
        command.args(["--upstreams", &setting.upstreams.to_string(), "--to"]).args(to);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
        child.map(Self).map_err(|why| failed("the generator does not start", why))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // It has already ended if all is well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What came of one series.
pub struct Received {
    /// Images per second, from the start of the series until its end (with a file: until the file is closed).
    pub rate_hz: f64,
    /// Seconds from the end of the series until the file is closed; 0 without a file.
    pub closing_seconds: f64,
    /// Images that the consumer of whole images has seen.
    seen: u64,
    /// Everything arrived, and is where it belongs.
    pub is_right: bool,
}

/// Looks at every pixel.
#[derive(Default)]
struct Brightest(u8);

impl WholeImageConsumer for Brightest {
    fn plane(&mut self, plane: &PixelPlane<'_>) {
        self.0 = self.0.max(plane.bytes.iter().copied().max().unwrap_or(0));
    }
}

/// The queue and thread of [`Brightest`], as time allows.
fn look(output_queues: &OutputQueues, setting: Setting) -> Result<WholeImages, Failure> {
    let selection = ImageSelection { every_images: 1, interval: Duration::ZERO };
    let plane_bytes_max = usize::try_from(setting.size).unwrap_or(usize::MAX);
    let spec = WholeImageSpec { name: "pixels".into(), selection, queue_images: 1, plane_bytes_max };
    let spawned = whole_image::spawn(output_queues, spec, Brightest::default());
    spawned.map_err(|why| failed("no thread for the consumer of whole images", why))
}

/// Sends one series through the stream path.
///
/// # Errors
/// If the generator does not start, the series stalls, or the file cannot be written.
pub fn receive(folder: &Path, setting: Setting, images: u64) -> Result<Received, Failure> {
    let sources = listen(setting)?;
    let addresses: Vec<String> = sources.iter().map(MessageSource::name).collect();
    let spec = SeriesSpec { bounds: Default::default(), ..SeriesSpec::new(Protocol::Stins) };
    let decoder = || series::protocols::decoder(Protocol::Stins, spec.bounds);
    let upstreams = sources.into_iter().map(|source| Upstream { source: Box::new(source), decoder: decoder() }).collect();
    let output_queues = Arc::new(OutputQueues::new(Some(Arc::new(PreviewBuffer::new(1, 1 << 30)))));
    let queue = OutputQueueSpec {
        name: "file".into(),
        service: ServiceLevel::Reliable,
        queue_images: 1024,
        queue_bytes: QUEUE_BYTES,
        borrows: false,
    };
    let reader = (setting.sink == Sink::File).then(|| output_queues.add(queue));
    let mut looker = (setting.sink == Sink::WholeImages).then(|| look(&output_queues, setting)).transpose()?;
    let series = series::open(spec, upstreams, Arc::clone(&output_queues)).map_err(|why| failed("cannot receive", why))?;
    let at_file = Arc::<AtFile>::default();
    let thread = reader.map(|reader| {
        let (control, reports) = (series.control(), FileReports(Arc::clone(&at_file)));
        deliver::spawn("file", reader, file_sink(folder), reports, move || control.now_ns())
    });
    let thread = thread.transpose().map_err(|why| failed("no thread for the file", why))?;
    let generator = Generator::start(setting, images, &addresses)?;
    let begin = wait_for(&series, 0, |notice| matches!(notice, Notice::Started(_)).then(Instant::now))?;
    let end = wait_for(&series, images, |notice| match notice {
        Notice::Ended(end) => Some(Arc::clone(end)),
        _ => None,
    })?;
    let closing = Instant::now();
    while setting.sink == Sink::File && !at_file.is_closed.load(Ordering::Acquire) {
        if let Some(error) = at_file.error.get() {
            return Err(failed("the file cannot be written", error));
        }
        if closing.elapsed() > PATIENCE {
            return Err(failed("the file was not closed", "it takes too long"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let closing_seconds = if setting.sink == Sink::File { closing.elapsed().as_secs_f64() } else { 0.0 };
    let rate_hz = images as f64 / begin.elapsed().as_secs_f64();
    drop(generator);
    for name in ["file", "pixels"] {
        output_queues.remove(name);
    }
    thread.map(JoinHandle::join);
    let has_panicked = looker.as_mut().is_some_and(|looker| looker.join().is_some());
    let (seen, skipped) = looker.as_ref().map_or((0, 0), |looker| (looker.seen(), looker.skipped()));
    let is_whole = end.ledger.images.complete == images && end.ledger.imbalances().is_empty();
    let is_right = is_whole
        && match setting.sink {
            Sink::Nothing => true,
            Sink::File => file_is_right(folder, images, &output_queues),
            Sink::WholeImages => seen > 0 && seen + skipped == images && !has_panicked,
        };
    let is_right = is_right && looker.is_none_or(|looker| looker.unreadable() == 0);
    Ok(Received { rate_hz, closing_seconds, seen, is_right })
}

fn wait_for<T>(series: &series::Series, images: u64, wanted: impl Fn(&Notice) -> Option<T>) -> Result<T, Failure> {
    let until = Instant::now() + PATIENCE + SLOWEST_IMAGE * u32::try_from(images).unwrap_or(u32::MAX);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match series.notices().recv_timeout(left) {
            Ok(notice) => {
                if let Some(found) = wanted(&notice) {
                    return Ok(found);
                }
            }
            Err(_) => {
                return Err(failed("the series has stalled", "it has not ended in the time that even a slow machine needs"));
            }
        }
    }
}

/// What happened at the file.
#[derive(Default)]
struct AtFile {
    is_closed: AtomicBool,
    error: OnceLock<SinkError>,
}

struct FileReports(Arc<AtFile>);

impl Reports for FileReports {
    fn failed(&mut self, error: &SinkError, _: u64) {
        let _ = self.0.error.set(error.clone());
    }

    fn ended(&mut self, _: &Arc<SeriesEnd>, _: u64) {
        self.0.is_closed.store(true, Ordering::Release);
    }
}

fn file_sink(folder: &Path) -> FileSink {
    let directory = folder.to_path_buf();
    FileSink::of_series(Box::new(move |_| {
        let (directory, overwrite) = (directory.clone(), Overwrite::Replace);
        let file = FileSpec { directory, prefix: "bench".into(), images_per_file: 100_000, overwrite, ..FileSpec::default() };
        let spec = SeriesFileSpec { file, to_disk: konkordia_sinks::durable::ToDisk::Never, clock: None };
        Ok(Some(spec.into()))
    }))
}

/// True if every position has an image and the last one is equal to the one that was received.
fn file_is_right(folder: &Path, images: u64, output_queues: &OutputQueues) -> bool {
    let last = output_queues.preview().and_then(|preview| preview.look(None, Instant::now()));
    let (Ok(reader), Some(last)) = (Reader::open(&folder.join("bench_master.h5")), last) else { return false };
    let summary = reader.summary();
    let mut chunk = Vec::new();
    let is_there = reader.read_chunk(images - 1, &mut chunk).unwrap_or(false);
    let received = last.image().channels.first().and_then(|channel| channel.array.pieces.first());
    summary.images == images
        && last.image().number == images - 1
        && is_there
        && received.is_some_and(|bytes| bytes[..] == chunk[..])
}

/// The same messages received and thrown away: images per second from the first message to the last image.
fn receive_only(setting: Setting, images: u64) -> Result<f64, Failure> {
    let mut sources = listen(setting)?;
    // The queue that the stream path asks for too.
    sources.iter_mut().for_each(|source| source.bound(setting.size, QUEUE_BYTES));
    let addresses: Vec<String> = sources.iter().map(MessageSource::name).collect();
    let generator = Generator::start(setting, images, &addresses)?;
    let (mut begin, mut count) = (None, 0);
    let (mut messages, started): (Vec<Message>, _) = (Vec::new(), Instant::now());
    // A start and an end message come in addition to the images.
    while count < images + 2 {
        let patience = if sources.len() == 1 { Duration::from_millis(100) } else { Duration::ZERO };
        for source in &mut sources {
            source.receive(patience, 256, &mut messages).map_err(|why| failed("cannot receive", why))?;
            if !messages.is_empty() {
                begin.get_or_insert_with(Instant::now);
            }
            count += messages.len() as u64;
            messages.clear();
        }
        if started.elapsed() > PATIENCE {
            return Err(failed("the generator has stalled", format!("{count} messages arrived")));
        }
    }
    let seconds = begin.map_or(f64::NAN, |begin: Instant| begin.elapsed().as_secs_f64());
    drop(generator);
    Ok(images as f64 / seconds)
}

/// Images per second of a loop that only writes the same bytes to one file.
fn write_only(folder: &Path, setting: Setting, images: u64) -> Result<f64, Failure> {
    let path = folder.join("plain");
    let cannot = |error: std::io::Error| Failure::io("cannot write", &path, &error);
    let image = vec![7; setting.size as usize];
    let begin = Instant::now();
    let mut file = std::fs::File::create(&path).map_err(cannot)?;
    for _ in 0..images {
        file.write_all(&image).map_err(cannot)?;
    }
    drop(file);
    let seconds = begin.elapsed().as_secs_f64();
    std::fs::remove_file(&path).map_err(cannot)?;
    Ok(images as f64 / seconds)
}

fn to_text(rows: &[Row], repeats: usize) -> String {
    let head = [
        "image",
        "to",
        "upstreams x I/O threads",
        "images",
        "images/s",
        "GB/s",
        "ratio to plain",
        "ratio to slower",
        "ratio to peer",
        "output",
    ];
    let line = |row: &Row| {
        let Setting { size, sink, upstreams, io_threads } = row.setting;
        vec![
            text::bytes(size),
            if sink == Sink::WholeImages { format!("{} ({} seen)", sink.name(), row.seen) } else { sink.name().into() },
            format!("{upstreams} x {io_threads}"),
            text::count(row.images),
            format!("{:.0} ± {:.0}", row.rate_hz.0, row.rate_hz.1),
            format!("{:.2}", row.gigabytes_per_second()),
            format!("{:.2}", row.rate_hz.0 / row.plain_hz.0),
            format!("{:.2}", row.over_slower()),
            row.peer_hz().map_or("".into(), |peer| format!("{:.1}", row.rate_hz.0 / peer)),
            if row.verified { "whole" } else { "WRONG" }.into(),
        ]
    };
    let head = head.map(str::to_string).to_vec();
    let table = text::table(&std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<_>>());
    format!(
        "{table}\n\nmean and standard error of {repeats} repeats; generator, ZeroMQ and receiver on the same cores, over loopback; a rate to a file includes creating and closing it; plain: a loop that only receives; slower: the slower one of that loop and of a loop that only writes the same bytes to one file; peer: the streaming-receiver of MAX IV"
    )
}

/// Images per second against bytes of an image.
fn draw(rows: &[Row]) -> konkordia_picture::Picture {
    let points = |wanted: &dyn Fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter()
            .filter(|row| (row.setting.upstreams, row.setting.io_threads) == (1, 1))
            .filter_map(|row| Some((row.setting.size as f64, wanted(row)?)))
            .collect()
    };
    let of =
        |sink: Sink, value: fn(&Row) -> Option<f64>| points(&move |row| (row.setting.sink == sink).then(|| value(row)).flatten());
    let own: fn(&Row) -> Option<f64> = |row| Some(row.rate_hz.0);
    let peer: fn(&Row) -> Option<f64> = Row::peer_hz;
    let lines = [
        ("file", of(Sink::File, own)),
        ("no file", of(Sink::Nothing, own)),
        ("plain receiving", of(Sink::Nothing, |row| Some(row.plain_hz.0))),
        ("streaming-receiver, file", of(Sink::File, peer)),
        ("streaming-receiver, no file", of(Sink::Nothing, peer)),
    ];
    let series: Vec<Line<'_>> = lines.into_iter().map(|(name, points)| Line { name, points, line: true }).collect();
    let axis = |label| Axis { label, log: true };
    konkordia_picture::chart("Whole images over ZeroMQ, loopback", &axis("bytes of an image"), &axis("images/s"), &series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_mean_shrinks_with_the_root_of_the_count() {
        assert_eq!(mean_and_error(&[3.0]), (3.0, 0.0));
        let (mean, error) = mean_and_error(&[1.0, 3.0, 1.0, 3.0]);
        assert_eq!(mean, 2.0);
        assert!((error - (4.0f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
    }
}
