//! A konkordia that was built without ONNX.

use std::convert::Infallible;

/// There is none.
pub struct Model(Infallible);

impl Model {
    /// As with ONNX.
    ///
    /// # Errors
    /// Always.
    pub fn load(_: &[u8], _: usize, _: Option<&str>) -> Result<Self, String> {
        let build = "cargo build --release -p konkordia --features onnx";
        Err(format!("this konkordia was built without ONNX; build it with `{build}`"))
    }

    /// As with ONNX.
    pub fn numbers(&self) -> usize {
        match self.0 {}
    }

    /// As with ONNX.
    ///
    /// # Errors
    /// Never: there is no such model.
    pub fn score(&self, _: &[f32]) -> Result<f32, String> {
        match self.0 {}
    }
}
