//! Sends whole messages to ZeroMQ sockets. Pixels are shared with libzmq and not copied, and a receiver that does not
//! read holds up no more than one thread.
//!
//! Facts relied on (libzmq 4.3): a message is sent with all its parts or not at all. The high water mark counts whole
//! messages per connection. PUSH divides the messages among its receivers. PUB gives each subscriber every message, and
//! drops messages for a subscriber that is full, unless it is set to refuse them. A subscription reaches XPUB as a
//! message whose first byte is 1 (0 when the subscription ends).

mod reply;
mod socket;
mod stream;

pub use ::zmq::Context;
pub use reply::{ZmqReply, ZmqRequest};
pub use socket::{Sent, ZmqOut, ZmqOutKind, ZmqOutSpec};
pub use stream::{StreamSink, StreamStats};

#[cfg(test)]
mod tests;
