use super::*;
use konkordia_sim::presets::{PRESETS, preset};

fn host() -> Host {
    Host { cores: 64.0, ports: 4.0, memory_gib: 512.0, memory_gb_per_s: None, disk_gb_per_s: None }
}

fn request(name: &str) -> Request {
    let detector = *preset(name).unwrap();
    let codec = if matches!(detector.wire, Wire::Jungfrau { .. }) { Codec::Bslz4 } else { Codec::None };
    let (rate_hz, headroom) = (detector.frame_hz, 1.5);
    Request { detector, rate_hz, codec, bits_per_pixel: None, headroom, stall_s: 1.0, port_gbit: 100.0, host: host() }
}

fn near(value: Option<f64>, wanted: f64) {
    let value = value.unwrap_or(f64::NAN);
    assert!((value / wanted - 1.0).abs() < 1e-3, "{value} instead of {wanted}");
}

#[test]
fn the_10m_at_2200_hz_is_that_of_the_paper() {
    let sizing = size(&request("jungfrau-10m"), &Records::shipped());
    near(sizing.value("pixels"), 46.137);
    near(sizing.value("streams"), 40.0);
    // 20 modules x 128 packets x 8306 bytes x 2200 Hz.
    near(sizing.value("network"), 374.23);
    // 1.5 x 374 Gb/s.
    near(sizing.value("ports"), 6.0);
    near(sizing.value("file"), 20.0 * 524_288.0 * sizing.bits_per_pixel / 8.0 * 2200.0 / 1e9);
    near(sizing.value("per_hour"), sizing.value("file").unwrap() * 3.6);
    near(sizing.value("disk"), sizing.value("file").unwrap() * 1.5);
    // 2200 images of 20 MiB raw and a little more packed, constants beside them.
    let gib = sizing.value("buffers").unwrap();
    assert!((86.0..87.0).contains(&gib), "{gib}");
}

#[test]
fn every_line_has_its_formula_and_says_on_what_it_rests() {
    for detector in &PRESETS {
        for codec in [Codec::None, Codec::Bslz4, Codec::Bszstd] {
            for records in [Records::shipped(), Records::none()] {
                let sizing = size(&Request { codec, ..request(detector.name) }, &records);
                for line in &sizing.lines {
                    assert!(!line.rests_on.is_empty(), "{line:?}");
                    assert_eq!(line.value.is_some(), !line.formula.is_empty(), "{line:?}");
                    assert_eq!(line.value.is_none(), line.rests_on.starts_with("no figure: "), "{line:?}");
                    assert!(line.value.is_none_or(|value| value.is_finite() && value >= 0.0), "{line:?}");
                }
                let names: Vec<_> = sizing.lines.iter().map(|line| line.name).collect();
                assert!(names.iter().enumerate().all(|(n, name)| !names[..n].contains(name)), "{names:?}");
                assert!(sizing.value("hosts").unwrap() >= 1.0);
            }
        }
    }
}

#[test]
fn without_a_figure_there_is_no_number() {
    let sizing = size(&request("jungfrau-10m"), &Records::none());
    for name in ["cores_receive", "cores_work", "cores_join", "cores_file", "cores_streams"] {
        assert_eq!(sizing.value(name), None, "{name}");
    }
    let line = |sizing: &Sizing, name: &str| sizing.lines.iter().find(|line| line.name == name).unwrap().clone();
    let today = line(&size(&request("jungfrau-10m"), &Records::shipped().without_threads()), "cores_receive").rests_on;
    assert!(today.contains("bench pipeline --json") && today.contains(" has none"), "{today}");
    let cores = line(&sizing, "cores");
    assert!(cores.is_at_least && cores.value == Some(0.0) && cores.formula.starts_with("? + ? + ? + ?"), "{cores:?}");
    // No figure for its images, so they are as large as without compression.
    assert_eq!(sizing.bits_per_pixel, 16.0);
    let given = size(&Request { bits_per_pixel: Some(2.3), ..request("eiger2-4m") }, &Records::none());
    assert_eq!(given.bits_per_pixel, 2.3);
    near(given.value("file"), 2162.0 * 2068.0 * 2.3 / 8.0 * 500.0 / 1e9);
}

#[test]
fn cores_grow_with_rate_and_headroom() {
    let cores = |change: &dyn Fn(&mut Request)| {
        let mut request = request("jungfrau-4m");
        change(&mut request);
        // Figures of kernels: runs know one codec only.
        size(&request, &Records::shipped().without_threads()).value("cores_work").unwrap()
    };
    let one = cores(&|_| {});
    assert!((cores(&|request| request.rate_hz *= 2.0) / one - 2.0).abs() < 1e-9);
    assert!((cores(&|request| request.headroom = 3.0) / one - 2.0).abs() < 1e-9);
    assert!(cores(&|request| request.codec = Codec::None) < one && cores(&|request| request.codec = Codec::Bszstd) > one);
}

#[test]
fn the_tightest_resource_of_a_host_decides() {
    let hosts = |host: Host| size(&Request { host, ..request("jungfrau-10m") }, &Records::shipped());
    let of = |sizing: &Sizing| sizing.lines.iter().find(|line| line.name == "hosts").unwrap().clone();
    let wide = Host { cores: 1e6, ports: 1e6, memory_gib: 1e6, ..host() };
    assert_eq!(of(&hosts(wide)).value, Some(1.0));
    let one_port = of(&hosts(Host { ports: 1.0, ..wide }));
    assert_eq!(one_port.value, Some(6.0));
    assert!(one_port.rests_on.starts_with("limited by ports;"), "{one_port:?}");
    let slow_disk = of(&hosts(Host { disk_gb_per_s: Some(1.0), ..wide }));
    assert!(slow_disk.rests_on.starts_with("limited by disk;") && slow_disk.value > Some(8.0), "{slow_disk:?}");
    // 2 x 2200 images, of which the disk takes one in eight.
    let buffered = hosts(Host { disk_gb_per_s: Some(1.0), ..wide }).value("buffered");
    let file = hosts(wide).value("file").unwrap();
    near(buffered, 2.0 / (1.0 - 1.0 / file));
    assert_eq!(hosts(Host { disk_gb_per_s: Some(10.0), ..wide }).value("buffered"), None);
    let slow_memory = of(&hosts(Host { memory_gb_per_s: Some(100.0), ..wide }));
    assert!(slow_memory.rests_on.starts_with("limited by memory traffic;"), "{slow_memory:?}");
}

#[test]
fn a_long_stall_is_cut_to_the_longest_ring() {
    let sizing = size(&Request { stall_s: 10.0, ..request("jungfrau-10m") }, &Records::shipped());
    let line = sizing.lines.iter().find(|line| line.name == "buffers").unwrap();
    assert!(line.formula.starts_with("4096 images") && line.formula.contains("at most 4096"), "{line:?}");
    assert!(line.rests_on.starts_with("1.862 s"), "{line:?}");
}

#[test]
fn numbers_are_short() {
    assert_eq!(
        [0.0, 46.1373, 2200.0, 0.004, 1e5, 1.5, 123.456].map(short),
        ["0", "46.14", "2200", "0.004", "100000", "1.5", "123.5"]
    );
}
