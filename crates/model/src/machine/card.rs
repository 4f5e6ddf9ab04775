//! The card: frames from the wire into the packet buffer, over the bus into the buffers that descriptors
//! name, and the finished descriptors back to memory.

use super::Machine;
use crate::{
    agenda::Event,
    outcome::{BufferLevel, LossStage, Transaction, TransactionKind},
    stages::{bus::Slot, packet_buffer::Frame},
};

impl Machine {
    /// Makes the next frame of a port, and an event for when it is due.
    pub(super) fn schedule_arrival(&mut self, port: usize) {
        let p = &mut self.ports[port];
        p.next = p.arrivals.next(&mut self.random).map(|(at_ps, bytes)| {
            let at_ps = if p.at_will { 0 } else { at_ps };
            (at_ps, Frame { bytes, queue: p.steering.queue(&mut self.random) })
        });
        match p.next {
            Some((at_ps, _)) if at_ps >= self.end_ps => p.next = None,
            Some((at_ps, _)) if self.costs.sender_ps == 0 => {
                self.agenda.push(at_ps, Event::Arrive(port as u16))
            }
            // a late sender needs no wake-up, except for its first frame
            Some((at_ps, _)) if at_ps > self.now_ps || self.now_ps == 0 => {
                self.agenda.push(at_ps, Event::Arrive(port as u16));
            }
            _ => {}
        }
    }

    /// A frame's last bit has arrived, or a sender on this machine may send.
    pub(super) fn arrive(&mut self, port: usize) {
        if self.costs.sender_ps > 0 {
            let cpu = self.cpus.iter().position(|cpu| cpu.sends);
            return cpu.into_iter().for_each(|cpu| self.kick(cpu));
        }
        if let Some((_, frame)) = self.ports[port].next {
            self.schedule_arrival(port);
            self.receive(port, frame);
        }
    }

    /// The card takes a frame into its packet buffer, if it can.
    pub(super) fn receive(&mut self, port: usize, frame: Frame) {
        self.tally.sent += 1;
        self.tally.sent_bytes += u64::from(frame.bytes);
        if !self.queues[usize::from(frame.queue)].descriptors.any() {
            self.tally.no_descriptor_arrivals += 1;
        }
        if self.ports[port].fifo.push(self.now_ps, frame) {
            self.record_level(port);
            self.pump(port);
        } else {
            self.tally.lose(LossStage::PacketBuffer);
        }
    }

    /// Moves frames from the packet buffer to memory as long as bus and descriptors allow.
    pub(super) fn pump(&mut self, port: usize) {
        while !self.ports[port].transferring {
            let Some(frame) = self.ports[port].fifo.front() else { return };
            let queue = usize::from(frame.queue);
            if self.queues[queue].descriptors.on_chip == 0 {
                self.fetch(queue);
            }
            let descriptors = &mut self.queues[queue].descriptors;
            if descriptors.on_chip == 0 {
                if !self.costs.drop_when_empty || descriptors.any() {
                    return;
                }
                self.ports[port].fifo.pop(self.now_ps);
                self.tally.lose(LossStage::NoDescriptor);
                continue;
            }
            descriptors.on_chip -= 1;
            let slot = self.bus.write(self.now_ps, frame.bytes);
            self.record(TransactionKind::Frame, port, slot);
            self.fetch(queue);
            if slot.end_ps > self.now_ps {
                self.ports[port].transferring = true;
                return self.agenda.push(slot.end_ps, Event::Stored(port as u16));
            }
            self.stored(port);
        }
    }

    /// Fetches descriptors when the card is low and the driver has published some.
    pub(super) fn fetch(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        let ring = &mut q.descriptors;
        if ring.on_chip > self.costs.fetch_below || ring.fetching > 0 || ring.fetchable() == 0 {
            return;
        }
        let mut stopped = false;
        let mut count = ring.fetchable().min(u64::from(self.costs.on_chip - ring.on_chip)) as u32;
        if self.costs.stop_above_bytes.is_some_and(|bytes| self.ports[q.port].fifo.bytes() > bytes) {
            stopped = count > self.costs.stop_after;
            count = count.min(self.costs.stop_after);
        }
        ring.fetched += u64::from(count);
        ring.fetching = count;
        let (port, mut left, mut end_ps) = (q.port, count, self.now_ps);
        while left > 0 {
            let burst = left.min(self.costs.fetch_batch);
            let slot = self.bus.read(self.now_ps, burst * self.costs.descriptor_bytes);
            self.record(TransactionKind::Fetch, port, slot);
            end_ps = slot.end_ps;
            left -= burst;
        }
        if stopped {
            self.record(TransactionKind::Stop, port, Slot { start_ps: end_ps, end_ps });
        }
        if end_ps > self.now_ps {
            self.agenda.push(end_ps, Event::Fetched(queue as u16));
        } else {
            let ring = &mut self.queues[queue].descriptors;
            ring.on_chip += ring.fetching;
            ring.fetching = 0;
        }
    }

