//! What an indexing program is asked, and what it answers: a line of JSON each (docs/indexing.md).

use konkordia_analysis::geometry::Geometry;
use konkordia_analysis::spot::Spot;
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest edge of a unit cell, angstrom.
const EDGE_MAX_ANGSTROM: f64 = 1e5;

/// An answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Answer {
    /// A lattice was found.
    pub is_indexed: bool,
    /// a, b and c in angstrom; alpha, beta and gamma in degrees.
    pub cell: Option<[f64; 6]>,
    /// a*, b* and c* in the laboratory, 1/angstrom.
    pub orientation_matrix: Option<[f64; 9]>,
}

/// The request of this number, a line.
pub(super) fn request(id: u64, spots: &[Spot], geometry: Option<&Geometry>) -> Vec<u8> {
    let of_spot = |spot: &Spot| {
        let place = [spot.x_px, spot.y_px, spot.intensity];
        let vector = geometry.and_then(|geometry| geometry.scattering_vector(spot.x_px + 0.5, spot.y_px + 0.5));
        place.into_iter().chain(vector.into_iter().flatten()).collect::<Vec<f64>>()
    };
    let spots: Vec<Value> = spots.iter().map(|spot| json!(of_spot(spot))).collect();
    let wavelength = geometry.and_then(Geometry::wavelength_angstrom);
    let mut line = json!({"version": 1, "id": id, "wavelength_angstrom": wavelength, "spots": spots}).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// What a line says.
///
/// # Errors
/// It is no answer, or one that cannot be; in words.
pub(super) fn answer(line: &[u8]) -> Result<Answer, String> {
    let answer: Answer = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let is_cell = |[a, b, c, alpha, beta, gamma]: [f64; 6]| {
        let edges = [a, b, c].iter().all(|edge| *edge > 0.0 && *edge <= EDGE_MAX_ANGSTROM);
        edges && [alpha, beta, gamma].iter().all(|angle| *angle > 0.0 && *angle < 180.0)
    };
    match answer.cell {
        Some(cell) if !is_cell(cell) => Err("edges must be above 0 angstrom, and angles between 0 and 180 degrees".into()),
        None if answer.is_indexed => Err("an indexed image has a cell".into()),
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_spots_in_pixels_and_in_reciprocal_space() {
        // A pixel of 0.1 mm, 100 mm behind the sample; the beam at the centre of pixel (2, 1); 1 angstrom.
        let geometry = Geometry::new([4, 4], [0.25, 0.15, 100.0], [-0.1, 0.0, 0.0], [0.0, -0.1, 0.0], Some(1.0)).unwrap();
        let spots = [Spot { x_px: 2.0, y_px: 1.0, intensity: 7.0, ..Spot::default() }, Spot { x_px: 3.0, ..Spot::default() }];
        let line = request(4, &spots, Some(&geometry));
        assert_eq!(line.last(), Some(&b'\n'));
        let value: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&value["id"], &value["version"], &value["wavelength_angstrom"]), (&json!(4), &json!(1), &json!(1.0)));
        let spot = |n: usize| -> Vec<f64> { serde_json::from_value(value["spots"][n].clone()).unwrap() };
        assert!(spot(0)[..3] == [2.0, 1.0, 7.0] && spot(0)[3..].iter().all(|q| q.abs() < 1e-12), "{:?}", spot(0));
        // One pixel to the right when looking along the beam, and one up: x is to the left.
        let [x, y, z] = spot(1)[3..] else { panic!("{:?}", spot(1)) };
        assert!((x + 0.001).abs() < 1e-8 && (y - 0.001).abs() < 1e-8 && (z + 1e-6).abs() < 1e-8, "{x} {y} {z}");
        let without: Value = serde_json::from_slice(&request(1, &spots, None)).unwrap();
        assert_eq!((&without["wavelength_angstrom"], &without["spots"][0]), (&Value::Null, &json!([2.0, 1.0, 7.0])));
    }

    #[test]
    fn an_answer_that_cannot_be_is_refused() {
        let cell = [79.0, 79.0, 38.0, 90.0, 90.0, 90.0];
        let good = answer(br#"{"id": 3, "is_indexed": true, "cell": [79, 79, 38, 90, 90, 90]}"#).unwrap();
        assert_eq!(good, Answer { is_indexed: true, cell: Some(cell), orientation_matrix: None });
        assert!(!answer(br#"{"id": 3, "is_indexed": false, "time_ms": 4}"#).unwrap().is_indexed);
        for (wrong, why) in [
            (&br#"{"id": 1, "cell": null}"#[..], "missing field `is_indexed`"),
            (br#"{"id": 1, "is_indexed": true}"#, "an indexed image has a cell"),
            (br#"{"id": 1, "is_indexed": true, "cell": [0, 79, 38, 90, 90, 90]}"#, "edges must be above 0"),
            (br#"{"id": 1, "is_indexed": true, "cell": [9, 79, 38, 90, 90, 180]}"#, "between 0 and 180"),
            (br#"{"id": 1, "is_indexed": true, "cell": [9, 79, 38, 90, 90, 90], "orientation_matrix": [1]}"#, "length"),
        ] {
            let error = answer(wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
