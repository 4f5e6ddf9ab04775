//! The tables of CPU activity: softirqs and interrupts, by pair and CPU.

use std::collections::BTreeMap;

use measure::{CpuShare, InterruptAccounting, InterruptRate, NapiPolls, NetRx};

use crate::{
    ladder::Rung,
    number,
    table::{Cell, Column, Table},
};

/// One CPU over all trials of a pair: means of shares and rates, sums of counts, and the seconds that they cover.
pub(crate) struct CpuMean {
    pub(crate) share: CpuShare,
    seconds: f64,
}

/// Each CPU of a pair's trials, ascending.
pub(crate) fn means(rung: &Rung) -> Vec<CpuMean> {
    let mut by_cpu: BTreeMap<u32, Vec<(&CpuShare, f64)>> = BTreeMap::new();
    for trial in &rung.trials {
        trial
            .cpus
            .iter()
            .for_each(|share| by_cpu.entry(share.cpu).or_default().push((share, trial.duration_s)));
    }
    by_cpu.into_iter().map(|(cpu, shares)| CpuMean::of(cpu, &shares)).collect()
}

impl CpuMean {
    fn of(cpu: u32, shares: &[(&CpuShare, f64)]) -> Self {
        let mean = |part: fn(&CpuShare) -> f64| {
            shares.iter().map(|(share, _)| part(share)).sum::<f64>() / shares.len() as f64
        };
        let known = |part: fn(&CpuShare) -> Option<f64>| {
            let values: Option<Vec<f64>> = shares.iter().map(|(share, _)| part(share)).collect();
            values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        // Errors of trials are independent: that of their mean shrinks with their number.
        let margin =
            known(|share| share.interrupts_margin_ratio).map(|margin| margin / (shares.len() as f64).sqrt());
        let net_rx: Option<Vec<NetRx>> = shares.iter().map(|(share, _)| share.net_rx).collect();
        let share = CpuShare {
            cpu,
            user_ratio: mean(|c| c.user_ratio),
            system_ratio: mean(|c| c.system_ratio),
            irq_ratio: mean(|c| c.irq_ratio),
            softirq_ratio: mean(|c| c.softirq_ratio),
            steal_ratio: mean(|c| c.steal_ratio),
            idle_ratio: mean(|c| c.idle_ratio),
            interrupts_margin_ratio: margin,
            ksoftirqd_ratio: known(|c| c.ksoftirqd_ratio),
            net_rx: net_rx.and_then(|all| sum(&all)),
            interrupts: interrupt_means(shares),
        };
        Self { share, seconds: shares.iter().map(|(_, seconds)| seconds).sum() }
    }
}

fn sum(all: &[NetRx]) -> Option<NetRx> {
    let polls: Option<Vec<NapiPolls>> = all.iter().map(|net_rx| net_rx.polls).collect();
    let polls = polls.and_then(|polls| {
        let trials = polls.len() as f64;
        polls
            .into_iter()
            .reduce(|a, b| NapiPolls {
                polls: a.polls.saturating_add(b.polls),
                packets: a.packets.saturating_add(b.packets),
                full: a.full.saturating_add(b.full),
                empty: a.empty.saturating_add(b.empty),
                net_rx_ratio: a.net_rx_ratio + b.net_rx_ratio,
            })
            .map(|sum| NapiPolls { net_rx_ratio: sum.net_rx_ratio / trials, ..sum })
    });
    let sum = all.iter().copied().reduce(|a, b| NetRx {
        rounds: a.rounds.saturating_add(b.rounds),
        packets: a.packets.saturating_add(b.packets),
        time_squeezes: a.time_squeezes.saturating_add(b.time_squeezes),
        polls: None,
    })?;
    Some(NetRx { polls, ..sum })
}

fn interrupt_means(shares: &[(&CpuShare, f64)]) -> Vec<InterruptRate> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for rate in shares.iter().flat_map(|(share, _)| &share.interrupts) {
        *sums.entry(&rate.name).or_default() += rate.rate_per_s;
    }
    let mean = |(name, sum): (&str, f64)| InterruptRate {
        name: name.to_owned(),
        rate_per_s: sum / shares.len() as f64,
    };
    let mut means: Vec<InterruptRate> = sums.into_iter().map(mean).collect();
    means.sort_by(|a, b| b.rate_per_s.total_cmp(&a.rate_per_s));
    means
}

/// The effect of the accounting mode on the shares.
pub(crate) fn accounting_in_words(accounting: InterruptAccounting) -> &'static str {
    match accounting {
        InterruptAccounting::Precise => {
            "This kernel reads a clock at every interrupt: shares are exact to the counters' resolution."
        }
        InterruptAccounting::Ticks => {
            "This kernel charges each timer tick to the code that it interrupts (no CONFIG_IRQ_TIME_ACCOUNTING): shares of \
             interrupts are samples, correct within the margin unless the load is synchronous with the tick, and time in \
             hard interrupts is charged to the interrupted code."
        }
        InterruptAccounting::Unknown => "This kernel does not report how it accounts for time in interrupts.",
    }
}

