//! Kernel modules: those that the guest can load, their dependencies, and their aliases.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Modules that the guest needs to reach the host's files.
const BASE: &[&str] = &["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Modules usable in the guest besides network cards; the kernel loads most of them on demand.
const MORE: &[&str] = &[
    "pktgen",
    "tun",
    "veth",
    "bridge",
    "8021q",
    "bonding",
    "dummy",
    "macvlan",
    "ipvlan",
    "vrf",
    "igbvf",
    "xsk_diag",
    "uio_pci_generic",
    "vfio_pci",
    "vfio_iommu_type1",
    "sch_ingress",
    "sch_netem",
    "sch_fq",
    "sch_fq_codel",
    "sch_red",
    "sch_tbf",
    "cls_bpf",
    "cls_matchall",
    "act_bpf",
    "act_gact",
    "nf_tables",
    "nft_ct",
    "nft_limit",
    "nft_log",
    "nft_queue",
];

/// Modules loaded at boot: the kernel cannot load them on demand.
const AT_START: &[&str] = &["pktgen", "tun"];

/// Drivers of the emulated cards.
const CARDS: &[&str] = &["e1000", "e1000e", "igb", "vmxnet3", "virtio_net"];

/// The modules of a kernel that a guest can use: an index of a folder of `.ko` files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Modules {
    /// By name: modules that must be loaded first.
    needs: BTreeMap<String, Vec<String>>,
    /// Aliases without wildcards.
    aliases: Vec<(String, String)>,
}

/// All modules for a guest's kernel, by name.
pub(crate) fn wanted() -> impl Iterator<Item = &'static str> {
    BASE.iter().chain(CARDS).chain(MORE).copied()
}

/// The compressed or plain modules below `folder`, by name.
pub(crate) fn find(folder: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                folders.push(path);
            } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
                found.insert(name.replace('-', "_"), path);
            }
        }
    }
    Ok(found)
}

impl Modules {
    /// Adds a module from its content; returns its dependencies.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> Vec<String> {
        let mut needs = Vec::new();
        for field in content.split(|&byte| byte == 0) {
            let Ok(field) = std::str::from_utf8(field) else { continue };
            if let Some(names) = field.strip_prefix("depends=") {
                needs = names
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .map(|name| name.replace('-', "_"))
                    .collect();
            } else if let Some(alias) = field.strip_prefix("alias=").filter(|alias| !alias.contains('*')) {
                self.aliases.push((alias.to_owned(), name.to_owned()));
            }
        }
        self.needs.insert(name.to_owned(), needs.clone());
        needs
    }

    /// Modules to load, in this order, before the host's files and the cards of `drivers` can be used.
    pub(crate) fn at_start(&self, drivers: &[&str]) -> Vec<&str> {
        let mut order = Vec::new();
        for name in BASE.iter().chain(drivers).chain(AT_START) {
            self.append(name, &mut order);
        }
        order
    }

    /// For each alias, the modules to load in this order.
    pub(crate) fn by_any_name(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let own = self.needs.keys().map(|name| (name.as_str(), name.as_str()));
        let others = self.aliases.iter().map(|(alias, name)| (alias.as_str(), name.as_str()));
        own.chain(others).map(|(asked, name)| {
            let mut order = Vec::new();
            self.append(name, &mut order);
            (asked, order)
        })
    }

    /// All names, unordered.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.needs.keys().map(String::as_str)
    }

    /// A module after its dependencies; a missing one is built into the kernel.
    fn append<'m>(&'m self, name: &str, order: &mut Vec<&'m str>) {
        let Some((name, needs)) = self.needs.get_key_value(name) else { return };
        if !order.contains(&name.as_str()) {
            needs.iter().for_each(|need| self.append(need, order));
            order.push(name);
        }
    }

    /// One line per module: `module NAME NEEDS…`; one per alias: `alias ALIAS NAME`.
    pub(crate) fn to_text(&self) -> String {
        let modules = self.needs.iter().map(|(name, needs)| format!("module {name} {}\n", needs.join(" ")));
        modules.chain(self.aliases.iter().map(|(alias, name)| format!("alias {alias} {name}\n"))).collect()
    }

    /// The inverse of [`Self::to_text`]; other lines are ignored.
    pub(crate) fn from_text(text: &str) -> Self {
        let mut modules = Self::default();
        for line in text.lines() {
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["module", name, needs @ ..] => {
                    let needs = needs.iter().map(ToString::to_string).collect();
                    modules.needs.insert((*name).to_owned(), needs);
                }
                ["alias", alias, name] => modules.aliases.push(((*alias).to_owned(), (*name).to_owned())),
                _ => {}
            }
        }
        modules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Modules {
        let mut modules = Modules::default();
        modules.add("veth", b"\x7fELF\0license=GPL\0alias=rtnl-link-veth\0depends=\0name=veth\0");
        modules
            .add("virtio_net", b"\0alias=virtio:d00000001v*\0depends=net_failover,virtio-ring\0\xff\xfe\0");
        modules.add("net_failover", b"\0depends=failover\0");
        modules.add("failover", b"\0depends=\0");
        modules
    }

    #[test]
    fn what_is_needed_is_loaded_first_and_once() {
        let modules = modules();
        assert_eq!(
            modules.at_start(&["virtio_net", "net_failover"]),
            ["failover", "net_failover", "virtio_net"]
        );
        assert_eq!(modules.at_start(&[]), [""; 0]);
    }

    #[test]
    fn the_kernel_finds_modules_by_their_other_names() {
        let modules = modules();
        let found: BTreeMap<_, _> = modules.by_any_name().collect();
        assert_eq!(found["rtnl-link-veth"], ["veth"]);
        assert_eq!(found["net_failover"], ["failover", "net_failover"]);
        assert_eq!(found.len(), 5, "wildcards are for hardware found by enumeration");
    }

    #[test]
    fn the_index_survives_writing() {
        assert_eq!(Modules::from_text(&modules().to_text()), modules());
    }
}
