use super::*;
use konkordia_core::ports::{Source, TilePlaces};
use konkordia_core::sender::Sender;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::{DetectorKind, TileFormat};
use konkordia_wire::sls_file::RECORD_HEADER_BYTES;
use konkordia_wire::sls_udp::{HEADER_BYTES, Packet, write_header};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// A record as the slsReceiver writes it: packets of `lost` are padding.
fn record(format: &TileFormat, header_bytes: usize, port: u16, frame: u64, lost: &[u16]) -> Vec<u8> {
    let mut bytes = vec![0u8; RECORD_HEADER_BYTES];
    let header =
        SlsHeader { frame_number: frame, timestamp_100ns: frame * 10, module_id: 100 + port, row: port, ..SlsHeader::default() };
    write_header(&header, DetectorKind::Jungfrau, (format.packets() as usize - lost.len()) as u16, &mut bytes);
    for packet in (0..format.packets() as u16).filter(|p| !lost.contains(p)) {
        bytes[HEADER_BYTES + usize::from(packet) / 8] |= 1 << (packet % 8);
    }
    bytes.truncate(header_bytes);
    if header_bytes == 16 {
        bytes[8..16].fill(0);
    }
    for packet in 0..format.packets() as u16 {
        let fill =
            if lost.contains(&packet) { 0xFF } else { (frame as u8).wrapping_mul(31).wrapping_add(packet as u8 & 0x7F) & 0x7F };
        bytes.extend(std::iter::repeat_n(fill, format.payload_bytes as usize));
    }
    bytes
}

fn master(ports: (u32, u32), interfaces: u32, per_file: u64, frames: u64) -> String {
    let rows = 512 / interfaces;
    serde_json::json!({
        "Version": 7.2, "Detector Type": "Jungfrau", "Geometry": { "x": ports.0, "y": ports.1 }, "Image Size in bytes": rows * 2048,
        "Pixels": { "x": 1024, "y": rows }, "Max Frames Per File": per_file, "Total Frames": frames,
        "Number of UDP Interfaces": interfaces, "Frames in File": frames
    })
    .to_string()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn open(paths: &[PathBuf]) -> Result<Input, Failure> {
    Input::open(paths, &Options::default())
}

fn refused(paths: &[PathBuf]) -> String {
    open(paths).err().expect("must be refused").to_string()
}

fn frames(reader: &dyn TileReader) -> Vec<u64> {
    (0..reader.len()).map(|n| reader.frame_number(n)).collect()
}

/// Writes frames in files of `per_file` for each port. Of frame `f`, packet `f % 64` is lost.
fn acquisition(folder: &Folder, interfaces: u32, ports: u32, per_file: u64, list: &[u64]) -> PathBuf {
    let format = TileFormat::jungfrau(interfaces).unwrap();
    for port in 0..ports {
        for (file, part) in list.chunks(per_file as usize).enumerate() {
            let bytes: Vec<u8> = part.iter().flat_map(|f| record(&format, 112, port as u16, *f, &[*f as u16 % 64])).collect();
            folder.write(&format!("run_d{port}_f{file}_3.raw"), bytes);
        }
    }
    folder.write("run_master_3.json", master((1, ports), interfaces, per_file, list.len() as u64))
}

#[test]
fn an_acquisition_is_found_from_its_master_or_any_of_its_files() {
    let folder = Folder::new();
    let list = [10, 11, 12, 14, 15];
    let path = acquisition(&folder, 2, 2, 2, &list);
    folder.write("other_d0_f0_3.raw", "not of this acquisition");
    let data = folder.0.path().join("run_d1_f2_3.raw");
    let by_data = open(std::slice::from_ref(&data)).unwrap().info().identity.clone();
    let input = open(std::slice::from_ref(&path)).unwrap();
    let info = input.info();
    assert_eq!((info.modules, info.interfaces, input.tiles(), info.identity == by_data), (1, 2, 2, true));
    assert_eq!((info.first_frame, info.last_frame, info.frames_found, info.frames_expected), (10, 15, 5, Some(5)));
    assert_eq!((info.raw_bytes, info.module_ids.clone(), info.incomplete), (10 << 19, vec![100, 101], false));
    assert_eq!(info.notes, ["1 frame numbers between 10 and 15 are in no file; these images will be lost images"]);
    let mut reader = input.open_tile(1);
    assert_eq!(frames(&*reader), list);
    let format = info.format;
    let mut tile = vec![0; format.tile_bytes() as usize];
    // Backwards too, across files.
    for n in [0, 1, 2, 4, 3, 0] {
        let frame = reader.read(n, &mut tile).unwrap();
        let expected = record(&format, 112, 1, list[n], &[list[n] as u16]);
        assert_eq!((frame.header.frame_number, frame.header.row, frame.bitmap.count()), (list[n], 1, 63));
        assert!(!frame.bitmap.has(list[n] as u16) && tile == expected[112..]);
    }
}

#[test]
fn a_source_hands_out_the_packets_that_were_caught() {
    let folder = Folder::new();
    let format = TileFormat::jungfrau(1).unwrap();
    let all: Vec<u16> = (0..128).collect();
    let bytes =
        [record(&format, 112, 0, 5, &[3, 127]), record(&format, 112, 0, 6, &all), record(&format, 112, 0, 7, &[])].concat();
    folder.write("run_d0_f0_0.raw", &bytes);
    let input = open(&[folder.write("run_master_0.json", master((1, 1), 1, 0, 3))]).unwrap();
    let mut source = source::FileSource::new(input.open_tile(0), format);
    let mut got: Vec<(u64, u16)> = Vec::new();
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(
            source
                .receive(Duration::ZERO, &mut |datagram, _| {
                    let packet = Packet::new_checked(datagram, &format).unwrap();
                    let h = packet.frame_header();
                    let place = (h.frame_number - 5) as usize * (112 + (1 << 20)) + 112 + usize::from(packet.packet()) * 8192;
                    assert!(packet.payload() == &bytes[place..place + 8192], "pixels of packet {}", packet.packet());
                    assert_eq!((h.timestamp_100ns, h.module_id), (h.frame_number * 10, 100));
                    got.push((h.frame_number, packet.packet()));
                })
                .unwrap(),
        );
    }
    assert_eq!(counts, [126, 128, 0, 0], "a frame without packets is not the end");
    assert!(!got.contains(&(5, 3)) && got.contains(&(5, 4)) && got.len() == 254);
    let mut later = source::FileSource::new(input.open_tile(0), format).start_at(7);
    assert_eq!(later.receive(Duration::ZERO, &mut |_, _| {}).unwrap(), 128);
    assert_eq!(later.receive(Duration::ZERO, &mut |_, _| {}).unwrap(), 0);
}

