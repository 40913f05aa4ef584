use super::*;
use serde_json::json;

fn images(numbers: &[u64]) -> Images {
    let first = numbers[0];
    let list = numbers.iter().map(|n| (n - first, *n, format!("a_{n:03}.cbf"))).collect();
    Images { list, positions: numbers.last().unwrap() - first + 1 }
}

fn mapped(mapping: &str, table: &str, images: &Images, said: Value) -> Result<Mapped, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.csv");
    std::fs::write(&file, table).unwrap();
    let mapping = Mapping::parse(mapping).unwrap();
    let said = said.as_object().cloned().unwrap_or_default();
    let table = mapping.table.is_some().then_some(&*file);
    Mapped::new((Path::new("map.toml"), &mapping), table, images, &said).map_err(|failure| failure.to_string())
}

fn of(mapped: &Mapped, position: u64, said: Value) -> (Vec<f64>, Option<ImageTimes>, u64) {
    let (mut bits, mut lacking) = (Vec::new(), 0);
    let times = mapped.of_image(position, said.as_object().unwrap_or(&Map::new()), &mut bits, &mut lacking);
    (bits.into_iter().map(f64::from_bits).collect(), times, lacking)
}

#[test]
fn an_axis_in_equal_steps_turns_also_across_gaps() {
    let mapping =
        "[table]\nmatch = 'number'\ncolumn = 'n'\n[columns]\nw = { field = 'sample/transformations/omega', unit = 'deg' }";
    let found = mapped(mapping, "n,w\n5,10.0\n6,10.5\n8,11.5\n9,99", &images(&[5, 6, 8]), Value::Null).unwrap();
    assert_eq!(found.metadata.experiment.goniometer.omega, Axis::turning(10.0, 0.5));
    assert!(found.is_plain());
    let uneven = mapped(mapping, "n,w\n5,10.0\n6,10.7\n8,11.5", &images(&[5, 6, 8]), Value::Null).unwrap();
    assert!(!uneven.metadata.experiment.goniometer.omega.is_given());
    assert_eq!(uneven.notes[0].0, "omega");
    assert_eq!(of(&uneven, 3, Value::Null).0, [11.5]);
    assert!(of(&uneven, 2, Value::Null).0[0].is_nan());
}

#[test]
fn numbers_of_rows_must_fit() {
    let mapping = "[table]\n[columns]\nI = 'columns/ring_current'";
    let count =
        |rows: usize, numbers: &[u64]| mapped(mapping, &format!("I\n{}", "1\n".repeat(rows)), &images(numbers), Value::Null);
    assert!(count(3, &[1, 2, 4]).is_ok() && count(4, &[1, 2, 4]).is_ok());
    let why = count(2, &[1, 2, 4]).err().unwrap();
    assert!(why.contains("it has 2 rows, but the series has 3 images (1 numbers are missing)"), "{why}");
    let by_name = "[table]\nmatch = 'name'\ncolumn = 'f'\n[columns]\nI = 'columns/ring_current'";
    let table = "f,I\n/data/a_001.cbf,7\na_002.cbf,8\n";
    let found = mapped(by_name, table, &images(&[1, 2]), Value::Null).unwrap();
    assert_eq!((of(&found, 0, Value::Null).0, of(&found, 1, Value::Null).0), (vec![7.0], vec![8.0]));
    assert!(mapped(by_name, table, &images(&[1, 3]), Value::Null).err().unwrap().contains("no row for image a_003.cbf"));
    let twice = "f,I\na_001.cbf,7\na_001.cbf,8\n";
    assert!(
        mapped(by_name, twice, &images(&[1]), Value::Null).err().unwrap().contains("line 3 has the same 'a_001.cbf' as line 2")
    );
}

