//! A queue that counts equal neighbours instead of holding them.

use std::collections::VecDeque;

/// A first-in first-out queue of small values, run-length coded: a million equal frames are one entry, so
/// even an unbounded queue costs memory only where the traffic is mixed.
#[derive(Debug, Clone)]
pub(crate) struct RunQueue<T> {
    /// The oldest run, stored separately: uniform traffic never touches the others.
    front: (T, u64),
    rest: VecDeque<(T, u64)>,
    len: u64,
}

impl<T: Copy + PartialEq + Default> RunQueue<T> {
    pub(crate) fn new() -> Self {
        Self { front: (T::default(), 0), rest: VecDeque::new(), len: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        self.len += 1;
        if self.front.1 == 0 {
            self.front = (value, 1);
            return;
        }
        let last = self.rest.back_mut().unwrap_or(&mut self.front);
        if last.0 == value { last.1 += 1 } else { self.rest.push_back((value, 1)) }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let value = self.front()?;
        self.len -= 1;
        self.front.1 -= 1;
        if self.front.1 == 0
            && let Some(next) = self.rest.pop_front()
        {
            self.front = next;
        }
        Some(value)
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<T> {
        (self.front.1 > 0).then_some(self.front.0)
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order_and_equal_neighbours_share_an_entry() {
        let mut queue = RunQueue::new();
        let values = [1, 1, 1, 2, 1, 1, 3, 3];
        values.into_iter().for_each(|v| queue.push(v));
        assert_eq!((queue.len(), queue.rest.len(), queue.front()), (8, 3, Some(1)));
        let out: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(out, values);
        assert!(queue.is_empty() && queue.front().is_none());
    }
}
