//! Entries of per-CPU maps.

use std::ops::Range;

use aya::{
    Pod,
    maps::{MapData, PerCpuArray, PerCpuValues},
};

use crate::error::BpfError;

/// Each CPU's value of an entry of the map with this name.
pub(crate) fn values<T: Pod>(
    (name, map): (&str, &PerCpuArray<MapData, T>),
    place: u32,
) -> Result<PerCpuValues<T>, BpfError> {
    map.get(&place, 0).map_err(BpfError::map(of_place("read", place, name)))
}

/// Writes the same value for all CPUs into these entries.
pub(crate) fn clear<T: Pod + Clone>(
    (name, map): (&str, &mut PerCpuArray<MapData, T>),
    places: Range<u32>,
    zero: T,
) -> Result<(), BpfError> {
    for place in places {
        let cpus = values((name, map), place)?.len();
        let refused = |source| BpfError::map(of_place("clear", place, name))(source);
        let zeros = PerCpuValues::try_from(vec![zero; cpus]).map_err(|source| refused(source.into()))?;
        map.set(place, zeros, 0).map_err(refused)?;
    }
    Ok(())
}

fn of_place(action: &str, place: u32, name: &str) -> String {
    format!("{action} place {place} of the BPF map '{name}'")
}

#[cfg(test)]
mod tests {
    use aya::maps::MapError;

    use super::*;

    #[test]
    fn a_refusal_names_the_map_and_the_place() {
        let refused = BpfError::map(of_place("clear", 3, "by_queue"))(MapError::KeyNotFound);
        assert_eq!(refused.to_string(), "cannot clear place 3 of the BPF map 'by_queue'");
    }
}
