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
    /// Three ports that were just free: see [`free_port`]. Another process can still take one before the program listens on it;
    /// [`was_taken`] detects that, and the caller then starts again with other ports.
    ///
    /// # Errors
    /// Same as [`free_port`].
    pub fn free() -> Result<Self> {
        // All are held until the last one is known, so that they differ.
        let held = (hold_port()?, hold_port()?, hold_port()?);
        Ok(Self {
            etcd: held.0.local_addr()?.port(),
            etcd_peer: held.1.local_addr()?.port(),
            api_server: held.2.local_addr()?.port(),
        })
    }
}

/// A port of the loopback address that was just free, for a program that cannot choose one itself, or one that nothing listens on.
///
/// It is none of those that the kernel gives to connections and to listeners on port 0 (`ip_local_port_range`): the hundreds of
/// programs of a test run, which ask for such ports all the time, do not take it in the moment until its program listens, nor
/// while the program is restarted.
///
/// # Errors
/// When the loopback address has no free port.
pub fn free_port() -> Result<u16> {
    Ok(hold_port()?.local_addr()?.port())
}

/// Listens on a port outside the kernel's range, or on one of the kernel's where nothing below is free.
fn hold_port() -> Result<TcpListener> {
    let below = BELOW.start..BELOW.end.min(first_of_the_kernel());
    let mut tries = (0..TRIES).filter(|_| !below.is_empty()).map(|_| rand::random_range(below.clone()));
    let held = tries.find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    held.map_or_else(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1"), Ok)
}

/// The ports to choose from: above those that programs commonly have by default (19000 is one of Cluster API's) and those of the kubelets
/// of `docs/providers/exec/processes.sh` (18000 and the machine's number), below those of
/// Services (`--service-node-port-range`, 30000 to 32767).
const BELOW: std::ops::Range<u16> = 20_000..30_000;

/// How many ports are tried. With a tenth of [`BELOW`] taken, that all are has a probability of 1e-50.
const TRIES: usize = 50;

/// The first port that the kernel gives away itself. macOS begins at 49152.
fn first_of_the_kernel() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768)
}

/// Whether a program's log shows that it ended because its port was taken.
pub fn was_taken(log: &str) -> bool {
    log.contains("address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_plane_gets_the_port_of_a_kubelet_of_the_example() {
        let program = include_str!("../../../docs/providers/exec/processes.sh");
        let first = program.split("port: $((").nth(1).unwrap().split(" +").next().unwrap();
        let first: u16 = first.parse().unwrap();
        assert!(first + 999 < BELOW.start, "{first}");
    }

    #[test]
    fn the_ports_differ_and_can_be_bound() {
        let ports = Ports::free().unwrap();
        assert_ne!(ports.etcd, ports.etcd_peer);
        assert_ne!(ports.etcd, ports.api_server);
        TcpListener::bind((Ipv4Addr::LOCALHOST, ports.api_server)).unwrap();
    }

    #[test]
    fn the_kernel_gives_a_free_port_to_no_other_program() {
        let kernel = first_of_the_kernel();
        if kernel <= BELOW.start {
            // This machine's kernel gives away every port, so that there is none to choose.
            return;
        }
        for _ in 0..100 {
            let port = free_port().unwrap();
            assert!(port < kernel, "{port} is one of those from {kernel}");
        }
    }
}
