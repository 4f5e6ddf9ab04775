//! `/proc/net/snmp`, `netstat`, `snmp6` and `xfrm_stat`: protocol counters. Meaning of the names: RFC 4293, RFC 4113 and
//! <https://docs.kernel.org/networking/snmp_counter.html>.

use std::collections::BTreeMap;

use super::line::{ParseError, lines};

/// Protocol counters by name; the name begins with the protocol: `UdpInErrors`, `Udp6InErrors`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetCounters {
    values: BTreeMap<String, u64>,
}

impl NetCounters {
    /// The counter, or `None` if this kernel does not have it.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.values.get(name).copied()
    }

    /// All counters in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The difference to an earlier reading in the same namespace.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut grown = self.clone();
        for (name, value) in &mut grown.values {
            *value = value.saturating_sub(earlier.value(name).unwrap_or(0));
        }
        grown
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.values.extend(other.values);
    }
}

/// Reads `snmp` or `netstat`: a line of names and a line of values for each protocol.
///
/// The one value that may be negative (`TcpMaxConn` −1: no limit) is left out.
pub fn parse_snmp(text: &str) -> Result<NetCounters, ParseError> {
    let mut counters = NetCounters::default();
    let mut lines = lines(text);
    while let Some((names, bad)) = lines.next() {
        let (protocol, names) = names.split_once(':').ok_or_else(|| bad("a protocol and names"))?;
        let (values, bad) = lines.next().ok_or_else(|| bad("followed by values"))?;
        let values = values.strip_prefix(protocol).and_then(|values| values.strip_prefix(':'));
        let values = values.ok_or_else(|| bad("the values of the protocol above"))?;
        for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
            let value: i128 = value.parse().map_err(|_| bad("a list of numbers"))?;
            if let Ok(value) = u64::try_from(value) {
                counters.values.insert(format!("{protocol}{name}"), value);
            }
        }
    }
    Ok(counters)
}

/// Reads `snmp6` or `xfrm_stat`: a name and a value on each line.
pub fn parse_snmp6(text: &str) -> Result<NetCounters, ParseError> {
    let mut counters = NetCounters::default();
    for (line, bad) in lines(text) {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            return Err(bad("a name and a value"));
        };
        counters.values.insert(name.to_owned(), value.parse().map_err(|_| bad("a name and a number"))?);
    }
    Ok(counters)
}
