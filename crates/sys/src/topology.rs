//! CPU topology: which CPUs share a core, and the NUMA node of CPUs and cards.

use std::{fs, path::Path};

/// A CPU's place in the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuPlace {
    /// Its number.
    pub cpu: u32,
    /// Its NUMA node; 0 if the kernel names none.
    pub node: u32,
    /// Its package and the core within; CPUs with the same are siblings (SMT).
    pub core: (u32, u32),
}

/// The places of these CPUs, in the order given. A CPU that the kernel does not describe counts as a separate core on node 0.
pub fn places(cpus: &[u32]) -> Vec<CpuPlace> {
    places_under(Path::new("/sys"), cpus)
}

/// The NUMA node of an interface's card; `None` for virtual interfaces, and if the kernel names none.
pub fn node_of_interface(interface: &str) -> Option<u32> {
    node_under(Path::new("/sys"), interface)
}

fn places_under(sys: &Path, cpus: &[u32]) -> Vec<CpuPlace> {
    let place = |cpu: &u32| {
        let folder = sys.join(format!("devices/system/cpu/cpu{cpu}"));
        let number = |file: &str| -> Option<u32> {
            fs::read_to_string(folder.join("topology").join(file)).ok()?.trim().parse().ok()
        };
        let core = number("physical_package_id").zip(number("core_id"));
        let names = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let node = names.into_iter().find_map(|name| name.to_str()?.strip_prefix("node")?.parse().ok());
        // A package number that never occurs: without a core, a CPU has no siblings.
        CpuPlace { cpu: *cpu, node: node.unwrap_or(0), core: core.unwrap_or((u32::MAX, *cpu)) }
    };
    cpus.iter().map(place).collect()
}

fn node_under(sys: &Path, interface: &str) -> Option<u32> {
    let file = sys.join("class/net").join(interface).join("device/numa_node");
    // −1 if the firmware names none.
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn siblings_share_a_core_and_nodes_are_folders() {
        let root = tempfile::tempdir().unwrap();
        for (cpu, package, core, node) in [(0, 0, 0, 0), (1, 0, 1, 0), (2, 1, 0, 1), (3, 0, 0, 0)] {
            let folder = format!("devices/system/cpu/cpu{cpu}");
            write(root.path(), &format!("{folder}/topology/physical_package_id"), &format!("{package}\n"));
            write(root.path(), &format!("{folder}/topology/core_id"), &format!("{core}\n"));
            fs::create_dir_all(root.path().join(format!("{folder}/node{node}"))).unwrap();
        }
        let places = places_under(root.path(), &[0, 1, 2, 3, 9]);
        let cores: Vec<(u32, u32)> = places.iter().map(|place| place.core).collect();
        assert_eq!(cores, [(0, 0), (0, 1), (1, 0), (0, 0), (u32::MAX, 9)]);
        assert_eq!(places.iter().map(|place| place.node).collect::<Vec<_>>(), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_card_has_a_node_where_the_firmware_names_one() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "class/net/eth0/device/numa_node", "1\n");
        write(root.path(), "class/net/eth1/device/numa_node", "-1\n");
        assert_eq!(node_under(root.path(), "eth0"), Some(1));
        assert_eq!(node_under(root.path(), "eth1"), None);
        assert_eq!(node_under(root.path(), "veth0"), None);
    }

    #[test]
    fn this_machine_s_cpus_have_places() {
        let allowed = crate::cpu::allowed().unwrap();
        assert_eq!(places(&allowed).iter().map(|place| place.cpu).collect::<Vec<_>>(), allowed);
    }
}
