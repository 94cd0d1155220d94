//! Free ports on the loopback address.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// The ports of one control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// etcd's port for the API server.
    pub etcd: u16,
    /// etcd's port for other members; there are none, but etcd requires it.
    pub etcd_peer: u16,
    /// The API server's port.
    pub api_server: u16,
}

impl Ports {
    /// Three ports that were just free. Another process can still take one before the program listens on it;
    /// [`was_taken`] detects that, and the caller then starts again with other ports.
    ///
    /// # Errors
    /// When the loopback address has no free port.
    pub fn free() -> Result<Self> {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1");
        // All are held until the last one is known, so that they differ.
        let (etcd, etcd_peer, api_server) = (bind()?, bind()?, bind()?);
        Ok(Self {
            etcd: etcd.local_addr()?.port(),
            etcd_peer: etcd_peer.local_addr()?.port(),
            api_server: api_server.local_addr()?.port(),
        })
    }
}

/// Whether a program's log shows that it ended because its port was taken.
pub fn was_taken(log: &str) -> bool {
    log.contains("address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_differ_and_can_be_bound() {
        let ports = Ports::free().unwrap();
        assert_ne!(ports.etcd, ports.etcd_peer);
        assert_ne!(ports.etcd, ports.api_server);
        TcpListener::bind((Ipv4Addr::LOCALHOST, ports.api_server)).unwrap();
    }
}
