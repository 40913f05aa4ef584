//! Options for the faults of the link between a simulated detector and its receiver.

use clap::Args;

/// Faults of the link between a simulated detector and its receiver.
#[derive(Clone, Debug, Args)]
pub struct FaultArgs {
    /// Probability that a packet is lost
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub loss: f64,
    /// Probability that a packet is sent twice
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub duplicate: f64,
    /// Probability that a packet is delayed by up to 16 others
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub reorder: f64,
    /// Probability that a packet is cut short
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub truncate: f64,
    /// Probability that a burst of lost packets begins, 20 packets long on average
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Faults", value_parser = probability)]
    pub burst: f64,
    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1, help_heading = "Faults")]
    pub seed: u64,
}

/// A probability, as people write it.
pub fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        Ok(p) if p <= 100.0 && p > 1.0 => Err(format!("{p} looks like percent; write {}", p / 100.0)),
        _ => Err("a probability from 0 to 1 is expected".into()),
    }
}
