//! What XDP can do on an interface, found by trying.

use bpf::{BpfError, FieldDraw, Mode, Pass, SendPath, SendPlan, Sender};

/// What works on an interface, and what each other thing lacks.
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
/// and takes them away again. No packet is sent.
pub fn probe_xdp(interface: u32) -> XdpAbilities {
    XdpAbilities {
        native: Pass::attach(interface, Mode::Native).map(drop),
        generic: Pass::attach(interface, Mode::Generic).map(drop),
        live_frames: try_live_frames(interface),
    }
}

/// Makes a frame as from the interface, and drops it.
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
        // What worked with a frame that goes nowhere.
        Err(error) if error.os_error() == Some(EINVAL) => Err(BpfError::Unsupported {
            feature: "XDP live frames".into(),
            on: "here (since Linux 5.18)".into(),
            source: error.into(),
        }),
        outcome => outcome.map(drop),
    }
}
