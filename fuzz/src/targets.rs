//! Every target: what it reads, the inputs to start from, its body.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    control, files, filter,
    mutate::Shape::{self, Bytes, Json, Toml, Words, WordsAndFrame},
    nic, wire,
};

pub struct Target {
    pub name: &'static str,
    pub shape: Shape,
    /// Files and folders of the repository, besides `fuzz/seeds/NAME`.
    seeds: &'static [&'static str],
    pub body: fn(&[u8]),
}

const fn target(name: &'static str, shape: Shape, seeds: &'static [&'static str], body: fn(&[u8])) -> Target {
    Target { name, shape, seeds, body }
}

pub const TARGETS: [Target; 15] = [
    target("control", Json, &[], control::line),
    target("drivers", Toml, &["crates/ledger/drivers.toml"], files::drivers),
    target("filter", WordsAndFrame, &[], filter::expression),
    target("nic_counters", Bytes, &[], nic::counters),
    target("nic_ethtool_ioctl", Bytes, &[], nic::ethtool_ioctl),
    target("nic_ethtool_netlink", Bytes, &[], nic::ethtool_netlink),
    target("nic_netdev", Bytes, &[], nic::netdev),
    target("record", Json, &["crates/report/tests/records/0.1.0"], files::record),
    target("rules", Words, &["packaging/arp-icmp.rules"], files::rules),
    target("scenario", Toml, &["scenarios"], files::scenario),
    target("settings", Toml, &[], files::settings),
    target("wire_grammar", Words, &[], wire::grammar),
    target("wire_headers", Bytes, &[], wire::headers),
    target("wire_pcap", Bytes, &[], wire::pcap),
    target("wire_template", Bytes, &[], wire::template),
];

impl Target {
    /// Inputs to start from.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn seeds(&self, repository: &Path) -> io::Result<Vec<Vec<u8>>> {
        let own = Path::new("fuzz/seeds").join(self.name);
        let places = self.seeds.iter().map(Path::new).chain([own.as_path()]);
        let mut seeds = Vec::new();
        for place in places.map(|place| repository.join(place)).filter(|place| place.exists()) {
            for file in if place.is_dir() { sorted(&place)? } else { vec![place] } {
                let text = fs::read(file)?;
                match self.shape {
                    // An input a line.
                    Words | WordsAndFrame | Json => {
                        seeds.extend(text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec))
                    }
                    Bytes | Toml => seeds.push(text),
                }
            }
        }
        seeds.retain(|seed| !seed.is_empty());
        Ok(seeds)
    }
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| file.is_file() && file.extension().is_none_or(|extension| extension != "required"));
    files.sort();
    Ok(files)
}
