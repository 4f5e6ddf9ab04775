//! Histograms as HdrHistogram strings: the compressed V2 form in Base64, as its log tools read it.

use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram as Hdr,
    serialization::{Deserializer, Serializer, V2DeflateSerializer},
};

use crate::histogram::Histogram;

/// The digits for which an HdrHistogram has the same buckets as [`Histogram`].
const DIGITS: u8 = 2;

/// The histogram as a string.
pub(crate) fn encode(histogram: &Histogram) -> String {
    let most = histogram.max().unwrap_or(0).clamp(2, u64::MAX / 2);
    let mut hdr: Hdr<u64> = Hdr::new_with_bounds(1, most, DIGITS).expect("the bounds are in order");
    for (value, samples) in histogram.buckets() {
        hdr.saturating_record_n(value, samples);
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&hdr, &mut bytes).expect("memory takes everything");
    STANDARD.encode(bytes)
}

/// The buckets of such a string, as (largest value of the bucket, samples); `None` when it cannot be read.
pub(crate) fn decode(text: &str) -> Option<Vec<(u64, u64)>> {
    let bytes = STANDARD.decode(text).ok()?;
    let hdr: Hdr<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
    Some(hdr.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_survive_the_way_there_and_back() {
        let mut histogram = Histogram::new();
        for value in [0, 1, 255, 256, 257, 700, 1_000_000, 123_456_789_012] {
            histogram.record_n(value, value % 7 + 1);
        }
        let text = encode(&histogram);
        assert!(text.starts_with("HISTFAAAA"), "the V2 compressed cookie: {text}");
        let mut exact: Vec<_> = histogram.buckets().collect();
        let read = decode(&text).unwrap();
        // Here the exact maximum is known.
        let (last, largest) = (exact.len() - 1, read[read.len() - 1]);
        assert_eq!(largest.1, exact[last].1);
        exact[last] = largest;
        assert_eq!(read, exact);
    }

    #[test]
    fn nothing_and_extremes_have_a_string_too() {
        assert_eq!(decode(&encode(&Histogram::new())).unwrap(), []);
        let mut far = Histogram::new();
        far.record(u64::MAX);
        assert_eq!(decode(&encode(&far)).unwrap().len(), 1);
        assert_eq!((decode("nonsense"), decode("")), (None, None));
    }
}
