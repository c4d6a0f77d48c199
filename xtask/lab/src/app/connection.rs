//! A client's connection: every system call's own result, and the local port in any case.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, bind, connect,
    getsockname, getsockopt, setsockopt, socket, sockopt,
};

use super::failure::{ClientClass, Phase};

/// A connection that was answered.
#[derive(Debug)]
pub struct Connection {
    /// The client's own address and port.
    pub local: SocketAddr,
    /// When connect was called, in nanoseconds since the epoch.
    pub started: i64,
    /// Requests it has carried.
    pub requests: u64,
    stream: TcpStream,
}

/// Why a connection or request failed.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Where.
    pub phase: Phase,
    /// The class.
    pub class: ClientClass,
    /// In words.
    pub error: String,
    /// The kernel's number.
    pub errno: Option<i32>,
}

/// A connect that failed, with the port it used.
#[derive(Debug)]
pub struct ConnectFailure {
    /// The client's own address and port; port 0 when the kernel gave none.
    pub local: SocketAddr,
    /// When connect was called.
    pub started: i64,
    /// Why.
    pub trouble: Trouble,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The body.
    pub body: Vec<u8>,
    /// The server will close the connection.
    pub close: bool,
}

/// Nanoseconds since the epoch.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Connection {
    /// Connects with a deadline, from a certain port if one is given.
    pub fn open(
        target: SocketAddr,
        from_port: Option<u16>,
        deadline: Instant,
    ) -> Result<Self, ConnectFailure> {
        let nowhere = SocketAddr::new(target.ip(), 0);
        let mut started = now();
        let fail = |local, started, errno: Errno| ConnectFailure {
            local,
            started,
            trouble: Trouble::of_errno(Phase::Connect, errno),
        };
        let family = if target.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, SockType::Stream, flags, None)
            .map_err(|errno| fail(nowhere, started, errno))?;
        if let Some(port) = from_port {
            let local = SocketAddr::new(nowhere.ip(), port);
            take_port(&socket, target, port).map_err(|errno| fail(local, started, errno))?;
        }
        started = now();
        let begun = begin(&socket, target);
        // A connect that fails may take its address away.
        let local = local_address(&socket).unwrap_or(nowhere);
        let outcome = begun.or_else(|errno| {
            if errno == Errno::EINPROGRESS { wait(&socket, deadline) } else { Err(errno) }
        });
        outcome.map_err(|errno| fail(local, started, errno))?;
        blocking(&socket).map_err(|errno| fail(local, started, errno))?;
        let stream = TcpStream::from(socket);
        Ok(Self { local, started, requests: 0, stream })
    }

    /// The stream alone.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends a request and reads its answer.
    pub fn request(&mut self, host: SocketAddr, deadline: Instant) -> Result<Answer, Trouble> {
        let trouble = |error: &std::io::Error| Trouble::of_error(Phase::Request, error);
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: lab\r\n\r\n");
        self.stream.set_nodelay(true).map_err(|e| trouble(&e))?;
        self.stream.set_write_timeout(Some(left(deadline))).map_err(|e| trouble(&e))?;
        self.requests += 1;
        self.stream.write_all(text.as_bytes()).map_err(|e| trouble(&e))?;
        self.read_answer(deadline)
    }

    fn read_answer(&mut self, deadline: Instant) -> Result<Answer, Trouble> {
        let mut answer = Vec::with_capacity(512);
        let mut chunk = [0_u8; 4096];
        loop {
            if let Some(parsed) = parse(&answer) {
                return Ok(parsed);
            }
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return Err(Trouble::of_errno(Phase::Request, Errno::ETIMEDOUT));
            }
            self.stream
                .set_read_timeout(Some(time_left))
                .map_err(|e| Trouble::of_error(Phase::Request, &e))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Trouble::cut()),
                Ok(length) => answer.extend_from_slice(&chunk[..length]),
                Err(error) => return Err(Trouble::of_error(Phase::Request, &error)),
            }
        }
    }
}

/// A whole answer: head and `Content-Length` bytes.
pub fn parse(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let value = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let length: usize = value("content-length")?.parse().ok()?;
    let body = answer.get(end..end + length)?.to_vec();
    Some(Answer { body, close: value("connection") == Some("close") })
}

