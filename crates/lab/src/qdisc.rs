//! Which queueing disciplines this kernel has, found by trying.

use sys::{netns::NetNs, rtnetlink::RouteSocket};

use crate::{
    error::{LabError, SideName},
    plan::LabQdisc,
};

impl LabQdisc {
    /// Tries it on the loopback interface of a namespace made for this.
    ///
    /// # Errors
    /// [`LabError::Qdisc`] if this kernel does not have it, or must not load its module for this process.
    pub fn probe(self) -> Result<(), LabError> {
        let side = SideName::Tx;
        let namespace = NetNs::create().map_err(|source| LabError::Namespace { side, source })?;
        let tried = namespace.run(|| {
            let mut route = RouteSocket::open()?;
            let loopback = route.link_by_name("lo")?.index;
            route.set_root_qdisc(loopback, &self.for_kernel())
        });
        let tried = tried.map_err(|source| LabError::Enter { side, source })?;
        tried.map_err(|source| LabError::Qdisc { kind: self.kind(), source })
    }
}