/// Lends memory of its own for every frame, or for none.
#[derive(Default)]
struct Places {
    format: Option<TileFormat>,
    tile: Vec<u8>,
    lent: Option<u64>,
    datagrams: Vec<Vec<u8>>,
    filled: usize,
}

impl TilePlaces for Places {
    fn lend(&mut self, frame_number: u64, packets: std::ops::Range<u16>) -> Option<&mut [u8]> {
        self.lent = Some(frame_number);
        let bytes = packets.len() * self.format?.payload_bytes as usize;
        self.tile = vec![0xAA; bytes];
        Some(&mut self.tile)
    }

    fn filled(&mut self, packet: u16, head: &[u8], payload_bytes: usize, sender: Sender) {
        let payload = &self.tile[usize::from(packet) * payload_bytes..][..payload_bytes];
        self.take(&[head, payload].concat(), sender);
        self.filled += 1;
    }

    fn take(&mut self, datagram: &[u8], _: Sender) {
        self.datagrams.push(datagram.to_vec());
    }
}

#[test]
fn a_source_fills_the_tiles_that_are_lent_with_what_it_would_hand_out() {
    for header_bytes in [112, 48, 16] {
        let folder = Folder::new();
        let whole = TileFormat::jungfrau(1).unwrap();
        let bytes: Vec<u8> = [(7, &[3, 127][..]), (8, &[]), (9, &[60])]
            .iter()
            .flat_map(|(frame, missing)| record(&whole, header_bytes, 0, *frame, missing))
            .collect();
        let input = open(&[folder.write("run_d0_f0_0.raw", &bytes)]).unwrap();
        let format = input.info().format;
        let source = || source::FileSource::new(input.open_tile(0), format.of_tile(0));
        let mut copied = Vec::new();
        let mut copying = source();
        while copying.receive(Duration::ZERO, &mut |datagram, _| copied.push(datagram.to_vec())).unwrap() > 0 {}
        for lends in [true, false] {
            let mut places = Places { format: lends.then_some(format), ..Places::default() };
            let mut filling = source();
            let filling = filling.filling().expect("files can fill tiles");
            let mut counts = Vec::new();
            for _ in 0..4 {
                counts.push(filling.receive_into(Duration::ZERO, &mut places).unwrap());
            }
            assert_eq!((counts.iter().sum::<usize>(), counts[3]), (copied.len(), 0));
            assert!(places.datagrams == copied, "{header_bytes} bytes");
            assert_eq!((places.lent, places.filled), (Some(9), if lends { copied.len() } else { 0 }));
        }
    }
}

