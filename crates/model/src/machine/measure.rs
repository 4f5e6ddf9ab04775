//! Counting: totals, the measured window, the time series, and the closed ledger.

use super::{Machine, cpu::Busy, tally::Snapshot};
use crate::{
    outcome::{
        Counters, CpuFunction, CpuTime, FunctionTime, Level, Loss, LossStage, Occupancy, Outcome,
        QueueOutcome, Sample,
    },
    units::{PS_PER_S, seconds},
};

impl Machine {
    /// Takes the samples that are due before an event at this time.
    pub(super) fn pass_marks(&mut self, at_ps: u64) {
        while self.tally.next_mark_ps <= at_ps {
            let mark_ps = self.tally.next_mark_ps;
            if mark_ps == self.tally.warm_ps && self.tally.warm.is_none() {
                self.tally.warm = Some(self.snapshot(mark_ps));
                self.ports.iter_mut().for_each(|p| p.fifo.occupancy.restart(mark_ps));
                self.queues.iter_mut().for_each(|q| q.occupancy.restart(mark_ps));
                self.sockets.iter_mut().for_each(|s| s.occupancy.restart(mark_ps));
            }
            if mark_ps == self.tally.next_sample_ps {
                self.sample(mark_ps);
                let t = &mut self.tally;
                let next = t.series.len() as u128 + 1;
                t.next_sample_ps = (u128::from(t.end_ps) * next / u128::from(t.samples)) as u64;
            }
            if mark_ps == self.tally.end_ps {
                self.tally.end = Some(self.snapshot(mark_ps));
                self.tally.occupancy = self.occupancy(mark_ps);
            }
            let t = &mut self.tally;
            let end_ps = if t.end.is_none() { t.end_ps } else { u64::MAX };
            let warm_ps = if t.warm.is_none() { t.warm_ps } else { u64::MAX };
            let sample_ps = if t.next_sample_ps <= t.end_ps { t.next_sample_ps } else { u64::MAX };
            t.next_mark_ps = warm_ps.min(sample_ps).min(end_ps);
            if t.next_mark_ps == u64::MAX {
                return;
            }
        }
    }

    fn counters(&self) -> Counters {
        let t = &self.tally;
        Counters {
            sent: t.sent,
            sent_bytes: t.sent_bytes,
            delivered: t.delivered,
            delivered_bytes: t.delivered_bytes,
            lost: t.lost.iter().sum(),
            interrupts: self.queues.iter().map(|q| q.moderator.interrupts).sum(),
            polls: t.polls,
            page_trips: self.queues.iter().map(|q| q.allocator.page_trips).sum(),
            no_descriptor_arrivals: t.no_descriptor_arrivals,
        }
    }

    fn snapshot(&self, now_ps: u64) -> Snapshot {
        let delivered = |queue| self.tally.by_queue.get(queue).copied().unwrap_or(0);
        Snapshot {
            counters: self.counters(),
            cpus: self.cpus.iter().map(|cpu| cpu.busy_until(now_ps)).collect(),
            by_queue: self
                .queues
                .iter()
                .enumerate()
                .map(|(n, q)| (delivered(n), q.moderator.interrupts))
                .collect(),
            bus_busy_ps: self.bus.busy_ps,
        }
    }

    fn sample(&mut self, at_ps: u64) {
        let now = self.counters();
        let since = now.since(&self.tally.at_last_sample);
        self.tally.series.push(Sample {
            at_us: at_ps as f64 / 1e6,
            packet_buffer_bytes: self.ports.iter().map(|p| p.fifo.bytes()).sum(),
            ring_free: self.queues.iter().map(|q| q.descriptors.owned_by_card()).sum(),
            ring_used: self.queues.iter().map(|q| q.stored.len()).sum(),
            socket_frames: self.sockets.iter().map(|s| s.len()).sum(),
            sent: since.sent,
            delivered: since.delivered,
            delivered_bytes: since.delivered_bytes,
            lost: since.lost,
        });
        self.tally.at_last_sample = now;
    }

