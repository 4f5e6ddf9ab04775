//! The plan of a virtual machine: plain data.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// A virtual machine to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmPlan {
    /// Which kernel it runs.
    pub kernel: Kernel,
    /// The user's own kernel instead.
    pub image: Option<KernelImage>,
    /// Its network cards, wired back to back; those of the first pair are `pair1a` and `pair1b`.
    pub pairs: Vec<NicPair>,
    /// Virtual CPUs. igb and vmxnet3 use one queue per CPU, up to 8.
    pub cpus: u32,
    /// Memory in MiB, including files that the guest writes.
    pub memory_mib: u32,
    /// Time limit, including boot.
    pub time_limit: Duration,
    /// The accelerator that executes the guest's instructions.
    pub accel: Accel,
    /// A folder of the host that the guest may write to, as `/share`. For a [counting](Accel::Counting) machine it holds the
    /// counter's files: `counts`, and `symbols`, which the guest writes before its first mark.
    pub share: Option<PathBuf>,
    /// An IOMMU that translates the cards' DMA, and the kernel's drivers of VFIO, by which programs use cards.
    pub iommu: bool,
    /// Additions to the kernel's command line.
    pub kernel_options: Vec<String>,
    /// Debian packages that the guest has in addition to this machine's; see [`VmStore::get_packages`](crate::VmStore::get_packages).
    pub packages: Vec<String>,
}

impl Default for VmPlan {
    /// The newest kernel, two CPUs, 1 GiB, two minutes, no network cards.
    fn default() -> Self {
        Self {
            kernel: Kernel::Latest,
            image: None,
            pairs: Vec::new(),
            cpus: 2,
            memory_mib: 1024,
            time_limit: Duration::from_secs(120),
            accel: Accel::Tcg,
            share: None,
            iommu: false,
            kernel_options: Vec::new(),
            packages: Vec::new(),
        }
    }
}

/// A kernel that the user built or downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelImage {
    /// A bzImage, or the ELF file `vmlinux`.
    pub image: PathBuf,
    /// The folder of its modules (`.ko`, `.ko.xz`, `.ko.zst`), searched with its subfolders. A machine needs those that
    /// reach the host's files, unless they are built in: `9p`, `9pnet_virtio`, `virtio_pci` and `overlay`.
    pub modules: PathBuf,
}

/// A kernel by its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Debian 12's.
    V6_1,
    /// Debian 13's.
    V6_12,
    /// The newest kernel that Debian 13 offered when linerate was last tested with it; if the archive has dropped that
    /// version, its newest.
    Latest,
}

impl Kernel {
    /// All, oldest first.
    pub const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::Latest];

    /// Its name on the command line and in the cache.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Latest => "latest",
        }
    }

    /// The pinned version, downloaded while the archive has it; for other series, the suite's version.
    pub(crate) fn pinned(self) -> Option<&'static str> {
        match self {
            Self::V6_1 | Self::V6_12 => None,
            Self::Latest => Some("7.3.4+deb13-amd64"),
        }
    }

    /// The suite of the Debian archive that has it.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
            Self::Latest => "trixie-backports",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kernel| kernel.name() == text);
        known.ok_or_else(|| format!("unknown kernel '{text}': expected 6.1, 6.12 or latest"))
    }
}

/// A kind of network card that the emulator provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicModel {
    /// Intel 82576: several queues, RSS, native XDP, AF_XDP zero-copy on new kernels.
    Igb,
    /// Intel 82540EM: one queue, exact counters of missed packets.
    E1000,
    /// Intel 82574L.
    E1000e,
    /// VMware's: several queues, native XDP.
    Vmxnet3,
    /// virtio-net: native XDP, AF_XDP zero-copy on new kernels; one queue, or as many as requested.
    Virtio,
}

impl NicModel {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Igb, Self::E1000, Self::E1000e, Self::Vmxnet3, Self::Virtio];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            Self::Virtio => "virtio",
        }
    }

    /// The kernel module that drives it.
    pub fn driver(self) -> &'static str {
        match self {
            Self::Virtio => "virtio_net",
            other => other.name(),
        }
    }
}

