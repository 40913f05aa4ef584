//! What `check` advises: repair corrects what `check` says that it corrects, and nothing is reported as whole that is
//! not.

mod common;
use common::damage::{errors, write_run};
use common::{Scratch, decode, sample};
use konkordia_core::pixel::PixelType;
use konkordia_sinks::hdf5::{Layout, check, repair};

const COLUMNS: &str = "/entry/konkordia/images";

#[test]
fn what_check_says_that_repair_makes_good_it_does() {
    type Damage = fn(&hdf5::File);
    let damages: [(&str, Damage); 8] = [
        ("definition", |file| file.unlink("/entry/definition").unwrap()),
        ("ntrigger", |file| file.unlink("/entry/instrument/detector/detectorSpecific/ntrigger").unwrap()),
        ("module", |file| file.unlink("/entry/instrument/detector/module/data_size").unwrap()),
        ("chain", |file| file.unlink("/entry/instrument/detector/transformations/translation").unwrap()),
        ("mask", |file| {
            file.unlink("/entry/instrument/detector/pixel_mask").unwrap();
            let detector = file.group("/entry/instrument/detector").unwrap();
            detector.new_dataset_builder().with_data(&[1u32; 5]).create("pixel_mask").unwrap();
        }),
        ("column", |file| {
            let column = file.dataset(&format!("{COLUMNS}/bunch_id")).unwrap();
            let mut values = column.read_raw::<u64>().unwrap();
            values[6] ^= 1 << 40;
            column.write_raw(&values).unwrap();
        }),
        ("column gone", |file| file.group(COLUMNS).unwrap().unlink("packet_bitmap").unwrap()),
        ("signal", |file| file.unlink("/entry/data/images").unwrap()),
    ];
    let scratch = Scratch::new("advice");
    let mut sample = sample(&scratch.0, "a", PixelType::Int16);
    sample.spec.layout = Layout::Both;
    for (name, damage) in damages {
        let report = write_run(&sample);
        {
            let file = hdf5::File::open_rw(&report.master).unwrap();
            damage(&file);
        }
        let found = errors(&report.master);
        assert!(!found.is_empty() && found.iter().all(|finding| finding.fix.contains("konkordia repair")), "{name}: {found:?}");
        assert!(repair(&report.master).unwrap().master_written, "{name}");
        assert_eq!(errors(&report.master), [], "{name}");
        assert!(!repair(&report.master).unwrap().master_written, "{name}");
    }
}

#[test]
fn checksums_that_cannot_be_read_are_no_files_of_an_earlier_version() {
    let scratch = Scratch::new("advice-sums");
    let report = write_run(&sample(&scratch.0, "s", PixelType::Int16));
    {
        let columns = hdf5::File::open_rw(&report.data_files[1]).unwrap().group(COLUMNS).unwrap();
        columns.unlink("chunk_crc32").unwrap();
        columns.new_dataset_builder().with_data(&[1u32, 2]).create("chunk_crc32").unwrap();
    }
    let findings: Vec<String> = check(&report.data_files[1], &decode).iter().map(ToString::to_string).collect();
    assert!(findings.iter().any(|what| what.starts_with("error: the checksums of the images cannot be read")), "{findings:?}");
    assert!(findings.iter().all(|what| !what.contains("an earlier version wrote them")), "{findings:?}");
    assert_eq!(repair(&report.master).unwrap().images_missing(), 0);
    assert_eq!(errors(&report.master), []);
}

#[test]
fn nothing_is_called_whole_while_images_are_missing() {
    let scratch = Scratch::new("advice-missing");
    let report = write_run(&sample(&scratch.0, "m", PixelType::Int16));
    std::fs::remove_file(&report.master).unwrap();
    std::fs::remove_file(&report.data_files[1]).unwrap();
    assert_eq!(repair(&report.master).unwrap().images_missing(), 4);
    let findings: Vec<String> = check(&report.master, &decode).iter().map(ToString::to_string).collect();
    assert!(findings.iter().any(|what| what.contains("was killed")), "{findings:?}");
    assert!(findings.iter().all(|what| !what.contains("nothing to do")), "{findings:?}");
}
