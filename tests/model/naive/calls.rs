//! What is to come of each call.

use serde_json::{Value, json};

use super::ports::Wish;
use super::support::Refusal;
use super::{Answer, Edit, Held, Module, Node, PROTOCOLS, Registration, Verdict};
use crate::steps::{BAD_NAME, Demand, Part, Step, Target};

fn refuse(condition: &str, fields: Value) -> Refusal {
    Refusal::new(condition, fields)
}

fn invalid(parameter: &str) -> Refusal {
    refuse("InvalidParameter", json!({ "parameter": parameter }))
}

fn not_allocated(owner: &str) -> Refusal {
    refuse("NotAllocated", json!({ "owner": owner }))
}

fn name_taken(owner: &str, name: &str) -> Refusal {
    refuse("NameTaken", json!({ "owner": owner, "name": name }))
}

fn range(one: Held) -> Value {
    json!({ "start": one.start, "end": one.end })
}

/// All of them go.
fn takes(ranges: &[Held]) -> Vec<Edit> {
    ranges.iter().copied().map(Edit::Take).collect()
}

/// How many ports count as demand.
fn counted(ranges: &[Held]) -> u32 {
    ranges.iter().filter(|one| !one.claimed).map(Held::count).sum()
}

/// Whether the owner may hold `requested` ports instead of those `freed`.
fn check_demand(
    demand: Option<u32>,
    own: &[Held],
    freed: u32,
    requested: u32,
) -> Result<(), Refusal> {
    let before = counted(own);
    let after = before - freed + requested;
    match demand {
        Some(demand) if after > demand && after > before => Err(refuse(
            "DemandExceeded",
            json!({ "requested": requested, "allocated": before, "demand": demand }),
        )),
        _ => Ok(()),
    }
}

/// A range of so many ports. They have been seen to be there.
fn of_count(one: Held, start: u16, ports: u32) -> Held {
    Held { start, end: u16::try_from(u32::from(start) + ports - 1).unwrap(), ..one }
}

impl Node {
    /// What is to come of the step, as things stand.
    pub fn judge(&self, step: &Step) -> Verdict {
        match *step {
            Step::Allocate { target, protocol, ports, keep_existing } => {
                check_ports(ports)?;
                let (owner, demand) = self.subject(target)?;
                let demand = demand.map(|demand| demand.of(protocol));
                self.allocate(owner, demand, protocol, ports, keep_existing)
            }
            Step::Ensure { target, name, ports, protocols, may_move } => {
                check_ports(ports)?;
                let (owner, demand) = self.subject(target)?;
                self.ensure(owner, demand, name, ports, protocols, may_move)
            }
            Step::Deallocate { target, protocol, part } => {
                check_part(part)?;
                let (owner, demand) = self.subject(target)?;
                self.deallocate(owner, demand.is_some(), protocol, part)
            }
            Step::Claim { owner, protocols, name, start, end } => {
                self.claim(owner, protocols, name, start, end)
            }
            Step::Transfer { from, to } => self.transfer(from, to),
            Step::SetModule { module, labels_are_good } => self.set_module(module, labels_are_good),
            Step::RemoveModule { id: BAD_NAME } => Err(invalid("moduleId")),
            Step::RemoveModule { id } => Ok(self.remove_module(id)),
            Step::Reclaim { dry_run } => self.reclaim(dry_run),
            Step::List { owner: Some(BAD_NAME), .. } => Err(invalid("owner")),
            Step::List { owner, protocol } => {
                Ok(Answer::new("answered", self.list(owner, protocol), Vec::new()))
            }
            Step::GetStatus => Ok(Answer::new("answered", self.status(), Vec::new())),
            Step::ListModules => Ok(Answer::new("answered", self.list_modules(), Vec::new())),
            Step::History { owner, protocol, port, limit } => match limit {
                Some(limit) if limit == 0 || limit > 10_000 => Err(invalid("limit")),
                _ => {
                    let limit = limit.unwrap_or(100);
                    let past = self.history(owner, protocol, port, limit);
                    Ok(Answer::new("answered", past, Vec::new()))
                }
            },
        }
    }

