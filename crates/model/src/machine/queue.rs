//! Ports and queues of a card, as they are between two events.

use crate::{
    config::Config,
    gauge::Gauge,
    run_queue::RunQueue,
    stages::{
        buffers::{Allocator, BufferPolicy},
        moderation::{Moderation, ModerationMode, Moderator},
        packet_buffer::{Fifo, Frame},
        ring::Descriptors,
        rss::Steering,
        traffic::Arrivals,
    },
};

/// A port: what arrives on it, and the memory it arrives in.
pub(super) struct Port {
    pub(super) arrivals: Arrivals,
    pub(super) steering: Steering,
    /// The next frame and when its last bit is in.
    pub(super) next: Option<(u64, Frame)>,
    pub(super) fifo: Fifo,
    /// A frame is crossing the bus.
    pub(super) transferring: bool,
    /// The sender sends as fast as it can.
    pub(super) at_will: bool,
}

/// A queue: its ring as card and driver see it.
pub(super) struct Queue {
    pub(super) port: usize,
    pub(super) cpu: usize,
    pub(super) bypassed: bool,
    pub(super) descriptors: Descriptors,
    pub(super) allocator: Allocator,
    pub(super) moderator: Moderator,
    /// Frames in memory that the driver has not taken, oldest first; the first `visible` have their
    /// descriptors written back.
    pub(super) stored: RunQueue<Frame>,
    pub(super) visible: u64,
    pub(super) occupancy: Gauge,
    /// Finished descriptors without a write-back request, and those that are crossing the bus.
    pub(super) unwritten: u32,
    pub(super) writing: u32,
    pub(super) write_back_asked: bool,
    /// The driver has switched interrupts off until its poll ends.
    pub(super) masked: bool,
    pub(super) interrupt_due_ps: Option<u64>,
    pub(super) polled_mode: bool,
    /// Descriptors whose frames the driver has taken and that have no new buffer yet.
    pub(super) to_refill: u64,
    pub(super) refilling: bool,
    pub(super) polled: u32,
    pub(super) closing: bool,
    /// The driver found no buffer and waits for the program to return one.
    pub(super) starved: bool,
    /// Frames and bytes taken since the last interrupt.
    pub(super) since_interrupt: (u64, u64),
}

impl Port {
    pub(super) fn new(config: &Config, first_queue: u32) -> Self {
        Self {
            arrivals: Arrivals::new(&config.traffic),
            steering: Steering::new(&config.rss, first_queue),
            next: None,
            fifo: Fifo::new(&config.packet_buffer),
            transferring: false,
            at_will: config.traffic.sender_ns > 0.0 && config.traffic.offered_pps.is_none(),
        }
    }
}

impl Queue {
    pub(super) fn new(config: &Config, number: u32) -> Self {
        let bypassed = config.rss.bypass_queue == Some(number % config.rss.queues);
        let polled = Moderation { mode: ModerationMode::Polled, ..config.moderation.clone() };
        let mut buffers = config.buffers.clone();
        if bypassed {
            // the program owns the queue's buffers; returning them is part of its time
            buffers.policy = BufferPolicy::Recycle;
            buffers.reset_ns = 0.0;
        }
        Self {
            port: (number / config.rss.queues) as usize,
            cpu: config.poll.cpu_of(number) as usize,
            bypassed,
            descriptors: Descriptors::new(&config.ring),
            allocator: Allocator::new(&buffers, config.ring.descriptors),
            moderator: Moderator::new(if bypassed { &polled } else { &config.moderation }),
            stored: RunQueue::new(),
            visible: 0,
            occupancy: Gauge::default(),
            unwritten: 0,
            writing: 0,
            write_back_asked: false,
            masked: false,
            interrupt_due_ps: None,
            polled_mode: bypassed || config.moderation.mode == ModerationMode::Polled,
            to_refill: 0,
            refilling: false,
            polled: 0,
            closing: false,
            starved: false,
            since_interrupt: (0, 0),
        }
    }
}
