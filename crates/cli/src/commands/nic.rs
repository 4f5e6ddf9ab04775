//! `linerate nic`: a card's receive path.

mod advise;
mod apply;
mod card;
mod flow;
mod measure;
mod restore;
mod show;
mod spread;
mod watch;

pub(super) use card::session_failure;

use crate::{
    args::{NicArgs, NicCommand},
    failure::Failure,
};

pub(crate) fn run(args: &NicArgs) -> Result<bool, Failure> {
    match &args.command {
        NicCommand::Show(args) => show::run(args),
        NicCommand::Flow(args) => flow::run(args),
        NicCommand::Spread(args) => spread::run(args),
        NicCommand::Watch(args) => watch::run(args),
        NicCommand::Advise(args) => advise::run(args),
        NicCommand::Apply(args) => apply::run(args),
        NicCommand::Restore(args) => restore::run(args),
    }
}
