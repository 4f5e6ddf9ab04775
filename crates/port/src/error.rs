//! What can go wrong at a port: what was tried, on what, and why it failed.

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
    /// An interface is not there.
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
    /// A stream could not be had, or broke.
    #[error("cannot {tried} TCP {address}")]
    Stream {
        /// What was tried.
        tried: &'static str,
        /// The peer's or the local address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The path needs a right that this process has not.
    #[error("the {path} path needs {capability}")]
    Capability {
        /// The path.
        path: &'static str,
        /// The capability's name, as in capabilities(7).
        capability: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Something of the kernel that the path is made of is missing or refused.
    #[error("cannot {tried} {facility}{needs}")]
    Facility {
        /// What was tried.
        tried: &'static str,
        /// What the kernel calls it.
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
    /// The interface does not carry such frames.
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
    /// Another process polls the interface busily.
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
        /// The queue asked for.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// A frame that the port's memory has no room for.
    #[error("a frame of {bytes} bytes does not fit the port's {most}")]
    FrameBeyondSlot {
        /// The longest frame of the run.
        bytes: usize,
        /// The longest possible.
        most: usize,
    },
    /// There is no AF_XDP socket to be had.
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
    /// A card could not be taken from the kernel, or does not answer.
    #[error(transparent)]
    Pci(#[from] PciError),
    /// Nobody agreed to take the card from the kernel.
    #[error("cannot take {interface} from the kernel's driver without consent (--take-device)")]
    NoConsent {
        /// The interface.
        interface: String,
    },
    /// A card that the driver here does not know.
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
    /// Cards have no such rings.
    #[error("a ring has 16 to 4096 descriptors, a multiple of 8, not {slots}")]
    RingSlots {
        /// What was asked.
        slots: u32,
    },
    /// The card would run dry before it gets descriptors again.
    #[error(
        "one write of the tail hands over 1 to {} descriptors of a ring of {slots}, not {descriptors}", slots / 2
    )]
    TailBatch {
        /// What was asked.
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
        /// How many it still has.
        frames: u32,
    },
    /// A card has one ring here.
    #[error("a card's ring has one thread: --threads 1")]
    OneRing,
    /// The kernel's generator is not loaded.
    #[error("the pktgen path needs the kernel module pktgen (modprobe pktgen)")]
    NoPktgen {
        /// The kernel's reason.
        source: io::Error,
    },
    /// A kernel thread of the generator has work of somebody else.
    #[error("cannot use pktgen: its thread {thread} already has the device {device}")]
    PktgenInUse {
        /// The thread's name.
        thread: String,
        /// The device.
        device: String,
    },
    /// The kernel's generator refused.
    #[error("pktgen does not take '{command}' for {file}{said}")]
    Pktgen {
        /// The command.
        command: String,
        /// The thread's or device's file.
        file: String,
        /// What the kernel said of it, in brackets; often nothing.
        said: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A veth's peer has nowhere to put frames of XDP, and would lose them all without a word.
    #[error(
        "nothing sent by XDP on {interface} arrives: its peer has no receive rings; attach an XDP program there, or \
         switch GRO on (ethtool -K PEER gro on)"
    )]
    NoReceiveRings {
        /// The sending interface.
        interface: String,
    },
}

impl PortError {
    /// The kernel's reason, where it gave one to this crate.
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
