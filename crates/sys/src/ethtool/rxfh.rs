//! Receive side scaling by ioctl: table, key, function, contexts (`struct ethtool_rxfh`), and the fields of a packet
//! that are hashed (`struct ethtool_rxnfc`).

use super::{Buffer, EthtoolError, EthtoolSocket, Rss};

/// A change of receive side scaling; unset fields stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct RssChange<'a> {
    /// The queue of each bucket, as many as the card has; an empty table requests the driver's default.
    pub table: Option<&'a [u32]>,
    /// The hash key, as long as the card's.
    pub key: Option<&'a [u8]>,
    /// The hash function's number: one bit of `ETH_RSS_HASH_*`.
    pub function: Option<u8>,
}

/// A kind of packet, as distinguished by hashing; the number is the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum FlowType {
    /// TCP over IPv4.
    Tcp4 = 0x01,
    /// UDP over IPv4.
    Udp4 = 0x02,
    /// TCP over IPv6.
    Tcp6 = 0x05,
    /// UDP over IPv6.
    Udp6 = 0x06,
}

impl FlowType {
    /// All that are read here.
    pub const ALL: [Self; 4] = [Self::Tcp4, Self::Udp4, Self::Tcp6, Self::Udp6];

    /// ethtool's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp4 => "tcp4",
            Self::Udp4 => "udp4",
            Self::Tcp6 => "tcp6",
            Self::Udp6 => "udp6",
        }
    }
}

/// The parts of a packet that can be hashed, with ethtool's letters (`RXH_*` in `linux/ethtool.h`).
const FIELDS: [(u64, char); 7] =
    [(1 << 1, 'm'), (1 << 2, 'v'), (1 << 3, 't'), (1 << 4, 's'), (1 << 5, 'd'), (1 << 6, 'f'), (1 << 7, 'n')];

/// Hashed fields as ethtool's letters: `sd`, `sdfn`, …
pub fn field_letters(fields: u64) -> String {
    FIELDS.iter().filter(|(bit, _)| fields & bit != 0).map(|(_, letter)| *letter).collect()
}

/// Hashed fields from ethtool's letters; `None` when a letter is invalid.
pub fn fields_from_letters(letters: &str) -> Option<u64> {
    let bit = |letter| FIELDS.iter().find(|(_, known)| *known == letter).map(|(bit, _)| *bit);
    letters.chars().try_fold(0, |fields, letter| Some(fields | bit(letter)?))
}

/// Length of `struct ethtool_rxfh` in words, before the table and the key.
const RXFH_WORDS: usize = 6;
/// `ETH_RXFH_INDIR_NO_CHANGE` and `ETH_RXFH_CONTEXT_ALLOC`.
const ALL_ONES: u32 = u32::MAX;

impl EthtoolSocket {
    /// Receive side scaling of one context; 0 is the interface's own.
    pub fn rss(&self, interface: &str, context: u32) -> Result<Rss, EthtoolError> {
        const ETHTOOL_GRSSH: u32 = 0x46;
        const ACTION: &str = "read receive side scaling";
        let mut lengths = Buffer::new(&[ETHTOOL_GRSSH, context, 0, 0, 0, 0], 0);
        self.ask(interface, &mut lengths, ACTION)?;
        let (buckets, key) = (lengths.u32(2) as usize, lengths.u32(3) as usize);
        if buckets > MOST_BUCKETS || key > MOST_KEY {
            return Err(self.odd(interface, ACTION));
        }
        let mut answer =
            Buffer::new(&[ETHTOOL_GRSSH, context, buckets as u32, key as u32, 0, 0], buckets * 4 + key);
        self.ask(interface, &mut answer, ACTION)?;
        Ok(parse_rss(answer.bytes(), context))
    }

    /// Changes receive side scaling of one context. Needs CAP_NET_ADMIN.
    pub fn set_rss(&self, interface: &str, context: u32, change: &RssChange<'_>) -> Result<(), EthtoolError> {
        let mut request = rss_request(context, change);
        self.ask(interface, &mut request, "set receive side scaling")
    }

    /// Creates another context with this table or key; returns its number. Needs CAP_NET_ADMIN.
    pub fn create_rss_context(&self, interface: &str, change: &RssChange<'_>) -> Result<u32, EthtoolError> {
        let mut request = rss_request(ALL_ONES, change);
        self.ask(interface, &mut request, "create an RSS context")?;
        Ok(request.u32(1))
    }

    /// Deletes a context that [`EthtoolSocket::create_rss_context`] created. Needs CAP_NET_ADMIN.
    pub fn delete_rss_context(&self, interface: &str, context: u32) -> Result<(), EthtoolError> {
        // For a context other than 0, "no table and no key" deletes it.
        let mut request = rss_request(context, &RssChange { table: Some(&[]), ..RssChange::default() });
        self.ask(interface, &mut request, "delete an RSS context")
    }

