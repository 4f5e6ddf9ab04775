//! Virtual machines for tests.

use std::{env, fs, time::Duration};

use lab::{Kernel, NicModel, NicPair, Vm, VmPlan};
use serde_json::Value;
use tempfile::TempDir;

/// The built command, at the same path in the guest.
pub(crate) const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// A machine and the folder that host and guest share.
pub(crate) struct Guest {
    vm: Vm,
    share: TempDir,
}

/// Files that a script wrote.
pub(crate) struct Done {
    pub(crate) stdout: String,
    share: TempDir,
}

impl Guest {
    /// A machine with four CPUs and these cards, or `None` with a loud skip if its packages are missing.
    pub(crate) fn prepare(kernel: Kernel, cards: &[NicModel]) -> Option<Self> {
        Self::with(kernel, cards, VmPlan::default())
    }

    /// The same with an IOMMU and VFIO.
    pub(crate) fn behind_iommu(kernel: Kernel, cards: &[NicModel]) -> Option<Self> {
        Self::with(kernel, cards, VmPlan { iommu: true, ..VmPlan::default() })
    }

    fn with(kernel: Kernel, cards: &[NicModel], plan: VmPlan) -> Option<Self> {
        let share = tempfile::tempdir().unwrap();
        let plan = VmPlan {
            kernel,
            pairs: cards.iter().copied().map(NicPair::of).collect(),
            cpus: 4,
            memory_mib: 1536,
            time_limit: Duration::from_secs(240),
            share: Some(share.path().into()),
            ..plan
        };
        testing::machine(&plan).map(|vm| Self { vm, share })
    }

    /// Runs a script in which `linerate` is the built command and `inside NAME [INTERFACE]` calls a function of
    /// `inside.rs`. It must exit with status 0.
    pub(crate) fn run(self, script: &str) -> Done {
        let this = env::current_exe().unwrap();
        let script = format!(
            "export HOME=/root LINERATE={LINERATE}\n\
             linerate() {{ $LINERATE \"$@\"; }}\n\
             inside() {{ INSIDE=\"$*\" {} --exact inside::called --nocapture --quiet; }}\n\
             settings() {{ inside settings $1 | grep ^flags; }}\n{script}",
            this.display()
        );
        Done { stdout: testing::run_in(&self.vm, &script), share: self.share }
    }
}

impl Done {
    pub(crate) fn text(&self, name: &str) -> String {
        let path = self.share.path().join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}\n{}", self.stdout))
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        let text = self.text(name);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    }
}
