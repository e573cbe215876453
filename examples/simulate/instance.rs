//! What one instance of a module asks for in its life.

use fastrand::Rng;
use portsd::model::{Demand, PortCount, Protocol, Protocols, RangeName};

use crate::Failure;
use crate::catalogue::Module;
use crate::workload::Call;

/// How far updates take an instance above what it asked for when it was installed, in ports.
const GROWTH_MAX: u16 = 8;
/// A range of more ports keeps its size: the media ports of NethVoice and BigBlueButton are fixed
/// by their configuration.
const CHANGING_MAX: u16 = 2000;
/// The names of named ranges.
const NAMES: [&str; 3] = ["db", "sip", "web"];
/// The protocols that named ranges are wanted in.
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "tcp,udp"];

/// An instance, by what it would hold if it were granted everything.
pub struct Instance {
    demand: Demand,
    tcp: u16,
    udp: u16,
}

impl Instance {
    pub fn new(module: &Module) -> Self {
        let demand = module.demand;
        Self { demand, tcp: demand.tcp, udp: demand.udp }
    }

    /// What its labels ask for.
    pub fn install(&self) -> Result<Vec<Call>, Failure> {
        let wanted = Protocol::ALL.into_iter().filter(|protocol| self.demand.of(*protocol) > 0);
        wanted.map(|protocol| allocate(protocol, self.demand.of(protocol), false)).collect()
    }

    /// Something that happens to an instance from time to time.
    pub fn change(&mut self, rng: &mut Rng) -> Result<Vec<Call>, Failure> {
        let protocols = Protocol::ALL;
        let mut changing =
            protocols.iter().filter(|one| (1..=CHANGING_MAX).contains(&self.demand.of(**one)));
        let protocol = match (changing.next(), changing.next()) {
            (Some(one), None) => *one,
            (Some(one), Some(other)) => *rng.choice([one, other]).unwrap_or(one),
            // a module that asks for no unnamed range may still want a named one
            (None, _) => return ensure(rng),
        };
        match rng.u32(..100) {
            0..55 => self.update(protocol, rng),
            55..65 => self.add(protocol, rng.u16(1..=3)),
            65..80 => ensure(rng),
            80..90 => Ok(self.give_back(protocol, rng)),
            _ => self.begin_anew(protocol),
        }
    }

    /// A new version, which asks for a few ports more or less.
    fn update(&mut self, protocol: Protocol, rng: &mut Rng) -> Result<Vec<Call>, Failure> {
        let most = self.demand.of(protocol) + GROWTH_MAX;
        let size = self.size_mut(protocol);
        let grows = rng.u32(..3) > 0;
        *size = if grows { *size + rng.u16(1..=3) } else { size.saturating_sub(rng.u16(1..=2)) };
        *size = (*size).clamp(1, most);
        Ok(vec![allocate(protocol, *size, false)?])
    }

    /// One more range; the next update makes one of all.
    fn add(&mut self, protocol: Protocol, ports: u16) -> Result<Vec<Call>, Failure> {
        *self.size_mut(protocol) += ports;
        Ok(vec![allocate(protocol, ports, true)?])
    }

    /// A part that is no longer needed, which leaves at least one port.
    fn give_back(&mut self, protocol: Protocol, rng: &mut Rng) -> Vec<Call> {
        let size = self.size_mut(protocol);
        let ports = rng.u16(1..=3).min(*size - 1);
        *size -= ports;
        let skip = rng.u16(..=*size);
        if ports == 0 { Vec::new() } else { vec![Call::GiveBack { protocol, ports, skip }] }
    }

    /// Everything back and taken again, as by modules that do so when they are configured anew.
    fn begin_anew(&mut self, protocol: Protocol) -> Result<Vec<Call>, Failure> {
        let size = *self.size_mut(protocol);
        Ok(vec![Call::Free { protocol }, allocate(protocol, size, false)?])
    }

    const fn size_mut(&mut self, protocol: Protocol) -> &mut u16 {
        match protocol {
            Protocol::Tcp => &mut self.tcp,
            Protocol::Udp => &mut self.udp,
        }
    }
}

fn allocate(protocol: Protocol, ports: u16, keep_existing: bool) -> Result<Call, Failure> {
    Ok(Call::Allocate { protocol, ports: PortCount::try_from(ports)?, keep_existing })
}

/// A named range, new or of another size than before.
fn ensure(rng: &mut Rng) -> Result<Vec<Call>, Failure> {
    let name = RangeName::parse(NAMES[rng.usize(..NAMES.len())])?;
    let protocols: Protocols = PROTOCOLS[rng.usize(..PROTOCOLS.len())].parse()?;
    let ports = PortCount::try_from(rng.u16(1..=4))?;
    Ok(vec![Call::Ensure { name, ports, protocols, may_move: rng.bool() }])
}
