//! The host: CPUs that serve interrupts, poll queues, run the stack, read sockets and, for veth, send.
//!
//! A CPU does one step at a time and then chooses the next: interrupts first, then polls, then programs,
//! except that a program which waited for a whole slice gets to run, as with ksoftirqd.

use super::{Machine, cpu::Step};
use crate::{
    agenda::Event,
    outcome::{CpuFunction, LossStage, TransactionKind},
    stages::{buffers::BufferTime, bus::Slot, packet_buffer::Frame},
};

impl Machine {
    /// Starts the next step of an idle CPU.
    #[inline]
    pub(super) fn kick(&mut self, cpu: usize) {
        if self.cpus[cpu].step.is_none() {
            self.choose(cpu);
        }
    }

    /// Chooses a CPU's next step.
    fn choose(&mut self, cpu: usize) {
        if let Some(queue) = self.cpus[cpu].interrupts.pop_front() {
            self.tally.spend(CpuFunction::Interrupt, self.costs.irq_ps);
            return self.begin(cpu, Step::Interrupt(queue), self.costs.irq_ps);
        }
        let program = self.waiting_program(cpu);
        let c = &mut self.cpus[cpu];
        if program.is_none() {
            c.turn_until_ps = 0;
            c.kept_off_ps = 0;
        }
        // a sender on this machine runs the receiving stack within its own call, so it never overtakes it
        let may_wait = matches!(program, Some(Step::Read(_)));
        let programs_turn = self.now_ps < c.turn_until_ps || c.kept_off_ps >= self.costs.slice_ps;
        let polls_first = !(may_wait && programs_turn);
        if polls_first {
            if let Some(queue) = c.polling {
                return self.continue_poll(cpu, queue);
            }
            if let Some(queue) = c.polls.pop_front() {
                c.polling = Some(queue);
                return self.start_poll(cpu, queue);
            }
        }
        let Some(program) = program else { return };
        if c.kept_off_ps >= self.costs.slice_ps {
            c.turn_until_ps = self.now_ps + self.costs.slice_ps;
            c.kept_off_ps = 0;
        }
        match program {
            Step::Read(thread) => {
                let cost_ps = self.read_ps(usize::from(thread));
                self.tally.spend(CpuFunction::Program, cost_ps);
                self.begin(cpu, program, cost_ps);
            }
            _ => {
                self.tally.spend(CpuFunction::Sender, self.costs.sender_ps);
                self.begin(cpu, program, self.costs.sender_ps);
            }
        }
    }

    /// A program of this CPU that is ready: the sender, or the next thread in turn.
    #[inline]
    fn waiting_program(&mut self, cpu: usize) -> Option<Step> {
        let c = &mut self.cpus[cpu];
        for offset in 0..c.threads.len() {
            let index = (c.next_thread + offset) % c.threads.len();
            let thread = c.threads[index];
            if self.sockets[self.threads[usize::from(thread)].socket].unclaimed() > 0 {
                c.next_thread = (index + 1) % c.threads.len();
                return Some(Step::Read(thread));
            }
        }
        let due = c.sends && self.now_ps < self.end_ps;
        let due = due && self.ports[0].next.is_some_and(|(at_ps, _)| at_ps <= self.now_ps);
        due.then_some(Step::Send)
    }

    #[inline]
    fn begin(&mut self, cpu: usize, step: Step, cost_ps: u64) {
        let c = &mut self.cpus[cpu];
        c.step = Some(step);
        c.until_ps = self.now_ps + cost_ps;
        *c.busy.of(step) += cost_ps;
        // a program that runs briefly between two interrupts still waits nearly all of the time
        c.kept_off_ps = match step {
            Step::Read(_) | Step::Send => c.kept_off_ps.saturating_sub(cost_ps),
            _ => c.kept_off_ps + cost_ps,
        };
        self.agenda.push(c.until_ps, Event::Done(cpu as u16));
    }

