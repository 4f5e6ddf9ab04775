//! Assigns a sample, or an instruction, to a stage of the receive path by the names on its stack.

use std::{collections::HashMap, sync::LazyLock};

use measure::Stage;

/// The activity that a sample hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Receiving, in this stage.
    Receiving(Stage),
    /// Sending.
    Sending,
    /// Idle.
    Idle,
    /// Anything else.
    Other,
}

/// The thread that a sample interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A receiving worker.
    Receiver,
    /// A sending worker.
    Sender,
    /// Another generator: only its system calls show whether it sends or receives.
    Peer,
    /// The idle thread.
    Idle,
    /// Any other.
    Other,
}

/// Calls that receive; functions that they call to wait or to answer are receiving, too.
const RECEIVING: [&str; 14] = [
    "net_rx_action",
    "__napi_poll",
    "process_backlog",
    "napi_threaded_poll",
    "napi_threaded_poll_loop",
    "napi_busy_loop",
    "__sys_recvmmsg",
    "__sys_recvfrom",
    "__sys_recvmsg",
    "do_sys_poll",
    "__x64_sys_poll",
    "__x64_sys_ppoll",
    "xsk_recvmsg",
    "do_recvmmsg",
];
/// Calls in which a thread sends.
const SENDING: [&str; 7] = [
    "__sys_sendmmsg",
    "__sys_sendto",
    "__sys_sendmsg",
    "___sys_sendmsg",
    "bpf_prog_test_run_xdp",
    "xsk_sendmsg",
    "net_tx_action",
];

/// Functions that run a softirq in the context of an unrelated task, or in its own thread.
const INTERRUPTED: [&str; 6] = [
    "irq_exit_rcu",
    "__irq_exit_rcu",
    "run_ksoftirqd",
    "smpboot_thread_fn",
    "napi_threaded_poll",
    "napi_threaded_poll_loop",
];

/// The meaning of a stack; `names` go from the running function to its outermost caller, `in_user` is whether it ran in
/// user space.
pub(crate) fn activity<'n>(
    names: impl Iterator<Item = &'n str> + Clone,
    in_user: bool,
    role: Role,
) -> Activity {
    let calls = names.clone().find_map(|name| {
        let receives = RECEIVING.contains(&name);
        (receives || SENDING.contains(&name)).then_some(receives)
    });
    // The innermost such call decides: a softirq that runs in a sender's call is receiving. In another program's call
    // it belongs to that program.
    match (calls, role) {
        (Some(_), Role::Other) if !names.clone().any(|name| INTERRUPTED.contains(&name)) => {
            return Activity::Other;
        }
        (Some(true), _) | (None, Role::Receiver) => {}
        (Some(false), _) | (None, Role::Sender) => return Activity::Sending,
        (None, Role::Idle) => return Activity::Idle,
        (None, Role::Other | Role::Peer) => return Activity::Other,
    }
    if in_user {
        return Activity::Receiving(Stage::User);
    }
    let known = names.clone().find_map(stage_of);
    Activity::Receiving(known.unwrap_or(Stage::Other))
}

/// A function's stage, if the table has it.
pub(crate) fn stage_of(function: &str) -> Option<Stage> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("stages.txt")));
    TABLE.stage(function)
}

/// The lines of `stages.txt`.
#[derive(Debug, Default)]
struct Table {
    whole: HashMap<String, (usize, Stage)>,
    /// Begin, middle or end of a name, with the line's number.
    partial: Vec<(usize, Pattern, Stage)>,
}

#[derive(Debug)]
enum Pattern {
    Begins(String),
    Ends(String),
    Contains(String),
}

impl Table {
    fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let (Some(pattern), Some(stage)) = (words.next(), words.next()) else { continue };
            let stage = named(stage).expect("the table names stages that exist: a test reads it");
            match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
                (Some(rest), Some(_)) => {
                    let middle = rest.trim_end_matches('*').to_owned();
                    table.partial.push((number, Pattern::Contains(middle), stage));
                }
                (Some(end), None) => table.partial.push((number, Pattern::Ends(end.into()), stage)),
                (None, Some(begin)) => table.partial.push((number, Pattern::Begins(begin.into()), stage)),
                (None, None) => drop(table.whole.insert(pattern.into(), (number, stage))),
            }
        }
        table
    }

    fn stage(&self, function: &str) -> Option<Stage> {
        let whole = self.whole.get(function).copied();
        let fits = |pattern: &Pattern| match pattern {
            Pattern::Begins(begin) => function.starts_with(begin),
            Pattern::Ends(end) => function.ends_with(end),
            Pattern::Contains(middle) => function.contains(middle),
        };
        let partial = self.partial.iter().find(|(_, pattern, _)| fits(pattern));
        let partial = partial.map(|(number, _, stage)| (*number, *stage));
        whole.into_iter().chain(partial).min_by_key(|(number, _)| *number).map(|(_, stage)| stage)
    }
}

