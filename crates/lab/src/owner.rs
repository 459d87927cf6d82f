//! Which process listens at an address, from /proc: figures of a process are a server's only if that process is the one that
//! answers.
//!
//! `/proc/net/tcp` has the inode of each listening socket, `/proc/<pid>/fd` the process that holds it. This detects a wrapper
//! that starts the server beside itself, a proxy, a forwarded port of a container, and a process id of another namespace.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use larder_eventloop::socket::Address;

/// State of a listening socket (proc_net_tcp, include/net/tcp_states.h).
const LISTEN: &str = "0A";
/// A Unix socket that listens: `__SO_ACCEPTCON` among its flags.
const ACCEPTS: u32 = 0x10000;

/// The process that answers at `address`: the child that was started, the process id that the server reports, and the owner of
/// the listening socket must be the same, as far as they are known.
///
/// # Errors
/// The reason why it is not known, in words.
pub fn answering(address: &Address, child: Option<u32>, reported: Option<u32>) -> Result<u32, String> {
    if let (Some(child), Some(reported)) = (child, reported)
        && child != reported
    {
        return Err(format!("process {child} was started, and process {reported} answers"));
    }
    let known = child.or(reported).ok_or("it does not report its process id")?;
    let owners = listeners(address);
    match owners.iter().collect::<Vec<_>>()[..] {
        [] => Err(format!("no process that this user can see listens at {address}")),
        [&owner] if owner == known => Ok(known),
        [owner] if child.is_some() => {
            Err(format!("process {known} was started, and process {owner} listens"))
        }
        [owner] => Err(format!("it reports process {known}, and process {owner} listens at {address}")),
        _ => Err(format!("{} processes listen at {address}", owners.len())),
    }
}

/// Processes that hold a socket that listens at `address`, as far as this user may look into them.
pub fn listeners(address: &Address) -> BTreeSet<u32> {
    let inodes = match address {
        Address::Tcp(address) => tcp_inodes(address),
        Address::Unix(path) => unix_inodes(path),
    };
    if inodes.is_empty() {
        return BTreeSet::new();
    }
    let links: BTreeSet<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| {
            let link = link.to_string_lossy();
            links.contains(link.as_ref())
        })
    };
    pids.filter(holds).collect()
}

/// Inodes of sockets that listen at exactly this address, or else of those that listen at every address.
fn tcp_inodes(address: &SocketAddr) -> Vec<u64> {
    let read = |name| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let all: Vec<(SocketAddr, u64)> = listening(&read("tcp")).chain(listening(&read("tcp6"))).collect();
    let wanted = address.ip().to_canonical();
    let at = |holds: &dyn Fn(IpAddr) -> bool| -> Vec<u64> {
        let here = all.iter().filter(|(have, _)| have.port() == address.port() && holds(have.ip()));
        here.map(|(_, inode)| *inode).collect()
    };
    let exact = at(&|ip| ip.to_canonical() == wanted);
    let any = match wanted {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let same_family = at(&|ip| ip == any);
    [exact, same_family, at(&|ip| ip.is_unspecified())]
        .into_iter()
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

/// Listening sockets of a table such as /proc/net/tcp: address in the second field, state in the fourth, inode in the
/// tenth.
fn listening(table: &str) -> impl Iterator<Item = (SocketAddr, u64)> + '_ {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if *fields.get(3)? != LISTEN {
            return None;
        }
        Some((socket_address(fields.get(1)?)?, fields.get(9)?.parse().ok()?))
    })
}

/// `0100007F:2BCB`: words of four bytes, each printed as the number that it is in this machine's memory.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for at in (0..ip.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Inodes of Unix sockets that listen at `path`, else of those that were bound in its folder to a name that no longer exists: a
/// server may bind to another name and rename it when it listens, and the kernel keeps the first name.
fn unix_inodes(path: &Path) -> Vec<u64> {
    let table = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    let all: Vec<(&Path, u64)> = table.lines().skip(1).filter_map(unix_listener).collect();
    let at = |holds: &dyn Fn(&Path) -> bool| -> Vec<u64> {
        all.iter().filter(|(bound, _)| holds(bound)).map(|(_, inode)| *inode).collect()
    };
    let exact = at(&|bound| bound == path);
    if !exact.is_empty() || !path.exists() {
        return exact;
    }
    at(&|bound| bound.parent() == path.parent() && !bound.exists())
}

/// Path and inode of a Unix socket that listens: `Num RefCount Protocol Flags Type St Inode Path`.
fn unix_listener(line: &str) -> Option<(&Path, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let accepts = u32::from_str_radix(fields.nth(3)?, 16).ok()? & ACCEPTS != 0;
    let inode = fields.nth(2)?;
    let (_, path) = line.split_once(&format!(" {inode} "))?;
    accepts.then_some((Path::new(path), inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::process::id;

    use larder_eventloop::port::Port;

    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_prints_them() {
        let of = |text: &str| socket_address(text).map(|address| address.to_string());
        // The kernel's words are in this machine's order of bytes.
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let four = word([127, 0, 0, 1]);
        assert_eq!(of(&format!("{four}:2BCB")).unwrap(), "127.0.0.1:11211");
        let six = [word([0; 4]), word([0; 4]), word([0; 4]), word([0, 0, 0, 1])].concat();
        assert_eq!(of(&format!("{six}:0050")).unwrap(), "[::1]:80");
        assert_eq!((of("7F:1"), of("nonsense"), of("")), (None, None, None));
    }

    #[test]
    fn a_listening_socket_is_found_at_its_address_and_behind_any_address() {
        let port = Port::reserve().unwrap();
        let exact = TcpListener::bind(port.address()).unwrap();
        let any = TcpListener::bind("0.0.0.0:0").unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], any.local_addr().unwrap().port()));
        for address in [exact.local_addr().unwrap(), local] {
            assert_eq!(listeners(&Address::Tcp(address)), BTreeSet::from([id()]));
            assert_eq!(answering(&Address::Tcp(address), None, Some(id())), Ok(id()));
        }
        let address = Address::Tcp(exact.local_addr().unwrap());
        assert!(
            answering(&address, None, Some(1)).unwrap_err().contains("it reports process 1, and process")
        );
        assert!(
            answering(&address, Some(1), None).unwrap_err().contains("process 1 was started, and process")
        );
        assert!(answering(&address, Some(1), Some(id())).unwrap_err().contains("process 1 was started"));
        assert!(answering(&address, None, None).unwrap_err().contains("does not report"));
        drop(exact);
        assert!(answering(&address, None, Some(id())).unwrap_err().starts_with("no process that"));
        let path = std::env::temp_dir().join(format!("larder-owner-{}", id()));
        let unix = UnixListener::bind(&path).unwrap();
        assert_eq!(listeners(&Address::Unix(path.clone())), BTreeSet::from([id()]));
        let folder = path.with_extension("folder");
        std::fs::create_dir_all(&folder).unwrap();
        let moved = folder.join("a socket");
        assert!(listeners(&Address::Unix(moved.clone())).is_empty());
        drop(unix);
        std::fs::remove_file(&path).unwrap();
        assert!(listeners(&Address::Unix(path)).is_empty());
        // No client sees the socket before it listens.
        let unix = UnixListener::bind(folder.join("a socket.new")).unwrap();
        std::fs::rename(folder.join("a socket.new"), &moved).unwrap();
        assert_eq!(listeners(&Address::Unix(moved.clone())), BTreeSet::from([id()]));
        drop(unix);
        assert!(listeners(&Address::Unix(moved)).is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