    /// A CPU has finished its step.
    pub(super) fn done(&mut self, cpu: usize) {
        let Some(step) = self.cpus[cpu].step.take() else { return };
        match step {
            Step::Interrupt(queue) => {
                let q = &mut self.queues[usize::from(queue)];
                let (frames, bytes) = std::mem::take(&mut q.since_interrupt);
                q.moderator.served(self.now_ps, frames, bytes);
                self.cpus[cpu].polls.push_back(queue);
            }
            Step::StartPoll => {}
            Step::Take(queue) => self.taken(usize::from(queue)),
            Step::Refill(queue, count) => self.refilled(usize::from(queue), count),
            Step::Read(thread) => self.read(usize::from(thread)),
            Step::Send => {
                if let Some((_, frame)) = self.ports[0].next {
                    self.schedule_arrival(0);
                    self.receive(0, frame);
                }
            }
        }
        self.kick(cpu);
    }

    fn start_poll(&mut self, cpu: usize, queue: u16) {
        let q = &mut self.queues[usize::from(queue)];
        q.polled = 0;
        q.closing = false;
        q.refilling = false;
        self.tally.polls += 1;
        if self.costs.poll_ps > 0 {
            self.tally.spend(CpuFunction::Poll, self.costs.poll_ps);
            self.begin(cpu, Step::StartPoll, self.costs.poll_ps);
        } else {
            self.continue_poll(cpu, queue);
        }
    }

    /// Takes the next frame of a poll, refills descriptors, or ends the poll.
    fn continue_poll(&mut self, cpu: usize, queue: u16) {
        let q = &mut self.queues[usize::from(queue)];
        if !q.closing {
            let more = q.visible > 0 && q.polled < self.costs.budget;
            if more && !q.refilling && q.to_refill < self.costs.refill_after {
                return self.take(cpu, queue);
            }
            q.closing = !more;
        }
        let enough = q.to_refill >= self.costs.refill_after || (q.closing && self.costs.refill_at_end);
        q.refilling |= enough;
        if q.refilling && self.refill(cpu, queue) {
            return;
        }
        let q = &mut self.queues[usize::from(queue)];
        q.refilling = false;
        if q.closing { self.end_poll(cpu, queue) } else { self.take(cpu, queue) }
    }

    /// Begins to pass a frame from its descriptor up the stack.
    #[inline]
    fn take(&mut self, cpu: usize, queue: u16) {
        let q = &mut self.queues[usize::from(queue)];
        let bytes = q.stored.front().map_or(0, |frame| frame.bytes);
        let buffer_ps = q.allocator.frame_taken(bytes);
        let frame_ps = if q.bypassed {
            self.tally.spend(CpuFunction::Program, self.costs.bypass_ps);
            self.costs.bypass_ps
        } else {
            self.tally.spend(CpuFunction::Driver, self.costs.driver_ps);
            self.tally.spend(CpuFunction::Stack, self.costs.stack_ps);
            self.costs.driver_ps + self.costs.stack_ps
        };
        self.tally.spend(CpuFunction::Copy, buffer_ps);
        self.begin(cpu, Step::Take(queue), frame_ps + buffer_ps);
    }

    #[inline]
    fn taken(&mut self, queue: usize) {
        let q = &mut self.queues[queue];
        let Some(frame) = q.stored.pop() else { return };
        q.occupancy.set(self.now_ps, q.stored.len());
        q.visible -= 1;
        q.polled += 1;
        q.to_refill += 1;
        q.since_interrupt.0 += 1;
        q.since_interrupt.1 += u64::from(frame.bytes);
        if q.bypassed || self.costs.ends_in_driver {
            q.allocator.give_back(frame.bytes);
            self.tally.deliver(queue, frame.bytes);
        } else {
            self.queue_for_program(queue, frame);
        }
    }