impl FromStr for NicModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|model| model.name() == text);
        known.ok_or_else(|| format!("unknown card '{text}': expected igb, e1000, e1000e, vmxnet3 or virtio"))
    }
}

/// Two cards of one kind, wired to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicPair {
    /// The kind.
    pub model: NicModel,
    /// Receive and transmit queues of each card, for models that allow a choice: virtio. More than one needs
    /// `/dev/net/tun`.
    pub queues: Option<u32>,
}

impl NicPair {
    /// A pair with the model's own number of queues.
    pub fn of(model: NicModel) -> Self {
        Self { model, queues: None }
    }

    /// Queues of cards whose wire needs as many.
    pub(crate) fn wired_queues(&self) -> Option<u32> {
        self.queues.filter(|queues| *queues > 1)
    }
}

impl From<NicModel> for NicPair {
    fn from(model: NicModel) -> Self {
        Self::of(model)
    }
}

impl FromStr for NicPair {
    type Err = String;

    /// `igb`, or `virtio:4` with a number of queues.
    fn from_str(text: &str) -> Result<Self, String> {
        let (model, queues) = text.split_once(':').map_or((text, None), |(model, n)| (model, Some(n)));
        let number = |n: &str| {
            n.parse().map_err(|_| format!("'{n}' is not a number of queues: write for example virtio:4"))
        };
        Ok(Self { model: model.parse()?, queues: queues.map(number).transpose()? })
    }
}

/// The accelerator that executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The emulator: works everywhere, slowly.
    Tcg,
    /// The kernel's virtual machine: needs a working `/dev/kvm`.
    Kvm,
    /// The emulator with one CPU, whose clock advances by 1 ns with each instruction that it executes and skips idle time.
    /// With a shared folder it counts instructions by function between the marks of [`sys::counting`].
    Counting,
}

impl FromStr for Accel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcg" => Ok(Self::Tcg),
            "kvm" => Ok(Self::Kvm),
            "counting" => Ok(Self::Counting),
            _ => Err(format!("unknown accelerator '{text}': expected tcg, kvm or counting")),
        }
    }
}

/// Why a plan is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VmPlanError {
    /// More cards than the emulated machine has slots for.
    #[error("a virtual machine has at most {} pairs of network cards, not {pairs}", VmPlan::MAX_PAIRS)]
    Pairs {
        /// The requested number.
        pairs: usize,
    },
    /// Only virtio's cards have a selectable number of queues, within limits.
    #[error(
        "the number of queues can be set for virtio only, from 1 to {}, not to {} for {}",
        VmPlan::MAX_QUEUES,
        .queues,
        .model.name()
    )]
    Queues {
        /// Of which cards.
        model: NicModel,
        /// The requested pair.
        queues: u32,
    },
    /// None, or more than the emulator supports.
    #[error("CPUs of a virtual machine must be 1 to {}, not {cpus}", VmPlan::MAX_CPUS)]
    Cpus {
        /// The requested number.
        cpus: u32,
    },
    /// Its clock counts one CPU's instructions.
    #[error("a counting virtual machine must have 1 CPU, not {cpus}")]
    CountingCpus {
        /// The requested number.
        cpus: u32,
    },
    /// None, or more than the emulated machine has slots for.
    #[error("cables between two virtual machines must be 1 to 8, not {cables}")]
    Cables {
        /// The requested number.
        cables: usize,
    },
    /// Too little for a kernel and its files in RAM.
    #[error(
        "memory of a virtual machine must be at least {} MiB, not {memory_mib}",
        VmPlan::LEAST_MEMORY_MIB
    )]
    Memory {
        /// The requested memory.
        memory_mib: u32,
    },
    /// The emulator's own language separates its options by commas.
    #[error("the shared folder {path:?} is not a folder, or has a comma in its path")]
    Share {
        /// The requested path.
        path: PathBuf,
    },
}

impl VmPlan {
    /// The most pairs of cards.
    pub const MAX_PAIRS: usize = 8;
    /// The most queues of one card.
    pub const MAX_QUEUES: u32 = 16;
    /// The most CPUs.
    pub const MAX_CPUS: u32 = 64;
    /// The least memory in MiB.
    pub const LEAST_MEMORY_MIB: u32 = 256;

