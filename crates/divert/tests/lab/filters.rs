//! Filters in Rust: verdicts, answers, samples.

use std::{
    fs::File,
    net::{IpAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use divert::{BEAT, Diversion, DivertPlan, Fate, FilterAt, Frame, Verdict, Verdicts};
use lab::Lab;

use crate::support::{FLOODED, PATIENCE, VALID, lab, lab_with, plan, send, settle, start};

/// Sends every datagram back with one byte more of payload.
struct LongerEcho;

impl Verdicts for LongerEcho {
    fn verdict(&mut self, frame: &mut Frame<'_>) -> Verdict {
        let len = frame.bytes().len();
        assert!(frame.resize(len + 1));
        let bytes = frame.bytes_mut();
        for (one, other, width) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
            for at in 0..width {
                bytes.swap(one + at, other + at);
            }
        }
        bytes[len] = b'!';
        for length_at in [16, 38] {
            let length = u16::from_be_bytes([bytes[length_at], bytes[length_at + 1]]) + 1;
            bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        }
        // No UDP checksum; the header's is the sum's complement, so what is added there is taken away here.
        bytes[40..42].fill(0);
        let sum = u16::from_be_bytes([bytes[24], bytes[25]]);
        bytes[24..26].copy_from_slice(&wire::update_checksum(sum, 0, 1).to_be_bytes());
        Verdict::Send
    }
}

#[test]
fn an_answer_leaves_on_the_queue_where_the_question_came() {
    let Some(lab) = lab() else { return };
    let plan = DivertPlan {
        selection: Some(format!("udp dst port {VALID}").parse().unwrap()),
        ..plan(&lab, FilterAt::User, &["drop all"])
    };
    let mut diversion = lab.rx().run(|| Diversion::start_with(&plan, |_| LongerEcho)).unwrap().unwrap();
    let target = (IpAddr::from(lab.rx().ipv4()[0]), VALID);
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 64];
        for number in 0..200u32 {
            // Long enough that no padding lies where the answer grows.
            let question = [number.to_be_bytes(); 8].concat();
            socket.send_to(&question, target).unwrap();
            let (len, from) = socket.recv_from(&mut answer).unwrap();
            assert_eq!((from, &answer[..len]), (target.into(), &[&question[..], b"!"].concat()[..]));
        }
    };
    thread::scope(|scope| {
        let asking = scope.spawn(|| lab.tx().run(ask).unwrap());
        while !asking.is_finished() {
            diversion.beat().unwrap();
            thread::sleep(BEAT / 20);
        }
    });
    assert_eq!(settle(&mut diversion, 200).ledger.of(Fate::Sent), 200);
}

#[test]
fn what_is_kept_is_recorded() {
    let Some(lab) = lab() else { return };
    let kept = testing::own_folder().join("kept");
    let keep = format!("keep udp dst port {VALID}");
    let plan =
        DivertPlan { keep_file: Some(kept.clone()), ..plan(&lab, FilterAt::User, &[&keep, "drop all"]) };
    let mut diversion = start(&lab, &plan);
    send(&lab, &mut diversion, VALID, 150);
    send(&lab, &mut diversion, FLOODED, 250);
    settle(&mut diversion, 400);
    let last = diversion.finish().unwrap();
    assert_eq!((last.ledger.of(Fate::Kept), last.ledger.of(Fate::Dropped)), (150, 250));
    let frames = |path| {
        let mut reader = wire::PcapReader::new(File::open(path).unwrap()).unwrap();
        let mut ports = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            ports.push(u16::from_be_bytes([frame.bytes[36], frame.bytes[37]]));
        }
        ports
    };
    assert_eq!(frames(&kept), [VALID; 150]);
}

/// The scheduling policy of a thread of this process, field 41 of `proc_pid_stat(5)`.
fn policy(thread: &str) -> u32 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of_name = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == thread)
    };
    let stat = std::fs::read_to_string({ tasks }.find(of_name).unwrap().join("stat")).unwrap();
    // Field 3 follows the name, which may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[41 - 3].parse().unwrap()
}