#[test]
fn bare_files_are_known_by_their_headers() {
    for (header_bytes, interfaces) in [(112, 1), (112, 2), (48, 1), (48, 2), (16, 1), (16, 2)] {
        let folder = Folder::new();
        let format = TileFormat::jungfrau(interfaces).unwrap();
        let file = |port: u16| {
            let bytes: Vec<u8> = (7..9).flat_map(|f| record(&format, header_bytes, port, f, &[1])).collect();
            folder.write(&format!("run_d{port}_f0_0.raw"), bytes)
        };
        // In the wrong order: names or headers say which is which.
        let paths: Vec<PathBuf> = (0..interfaces as u16).rev().map(file).collect();
        let input = open(&paths).unwrap_or_else(|e| panic!("{header_bytes} bytes, {interfaces} interfaces: {e}"));
        let info = input.info();
        assert!(info.kind.contains(&format!("{header_bytes} bytes")), "{}", info.kind);
        assert_eq!((info.modules, info.interfaces, info.first_frame, info.frames_found), (1, interfaces, 7, 2));
        let mut tile = vec![0; format.tile_bytes() as usize];
        for port in 0..interfaces {
            let frame = input.open_tile(port as usize).read(1, &mut tile).unwrap();
            assert_eq!((frame.header.frame_number, frame.bitmap.count()), (8, format.packets() - 1), "padding is no packet");
            assert_eq!(frame.header.row, if header_bytes == 16 { 0 } else { port as u16 });
        }
    }
}

#[test]
fn headers_say_which_tile_where_names_do_not() {
    let folder = Folder::new();
    let format = TileFormat::jungfrau(2).unwrap();
    let file = |name: &str, port, frame| folder.write(name, record(&format, 48, port, frame, &[]));
    let input = open(&[file("lower.bin", 1, 1), file("upper.bin", 0, 1), file("upper2.bin", 0, 2)]).unwrap();
    let info = input.info();
    assert_eq!((info.modules, info.module_ids.clone(), info.frames_found), (1, vec![100, 101], 2));
    assert!(info.notes[0].starts_with("port at row 1, column 0: 1 of 2 frames are missing"), "{:?}", info.notes);
    assert!(refused(&[folder.0.path().join("upper.bin")]).contains("do not make whole modules"));
}

#[test]
fn halves_of_two_modules_are_no_module() {
    let folder = Folder::new();
    let format = TileFormat::jungfrau(2).unwrap();
    let file = |port: u16| folder.write(&format!("run_d{port}_f0_0.raw"), record(&format, 112, port, 1, &[]));
    let files: Vec<PathBuf> = (0..5).map(file).collect();
    for (a, b) in [(0, 2), (1, 2), (0, 3)] {
        let text = refused(&[files[a].clone(), files[b].clone()]);
        assert!(text.contains(&format!("ports {a} and {b} are halves of different modules")), "{text}");
    }
    assert_eq!(open(&[files[3].clone(), files[2].clone()]).unwrap().info().modules, 1, "module 1 alone");
}

#[test]
fn a_name_with_the_largest_number_stops_nothing() {
    let folder = Folder::new();
    let path = acquisition(&folder, 1, 1, 10, &[1, 2]);
    let format = TileFormat::jungfrau(1).unwrap();
    folder.write(&format!("run_d0_f{}_3.raw", u64::MAX), record(&format, 112, 0, 3, &[]));
    let input = open(&[path]).unwrap();
    assert!(input.info().incomplete && input.info().frames_found == 3, "{:?}", input.info().notes);
}

