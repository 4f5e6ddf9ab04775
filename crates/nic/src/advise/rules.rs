//! One function per finding. Their reasons hold the knowledge about drivers and kernels.

use super::view::{Finding, Goal, View};
use crate::{Setting, imbalance};

/// All of them.
pub(super) const RULES: [fn(&View<'_>) -> Option<Finding>; 18] = [
    ring_overflows,
    few_queues,
    table_leaves_queues_out,
    ports_are_not_hashed,
    queues_are_uneven,
    interrupt_per_packet,
    moderation_delays,
    interrupts_share_a_cpu,
    interrupts_on_another_node,
    irqbalance_moves_them,
    slow_bus,
    pause_frames,
    one_queue_many_cpus,
    softirq_runs_out,
    backlog_is_full,
    merged_packets,
    no_steering_to_a_queue,
    redirects_find_no_queue,
];

fn setting(name: &str, value: impl ToString) -> Setting {
    Setting::new(name, value.to_string())
}

fn ring_overflows(view: &View<'_>) -> Option<Finding> {
    let names = ["rx_missed_errors", "rx_no_buffer_count", "rx_over_errors", "rx_fifo_errors"];
    let (name, lost) = names.iter().map(|name| (*name, view.moved(name))).find(|(_, lost)| *lost > 0)?;
    let (now, most) = (view.page.number("ring.rx")?, view.page.limit("ring.rx")?);
    let longer = now < u64::from(most);
    Some(Finding {
        effect: 90,
        title: "the card finds no free descriptor".into(),
        reason: if longer {
            "packets arrive in bursts longer than the receive ring; a longer ring holds them until the CPU \
             polls. If the CPU is always busy, it only delays the loss."
                .into()
        } else {
            "the ring is at its maximum: the CPU does not keep up, and only more queues or fewer packets help".into()
        },
        evidence: format!("{name} grew by {lost}; ring.rx is {now} of {most}"),
        change: longer.then(|| setting("ring.rx", most)).into_iter().collect(),
        risk: "most drivers take the link down for a moment".into(),
        cost: "memory for the descriptors' buffers; a ring larger than the cache makes each packet more expensive"
            .into(),
    })
}

fn few_queues(view: &View<'_>) -> Option<Finding> {
    let (now, most) =
        (view.page.number("channels.combined")?, u64::from(view.page.limit("channels.combined")?));
    let useful = most.min(view.cpus());
    (view.goal != Goal::Latency && now < useful).then(|| Finding {
        effect: 80,
        title: format!("{now} of {useful} useful queues are in use"),
        reason: "one CPU at a time serves a queue: flows on the same queue share that CPU".into(),
        evidence: format!(
            "channels.combined is {now}; the card has {most}, the machine {} CPUs",
            view.cpus()
        ),
        change: vec![setting("channels.combined", useful)],
        risk: "most drivers take the link down for a moment and build a new indirection table".into(),
        cost: "one interrupt and one set of rings per queue".into(),
    })
}

fn table_leaves_queues_out(view: &View<'_>) -> Option<Finding> {
    let table = view.page.table.as_ref()?;
    let queues = view.rx_queues() as usize;
    let used = table.buckets_per_queue.iter().filter(|buckets| **buckets > 0).count();
    let counts = table.buckets_per_queue.iter().enumerate().filter(|(_, count)| **count > 0);
    let buckets: Vec<String> = counts.map(|(queue, count)| format!("queue {queue} has {count}")).collect();
    (view.goal == Goal::Pps && used < queues).then(|| Finding {
        effect: 75,
        title: format!("{} of {queues} receive queues get no packets", queues - used),
        reason: "no bucket of the indirection table names them, so no hash selects them".into(),
        evidence: format!("{used} of {queues} queues have buckets of the table: {}", buckets.join(", ")),
        change: vec![setting("rss.table", format!("equal:{queues}"))],
        risk: "packets of a moved flow may be reordered once".into(),
        cost: "none".into(),
    })
}

fn ports_are_not_hashed(view: &View<'_>) -> Option<Finding> {
    let only_addresses = |name: &&str| view.page.setting(name) == Some("sd");
    let fields: Vec<&str> =
        ["rss.fields.udp4", "rss.fields.udp6"].into_iter().filter(only_addresses).collect();
    let first = fields.first()?;
    (view.goal != Goal::Latency && view.rx_queues() > 1).then(|| Finding {
        effect: 70,
        title: "UDP between two hosts is one flow".into(),
        reason:
            "the card hashes only addresses, so all packets between two addresses take the same queue, whatever \
                 their ports"
                .into(),
        evidence: format!("{first} is sd"),
        change: fields.iter().map(|name| setting(name, "sdfn")).collect(),
        risk: "fragments have no ports and go to another queue than the rest of their flow".into(),
        cost: "none".into(),
    })
}

fn queues_are_uneven(view: &View<'_>) -> Option<Finding> {
    let packets = &view.around.queue_packets;
    let total: u64 = packets.iter().sum();
    let uneven = imbalance(packets);
    // With few packets, an uneven spread is chance.
    (packets.len() > 1 && total >= 1000 && uneven > 1.5).then(|| Finding {
        effect: 65,
        title: format!("the busiest queue takes {uneven:.1} times an even share"),
        reason: "its CPU is the first to saturate".into(),
        evidence: format!("packets by queue while watched: {packets:?}"),
        change: vec![setting("rss.table", format!("equal:{}", view.rx_queues()))],
        risk: "packets of a moved flow may be reordered once".into(),
        cost: "none; linerate nic spread finds a table, key or fields for given flows".into(),
    })
}

fn interrupt_per_packet(view: &View<'_>) -> Option<Finding> {
    let usecs = view.page.number("coalesce.rx-usecs")?;
    let frames = view.page.number("coalesce.rx-frames").unwrap_or(0);
    let adaptive = view.page.setting("coalesce.adaptive-rx") == Some("on");
    // Drivers without a time report 0 and moderate otherwise: virtio counts one frame and suppresses interrupts itself.
    let each = usecs == 0 && frames <= 1 && !adaptive && view.page.driver.name != "virtio_net";
    (view.goal == Goal::Pps && each).then(|| Finding {
        effect: 60,
        title: "every packet interrupts".into(),
        reason: "an interrupt costs more than a packet; waiting some microseconds batches many packets"
            .into(),
        evidence: format!("coalesce.rx-usecs is {usecs}, rx-frames {frames}"),
        change: vec![setting("coalesce.rx-usecs", 30)],
        risk: "drivers round the time, and some share it with transmission".into(),
        cost: "up to 30 µs of delay for a lone packet".into(),
    })
}

fn moderation_delays(view: &View<'_>) -> Option<Finding> {
    let usecs = view.page.number("coalesce.rx-usecs").filter(|usecs| *usecs > 0);
    let adaptive = view.page.setting("coalesce.adaptive-rx") == Some("on");
    (view.goal == Goal::Latency && (usecs.is_some() || adaptive)).then(|| Finding {
        effect: 80,
        title: "a single packet waits for others".into(),
        reason: "the card delays the interrupt to batch more packets".into(),
        evidence: format!(
            "coalesce.rx-usecs is {}{}, adaptive-rx {}",
            usecs.unwrap_or(0),
            if is_a_mode(view, usecs) { " (an adaptive mode of this driver, not a time)" } else { "" },
            if adaptive { "on" } else { "off" }
        ),
        change: adaptive
            .then(|| setting("coalesce.adaptive-rx", "off"))
            .into_iter()
            .chain([setting("coalesce.rx-usecs", 0)])
            .collect(),
        risk: "under load every packet raises an interrupt, and the rate falls: to a third on the i211 of the apu4d4 document".into(),
        cost: "CPU time".into(),
    })
}

/// Intel's gigabit drivers use 1 to 3 for modes that choose the time from the traffic (`igb_set_coalesce` and its kin).
fn is_a_mode(view: &View<'_>, usecs: Option<u64>) -> bool {
    const DRIVERS: [&str; 4] = ["e1000", "e1000e", "igb", "igc"];
    DRIVERS.contains(&view.page.driver.name.as_str()) && matches!(usecs, Some(1..=3))
}

fn interrupts_share_a_cpu(view: &View<'_>) -> Option<Finding> {
    let mut on: Vec<(u32, u32)> =
        view.rx_interrupts().filter_map(|one| Some((*one.cpus_effective.first()?, one.queue))).collect();
    on.sort_unstable();
    let shared = on.chunk_by(|one, next| one.0 == next.0).find(|group| group.len() > 1)?;
    let interrupts: Vec<_> = view.rx_interrupts().collect();
    let spread = interrupts.iter().enumerate().map(|(place, one)| {
        let cpu = view.around.cpus[place % view.around.cpus.len()].0;
        setting(&format!("irq.{}", one.name), cpu)
    });
    (view.cpus() > 1 && view.goal != Goal::Latency).then(|| Finding {
        effect: 55,
        title: format!("{} receive queues share CPU {}", shared.len(), shared[0].0),
        reason: "two queues on one CPU are not faster than one".into(),
        evidence: format!("queue and CPU: {on:?} (CPU, queue)"),
        change: spread.collect(),
        risk: "a program pinned to one of these CPUs loses time to the softirq".into(),
        cost: "none".into(),
    })
}

fn interrupts_on_another_node(view: &View<'_>) -> Option<Finding> {
    let node = view.page.numa_node?;
    let far = |one: &&crate::QueueInterrupt| {
        one.cpus_effective.first().and_then(|cpu| view.node_of(*cpu)).is_some_and(|there| there != node)
    };
    let one = view.rx_interrupts().find(far)?;
    let near: Vec<String> = view
        .around
        .cpus
        .iter()
        .filter(|(_, there)| *there == Some(node))
        .map(|(cpu, _)| cpu.to_string())
        .collect();
    let cpus: Vec<String> = one.cpus_effective.iter().map(u32::to_string).collect();
    (!near.is_empty()).then(|| Finding {
        effect: 50,
        title: format!("interrupts go to another NUMA node than the card's ({node})"),
        reason: "every packet crosses the nodes".into(),
        evidence: format!("{} goes to CPU {}", one.name, cpus.join(", ")),
        change: view
            .rx_interrupts()
            .map(|one| setting(&format!("irq.{}", one.name), near.join(",")))
            .collect(),
        risk: "none known".into(),
        cost: "programs that receive the packets should run on that node too".into(),
    })
}

fn irqbalance_moves_them(view: &View<'_>) -> Option<Finding> {
    view.around.irqbalance.then(|| Finding {
        effect: 20,
        title: "irqbalance moves interrupts".into(),
        reason: "it overrides affinities set by hand, and conditions change during a measurement".into(),
        evidence: "a process irqbalance runs".into(),
        change: Vec::new(),
        risk: "without it, interrupts of other devices are not spread either".into(),
        cost: "none: stop it, or ban these interrupts in its configuration".into(),
    })
}

fn slow_bus(view: &View<'_>) -> Option<Finding> {
    let pcie = view.page.pcie.as_ref()?;
    let now = format!("{} x{}", pcie.current_link_speed, pcie.current_link_width);
    let best = format!("{} x{}", pcie.max_link_speed, pcie.max_link_width);
    (now != best).then(|| Finding {
        effect: 40,
        title: "the card's bus link is below its maximum".into(),
        reason: "small packets cost bus transactions rather than bytes, and link speed and width limit those"
            .into(),
        evidence: format!("{now} of {best}"),
        change: Vec::new(),
        risk: "none".into(),
        cost: "use another slot, or check the bus's power management (pcie_aspm)".into(),
    })
}

fn pause_frames(view: &View<'_>) -> Option<Finding> {
    let on = |name: &str| view.page.setting(name) == Some("on");
    (view.goal != Goal::Bypass && on("pause.tx")).then(|| Finding {
        effect: 25,
        title: "the card sends pause frames".into(),
        reason: "under overload it pauses its link partner: the loss moves to the sender, and one slow queue slows all".into(),
        evidence: "pause.tx is on".into(),
        change: vec![setting("pause.autoneg", "off"), setting("pause.tx", "off")],
        risk: "the link may go down for a moment; the loss then occurs at this card".into(),
        cost: "none".into(),
    })
}

fn one_queue_many_cpus(view: &View<'_>) -> Option<Finding> {
    let limit =
        view.page.limit("channels.combined").unwrap_or(1).max(view.page.limit("channels.rx").unwrap_or(1));
    let off = view.page.setting("rps.rx-0") == Some("none");
    let last = view.around.cpus.iter().map(|(cpu, _)| *cpu).max()?;
    (view.goal == Goal::Pps && limit <= 1 && view.rx_queues() <= 1 && view.cpus() > 1 && off).then(|| {
        Finding {
            effect: 45,
            title: "one queue, and one CPU for all of it".into(),
            reason: "the card cannot spread packets, but the kernel can pass them to other CPUs (RPS)".into(),
            evidence: format!("one receive queue, rps.rx-0 is none, {} CPUs", view.cpus()),
            change: vec![setting("rps.rx-0", format!("0-{last}"))],
            risk: "passing packets on costs time: a light load gets slower".into(),
            cost: "one inter-processor interrupt per batch".into(),
        }
    })
}

/// Drivers that send redirected frames on the queue with the CPU's number, and have none for CPUs beyond their queues
/// (`mlx5e_xdp_xmit`, `i40e_xdp_xmit`); others share their queues.
const A_QUEUE_EACH_CPU: [&str; 2] = ["mlx5_core", "i40e"];

fn redirects_find_no_queue(view: &View<'_>) -> Option<Finding> {
    let queues = view.page.number("channels.combined")?;
    let driver = view.page.driver.name.as_str();
    let last = u64::from(view.around.cpus.iter().map(|(cpu, _)| *cpu).max()?);
    let limit = view.page.limit("channels.combined").map_or(last + 1, u64::from);
    let wanted = limit.min(last + 1);
    let is_hit = A_QUEUE_EACH_CPU.contains(&driver) && !view.page.xdp_programs.is_empty() && queues <= last;
    is_hit.then(|| Finding {
        effect: 60,
        title: "XDP redirects to this card fail on CPUs without a queue".into(),
        reason: format!(
            "{driver} sends a redirected frame on the queue with the CPU's number, and drops it with ENXIO if none exists; \
             no counter of the card shows that, but linerate ledger does (xdp_devmap_xmit ENXIO)"
        ),
        evidence: format!("an XDP program is attached, {queues} queues, CPUs 0 to {last}"),
        change: if wanted > queues { vec![setting("channels.combined", wanted)] } else { Vec::new() },
        risk: if wanted > last {
            "the link may go down for a moment".into()
        } else {
            format!("the card has no more queues: keep interrupts that redirect to it off CPUs {wanted} to {last}")
        },
        cost: "memory for the rings".into(),
    })
}

fn softirq_runs_out(view: &View<'_>) -> Option<Finding> {
    let now = view.page.number("sysctl.net.core.netdev_budget")?;
    (view.around.squeezed > 0 && view.goal != Goal::Latency).then(|| Finding {
        effect: 35,
        title: "receive rounds end with work left".into(),
        reason: "a round ends after a number of packets or microseconds; then other work gets the CPU".into(),
        evidence: format!("time_squeeze grew by {}; netdev_budget is {now}", view.around.squeezed),
        change: vec![setting("sysctl.net.core.netdev_budget", now * 2)],
        risk: "programs on the same CPU wait longer".into(),
        cost: "only helps when the CPU has time left".into(),
    })
}

fn backlog_is_full(view: &View<'_>) -> Option<Finding> {
    let now = view.page.number("sysctl.net.core.netdev_max_backlog")?;
    (view.around.backlog_dropped > 0).then(|| Finding {
        effect: 85,
        title: "packets passed to another CPU find its backlog full".into(),
        reason:
            "RPS, loopback and interfaces without NAPI put packets into a backlog per CPU, which this limits"
                .into(),
        evidence: format!(
            "softnet dropped grew by {}; netdev_max_backlog is {now}",
            view.around.backlog_dropped
        ),
        change: vec![setting("sysctl.net.core.netdev_max_backlog", now * 4)],
        risk: "longer queues mean more delay".into(),
        cost: "memory for the waiting packets".into(),
    })
}

fn merged_packets(view: &View<'_>) -> Option<Finding> {
    let on = |name: &&str| view.page.setting(name) == Some("on");
    let merging: Vec<&str> =
        ["feature.rx-lro", "feature.rx-gro", "feature.rx-gro-hw"].into_iter().filter(on).collect();
    (view.goal == Goal::Bypass && !merging.is_empty()).then(|| Finding {
        effect: 60,
        title: "packets are merged before an XDP program sees them".into(),
        reason: "a program on the queue needs the frames as on the wire; native XDP refuses LRO".into(),
        evidence: format!("{} on", merging.join(", ")),
        change: merging.iter().map(|name| setting(name, "off")).collect(),
        risk: "TCP on the other queues costs more".into(),
        cost: "CPU time for connections through the kernel".into(),
    })
}

fn no_steering_to_a_queue(view: &View<'_>) -> Option<Finding> {
    let rules = view.page.settings.absent.get("rule");
    let ntuple = view.page.setting("feature.rx-ntuple-filter");
    let why = match (rules, ntuple) {
        (Some(why), _) => format!("flow rules: {why}"),
        (None, None) => "the feature rx-ntuple-filter cannot be turned on".into(),
        (None, Some("off")) => "the feature rx-ntuple-filter is off".into(),
        (None, Some(_)) => return None,
    };
    let change: Vec<Setting> = if ntuple == Some("off") && rules.is_none() {
        vec![setting("feature.rx-ntuple-filter", "on")]
    } else {
        Vec::new()
    };
    (view.goal == Goal::Bypass).then(|| Finding {
        effect: 70,
        title: "no rule can steer a flow to one queue".into(),
        reason:
            "a bypass needs the flooded flow on its own queue; without rules only the table can steer hashes \
                 there, or a program picks the flow from every queue"
                .into(),
        evidence: why,
        change,
        risk: "none".into(),
        cost: "none".into(),
    })
}
