//! Percentiles of planes of numbers.

/// The values below which the fractions `low` and `high` (0 to 1) of the finite values lie; `None` if there are none.
pub fn percentiles(values: &[f32], low: f64, high: f64) -> Option<(f32, f32)> {
    let mut numbers: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if numbers.is_empty() {
        return None;
    }
    let mut at = |part: f64| {
        let index = (part * (numbers.len() - 1) as f64).round() as usize;
        *numbers.select_nth_unstable_by(index, f32::total_cmp).1
    };
    Some((at(low), at(high)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_count() {
        let values: Vec<f32> = (0..=100).rev().map(|i| i as f32).chain([f32::NAN, f32::INFINITY]).collect();
        assert_eq!(percentiles(&values, 0.01, 0.99), Some((1.0, 99.0)));
        assert_eq!(percentiles(&[f32::NAN], 0.01, 0.99), None);
    }
}