#[test]
fn plain_words_are_frames_of_all_modules() {
    let folder = Folder::new();
    let frame = |n: u8| [vec![n; 1 << 20], vec![n + 1; 1 << 20]].concat();
    let mut last = frame(5);
    last[3 * 8192..4 * 8192].fill(0xFF);
    let paths = [folder.write("a.u16", [frame(1), frame(3)].concat()), folder.write("b.u16", last)];
    let options = Options { modules: Some(2), ..Options::default() };
    let input = Input::open(&paths, &options).unwrap();
    assert_eq!((input.tiles(), input.info().frames_found, input.info().first_frame), (2, 3, 1));
    let mut tile = vec![0; 1 << 20];
    for (tile_number, n, value, packets) in [(0, 0, 1, 128), (1, 1, 4, 128), (1, 2, 6, 128), (0, 2, 5, 127)] {
        let frame = input.open_tile(tile_number).read(n, &mut tile).unwrap();
        assert_eq!((frame.header.frame_number, tile[0], frame.bitmap.count()), (n as u64 + 1, value, packets));
    }
    let one = Options { modules: Some(3), ..Options::default() };
    assert!(Input::open(&paths, &one).err().unwrap().to_string().contains("frames of 3 module(s)"));
    let cut = folder.write("cut.u16", &frame(1)[..(2 << 20) - 1]);
    assert!(refused(std::slice::from_ref(&cut)).contains("has an unknown format"));
    let forced = Input::open(&[cut], &Options { format: Some(Format::U16), ..Options::default() }).unwrap();
    assert_eq!((forced.info().frames_found, forced.info().incomplete), (1, true));
    assert!(forced.info().notes[0].contains("cut off after 1048575 bytes"));
}

#[test]
fn what_is_missing_is_said() {
    let folder = Folder::new();
    let path = acquisition(&folder, 1, 3, 2, &[1, 2, 3, 4, 5]);
    fs::remove_file(folder.0.path().join("run_d1_f1_3.raw")).unwrap();
    for file in 0..3 {
        fs::remove_file(folder.0.path().join(format!("run_d2_f{file}_3.raw"))).unwrap();
    }
    let cut = folder.0.path().join("run_d0_f2_3.raw");
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    let input = open(std::slice::from_ref(&path)).unwrap();
    let info = input.info();
    let all = info.notes.join("\n");
    assert!(info.incomplete && info.frames_found == 5, "{all}");
    for part in [
        "port 1: 1 of 3 data files are missing, the first is _d1_f1_",
        "port 2: none of its data files is there",
        "run_d0_f2_3.raw: the last frame is cut off after 1048687 bytes",
        "port 0: 1 of 5 frames are missing, the first is frame 5",
        "port 1: 2 of 5 frames are missing, the first is frame 3",
        "port 2: 5 of 5 frames",
    ] {
        assert!(all.contains(part), "{part} in:\n{all}");
    }
    for port in 0..2 {
        for file in 0..3 {
            let _ = fs::write(folder.0.path().join(format!("run_d{port}_f{file}_3.raw")), "");
        }
    }
    assert!(refused(std::slice::from_ref(&path)).contains("there is no frame in the input"));
    for port in 0..2 {
        for file in 0..3 {
            let _ = fs::remove_file(folder.0.path().join(format!("run_d{port}_f{file}_3.raw")));
        }
    }
    assert!(refused(&[path]).contains("has no data files"));
}

/// Receivers start a new file after a fixed number of records: a port that lost whole frames may have one file less
/// than the others.
#[test]
fn a_port_with_lost_frames_may_have_fewer_files() {
    let folder = Folder::new();
    let path = acquisition(&folder, 1, 2, 2, &[1, 2, 3, 4, 5]);
    fs::remove_file(folder.0.path().join("run_d1_f2_3.raw")).unwrap();
    let input = open(&[path]).unwrap();
    let all = input.info().notes.join("\n");
    assert!(all.contains("port 1 ends with file 2 of 3: 1 files are missing, or frames of this port never came"), "{all}");
    assert!(all.contains("port 1: 1 of 5 frames are missing, the first is frame 5"), "{all}");
}

#[test]
fn bare_files_of_two_acquisitions_are_refused() {
    let folder = Folder::new();
    let format = TileFormat::jungfrau(1).unwrap();
    let write =
        |name: &str, port| folder.write(name, [record(&format, 112, port, 1, &[]), record(&format, 112, port, 2, &[])].concat());
    let first = write("a_d0_f0_3.raw", 0);
    for other in ["a_d1_f0_4.raw", "b_d1_f0_3.raw"] {
        assert!(refused(&[first.clone(), write(other, 1)]).contains("several acquisitions"), "{other}");
    }
    assert_eq!(open(&[first.clone(), write("a_d1_f0_3.raw", 1)]).unwrap().tiles(), 2);
}

