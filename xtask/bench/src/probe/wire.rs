//! Putting frames on a link.

use std::{
    io,
    mem::{size_of, zeroed},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
};

use anyhow::{Context as _, Result};
use nix::{errno::Errno, libc, net::if_::if_nametoindex};

use crate::namespace::Namespace;

/// Frames handed over in one system call; well below `net.core.netdev_max_backlog` (1,000), beyond
/// which a veth drops.
const BATCH: usize = 64;

/// An end of a link.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
}

impl Link {
    /// Opens an end. With `bypass` a frame goes to the driver at once, past the device's queue and
    /// so past `net_dev_queue`: only what the other end makes of it is seen.
    ///
    /// # Errors
    /// Without `CAP_NET_RAW`, or without such a link.
    pub fn open(namespace: &Namespace, name: &str, bypass: bool) -> Result<Self> {
        namespace.run(|| {
            // SAFETY: integers only. Protocol 0: nothing is received.
            let socket =
                unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            let socket = Errno::result(socket).context("open a packet socket (run it as root)")?;
            // SAFETY: just opened, and nobody else's.
            let socket = unsafe { OwnedFd::from_raw_fd(socket) };
            let index = if_nametoindex(name).with_context(|| format!("find the link {name}"))?;
            // SAFETY: plain integers, of which zero is a value.
            let mut address: libc::sockaddr_ll = unsafe { zeroed() };
            address.sll_family = u16::try_from(libc::AF_PACKET).context("an address family")?;
            address.sll_ifindex = i32::try_from(index).context("a link's index")?;
            let length =
                libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).context("a size")?;
            // SAFETY: the address lives through the call and has the length that is given.
            let bound =
                unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
            Errno::result(bound).with_context(|| format!("bind a packet socket to {name}"))?;
            let on = libc::c_int::from(bypass);
            let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).context("a size")?;
            // SAFETY: the value lives through the call and has the length that is given.
            let set = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_PACKET,
                    libc::PACKET_QDISC_BYPASS,
                    (&raw const on).cast(),
                    length,
                )
            };
            Errno::result(set).context("set PACKET_QDISC_BYPASS")?;
            Ok(Self { socket })
        })
    }

    /// Sends all frames, in order.
    ///
    /// # Errors
    /// If the kernel takes one no more.
    pub fn send(&self, frames: &[Vec<u8>]) -> Result<()> {
        for batch in frames.chunks(BATCH) {
            let mut parts: Vec<libc::iovec> = batch
                .iter()
                .map(|frame| libc::iovec {
                    iov_base: frame.as_ptr().cast_mut().cast(),
                    iov_len: frame.len(),
                })
                .collect();
            let mut messages: Vec<libc::mmsghdr> = parts
                .iter_mut()
                .map(|part| {
                    // SAFETY: integers and pointers, of which zero is a value.
                    let mut message: libc::mmsghdr = unsafe { zeroed() };
                    message.msg_hdr.msg_iov = ptr::from_mut(part);
                    message.msg_hdr.msg_iovlen = 1;
                    message
                })
                .collect();
            let mut sent = 0;
            while sent < messages.len() {
                let rest = &mut messages[sent..];
                let count = libc::c_uint::try_from(rest.len()).context("a batch")?;
                // SAFETY: messages, parts and frames live through the call; the kernel only reads
                // the frames.
                let taken =
                    unsafe { libc::sendmmsg(self.socket.as_raw_fd(), rest.as_mut_ptr(), count, 0) };
                if taken < 0 {
                    let error = io::Error::last_os_error();
                    if error.raw_os_error() == Some(libc::ENOBUFS) {
                        std::thread::yield_now();
                        continue;
                    }
                    return Err(error).context("send frames");
                }
                sent += usize::try_from(taken).context("a count of frames")?;
            }
        }
        Ok(())
    }
}