fn named(name: &str) -> Option<Stage> {
    serde_json::from_value(serde_json::Value::from(name)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stack: &str, role: Role) -> Activity {
        activity(stack.split(' '), false, role)
    }

    #[test]
    fn every_line_of_the_table_names_a_stage() {
        let table = Table::parse(include_str!("stages.txt"));
        assert!(table.whole.len() + table.partial.len() > 100);
        for stage in Stage::ALL.into_iter().filter(|stage| !matches!(stage, Stage::User | Stage::Other)) {
            let partial = table.partial.iter().any(|(_, _, named)| *named == stage);
            assert!(
                partial || table.whole.values().any(|(_, named)| *named == stage),
                "{stage:?} has functions"
            );
        }
    }

    #[test]
    fn the_innermost_known_function_decides() {
        let udp = "_raw_spin_lock __udp_enqueue_schedule_skb udp_queue_rcv_skb ip_local_deliver process_backlog \
                   net_rx_action do_softirq __dev_queue_xmit udp_sendmsg __sys_sendmmsg";
        assert_eq!(of(udp, Role::Sender), Activity::Receiving(Stage::Udp), "a softirq on top of the sender");
        let wake =
            "try_to_wake_up sock_def_readable udp_queue_rcv_skb process_backlog net_rx_action run_ksoftirqd";
        assert_eq!(of(wake, Role::Other), Activity::Receiving(Stage::WakeUp));
        assert_eq!(
            of("memset __alloc_skb veth_poll net_rx_action", Role::Idle),
            Activity::Receiving(Stage::Allocation)
        );
        assert_eq!(
            of("_copy_to_iter udp_recvmsg __sys_recvmmsg", Role::Receiver),
            Activity::Receiving(Stage::Copy)
        );
        assert_eq!(of("nothing_known net_rx_actions", Role::Receiver), Activity::Receiving(Stage::Other));
    }

    #[test]
    fn a_thread_that_does_not_receive_sends_idles_or_does_other_work() {
        assert_eq!(of("__dev_queue_xmit udp_sendmsg __sys_sendmmsg", Role::Sender), Activity::Sending);
        assert_eq!(of("default_idle do_idle", Role::Idle), Activity::Idle);
        assert_eq!(of("kdamond_fn kthread", Role::Other), Activity::Other);
        let own_softirq = "udp_rcv process_backlog net_rx_action do_softirq __sys_sendto";
        assert_eq!(of(own_softirq, Role::Other), Activity::Other, "another program that sends to itself");
        let interrupted = "udp_rcv net_rx_action __irq_exit_rcu common_interrupt do_syscall_64";
        assert_eq!(of(interrupted, Role::Other), Activity::Receiving(Stage::Udp));
        assert_eq!(activity([].into_iter(), true, Role::Receiver), Activity::Receiving(Stage::User));
        assert_eq!(activity([].into_iter(), true, Role::Sender), Activity::Sending);
    }

    #[test]
    fn a_peer_s_calls_show_whether_it_sends_or_receives() {
        assert_eq!(
            of("udp_recvmsg __sys_recvfrom do_syscall_64", Role::Peer),
            Activity::Receiving(Stage::Udp)
        );
        assert_eq!(of("udp_sendmsg __sys_sendto do_syscall_64", Role::Peer), Activity::Sending);
        let softirq = "udp_rcv process_backlog net_rx_action do_softirq udp_sendmsg __sys_sendto";
        assert_eq!(of(softirq, Role::Peer), Activity::Receiving(Stage::Udp));
        assert_eq!(
            activity([].into_iter(), true, Role::Peer),
            Activity::Other,
            "a peer's user space is not counted"
        );
    }

    #[test]
    fn the_first_matching_line_decides() {
        let table = Table::parse("a* udp\nab ip # both fit\n*c* copy\n");
        assert_eq!(table.stage("ab"), Some(Stage::Udp));
        assert_eq!((table.stage("xcx"), table.stage("x")), (Some(Stage::Copy), None));
    }
}
