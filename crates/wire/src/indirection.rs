//! The indirection table: from the low bits of a hash to a receive queue.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::{Text, text_form};

/// How buckets are assigned to queues; `equal:4`, `weights:6,2` or `queues:0,0,1,1` as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub enum Spread {
    /// Round robin over the first N queues (`ethtool -X … equal N`).
    Equal(u32),
    /// To queue i in proportion to the i-th weight, in runs (`ethtool -X … weight …`).
    Weights(Vec<u32>),
    /// As listed, repeated.
    Queues(Vec<u32>),
}

/// A table whose buckets hold queues; its length is a power of two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct IndirectionTable(Vec<u32>);

/// Why a table cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpreadError {
    /// The bucket is the hash's low bits.
    #[error("the number of buckets must be a power of two, up to 65536, not {buckets}")]
    Buckets {
        /// Buckets requested.
        buckets: usize,
    },
    /// No queue gets a bucket.
    #[error("spread '{text}' leaves no queue: write equal:N with N at least 1, or a weight above 0")]
    NoQueue {
        /// What was written.
        text: String,
    },
    /// Not a spread.
    #[error("'{text}' is not a spread: write equal:4, weights:6,2 or queues:0,0,1,1")]
    NotASpread {
        /// What was written.
        text: String,
    },
}

impl IndirectionTable {
    /// A table of `buckets` buckets, assigned by `spread`.
    ///
    /// # Errors
    /// [`SpreadError`] when there is no queue or the length is not a power of two.
    pub fn new(spread: &Spread, buckets: usize) -> Result<Self, SpreadError> {
        check_len(buckets)?;
        let no_queue = || SpreadError::NoQueue { text: spread.to_string() };
        let queues = match spread {
            Spread::Equal(0) => return Err(no_queue()),
            Spread::Equal(queues) => (0..*queues).cycle().take(buckets).collect(),
            Spread::Weights(weights) => by_weight(weights, buckets).ok_or_else(no_queue)?,
            Spread::Queues(queues) if queues.is_empty() => return Err(no_queue()),
            Spread::Queues(queues) => queues.iter().copied().cycle().take(buckets).collect(),
        };
        Ok(Self(queues))
    }

    /// The bucket of a hash.
    #[inline]
    pub fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.0.len() - 1)
    }

    /// The queue of a hash.
    #[inline]
    pub fn queue(&self, hash: u32) -> u32 {
        self.0[self.bucket(hash)]
    }

    /// The queue of each bucket.
    pub fn queues(&self) -> &[u32] {
        &self.0
    }
}

/// Each queue gets the buckets up to its share of the sum, as ethtool rounds it; `None` when all weights are 0.
fn by_weight(weights: &[u32], buckets: usize) -> Option<Vec<u32>> {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    if sum == 0 {
        return None;
    }
    let mut shares = (0u32..).zip(weights);
    let (mut queue, mut covered) = (0, 0u64);
    let queue_of = |bucket: usize| {
        while bucket as u64 >= buckets as u64 * covered / sum {
            let (next, weight) = shares.next()?;
            queue = next;
            covered += u64::from(*weight);
        }
        Some(queue)
    };
    (0..buckets).map(queue_of).collect()
}

impl TryFrom<Vec<u32>> for IndirectionTable {
    type Error = SpreadError;

    /// A table as read from a card.
    fn try_from(queues: Vec<u32>) -> Result<Self, SpreadError> {
        check_len(queues.len())?;
        Ok(Self(queues))
    }
}

fn check_len(buckets: usize) -> Result<(), SpreadError> {
    let possible = buckets.is_power_of_two() && buckets <= 65_536;
    if possible { Ok(()) } else { Err(SpreadError::Buckets { buckets }) }
}

impl From<IndirectionTable> for Vec<u32> {
    fn from(table: IndirectionTable) -> Self {
        table.0
    }
}

impl FromStr for Spread {
    type Err = SpreadError;

    fn from_str(text: &str) -> Result<Self, SpreadError> {
        let numbers = |list: &str| list.split(',').map(|number| number.parse().ok()).collect();
        let spread = match text.split_once(':') {
            Some(("equal", count)) => count.parse().ok().map(Self::Equal),
            Some(("weights", list)) => Option::map(numbers(list), Self::Weights),
            Some(("queues", list)) => Option::map(numbers(list), Self::Queues),
            _ => None,
        };
        spread.ok_or_else(|| SpreadError::NotASpread { text: text.into() })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, numbers) = match self {
            Self::Equal(queues) => return write!(f, "equal:{queues}"),
            Self::Weights(weights) => ("weights", weights),
            Self::Queues(queues) => ("queues", queues),
        };
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        write!(f, "{name}:{}", numbers.join(","))
    }
}

text_form!(Spread);

#[cfg(test)]
mod tests {
    use super::*;

    fn table(spread: &str, buckets: usize) -> Result<Vec<u32>, SpreadError> {
        Ok(IndirectionTable::new(&spread.parse()?, buckets)?.into())
    }

    #[test]
    fn a_spread_fills_the_table_as_ethtool_does() {
        assert_eq!(table("equal:3", 8), Ok(vec![0, 1, 2, 0, 1, 2, 0, 1]));
        assert_eq!(table("weights:6,2", 8), Ok(vec![0, 0, 0, 0, 0, 0, 1, 1]));
        assert_eq!(table("weights:1,0,1", 8), Ok(vec![0, 0, 0, 0, 2, 2, 2, 2]));
        assert_eq!(table("weights:0,1", 4), Ok(vec![1; 4]));
        assert_eq!(table("queues:0,0,1,1", 8), Ok(vec![0, 0, 1, 1, 0, 0, 1, 1]));
    }

    #[test]
    fn the_low_bits_of_the_hash_pick_the_bucket() {
        let halves = IndirectionTable::new(&Spread::Weights(vec![1, 1]), 128).unwrap();
        assert_eq!((halves.bucket(0x51cc_c178), halves.queue(0x51cc_c178)), (0x78, 1));
        assert_eq!((halves.bucket(0xffff_ff80), halves.queue(0xffff_ff80)), (0, 0));
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["equal:2", "weights:6,0,2", "queues:3"] {
            assert_eq!(text.parse::<Spread>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn impossible_tables_are_refused() {
        let message = |spread: &str, buckets| table(spread, buckets).unwrap_err().to_string();
        assert_eq!(
            message("equal:2", 96),
            "the number of buckets must be a power of two, up to 65536, not 96"
        );
        assert!(message("equal:2", 0).contains("not 0"));
        assert!(message("equal:0", 8).contains("spread 'equal:0' leaves no queue"));
        assert!(message("weights:0,0", 8).contains("leaves no queue"));
        assert_eq!(
            message("even:2", 8),
            "'even:2' is not a spread: write equal:4, weights:6,2 or queues:0,0,1,1"
        );
    }
}