    /// Queues a frame for the program, or loses it.
    fn queue_for_program(&mut self, queue: usize, frame: Frame) {
        let socket = queue % self.sockets.len();
        if self.sockets[socket].push(self.now_ps, frame) {
            let sleeper = (0..self.threads.len()).find(|t| {
                self.threads[*t].socket == socket && self.cpus[self.threads[*t].cpu].step.is_none()
            });
            if let Some(thread) = sleeper {
                self.kick(self.threads[thread].cpu);
            }
        } else {
            self.queues[queue].allocator.give_back(frame.bytes);
            self.tally.lose(LossStage::SocketBuffer);
        }
    }

    /// Begins to refill descriptors up to where the tail next moves; false when there is nothing to refill
    /// or no buffer to refill with.
    fn refill(&mut self, cpu: usize, queue: u16) -> bool {
        let q = &mut self.queues[usize::from(queue)];
        let most = q.to_refill.min(q.descriptors.until_tail());
        let (mut count, mut cost) = (0, BufferTime::default());
        while count < most {
            let Some(time) = q.allocator.take() else { break };
            cost.add(time);
            count += 1;
        }
        if count == 0 {
            q.starved = q.to_refill > 0;
            return false;
        }
        self.tally.spend(CpuFunction::Reset, cost.reset_ps);
        self.tally.spend(CpuFunction::Allocate, cost.allocate_ps);
        self.tally.spend(CpuFunction::Pages, cost.pages_ps);
        let closed_ps = self.memory.closed_ps(cost.allocate_ps + cost.pages_ps);
        if closed_ps > 0 {
            self.bus.close(self.now_ps, closed_ps);
        }
        self.begin(cpu, Step::Refill(queue, count), cost.total_ps());
        true
    }

    fn refilled(&mut self, queue: usize, count: u64) {
        let q = &mut self.queues[queue];
        q.to_refill -= count;
        let published = q.descriptors.published;
        q.descriptors.fill(count);
        if q.descriptors.published > published {
            let port = q.port;
            self.record(TransactionKind::Tail, port, Slot { start_ps: self.now_ps, end_ps: self.now_ps });
            self.fetch(queue);
            self.pump(port);
        }
    }

    /// Ends a poll: another one follows when the budget was used up, otherwise interrupts are on again.
    fn end_poll(&mut self, cpu: usize, queue: u16) {
        self.cpus[cpu].polling = None;
        let q = &mut self.queues[usize::from(queue)];
        if q.polled >= self.costs.budget {
            self.cpus[cpu].polls.push_back(queue);
        } else {
            q.masked = false;
            self.ask_interrupt(usize::from(queue));
        }
        self.kick(cpu);
    }

    /// The cost of a thread's next frame, with its call and wake-up; reserves the frame.
    fn read_ps(&mut self, thread: usize) -> u64 {
        let mut cost_ps = if self.costs.exponential {
            self.random.exponential_ps(self.costs.recv_ps as f64)
        } else {
            self.costs.recv_ps
        };
        let t = &mut self.threads[thread];
        if t.left == 0 {
            t.left = self.costs.batch;
            cost_ps += self.costs.syscall_ps;
        }
        if t.asleep {
            t.asleep = false;
            cost_ps += self.costs.wakeup_ps;
        }
        self.sockets[t.socket].claim();
        cost_ps
    }

    fn read(&mut self, thread: usize) {
        let t = &mut self.threads[thread];
        t.left -= 1;
        let socket = &mut self.sockets[t.socket];
        let Some(frame) = socket.pop(self.now_ps) else { return };
        if socket.unclaimed() == 0 {
            t.asleep = true;
            t.left = 0;
        }
        let queue = usize::from(frame.queue);
        self.tally.deliver(queue, frame.bytes);
        let q = &mut self.queues[queue];
        q.allocator.give_back(frame.bytes);
        // the program's call wakes a driver that ran out of buffers (need-wakeup)
        if q.starved && !q.masked {
            q.starved = false;
            q.masked = true;
            let cpu = q.cpu;
            self.cpus[cpu].polls.push_back(queue as u16);
            self.kick(cpu);
        }
    }
}
