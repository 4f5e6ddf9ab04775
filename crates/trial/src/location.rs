//! The locations of the two ends of a trial.

use std::{io, sync::Arc};

use lab::{Lab, Side};
use sys::netns::NetNs;
use traffic::Placement;

use crate::error::TrialError;

/// The location of an end: an interface in a network namespace.
#[derive(Debug, Clone)]
pub struct Location {
    namespace: Arc<NetNs>,
    interface: String,
    /// Without a kernel driver there is no interface.
    is_taken: bool,
}

/// The locations of both ends.
#[derive(Debug, Clone)]
pub struct Locations {
    /// The sending end.
    pub tx: Location,
    /// The receiving end.
    pub rx: Location,
}

impl Location {
    /// An interface in a namespace that linerate made.
    pub fn new(namespace: Arc<NetNs>, interface: &str) -> Self {
        Self { namespace, interface: interface.into(), is_taken: false }
    }

    /// An interface in the calling thread's namespace.
    ///
    /// # Errors
    /// [`TrialError::Namespace`].
    pub fn here(interface: &str) -> Result<Self, TrialError> {
        let current = NetNs::current().map_err(namespace_error(interface))?;
        Ok(Self::new(Arc::new(current), interface))
    }

    /// One side of a lab.
    ///
    /// # Errors
    /// [`TrialError::Namespace`] when no descriptor is left.
    pub fn of(side: &Side) -> Result<Self, TrialError> {
        let copy = side.namespace().try_clone().map_err(namespace_error(side.interface()))?;
        Ok(Self { is_taken: side.is_taken(), ..Self::new(Arc::new(copy), side.interface()) })
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The interface, if the kernel has one with counters.
    pub fn counted(&self) -> Option<&str> {
        (!self.is_taken).then_some(&*self.interface)
    }

    /// Workers at this end, on these CPUs.
    pub fn placement(&self, cpus: &[u32]) -> Placement {
        let namespace = Arc::clone(&self.namespace);
        Placement { enter: Some(Arc::new(move || namespace.enter())), cpus: cpus.to_vec() }
    }

    /// Runs `work` on a new thread in this end's namespace.
    ///
    /// # Errors
    /// [`TrialError::Namespace`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TrialError> {
        self.namespace.run(work).map_err(namespace_error(&self.interface))
    }

    /// The namespace.
    pub(crate) fn namespace(&self) -> &NetNs {
        &self.namespace
    }
}

impl Locations {
    /// Both sides of a lab.
    ///
    /// # Errors
    /// [`TrialError::Namespace`] when no descriptor is left.
    pub fn of(lab: &Lab) -> Result<Self, TrialError> {
        Ok(Self { tx: Location::of(lab.tx())?, rx: Location::of(lab.rx())? })
    }
}

fn namespace_error(interface: &str) -> impl FnOnce(io::Error) -> TrialError {
    let interface = interface.to_owned();
    move |source| TrialError::Namespace { interface, source }
}
