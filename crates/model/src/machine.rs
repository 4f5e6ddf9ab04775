//! The stages wired together: a card with its ports and queues (`machine/card.rs`) and a host with its CPUs
//! (`machine/host.rs`), driven by one agenda of events.

mod card;
mod cpu;
mod host;
mod measure;
mod queue;
mod tally;

use crate::{
    agenda::{Agenda, Event},
    config::Config,
    outcome::{BufferLevel, Outcome, Transaction},
    random::Random,
    stages::{bus::Arbiter, memory::Memory, socket::Backlog, stack::Path},
    units::{ps_from_ns, ps_from_us},
};
use cpu::{Cpu, Thread};
use queue::{Port, Queue};
use tally::Tally;

/// A machine in the middle of a run.
pub(crate) struct Machine {
    now_ps: u64,
    end_ps: u64,
    agenda: Agenda,
    random: Random,
    costs: Costs,
    bus: Arbiter,
    memory: Memory,
    ports: Vec<Port>,
    queues: Vec<Queue>,
    cpus: Vec<Cpu>,
    sockets: Vec<Backlog>,
    threads: Vec<Thread>,
    tally: Tally,
    trace_ps: u64,
    trace: Vec<Transaction>,
    levels: Vec<BufferLevel>,
}

/// The configuration's numbers as the hot paths need them.
#[derive(Debug)]
struct Costs {
    irq_ps: u64,
    poll_ps: u64,
    driver_ps: u64,
    stack_ps: u64,
    bypass_ps: u64,
    slice_ps: u64,
    syscall_ps: u64,
    wakeup_ps: u64,
    recv_ps: u64,
    exponential: bool,
    sender_ps: u64,
    writeback_delay_ps: u64,
    budget: u32,
    refill_after: u64,
    refill_at_end: bool,
    batch: u32,
    on_chip: u32,
    fetch_batch: u32,
    fetch_below: u32,
    stop_above_bytes: Option<u64>,
    stop_after: u32,
    writeback_batch: u32,
    descriptor_bytes: u32,
    drop_when_empty: bool,
    /// Frames end with the driver or the XDP program: no program reads a socket.
    ends_in_driver: bool,
}

impl Costs {
    fn of(config: &Config) -> Self {
        let path_ns = match config.stack.path {
            Path::Kernel => config.stack.stack_ns,
            Path::XdpDrop | Path::AfXdp => config.stack.xdp_ns,
        };
        Self {
            irq_ps: ps_from_ns(config.poll.irq_ns),
            poll_ps: ps_from_ns(config.poll.poll_ns),
            driver_ps: ps_from_ns(config.poll.driver_ns),
            stack_ps: ps_from_ns(path_ns),
            bypass_ps: ps_from_ns(config.stack.bypass_ns),
            slice_ps: ps_from_us(config.poll.slice_us),
            syscall_ps: ps_from_ns(config.app.syscall_ns),
            wakeup_ps: ps_from_ns(config.app.wakeup_ns),
            recv_ps: ps_from_ns(config.app.recv_ns),
            exponential: config.app.service == crate::stages::app::Service::Exponential,
            sender_ps: ps_from_ns(config.traffic.sender_ns),
            writeback_delay_ps: ps_from_ns(config.ring.writeback_delay_ns),
            budget: config.poll.budget,
            refill_at_end: config.poll.refill_after == 0,
            refill_after: match config.poll.refill_after {
                0 => u64::MAX,
                frames => u64::from(frames),
            },
            batch: config.app.batch,
            on_chip: config.ring.on_chip,
            fetch_batch: config.ring.fetch_batch,
            fetch_below: config.ring.fetch_below,
            stop_above_bytes: config.ring.stop_above_bytes,
            stop_after: config.ring.stop_after,
            writeback_batch: config.ring.writeback_batch,
            descriptor_bytes: config.ring.descriptor_bytes,
            drop_when_empty: config.ring.drop_when_empty,
            ends_in_driver: config.stack.path == Path::XdpDrop || config.app.threads == 0,
        }
    }
}

