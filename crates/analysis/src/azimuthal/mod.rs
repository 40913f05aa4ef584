//! Azimuthal integration: the mean of an image along its rings (a profile), or along parts of them (a cake). An
//! [`Integrator`] is made once for a geometry, settings and the usable pixels; it then takes image after image without
//! allocating.

mod build;
mod elements;
mod grid;
mod integrator;
mod polygon;
mod profile;
mod settings;
#[cfg(test)]
mod tests;

pub use elements::Element;
pub use integrator::Integrator;
pub use konkordia_kernels::azimuthal::Summed;
pub use profile::Profile;
pub use settings::{Settings, Splitting};