    /// Which fields of a packet are hashed; ethtool's letters by [`field_letters`].
    pub fn hash_fields(&self, interface: &str, flow: FlowType) -> Result<u64, EthtoolError> {
        const ETHTOOL_GRXFH: u32 = 0x29;
        let mut answer = Buffer::new(&[ETHTOOL_GRXFH, flow as u32], super::layout::LEN - 8);
        self.ask(interface, &mut answer, "read the hashed fields")?;
        Ok(u64::from(answer.u32(2)) | u64::from(answer.u32(3)) << 32)
    }

    /// Chooses the fields of a packet that are hashed. Needs CAP_NET_ADMIN.
    pub fn set_hash_fields(&self, interface: &str, flow: FlowType, fields: u64) -> Result<(), EthtoolError> {
        const ETHTOOL_SRXFH: u32 = 0x2a;
        let head = [ETHTOOL_SRXFH, flow as u32, fields as u32, (fields >> 32) as u32];
        let mut request = Buffer::new(&head, super::layout::LEN - 16);
        self.ask(interface, &mut request, "set the hashed fields")
    }
}

/// More than any card has: a larger claim is invalid.
const MOST_BUCKETS: usize = 1 << 16;
const MOST_KEY: usize = 1 << 10;

fn rss_request(context: u32, change: &RssChange<'_>) -> Buffer {
    const ETHTOOL_SRSSH: u32 = 0x47;
    let (table, key) = (change.table.unwrap_or_default(), change.key.unwrap_or_default());
    let buckets = if change.table.is_some() { table.len() as u32 } else { ALL_ONES };
    let function = u32::from_ne_bytes([change.function.unwrap_or(0), 0, 0, 0]);
    let head = [ETHTOOL_SRSSH, context, buckets, key.len() as u32, function, 0];
    let mut request = Buffer::new(&head, table.len() * 4 + key.len());
    table.iter().enumerate().for_each(|(bucket, queue)| request.set_u32(RXFH_WORDS + bucket, *queue));
    request.set_bytes((RXFH_WORDS + table.len()) * 4, key);
    request
}

/// Parses the kernel's `struct ethtool_rxfh`; invalid lengths leave the list empty.
pub fn parse_rss(bytes: &[u8], context: u32) -> Rss {
    let word =
        |at: usize| bytes.get(at..at + 4).map_or(0, |word| u32::from_ne_bytes(word.try_into().unwrap()));
    let (buckets, key) = (word(8) as usize, word(12) as usize);
    let lists = bytes.get(RXFH_WORDS * 4..).unwrap_or_default();
    let (table, rest) = lists.split_at_checked(buckets.saturating_mul(4)).unwrap_or_default();
    Rss {
        context,
        function: bytes.get(16).map(|function| u32::from(*function)).filter(|function| *function != 0),
        table: table.chunks_exact(4).map(|queue| u32::from_ne_bytes(queue.try_into().unwrap())).collect(),
        key: rest.get(..key).unwrap_or_default().to_vec(),
        // A separate byte since Linux 6.8, a reserved 0 before.
        transform: bytes.get(17).map_or(0, |transform| u32::from(*transform)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_ethtools() {
        assert_eq!(fields_from_letters("sd"), Some(0x30));
        assert_eq!(fields_from_letters("nfds"), Some(0xf0));
        assert_eq!(field_letters(0xf0), "sdfn");
        assert_eq!(field_letters(0), "");
        assert_eq!(fields_from_letters("sdx"), None);
    }

    #[test]
    fn a_change_has_the_kernels_layout() {
        let request = rss_request(
            0,
            &RssChange { table: Some(&[1, 3]), key: Some(&[0xaa, 0xbb, 0xcc, 0xdd]), function: Some(1) },
        );
        let words = [0x47u32, 0, 2, 4, u32::from_ne_bytes([1, 0, 0, 0]), 0, 1, 3];
        let expected = [words.map(u32::to_ne_bytes).concat(), vec![0xaa, 0xbb, 0xcc, 0xdd]].concat();
        assert_eq!(request.bytes(), expected);
        let nothing = rss_request(5, &RssChange::default());
        assert_eq!((nothing.u32(1), nothing.u32(2), nothing.u32(3)), (5, ALL_ONES, 0));
    }

    #[test]
    fn an_answer_is_read_as_far_as_it_goes() {
        let mut bytes = [0x46u32, 0, 2, 3, 0, 0, 4, 5].map(u32::to_ne_bytes).concat();
        bytes[16] = 2;
        bytes.extend([7, 8, 9]);
        let rss = Rss { context: 0, function: Some(2), table: vec![4, 5], key: vec![7, 8, 9], transform: 0 };
        assert_eq!(parse_rss(&bytes, 0), rss);
        for length in 0..bytes.len() {
            assert_ne!(parse_rss(&bytes[..length], 0), rss);
        }
        assert_eq!(parse_rss(&[0xff; 40], 0).table, [0; 0]);
    }
}
