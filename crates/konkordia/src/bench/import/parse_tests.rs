//! The output of OSU was printed by its programs, version 7.0, with Open MPI 4.1.4 here: latency over shared memory,
//! the others over TCP. That of perftest was made by its format strings, because a run needs a card.

use super::*;

fn one(text: &str) -> Imported {
    let mut tables = parse("file", text).expect("a good text");
    assert_eq!(tables.len(), 1);
    tables.remove(0)
}

fn near(one: Option<f64>, other: f64) -> bool {
    one.is_some_and(|one| (one - other).abs() < 1e-9 * other.max(1.0))
}

#[test]
fn what_osu_prints_is_read() {
    let latency = one(include_str!("fixtures/osu_latency.txt"));
    assert_eq!((latency.program.as_str(), latency.rows.len()), ("OSU MPI Latency Test v7.0-lrbison2", 17));
    let first = latency.rows[0];
    assert_eq!((first.bytes, first.latency_us, first.gigabytes_per_s), (1, Some(0.37), None));
    assert_eq!(latency.rows[16].bytes, 65536);
    let validated = one(include_str!("fixtures/osu_latency_validated.txt"));
    assert_eq!((validated.rows.len(), validated.rows[0].latency_us), (11, Some(5.29)));
    for (text, rate) in [
        (include_str!("fixtures/osu_bw.txt"), 0.23916),
        (include_str!("fixtures/osu_bibw.txt"), 0.465),
        (include_str!("fixtures/osu_mbw_mr.txt"), 0.54434),
    ] {
        let table = one(text);
        let last = table.rows.last().unwrap();
        assert!(table.rows.len() == 17 && last.bytes == 65536 && near(last.gigabytes_per_s, rate), "{table:?}");
    }
    let rates = one(include_str!("fixtures/osu_mbw_mr.txt"));
    assert!(rates.program.contains("Message Rate") && near(rates.rows[16].messages_per_s, 8305.97));
}

#[test]
fn what_perftest_prints_is_read() {
    let write = one(include_str!("fixtures/ib_write_bw.txt"));
    assert_eq!((write.program.as_str(), write.rows.len()), ("RDMA_Write BW Test", 3));
    // Its MB are 2^20 bytes: rate times size says so.
    let last = write.rows[2];
    assert!(near(last.gigabytes_per_s, 11554.28 * 1_048_576.0 / 1e9) && near(last.messages_per_s, 184_868.0));
    assert!((last.gigabytes_per_s.unwrap() * 1e9 / 65536.0 / last.messages_per_s.unwrap() - 1.0).abs() < 1e-4);
    // The peak is 0 in a run that takes a time; the average counts.
    let send = one(include_str!("fixtures/ib_send_bw_gbits.txt"));
    assert!(send.rows[0].bytes == 2048 && near(send.rows[0].gigabytes_per_s, 78.5 / 8.0));
    let latency = one(include_str!("fixtures/ib_write_lat.txt"));
    let row = latency.rows[1];
    let expected =
        Row { bytes: 4096, latency_us: Some(2.4), latency_p99_us: Some(2.91), latency_p999_us: Some(6.5), ..Row::default() };
    assert_eq!((row, latency.program.as_str()), (expected, "RDMA_Write Latency Test"));
    let duration = one(include_str!("fixtures/ib_send_lat_duration.txt"));
    assert_eq!(duration.rows[0].latency_us, Some(1.18));
}

#[test]
fn newer_heads_of_osu_are_understood() {
    let text = "# OSU MPI Latency Test v7.3\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)     P50 Tail Lat(us)     P99 Tail Lat(us)\n\
                1                       1.65                 1.60                 2.10\n";
    let row = one(text).rows[0];
    assert_eq!((row.latency_us, row.latency_p99_us), (Some(1.65), Some(2.1)));
}

#[test]
fn several_tables_of_a_file_are_told_apart() {
    let both = format!("{}{}", include_str!("fixtures/ib_write_bw.txt"), include_str!("fixtures/ib_write_lat.txt"));
    let tables = parse("all.txt", &both).unwrap();
    let names: Vec<_> = tables.iter().map(|table| (table.name.as_str(), table.program.as_str())).collect();
    assert_eq!(names, [("all.txt", "RDMA_Write BW Test"), ("all.txt (2)", "RDMA_Write Latency Test")]);
}

#[test]
fn what_is_damaged_is_refused_with_its_line() {
    let good = "# OSU MPI Bandwidth Test v7.0\n# Size        Bandwidth (MB/s)\n1        0.02\n2        0.04\n";
    assert_eq!(one(good).rows.len(), 2);
    for (from, to, line, why) in [
        ("0.04", "0.0x4", 4, "no number"),
        ("0.04", "", 4, "1 numbers, but the head has 2 columns"),
        ("0.04", "0.04 7", 4, "3 numbers"),
        ("2  ", "1  ", 4, "a second row of 1 bytes"),
        ("2  ", "2.5  ", 4, "no size in bytes"),
        ("0.02", "-3", 3, "no figure"),
        ("0.02", "inf", 3, "no figure"),
        ("0.02", "nan", 3, "no figure"),
        ("Bandwidth (MB/s)", "Bandwidth (furlongs)", 2, "no known column"),
        ("# Size", "Size", 0, "no head"),
        ("1        0.02\n2        0.04\n", "", 0, "no rows"),
    ] {
        let wrong = parse("file", &good.replacen(from, to, 1)).unwrap_err();
        assert!(wrong.line == line && wrong.why.contains(why), "{from} {to}: {wrong:?}");
    }
    let failed = include_str!("fixtures/osu_latency_validated.txt").replacen("Pass", "Fail", 1);
    let wrong = parse("file", &failed).unwrap_err();
    assert!(wrong.line == 3 && wrong.why.contains("validation"), "{wrong:?}");
    let cycles = include_str!("fixtures/ib_write_lat.txt").replace("usec", "cycles");
    assert!(parse("file", &cycles).unwrap_err().why.contains("no known column"));
    let failure = parse("file", "").unwrap_err().failure(Path::new("a/b.txt"));
    assert!(failure.what.contains("a/b.txt") && failure.fix.contains("osu_bibw"));
}