/// One row per pair and CPU that received packets.
pub(crate) fn softirqs(rungs: &[Rung]) -> Table {
    let all: Vec<(&Rung, CpuMean)> =
        rungs.iter().flat_map(|rung| means(rung).into_iter().map(move |mean| (rung, mean))).collect();
    let rows: Vec<(&str, &CpuMean, NetRx)> = all
        .iter()
        .filter_map(|(rung, mean)| Some((rung.name.as_str(), mean, mean.share.net_rx?)))
        .filter(|(_, _, net_rx)| net_rx.rounds > 0)
        .collect();
    let polls = || rows.iter().map(|(_, _, net_rx)| net_rx.polls);
    let percent = |value: Option<f64>| Cell::figure(value, number::percent);
    let mean = |value: Option<f64>| Cell::figure(value, |v| format!("{v:.1}"));

    let mut table = Table::titled("The receiving softirq");
    table.push(Column::words("pair", rows.iter().map(|(name, ..)| Cell::words(*name))));
    table.push(Column::figures(
        "CPU",
        "",
        rows.iter().map(|(_, mean, _)| Cell::count(mean.share.cpu.into())),
    ));
    let interrupts = |share: &CpuShare| Some(share.irq_ratio + share.softirq_ratio);
    table.push(Column::figures(
        "interrupts",
        "%",
        rows.iter().map(|(_, m, _)| percent(interrupts(&m.share))),
    ));
    let margins = rows.iter().map(|(_, mean, _)| percent(mean.share.interrupts_margin_ratio));
    table.push(Column::figures("±", "%", margins));
    if polls().any(|polls| polls.is_some()) {
        let exact = polls().map(|polls| percent(polls.map(|polls| polls.net_rx_ratio)));
        table.push(Column::figures("exactly", "%", exact));
    }
    let threads = rows.iter().map(|(_, mean, _)| percent(mean.share.ksoftirqd_ratio));
    table.push(Column::figures("ksoftirqd", "%", threads).gives_way(3));
    let per_second = |count: u64, mean: &CpuMean| {
        Cell::figure(count as f64 / mean.seconds, |v| number::count(v.round() as u64))
    };
    let rounds = rows.iter().map(|(_, mean, net_rx)| per_second(net_rx.rounds, mean));
    table.push(Column::figures("rounds", "/s", rounds));
    let packets = rows.iter().map(|(_, _, net_rx)| mean(net_rx.packets_per_round()));
    table.push(Column::figures("packets", "/round", packets));
    if polls().any(|polls| polls.is_some()) {
        let each = |of: fn(&NapiPolls) -> Option<f64>| polls().map(move |polls| polls.as_ref().and_then(of));
        table.push(Column::figures("packets", "/poll", each(NapiPolls::packets_per_poll).map(mean)));
        let share = |of: fn(&NapiPolls) -> u64| {
            polls().map(move |polls| polls.map(|p| of(&p) as f64 / p.polls.max(1) as f64))
        };
        table.push(Column::figures("full", "% of polls", share(|p| p.full).map(percent)).gives_way(1));
        table.push(Column::figures("empty", "% of polls", share(|p| p.empty).map(percent)).gives_way(2));
    }
    table.push(Column::figures(
        "squeezed",
        "",
        rows.iter().map(|(_, _, net_rx)| Cell::count(net_rx.time_squeezes)),
    ));
    table.legend = "For the whole machine, including other programs' packets. interrupts: hard and soft, as the kernel \
        accounts for them; exactly: the receiving softirq, timed at its start and end. A round polls every device \
        that has packets; squeezed: rounds that ended with packets left because net.core.netdev_budget or \
        netdev_budget_usecs was used up: other work ran first while rings filled. full: polls that used a \
        device's whole budget (64 packets)."
        .into();
    table
}

/// One row per pair, CPU and source of interrupts.
pub(crate) fn interrupts(rungs: &[Rung]) -> Table {
    let mut rows: Vec<(&str, u32, InterruptRate)> = Vec::new();
    for rung in rungs {
        for mean in means(rung) {
            let cpu = mean.share.cpu;
            rows.extend(mean.share.interrupts.into_iter().map(|rate| (rung.name.as_str(), cpu, rate)));
        }
    }
    let mut table = Table::titled("Interrupts");
    table.push(Column::words("pair", rows.iter().map(|(name, ..)| Cell::words(*name))));
    table.push(Column::figures("CPU", "", rows.iter().map(|(_, cpu, _)| Cell::count((*cpu).into()))));
    table.push(Column::words("source", rows.iter().map(|(_, _, rate)| Cell::words(&rate.name))));
    let rates =
        rows.iter().map(|(_, _, rate)| Cell::figure(rate.rate_per_s, |v| number::count(v.round() as u64)));
    table.push(Column::figures("rate", "/s", rates));
    table.legend = "The driver names a card's queues.".into();
    table
}
