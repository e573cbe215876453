//! Which ports an owner can get, and which it gets.

use super::{EXCLUDED, Event, FIRST, Held, LAST, Node};

/// A wish for so many ports at the same numbers in every protocol listed.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    pub owner: &'static str,
    pub protocols: &'a [&'static str],
    pub ports: u32,
    /// What would go, and counts as free.
    pub replaced: &'a [Held],
}

/// Whether the port may be given at all.
fn is_in_pool(port: u16) -> bool {
    let is_excluded = EXCLUDED.iter().any(|(start, end)| *start <= port && port <= *end);
    (FIRST..=LAST).contains(&port) && !is_excluded
}

impl Node {
    /// Whether the port can be given, resting or not.
    fn is_free(&self, wish: Wish<'_>, port: u16) -> bool {
        let is_held = |protocol: &str| {
            self.held
                .iter()
                .filter(|one| !wish.replaced.contains(one))
                .any(|one| one.protocol == protocol && one.has(port))
        };
        is_in_pool(port) && !wish.protocols.iter().any(|protocol| is_held(protocol))
    }

    /// Whether all of so many ports from `start` on are free.
    pub fn fits(&self, wish: Wish<'_>, start: u16) -> bool {
        (0..wish.ports).all(|offset| {
            let port = u16::try_from(u32::from(start) + offset);
            port.is_ok_and(|port| self.is_free(wish, port))
        })
    }

    /// Who freed the port last, and when, if nobody has got it since.
    pub fn freed(&self, protocol: &str, port: u16) -> Option<(&'static str, u64)> {
        let is_about = |event: &&Event| event.range.protocol == protocol && event.range.has(port);
        let last = self.events.iter().rev().find(is_about)?;
        (last.kind == "deallocated").then_some((last.range.owner, last.at))
    }

    pub fn is_young(&self, at: u64) -> bool {
        self.now.saturating_sub(at) < self.rest
    }

    /// Until when the port rests for others than who freed it: the moment at which that was, the
    /// latest in any of the protocols.
    fn resting(&self, wish: Wish<'_>, port: u16) -> Option<u64> {
        let freed = wish.protocols.iter().filter_map(|protocol| self.freed(protocol, port));
        let strangers = freed.filter(|(owner, at)| *owner != wish.owner && self.is_young(*at));
        strangers.map(|(_, at)| at).max()
    }

    /// Whether anybody's freed port rests there, if it can be given at all.
    pub fn is_resting(&self, protocol: &'static str, port: u16) -> bool {
        let wish = Wish { owner: "", protocols: &[protocol], ports: 1, replaced: &[] };
        self.is_free(wish, port) && self.resting(wish, port).is_some()
    }

    /// Where the owner's range of that name was when it was freed last. Claims don't count.
    pub fn last_start(&self, owner: &str, protocol: &str, name: Option<&str>) -> Option<u16> {
        let is_it = |event: &&Event| {
            let range = event.range;
            event.kind == "deallocated"
                && !range.claimed
                && (range.owner, range.protocol, range.name) == (owner, protocol, name)
        };
        self.events.iter().rev().find(is_it).map(|event| event.range.start)
    }

    /// Where the wish is granted, and in which way: at the first of the favoured starts where it
    /// fits in rested ports, else at the low end of the smallest block of rested ports, else of
    /// those with ever younger ones. The error is the size of the largest block.
    pub fn place(
        &self,
        wish: Wish<'_>,
        favoured: &[(u16, &'static str)],
    ) -> Result<(u16, &'static str), u32> {
        let free: Vec<(u16, Option<u64>)> = (FIRST..=LAST)
            .filter(|port| self.is_free(wish, *port))
            .map(|port| (port, self.resting(wish, port)))
            .collect();
        let rested: Vec<u16> =
            free.iter().filter(|(_, at)| at.is_none()).map(|(port, _)| *port).collect();
        for (start, how) in favoured {
            let all: Option<Vec<u16>> =
                (0..wish.ports).map(|offset| plus(*start, offset)).collect();
            if all.is_some_and(|all| all.iter().all(|port| rested.contains(port))) {
                return Ok((*start, how));
            }
        }
        if let Some(start) = best_fit(&rested, wish.ports) {
            return Ok((start, "best fit"));
        }
        let mut moments: Vec<u64> = free.iter().filter_map(|(_, at)| *at).collect();
        moments.sort_unstable();
        for limit in moments {
            let old_enough = |at: &Option<u64>| at.is_none_or(|at| at <= limit);
            let usable: Vec<u16> =
                free.iter().filter(|(_, at)| old_enough(at)).map(|(port, _)| *port).collect();
            if let Some(start) = best_fit(&usable, wish.ports) {
                return Ok((start, "resting"));
            }
        }
        let all: Vec<u16> = free.iter().map(|(port, _)| *port).collect();
        Err(largest(&all))
    }

    /// The largest block that can be given.
    pub fn largest_free(&self, protocol: &'static str) -> u32 {
        let wish = Wish { owner: "", protocols: &[protocol], ports: 1, replaced: &[] };
        let free: Vec<u16> = (FIRST..=LAST).filter(|port| self.is_free(wish, *port)).collect();
        largest(&free)
    }

    /// How many ports can be given.
    pub fn free(&self, protocol: &'static str) -> usize {
        let wish = Wish { owner: "", protocols: &[protocol], ports: 1, replaced: &[] };
        (FIRST..=LAST).filter(|port| self.is_free(wish, *port)).count()
    }
}

fn plus(start: u16, offset: u32) -> Option<u16> {
    u16::try_from(u32::from(start) + offset).ok()
}

/// The blocks of adjacent ports, with their sizes.
fn blocks(ports: &[u16]) -> Vec<(u32, u16)> {
    let mut blocks: Vec<(u32, u16)> = Vec::new();
    for port in ports {
        match blocks.last_mut() {
            Some((size, start)) if plus(*start, *size) == Some(*port) => *size += 1,
            _ => blocks.push((1, *port)),
        }
    }
    blocks
}

/// The low end of the smallest block that is large enough, the lowest of several.
fn best_fit(ports: &[u16], count: u32) -> Option<u16> {
    blocks(ports).into_iter().filter(|(size, _)| *size >= count).min().map(|(_, start)| start)
}

fn largest(ports: &[u16]) -> u32 {
    blocks(ports).into_iter().map(|(size, _)| size).max().unwrap_or(0)
}
