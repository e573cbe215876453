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
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};

use super::ports::PortSet;
use crate::model::{PortRange, Protocol};

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
        for protocol in Protocol::ALL {
            for family in [AF_INET, AF_INET6] {
                dump(family, protocol, bound.of_mut(protocol))?;
            }
        }
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

/// Adds the local ports of the sockets of one family and protocol.
fn dump(family: u8, protocol: Protocol, ports: &mut PortSet) -> io::Result<()> {
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
                    let port = response.header.socket_id.source_port;
                    ports.extend(PortRange::new(port, port).ok());
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
