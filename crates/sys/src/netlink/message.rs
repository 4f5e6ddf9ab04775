//! Netlink messages as bytes: building requests, reading answers. No socket here.

use std::io;

/// Length of `struct nlmsghdr`: length u32, kind u16, flags u16, sequence u32, port u32.
const HEADER: usize = 16;

/// A request under construction: header, the family's own header, then attributes.
#[derive(Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// `flags` beside `NLM_F_REQUEST` and, unless it is a dump, `NLM_F_ACK`.
    pub(crate) fn new(kind: u16, flags: libc::c_int, family_header: &[u8]) -> Self {
        let is_dump = flags & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
        let flags = flags | libc::NLM_F_REQUEST | if is_dump { 0 } else { libc::NLM_F_ACK };
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags as u16).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(family_header);
        let mut request = Self { bytes };
        request.pad();
        request
    }

    pub(crate) fn attribute(&mut self, kind: u16, payload: &[u8]) {
        self.nested(kind, |inner| inner.bytes.extend(payload));
    }

    pub(crate) fn u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// A string with its terminating zero byte.
    pub(crate) fn string(&mut self, kind: u16, text: &str) {
        self.nested(kind, |inner| {
            inner.bytes.extend(text.as_bytes());
            inner.bytes.push(0);
        });
    }

    /// An attribute whose payload `fill` appends.
    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(self);
        let length = u16::try_from(self.bytes.len() - start).expect("a request is far below 64 KiB");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.pad();
    }

    /// Bytes without an attribute header: some nested attributes begin with a family header.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.pad();
    }

    /// The complete message.
    pub(super) fn finish(&mut self, sequence: u32) -> &[u8] {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.bytes
    }

    /// The payload after the netlink header.
    #[cfg(test)]
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// One message of an answer.
#[derive(Debug, PartialEq)]
pub(super) struct Message<'a> {
    kind: i32,
    flags: i32,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

/// The messages in one received buffer; ends with an error at the first malformed one.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<Message<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let message = Message::first(bytes);
        let length = message.as_ref().map_or(bytes.len(), |message| HEADER + message.body.len());
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message.ok_or_else(malformed))
    })
}

impl<'a> Message<'a> {
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let length = u32::from_ne_bytes(field(bytes, 0)?) as usize;
        Some(Self {
            kind: u16::from_ne_bytes(field(bytes, 4)?).into(),
            flags: u16::from_ne_bytes(field(bytes, 6)?).into(),
            sequence: u32::from_ne_bytes(field(bytes, 8)?),
            body: bytes.get(HEADER..length)?,
        })
    }

    pub(super) fn is_of_an_interrupted_dump(&self) -> bool {
        self.flags & libc::NLM_F_DUMP_INTR != 0
    }

    /// The negative errno or 0 that ends an answer; `None` in a message that carries content.
    pub(super) fn errno(&self) -> io::Result<Option<i32>> {
        match self.kind {
            libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                field(self.body, 0).map(|errno| Some(i32::from_ne_bytes(errno))).ok_or_else(malformed)
            }
            _ => Ok(None),
        }
    }

    /// The kernel's error message (`NLMSGERR_ATTR_MSG`).
    pub(super) fn extended_ack(&self) -> Option<String> {
        const TEXT: u16 = 1;
        if self.flags & libc::NLM_F_ACK_TLVS == 0 {
            return None;
        }
        // An error contains the request's header after the errno; the end of a dump does not.
        let behind = if self.kind == libc::NLMSG_ERROR { 4 + HEADER } else { 4 };
        Attributes(self.body.get(behind..)?).text(TEXT)
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed netlink message")
}

/// The attributes in a message's body or in another attribute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The payload of the first attribute of this kind.
    pub(crate) fn find(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(found, payload)| (found == kind).then_some(payload))
    }

    /// The attribute as a native-endian number.
    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        field(self.find(kind)?, 0).map(u32::from_ne_bytes)
    }

    /// The attribute as a number of four or eight bytes, as chosen by the kernel.
    pub(crate) fn uint(self, kind: u16) -> Option<u64> {
        let payload = self.find(kind)?;
        field(payload, 0)
            .map(u64::from_ne_bytes)
            .or_else(|| field(payload, 0).map(u32::from_ne_bytes).map(u64::from))
    }

    /// The attribute as text, without its terminating zero byte.
    pub(crate) fn text(self, kind: u16) -> Option<String> {
        let payload = self.find(kind)?;
        let text = payload.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u16::from_ne_bytes(field(self.0, 0)?) as usize;
        let kind = u16::from_ne_bytes(field(self.0, 2)?) & libc::NLA_TYPE_MASK as u16;
        let payload = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    }
}

/// The `N` bytes at `offset`, when there are that many.
pub(crate) fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests;
