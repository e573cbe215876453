//! A set of port numbers.

use crate::model::PortRange;

const WORD_BITS: usize = 64;
const PORTS: usize = 1 << 16;

/// A set of port numbers, one bit each.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PortSet(Box<[u64; PORTS / WORD_BITS]>);

impl PortSet {
    pub(super) fn new() -> Self {
        Self(Box::new([0; PORTS / WORD_BITS]))
    }

    pub(super) fn insert(&mut self, range: PortRange) {
        for port in range.start()..=range.end() {
            let (word, bit) = Self::place(port);
            self.0[word] |= bit;
        }
    }

    /// Adds every range.
    pub(super) fn extend(&mut self, ranges: impl IntoIterator<Item = PortRange>) {
        for range in ranges {
            self.insert(range);
        }
    }

    pub(super) fn remove(&mut self, range: PortRange) {
        for port in range.start()..=range.end() {
            let (word, bit) = Self::place(port);
            self.0[word] &= !bit;
        }
    }

    /// Adds every port of another set.
    pub(super) fn union(&mut self, other: &Self) {
        for (word, others) in self.0.iter_mut().zip(other.0.iter()) {
            *word |= others;
        }
    }

    pub(super) fn has(&self, port: u16) -> bool {
        let (word, bit) = Self::place(port);
        self.0[word] & bit != 0
    }

    /// How many ports of `range` are in the set.
    pub(super) fn count(&self, range: PortRange) -> u32 {
        let gaps: u32 = self.gaps(range).iter().map(|gap| u32::from(gap.count().get())).sum();
        u32::from(range.count().get()) - gaps
    }

    /// Whether no port of `range` is in the set.
    pub(super) fn is_disjoint(&self, range: PortRange) -> bool {
        self.next(range.start(), true).is_none_or(|port| port > range.end())
    }

    /// The blocks of ports within `range` that are not in the set, as large as they get, lowest
    /// first.
    pub(super) fn gaps(&self, range: PortRange) -> Vec<PortRange> {
        let mut gaps = Vec::new();
        let mut from = Some(range.start());
        while let Some(start) = from.and_then(|port| self.next(port, false)) {
            if start > range.end() {
                break;
            }
            let taken = self.next(start, true).filter(|port| *port <= range.end());
            let end = taken.map_or(range.end(), |port| port - 1);
            gaps.extend(PortRange::new(start, end));
            from = taken;
        }
        gaps
    }

    /// The lowest port from `from` on that is in the set, or that is not, as `in_set` asks.
    fn next(&self, from: u16, in_set: bool) -> Option<u16> {
        let first = usize::from(from) / WORD_BITS;
        let mut visible = u64::MAX << (usize::from(from) % WORD_BITS);
        for (index, word) in self.0.iter().enumerate().skip(first) {
            let wanted = (if in_set { *word } else { !*word }) & visible;
            if wanted != 0 {
                let bit = wanted.trailing_zeros();
                return u16::try_from(index * WORD_BITS)
                    .ok()?
                    .checked_add(u16::try_from(bit).ok()?);
            }
            visible = u64::MAX;
        }
        None
    }

    fn place(port: u16) -> (usize, u64) {
        (usize::from(port) / WORD_BITS, 1 << (usize::from(port) % WORD_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u16, end: u16) -> PortRange {
        PortRange::new(start, end).unwrap()
    }

    #[test]
    fn gaps_lie_between_what_is_taken() {
        let mut ports = PortSet::new();
        let all = range(1, 65535);
        assert_eq!(ports.gaps(all), [all]);
        ports.insert(range(1, 63));
        ports.insert(range(128, 128));
        ports.insert(range(65535, 65535));
        assert_eq!(ports.gaps(all), [range(64, 127), range(129, 65534)]);
        assert_eq!(ports.gaps(range(100, 128)), [range(100, 127)]);
        assert_eq!(ports.gaps(range(128, 128)), []);
        assert_eq!(ports.gaps(range(128, 129)), [range(129, 129)]);
        ports.remove(range(128, 128));
        assert_eq!(ports.gaps(all), [range(64, 65534)]);
        assert!(ports.is_disjoint(range(64, 65534)));
        assert!(!ports.is_disjoint(range(64, 65535)));
    }
}
