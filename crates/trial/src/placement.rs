//! Chooses the CPUs of both sides of a trial: pure, from the machine's topology and the needs of the sides.
//!
//! Workers get a core each as long as cores are left, near the card first, CPUs that serve its interrupts last, and
//! siblings (SMT) only when cores run out. A receiver whose work is done in softirq of the sending CPUs needs no CPU, and
//! takes none from the sender. If both sides need CPUs and there are too few, each gets a share, at least one. The rest
//! belongs to the receiving side's packet processing (threaded NAPI), which shares the readers' CPUs if none is left.

use sys::topology::CpuPlace;

use crate::cpus::CpuPlan;

/// The location of a run's cards: no node and no interrupts in the embedded lab.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cards {
    /// The NUMA node of the deciding card.
    pub node: Option<u32>,
    /// CPUs that serve the cards' interrupts: a reader on them gets only the time that softirqs leave.
    pub interrupt_cpus: Vec<u32>,
}

/// The CPUs in the order in which workers take them: first a CPU of each core, those of the card's node first, and among
/// them those that serve no interrupts of a card; then further siblings in the same order.
pub fn in_order(places: &[CpuPlace], cards: &Cards) -> Vec<u32> {
    let mut seen: Vec<(u32, (u32, u32))> = Vec::new();
    let mut ranked: Vec<(usize, bool, bool, u32, u32)> = Vec::new();
    let mut sorted = places.to_vec();
    sorted.sort_by_key(|place| place.cpu);
    for place in sorted {
        let core = (place.node, place.core);
        let sibling = seen.iter().filter(|known| **known == core).count();
        seen.push(core);
        let is_far = cards.node.is_some_and(|node| node != place.node);
        ranked.push((sibling, is_far, cards.interrupt_cpus.contains(&place.cpu), place.node, place.cpu));
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(.., cpu)| cpu).collect()
}

/// The CPUs of a trial's workers, taken in order. With one CPU or none, the scheduler decides.
pub fn place(order: &[u32], tx: usize, rx: usize) -> CpuPlan {
    let (sending, receiving) = share(order, tx, rx);
    let (alone, _) = share(order, tx, 0);
    let left = &order[(sending.len() + receiving.len()).min(order.len())..];
    let napi = if left.is_empty() || receiving.is_empty() { receiving.clone() } else { left.to_vec() };
    CpuPlan { tx: sending, rx: receiving, tx_alone: alone, napi }
}

/// The same if the CPUs of one or both sides are given: the other side takes from the rest, and shares the
/// given ones only if none is left.
pub fn place_beside(
    order: &[u32],
    (tx, rx): (usize, usize),
    given: (Option<&[u32]>, Option<&[u32]>),
) -> CpuPlan {
    let own = place(order, tx, rx);
    let without =
        |taken: &[u32]| order.iter().copied().filter(|cpu| !taken.contains(cpu)).collect::<Vec<u32>>();
    match given {
        (None, None) => own,
        (Some(sending), Some(receiving)) => CpuPlan::fixed(sending.to_vec(), receiving.to_vec()),
        (Some(sending), None) => {
            let (receiving, rest) = split(without(sending), rx);
            if receiving.is_empty() {
                return CpuPlan::fixed(sending.to_vec(), own.rx);
            }
            let napi = if rest.is_empty() { receiving.clone() } else { rest };
            CpuPlan { napi, ..CpuPlan::fixed(sending.to_vec(), receiving) }
        }
        (None, Some(receiving)) => {
            let (sending, _) = split(without(receiving), tx);
            let sending = if sending.is_empty() { own.tx } else { sending };
            CpuPlan { tx_alone: own.tx_alone, ..CpuPlan::fixed(sending, receiving.to_vec()) }
        }
    }
}

fn split(mut cpus: Vec<u32>, at_most: usize) -> (Vec<u32>, Vec<u32>) {
    let rest = cpus.split_off(at_most.min(cpus.len()));
    (cpus, rest)
}

