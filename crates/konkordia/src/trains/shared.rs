//! A built train that several outputs hold. Its buffers go back to their channels when the last one lets go.

use crossbeam_channel::Sender;
use konkordia_fabric::trains::{BuiltTrain, ModuleTrain, TrainSpec, flags};

/// A buffer on its way back.
pub type Buffer = (Vec<u8>, Vec<u64>);

/// A train and where its buffers go.
pub struct SharedTrain {
    /// The train.
    pub train: BuiltTrain,
    /// What a module may send.
    pub spec: TrainSpec,
    /// When it was built, in nanoseconds from 1970.
    pub time_ns: u64,
    returns: Vec<Sender<Buffer>>,
}

impl SharedTrain {
    /// `returns` has one entry for each module.
    pub fn new(mut train: BuiltTrain, spec: TrainSpec, returns: Vec<Sender<Buffer>>) -> Self {
        for (module, left_out) in train.left_out.drain(..) {
            give_back(&returns[module], left_out);
        }
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let time_ns = since.map_or(0, |time| time.as_nanos() as u64);
        Self { train, spec, time_ns, returns }
    }

    /// Gives all modules back, and says why they are not there.
    pub fn reject(&mut self) {
        for (module, returns) in self.train.modules.iter_mut().zip(&self.returns) {
            module.take().into_iter().for_each(|module| give_back(returns, module));
        }
        self.train.flags.iter_mut().for_each(|flags| *flags |= flags::REJECTED);
    }
}

impl Drop for SharedTrain {
    fn drop(&mut self) {
        for (module, returns) in self.train.modules.iter_mut().zip(&self.returns) {
            if let Some(module) = module.take() {
                give_back(returns, module);
            }
        }
    }
}

/// Sends a buffer back; the channel may have ended.
pub fn give_back(returns: &Sender<Buffer>, train: ModuleTrain) {
    let _ = returns.send((train.bytes, train.arrived));
}