#[test]
fn order_doubles_damage_and_ranges() {
    let folder = Folder::new();
    let format = TileFormat::jungfrau(1).unwrap();
    let mut bytes: Vec<u8> = [4u64, 3, 3, 9].iter().flat_map(|f| record(&format, 112, 0, *f, &[])).collect();
    bytes[3 * (112 + (1 << 20)) + 46] = 9;
    folder.write("run_d0_f0_0.raw", &bytes);
    let path = folder.write("run_master_0.json", master((1, 1), 1, 0, 4));
    let input = open(std::slice::from_ref(&path)).unwrap();
    let all = input.info().notes.join("\n");
    assert_eq!(frames(&*input.open_tile(0)), [3, 4]);
    for part in [
        "not in order (1 steps back)",
        "1 frames repeat an earlier frame number",
        "1 frames have a damaged header",
        "counts 4 frames",
    ] {
        assert!(all.contains(part), "{part} in:\n{all}");
    }
    let some = |from, to| Input::open(std::slice::from_ref(&path), &Options { frames: Some((from, to)), ..Options::default() });
    assert_eq!(some(4, u64::MAX).unwrap().info().frames_found, 1);
    assert!(some(5, 6).err().unwrap().to_string().contains("none of the frames 3 to 4 lies between 5 and 6"));
    // A frame number that would make the file enormous.
    bytes[5] = 1;
    folder.write("run_d0_f0_0.raw", &bytes);
    assert!(refused(&[path]).contains("too far apart"));
}

#[test]
fn other_files_are_refused_in_words() {
    let folder = Folder::new();
    let text = folder.write("notes.txt", "hello");
    assert!(refused(std::slice::from_ref(&text)).contains("has an unknown format"));
    assert!(refused(&[folder.write("x_master_0.json", "{}")]).contains("'Version'"));
    assert!(refused(&[folder.write("x.json", master((1, 1), 1, 0, 1))]).contains("found by its name"));
    assert!(refused(&[folder.0.path().join("gone.u16")]).contains("cannot read the input"));
    assert!(refused(&[]).contains("no file was given"));
    let (a, b) = (acquisition(&folder, 1, 1, 9, &[1]), folder.write("y_master_0.json", "{}"));
    assert!(refused(&[a.clone(), b]).contains("several acquisitions"));
    // Three ports of files, a master of one.
    acquisition(&folder, 1, 3, 9, &[1]);
    folder.write("run_master_3.json", master((1, 1), 1, 9, 1));
    assert!(refused(&[a]).contains("there are files of port 1"));
}

#[test]
fn modules_beside_each_other_are_placed_and_columns_stacked() {
    let folder = Folder::new();
    acquisition(&folder, 2, 8, 9, &[1]);
    let path = folder.write("run_master_3.json", master((2, 4), 2, 9, 1));
    let list = open(&[path]).unwrap().info().placements.clone().unwrap();
    assert_eq!(list, [(0, 0), (256, 0), (512, 0), (768, 0), (0, 1024), (256, 1024), (512, 1024), (768, 1024)]);
}

#[test]
fn frames_of_a_run_count_from_its_first_image() {
    let each = RunFrames::Each(Some(5));
    assert_eq!((each.since_first_image(3), each.since_first_image(9)), (Some(-2), Some(4)));
    assert_eq!(RunFrames::Each(None).since_first_image(3), None);
    let kept = |number, position| KeptFrame { number: Some(number), position: Some(position) };
    let gap = [kept(42, 2), kept(43, 3), KeptFrame::default(), kept(46, 6)];
    let frames = RunFrames::Kept(1, Arc::new(gap.to_vec()));
    assert_eq!([1, 2, 3, 4, 5].map(|n| frames.since_first_image(n)), [Some(0), Some(1), None, Some(4), None]);
    assert_eq!([0, 4, 9].map(|n| frames.kept(n)), [Some(KeptFrame::default()), Some(gap[3]), Some(KeptFrame::default())]);
    assert_eq!(each.kept(5), None);
}
