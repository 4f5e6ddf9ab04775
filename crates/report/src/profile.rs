//! The tables of the profile of receiving.

use measure::{Profile, Stage, StageShare};

use crate::{
    ladder::Rung,
    number,
    table::{Cell, Column, Table},
};

/// The profile of all trials of each pair that has one, with the pair's name.
pub(crate) fn of_pairs(rungs: &[Rung]) -> Vec<(String, Profile)> {
    let of = |rung: &Rung| {
        let profiled = || rung.trials.iter().filter(|trial| trial.profile.is_some());
        let packets = profiled().map(|trial| trial.delivered).fold(0, u64::saturating_add);
        let profile = Profile::together(profiled().filter_map(|trial| trial.profile.as_ref()), packets)?;
        Some((rung.name.clone(), profile))
    };
    rungs.iter().filter_map(of).collect()
}

/// The stages that any of the profiles has, in a packet's order.
pub(crate) fn stages_there(profiles: &[(String, Profile)]) -> Vec<Stage> {
    let is_there = |stage: &Stage| profiles.iter().any(|(_, p)| p.stages.iter().any(|s| s.stage == *stage));
    Stage::ALL.into_iter().filter(is_there).collect()
}

/// `12.3 % ± 1.1, 210 ns per packet`.
pub(crate) fn share_in_words(share: &StageShare) -> String {
    let ns = share.ns_per_packet.map(|ns| format!(", {ns:.0} ns per packet")).unwrap_or_default();
    format!("{} % ± {}{ns}", number::percent(share.share_ratio), number::percent(share.margin_ratio))
}

/// One row per pair and stage.
pub(crate) fn stages(profiles: &[(String, Profile)]) -> Table {
    let mut rows: Vec<(&str, &StageShare)> = Vec::new();
    for (name, profile) in profiles {
        let names = std::iter::once(name.as_str()).chain(std::iter::repeat(""));
        rows.extend(names.zip(&profile.stages));
    }
    let mut table = Table::titled("Where the receive path spent its time");
    table.push(Column::words("pair", rows.iter().map(|(name, _)| Cell::words(*name))));
    table.push(Column::words("stage", rows.iter().map(|(_, share)| Cell::words(share.stage.name()))));
    let shares = rows.iter().map(|(_, share)| Cell::figure(share.share_ratio, number::percent));
    table.push(Column::figures("share", "%", shares));
    let margins = rows.iter().map(|(_, share)| Cell::figure(share.margin_ratio, number::percent));
    table.push(Column::figures("±", "%", margins));
    let ns = rows.iter().map(|(_, share)| Cell::figure(share.ns_per_packet, |ns| format!("{ns:.0}")));
    table.push(Column::figures("cost", "ns/pkt", ns));
    table.push(
        Column::figures("samples", "", rows.iter().map(|(_, share)| Cell::count(share.samples))).gives_way(1),
    );
    table.legend = legend(profiles);
    table
}

fn legend(profiles: &[(String, Profile)]) -> String {
    let sum = |of: fn(&Profile) -> u64| {
        number::count(profiles.iter().map(|(_, profile)| of(profile)).fold(0, u64::saturating_add))
    };
    let period = profiles.first().map_or(0, |(_, profile)| profile.period_ns);
    format!(
        "A timer sampled each CPU every {:.0} µs: {} samples in receiving (100 % here), {} in sending, {} idle, \
         {} elsewhere; {} lost. ±: half of the 95 % interval. The timer cannot interrupt code that has interrupts disabled; \
         that time is charged to the code that enables them again. cost: CPU time per packet delivered.",
        period as f64 / 1e3,
        sum(|p| p.receiving_samples),
        sum(|p| p.sending_samples),
        sum(|p| p.idle_samples),
        sum(|p| p.other_samples),
        sum(|p| p.lost_samples)
    )
}

/// The stacks of one pair.
pub(crate) fn stacks(name: &str, profile: &Profile) -> Table {
    let stacks = || profile.stacks.iter();
    let mut table = Table::titled(format!("Stacks of {name}"));
    table.push(Column::figures("samples", "", stacks().map(|stack| Cell::count(stack.samples))));
    table.push(Column::words("stack", stacks().map(|stack| Cell::words(stack.frames.replace(';', " › ")))));
    table
}

/// The functions of each pair that ran most often.
pub(crate) fn functions(profiles: &[(String, Profile)]) -> Table {
    let rows = || {
        profiles.iter().flat_map(|(name, profile)| profile.functions.iter().map(move |share| (name, share)))
    };
    let mut table = Table::titled("Functions that ran most often while receiving");
    table.push(Column::words("pair", rows().map(|(name, _)| Cell::words(name))));
    table.push(Column::words("function", rows().map(|(_, share)| Cell::words(&share.function))));
    table.push(Column::words("stage", rows().map(|(_, share)| Cell::words(share.stage.name()))));
    let shares = rows().map(|(_, share)| Cell::figure(share.share_ratio, number::percent));
    table.push(Column::figures("share", "%", shares));
    table.push(Column::figures("samples", "", rows().map(|(_, share)| Cell::count(share.samples))));
    table
}
