use super::*;
use crate::size::sizing::{Codec, Host, size};
use konkordia_sim::presets::preset;

fn request(name: &str, headroom: f64) -> Request {
    let host = Host { cores: 64.0, ports: 4.0, memory_gib: 512.0, memory_gb_per_s: None, disk_gb_per_s: None };
    let detector = *preset(name).unwrap();
    let (rate_hz, codec, port_gbit) = (detector.frame_hz, Codec::Bslz4, 100.0);
    Request { detector, rate_hz, codec, bits_per_pixel: None, headroom, stall_s: 1.0, port_gbit, host }
}

fn platform(name: &str) -> Platform {
    *PLATFORMS.iter().find(|one| one.name == name).unwrap()
}

fn plan(request: &Request, hardware: &Hardware) -> Vec<Placement> {
    let records = Records::shipped();
    placements(request, &size(request, &records), &records, hardware)
}

const SINGLE: (f64, f64) = (16.0, 1.0);

fn hardware(name: &str, (fpga_gb_per_s, fpga_ports): (f64, f64)) -> Hardware {
    Hardware { platform: platform(name), fpga_gb_per_s, fpga_ports }
}

#[test]
fn logic_comes_first_and_data_go_to_a_gpu_once() {
    let all: Vec<_> = possible().collect();
    assert!(all.iter().enumerate().all(|(n, places)| !all[..n].contains(places)), "{all:?}");
    for places in &all {
        let logic = places.iter().take_while(|place| **place == Place::Fpga).count();
        assert!(!places[logic..].contains(&Place::Fpga) && places[PACK] != Place::Fpga, "{places:?}");
        assert_ne!(places[RECEIVE], Place::Gpu);
        let begins = places.windows(2).filter(|two| two[0] != Place::Gpu && two[1] == Place::Gpu).count();
        assert!(begins <= 1, "{places:?}");
    }
    // Without a GPU: nothing, 1, 2 or 3 stages in logic. With one: 6 ranges of the 3 stages that need no logic, and
    // with 0 to 3 stages in logic 6, 6, 3 and 1 of them.
    assert_eq!(all.len(), 4 + 6 + 6 + 3 + 1);
}

#[test]
fn two_boards_take_the_10m_as_the_paper_has_it() {
    // Leonarski et al. 2020: twice the logic in a board, 46 GB/s by two of them; LZ4 is left to fewer than 23 cores.
    let request = request("jungfrau-10m", 1.0);
    let all = plan(&request, &hardware("power9", (32.0, 2.0)));
    let all_but_lz4 = [Place::Fpga, Place::Fpga, Place::Fpga, Place::Cpu];
    let paper = all.iter().find(|one| one.places == all_but_lz4).unwrap();
    assert_eq!((paper.value("boards"), paper.value("gpus")), (Some(2.0), Some(0.0)));
    let with_one_port = plan(&request, &hardware("power9", SINGLE));
    let four = with_one_port.iter().find(|one| one.places == paper.places).unwrap();
    // 12.33 GB/s of pixels through a port of 100 Gb/s.
    assert_eq!(four.value("boards"), Some(4.0));
    // The memory of the host sees what logic leaves, what LZ4 reads, and six times the packed images.
    let raw = 46.137_344;
    let packed = 20.0 * 524_288.0 * 2200.0 * size(&request, &Records::shipped()).bits_per_pixel / 8e9;
    assert!((paper.value("memory_traffic").unwrap() - 2.0 * raw - 6.0 * packed).abs() < 1e-3);
}

#[test]
fn links_and_memory_of_a_gpu_bound_it() {
    let request = request("jungfrau-10m", 1.0);
    let of = |name: &str, places: [Place; 4]| {
        let all = plan(&request, &hardware(name, SINGLE));
        all.iter().find(|one| one.places == places).unwrap().clone()
    };
    use Place::{Cpu, Gpu};
    // 46.1 GB/s over 32, 63 and 75 GB/s.
    let both = [Cpu, Gpu, Gpu, Cpu];
    assert_eq!(["pcie4", "pcie5", "power9"].map(|name| of(name, both).value("gpus").unwrap()), [2.0, 1.0, 1.0]);
    let narrow = Platform { gpu_memory_gb_per_s: 100.0, ..platform("power9") };
    let all = plan(&request, &Hardware { platform: narrow, ..hardware("power9", SINGLE) });
    // 16 bytes of each of 23.07 Gpixel/s by 100 GB/s.
    assert_eq!(all.iter().find(|one| one.places == both).unwrap().value("gpus"), Some(4.0));
    let packed = of("pcie5", [Cpu, Gpu, Gpu, Gpu]);
    assert_eq!(packed.value("gpus"), None);
    assert!(packed.missing().next().unwrap().rests_on.contains("was not measured"));
}

#[test]
fn the_best_comes_first_and_what_lacks_a_figure_last() {
    for name in ["jungfrau-module", "jungfrau-4m", "jungfrau-10m"] {
        for headroom in [1.0, 3.0] {
            let all = plan(&request(name, headroom), &hardware("pcie4", SINGLE));
            let costs: Vec<_> = all.iter().map(Placement::cost).collect();
            let known = costs.iter().take_while(|cost| cost.is_some()).count();
            assert!(known > 0 && costs[known..].iter().all(Option::is_none), "{costs:?}");
            assert!(costs[..known].is_sorted_by(|a, b| a <= b), "{costs:?}");
            for placement in &all {
                for line in &placement.lines {
                    assert_eq!(line.value.is_some(), !line.rests_on.starts_with("no figure: "), "{line:?}");
                    assert!(line.value.is_none_or(|value| value.is_finite() && value >= 0.0), "{line:?}");
                }
            }
        }
    }
    // One host does the small one without boards.
    let small = plan(&request("jungfrau-module", 1.5), &hardware("pcie4", SINGLE));
    assert_eq!(small[0].places, [Place::Cpu; 4]);
    // Without figures nothing is the best.
    let request = request("jungfrau-4m", 1.5);
    let none = placements(&request, &size(&request, &Records::none()), &Records::none(), &hardware("pcie4", SINGLE));
    assert!(none.iter().all(|one| one.cost().is_none()));
}

#[test]
fn stages_that_leave_the_processor_take_cores_and_memory_away() {
    let all = plan(&request("jungfrau-4m", 1.5), &hardware("pcie5", SINGLE));
    let of = |places: [Place; 4], name: &str| all.iter().find(|one| one.places == places).unwrap().value(name).unwrap();
    use Place::{Cpu, Fpga, Gpu};
    let ways = [[Cpu; 4], [Fpga, Cpu, Cpu, Cpu], [Fpga, Fpga, Fpga, Cpu]];
    let cores = ways.map(|places| of(places, "cores"));
    assert!(cores.is_sorted_by(|a, b| a > b), "{cores:?}");
    let memory = ways.map(|places| of(places, "memory_traffic"));
    assert!(memory.is_sorted_by(|a, b| a > b), "{memory:?}");
    // A GPU between reads and writes the memory of the host once more.
    assert!(of([Cpu, Gpu, Gpu, Cpu], "memory_traffic") > of([Cpu; 4], "memory_traffic"));
}