impl Trouble {
    /// By the kernel's number.
    pub fn of_errno(phase: Phase, errno: Errno) -> Self {
        let class = match (errno, phase) {
            (Errno::ECONNREFUSED, _) => ClientClass::Refused,
            (Errno::ETIMEDOUT | Errno::EAGAIN, Phase::Connect) => ClientClass::Timeout,
            (Errno::ETIMEDOUT | Errno::EAGAIN, Phase::Request) => ClientClass::Stalled,
            (Errno::EHOSTUNREACH | Errno::ENETUNREACH, _) => ClientClass::Unreachable,
            (Errno::ECONNRESET | Errno::EPIPE, _) => ClientClass::Reset,
            _ => ClientClass::Other,
        };
        Self { phase, class, error: errno.desc().to_owned(), errno: Some(errno as i32) }
    }

    /// Of a read or a write; an end of the stream is one before its time.
    pub fn of_error(phase: Phase, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::of_errno(phase, Errno::from_raw(number)),
            None if error.kind() == std::io::ErrorKind::UnexpectedEof => Self::cut(),
            None if error.kind() == std::io::ErrorKind::TimedOut => {
                Self::of_errno(phase, Errno::ETIMEDOUT)
            }
            None => {
                Self { phase, class: ClientClass::Other, error: error.to_string(), errno: None }
            }
        }
    }

    fn cut() -> Self {
        Self {
            phase: Phase::Request,
            class: ClientClass::Cut,
            error: "connection closed before response".to_owned(),
            errno: None,
        }
    }
}

fn begin(socket: &OwnedFd, target: SocketAddr) -> Result<(), Errno> {
    match target {
        SocketAddr::V4(target) => connect(socket.as_raw_fd(), &SockaddrIn::from(target)),
        SocketAddr::V6(target) => connect(socket.as_raw_fd(), &SockaddrIn6::from(target)),
    }
}

/// Binds a source port that is used again and again: closed by a RST, a connection leaves nothing behind
/// at the client that would be in the way of the next.
fn take_port(socket: &OwnedFd, target: SocketAddr, port: u16) -> Result<(), Errno> {
    setsockopt(socket, sockopt::ReuseAddr, &true)?;
    setsockopt(socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(any, port)))
}

/// Waits for the answer to a SYN.
fn wait(socket: &OwnedFd, deadline: Instant) -> Result<(), Errno> {
    loop {
        let milliseconds = left(deadline).as_millis();
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut watched, timeout) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(0) if Instant::now() >= deadline => return Err(Errno::ETIMEDOUT),
            Ok(0) => {}
            Ok(_) => {
                return match getsockopt(socket, sockopt::SocketError)? {
                    0 => Ok(()),
                    number => Err(Errno::from_raw(number)),
                };
            }
        }
    }
}

fn blocking(socket: &OwnedFd) -> Result<(), Errno> {
    fcntl(socket, FcntlArg::F_SETFL(OFlag::empty())).map(|_| ())
}

fn local_address(socket: &OwnedFd) -> Option<SocketAddr> {
    let storage: SockaddrStorage = getsockname(socket.as_raw_fd()).ok()?;
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::V4(SocketAddrV4::new(v4.ip(), v4.port())));
    }
    storage.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port()))
}

/// Time left, at least a millisecond: zero would mean "no timeout" to the kernel.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[test]
    fn a_refused_connect_still_knows_its_local_port() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let target = listener.local_addr().expect("its address");
        drop(listener);
        let failure = Connection::open(target, None, soon()).expect_err("nobody listens");
        assert_eq!(failure.trouble.class, ClientClass::Refused);
        assert_ne!(failure.local.port(), 0);
    }

    #[test]
    fn an_end_of_stream_before_the_answer_is_a_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let target = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0_u8; 512];
            let _length = stream.read(&mut request).expect("a request");
        });
        let mut connection = Connection::open(target, None, soon()).expect("a connection");
        let trouble = connection.request(target, soon()).expect_err("no answer");
        assert_eq!(trouble.class, ClientClass::Cut);
        server.join().expect("the server's end");
    }
}
