//! The way of messages: whole images from streams and folders, put in order, changed where asked, and given to sinks.
//! It knows no socket and no file: sources and sinks come as traits. Read [`event`] first.

pub mod event;