    pub(super) fn fetched(&mut self, queue: usize) {
        let ring = &mut self.queues[queue].descriptors;
        ring.on_chip += ring.fetching;
        ring.fetching = 0;
        self.pump(self.queues[queue].port);
    }

    /// A frame has reached memory.
    pub(super) fn stored(&mut self, port: usize) {
        let Some(frame) = self.ports[port].fifo.pop(self.now_ps) else { return };
        self.record_level(port);
        let queue = usize::from(frame.queue);
        let q = &mut self.queues[queue];
        q.stored.push(frame);
        q.occupancy.set(self.now_ps, q.stored.len());
        q.unwritten += 1;
        self.ask_write_back(queue, self.costs.writeback_delay_ps);
        self.ask_interrupt(queue);
    }

    /// Requests the bus once a group of descriptors is finished.
    fn ask_write_back(&mut self, queue: usize, delay_ps: u64) {
        let q = &mut self.queues[queue];
        if q.unwritten < self.costs.writeback_batch || q.write_back_asked || q.writing > 0 {
            return;
        }
        if delay_ps == 0 {
            return self.write_back(queue);
        }
        q.write_back_asked = true;
        self.agenda.push(self.now_ps + delay_ps, Event::WriteBack(queue as u16));
    }

    /// Writes finished descriptors back: a whole group or, for an interrupt, an incomplete one.
    pub(super) fn write_back(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        q.write_back_asked = false;
        q.writing = q.unwritten.min(self.costs.writeback_batch);
        q.unwritten -= q.writing;
        let slot = self.bus.write(self.now_ps, q.writing * self.costs.descriptor_bytes);
        let port = q.port;
        self.record(TransactionKind::WriteBack, port, slot);
        if slot.end_ps > self.now_ps {
            self.agenda.push(slot.end_ps, Event::Written(queue as u16));
        } else {
            self.written(queue);
        }
    }

    pub(super) fn written(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        q.visible += u64::from(q.writing);
        q.writing = 0;
        self.ask_write_back(queue, 0);
        self.ask_interrupt(queue);
    }

    /// Requests an interrupt from the moderation while frames wait that the driver has not seen.
    pub(super) fn ask_interrupt(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        if q.masked || q.stored.is_empty() {
            return;
        }
        // finished descriptors are on the bus: their arrival requests again
        if q.visible == 0 && (q.writing > 0 || q.write_back_asked) {
            return;
        }
        if q.interrupt_due_ps.is_some() && !q.moderator.counts_frames() {
            return;
        }
        let due_ps = q.moderator.due_ps(self.now_ps, q.stored.len());
        if due_ps == self.now_ps {
            self.interrupt(queue);
        } else if q.interrupt_due_ps.is_none() {
            q.interrupt_due_ps = Some(due_ps);
            self.agenda.push(due_ps, Event::Moderated(queue as u16));
        }
    }

    pub(super) fn moderated(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        // an event that an earlier interrupt has overtaken is void
        if q.interrupt_due_ps != Some(self.now_ps) {
            return;
        }
        q.interrupt_due_ps = None;
        // a program may have started a poll meanwhile; its end requests again
        if !q.masked {
            self.interrupt(queue);
        }
    }

    /// Interrupts the queue's CPU; an incomplete group of descriptors is written back first.
    fn interrupt(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        q.interrupt_due_ps = None;
        q.masked = true;
        q.moderator.raised(self.now_ps);
        let (cpu, polled) = (q.cpu, q.polled_mode);
        if q.unwritten > 0 && q.writing == 0 && !q.write_back_asked {
            self.write_back(queue);
        }
        let waiting = if polled { &mut self.cpus[cpu].polls } else { &mut self.cpus[cpu].interrupts };
        waiting.push_back(queue as u16);
        self.kick(cpu);
    }

    /// Records the level of a packet buffer, for the trace.
    #[inline]
    fn record_level(&mut self, port: usize) {
        if self.now_ps < self.trace_ps {
            let bytes = self.ports[port].fifo.bytes();
            self.levels.push(BufferLevel { port: port as u32, at_ps: self.now_ps, bytes });
        }
    }

    /// Records a bus transaction, for the trace.
    #[inline]
    pub(super) fn record(&mut self, kind: TransactionKind, port: usize, slot: Slot) {
        if slot.start_ps < self.trace_ps {
            self.trace.push(Transaction {
                kind,
                port: port as u32,
                start_ps: slot.start_ps,
                length_ps: slot.end_ps - slot.start_ps,
            });
        }
    }
}
