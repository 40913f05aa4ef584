//! Queue pairs of RoCEv2 in software: a responder, which says of each packet where its bytes go, and a requester, which
//! cuts messages into packets. Neither touches memory or sockets. Read [`responder::Responder`] first.
//!
//! What is there: UC and UD, and RC as far as a responder acknowledges; WRITE and SEND, with and without immediate
//! data. What is not: READ and atomics (RC answers them with "invalid request"), the requester of RC with its
//! repetitions, shared receive queues, memory windows, congestion control (a notification is recognised and counted).
//!
//! Rules: InfiniBand Architecture Specification, volume 1, chapter 9; where it leaves a choice, that of the software
//! implementation of Linux (rxe), which docs/protocols.md 10.5 names.

pub mod holoscan;
pub mod image;
pub mod pair;
pub mod requester;
pub mod responder;
pub mod verdict;