    /// Whose ports the call is about, and how many they may be if that matters.
    fn subject(&self, target: Target) -> Result<(&'static str, Option<Demand>), Refusal> {
        let Some(id) = target.on_behalf_of else {
            return target.owner.map(|owner| (owner, None)).ok_or_else(|| invalid("owner"));
        };
        let module =
            self.module(id).ok_or_else(|| refuse("UnknownModule", json!({ "moduleId": id })))?;
        if target.owner.is_some_and(|owner| owner != id) {
            return Err(refuse("PermissionDenied", json!({ "owner": target.owner })));
        }
        if !module.portsadm {
            return Err(refuse("MissingRole", json!({ "moduleId": id, "role": "portsadm" })));
        }
        Ok((id, Some(module.demand)))
    }

    fn allocate(
        &self,
        owner: &'static str,
        demand: Option<u32>,
        protocol: &'static str,
        ports: u32,
        keep_existing: bool,
    ) -> Verdict {
        let own = self.own(owner, protocol);
        let replaced: Vec<Held> =
            own.iter().copied().filter(|one| !keep_existing && one.is_unnamed()).collect();
        check_demand(demand, &own, counted(&replaced), ports)?;
        let others = |stays: Held| -> Vec<Edit> {
            replaced.iter().copied().filter(|one| *one != stays).map(Edit::Take).collect()
        };
        let granted = |how: &str, one: Held, edits| {
            Ok(Answer::new(how, json!({ "range": range(one) }), edits))
        };
        if let Some(same) = by_age(&replaced).into_iter().find(|one| one.count() == ports) {
            return granted("kept", same, others(same));
        }
        let wish = Wish { owner, protocols: &[protocol], ports, replaced: &replaced };
        if let Some(from) = self.best_in_place(wish) {
            let to = of_count(from, from.start, ports);
            let how = if ports > from.count() { "grown" } else { "shrunk" };
            let edits = [others(from), vec![Edit::Take(from), Edit::Give(to)]].concat();
            return granted(how, to, edits);
        }
        let mut favoured = Vec::new();
        favoured.extend(self.last_start(owner, protocol, None).map(|start| (start, "returned")));
        if keep_existing {
            favoured.extend(behind(&own));
        }
        let (start, how) =
            self.place(wish, &favoured).map_err(|free| exhausted(protocol, ports, free))?;
        let new = Held { owner, protocol, name: None, start, end: 0, claimed: false, given: None };
        let new = of_count(new, start, ports);
        let how = if replaced.is_empty() { how.to_owned() } else { format!("moved, {how}") };
        granted(&how, new, [takes(&replaced), vec![Edit::Give(new)]].concat())
    }

    /// Of the replaced ranges that can have the size where they are, the one that keeps most of
    /// the ports that its owner holds now, of several the one that it has held longest.
    fn best_in_place(&self, wish: Wish<'_>) -> Option<Held> {
        let mut best: Option<(usize, Held)> = None;
        for one in by_age(wish.replaced) {
            if one.count() < wish.ports && !self.fits(wish, one.start) {
                continue;
            }
            let to = of_count(one, one.start, wish.ports);
            let is_kept = |port: &u16| wish.replaced.iter().any(|old| old.has(*port));
            let kept = (to.start..=to.end).filter(is_kept).count();
            if best.is_none_or(|(most, _)| kept > most) {
                best = Some((kept, one));
            }
        }
        best.map(|(_, one)| one)
    }

