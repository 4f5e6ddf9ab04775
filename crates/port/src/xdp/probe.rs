//! XDP features of an interface, found by trying.

use bpf::{BpfError, FieldDraw, Mode, Pass, SendPath, SendPlan, Sender};

/// The features that work on an interface, and what the others lack.
#[derive(Debug)]
pub struct XdpAbilities {
    /// Programs in the driver.
    pub native: Result<(), BpfError>,
    /// Programs behind the driver.
    pub generic: Result<(), BpfError>,
    /// Sending by [`XdpTx`](crate::XdpTx).
    pub live_frames: Result<(), BpfError>,
}

/// Tries programs that change nothing on the interface of this number in the calling thread's network namespace,
/// and detaches them again. No packet is sent.
pub fn probe_xdp(interface: u32) -> XdpAbilities {
    XdpAbilities {
        native: Pass::attach(interface, Mode::Native).map(drop),
        generic: Pass::attach(interface, Mode::Generic).map(drop),
        live_frames: try_live_frames(interface),
    }
}

/// Builds a frame as if received on the interface, and drops it.
fn try_live_frames(interface: u32) -> Result<(), BpfError> {
    const EINVAL: i32 = 22;
    let plan = SendPlan {
        base: vec![0; 60],
        ipv6: false,
        payload_at: 42,
        fields: [const { FieldDraw::Fixed }; 5],
        ipv4_sum: None,
        udp_sum: 0,
    };
    let _rings = Pass::attach(interface, Mode::Native)?;
    let mut sender = Sender::load(&plan, interface, SendPath::Dropped)?;
    sender.frame(0, 0)?;
    match sender.send(0, 1, 1, 0) {
        // The result for a frame that is dropped.
        Err(error) if error.os_error() == Some(EINVAL) => Err(BpfError::Unsupported {
            feature: "XDP live frames".into(),
            on: "here (since Linux 5.18)".into(),
            source: error.into(),
        }),
        outcome => outcome.map(drop),
    }
}
