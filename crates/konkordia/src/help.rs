//! How help is laid out.

/// Template of the help of each verb: examples first.
pub const TEMPLATE: &str = "{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}\n";
