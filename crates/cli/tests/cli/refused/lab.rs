//! What `linerate lab` refuses.

use super::Refused;

pub(crate) const REFUSED: &[Refused] = &[
    (&["lab", "vm"], 2, &["CMD"]),
    (
        &["lab", "vm", "--kernel", "5.10", "--", "true"],
        2,
        &["unknown kernel '5.10': expected 6.1, 6.12 or latest"],
    ),
    (&["lab", "vm", "--pair", "i40e", "--", "true"], 2, &["unknown card 'i40e': expected"]),
    (&["lab", "vm", "--pair", "virtio:x", "--", "true"], 2, &["'x' is not a number of queues", "virtio:4"]),
    (
        &["lab", "vm", "--pair", "virtio:99", "--pair", "igb:2", "--", "true"],
        2,
        &["from 1 to 16, not to 99 for virtio", "not to 2 for igb"],
    ),
    (&["lab", "vm", "--wire", "igb", "--", "true"], 2, &["--wire and --other need two machines: --hosts 2"]),
    (
        &["lab", "vm", "--hosts", "2", "--other", "true", "--", "true"],
        2,
        &["two machines need a cable, for example --wire igb"],
    ),
    (
        &["lab", "vm", "--hosts", "2", "--wire", "igb", "--", "true"],
        2,
        &["two machines need a command for the second one: --other LINE"],
    ),
    (
        &["lab", "vm", "--accel", "hvf", "--", "true"],
        2,
        &["unknown accelerator 'hvf': expected tcg, kvm or counting"],
    ),
    (
        &["lab", "vm", "--cpus", "0", "--memory", "1", "--share", "/nowhere", "--", "true"],
        2,
        &["must be 1 to 64, not 0", "at least 256 MiB", "/nowhere"],
    ),
];
