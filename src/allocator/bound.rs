//! Which ports some process has bound right now, by the kernel's word.
//!
//! The answer is that of the network namespace of whoever asks, and old when it arrives: a look
//! before a range is given, not a promise. Seen are TCP sockets that listen and UDP sockets, of both
//! families; a TCP socket that is bound and does not listen yet is not.

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags,
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};

use super::ports::PortSet;
use crate::model::{PortRange, Protocol, UserId};

/// The ports that were bound when the kernel was asked.
#[derive(Clone)]
pub struct BoundPorts {
    tcp: PortSet,
    udp: PortSet,
}

impl BoundPorts {
    /// No port at all.
    #[must_use]
    pub fn none() -> Self {
        Self { tcp: PortSet::new(), udp: PortSet::new() }
    }

    /// Asks the kernel. A failure says nothing about any port.
    pub fn read() -> io::Result<Self> {
        let mut bound = Self::none();
        dump_all(|protocol, header| {
            let port = header.socket_id.source_port;
            bound.of_mut(protocol).extend(PortRange::new(port, port).ok());
        })?;
        Ok(bound)
    }

    #[cfg(test)]
    pub(super) fn insert(&mut self, protocol: Protocol, range: PortRange) {
        self.of_mut(protocol).insert(range);
    }

    pub(super) const fn of(&self, protocol: Protocol) -> &PortSet {
        match protocol {
            Protocol::Tcp => &self.tcp,
            Protocol::Udp => &self.udp,
        }
    }

    const fn of_mut(&mut self, protocol: Protocol) -> &mut PortSet {
        match protocol {
            Protocol::Tcp => &mut self.tcp,
            Protocol::Udp => &mut self.udp,
        }
    }
}

/// A socket that had a port when the kernel was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundSocket {
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The user of the process that made the socket.
    pub uid: UserId,
}

/// Asks the kernel for the sockets behind [`BoundPorts`]. One that has a port in both families is
/// there twice.
pub fn sockets() -> io::Result<Vec<BoundSocket>> {
    let mut sockets = Vec::new();
    dump_all(|protocol, header| {
        let port = header.socket_id.source_port;
        // a UDP socket that has no port yet
        if port != 0 {
            sockets.push(BoundSocket { protocol, port, uid: UserId(header.uid) });
        }
    })?;
    Ok(sockets)
}

/// Shows `each` the sockets of both families and protocols.
fn dump_all(mut each: impl FnMut(Protocol, &InetResponseHeader)) -> io::Result<()> {
    for protocol in Protocol::ALL {
        for family in [AF_INET, AF_INET6] {
            dump(family, protocol, |header| each(protocol, header))?;
        }
    }
    Ok(())
}

/// Shows `each` the sockets of one family and protocol.
fn dump(
    family: u8,
    protocol: Protocol,
    mut each: impl FnMut(&InetResponseHeader),
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(family, protocol), 0)?;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(io::Error::other)?;
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    each(&response.header);
                }
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
            // messages stand at multiples of four bytes
            let length = usize::try_from(message.header.length).map_err(io::Error::other)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn request(family: u8, protocol: Protocol) -> Vec<u8> {
    let (number, states) = match protocol {
        // the kernel picks out those that listen: connections would be many
        Protocol::Tcp => (IPPROTO_TCP, StateFlags::LISTEN),
        Protocol::Udp => (IPPROTO_UDP, StateFlags::all()),
    };
    let socket_id = if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() };
    let request = InetRequest {
        family,
        protocol: number,
        extensions: ExtensionFlags::empty(),
        states,
        socket_id,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};

    use super::*;

    /// Ports that the kernel gives to nobody who does not ask for them by number.
    fn free_port<T>(bind: impl Fn(u16) -> io::Result<T>) -> (u16, T) {
        let first = 21_000 + u16::try_from(std::process::id() % 10_000).unwrap();
        (first..32_000).find_map(|port| Some((port, bind(port).ok()?))).unwrap()
    }

    fn is_bound(protocol: Protocol, port: u16) -> bool {
        let range = PortRange::new(port, port).unwrap();
        !BoundPorts::read().unwrap().of(protocol).is_disjoint(range)
    }

    #[test]
    fn listeners_and_datagram_sockets_are_seen_while_they_are_there() {
        let (port, tcp) = free_port(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        assert!(is_bound(Protocol::Tcp, port));
        drop(tcp);
        assert!(!is_bound(Protocol::Tcp, port));
        let (port, udp) = free_port(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)));
        assert!(is_bound(Protocol::Udp, port));
        udp.connect(udp.local_addr().unwrap()).unwrap();
        assert!(is_bound(Protocol::Udp, port));
        drop(udp);
        assert!(!is_bound(Protocol::Udp, port));
    }

    #[test]
    fn sockets_have_the_user_who_made_them() {
        let own = UserId(nix::unistd::geteuid().as_raw());
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let sockets = sockets().unwrap();
        for (protocol, address) in
            [(Protocol::Tcp, tcp.local_addr()), (Protocol::Udp, udp.local_addr())]
        {
            let socket = BoundSocket { protocol, port: address.unwrap().port(), uid: own };
            assert!(sockets.contains(&socket), "{socket:?}");
        }
        assert!(sockets.iter().all(|socket| socket.port != 0));
    }

    #[test]
    fn both_families_are_seen() {
        let tcp = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        assert!(is_bound(Protocol::Tcp, tcp.local_addr().unwrap().port()));
        let udp = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        assert!(is_bound(Protocol::Udp, udp.local_addr().unwrap().port()));
    }

    #[test]
    fn many_sockets_are_seen_whole() {
        let sockets: Vec<_> =
            (0..500).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let bound = BoundPorts::read().unwrap();
        for socket in &sockets {
            let port = socket.local_addr().unwrap().port();
            assert!(!bound.of(Protocol::Udp).is_disjoint(PortRange::new(port, port).unwrap()));
        }
    }
}