impl Machine {
    /// A machine at rest: rings full of empty buffers, no frame in flight. The configuration is valid.
    pub(crate) fn new(config: &Config) -> Self {
        let costs = Costs::of(config);
        let queues_per_port = config.rss.queues;
        let ports: Vec<Port> =
            (0..config.traffic.ports).map(|port| Port::new(config, port * queues_per_port)).collect();
        let queues: Vec<Queue> =
            (0..config.traffic.ports * queues_per_port).map(|queue| Queue::new(config, queue)).collect();
        let af_xdp = config.stack.path == Path::AfXdp;
        let socket_count = if costs.ends_in_driver {
            0
        } else if af_xdp {
            queues.len()
        } else if config.socket.reuseport {
            config.app.threads as usize
        } else {
            1
        };
        let sockets: Vec<Backlog> =
            (0..socket_count).map(|_| Backlog::new(config.socket.slots(af_xdp))).collect();
        // an AF_XDP socket belongs to its queue and has a thread of its own
        let thread_count = if af_xdp { socket_count } else { config.app.threads as usize };
        let thread_count = if costs.ends_in_driver { 0 } else { thread_count };
        let threads: Vec<Thread> = (0..thread_count)
            .map(|thread| {
                let spread = if af_xdp { thread % config.app.threads as usize } else { thread };
                let cpu = config.app.first_cpu as usize + spread % config.app.cpus as usize;
                Thread::new(cpu, thread % socket_count)
            })
            .collect();
        let mut cpu_count = queues.iter().map(|q| q.cpu + 1).max().unwrap_or(1);
        cpu_count = threads.iter().map(|t| t.cpu + 1).fold(cpu_count, usize::max);
        let sender = costs.sender_ps > 0;
        if sender {
            cpu_count = cpu_count.max(config.traffic.sender_cpu as usize + 1);
        }
        let mut cpus: Vec<Cpu> = (0..cpu_count).map(|_| Cpu::default()).collect();
        for (number, thread) in threads.iter().enumerate() {
            cpus[thread.cpu].threads.push(number as u16);
        }
        if sender {
            cpus[config.traffic.sender_cpu as usize].sends = true;
        }
        Self {
            now_ps: 0,
            end_ps: ps_from_us(config.run.duration_us),
            agenda: Agenda::default(),
            random: Random::new(config.run.seed),
            bus: Arbiter::new(&config.bus),
            memory: config.memory.clone(),
            tally: Tally::new(&config.run),
            trace_ps: ps_from_us(config.run.trace_us),
            trace: Vec::new(),
            levels: Vec::new(),
            costs,
            ports,
            queues,
            cpus,
            sockets,
            threads,
        }
    }

    /// Lets frames arrive until the end of the configured time, then drains the frames in flight.
    pub(crate) fn run(mut self) -> Outcome {
        for port in 0..self.ports.len() {
            self.schedule_arrival(port);
        }
        while let Some((at_ps, event)) = self.agenda.pop() {
            assert!(at_ps >= self.now_ps, "time never goes back");
            if at_ps >= self.tally.next_mark_ps {
                self.pass_marks(at_ps);
            }
            self.now_ps = at_ps;
            match event {
                Event::Arrive(port) => self.arrive(usize::from(port)),
                Event::Stored(port) => {
                    self.ports[usize::from(port)].transferring = false;
                    self.stored(usize::from(port));
                    self.pump(usize::from(port));
                }
                Event::Fetched(queue) => self.fetched(usize::from(queue)),
                Event::WriteBack(queue) => self.write_back(usize::from(queue)),
                Event::Written(queue) => self.written(usize::from(queue)),
                Event::Moderated(queue) => self.moderated(usize::from(queue)),
                Event::Done(cpu) => self.done(usize::from(cpu)),
            }
        }
        self.finish()
    }
}
