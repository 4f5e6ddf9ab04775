//! The tags that a receiver assigns to its streams.

/// A receiver's streams and their tags: tag = stream times an odd factor, modulo 2^16. A receiver that draws its factor
/// at random has tags that a stranger cannot guess; the cost is one multiplication per change of stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamTags {
    factor: u16,
    inverse: u16,
}

impl StreamTags {
    /// A stream's tag is its number.
    pub const NUMBERED: Self = Self { factor: 1, inverse: 1 };
    /// Every tag belongs to stream 0.
    pub const ANY: Self = Self { factor: 0, inverse: 0 };

    /// Tags that follow from a random number.
    #[must_use]
    pub fn drawn(random: u64) -> Self {
        let factor = random as u16 | 1;
        // Newton's iteration doubles the correct bits; an odd number is its own inverse modulo 8.
        let inverse = (0..3).fold(factor, |inverse: u16, _| {
            inverse.wrapping_mul(2u16.wrapping_sub(factor.wrapping_mul(inverse)))
        });
        Self { factor, inverse }
    }

    /// The tag of a stream; 0 for stream 0.
    #[must_use]
    pub fn tag(self, stream: u16) -> u16 {
        stream.wrapping_mul(self.factor)
    }

    /// The stream of a tag; it may not exist.
    #[inline]
    #[must_use]
    pub fn stream(self, tag: u16) -> u16 {
        tag.wrapping_mul(self.inverse)
    }

    /// The factor that a tag is multiplied by, for BPF programs that do the same.
    #[must_use]
    pub fn inverse(self) -> u16 {
        self.inverse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_tag_is_of_one_stream_and_0_of_stream_0() {
        for random in 0..=u64::from(u16::MAX) {
            let tags = StreamTags::drawn(random);
            assert_eq!((tags.tag(0), tags.stream(0)), (0, 0));
            for stream in [1, 2, 3, 128, 255, 256, u16::MAX] {
                assert_eq!(tags.stream(tags.tag(stream)), stream, "{tags:?}");
            }
        }
    }

    #[test]
    fn a_guessed_tag_is_seldom_of_a_stream_in_use() {
        // Of all draws, how many let a packet with tag 1 count as one of the first 255 streams.
        let hits = (0..=u64::from(u16::MAX)).filter(|random| StreamTags::drawn(*random).stream(1) < 256);
        assert_eq!(hits.count(), 256, "128 of 32,768 factors, each drawn from two numbers");
    }

    #[test]
    fn numbered_tags_are_streams_and_any_tag_is_of_stream_0() {
        for tag in [0, 1, 255, 256, u16::MAX] {
            assert_eq!(StreamTags::NUMBERED.stream(tag), tag);
            assert_eq!(StreamTags::NUMBERED.tag(tag), tag);
            assert_eq!(StreamTags::ANY.stream(tag), 0);
        }
    }
}