    fn occupancy(&self, now_ps: u64) -> Occupancy {
        let level = |gauges: &mut dyn Iterator<Item = &crate::gauge::Gauge>| {
            gauges.fold(Level::default(), |sum, gauge| Level {
                mean_frames: sum.mean_frames + gauge.mean(now_ps),
                most_frames: sum.most_frames.max(gauge.most()),
            })
        };
        Occupancy {
            packet_buffer: level(&mut self.ports.iter().map(|p| &p.fifo.occupancy)),
            ring: level(&mut self.queues.iter().map(|q| &q.occupancy)),
            socket: level(&mut self.sockets.iter().map(|s| &s.occupancy)),
        }
    }

    /// Closes the ledger of a drained machine.
    pub(super) fn finish(mut self) -> Outcome {
        let drained_ps = self.now_ps.max(self.tally.end_ps);
        self.pass_marks(drained_ps);
        let counters = self.counters();
        let inside = self.ports.iter().map(|p| p.fifo.len()).sum::<u64>()
            + self.queues.iter().map(|q| q.stored.len()).sum::<u64>()
            + self.sockets.iter().map(|s| s.len()).sum::<u64>();
        assert_eq!(inside, 0, "a drained machine holds no frame");
        assert_eq!(counters.sent, counters.delivered + counters.lost, "every lost frame has a place");
        let warm = self.tally.warm.take().unwrap_or_default();
        let end = self.tally.end.take().unwrap_or_default();
        let window_ps = self.tally.end_ps - self.tally.warm_ps;
        let share = |now: u64, before: u64| (now - before) as f64 / window_ps as f64;
        let cpus = end.cpus.iter().zip(&warm.cpus).enumerate().map(|(cpu, (now, before))| CpuTime {
            cpu: cpu as u32,
            irq_ratio: share(now.irq, before.irq),
            softirq_ratio: share(now.softirq, before.softirq),
            app_ratio: share(now.app, before.app),
            sender_ratio: share(now.sender, before.sender),
        });
        let queues =
            end.by_queue.iter().zip(&warm.by_queue).enumerate().map(|(queue, (now, before))| QueueOutcome {
                queue: queue as u32,
                cpu: self.queues[queue].cpu as u32,
                delivered_pps: (now.0 - before.0) as f64 * PS_PER_S as f64 / window_ps as f64,
                interrupts_per_s: (now.1 - before.1) as f64 * PS_PER_S as f64 / window_ps as f64,
            });
        let sum = |select: fn(&Busy) -> u64| {
            seconds(self.cpus.iter().map(|cpu| select(&cpu.busy_until(drained_ps))).sum())
        };
        let all_ps = self.tally.by_function.iter().sum::<u64>().max(1);
        let functions = CpuFunction::ALL
            .into_iter()
            .map(|function| (function, self.tally.by_function[function as usize]))
            .filter(|(_, ps)| *ps > 0)
            .map(|(function, ps)| FunctionTime {
                function,
                cpu_s: seconds(ps),
                busy_ratio: ps as f64 / all_ps as f64,
            })
            .collect();
        Outcome {
            functions,
            duration_s: seconds(self.tally.end_ps),
            window_s: seconds(window_ps),
            drained_s: seconds(drained_ps),
            total: counters,
            window: end.counters.since(&warm.counters),
            losses: LossStage::ALL
                .into_iter()
                .map(|place| Loss { place, packets: self.tally.lost[place as usize] })
                .filter(|loss| loss.packets > 0)
                .collect(),
            cpus: cpus.collect(),
            queues: queues.collect(),
            cpu_s: [sum(|b| b.irq), sum(|b| b.softirq), sum(|b| b.app), sum(|b| b.sender)],
            bus_busy_ratio: share(end.bus_busy_ps, warm.bus_busy_ps),
            occupancy: self.tally.occupancy,
            series: self.tally.series,
            trace: self.trace,
            levels: self.levels,
            clock_ps: self.bus.clock_ps(),
        }
    }
}
