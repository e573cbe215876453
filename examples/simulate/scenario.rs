//! How busy and how full the simulated nodes are. All of it is assumed.

use std::ops::RangeInclusive;

/// Seconds of a day.
pub const DAY: u32 = 24 * 60 * 60;
/// How long a run lasts.
pub const MONTHS: u32 = 24;
/// The same in days.
pub const DAYS: u32 = MONTHS * 365 / 12;
/// How many NethVoice a node has over time.
pub const NETHVOICES: u32 = 12;

/// A node and those who work on it.
#[derive(Debug)]
pub struct Scenario {
    /// What it is called in the tables.
    pub name: &'static str,
    /// How long a run lasts, in days.
    pub days: u32,
    /// Mean time between two installs of published modules, in seconds.
    pub install_every: u32,
    /// Mean time between two changes of one instance, in seconds.
    pub change_every: u32,
    /// The largest module that is installed, in ports of one protocol.
    pub largest_module: u16,
    /// How long a NethVoice stays, in days.
    pub nethvoice_stays: RangeInclusive<u32>,
    /// How long after its removal it is installed again, in days.
    pub nethvoice_is_away: RangeInclusive<u32>,
    /// TCP ports that an administrator has claimed for something else, first and last.
    pub claimed_tcp: Option<(u16, u16)>,
}

/// What the nodes have in common on which tcp is short. Which ports are left differs.
const CROWDED_IN_TCP: Scenario = Scenario {
    name: "crowded in tcp",
    days: DAYS,
    install_every: DAY / 2,
    change_every: 45 * DAY,
    largest_module: u16::MAX,
    nethvoice_stays: 60..=180,
    nethvoice_is_away: 120..=360,
    claimed_tcp: None,
};

/// What is simulated.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "quiet",
        days: DAYS,
        install_every: 4 * DAY,
        change_every: 60 * DAY,
        largest_module: u16::MAX,
        nethvoice_stays: 60..=180,
        nethvoice_is_away: 120..=360,
        claimed_tcp: None,
    },
    Scenario {
        name: "crowded in udp",
        days: DAYS,
        install_every: DAY / 2,
        change_every: 45 * DAY,
        // BigBlueButton has 9216 udp: there is no room for it beside twelve NethVoice
        largest_module: 2003,
        nethvoice_stays: 60..=600,
        nethvoice_is_away: 0..=30,
        claimed_tcp: None,
    },
    Scenario {
        name: "crowded in tcp, high",
        claimed_tcp: Some((20_000, 41_899)),
        ..CROWDED_IN_TCP
    },
    // What is left for tcp are the numbers at which the first large udp ranges stand: ranges for
    // both protocols are hard to place.
    Scenario { name: "crowded in tcp, low", claimed_tcp: Some((23_101, 45_000)), ..CROWDED_IN_TCP },
];