#[test]
fn one_value_for_all_or_one_for_each() {
    let mapping = "[table]\n[columns]\nE = { field = 'instrument/beam/incident_energy', unit = 'eV' }\n\
                   d = { field = 'instrument/detector/distance', unit = 'mm' }\np = 'pulse_id'";
    let found = mapped(mapping, "E,d,p\n12400,200,9\n12400,200,10", &images(&[1, 2]), Value::Null).unwrap();
    assert_eq!((found.metadata.energy_kev, found.metadata.detector_distance_m), (Some(12.4), Some(0.2)));
    let mut bits = Vec::new();
    found.of_image(1, &Map::new(), &mut bits, &mut 0);
    assert_eq!((bits, found.columns[0].name.as_str()), (vec![10], "pulse_id"));
    let scan = mapped(mapping, "E,d,p\n12400,200,9\n12500,200,10", &images(&[1, 2]), Value::Null).unwrap();
    assert_eq!((scan.metadata.energy_kev, of(&scan, 1, Value::Null).0[0]), (None, 12.5));
    let why = |table: &str| mapped(mapping, table, &images(&[1, 2]), Value::Null).err().unwrap();
    assert!(why("E,d,p\n1,200,9\n1,201,10").contains("line 3 has 201, line 2 has 200"));
    assert!(why("E,d,p\n1,2;9\n").contains("columns"));
    assert!(why("E,d,p\n1,x,9\n1,x,9").contains("'x' is not a number"));
    assert!(why("E,d,p\n1,1,1.5\n1,1,2").contains("'1.5' is not a whole number"));
    assert!(why("E,d\n1,1\n1,1").contains("no column 'p'"));
    assert!(why("E;d;p\n1;\"1,5\";9\n1;\"1,5\";9").contains("decimals are written with a point"));
}

#[test]
fn times_count_from_the_first_image() {
    let mapping = |unit: &str| format!("[table]\n[columns]\nt = {{ field = 'instrument/detector/start_time', unit = '{unit}' }}");
    let start = |unit: &str, a: &str, b: &str| {
        let found = mapped(&mapping(unit), &format!("t\n{a}\n{b}"), &images(&[1, 2]), Value::Null)?;
        Ok::<_, String>((of(&found, 1, Value::Null).1.unwrap().start_ns, found.metadata.start_time))
    };
    assert_eq!(start("ms", "0", "12.5"), Ok((12_500_000, None)));
    let (ns, date) = start("iso", "2026-11-29T14:00:00.250", "2026-11-29T14:00:01.500").unwrap();
    assert_eq!(ns, 1_250_000_000);
    assert!(date.unwrap().starts_with("2026-11-29T14:00:00.25"));
    let zones = start("iso", "2026-11-29T14:00:00+01:00", "2026-11-29T13:00:02Z").unwrap();
    assert_eq!(zones, (2_000_000_000, Some("2026-11-29T14:00:00+01:00".into())));
    assert_eq!(start("unix", "1000000000.5", "1000000002").unwrap().0, 1_500_000_000);
    assert!(start("unix", "5", "4").unwrap_err().contains("began before"));
    assert!(start("iso", "yesterday", "today").unwrap_err().contains("'yesterday' is no time"));
}

#[test]
fn headers_say_what_differs_from_image_to_image() {
    let mapping = "[header]\nmotor = 'columns/motor'\nExposure_time = { field = 'instrument/detector/count_time', unit = 's' }\n\
                   Detector = 'instrument/detector/description'";
    let said = json!({"motor": "1.5 mm", "Exposure_time": "0.25 s", "Detector": "X"});
    let found = mapped(mapping, "", &images(&[1, 2]), said.clone()).unwrap();
    assert_eq!((found.metadata.count_time_s, found.metadata.detector_description.as_deref()), (Some(0.25), Some("X")));
    let (bits, times, lacking) = of(&found, 0, said);
    assert_eq!((bits, times.unwrap().real_ns, lacking), (vec![1.5], 250_000_000, 0));
    let (bits, _, lacking) = of(&found, 1, json!({}));
    assert!(bits[0].is_nan() && lacking == 1);
    assert!(mapped(mapping, "", &images(&[1]), json!({})).err().unwrap().contains("the first image has no such key"));
}
