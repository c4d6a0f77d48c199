//! A client that tells what its socket told it.

use std::{
    net::SocketAddr,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    libc,
    sys::{
        socket::{self, SockaddrStorage, getsockname, setsockopt, sockopt},
        time::TimeVal,
    },
};

use super::{Ip, Namespace, at, patience};

/// What waiting in vain for a connection says.
pub const TIMED_OUT: Errno = Errno::EALREADY;

/// A connection to open.
#[derive(Clone, Copy, Debug)]
pub struct Dial {
    /// Where to.
    pub to: SocketAddr,
    /// Source port; 0 lets the kernel choose.
    pub from_port: u16,
    /// The client's own patience.
    pub patience: Duration,
    /// An MPTCP socket rather than a TCP one.
    pub mptcp: bool,
}

/// How it ended.
#[derive(Debug)]
pub struct Dialled {
    /// The client's own address and port.
    pub local: SocketAddr,
    /// `connect`'s error; [`TIMED_OUT`] is the client's own timeout.
    pub result: Result<(), Errno>,
    /// The connection, if there is one, open until dropped.
    pub connection: OwnedFd,
}

impl Dial {
    /// A patient client of any port.
    pub fn new(to: SocketAddr) -> Self {
        Self { to, from_port: 0, patience: patience(), mptcp: false }
    }

    /// A client that gives up after so many milliseconds.
    pub fn for_millis(to: SocketAddr, millis: u64) -> Self {
        Self { patience: Duration::from_millis(millis), ..Self::new(to) }
    }

    /// The same from this port.
    pub fn port(self, from_port: u16) -> Self {
        Self { from_port, ..self }
    }

    /// Opens it in the calling thread's namespace.
    fn open(self) -> Dialled {
        let (family, protocol) = (
            if self.to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 },
            if self.mptcp { libc::IPPROTO_MPTCP } else { libc::IPPROTO_TCP },
        );
        // SAFETY: integers only; the result is checked below.
        let descriptor =
            unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, protocol) };
        let descriptor = Errno::result(descriptor).expect("make a socket");
        // SAFETY: just opened, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(descriptor) };
        if self.from_port != 0 {
            setsockopt(&fd, sockopt::ReuseAddr, &true).expect("set SO_REUSEADDR");
            let from = SockaddrStorage::from(at(Ip::of(self.to.ip()).any(), self.from_port));
            socket::bind(fd.as_raw_fd(), &from).expect("bind the source port");
        }
        let patience = TimeVal::new(
            i64::try_from(self.patience.as_secs()).expect("a short patience"),
            i64::from(self.patience.subsec_micros()),
        );
        setsockopt(&fd, sockopt::SendTimeout, &patience).expect("set SO_SNDTIMEO");
        // Begun without waiting: a connect that fails takes its local address away.
        let to = SockaddrStorage::from(self.to);
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("make a socket not wait");
        let begun = socket::connect(fd.as_raw_fd(), &to);
        assert_eq!(begun, Err(Errno::EINPROGRESS), "begin to connect to {}", self.to);
        let local: SockaddrStorage = getsockname(fd.as_raw_fd()).expect("ask for the local port");
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::empty())).expect("make a socket wait");
        let result = socket::connect(fd.as_raw_fd(), &to);
        Dialled { local: to_std(local), result, connection: fd }
    }
}

impl Dialled {
    /// Closes the connection by a RST, so that nothing of it remains at the client.
    pub fn abort(self) {
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(&self.connection, sockopt::Linger, &at_once).expect("set SO_LINGER");
    }
}

impl Namespace {
    /// Opens a connection from here. One that failed is closed before this returns.
    pub fn dial(&self, dial: Dial) -> Dialled {
        self.run(|| dial.open())
    }

    /// Opens a connection and closes it at once; what the client saw, and its port.
    pub fn try_once(&self, dial: Dial) -> (Result<(), Errno>, SocketAddr) {
        let Dialled { local, result, connection } = self.dial(dial);
        drop(connection);
        (result, local)
    }
}

fn to_std(address: SockaddrStorage) -> SocketAddr {
    if let Some(v4) = address.as_sockaddr_in() {
        return SocketAddr::from((v4.ip(), v4.port()));
    }
    let v6 = address.as_sockaddr_in6().expect("an address of IPv4 or IPv6");
    SocketAddr::from((v6.ip(), v6.port()))
}
