//! One connection through the Service that is as full as it gets.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};

use crate::loss::world::{SERVICE, World, backend};

/// The Service's port for it, and that of the backend.
const PORT: u16 = 81;
/// Bytes of a write.
const PIECE: usize = 128 << 10;

/// Lets a backend read whatever comes.
///
/// # Errors
/// If its rule cannot be set, or its port is taken.
pub fn serve(world: &World) -> Result<()> {
    let (ip, to) = (SERVICE.ip().to_string(), format!("{}:{PORT}", backend(1).ip()));
    let port = PORT.to_string();
    let rule = ["-t", "nat", "-A", "PREROUTING", "-d", &ip, "-p", "tcp", "--dport", &port];
    let rule: Vec<&str> = rule.into_iter().chain(["-j", "DNAT", "--to-destination", &to]).collect();
    world.node.tool("iptables", &rule, "")?;
    let listener = world.backends[1]
        .namespace()
        .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("listen for bulk"))?;
    thread::spawn(move || {
        // Ends with the process.
        while let Ok((mut connection, _)) = listener.accept() {
            let mut bytes = vec![0; PIECE];
            while connection.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }
    });
    Ok(())
}

/// Bytes a second that go through in so much time.
///
/// # Errors
/// If the connection breaks.
pub fn measure(world: &World, time: Duration) -> Result<f64> {
    let client = world.clients[0].clone();
    let sender = thread::spawn(move || {
        client.enter()?;
        let to = SocketAddrV4::new(*SERVICE.ip(), PORT);
        let mut connection = TcpStream::connect(to).with_context(|| format!("connect to {to}"))?;
        let bytes = vec![0x5a; PIECE];
        let began = Instant::now();
        let mut sent = 0.0;
        while began.elapsed() < time {
            connection.write_all(&bytes).context("send")?;
            sent += f64::from(u32::try_from(PIECE).unwrap_or(u32::MAX));
        }
        anyhow::Ok(sent / began.elapsed().as_secs_f64())
    });
    sender.join().map_err(|_| anyhow!("the sender panicked"))?
}