    /// A machine that counts instructions, without what differs from start to start. The counts are in `share`.
    pub fn counting(share: &Path) -> Self {
        Self {
            cpus: 1,
            memory_mib: 1536,
            accel: Accel::Counting,
            share: Some(share.into()),
            kernel_options: ["norandmaps", "randomize_kstack_offset=off", "nowatchdog"]
                .map(String::from)
                .into(),
            ..Self::default()
        }
    }

    /// Every problem of this plan; none when it is valid.
    pub fn problems(&self) -> Vec<VmPlanError> {
        let Self { cpus, memory_mib, .. } = *self;
        let pairs = self.pairs.len();
        let rules = [
            (pairs <= Self::MAX_PAIRS, VmPlanError::Pairs { pairs }),
            ((1..=Self::MAX_CPUS).contains(&cpus), VmPlanError::Cpus { cpus }),
            (self.accel != Accel::Counting || cpus == 1, VmPlanError::CountingCpus { cpus }),
            (memory_mib >= Self::LEAST_MEMORY_MIB, VmPlanError::Memory { memory_mib }),
        ];
        let queues = self.pairs.iter().filter_map(|pair| {
            let fits =
                |queues: &u32| pair.model == NicModel::Virtio && (1..=Self::MAX_QUEUES).contains(queues);
            let queues = pair.queues.filter(|queues| !fits(queues))?;
            Some(VmPlanError::Queues { model: pair.model, queues })
        });
        let share = self.share.iter().filter(|path| !path.is_dir() || path.to_string_lossy().contains(','));
        let share = share.map(|path| VmPlanError::Share { path: path.clone() });
        rules
            .into_iter()
            .filter(|(kept, _)| !kept)
            .map(|(_, problem)| problem)
            .chain(queues)
            .chain(share)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for kernel in Kernel::ALL {
            assert_eq!(kernel.name().parse(), Ok(kernel));
        }
        for model in NicModel::ALL {
            assert_eq!(model.name().parse(), Ok(model));
        }
        assert_eq!("igb".parse(), Ok(NicPair::of(NicModel::Igb)));
        assert_eq!("virtio:4".parse(), Ok(NicPair { model: NicModel::Virtio, queues: Some(4) }));
        assert!("virtio:".parse::<NicPair>().unwrap_err().contains("virtio:4"));
        assert!("5.10".parse::<Kernel>().unwrap_err().contains("6.12"));
        assert!("i40e".parse::<NicModel>().unwrap_err().contains("vmxnet3"));
        assert_eq!("counting".parse(), Ok(Accel::Counting));
        assert!("hvf".parse::<Accel>().unwrap_err().contains("kvm"));
    }

    #[test]
    fn only_virtio_has_queues_by_choice() {
        let problems = |pairs: &[&str]| {
            let pairs = pairs.iter().map(|pair| pair.parse().unwrap()).collect();
            let problems = VmPlan { pairs, ..VmPlan::default() }.problems();
            problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(problems(&["virtio:1", "virtio:16", "igb"]), [""; 0]);
        assert_eq!(
            problems(&["virtio:17", "virtio:0", "igb:4"]),
            [
                "the number of queues can be set for virtio only, from 1 to 16, not to 17 for virtio",
                "the number of queues can be set for virtio only, from 1 to 16, not to 0 for virtio",
                "the number of queues can be set for virtio only, from 1 to 16, not to 4 for igb",
            ]
        );
    }

    #[test]
    fn every_problem_of_a_plan_is_told_at_once() {
        let plan = VmPlan {
            pairs: vec![NicPair::of(NicModel::Igb); 9],
            cpus: 0,
            memory_mib: 64,
            share: Some("/proc/self/nothing".into()),
            ..VmPlan::default()
        };
        assert_eq!(plan.problems().len(), 4);
        assert_eq!(VmPlan::default().problems(), []);
        assert_eq!(plan.problems()[1].to_string(), "CPUs of a virtual machine must be 1 to 64, not 0");
        let counting = VmPlan { accel: Accel::Counting, ..VmPlan::default() };
        assert_eq!(counting.problems()[0].to_string(), "a counting virtual machine must have 1 CPU, not 2");
        assert_eq!(VmPlan { cpus: 1, ..counting }.problems(), []);
    }
}
