//! What these tests share.

use std::{io::Read, time::Duration};

use lab::{Lab, LabPlan, Side};
use socket2::{Domain, Protocol, Socket, Type};
use sys::netdev::Napi;
use wire::{FrameSpec, Template};

/// A lab as root, or `None` with a printed skip; a failure when everything is required.
pub(crate) fn lab(plan: &LabPlan) -> Option<Lab> {
    testing::root_lab(plan, "XDP needs root")
}

pub(crate) fn template(spec: &FrameSpec) -> Template {
    Template::new(spec).unwrap()
}

/// The receive rings of a veth; kernels before 6.8 report none.
pub(crate) fn napis(side: &Side) -> Vec<Napi> {
    side.napis().unwrap_or_default()
}

/// Sees every frame of the namespace it was opened in.
pub(crate) struct Capture(Socket);

impl Capture {
    pub(crate) fn open() -> Self {
        const ETH_P_ALL: u16 = 3;
        let everything = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(everything)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(socket)
    }

    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 2048];
        let len = self.0.read(&mut frame).unwrap();
        frame.truncate(len);
        frame
    }
}

/// Also when the test fails, so that no thread keeps waiting.
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