#[test]
fn a_thread_with_a_cpu_goes_before_ordinary_ones_there_unless_it_spins() {
    const SCHED_FIFO: u32 = 1;
    // Other tests' diversions in this process have threads for queues 0 and 1.
    const QUEUE: u32 = 2;
    let Some(lab) = lab_with(QUEUE + 1) else { return };
    let plan = DivertPlan { queues: vec![QUEUE], ..plan(&lab, FilterAt::User, &["pass all"]) };
    let cpu = sys::cpu::allowed().unwrap()[0];
    for (cpus, spin, goes_first) in
        [(vec![cpu], false, true), (vec![cpu], true, false), (vec![], false, false)]
    {
        let plan = DivertPlan { cpus, spin, ..plan.clone() };
        let mut diversion = start(&lab, &plan);
        assert_eq!(policy(&format!("divert-{QUEUE}")) == SCHED_FIFO, goes_first, "{plan:?}");
        // It still re-injects passed packets, and lets packet processing run meanwhile.
        send(&lab, &mut diversion, VALID, 200);
        let status = diversion.finish().unwrap();
        assert_eq!((status.ledger.of(Fate::Lost), status.ledger.unexplained), (0, 0), "{status:#?}");
    }
}

/// Time until the queue of a hanging thread returns to the kernel.
const OPEN_WITHIN: Duration = Duration::from_secs(1);

/// A filter whose thread hangs on request.
struct Hangs<'h>(&'h AtomicBool);

impl Verdicts for Hangs<'_> {
    fn verdict(&mut self, _: &mut Frame<'_>) -> Verdict {
        while self.0.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        Verdict::Drop
    }
}

#[test]
fn a_thread_that_hangs_loses_its_queue_and_gets_it_back() {
    // A busy machine may check late.
    let mut times = Vec::new();
    while times.last().is_none_or(|took| *took >= OPEN_WITHIN) {
        assert!(times.len() < 5, "closed for {times:?}");
        let Some(lab) = lab() else { return };
        times.push(until_open_while_a_thread_hangs(&lab));
    }
}

fn until_open_while_a_thread_hangs(lab: &Lab) -> Duration {
    static HANGS: AtomicBool = AtomicBool::new(true);
    HANGS.store(true, Relaxed);
    let plan = plan(lab, FilterAt::User, &["drop all"]);
    let mut diversion = lab.rx().run(|| Diversion::start_with(&plan, |_| Hangs(&HANGS))).unwrap().unwrap();
    // More than its rings hold: the kernel finds no empty frame or no room. Within a second it has everything again.
    send(lab, &mut diversion, FLOODED, 5000);
    let flooded = std::time::Instant::now();
    let mut beat_until = |wanted: &str, met: &dyn Fn(&divert::Status) -> bool| {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            send(lab, &mut diversion, FLOODED, 1);
            let status = diversion.status().unwrap();
            if met(&status) {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "without result for {wanted}: {status:#?}");
            // Longer than a thread's turn: a running thread is noticed.
            thread::sleep(BEAT);
        }
    };
    let passes = |status: &divert::Status| {
        status.ledger.lines.iter().any(|line| line.line.place == "came after the queue's deadline")
    };
    beat_until("packets to reach the kernel", &passes);
    let open_after = flooded.elapsed();
    HANGS.store(false, Relaxed);
    beat_until("its queue", &|status| {
        status.queues.iter().all(|queue| queue.diverted) && status.ledger.of(Fate::Dropped) > 0
    });
    let last = diversion.finish().unwrap().ledger;
    assert!(last.of(Fate::Lost) > 0, "the rings did not run over: {last:#?}");
    assert_eq!(last.unexplained, 0, "{last:#?}");
    open_after
}
