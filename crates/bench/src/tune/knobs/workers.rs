//! Threads and CPUs: packets per call, CPUs, waiting, softirqs.

use super::super::{
    combination::Assignment,
    knob::{ENDS_WITH_THE_RUN, GIVEN, KnobValue, Row, SENDING, Surroundings, TuneGoal, TunePlace},
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "batch-size",
        about: "packets per sending call, at most",
        risk: "small batches cost system calls, large ones add delay and bursts",
        undone: ENDS_WITH_THE_RUN,
        application: "send up to {} packets per call (sendmmsg, or the ring's batch)",
        values: |around| {
            if around.is_given("batch-size") {
                return Err(GIVEN);
            }
            let values = [64, 256].into_iter().map(|size| KnobValue::option("batch-size", size));
            Ok([KnobValue::as_is("1024")].into_iter().chain(values).collect())
        },
    },
    Row {
        name: "placement",
        about: "CPUs of the workers: a core each, left to the scheduler, or sender and receiver on the same one",
        risk: "unpinned threads migrate, and results vary more",
        undone: ENDS_WITH_THE_RUN,
        application: "threads: {} (sched_setaffinity)",
        values: placement,
    },
    Row {
        name: "threaded-napi",
        about: "kernel threads on the receiver's CPUs process received packets, instead of the sender's calls",
        risk: "the threads compete with the application if CPUs are scarce",
        undone: ENDS_WITH_THE_RUN,
        application: "threaded NAPI: {}",
        values: |around| match around.place {
            _ if around.is_given("threaded-napi") => Err(GIVEN),
            TunePlace::Lab => Ok(vec![
                KnobValue::as_is("default"),
                KnobValue::switch("threaded-napi"),
                KnobValue::option("threaded-napi", "off"),
            ]),
            _ => Err("on a real card it is napi.threaded"),
        },
    },
    Row {
        name: "queues",
        about: "queues of the lab's veth pair",
        risk: "none: the run makes the pair",
        undone: ENDS_WITH_THE_RUN,
        application: "",
        values: |around| match around.place {
            _ if around.is_given("queues") => Err(GIVEN),
            TunePlace::Lab if around.pair.tx.facts().queue_per_worker => {
                Err("the engines need one queue per worker")
            }
            TunePlace::Lab => {
                let counts = [1, 4].into_iter().filter(|count| *count <= around.cpus.len().max(2));
                let values = counts.map(|count| KnobValue::option("queues", count));
                Ok([KnobValue::as_is("2")].into_iter().chain(values).collect())
            }
            _ => Err("on a real card it is channels.combined"),
        },
    },
    Row {
        name: "readers",
        about: "receiving threads, each with its own socket (SO_REUSEPORT); flows are spread over them",
        risk: "an application must be written for several sockets; packets of a flow stay in order",
        undone: ENDS_WITH_THE_RUN,
        application: "{} receiving threads, each with its own socket on the port (SO_REUSEPORT)",
        values: readers,
    },
    Row {
        name: "spin",
        about: "receivers poll instead of sleeping until a packet arrives",
        risk: "each receiver keeps a CPU busy even without traffic",
        undone: ENDS_WITH_THE_RUN,
        application: "receive without waiting (MSG_DONTWAIT in a loop): {}",
        values: |around| match around.place {
            _ if around.is_given("spin") => Err(GIVEN),
            TunePlace::Peer => Err(ELSEWHERE),
            _ if around.goal == TuneGoal::Tx => Err(SENDING),
            _ if !waits(around) => Err("the receiver is not a thread that waits"),
            _ => Ok(vec![KnobValue::as_is("off"), KnobValue::switch("spin")]),
        },
    },
];

/// Why a receiver's setting is left out.
pub(super) const ELSEWHERE: &str = "the receiver is on another host: give it to linerate recv there";

/// Whether receivers are threads that read.
fn waits(around: &Surroundings<'_>) -> bool {
    around.pair.rx.facts().workers != traffic::RxWorkers::One
}

fn placement(around: &Surroundings<'_>) -> Result<Vec<KnobValue>, &'static str> {
    if ["tx-cpus", "rx-cpus", "no-pin"].iter().any(|option| around.is_given(option)) {
        return Err(GIVEN);
    }
    if around.cpus.len() < 2 {
        return Err("the machine has one CPU");
    }
    let mut values = vec![
        KnobValue::as_is("apart"),
        KnobValue { shown: "unpinned".into(), sets: vec![Assignment::Option("no-pin".into(), None)] },
    ];
    if around.place != TunePlace::Peer {
        let list = |workers: usize| {
            let cpus = around.cpus.iter().take(workers.max(1)).map(ToString::to_string);
            Some(cpus.collect::<Vec<_>>().join(","))
        };
        let (tx, rx) = around.threads;
        let sets = vec![
            Assignment::Option("tx-cpus".into(), list(tx)),
            Assignment::Option("rx-cpus".into(), list(rx)),
        ];
        values.push(KnobValue { shown: "together".into(), sets });
    }
    Ok(values)
}

fn readers(around: &Surroundings<'_>) -> Result<Vec<KnobValue>, &'static str> {
    let has_sockets = || {
        let row = traffic::engines().iter().find(|engine| engine.name == around.pair.rx.name());
        let side = row.and_then(|engine| engine.rx.as_ref());
        side.is_some_and(|side| side.switches.iter().any(|switch| switch.name == "reuseport"))
    };
    match around.place {
        _ if around.is_given("rx-threads") => Err(GIVEN),
        TunePlace::Peer => Err(ELSEWHERE),
        _ if !has_sockets() => Err("the receiving engine has no sockets that share a port"),
        _ if around.goal == TuneGoal::Tx => Err(SENDING),
        _ if around.flows < 2 => Err("one flow uses one socket: give --flows"),
        _ => {
            let now = around.threads.1;
            let counts = std::iter::successors(Some(now * 2), |count| Some(count * 2));
            let counts = counts.take_while(|count| *count <= around.cpus.len().min(around.flows));
            let with = |count: usize| KnobValue {
                shown: count.to_string(),
                sets: vec![
                    Assignment::Option("rx-threads".into(), Some(count.to_string())),
                    Assignment::RxSwitch("reuseport".into()),
                ],
            };
            Ok([KnobValue::as_is(now.to_string())].into_iter().chain(counts.map(with)).collect())
        }
    }
}
