//! The stages a frame passes, one file each: the stage's parameters, their checks, and its own
//! state and decisions. `machine` connects the stages.

pub(crate) mod app;
pub(crate) mod buffers;
pub(crate) mod bus;
pub(crate) mod memory;
pub(crate) mod moderation;
pub(crate) mod packet_buffer;
pub(crate) mod poll;
pub(crate) mod ring;
pub(crate) mod rss;
pub(crate) mod socket;
pub(crate) mod stack;
pub(crate) mod traffic;
