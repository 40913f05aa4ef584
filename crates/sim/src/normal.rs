//! The cumulative normal distribution.

/// Cumulative normal distribution (Abramowitz and Stegun 7.1.26, absolute error below 1e-7).
pub(crate) fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() * std::f64::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = t * (0.254_829_592 + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let tail = 0.5 * poly * (-z * z).exp();
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cumulative_distribution() {
        for (x, p) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.0, 0.158_655_3), (3.0, 0.998_650_1), (-6.0, 0.0)] {
            assert!((normal_cdf(x) - p).abs() < 2e-7);
        }
    }
}
