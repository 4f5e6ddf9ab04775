//! The XDP programs attached to a link.

use super::RouteSocket;
use super::link::link_header;
use crate::netlink::{Attributes, NetlinkError, Request, field};

/// `IFLA_XDP_PROG_ID`, `…_DRV_PROG_ID`, `…_SKB_PROG_ID` and `…_HW_PROG_ID` of `linux/if_link.h`.
const PROGRAM_IDS: std::ops::RangeInclusive<u16> = 4..=7;

impl RouteSocket {
    /// The kernel's numbers of the XDP programs that are attached to a link, in any mode, without duplicates.
    pub fn xdp_programs(&mut self, index: u32) -> Result<Vec<u32>, NetlinkError> {
        let request = Request::new(libc::RTM_GETLINK, 0, &link_header(index, 0, 0));
        let mut programs = Vec::new();
        self.socket
            .ask(request, |body| programs = programs_of(body))
            .map_err(|refusal| refusal.of("read", super::number(index)))?;
        Ok(programs)
    }
}

fn programs_of(body: &[u8]) -> Vec<u32> {
    let xdp = body.get(size_of_val(&link_header(0, 0, 0))..).map(Attributes);
    let nested = xdp.and_then(|attributes| attributes.find(libc::IFLA_XDP)).unwrap_or_default();
    let numbers = Attributes(nested)
        .filter(|(kind, _)| PROGRAM_IDS.contains(kind))
        .filter_map(|(_, payload)| field(payload, 0).map(u32::from_ne_bytes));
    let mut programs: Vec<u32> = numbers.filter(|id| *id != 0).collect();
    programs.sort_unstable();
    programs.dedup();
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_program_is_told_once_and_none_not_at_all() {
        let message = |ids: &[(u16, u32)]| {
            let mut request = Request::new(libc::RTM_GETLINK, 0, &link_header(1, 0, 0));
            request.nested(libc::IFLA_XDP, |request| {
                request.attribute(2, &[1]); // IFLA_XDP_ATTACHED: a byte, not a program
                ids.iter().for_each(|(kind, id)| request.u32(*kind, *id));
            });
            programs_of(request.body())
        };
        assert_eq!(message(&[(4, 77), (5, 77)]), [77]);
        assert_eq!(message(&[(6, 9), (5, 7)]), [7, 9]);
        assert_eq!(message(&[]), [0u32; 0]);
        assert_eq!(programs_of(&[0; 3]), [0u32; 0]);
    }
}
