//! Errors of ports: what was tried, on what, and why it failed.

use std::{io, net::SocketAddr};

use sys::{NetlinkError, pci::PciError, xsk::XskError};
use thiserror::Error;

/// A port could not be opened, or broke.
#[derive(Debug, Error)]
pub enum PortError {
    /// A local address could not be bound.
    #[error("cannot bind UDP {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// An interface does not exist.
    #[error("cannot use interface {interface}")]
    NoInterface {
        /// Its name.
        interface: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A peer could not be connected to.
    #[error("cannot reach {peer} by UDP")]
    Connect {
        /// The peer.
        peer: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// An option was refused.
    #[error("cannot set {option} on a UDP socket")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Sending failed for good.
    #[error("cannot send to {peer}")]
    Send {
        /// The peer.
        peer: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Receiving failed for good.
    #[error("cannot receive on {address}")]
    Receive {
        /// The local address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A stream could not be opened, or broke.
    #[error("cannot {tried} TCP {address}")]
    Stream {
        /// What was tried.
        tried: &'static str,
        /// The peer's or the local address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The path needs a capability that this process lacks.
    #[error("the {path} path needs {capability}")]
    Capability {
        /// The path.
        path: &'static str,
        /// The capability's name, as in capabilities(7).
        capability: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A kernel feature that the path needs is missing or refused.
    #[error("cannot {tried} {facility}{needs}")]
    Facility {
        /// What was tried.
        tried: &'static str,
        /// The kernel's name for it.
        facility: &'static str,
        /// What it needs, in brackets; nothing when unknown.
        needs: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A step on an interface failed.
    #[error("cannot {tried} on interface {interface}")]
    Interface {
        /// What was tried.
        tried: &'static str,
        /// The interface's number.
        interface: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The interface cannot carry such frames.
    #[error("frames of {frame_bytes} bytes do not fit interface {interface}: at most {longest} without FCS")]
    FrameTooLong {
        /// The frame's length without FCS.
        frame_bytes: usize,
        /// The longest that fits.
        longest: usize,
        /// The interface's number.
        interface: u32,
    },
    /// An interface could not be found.
    #[error("cannot use {interface}")]
    Link {
        /// The interface.
        interface: String,
        /// The kernel's reason.
        source: NetlinkError,
    },
    /// A setting of the interface's NAPI could not be changed.
    #[error("cannot set {setting} of {interface} for busy polling")]
    Napi {
        /// The interface.
        interface: String,
        /// The setting's file in sysfs.
        setting: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Another process busy-polls the interface.
    #[error("cannot set {setting} of {interface}: another process has set it for its own busy polling")]
    NapiInUse {
        /// The interface.
        interface: String,
        /// The setting's file in sysfs.
        setting: &'static str,
        /// The lock that was refused.
        source: io::Error,
    },
    /// A queue that the interface does not have.
    #[error("{interface} has no queue {queue}: it has {queues}, numbered from 0")]
    NoQueue {
        /// The interface.
        interface: String,
        /// The requested queue.
        queue: u32,
        /// Number of queues.
        queues: u32,
    },
    /// A frame that does not fit the port's memory.
    #[error("a frame of {bytes} bytes does not fit the port's {most}")]
    FrameBeyondSlot {
        /// The longest frame of the run.
        bytes: usize,
        /// The longest possible.
        most: usize,
    },
    /// An AF_XDP socket could not be opened.
    #[error("cannot open an AF_XDP socket on queue {queue} of {interface}")]
    Xsk {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What was missing.
        source: XskError,
    },
    /// An AF_XDP socket broke.
    #[error("cannot {action} the AF_XDP socket on queue {queue} of {interface}")]
    XskBroken {
        /// What was tried.
        action: &'static str,
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A BPF program could not be loaded, attached, run or read.
    #[error(transparent)]
    Bpf(bpf::BpfError),
    /// A card could not be taken from the kernel, or does not respond.
    #[error(transparent)]
    Pci(#[from] PciError),
    /// Taking the card from the kernel needs consent.
    #[error("cannot take {interface} from the kernel's driver without consent (--take-device)")]
    NoConsent {
        /// The interface.
        interface: String,
    },
    /// A card that this driver does not support.
    #[error(
        "cannot drive the card of {interface} ({vendor:04x}:{device:04x}): expected an Intel 82540EM (8086:100e) or \
         82574L (8086:10d3)"
    )]
    UnknownCard {
        /// The interface.
        interface: String,
        /// The vendor's number.
        vendor: u16,
        /// The device's number.
        device: u16,
    },
    /// An invalid ring size.
    #[error("a ring has 16 to 4096 descriptors, a multiple of 8, not {slots}")]
    RingSlots {
        /// The requested number.
        slots: u32,
    },
    /// The card would run out of descriptors before it gets new ones.
    #[error(
        "one write of the tail hands over 1 to {} descriptors of a ring of {slots}, not {descriptors}", slots / 2
    )]
    TailBatch {
        /// The requested number.
        descriptors: u32,
        /// The ring's descriptors.
        slots: u32,
    },
    /// More than half of the ring.
    #[error("a ring of {slots} descriptors is loaded at most {} ahead, not {descriptors}", slots / 2)]
    Prefetch {
        /// What was asked.
        descriptors: u32,
        /// The ring's descriptors.
        slots: u32,
    },
    /// The card has stopped sending.
    #[error("the card did not send {frames} frames of its ring")]
    NotSent {
        /// Frames that it still has.
        frames: u32,
    },
    /// This driver uses one ring per card.
    #[error("a card's ring has one thread: --threads 1")]
    OneRing,
    /// The kernel's pktgen is not loaded.
    #[error("the pktgen path needs the kernel module pktgen (modprobe pktgen)")]
    NoPktgen {
        /// The kernel's reason.
        source: io::Error,
    },
    /// Another user has work on a kernel thread of pktgen.
    #[error("cannot use pktgen: its thread {thread} already has the device {device}")]
    PktgenInUse {
        /// The thread's name.
        thread: String,
        /// The device.
        device: String,
    },
    /// The kernel's generator refused.
    #[error("pktgen rejects '{command}' for {file}{said}")]
    Pktgen {
        /// The command.
        command: String,
        /// The thread's or device's file.
        file: String,
        /// The kernel's message, in brackets; often empty.
        said: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A veth's peer has no ring for XDP frames, and would lose them all silently.
    #[error(
        "no frame sent by XDP on {interface} arrives: its peer has no receive rings; attach an XDP program there, or \
         turn GRO on (ethtool -K PEER gro on)"
    )]
    NoReceiveRings {
        /// The sending interface.
        interface: String,
    },
}

impl PortError {
    /// The kernel's error, if this crate received one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Bind { source, .. }
            | Self::NoInterface { source, .. }
            | Self::Connect { source, .. }
            | Self::Option { source, .. }
            | Self::Send { source, .. }
            | Self::Stream { source, .. }
            | Self::Receive { source, .. }
            | Self::Capability { source, .. }
            | Self::Facility { source, .. }
            | Self::Interface { source, .. }
            | Self::XskBroken { source, .. }
            | Self::Napi { source, .. }
            | Self::NapiInUse { source, .. }
            | Self::NoPktgen { source }
            | Self::Pktgen { source, .. } => Some(source),
            Self::Xsk { source, .. } => Some(source.io()),
            Self::Pci(source) => source.io(),
            Self::FrameTooLong { .. }
            | Self::Link { .. }
            | Self::NoQueue { .. }
            | Self::FrameBeyondSlot { .. }
            | Self::Bpf(_)
            | Self::PktgenInUse { .. }
            | Self::NoConsent { .. }
            | Self::UnknownCard { .. }
            | Self::RingSlots { .. }
            | Self::TailBatch { .. }
            | Self::Prefetch { .. }
            | Self::NotSent { .. }
            | Self::OneRing
            | Self::NoReceiveRings { .. } => None,
        }
    }
}
