//! Why a diversion was refused, and what to do.

use divert::{BpfError, DivertError, RuleError};

use super::rules::marked;
use crate::{
    commands::nic,
    failure::{self, Failure},
};

/// A refusal as a failure with its exit status and hint.
pub(super) fn explain(error: &DivertError) -> Failure {
    use failure::Status::{Missing, Refused, Usage};
    let status = match error {
        DivertError::Rule(_)
        | DivertError::NoQueue { .. }
        | DivertError::Steered { .. }
        | DivertError::ShadowLimits
        | DivertError::ShadowSamples
        | DivertError::ShadowKeeps => Usage,
        DivertError::GenericReinjection { .. } | DivertError::Bpf(BpfError::MissingCapability { .. }) => {
            Missing
        }
        _ => Refused,
    };
    let failure = Failure::of(status, error);
    match error {
        DivertError::Rule(RuleError::UnknownSet { set }) => failure.hint(format!("add --set {set}=FILE")),
        DivertError::Rule(error) => marked(error).into_iter().fold(failure, Failure::hint),
        DivertError::Steered { .. } => failure.hint("restart the diversion to steer by the new rules"),
        DivertError::ShadowLimits => failure.hint("omit --shadow, or the rules with limit"),
        DivertError::ShadowKeeps => failure.hint("add --reinject to --shadow --where user"),
        DivertError::GenericReinjection { .. } => failure.hint("use --where xdp, or omit --reinject"),
        DivertError::Bpf(BpfError::MissingCapability { .. }) => {
            failure.hint("run as root: XDP needs CAP_BPF and CAP_NET_ADMIN, AF_XDP also CAP_NET_RAW")
        }
        DivertError::Joins { interface } => {
            let switch =
                format!("add --steer, which turns it off meanwhile, or: ethtool -K {interface} lro off");
            failure.hint(switch)
        }
        DivertError::Card { source, .. } => nic::session_failure(source),
        DivertError::Occupied { interface, program, .. }
        | DivertError::Bpf(BpfError::InUse { interface, program, .. }) => failure.hint(match &program[..] {
            "divert" => {
                format!("a diversion attached it; stop one of your own with linerate divert stop {interface}")
            }
            _ => {
                format!("end the program that attached it, or detach it: ip link set dev {interface} xdp off")
            }
        }),
        _ => failure,
    }
}
