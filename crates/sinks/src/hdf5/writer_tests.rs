//! What becomes of images when their data file cannot be closed.

use super::*;

#[test]
fn what_is_lost_when_a_file_cannot_be_closed_is_counted() {
    let directory = std::env::temp_dir().join(format!("konkordia-close-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let spec = FileSpec {
        directory: directory.clone(),
        prefix: "c".into(),
        rows: 64,
        columns: 64,
        compression: super::super::Compression::None,
        overwrite: Overwrite::Replace,
        pixel_mask: vec![0; 64 * 64],
        ..FileSpec::default()
    };
    let mut writer = Writer::create(spec).unwrap();
    let chunk = vec![7; writer.spec.image_bytes()];
    for index in 0..4 {
        writer.write(&ImageRecord::partial(index, &[&chunk])).unwrap();
    }
    let path = writer.current.as_ref().unwrap().path.clone();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(64).position(|window| window == [7; 64]).unwrap();
    bytes[at] = 8;
    std::fs::write(&path, bytes).unwrap();
    // As when libhdf5 fails to close the file.
    assert_eq!(writer.rescue().unwrap(), 1);
    std::fs::remove_dir_all(&directory).unwrap();
}