    fn ensure(
        &self,
        owner: &'static str,
        demand: Option<Demand>,
        name: &'static str,
        ports: u32,
        protocols: &[&'static str],
        may_move: bool,
    ) -> Verdict {
        let own: Vec<Held> = protocols.iter().flat_map(|one| self.own(owner, one)).collect();
        let old: Vec<Held> = own.iter().copied().filter(|one| one.name == Some(name)).collect();
        if old.iter().any(|one| one.claimed) {
            return Err(name_taken(owner, name));
        }
        let of = |protocol| old.iter().copied().find(|one| one.protocol == protocol);
        for protocol in protocols {
            let demand = demand.map(|demand| demand.of(protocol));
            let freed = of(*protocol).map_or(0, |one| one.count());
            check_demand(demand, &self.own(owner, protocol), freed, ports)?;
        }
        let mut starts: Vec<u16> = old.iter().map(|one| one.start).collect();
        starts.sort_unstable();
        starts.dedup();
        // ranges that stand apart can only become one by a move
        let may_stay = starts.len() == 1 || may_move;
        let stays = |start: u16| {
            protocols.iter().all(|protocol| {
                let wish = Wish { owner, protocols: &[*protocol], ports, replaced: &old };
                let shrinks = |one: Held| one.start == start && one.count() >= ports;
                of(*protocol).is_some_and(shrinks) || self.fits(wish, start)
            })
        };
        let wished = Held {
            owner,
            protocol: "",
            name: Some(name),
            start: 0,
            end: 0,
            claimed: false,
            given: None,
        };
        if let Some(start) = starts.iter().copied().find(|start| may_stay && stays(*start)) {
            return Ok(named(of_count(wished, start, ports), protocols, &old, ""));
        }
        if let (Some(first), false) = (old.first(), may_move) {
            let (start, end) = (first.start, first.end);
            let fields = json!({ "start": start, "end": end, "requested": ports });
            return Err(refuse("CannotGrow", fields));
        }
        let wish = Wish { owner, protocols, ports, replaced: &old };
        let mut favoured: Vec<(u16, &'static str)> = Vec::new();
        let last = |protocol: &&str| self.last_start(owner, protocol, Some(name));
        favoured.extend(protocols.iter().filter_map(last).map(|start| (start, "returned")));
        if old.is_empty() {
            favoured.extend(behind(&own));
        }
        let (start, how) =
            self.place(wish, &favoured).map_err(|free| exhausted(protocols[0], ports, free))?;
        Ok(named(of_count(wished, start, ports), protocols, &old, how))
    }

    fn deallocate(
        &self,
        owner: &'static str,
        is_module: bool,
        protocol: &'static str,
        part: Part,
    ) -> Verdict {
        let own = self.own(owner, protocol);
        let granted = |how: &str, freed: &[Held], edits| {
            let ranges: Vec<Value> = freed.iter().copied().map(range).collect();
            Ok(Answer::new(how, json!({ "ranges": ranges }), edits))
        };
        let check_claim = |one: Held| {
            let denied = || refuse("PermissionDenied", json!({ "owner": owner }));
            if one.claimed && is_module { Err(denied()) } else { Ok(()) }
        };
        match part {
            Part::Named(name) => {
                let found = own.iter().copied().find(|one| one.name == Some(name));
                let one = found.ok_or_else(|| not_allocated(owner))?;
                check_claim(one)?;
                granted("by name", &[one], takes(&[one]))
            }
            Part::Ports { start, end } => {
                if !(start..=end).all(|port| own.iter().any(|one| one.has(port))) {
                    return Err(not_allocated(owner));
                }
                let touched: Vec<Held> =
                    own.into_iter().filter(|one| one.start <= end && start <= one.end).collect();
                let (mut freed, mut edits) = (Vec::new(), Vec::new());
                for one in &touched {
                    check_claim(*one)?;
                    let is_inner = one.start < start && end < one.end;
                    if is_inner && !one.is_unnamed() {
                        return Err(invalid("start"));
                    }
                    freed.push(Held { start: one.start.max(start), end: one.end.min(end), ..*one });
                    edits.extend(cut(*one, start, end));
                }
                granted(cut_kind(&touched, start, end), &freed, edits)
            }
            _ => {
                let all: Vec<Held> = own.into_iter().filter(|one| !one.claimed).collect();
                let how = if all.is_empty() { "nothing" } else { "all" };
                granted(how, &all, takes(&all))
            }
        }
    }

    fn claim(
        &self,
        owner: &'static str,
        protocols: &[&'static str],
        name: Option<&'static str>,
        start: u16,
        end: u16,
    ) -> Verdict {
        if start == 0 || end < start {
            return Err(invalid(if start == 0 { "start" } else { "end" }));
        }
        let mut edits = Vec::new();
        for protocol in protocols {
            let holds =
                |port| self.held.iter().find(|one| one.protocol == *protocol && one.has(port));
            // of several holders, the highest
            if let Some(other) = (start..=end).rev().find_map(holds) {
                let Held { owner, start, end, .. } = other;
                let fields = json!({ "owner": owner, "start": start, "end": end });
                return Err(refuse("Occupied", fields));
            }
            let own = self.own(owner, protocol);
            if let Some(name) = name.filter(|name| own.iter().any(|one| one.name == Some(name))) {
                return Err(name_taken(owner, name));
            }
            edits.push(Edit::Give(Held {
                owner,
                protocol,
                name,
                start,
                end,
                claimed: true,
                given: None,
            }));
        }
        let is_inside = super::FIRST <= start && end <= super::LAST;
        let how = if is_inside { "inside the pool" } else { "outside the pool" };
        Ok(Answer::new(how, json!({}), edits))
    }

    fn transfer(&self, from: &'static str, to: &'static str) -> Verdict {
        if from == to {
            return Err(invalid("toOwner"));
        }
        let (mut edits, mut moved) = (Vec::new(), Vec::new());
        for protocol in PROTOCOLS {
            let others = self.own(to, protocol);
            for one in self.own(from, protocol) {
                let is_taken = |name: &&str| others.iter().any(|other| other.name == Some(*name));
                if let Some(name) = one.name.filter(is_taken) {
                    return Err(name_taken(to, name));
                }
                let given = Held { owner: to, ..one };
                edits.extend([Edit::Take(one), Edit::Give(given)]);
                moved.push(given);
            }
        }
        let how = if moved.is_empty() { "nothing" } else { "everything" };
        Ok(Answer::new(how, json!({ "moved": super::views::allocations(&moved) }), edits))
    }

    fn set_module(&self, module: Module, labels_are_good: bool) -> Verdict {
        if !labels_are_good {
            return Err(invalid("labels"));
        }
        let has_user =
            |other: &Module| other.id != module.id && other.unix_user == module.unix_user;
        if self.modules.iter().any(has_user) {
            return Err(invalid("unixUser"));
        }
        let (how, is_new) = match self.module(module.id) {
            None => ("registered", true),
            Some(before) if *before == module => ("as it was", false),
            Some(before) if before.portsadm && !module.portsadm => ("role revoked", true),
            Some(before) if module.demand.tcp < before.demand.tcp => ("demand lowered", true),
            Some(_) => ("replaced", true),
        };
        let registration = is_new.then_some(Registration::Set(module));
        Ok(Answer { registration, ..Answer::new(how, json!({}), Vec::new()) })
    }

    fn remove_module(&self, id: &'static str) -> Answer {
        let goes =
            |one: &Held| one.owner == id || self.module_helped_by(one.owner, Some(id)) == Some(id);
        let freed: Vec<Held> = self.all().into_iter().filter(goes).collect();
        let has_helper = freed.iter().any(|one| one.owner != id);
        let registration = self.module(id).map(|_| Registration::Remove(id));
        let how = match (registration, has_helper) {
            (Some(_), true) => "with a helper",
            (Some(_), false) => "registered",
            (None, _) => "not registered",
        };
        let reply = json!({ "freed": super::views::allocations(&freed) });
        Answer { registration, ..Answer::new(how, reply, takes(&freed)) }
    }

    /// The module that a helper works for: of those that there are, and `also`, the one with the
    /// longest id. None for modules themselves and for software outside the modules.
    fn module_helped_by(
        &self,
        owner: &'static str,
        also: Option<&'static str>,
    ) -> Option<&'static str> {
        if self.module(owner).is_some() || owner.contains('/') {
            return None;
        }
        let ids = self.modules.iter().map(|module| module.id).chain(also);
        ids.filter(|id| owner.starts_with(&format!("{id}_"))).max_by_key(|id| id.len())
    }

    fn reclaim(&self, dry_run: bool) -> Verdict {
        if self.modules.is_empty() {
            return Err(refuse("RegistryUnavailable", json!({})));
        }
        let is_gone = |one: &Held| {
            !one.owner.contains('/')
                && self.module(one.owner).is_none()
                && self.module_helped_by(one.owner, None).is_none()
        };
        let freed: Vec<Held> = self.all().into_iter().filter(is_gone).collect();
        let reply = json!({ "freed": super::views::allocations(&freed) });
        Ok(match (dry_run, freed.is_empty()) {
            (_, true) => Answer::new("nothing", reply, Vec::new()),
            (true, false) => Answer::new("dry run", reply, Vec::new()),
            (false, false) => Answer::new("for good", reply, takes(&freed)),
        })
    }
}

/// The one that is held longest first.
fn by_age(held: &[Held]) -> Vec<Held> {
    let mut held = held.to_vec();
    held.sort_by_key(|one| (one.given, one.start));
    held
}

fn check_ports(ports: u32) -> Result<(), Refusal> {
    if (1..=65_535).contains(&ports) { Ok(()) } else { Err(invalid("ports")) }
}

fn check_part(part: Part) -> Result<(), Refusal> {
    match part {
        Part::StartOnly(_) => Err(invalid("end")),
        Part::EndOnly(_) => Err(invalid("start")),
        Part::NamedPorts { .. } => Err(invalid("name")),
        Part::Ports { start: 0, .. } => Err(invalid("start")),
        Part::Ports { start, end } if end < start => Err(invalid("end")),
        Part::All | Part::Named(_) | Part::Ports { .. } => Ok(()),
    }
}

fn exhausted(protocol: &str, ports: u32, largest_free: u32) -> Refusal {
    let fields = json!({ "protocol": protocol, "requested": ports, "largestFree": largest_free });
    refuse("PoolExhausted", fields)
}

/// The ports directly behind each range.
fn behind(own: &[Held]) -> impl Iterator<Item = (u16, &'static str)> + '_ {
    own.iter().filter_map(|one| Some((one.end.checked_add(1)?, "behind")))
}

/// What makes the named range be at `to` in every protocol listed. `how` it was placed, if it is
/// not where it was.
fn named(to: Held, protocols: &[&'static str], old: &[Held], how: &str) -> Answer {
    let mut edits = Vec::new();
    let mut has_joined = false;
    for protocol in protocols {
        let to = Held { protocol, ..to };
        match old.iter().copied().find(|one| one.protocol == *protocol) {
            Some(from) if (from.start, from.end) == (to.start, to.end) => {}
            Some(from) if from.start == to.start => {
                edits.extend([Edit::Take(from), Edit::Give(Held { given: from.given, ..to })]);
            }
            from => {
                has_joined = true;
                edits.extend(from.map(Edit::Take));
                edits.push(Edit::Give(to));
            }
        }
    }
    let before = old.first().map_or(0, Held::count);
    let how = match (how, old.is_empty()) {
        ("", _) if edits.is_empty() => "kept".to_owned(),
        ("", _) if has_joined => "same numbers in another protocol".to_owned(),
        ("", _) if to.count() > before => "grown".to_owned(),
        ("", _) => "shrunk".to_owned(),
        (how, true) => how.to_owned(),
        (how, false) => format!("moved, {how}"),
    };
    let reply = json!({ "range": range(to), "changed": !edits.is_empty() });
    Answer::new(how, reply, edits)
}

/// Takes the ports out of a range that has some of them; what is left of it stays.
fn cut(one: Held, start: u16, end: u16) -> Vec<Edit> {
    let mut edits = vec![Edit::Take(one)];
    if one.start < start {
        edits.push(Edit::Give(Held { end: start - 1, ..one }));
    }
    if end < one.end {
        edits.push(Edit::Give(Held { start: end + 1, ..one }));
    }
    edits
}

fn cut_kind(touched: &[Held], start: u16, end: u16) -> &'static str {
    match touched {
        [one] if one.start < start && end < one.end => "split",
        [one] if (one.start, one.end) == (start, end) => "exact ports",
        [_] => "trimmed",
        _ => "across ranges",
    }
}
