//! A laboratory with real network drivers: a stock Debian kernel in an emulated machine whose network cards are
//! wired back to back in pairs.
//!
//! ```text
//!   host                                     guest (its own kernel, RAM only)
//!   root file system  ── read-only, 9p ──>   /   with an overlay in RAM: writes stay in the guest
//!   a shared folder   <── 9p ──────────>     /share
//!   stdout, stderr    <── serial lines ──    of the script
//!                                            pair1a <──> pair1b   pair2a <──> pair2b …
//! ```
//!
//! The packages come from the Debian archive that this machine's apt uses. They are unpacked below the
//! user's cache folder; apt's state and the machine's packages do not change. Emulation is the default:
//! rates are not those of hardware, the drivers' behaviour is.
//!
//! ```no_run
//! use lab::{NicModel, NicPair, Vm, VmPlan, VmStatus};
//!
//! let plan = VmPlan { pairs: vec![NicPair::of(NicModel::Igb)], ..VmPlan::default() };
//! let outcome = Vm::prepare(&plan)?.outcome("cat /sys/class/net/pair1a/address")?;
//! assert_eq!(outcome.status, VmStatus::Exited(0));
//! assert_eq!(outcome.stdout, "52:54:00:00:01:0a\n");
//! # Ok::<(), lab::VmError>(())
//! ```

mod apt;
mod cables;
mod counter;
mod cpio;
mod error;
mod guest;
mod hosts;
mod image;
mod modules;
mod plan;
mod qemu;
mod run;
mod store;
mod wires;

pub use error::VmError;
pub use hosts::{VmHost, VmHosts};
pub use plan::{Accel, Kernel, KernelImage, NicModel, NicPair, VmPlan, VmPlanError};
pub use run::{Vm, VmOutcome, VmStatus, VmStreams};
pub use store::VmStore;
