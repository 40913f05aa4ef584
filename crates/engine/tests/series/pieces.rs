//! Images of which every upstream brings one piece.

use crate::harness::*;
use konkordia_core::pixel::Pixel;
use konkordia_core::series::Ended;
use konkordia_engine::series::{Join, Notice, Protocol, SeriesSpec};

use TinyMessage::*;

const UPSTREAMS: usize = 4;

fn bench() -> Bench {
    let spec = SeriesSpec {
        join: Join::Pieces,
        window_images: 16,
        wait_ns: 150 * MS,
        drain_ns: 150 * MS,
        workers: 2,
        ..SeriesSpec::new(Protocol::Stins)
    };
    Bench::new(spec, UPSTREAMS, Form { has_numbers: true, ..Form::default() })
}

#[test]
fn every_upstream_is_one_piece_and_a_missing_one_is_missing() {
    let mut bench = bench();
    for upstream in 0..UPSTREAMS {
        bench.send(upstream, 0, 100, &[Start(0), Image(0), Image(1), Image(2)]);
        if upstream != 2 {
            bench.send(upstream, 0, 104, &[Image(3)]);
        }
        // The lost message has a number of its own, too.
        bench.send(upstream, 0, 105, &[Image(4), Image(5), End]);
    }
    assert_eq!(bench.ended(), Ended::Finished);
    let kept = bench.kept(1).pop().unwrap();
    assert_eq!(kept.states(), "cccpcc");
    let (rows, columns) = (bench.form.rows, bench.form.columns);
    for image in &kept.images {
        let array = &image.channels[0].array;
        assert_eq!((array.shape.dimensions(), array.pieces.len()), (&[4, rows, columns][..], UPSTREAMS));
        for (n, piece) in array.pieces.iter().enumerate() {
            let is_missing = image.number == 3 && n == 2;
            let expected = |i| if is_missing { u16::MISSING } else { pixel(0, image.number, n, i) };
            let is: Vec<u16> = piece.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
            assert_eq!(is, (0..(rows * columns) as usize).map(expected).collect::<Vec<_>>(), "image {} piece {n}", image.number);
        }
    }
    bench.assert_at_rest();
}

#[test]
fn a_series_reaches_no_consumer_before_all_upstreams_have_described_it_or_were_waited_for() {
    let mut bench = bench();
    let started = |bench: &Bench| bench.series.notices().try_iter().filter(|notice| matches!(notice, Notice::Started(_))).count();
    for upstream in 0..3 {
        bench.send(upstream, 0, 10, &[Start(0), Image(0)]);
    }
    eventually("the images have come", || bench.control().progress().upstreams.iter().map(|u| u.received).sum::<u64>() == 6);
    assert_eq!(started(&bench), 0);
    // The fourth upstream sends nothing: the image comes without it, after the start.
    eventually("the image was waited for", || !bench.collector.kept.lock().unwrap().is_empty());
    assert_eq!(started(&bench), 1);
    for upstream in 0..3 {
        bench.send(upstream, 0, 12, &[End]);
    }
    bench.end();
    let kept = bench.kept(1).pop().unwrap();
    assert_eq!(kept.states(), "p");
    assert_eq!(kept.images[0].missing_parts, 8);
}
