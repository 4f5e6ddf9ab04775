//! Which packet first had a number above another: the highest numbers so far and when each was reached.

/// The rises of the highest number, as runs in which number and arrival grow together; the oldest are evicted.
#[derive(Debug, Clone)]
pub(super) struct Runs {
    runs: [Consecutive; MOST],
    /// Runs created so far; the newest is at `(made − 1) % MOST`.
    made: usize,
}

/// Numbers `number..number + len` were reached by arrivals `arrival..arrival + len`.
#[derive(Debug, Clone, Copy, Default)]
struct Consecutive {
    number: u64,
    arrival: u64,
    len: u64,
}

const MOST: usize = 32;

impl Runs {
    pub(super) fn new() -> Self {
        Self { runs: [Consecutive::default(); MOST], made: 0 }
    }

    /// The highest number is now `number`, reached by packet `arrival`.
    #[inline]
    pub(super) fn extend(&mut self, number: u64, arrival: u64) {
        self.extend_by(number, arrival, 1);
    }

    /// The same `len` times: each packet has a number and an arrival more.
    #[inline]
    pub(super) fn extend_by(&mut self, number: u64, arrival: u64, len: u64) {
        let newest = &mut self.runs[self.made.wrapping_sub(1) % MOST];
        if newest.number + newest.len == number && newest.arrival + newest.len == arrival {
            newest.len += len;
            return;
        }
        self.runs[self.made % MOST] = Consecutive { number, arrival, len };
        self.made += 1;
    }

    /// How many packets packet `arrival` came after the first with a number above its own, and whether that is only a lower
    /// bound.
    pub(super) fn extent(&self, number: u64, arrival: u64) -> (u64, bool) {
        let kept = self.made.min(MOST);
        let mut first = None;
        for back in 1..=kept {
            let run = &self.runs[(self.made - back) % MOST];
            if run.number + run.len - 1 <= number {
                break;
            }
            let offset = (number + 1).saturating_sub(run.number);
            first = Some((run.arrival + offset, offset == 0 && back == kept && self.made > MOST));
        }
        let (first, is_least) = first.expect("the highest number is above any overtaken one");
        (arrival - first, is_least)
    }
}