/// CPUs for these numbers of sending workers, and of receiving workers that need CPUs.
fn share(order: &[u32], tx: usize, rx: usize) -> (Vec<u32>, Vec<u32>) {
    let cpus = order.len();
    if cpus < 2 {
        return Default::default();
    }
    let sending = match (tx, rx) {
        (tx, 0) => tx.min(cpus),
        (0, _) => 0,
        (tx, rx) if tx + rx <= cpus => tx,
        // Rounded to the nearest; each side keeps at least one.
        (tx, rx) => ((cpus * tx * 2 + tx + rx) / (2 * (tx + rx))).clamp(1, cpus - 1),
    };
    let (sending, rest) = order.split_at(sending);
    (sending.to_vec(), rest.iter().copied().take(rx).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nodes` nodes of `cores` cores of `threads` threads, numbered as on most machines under Linux: first one thread of
    /// every core, then the siblings.
    fn machine(nodes: u32, cores: u32, threads: u32) -> Vec<CpuPlace> {
        let number = |thread, node, core| thread * nodes * cores + node * cores + core;
        let each = |thread| (0..nodes).flat_map(move |node| (0..cores).map(move |core| (thread, node, core)));
        (0..threads)
            .flat_map(each)
            .map(|(thread, node, core)| CpuPlace {
                cpu: number(thread, node, core),
                node,
                core: (node, core),
            })
            .collect()
    }

    fn on_node(node: u32) -> Cards {
        Cards { node: Some(node), interrupt_cpus: Vec::new() }
    }

    #[test]
    fn cores_come_before_siblings_and_the_card_s_node_before_others() {
        let two_nodes = machine(2, 2, 2);
        assert_eq!(in_order(&two_nodes, &Cards::default()), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(in_order(&two_nodes, &on_node(1)), [2, 3, 0, 1, 6, 7, 4, 5]);
        // Siblings numbered next to each other, as some machines have them.
        let paired: Vec<CpuPlace> = (0..8).map(|cpu| CpuPlace { cpu, node: 0, core: (0, cpu / 2) }).collect();
        assert_eq!(in_order(&paired, &Cards::default()), [0, 2, 4, 6, 1, 3, 5, 7]);
    }

    #[test]
    fn cpus_with_a_card_s_interrupts_come_last_on_their_node() {
        let two_nodes = machine(2, 4, 1);
        let one_queue = Cards { interrupt_cpus: vec![4], ..on_node(1) };
        assert_eq!(in_order(&two_nodes, &one_queue), [5, 6, 7, 4, 0, 1, 2, 3]);
        let a_queue_each = Cards { interrupt_cpus: (0..8).collect(), ..on_node(1) };
        assert_eq!(in_order(&two_nodes, &a_queue_each), in_order(&two_nodes, &on_node(1)));
        // Siblings come after all cores.
        let siblings = Cards { interrupt_cpus: vec![0], ..Cards::default() };
        assert_eq!(in_order(&machine(1, 2, 2), &siblings), [1, 0, 2, 3]);
    }

    #[test]
    fn packet_processing_has_its_own_cpus_if_any_are_left() {
        assert_eq!(place(&[0, 1], 1, 1).napi, [1], "shared with the reader");
        assert_eq!(place(&[0, 1, 2, 3], 1, 1).napi, [2, 3]);
        assert_eq!(place(&[0, 1, 2, 3], 2, 2).napi, [2, 3], "shared with the readers");
        assert_eq!(place(&[0, 1, 2, 3], 1, 0).napi, [0u32; 0], "no reader, no receiving CPUs");
        assert_eq!(place(&[0], 1, 1).napi, [0u32; 0]);
    }

    #[test]
    fn offline_and_forbidden_cpus_are_not_used() {
        let mut places = machine(1, 4, 2);
        places.retain(|place| ![0, 5].contains(&place.cpu));
        // CPU 4 is a sibling of CPU 0, which is offline: CPU 4 has its core alone.
        assert_eq!(in_order(&places, &Cards::default()), [1, 2, 3, 4, 6, 7]);
    }

    #[test]
    fn a_receiver_that_needs_no_cpu_takes_none_from_the_sender() {
        assert_eq!(share(&[0, 1], 2, 0), (vec![0, 1], vec![]));
        assert_eq!(share(&[0, 1], 1, 0), (vec![0], vec![]));
        assert_eq!(share(&[0, 1], 4, 0).0, [0, 1]);
        let plan = place(&[0, 1], 2, 2);
        assert_eq!((plan.sending(true), plan.sending(false)), (&[0][..], &[0, 1][..]));
    }

    #[test]
    fn given_cpus_are_used_and_the_other_side_avoids_them() {
        let order = [0, 1, 2, 3];
        let sending = place_beside(&order, (1, 1), (Some(&[1]), None));
        assert_eq!((sending.tx, sending.rx, sending.napi), (vec![1], vec![0], vec![2, 3]));
        let receiving = place_beside(&order, (2, 1), (None, Some(&[0])));
        assert_eq!((receiving.tx.clone(), receiving.rx.clone()), (vec![1, 2], vec![0]));
        assert_eq!((receiving.napi.clone(), receiving.sending(false)), (vec![0], &[0, 1][..]));
        assert!(receiving.is_apart());
        let all = place_beside(&[0, 1], (2, 1), (Some(&[0, 1]), None));
        assert_eq!((all.tx.clone(), all.is_apart()), (vec![0, 1], false), "none is left: {all:?}");
        let both = place_beside(&[0, 1], (1, 1), (Some(&[1]), Some(&[1])));
        assert_eq!((both.tx.clone(), both.rx.clone(), both.is_apart()), (vec![1], vec![1], false));
        assert_eq!(place_beside(&order, (1, 1), (None, None)), place(&order, 1, 1));
    }

    #[test]
    fn both_sides_have_their_own_cpus_if_there_are_two() {
        assert_eq!(share(&[0, 1], 4, 4), (vec![0], vec![1]));
        assert_eq!(share(&[2, 3, 5, 7, 8], 1, 2), (vec![2], vec![3, 5]));
        assert_eq!(share(&[0, 1, 2, 3], 3, 1), (vec![0, 1, 2], vec![3]));
        assert_eq!(share(&[0, 1, 2, 3], 9, 1), (vec![0, 1, 2], vec![3]));
        assert_eq!(share(&[0, 1, 2, 3], 8, 8), (vec![0, 1], vec![2, 3]));
        assert_eq!(place(&[3], 1, 1), CpuPlan::default());
    }

    #[test]
    fn no_cpu_is_idle_while_workers_share_one() {
        for (nodes, cores, threads) in [(1, 2, 1), (1, 4, 2), (2, 8, 2), (4, 32, 2)] {
            let order = in_order(&machine(nodes, cores, threads), &on_node(nodes - 1));
            let cpus = order.len();
            assert_eq!(cpus as u32, nodes * cores * threads);
            for tx in 1..=cpus + 2 {
                for rx in 0..=cpus + 2 {
                    let (sending, receiving) = share(&order, tx, rx);
                    let used = sending.len() + receiving.len();
                    assert_eq!(used, cpus.min(tx + rx), "{cpus} CPUs, {tx} + {rx} workers");
                    assert!(!sending.is_empty() && (rx == 0 || !receiving.is_empty()));
                    assert!(sending.iter().all(|cpu| !receiving.contains(cpu)));
                    assert!(sending.len() <= tx && receiving.len() <= rx);
                }
            }
        }
    }
}
